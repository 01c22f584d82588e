package calc

// label is a label's name with the values that it has anywhere.
type label struct {
	name    string
	pairs   map[string]*pair // by value
	list    []*pair          // the same, in a fixed order
	classes int              // that carry it
	wanted  [kinds]bucket    // queries filed by its presence
	mark    uint64           // of the index's last walk that met it
	shown   *pair            // its pair in index.shown; nil: that class does not carry it
}

// pair is a label with a value. Each exists once, so that label sets are lists of pointers.
type pair struct {
	label   *label
	value   string
	id      uint64
	pos     int           // in label.list
	refs    int           // of classes, profiles and buckets
	classes []member      // that carry it
	wanted  [kinds]bucket // queries filed by it
	mark    uint64        // of the index's last walk that met it
}

// tagPrefix begins the names of labels that stand for tags. No label can be written so.
const tagPrefix = "\x00"

// pair returns the pair of a label and a value, with one more reference.
func (x *index) pair(name, value string) *pair {
	l := x.label(name)
	p := l.pairs[value]
	if p == nil {
		x.lastID++
		p = &pair{label: l, value: value, id: x.lastID, pos: len(l.list)}
		l.pairs[value] = p
		l.list = append(l.list, p)
	}
	p.refs++
	return p
}

// label returns the label by a name. It exists as long as it has pairs or queries, see dropLabel.
func (x *index) label(name string) *label {
	l := x.labels[name]
	if l == nil {
		l = &label{name: name, pairs: map[string]*pair{}}
		x.labels[name] = l
	}
	return l
}

// release drops one reference to a pair.
func (x *index) release(p *pair) {
	if p.refs--; p.refs > 0 {
		return
	}
	l := p.label
	removeAt(&l.list, p.pos).pos = p.pos
	delete(l.pairs, p.value)
	x.dropLabel(l)
}

func (x *index) dropLabel(l *label) {
	if len(l.list) > 0 {
		return
	}
	for _, b := range l.wanted {
		if len(b.queries) > 0 {
			return
		}
	}
	delete(x.labels, l.name)
}
