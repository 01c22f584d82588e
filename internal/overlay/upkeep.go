package overlay

import (
	"context"
	"math/rand/v2"
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/simulate"
)

// Upkeep: what the kernel tells of its flows keeps alive what they rest on, and what is not used goes.
const (
	// roundEvery is how often all flows are read: half a microsecond each. While the table of connections is so full that it
	// forgets some that have been unused for less than three such rounds, they are read as often as hurriedEvery: uses come to
	// light with a round, and a connection in use must not go.
	roundEvery   = 10 * time.Second
	hurriedEvery = 2 * time.Second
	// tickEvery is how often flows are looked for that are to go: those of errors whose time is over, and those whose connection
	// is gone.
	tickEvery = 100 * time.Millisecond
	// flushEvery is how often connections are written to the kernel's table, at most: those of an agent that is killed
	// before are not known to the next one, and replies to them are dropped until their host tells them again.
	flushEvery = 5 * time.Millisecond
	// roundBatch is how many flows are looked at under one lock.
	roundBatch = 256
	// verifyEach is how many flows are decided again in each round to see that they are as they should be.
	verifyEach = 64
)

// upkeep is the agent's housekeeping, done by one goroutine.
type upkeep struct {
	e       *engine
	again   *decider // simulates flows once more
	room    []byte
	adopted bool
	ended   time.Duration // when the last round was
}

// Run does rounds until ctx ends. The first one adopts what an earlier agent left, then done is called.
func (u *upkeep) Run(ctx context.Context, done func()) error {
	round := time.NewTicker(roundEvery)
	defer round.Stop()
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	changed, flushed := u.e.conns.Changed(), time.NewTimer(0)
	defer flushed.Stop()
	u.round()
	u.adopted = true
	done()
	for {
		select {
		case <-ctx.Done():
			u.flush()
			return nil
		case <-round.C:
			u.round()
		case <-tick.C:
			u.tick()
			if u.hurried() {
				u.round()
				round.Reset(roundEvery)
			}
		case <-changed:
			u.flush()
			changed = nil
			flushed.Reset(flushEvery)
		case <-flushed.C:
			changed = u.e.conns.Changed()
		}
	}
}

// hurried reports whether the next round is due early.
func (u *upkeep) hurried() bool {
	if u.e.clock() < u.ended+hurriedEvery {
		return false
	}
	idle, evicted := u.e.conns.TakeEvicted()
	return evicted && idle < 3*roundEvery
}

func (u *upkeep) tick() {
	e := u.e
	now := e.clock()
	e.state.Lock()
	due := e.flows.takeDue(now)
	e.state.Unlock()
	u.removeDue(due)
	e.forgetConns(e.conns.TakeGone())
}

// removeDue takes flows away, unless others have taken their place.
func (u *upkeep) removeDue(due []*installed) {
	for _, f := range due {
		there, found, err := u.e.dp.Lookup(f.key)
		if err == nil && found && there.Cookie == f.cookie {
			u.e.remove([]datapath.Key{f.key})
		}
	}
}

// flush writes to the kernel's table which connections have to survive a restart.
func (u *upkeep) flush() {
	if err := u.e.conns.Flush(); err != nil {
		u.e.log.Warn("connections would not all survive a restart of this agent", "err", err)
	}
}

// seenFlow is what one round does about one flow.
type seenFlow struct {
	datapath.FlowState
	used time.Duration
}

// round reads all flows once.
func (u *upkeep) round() {
	e := u.e
	start := e.clock()
	seen := make(map[uint64]struct{})
	var batch []seenFlow
	var unknown, sample []datapath.FlowState
	err := e.dp.Dump(func(f datapath.FlowState) bool {
		seen[f.Cookie] = struct{}{}
		batch = append(batch, seenFlow{f, max(0, e.clock()-f.Idle)})
		if len(batch) == roundBatch {
			unknown = append(unknown, u.look(batch)...)
			batch = batch[:0]
		}
		if u.adopted && !f.Stale {
			sample = u.pick(sample, f, len(seen))
		}
		return true
	})
	if err != nil {
		e.log.Error("cannot read the flows, will try again", "err", err)
		return
	}
	unknown = append(unknown, u.look(batch)...)
	u.forgetOthers(seen, start)
	for _, f := range unknown {
		u.adopt(f)
	}
	e.forgetConns(e.conns.TakeGone())
	for _, f := range sample {
		u.verify(f)
	}
	u.age(start)
	u.ended = e.clock()
}

// pick keeps a sample in which each of the n flows seen so far is with the same chance.
func (u *upkeep) pick(sample []datapath.FlowState, f datapath.FlowState, n int) []datapath.FlowState {
	if len(sample) < verifyEach {
		return append(sample, f)
	}
	if i := rand.IntN(n); i < verifyEach {
		sample[i] = f
	}
	return sample
}

// look notes the use of flows, takes away the idle ones, and returns those that nobody knows.
func (u *upkeep) look(batch []seenFlow) (unknown []datapath.FlowState) {
	e := u.e
	var idle []datapath.Key
	e.state.Lock()
	for i := range batch {
		f := &batch[i]
		known := e.flows.get(f.Cookie)
		switch {
		case known == nil:
			unknown = append(unknown, f.FlowState)
			continue
		case f.Idle >= flowIdle:
			idle = append(idle, f.Key)
			e.flows.remove(known)
		}
		u.used(known, f.used)
	}
	e.state.Unlock()
	e.remove(idle)
	e.count.expired.Add(uint64(len(idle)))
	return unknown
}

// used keeps alive what a flow that was used at a time rests on. It needs the state's lock.
func (u *upkeep) used(f *installed, at time.Duration) {
	for _, c := range f.conns {
		u.e.conns.Touch(c, at)
	}
	if f.tracked && f.reply {
		u.e.conns.Touch(f.asked, at)
	}
	if f.learn != nil {
		u.e.seen.seen(f.learn, at)
	}
}

// forgetOthers forgets flows that the kernel does not have any more: it made room, or others took their place.
func (u *upkeep) forgetOthers(there map[uint64]struct{}, start time.Duration) {
	e := u.e
	e.state.Lock()
	defer e.state.Unlock()
	for cookie, f := range e.flows.byCookie {
		if _, ok := there[cookie]; !ok && f.at < start {
			e.flows.remove(f)
		}
	}
}

// age forgets what has not been used, as of the start of a round, and tells other hosts again of what has.
func (u *upkeep) age(start time.Duration) {
	e := u.e
	e.world.Lock()
	e.heard = start
	e.world.Unlock()
	e.conns.Expire(start)
	e.forgetConns(e.conns.TakeGone())
	for host, keys := range e.conns.TakeDue() {
		if t, ok := e.tunnelTo(host); ok {
			e.sendState(t, host, keys)
		}
	}
	e.state.Lock()
	old := e.seen.takeOld(start)
	e.state.Unlock()
	e.unlearn(old)
}

// adopt decides a flow of an earlier agent again: it stays if it would be the same now.
func (u *upkeep) adopt(f datapath.FlowState) {
	if f.Stale || f.Idle >= flowIdle || !u.same(f, true) {
		u.e.remove([]datapath.Key{f.Key})
		u.e.count.unadopted.Add(1)
		return
	}
	u.e.count.adopted.Add(1)
}

// verify decides a known flow again; one that would be other than it is goes, and somebody should know: an invalidation
// was missed.
func (u *upkeep) verify(f datapath.FlowState) {
	u.e.count.verified.Add(1)
	if u.same(f, false) || !u.e.dp.Current(f.Tags) || !u.known(f) {
		return
	}
	u.e.remove([]datapath.Key{f.Key})
	u.e.count.different.Add(1)
	u.e.log.Warn("a flow was not as it should be and was taken away", "flow", f.Key, "out", f.Out)
}

// known reports whether nothing has taken the flow away meanwhile.
func (u *upkeep) known(f datapath.FlowState) bool {
	u.e.state.Lock()
	defer u.e.state.Unlock()
	return u.e.flows.get(f.Cookie) != nil
}

// same simulates a frame of the flow and compares. With keep, a flow that is as it should be is entered as if it had been
// installed now.
func (u *upkeep) same(f datapath.FlowState, keep bool) bool {
	e := u.e
	port := e.port(f.Port)
	if port == nil {
		return false
	}
	u.room = exampleFrame(u.room[:0], f.Key)
	p := u.again.decide(port, f.Key, true, simulate.Input{Frame: u.room})
	if !p.cached || p.flow.Out != f.Out || !sameSlots(p.flow.Tags, f.Tags) {
		return false
	}
	if !keep {
		return true
	}
	if p.brief {
		return false // it goes soon in any case
	}
	if p.decision.Verdict == flow.Forward && len(p.decision.NewConns) > 0 {
		e.conns.Add(p.decision.NewConns, port.id, append([]string(nil), p.hosts...), e.clock())
	}
	s := e.learnFrom(port, p.decision)
	record := e.record(p, s)
	record.cookie = f.Cookie
	e.state.Lock()
	e.flows.put(record)
	e.state.Unlock()
	return true
}

func sameSlots(a, b []datapath.Tag) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Slot != b[i].Slot {
			return false
		}
	}
	return true
}
