package tunnel

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"heddle/internal/task"
	"heddle/internal/xen/client"
	"heddle/internal/xen/star"
)

const (
	// gather is how long a new leader waits for word of all switches before it decides anything.
	gather = 3 * time.Second
	// calm is how long after a move because nobody reached the center the next such move may come, unless somebody has
	// reached the new center since. It doubles with each.
	calm    = 5 * time.Second
	maxCalm = time.Minute
	// passedFor is for how long a host that the pool has no word of keeps its legs while BFD says nothing: longer than a
	// session takes to come up.
	passedFor = settleIn + time.Second
)

// engine is a leader at work. Its fields are its own goroutine's, but for the mail.
type engine struct {
	c       *Controller
	log     *slog.Logger
	obeyed  obeyed
	intents *intents
	pool    *pool
	loaded  bool // the XenAPI was read
	begun   bool // networks are being thought about
	beginBy time.Time
	hosts   map[string]*host
	nets    map[string]*tracked
	probes  *star.Probes
	paths   map[star.Pair]*path
	load    map[string]int // networks by center

	dirty map[string]bool         // networks to think about now
	due   map[string]time.Time    // networks to think about later
	look  map[star.Pair]bool      // paths to look at now
	later map[star.Pair]time.Time // paths to look at later

	statuses *statuses
	signs    *atomic.Int64 // counts connections to databases
	counts   counts
	failed   error // why this cannot lead any more
	workers  sync.WaitGroup
	ctx      context.Context // of the workers

	mu   sync.Mutex
	mail []func()
	kick task.Notice
}

// tracked is what the engine knows of a network beside its intent.
type tracked struct {
	center  string               // that is counted in load
	acted   star.Intent          // that was acted on last
	inPlace int                  // spokes whose legs are, as of the last look
	legs    int                  // spokes there should be
	moves   int                  // of the center in a row that nobody reached
	steady  time.Time            // until when a move is not followed by another
	freed   time.Time            // since when the network has no tunnels, and nobody a leg; zero: that is not so
	fading  map[string]time.Time // tunnels whose status is about to say less, since when
	passed  map[string]time.Time // when frames were last known to pass between a host and the rest
}

func newTracked() *tracked {
	return &tracked{fading: map[string]time.Time{}, passed: map[string]time.Time{}}
}

// Load implements star.View.
func (e *engine) Load(host string) int { return e.load[host] }

// Carries implements star.View.
func (e *engine) Carries(network, a, b string) bool { return e.probes.Carries(network, a, b) }

// Health implements star.View.
func (e *engine) Health(a, b string) star.Health {
	if p := e.paths[star.PairOf(a, b)]; p != nil {
		return p.health
	}
	return star.Unprobed
}

// lead does a leader's work until ctx ends or it is one no more.
func (c *Controller) lead(ctx context.Context, l leadership) error {
	in, err := loadIntents(ctx, l)
	if err != nil {
		return err
	}
	working, stop := context.WithCancel(ctx)
	e := &engine{c: c, log: c.log, obeyed: obeyed{in.identity, l.term}, intents: in, pool: newPool(), hosts: map[string]*host{}, nets: map[string]*tracked{},
		probes: star.NewProbes(), paths: map[star.Pair]*path{}, load: map[string]int{}, dirty: map[string]bool{}, due: map[string]time.Time{},
		look: map[star.Pair]bool{}, later: map[star.Pair]time.Time{}, signs: &atomic.Int64{}, kick: task.NewNotice(), ctx: working}
	e.statuses = newStatuses(c.log)
	e.workers.Go(func() { e.follow(working) })
	err = e.run(working)
	stop()
	e.workers.Wait()
	if errors.Is(err, errLater) {
		if err := l.renew(ctx); err != nil {
			return err
		}
		c.log.Warn("the store does not know the leader that a switch obeys: it was restored to an older state; its terms begin anew", "err", err)
		return errSetBack
	}
	return err
}

// post has the engine do something. It does not wait.
func (e *engine) post(f func()) {
	e.mu.Lock()
	e.mail = append(e.mail, f)
	e.mu.Unlock()
	e.kick.Give()
}

func (e *engine) run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.kick:
		case <-timer.C:
		}
		e.mu.Lock()
		mail := e.mail
		e.mail = nil
		e.mu.Unlock()
		for _, f := range mail {
			f()
		}
		now := time.Now()
		e.pass(ctx, now)
		if e.failed != nil {
			return e.failed
		}
		timer.Reset(e.next(now))
	}
}

// next is how long nothing has to be thought about unless something happens.
func (e *engine) next(now time.Time) time.Duration {
	at := now.Add(time.Hour)
	for _, t := range e.due {
		at = earlier(at, t)
	}
	for _, t := range e.later {
		at = earlier(at, t)
	}
	if e.loaded && !e.begun {
		at = earlier(at, e.beginBy)
	}
	return max(time.Millisecond, at.Sub(now))
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// reconsider has a network thought about at the latest at a time.
func (e *engine) reconsider(network string, at time.Time) {
	if t, ok := e.due[network]; !ok || at.Before(t) {
		e.due[network] = at
	}
}

// told takes in what the XenAPI says.
func (e *engine) told(events []client.Event) {
	for _, ev := range events {
		if ev.Class == "tunnel" {
			e.statuses.told(ev.Ref)
		}
	}
	networks, hosts := e.pool.apply(events)
	maps.Copy(e.dirty, networks)
	if hosts || !e.loaded {
		e.takeHosts()
	}
	if !e.loaded {
		e.loaded, e.beginBy = true, time.Now().Add(gather)
		for network := range e.pool.networks {
			e.dirty[network] = true
		}
		for network := range e.intents.all {
			e.dirty[network] = true
		}
	}
}

// ready says whether enough is known to decide: all switches have been heard of, or enough time was given to them.
func (e *engine) ready(now time.Time) bool {
	if e.begun || !e.loaded {
		return e.begun
	}
	for _, h := range e.hosts {
		if h.worker != nil && !h.heard && now.Before(e.beginBy) {
			return false
		}
	}
	e.begin()
	return true
}

// begin counts what was decided before, so that what is decided now goes well with it.
func (e *engine) begin() {
	e.begun = true
	for network, in := range e.intents.all {
		net := newTracked()
		net.acted = in.Intent
		for _, host := range in.Hosts { // before any session of BFD was looked at
			net.passed[host] = time.Now()
		}
		e.nets[network] = net
		e.count(network, in.Center)
	}
	for _, network := range slices.Sorted(maps.Keys(e.intents.all)) {
		n, _ := e.network(network, time.Now())
		e.setProbes(n, e.intents.all[network].Intent)
	}
}

// setProbes brings up to date which paths the network probes.
func (e *engine) setProbes(n *star.Network, in star.Intent) {
	before := e.probes.Pairs(n.UUID)
	pairs, probing := star.Pairs(n, in)
	for _, other := range e.probes.Set(n.UUID, pairs, probing) {
		e.dirty[other] = true
	}
	for _, pair := range append(before, pairs...) {
		e.look[pair] = true
	}
}

// network is all that is known of a network, with the refs of its tunnels, which the first members are of.
func (e *engine) network(uuid string, now time.Time) (*star.Network, []string) {
	n, refs := e.pool.network(uuid)
	in, _ := e.intents.get(uuid)
	have := map[string]bool{}
	for i := range n.Members {
		have[n.Members[i].Host] = true
	}
	// Hosts that have ports, or may have, and no tunnel any more.
	for _, host := range in.Hosts {
		if !have[host] && e.hosts[host] != nil {
			have[host] = true
			n.Members = append(n.Members, star.Member{Host: host})
		}
	}
	for _, host := range slices.Sorted(maps.Keys(e.hosts)) {
		if !have[host] && len(e.hosts[host].ends[uuid]) > 0 {
			n.Members = append(n.Members, star.Member{Host: host})
		}
	}
	for i := range n.Members {
		if h := e.hosts[n.Members[i].Host]; h != nil {
			h.describe(&n.Members[i], uuid, now)
		}
		n.Members[i].New = slices.Contains(in.Newcomers, n.Members[i].Host)
	}
	for i := range n.Members {
		n.Members[i].Passing = e.passing(n, in.Intent, n.Members[i].Host, now)
	}
	if net := e.nets[uuid]; net != nil {
		n.Steady = now.Before(net.steady)
	}
	return n, refs
}

// passing reports whether frames pass between a host and the rest of a star, as star.Passing, or did a moment ago and
// nothing says that they do not: a leg that was just made anew has no session of BFD yet.
func (e *engine) passing(n *star.Network, in star.Intent, host string, now time.Time) bool {
	net := e.nets[n.UUID]
	switch {
	case net == nil:
		return false
	case star.Passing(n, in, host, e):
		net.passed[host] = now
		return true
	}
	since, did := net.passed[host]
	if !did || !now.Before(since.Add(passedFor)) || star.CutOff(n, in, host, e) {
		delete(net.passed, host)
		return false
	}
	e.reconsider(n.UUID, since.Add(passedFor))
	return true
}

// pass thinks about all that has changed, decides, makes that last, and hands out the work.
func (e *engine) pass(ctx context.Context, now time.Time) {
	if !e.ready(now) {
		return
	}
	for network, at := range e.due {
		if !now.Before(at) {
			delete(e.due, network)
			e.dirty[network] = true
		}
	}
	e.lookAtPaths(now)
	for network := range e.intents.writes { // what is written is decided by what is true now
		e.dirty[network] = true
	}
	networks := slices.Sorted(maps.Keys(e.dirty))
	clear(e.dirty)
	for _, network := range networks {
		e.decide(network, now)
	}
	if err := e.intents.flush(ctx); err != nil {
		e.unwritten(err)
	}
	for _, network := range networks {
		if e.intents.pending(network) {
			in, _ := e.intents.get(network)
			e.count(network, in.Center)
			e.reconsider(network, now.Add(retryAfter))
			continue
		}
		e.note(network, now)
		e.act(ctx, network, now)
	}
	e.lookAtPaths(now)
	e.handOut()
	e.c.figures.Store(e.figures())
	e.c.beReady()
}

// unwritten says what it means that the store has not taken what was decided.
func (e *engine) unwritten(err error) {
	if deposed(err) {
		e.failed = err
	} else if e.ctx.Err() == nil {
		e.log.Warn("what was decided cannot be written, and is not done until it is", "err", err)
	}
}

// lookAtPaths looks at the paths that may be up or down now, and has the networks thought about that use them.
func (e *engine) lookAtPaths(now time.Time) {
	for pair, at := range e.later {
		if !now.Before(at) {
			delete(e.later, pair)
			e.look[pair] = true
		}
	}
	for pair := range e.look {
		changed, again := e.probe(pair, now)
		if delete(e.later, pair); !again.IsZero() {
			e.later[pair] = again
		}
		if changed {
			e.log.Debug("path", "between", e.nameOf(pair[0]), "and", e.nameOf(pair[1]), "health", e.Health(pair[0], pair[1]))
			for _, network := range e.probes.Networks(pair[0], pair[1]) {
				e.dirty[network] = true
			}
		}
	}
	clear(e.look)
	if len(e.dirty) > 0 {
		e.wake()
	}
}

// wake makes another pass.
func (e *engine) wake() { e.kick.Give() }

// decide says what is aimed at for a network.
func (e *engine) decide(network string, now time.Time) {
	in, known := e.intents.get(network)
	tunnelled := e.pool.tunnelled(network)
	if !known && !tunnelled {
		return
	}
	if e.nets[network] == nil {
		e.nets[network] = newTracked()
	}
	before := in
	in.Hosts, in.Newcomers = slices.Clone(in.Hosts), slices.Clone(in.Newcomers)
	if tunnelled && in.Key == 0 {
		in.Key = e.intents.key(network)
	}
	n, _ := e.network(network, now)
	in.Intent = star.Decide(n, in.Intent, e)
	for i := range n.Members {
		if m := &n.Members[i]; m.New && star.Considered(n, before.Intent, m, e) {
			in.Newcomers = slices.DeleteFunc(in.Newcomers, func(host string) bool { return host == m.Host })
		}
	}
	for _, host := range star.Hosts(n, in.Intent) {
		if slices.Contains(in.Hosts, host) {
			continue
		}
		in.Hosts = append(in.Hosts, host)
		if before.Center != "" {
			in.Newcomers = append(in.Newcomers, host)
		}
	}
	if in.Intent != before.Intent || !slices.Equal(in.Hosts, before.Hosts) || !slices.Equal(in.Newcomers, before.Newcomers) {
		e.intents.set(network, in)
	}
	e.count(network, in.Center)
}

// count has a network's center counted in load.
func (e *engine) count(network, center string) {
	net := e.nets[network]
	if net.center == center {
		return
	}
	if net.center != "" {
		e.load[net.center]--
	}
	if net.center = center; center != "" {
		e.load[center]++
	}
}

// note takes note of a move that is in the store by now.
func (e *engine) note(network string, now time.Time) {
	net := e.nets[network]
	if net == nil {
		return
	}
	in, _ := e.intents.get(network)
	before := net.acted
	if net.acted = in.Intent; before.Center == "" || before.Epoch == in.Epoch {
		return
	}
	e.counts.moves++
	net.steady = now.Add(min(calm<<min(net.moves, 8), maxCalm))
	net.moves++
	e.log.Info("center moves", "network", network, "from", e.nameOf(before.Center), "to", e.nameOf(in.Center), "epoch", in.Epoch)
}

// nameOf is how people know a host.
func (e *engine) nameOf(uuid string) string {
	if h := e.hosts[uuid]; h != nil {
		return h.name
	}
	return uuid
}

// act does what can be done now for a network, whose intent is in the store. One of which nothing was ever decided, or not
// any more, has no legs: what a host brings back of it goes.
func (e *engine) act(ctx context.Context, network string, now time.Time) {
	in, decided := e.intents.get(network)
	n, refs := e.network(network, now)
	e.setProbes(n, in.Intent)
	steps := star.Steps(n, in.Intent, e)
	for _, st := range steps {
		if h := e.hosts[st.Host]; h != nil && h.worker != nil {
			h.steps = append(h.steps, st)
		}
	}
	for i := range n.Members {
		h := e.hosts[n.Members[i].Host]
		switch {
		case h == nil:
		case h.busy:
			h.waiting[network] = true
		case h.relents(network, now) && !slices.ContainsFunc(steps, func(st star.Step) bool { return st.Host == h.uuid }):
			delete(h.failed, network) // what it refused is not asked of it any more
			e.dirty[network] = true
			e.wake()
		}
	}
	if e.nets[network] == nil {
		return
	}
	e.revisit(n, now)
	e.say(n, in.Intent, refs, now)
	if decided {
		e.settle(n, in)
		e.free(ctx, n, in, now)
	}
}

// revisit has the network thought about again when a wait is over.
func (e *engine) revisit(n *star.Network, now time.Time) {
	at := []time.Time{e.nets[n.UUID].steady}
	for i := range n.Members {
		if h := e.hosts[n.Members[i].Host]; h != nil {
			at = append(at, h.failed[n.UUID].until)
			if !h.known {
				at = append(at, h.lostAt.Add(lostAfter))
			}
		}
	}
	for _, t := range at {
		if now.Before(t) {
			e.reconsider(n.UUID, t)
		}
	}
}

// settle follows a move to its end: as spokes arrive at the new center, and at last everywhere, what was learnt of where
// machines are is forgotten.
func (e *engine) settle(n *star.Network, in intent) {
	net := e.nets[n.UUID]
	spokes, all := star.InPlace(n, in.Intent, e)
	arrived := len(spokes) > net.inPlace
	net.inPlace, net.legs = len(spokes), len(star.Spokes(n, in.Intent))
	for _, spoke := range spokes {
		if e.Health(spoke, in.Center) == star.Up {
			net.moves, net.steady = 0, time.Time{}
		}
	}
	if !in.Moving() {
		return
	}
	if arrived || all {
		e.forget(n, func(host string) bool { return all || host == in.Center || host == in.Previous })
	}
	if all {
		in.Settled, in.Previous = in.Epoch, ""
		e.intents.set(n.UUID, in)
		e.dirty[n.UUID] = true
		e.wake()
	}
}

// forget has bridges of a network forget learnt addresses.
func (e *engine) forget(n *star.Network, where func(host string) bool) {
	for i := range n.Members {
		if h := e.hosts[n.Members[i].Host]; h != nil && h.known && where(h.uuid) {
			h.flush[n.UUID] = true
		}
	}
}

// free gives back the key of a network that has no tunnels any more, once nobody has had a leg with it for a while. The
// while begins anew with each leader: clocks differ.
func (e *engine) free(ctx context.Context, n *star.Network, in intent, now time.Time) {
	net := e.nets[n.UUID]
	switch {
	case e.inUse(n, in):
		net.freed = time.Time{}
	case net.freed.IsZero():
		net.freed = now
		e.reconsider(n.UUID, now.Add(e.c.opts.Quarantine))
	case now.Before(net.freed.Add(e.c.opts.Quarantine)):
		e.reconsider(n.UUID, net.freed.Add(e.c.opts.Quarantine))
	default:
		if err := e.intents.drop(ctx, n.UUID); err != nil {
			e.unwritten(err)
			e.reconsider(n.UUID, now.Add(retryAfter))
			return
		}
		e.log.Info("key is free", "network", n.UUID, "key", in.Key)
		e.count(n.UUID, "")
		delete(e.nets, n.UUID)
	}
}

// inUse says whether a host has a leg with the network's key, or may have one: nobody knows what those do that are not
// known. One that is not of the pool any more counts as dead.
func (e *engine) inUse(n *star.Network, in intent) bool {
	if e.pool.tunnelled(n.UUID) || slices.ContainsFunc(n.Members, func(m star.Member) bool { return len(m.Legs) > 0 }) {
		return true
	}
	return slices.ContainsFunc(in.Hosts, func(host string) bool {
		h := e.hosts[host]
		return h != nil && (!h.known || h.busy)
	})
}

// handOut gives each host that has nothing to do its next job.
func (e *engine) handOut() {
	for _, h := range e.hosts {
		if h.busy || !h.known || h.worker == nil {
			for _, st := range h.steps {
				h.waiting[st.Network] = true
			}
			h.steps = nil
			continue
		}
		if len(h.steps) == 0 && len(h.flush) == 0 {
			continue
		}
		h.job = h.next()
		for _, st := range h.job.steps {
			h.waiting[st.Network] = true
		}
		h.busy = true
		e.counts.transactions++
		h.worker.jobs <- h.job
	}
}
