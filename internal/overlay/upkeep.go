package overlay

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/overlay/flowstate"
	"heddle/internal/task"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

// Intervals of upkeep.
const (
	// roundEvery is the interval of reading all flows, half a microsecond each. It shrinks to
	// hurriedEvery while the full table of connections evicts some that were unused for less than
	// three rounds: uses are read in rounds, and a connection in use must not go.
	roundEvery   = 10 * time.Second
	hurriedEvery = 2 * time.Second
	// tickEvery is the interval of removing flows of errors, and those whose connection is gone.
	tickEvery = 100 * time.Millisecond
	// flushEvery is the least interval of writing connections to the kernel's table. Later ones are
	// lost when the agent is killed, and replies to them are dropped until their host sends them
	// again. The translations decided here do not wait for it.
	flushEvery = 5 * time.Millisecond
	// roundBatch is the number of flows handled under one lock.
	roundBatch = 256
	// verifyEach is the number of flows verified in each round by deciding them again.
	verifyEach = 64
)

// upkeep is the agent's housekeeping. One goroutine does all but the keeping of connections.
type upkeep struct {
	e        *engine
	verifier *decider // decides flows again
	room     []byte
	adopted  bool
	vips     map[string]*topology.VipTraffic // as reported
	ended    time.Duration                   // when the last round was
}

// Run does rounds until ctx ends. The first adopts an earlier agent's flows; then it calls done.
func (u *upkeep) Run(ctx context.Context, done func()) error {
	var kept sync.WaitGroup
	kept.Go(func() { u.keepConnections(ctx) })
	defer kept.Wait()
	round, tick := time.NewTicker(roundEvery), time.Tick(tickEvery)
	defer round.Stop()
	u.round()
	u.adopted = true
	done()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-round.C:
			u.round()
		case <-u.e.moves.begun:
			u.e.moves.tick()
		case <-tick:
			u.tick()
			if u.hurried() {
				u.round()
				round.Reset(roundEvery)
			}
		}
	}
}

// keepConnections writes to the kernel's table which connections have to survive a restart, until
// ctx ends. It waits for no round: packets are decided during one, also during the first, and an
// agent may be killed at any moment.
func (u *upkeep) keepConnections(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			u.flush()
			return
		case <-u.e.conns.Changed():
		case <-u.e.nats.Changed():
		}
		u.flush()
		task.Pause(ctx, flushEvery)
	}
}

// hurried reports whether the next round is due early.
func (u *upkeep) hurried() bool {
	if u.e.clock() < u.ended+hurriedEvery {
		return false
	}
	idle, evicted := u.e.conns.TakeEvicted()
	natIdle, natEvicted := u.e.nats.TakeEvicted()
	return evicted && idle < 3*roundEvery || natEvicted && natIdle < 3*roundEvery
}

func (u *upkeep) tick() {
	e := u.e
	u.removeDue(e.memory.takeDue(e.clock()))
	u.forgetGone()
	e.sendEnds()
	e.moves.tick()
}

// forgetGone removes the flows that rest on connections and translations that are gone.
func (u *upkeep) forgetGone() {
	u.e.forgetNATs(u.e.nats.TakeGone())
	u.e.forgetConns(u.e.conns.TakeGone())
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

func (u *upkeep) flush() {
	u.e.keep(u.e.nats.Flush)
	u.e.keep(u.e.conns.Flush)
}

// keep writes to a table of the kernel what has to survive a restart.
func (e *engine) keep(flush func() error) {
	if err := flush(); err != nil {
		e.log.Warn("connections would not all survive a restart of this agent", "err", err)
	}
}

// seenFlow is a flow with the time of its last use.
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
	limits := map[datapath.Limit]bool{}
	err := e.dp.Dump(func(f datapath.FlowState) bool {
		seen[f.Cookie] = struct{}{}
		for _, number := range f.Limits {
			limits[number] = true
		}
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
	// A connection may turn out to have ended so long ago that decisions do not find it any more.
	// No flow of it is to be verified.
	e.nats.Expire(e.net.usesRead)
	u.forgetGone()
	for _, f := range sample {
		u.verify(f)
	}
	u.age(start)
	e.rates.sweep(limits, start-roundEvery) // a flow decided lately may be installed by now
	e.carried.keep(e.net.networks())
	u.vips = e.reportVips(u.vips)
	u.ended = e.clock()
	e.upcalls.turn(u.ended)
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

// look records the use of flows, removes idle ones, and returns those that are not remembered.
func (u *upkeep) look(batch []seenFlow) (unknown []datapath.FlowState) {
	e := u.e
	var idle []datapath.Key
	networks := e.net.networksOf(batch)
	e.memory.mu.Lock()
	for i := range batch {
		f := &batch[i]
		known := e.memory.flows.get(f.Cookie)
		switch {
		case known == nil:
			unknown = append(unknown, f.FlowState)
			continue
		case f.Idle >= flowIdle:
			idle = append(idle, f.Key)
			e.memory.flows.remove(known)
		}
		u.used(known, f)
		e.meters.read(f.Cookie, traffic{f.Packets, f.Bytes})
		e.account(known, &f.FlowState, networks[i], renewLogged)
	}
	e.memory.mu.Unlock()
	e.remove(idle)
	e.count.expired.Add(uint64(len(idle)))
	return unknown
}

// used keeps alive what a flow rests on that was used as seen. It needs the state's lock.
func (u *upkeep) used(f *installed, seen *seenFlow) {
	at, signs := seen.used, signsOf(seen.SYN, seen.FIN, seen.RST)
	for _, c := range f.conns {
		u.e.conns.Touch(c, at)
	}
	if f.tracked && f.reply {
		u.e.conns.Touch(f.lookup, at)
	}
	for i := range f.nats {
		u.e.nats.Observe(f.nats[i].key, signs, at)
	}
	if f.learn != nil {
		u.e.memory.seen.seen(f.learn, at)
	}
}

// forgetOthers forgets flows that the kernel does not have any more: evicted, or replaced.
func (u *upkeep) forgetOthers(there map[uint64]struct{}, start time.Duration) {
	e := u.e
	defer e.meters.keep(there, e.memory.has)
	e.memory.mu.Lock()
	defer e.memory.mu.Unlock()
	for cookie, f := range e.memory.flows.byCookie {
		if _, ok := there[cookie]; !ok && f.at < start {
			e.memory.flows.remove(f)
		}
	}
	for cookie, f := range e.memory.flows.leaving {
		if _, ok := there[cookie]; !ok && f.at < start {
			delete(e.memory.flows.leaving, cookie)
			e.verdicts.Unsettled()
		}
	}
}

// age expires what was unused at the start of a round, and sends the rest to other hosts when due.
func (u *upkeep) age(start time.Duration) {
	e := u.e
	e.net.mu.Lock()
	e.net.usesRead = start
	e.net.mu.Unlock()
	e.conns.Expire(start)
	e.nats.Expire(start)
	u.forgetGone()
	for host, keys := range e.conns.TakeDue() {
		if t, ok := e.tunnelTo(host); ok {
			e.sendState(t, host, flowstate.State{Conns: keys})
		}
	}
	for host, entries := range e.nats.TakeDue() {
		if t, ok := e.tunnelTo(host); ok {
			e.sendState(t, host, flowstate.State{NATs: entries})
		}
	}
	e.unlearn(e.memory.takeOld(start))
}

// adopt decides a flow of an earlier agent verifier: it stays if it would be the same now.
func (u *upkeep) adopt(f datapath.FlowState) {
	if f.Stale || f.Idle >= flowIdle || !u.same(f, true) {
		u.e.remove([]datapath.Key{f.Key})
		u.e.count.unadopted.Add(1)
		return
	}
	u.e.count.adopted.Add(1)
}

// verify decides a known flow again. If the result differs, an invalidation was missed.
func (u *upkeep) verify(f datapath.FlowState) {
	u.e.count.verified.Add(1)
	if u.same(f, false) || !u.e.dp.Current(f.Tags) || !u.e.memory.has(f.Cookie) {
		return
	}
	u.e.remove([]datapath.Key{f.Key})
	u.e.count.different.Add(1)
	attrs := []any{"flow", describeFlow(f.Key), "was", u.e.net.destination(f.Out)}
	if p := u.e.net.port(f.Port); p != nil {
		attrs = append(attrs, "port", p.id)
	}
	u.e.log.Warn("removed a flow that would be decided otherwise now", attrs...)
}

// describeFlow returns a flow's headers in the words of traces.
func describeFlow(key datapath.Key) string {
	var f packet.Frame
	if err := packet.Decode(exampleFrame(nil, key), &f); err != nil {
		return err.Error()
	}
	return simulate.Describe(&f)
}

// same simulates a frame of the flow and compares. With keep, an equal flow is remembered.
func (u *upkeep) same(f datapath.FlowState, keep bool) bool {
	e := u.e
	port := e.net.port(f.Port)
	if port == nil {
		return false
	}
	if f.Out.Inside {
		return u.sameEntry(port, f, keep)
	}
	u.room = exampleFrame(u.room[:0], f.Key)
	p := u.verifier.decide(port, f.Key, true, simulate.Input{Frame: u.room})
	if len(p.decision.NewNATs) > 0 { // the flow's own translation is gone
		return false
	}
	if !p.cached || p.flow.Out != f.Out || !slices.Equal(p.flow.Limits, f.Limits) || !slices.Equal(p.flow.Copies, f.Copies) || !sameRewrite(p.flow.Rewrite, f.Rewrite) || !sameSlots(p.flow.Tags, f.Tags) {
		return false
	}
	if !keep {
		return true
	}
	if p.brief {
		return false // it goes soon in any case
	}
	if p.decision.Verdict == flow.Forward && len(p.decision.NewConns) > 0 {
		e.conns.Add(p.decision.NewConns, port.id, p.hosts(), e.clock())
	}
	for _, key := range p.decision.NATs {
		if key.IsForward() { // which port uses it, and who has to know, an earlier agent knew
			e.nats.Use(key, port.id, p.hosts(), e.clock())
		}
	}
	s := e.learnFrom(port, p.decision)
	record := e.record(p, s)
	record.cookie, record.counts = f.Cookie, e.verdicts.Of(nil, port.id, p.decision)
	record.sent = traffic{f.Packets, f.Bytes} // an earlier agent has counted those
	e.memory.adopt(record)
	e.meters.enter(record, record.sent)
	e.recheckMissing([]*installed{record})
	return true
}

// sameEntry is same of a flow that unpacks packets for a VTEP.
func (u *upkeep) sameEntry(port *localPort, f datapath.FlowState, keep bool) bool {
	frame, ok := u.e.net.exampleEntry(u.room[:0], f.Key)
	if !ok {
		return false
	}
	u.room = frame
	p := u.verifier.decide(port, f.Key, true, simulate.Input{Frame: frame})
	if !p.entered || p.entry.Out != f.Out || !sameSlots(p.entry.Tags, f.Tags) {
		return false
	}
	if keep {
		u.e.memory.adopt(&installed{key: f.Key, at: u.e.clock(), cookie: f.Cookie})
	}
	return true
}

// sameSlots reports whether two flows rest on the same.
func sameSlots(a, b []datapath.Tag) bool {
	return slices.EqualFunc(a, b, func(a, b datapath.Tag) bool { return a.Slot == b.Slot })
}
