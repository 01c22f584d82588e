package flowstate

// holders are the lists of records of all ports, or of all hosts, that have any.
type holders[R any] struct {
	imported bool
	by       map[string]*list[R]
	n        int // records in all lists
	// most was the longest list when last looked for, which costs more than all else. In a full
	// table it stands until it has lost a sixteenth.
	most  *list[R]
	until int
}

func (h *holders[R]) push(c *entry[R], holder string) {
	l := h.by[holder]
	if l == nil {
		l = &list[R]{holder: holder, imported: h.imported}
		h.by[holder] = l
	}
	h.n++
	c.in = l
	l.push(c)
}

func (h *holders[R]) remove(c *entry[R]) {
	h.n--
	c.in.remove(c)
	if c.in.n == 0 {
		delete(h.by, c.in.holder)
	}
}

// largest returns the longest list; of several, the one with the longest unused record.
func (h *holders[R]) largest() *list[R] {
	if h.most == nil || h.most.n <= h.until {
		h.most = nil
		for _, l := range h.by {
			if h.most == nil || l.n > h.most.n || l.n == h.most.n && l.oldest().last < h.most.oldest().last {
				h.most = l
			}
		}
		h.until = h.most.n - 1 - h.most.n/16
	}
	return h.most
}

// list holds one holder's records.
type list[R any] struct {
	holder   string
	imported bool
	usual    chain[R]
	ended    chain[R] // those whose connection has ended
	special  chain[R] // those that have a life of their own
	n        int
}

// chain is records in a row, last used first, linked through their entries.
type chain[R any] struct{ first, last *entry[R] }

func (l *list[R]) chainOf(c *entry[R]) *chain[R] {
	switch {
	case c.special:
		return &l.special
	case c.ended:
		return &l.ended
	}
	return &l.usual
}

// oldest returns the longest unused record.
func (l *list[R]) oldest() *entry[R] {
	oldest := l.usual.last
	for _, c := range []*entry[R]{l.ended.last, l.special.last} {
		if oldest == nil || c != nil && c.last < oldest.last {
			oldest = c
		}
	}
	return oldest
}

func (l *list[R]) push(c *entry[R]) {
	l.n++
	l.chainOf(c).push(c)
}

func (l *list[R]) remove(c *entry[R]) {
	l.n--
	l.chainOf(c).remove(c)
}

func (l *list[R]) toFront(c *entry[R]) {
	if row := l.chainOf(c); row.first != c {
		row.remove(c)
		row.push(c)
	}
}

func (x *chain[R]) push(c *entry[R]) {
	c.prev, c.next = nil, x.first
	if x.first != nil {
		x.first.prev = c
	} else {
		x.last = c
	}
	x.first = c
}

func (x *chain[R]) remove(c *entry[R]) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		x.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		x.last = c.prev
	}
	c.prev, c.next = nil, nil
}
