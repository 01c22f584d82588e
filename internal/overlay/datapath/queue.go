package datapath

// fairQueue holds frames for the handler: a lane for each port, served in turn, and one for state messages, served
// first, since they must be known before the frames they announce.
type fairQueue struct {
	state lane
	lanes map[Port]*lane
	// first and last are the ends of the list of lanes that hold something.
	first, last *lane
}

type lane struct {
	first, last *item
	next        *lane
}

func (l *lane) push(it *item) {
	if l.first == nil {
		l.first = it
	} else {
		l.last.next = it
	}
	l.last = it
}

func (l *lane) pop() *item {
	it := l.first
	if it != nil {
		l.first, it.next = it.next, nil
	}
	return it
}

func (q *fairQueue) push(it *item) {
	if it.upcall.Reason == State {
		q.state.push(it)
		return
	}
	l := q.lanes[it.upcall.Port]
	if l == nil {
		if q.lanes == nil {
			q.lanes = map[Port]*lane{}
		}
		l = &lane{}
		q.lanes[it.upcall.Port] = l
		q.append(l)
	}
	l.push(it)
}

// append puts a lane at the end of the turn.
func (q *fairQueue) append(l *lane) {
	if q.first == nil {
		q.first = l
	} else {
		q.last.next = l
	}
	q.last, l.next = l, nil
}

// pop takes the next frame, nil when there is none.
func (q *fairQueue) pop() *item {
	if it := q.state.pop(); it != nil {
		return it
	}
	l := q.first
	if l == nil {
		return nil
	}
	it := l.pop()
	q.first = l.next
	if l.first != nil {
		q.append(l)
	} else {
		delete(q.lanes, it.upcall.Port)
	}
	return it
}

func (q *fairQueue) empty() bool { return q.first == nil && q.state.first == nil }
