package overlay

import (
	"bytes"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/task"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/simulate"
)

const (
	// waitMost bounds the time for which a packet waits (midonet-simulation §1.3).
	waitMost = 5 * time.Second
	// waitingMax bounds the packets that wait, waitingOfPort those of one port.
	waitingMax    = 2048
	waitingOfPort = 64
	// A question about a neighbour is repeated while packets wait for the answer, first after
	// askFirst, then after twice as long each time up to askMost, each a quarter more or less: the
	// spec's ten seconds would outlast the packets.
	askFirst = time.Second
	askMost  = 10 * time.Second
)

// waiting holds the packets whose simulation lacked something: a neighbour's MAC address, or NAT
// ports. Run simulates them again when that has come.
type waiting struct {
	work task.Notice // there is something for Run

	mu     sync.Mutex
	waits  map[flow.Wait]*wait
	woken  []*waitingPacket
	byPort map[string]int
	n      int
	wakeN  uint64 // how often something has come
}

// wait holds the packets that wait for the same thing.
type wait struct {
	packets []*waitingPacket // in order of arrival
	// request is the question about the neighbour, repeated at next, then after gap.
	request []flow.Emission
	from    *localPort
	next    time.Duration
	gap     time.Duration
}

// waitingPacket is a copy of a frame that came in.
type waitingPacket struct {
	port   string
	came   time.Duration
	upcall datapath.Upcall
}

func newWaiting() *waiting {
	return &waiting{work: task.NewNotice(), waits: map[flow.Wait]*wait{}, byPort: map[string]int{}}
}

// wakes counts what has come. A packet whose simulation began before the newest does not wait.
func (w *waiting) wakes() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.wakeN
}

// wake has the packets simulated again that wait for something.
func (w *waiting) wake(matches func(flow.Wait) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakeN++
	for key, x := range w.waits {
		if matches(key) {
			w.woken = append(w.woken, x.packets...)
			delete(w.waits, key)
			w.work.Give()
		}
	}
}

// put has a packet wait. It reports whether a question is due now, and false for room if too many
// packets wait already.
func (w *waiting) put(p *waitingPacket, key flow.Wait, seen uint64, request []flow.Emission, from *localPort, now time.Duration) (ask, room bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n >= waitingMax || w.byPort[p.port] >= waitingOfPort {
		return false, false
	}
	w.n++
	w.byPort[p.port]++
	w.work.Give()
	if seen != w.wakeN {
		w.woken = append(w.woken, p) // what it waits for may have come meanwhile
		return false, true
	}
	x := w.waits[key]
	if x == nil {
		x = &wait{gap: askFirst, next: now}
		w.waits[key] = x
	}
	x.packets = append(x.packets, p)
	if len(request) == 0 {
		return false, true
	}
	x.request, x.from = cloneEmissions(request), from
	if now < x.next {
		return false, true
	}
	x.asked(now)
	return true, true
}

// asked notes that the question was sent.
func (x *wait) asked(now time.Duration) {
	x.next = now + x.gap*3/4 + rand.N(x.gap/2)
	x.gap = min(2*x.gap, askMost)
}

func cloneEmissions(all []flow.Emission) []flow.Emission {
	all = slices.Clone(all)
	for i := range all {
		all[i].Frame = bytes.Clone(all[i].Frame)
	}
	return all
}

// due lists the work of Run at a time.
type due struct {
	woken   []*waitingPacket
	over    []*waitingPacket // have waited long enough
	repeat  []*wait          // questions
	nextDue time.Duration    // when to look again; 0: when there is work
}

// take returns what is due. The packets no longer count as waiting.
func (w *waiting) take(now time.Duration) (d due) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d.woken, w.woken = w.woken, nil
	for key, x := range w.waits {
		n := 0
		for n < len(x.packets) && now >= x.packets[n].came+waitMost {
			n++
		}
		d.over = append(d.over, x.packets[:n]...)
		x.packets = slices.Delete(x.packets, 0, n)
		at := x.next
		switch {
		case len(x.packets) > 0 && len(x.request) > 0 && now >= x.next:
			d.repeat = append(d.repeat, &wait{request: x.request, from: x.from})
			x.asked(now)
			at = x.next
		case len(x.packets) > 0 && len(x.request) == 0:
			at = x.packets[0].came + waitMost
		case len(x.packets) == 0 && now >= x.next:
			delete(w.waits, key) // a later packet asks at once
			continue
		}
		if len(x.packets) > 0 {
			at = min(at, x.packets[0].came+waitMost)
		}
		if d.nextDue == 0 || at < d.nextDue {
			d.nextDue = at
		}
	}
	for _, p := range slices.Concat(d.woken, d.over) {
		w.n--
		if w.byPort[p.port]--; w.byPort[p.port] == 0 {
			delete(w.byPort, p.port)
		}
	}
	return d
}

// count returns the number of packets that wait.
func (w *waiting) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

// postpone has a packet wait for what its decision lacks, and asks for it.
func (h *handler) postpone(port *localPort, u *datapath.Upcall, came time.Duration, seen uint64, d *flow.Decision) {
	p := &waitingPacket{port: port.id, came: came, upcall: *u}
	p.upcall.Frame = bytes.Clone(u.Frame)
	ask, room := h.waiting.put(p, d.Wait, seen, d.Emit, port, h.clock())
	if !room {
		h.count.drop(waitReason(d, dropWaitingNeighbour, dropWaitingNAT))
	}
	if ask {
		h.emit(port, d.Emit)
	}
}

// waitReason returns one of two reasons, by what the decision lacks.
func waitReason(d *flow.Decision, neighbour, nat dropReason) dropReason {
	if d.Verdict == flow.Postponed && d.Wait.NATAddr.IsValid() {
		return nat
	}
	return neighbour
}

// runWaiting simulates packets again when what they wait for has come, until ctx ends.
func (h *handler) runWaiting(ctx context.Context) error {
	alarm := task.NewAlarm()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.waiting.work:
		case <-alarm.C:
		}
		now := h.clock()
		d := h.waiting.take(now)
		for _, p := range d.woken {
			h.resume(p, h.miss)
		}
		for _, p := range d.over {
			h.resume(p, h.giveUp)
		}
		for _, x := range d.repeat {
			h.emit(x.from, x.request)
		}
		if d.nextDue > 0 {
			alarm.Set(time.Now().Add(d.nextDue - now))
		}
	}
}

// resume hands a packet on, if its port is still there.
func (h *handler) resume(p *waitingPacket, to func(port *localPort, u *datapath.Upcall, came time.Duration)) {
	port := h.net.portWithID(p.port)
	if port == nil {
		h.count.drop(dropNoPort)
		return
	}
	p.upcall.Port = port.number
	to(port, &p.upcall, p.came)
}

// giveUp drops a packet that has waited for too long, and lets its sender know.
func (h *handler) giveUp(port *localPort, u *datapath.Upcall, _ time.Duration) {
	p := h.missed.decide(port, datapath.Key{}, false, simulate.Input{Frame: u.Frame, WireLen: u.Length, Overdue: true})
	d := p.decision
	h.recordLogged(d)
	h.countPacket(port, p, u)
	h.sendCopies(port, p, u)
	if d.Verdict == flow.Forward { // it has come at the last moment
		h.remember(port, p, u)
		h.sendAll(port, p, u)
		return
	}
	h.count.drop(waitReason(d, dropOverdueNeighbour, dropOverdueNAT))
	h.emit(port, d.Emit)
}
