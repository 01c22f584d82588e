package calc

import (
	"slices"

	"heddle/calico/selector"
)

// index finds the queries that a class fulfils and the classes that fulfil a query, at a cost that follows how many
// there are. Each query is filed under one condition that any match must meet (selector.Bounds), and each class under
// every label that it carries, so most of the others are never looked at. What is found is then evaluated.
type index struct {
	labels  map[string]*label
	lastID  uint64        // of a pair or query
	rest    [kinds]bucket // queries without such a condition
	classes []*class      // all
	byOwn   map[uint64]*class
	walk    uint64 // number of the last walk that marks labels and pairs
	at      view
}

// kind tells the queries of sets from those of policies, which only local endpoints matter to.
type kind uint8

const (
	ofSets kind = iota
	ofPolicies
	kinds = 2
)

// query is a selector, or a tag, that looks for classes.
type query struct {
	kind     kind
	id       uint64
	selector *selector.Selector // nil: tag
	tag      string
	set      *set    // whose it is
	policy   *policy // whose it is
	filed    []*bucket
	pairs    []*pair // held for filed
	label    *label  // held for filed
}

// bucket holds queries filed under one condition.
type bucket struct{ queries []*query }

func newIndex() index {
	return index{labels: map[string]*label{}, byOwn: map[uint64]*class{}}
}

// view shows a class's labels to selectors. The index has one, so that evaluating allocates nothing.
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
	for _, c := range v.class.carries {
		if c.pair.label == l {
			return c.pair.value, true
		}
	}
	return "", false
}

// matches evaluates a query on a class.
func (x *index) matches(q *query, c *class) bool {
	x.at = view{x.labels, c}
	if q.selector == nil {
		_, has := x.at.Get(q.tag)
		return has
	}
	return q.selector.Match(&x.at)
}

// bounds are conditions that a class must meet to match q.
func (q *query) bounds() (bounds []selector.Bound, possible bool) {
	if q.selector == nil {
		return []selector.Bound{{Label: q.tag}}, true
	}
	return q.selector.Bounds()
}

// file puts a query where classes will find it: of the conditions that it must meet, under that which the fewest
// queries are filed under, and a value before presence.
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
		q.filed = []*bucket{&x.rest[q.kind]}
	case best.Values == nil:
		q.label = x.label(best.Label)
		q.filed = []*bucket{&q.label.wanted[q.kind]}
	default:
		for _, v := range best.Values {
			p := x.pair(best.Label, v)
			q.pairs = append(q.pairs, p)
			q.filed = append(q.filed, &p.wanted[q.kind])
		}
	}
	for _, b := range q.filed {
		b.queries = append(b.queries, q)
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

// unfile undoes file.
func (x *index) unfile(q *query) {
	for _, b := range q.filed {
		i := slices.Index(b.queries, q)
		last := len(b.queries) - 1
		b.queries[i] = b.queries[last]
		b.queries[last] = nil
		b.queries = b.queries[:last]
	}
	for _, p := range q.pairs {
		x.release(p)
	}
	if q.label != nil {
		x.dropLabel(q.label)
	}
	q.filed, q.pairs, q.label = nil, nil, nil
}

// queriesOf appends the queries of a kind that a class fulfils, in no particular order.
func (x *index) queriesOf(k kind, c *class, found []*query) []*query {
	for _, carried := range c.carries {
		found = x.filter(&carried.pair.wanted[k], c, found)
		found = x.filter(&carried.pair.label.wanted[k], c, found)
	}
	return x.filter(&x.rest[k], c, found)
}

func (x *index) filter(b *bucket, c *class, found []*query) []*query {
	for _, q := range b.queries {
		if x.matches(q, c) {
			found = append(found, q)
		}
	}
	return found
}

// classesOf appends the classes that fulfil a query. It looks at those alone that meet the condition which the fewest
// meet.
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
	look := func(classes []*class) {
		for _, c := range classes {
			if x.matches(q, c) {
				found = append(found, c)
			}
		}
	}
	if best == nil {
		look(x.classes)
		return found
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

// carriers counts the classes that meet a bound, which wants its label to be present.
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
