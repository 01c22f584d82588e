package calc

import "heddle/calico/selector"

// index finds the queries that a class matches and the classes that match a query, at a cost that
// follows how many there are. Each query is filed under one condition that any match must meet
// (selector.Bounds), and each class under every label it carries. Only those found are evaluated.
type index struct {
	labels  map[string]*label
	lastID  uint64        // of a pair or query
	rest    [kinds]bucket // queries without such a condition
	classes []*class      // all
	byOwn   map[uint64]*class
	walk    uint64 // number of the last walk that marks labels and pairs
	at      view
	shown   *class // whose values label.shown has; nil: none
}

// kind distinguishes queries of sets from those of policies, for which only local endpoints matter.
type kind uint8

const (
	ofSets kind = iota
	ofPolicies
	kinds = 2
)

// query is a selector or a tag that searches classes.
type query struct {
	kind     kind
	id       uint64
	selector *selector.Selector // nil: tag
	tag      string
	set      *set    // whose it is
	policy   *policy // whose it is
	filed    []filed
	pairs    []*pair // held for filed
	label    *label  // held for filed
}

// bucket has the queries filed under one condition.
type bucket struct{ queries []filing }

type filing struct {
	query *query
	of    int // index in query.filed
}

// filed is a bucket that has a query, with the position in it.
type filed struct {
	bucket *bucket
	pos    int // in bucket.queries
}

func (b *bucket) file(q *query) {
	q.filed = append(q.filed, filed{b, len(b.queries)})
	b.queries = append(b.queries, filing{q, len(q.filed) - 1})
}

func (b *bucket) unfile(pos int) {
	moved := removeAt(&b.queries, pos)
	moved.query.filed[moved.of].pos = pos
}

func newIndex() *index {
	return &index{labels: map[string]*label{}, byOwn: map[uint64]*class{}}
}

// view implements selector.Labels for a class. The index has one, so matching allocates nothing.
type view struct {
	labels map[string]*label
	class  *class
}

// Get implements selector.Labels.
func (v *view) Get(name string) (string, bool) {
	l := v.labels[name]
	if l == nil {
		return "", false
	}
	if len(v.class.carries) > fewLabels {
		if l.shown == nil {
			return "", false
		}
		return l.shown.value, true
	}
	for _, c := range v.class.carries {
		if c.pair.label == l {
			return c.pair.value, true
		}
	}
	return "", false
}

// fewLabels bounds the labels of a class that are searched one by one. With more, the values are
// noted at the labels first, or selectors of many terms would take quadratic time.
const fewLabels = 8

// show notes the values of a class with many labels at its labels.
func (x *index) show(c *class) {
	if x.shown == c || len(c.carries) <= fewLabels {
		return
	}
	x.hide()
	x.shown = c
	for _, carried := range c.carries {
		carried.pair.label.shown = carried.pair
	}
}

// hide undoes show. It must be called before a class's pairs change.
func (x *index) hide() {
	if x.shown == nil {
		return
	}
	for _, carried := range x.shown.carries {
		carried.pair.label.shown = nil
	}
	x.shown = nil
}

func (x *index) matches(q *query, c *class) bool {
	x.show(c)
	x.at = view{x.labels, c}
	if q.selector == nil {
		_, has := x.at.Get(q.tag)
		return has
	}
	return q.selector.Match(&x.at)
}

// bounds returns conditions that a class must meet to match q.
func (q *query) bounds() (bounds []selector.Bound, possible bool) {
	if q.selector == nil {
		return []selector.Bound{{Label: q.tag}}, true
	}
	return q.selector.Bounds()
}

// file files a query under that condition which has the fewest queries, and values before presence.
func (x *index) file(q *query) {
	x.lastID++
	q.id = x.lastID
	bounds, possible := q.bounds()
	if !possible {
		return
	}
	best := x.emptiest(q.kind, bounds)
	switch {
	case best == nil:
		x.rest[q.kind].file(q)
	case best.Values == nil:
		q.label = x.label(best.Label)
		q.label.wanted[q.kind].file(q)
	default:
		for _, v := range best.Values {
			p := x.pair(best.Label, v)
			q.pairs = append(q.pairs, p)
			p.wanted[q.kind].file(q)
		}
	}
}

// emptiest chooses a bound to file a query under; nil: none serves.
func (x *index) emptiest(k kind, bounds []selector.Bound) *selector.Bound {
	var best *selector.Bound
	var least int
	for i := range bounds {
		b := &bounds[i]
		if b.Absent {
			continue
		}
		n := x.filedUnder(k, b)
		if best == nil || n < least || n == least && best.Values == nil && b.Values != nil {
			best, least = b, n
		}
	}
	return best
}

// filedUnder counts the queries that are filed under a bound already.
func (x *index) filedUnder(k kind, b *selector.Bound) int {
	l := x.labels[b.Label]
	if l == nil {
		return 0
	}
	if b.Values == nil {
		return len(l.wanted[k].queries)
	}
	most := 0
	for _, v := range b.Values {
		if p := l.pairs[v]; p != nil {
			most = max(most, len(p.wanted[k].queries))
		}
	}
	return most
}

func (x *index) unfile(q *query) {
	for _, f := range q.filed {
		f.bucket.unfile(f.pos)
	}
	for _, p := range q.pairs {
		x.release(p)
	}
	if q.label != nil {
		x.dropLabel(q.label)
	}
	q.filed, q.pairs, q.label = nil, nil, nil
}

// queriesOf appends the queries of a kind that a class matches, in no particular order.
func (x *index) queriesOf(k kind, c *class, found []*query) []*query {
	for _, carried := range c.carries {
		found = x.filter(&carried.pair.wanted[k], c, found)
		found = x.filter(&carried.pair.label.wanted[k], c, found)
	}
	return x.filter(&x.rest[k], c, found)
}

func (x *index) filter(b *bucket, c *class, found []*query) []*query {
	for _, f := range b.queries {
		if x.matches(f.query, c) {
			found = append(found, f.query)
		}
	}
	return found
}

// classesOf appends the classes that match a query, of those that meet its rarest condition.
func (x *index) classesOf(q *query, found []*class) []*class {
	bounds, possible := q.bounds()
	if !possible {
		return found
	}
	var best *selector.Bound
	least := len(x.classes)
	for i := range bounds {
		if n := x.carriers(&bounds[i]); !bounds[i].Absent && n < least {
			best, least = &bounds[i], n
		}
	}
	if best == nil {
		for _, c := range x.classes {
			if x.matches(q, c) {
				found = append(found, c)
			}
		}
		return found
	}
	look := func(members []member) {
		for _, m := range members {
			if x.matches(q, m.class) {
				found = append(found, m.class)
			}
		}
	}
	l := x.labels[best.Label]
	switch {
	case l == nil:
	case best.Values == nil:
		for _, p := range l.list {
			look(p.classes)
		}
	default:
		for _, v := range best.Values {
			if p := l.pairs[v]; p != nil {
				look(p.classes)
			}
		}
	}
	return found
}

// carriers counts the classes that meet a bound for the presence of its label.
func (x *index) carriers(b *selector.Bound) int {
	l := x.labels[b.Label]
	if l == nil {
		return 0
	}
	if b.Values == nil {
		return l.classes
	}
	n := 0
	for _, v := range b.Values {
		if p := l.pairs[v]; p != nil {
			n += len(p.classes)
		}
	}
	return n
}
