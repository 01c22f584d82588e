package datapath

// fairQueue holds frames for the handler. State messages come first, since they must be applied
// before the frames that they announce; the ports take turns.
type fairQueue struct {
	state []*item
	lanes map[Port][]*item // none is empty
	turns []Port           // of the lanes, in order
}

func (q *fairQueue) push(it *item) {
	if it.upcall.Reason == State {
		q.state = append(q.state, it)
		return
	}
	if q.lanes == nil {
		q.lanes = map[Port][]*item{}
	}
	port := it.upcall.Port
	lane := q.lanes[port]
	if len(lane) == 0 {
		q.turns = append(q.turns, port)
	}
	q.lanes[port] = append(lane, it)
}

func (q *fairQueue) pop() (it *item) {
	switch {
	case len(q.state) > 0:
		it, q.state = q.state[0], q.state[1:]
	case len(q.turns) > 0:
		port := q.turns[0]
		lane := q.lanes[port]
		it, q.turns = lane[0], q.turns[1:]
		if len(lane) == 1 {
			delete(q.lanes, port)
		} else {
			q.lanes[port] = lane[1:]
			q.turns = append(q.turns, port)
		}
	}
	return it
}

func (q *fairQueue) empty() bool { return len(q.turns)+len(q.state) == 0 }
