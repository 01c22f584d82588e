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
			if h.most == nil || l.n > h.most.n || l.n == h.most.n && l.last.last < h.most.last.last {
				h.most = l
			}
		}
		h.until = h.most.n - 1 - h.most.n/16
	}
	return h.most
}

// list holds one holder's records, last used first, linked through their entries.
type list[R any] struct {
	holder      string
	imported    bool
	first, last *entry[R]
	n           int
}

func (l *list[R]) push(c *entry[R]) {
	l.n++
	c.prev, c.next = nil, l.first
	if l.first != nil {
		l.first.prev = c
	} else {
		l.last = c
	}
	l.first = c
}

func (l *list[R]) remove(c *entry[R]) {
	l.n--
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		l.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		l.last = c.prev
	}
	c.prev, c.next = nil, nil
}

func (l *list[R]) toFront(c *entry[R]) {
	if l.first != c {
		l.remove(c)
		l.push(c)
	}
}
