package bgp

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/task"
	"heddle/internal/topology/routerbgp"
)

// RouterOptions of the speaker of a router. Listener is required.
type RouterOptions struct {
	Listener net.Listener // of agents, stream sockets
	Port     uint16       // of BGP; default 179
	Log      *slog.Logger // default: none
}

const (
	// gatherRoutes is the time for which changes are collected before they are reported together.
	gatherRoutes = 20 * time.Millisecond
	// pollPeers is the interval at which counters are read. An idle loop's rounds are no
	// longer. An agent's silence is counted in it and not by a clock: while the machine stands
	// still, so does this.
	pollPeers = time.Second
	// firstLinger is the time after which a speaker without a plan ends.
	firstLinger = 15 * time.Second
)

// ServeRouter speaks BGP for a router in the network namespace of this process, by the plans of the
// agent that connects (package routerbgp), until ctx ends or no agent is heard for the time in the
// plan: the router's container may be on another host by then. It needs a process of its own. It
// ends its sessions, so that neighbours withdraw what they have learned from it at once; when it is
// killed they keep that for the restart time.
func ServeRouter(ctx context.Context, o RouterOptions) error {
	o.Port, o.Log = cmp.Or(o.Port, standardPort), cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	// Neighbours' passwords are for no other process of the same user, nor for a core dump.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("protect the memory of this process: %w", err)
	}
	loop := newLoopWatch()
	r := &router{log: o.Log, bgp: newRouterBGP(o), agents: newAgentSocket(o.Listener, loop), loop: loop, table: newRouterTable(routerbgp.MaxPrefixes),
		peers: map[netip.Addr]*routerPeerState{}, linger: task.NewAlarm(), flush: task.NewAlarm(), settle: task.NewAlarm(),
		pending: map[netip.Prefix]bool{}, changed: map[netip.Prefix]bool{}}
	return r.run(ctx)
}

// router is the speaker of a router. All is of its loop.
type router struct {
	log    *slog.Logger
	bgp    *routerBGP
	agents *agentSocket
	loop   *loopWatch
	table  *routerTable
	plan   *routerbgp.Plan // nil before the first
	peers  map[netip.Addr]*routerPeerState

	problem    string // why the plan is not carried out
	settled    bool
	signatures signatures

	changed      map[netip.Prefix]bool // destinations to look up
	pending      map[netip.Prefix]bool // destinations to report
	peersPending bool
	full         bool // everything is reported next
	flushing     bool // the alarm is set

	linger, flush, settle *task.Alarm
	connected             bool          // an agent is
	silence               time.Duration // of that
}

// routerPeerState is the state of a neighbour's session, with how it was found.
type routerPeerState struct {
	routerbgp.Peer
	complete           bool      // it has announced all its routes
	updates            uint64    // received
	counted            bool      // Refused is for what is received
	nextCount          time.Time // not before
	heldUntil          time.Time // its session may not begin before: it has announced too much
	reason, connection string
	signature          string // what is wrong with its TCP MD5 signatures
}

func (r *router) run(ctx context.Context) error {
	defer r.bgp.stop()
	defer r.agents.close()
	r.linger.Set(time.Now().Add(firstLinger))
	poll := time.NewTicker(pollPeers)
	defer poll.Stop()
	for {
		r.loop.begin()
		select {
		case <-ctx.Done():
			return nil
		case <-r.linger.C:
			r.log.Warn("no agent is connected; ending")
			return nil
		case m := <-r.agents.messages:
			r.agentMessage(ctx, m)
		case <-r.bgp.news:
			if err := r.takeNews(ctx); err != nil {
				return err
			}
		case <-poll.C:
			if r.silence += pollPeers; r.connected && r.silence > r.lingerTime() {
				r.log.Warn("the agent is silent; ending")
				return nil
			}
			r.readPeers(ctx)
		case <-r.settle.C:
			r.settleNow()
		case <-r.agents.written:
			r.schedule()
		case <-r.flush.C:
			r.flushing = false
			r.report()
		}
	}
}

// agentMessage handles what comes from agents: connections, their ends, plans, and signs of life.
func (r *router) agentMessage(ctx context.Context, m agentMessage) {
	r.silence = 0
	switch {
	case m.alive:
		return
	case m.plan != nil:
		r.apply(ctx, m.plan)
	case m.connected:
		r.log.Info("agent connected")
		r.connected = true
		r.linger.Set(time.Time{})
		r.full = true
	default:
		r.log.Warn("agent gone", "err", m.err)
		r.connected = false
		r.linger.Set(time.Now().Add(r.lingerTime()))
	}
	r.schedule()
}

func (r *router) lingerTime() time.Duration {
	if r.plan == nil {
		return firstLinger
	}
	return time.Duration(r.plan.LingerSeconds) * time.Second
}

// apply carries out a plan: what is the same in the one before is not touched.
func (r *router) apply(ctx context.Context, p *routerbgp.Plan) {
	r.peersPending = true
	if r.plan == nil {
		r.settle.Set(time.Now().Add(routerbgp.RestartTime))
	}
	linksChanged := r.plan == nil || !reflect.DeepEqual(r.plan.Links, p.Links) || !slices.Equal(r.plan.Own, p.Own)
	r.plan = p
	r.problem = ""
	restarted, err := r.bgp.apply(ctx, p)
	if err != nil {
		r.problem = err.Error()
		r.log.Error("cannot carry out the plan", "err", err)
	}
	if restarted {
		r.dropAll()
	}
	known := map[netip.Addr]bool{}
	for _, n := range p.Neighbours {
		known[n.Address] = true
		if s := r.peers[n.Address]; s == nil || r.bgp.fresh[n.Address] {
			r.peers[n.Address] = &routerPeerState{Peer: routerbgp.Peer{Address: n.Address, ASNumber: n.ASNumber, State: routerbgp.StateIdle, Since: now()}}
		} else if linksChanged {
			s.counted = false
		}
	}
	clear(r.bgp.fresh)
	maps.DeleteFunc(r.peers, func(a netip.Addr, _ *routerPeerState) bool { return !known[a] })
	r.table.forget(known)
	r.settleIfComplete()
}

// dropAll forgets what was learned: gobgp has started anew.
func (r *router) dropAll() {
	for dst := range r.table.routes {
		r.changed[dst] = true
	}
	clear(r.peers)
	r.lookUp()
}

func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }

// takeNews handles what gobgp has reported.
func (r *router) takeNews(ctx context.Context) error {
	n := r.bgp.take()
	maps.Copy(r.changed, n.changed)
	for neighbour, s := range n.peers {
		if p := r.peers[neighbour]; p != nil {
			p.setState(s.state, s.reason)
			r.peersPending = true
		}
	}
	for neighbour := range n.complete {
		if p := r.peers[neighbour]; p != nil {
			p.complete = true
		}
	}
	if err := r.lookUp(); err != nil {
		return err
	}
	if len(n.peers) > 0 {
		r.readPeers(ctx)
	}
	r.settleIfComplete()
	r.schedule()
	return nil
}

// setState takes the state of a session.
func (p *routerPeerState) setState(state, reason string) {
	if up := state == routerbgp.StateEstablished; up != (p.State == routerbgp.StateEstablished) {
		p.Since = now()
		if up {
			p.reason, p.connection, p.signature = "", "", ""
		}
	}
	if p.State = state; state == routerbgp.StateOpenSent {
		p.connection = ""
	}
	if reason != "" {
		p.reason = reason
	}
	p.LastError = p.lastError()
}

// lastError returns why the session is not up.
func (p *routerPeerState) lastError() string {
	if p.State == routerbgp.StateEstablished {
		return ""
	}
	if !p.heldUntil.IsZero() {
		return errTooMany
	}
	return cmp.Or(p.signature, p.connection, p.reason)
}

// lookUp finds the best paths of the destinations that may have changed.
func (r *router) lookUp() error {
	for round := 0; len(r.changed) > 0; round++ {
		found, err := r.bgp.best(slices.Collect(maps.Keys(r.changed)))
		if err != nil {
			return err
		}
		for dst := range r.changed {
			if r.table.set(dst, found[dst]) {
				r.pending[dst] = true
			}
		}
		clear(r.changed)
		for _, dst := range r.table.waiting() {
			r.changed[dst] = true
		}
	}
	return nil
}

// settleIfComplete settles once all neighbours have announced all they have.
func (r *router) settleIfComplete() {
	if r.plan == nil {
		return
	}
	for _, p := range r.peers {
		if !p.complete {
			return
		}
	}
	r.settleNow()
}

func (r *router) settleNow() {
	if !r.settled {
		r.settled, r.peersPending = true, true
		r.schedule()
	}
}

// readPeers reads counters, and what is known of sessions that are down.
func (r *router) readPeers(ctx context.Context) {
	if r.bgp.server == nil {
		return
	}
	r.readSignatures()
	counts, err := r.bgp.counts(ctx)
	if err != nil {
		r.log.Warn("cannot read the state of sessions", "err", err)
		return
	}
	for neighbour, p := range r.peers {
		before := p.Peer
		if text := r.bgp.attempts.take(neighbour); text != "" {
			p.connection = text
		}
		c := counts[neighbour]
		if p.State != routerbgp.StateEstablished {
			c.received = len(r.table.used[neighbour])
		}
		r.holdOff(ctx, p, c.received)
		if p.Received != c.received || p.updates != c.updates {
			p.Received, p.updates, p.counted = c.received, c.updates, false
		}
		p.count(r.bgp, r.plan, len(r.table.excess[neighbour]))
		p.Advertised = 0
		if p.State == routerbgp.StateEstablished {
			p.Advertised = len(r.bgp.announced)
		}
		p.LastError = p.lastError()
		r.peersPending = r.peersPending || p.Peer != before
	}
	r.schedule()
}

// holdOff keeps a neighbour that announces more than maxReceived without a session for a while.
func (r *router) holdOff(ctx context.Context, p *routerPeerState, received int) {
	switch {
	case p.heldUntil.IsZero() && received > maxReceived:
		p.heldUntil = time.Now().Add(heldOff)
	case !p.heldUntil.IsZero() && time.Now().After(p.heldUntil):
		p.heldUntil = time.Time{}
	default:
		return
	}
	if err := r.bgp.holdOff(ctx, p.Address, !p.heldUntil.IsZero()); err != nil {
		r.log.Warn("cannot hold off a neighbour, or let it in again", "neighbour", p.Address, "err", err)
	}
}

// countPause is the pause after a count, in times of what it has taken.
const countPause = 50

// count counts what a neighbour announces and the router does not use.
func (p *routerPeerState) count(b *routerBGP, plan *routerbgp.Plan, excess int) {
	p.Refused.Limit = excess
	begin := time.Now()
	if p.counted || begin.Before(p.nextCount) {
		return
	}
	refused := routerbgp.Refused{Limit: excess}
	if p.Received > 0 {
		if err := b.eachReceived(p.Address, func(dst netip.Prefix, gateway netip.Addr) {
			if reason := refusal(&refused, plan, dst, gateway); reason != nil {
				*reason++
			}
		}); err != nil {
			return // the session has ended meanwhile
		}
	}
	p.Refused, p.counted, p.nextCount = refused, true, time.Now().Add(countPause*time.Since(begin))
}

// readSignatures notes refused TCP segments. The kernel counts them together for all neighbours, so
// each that they can be of has them said of it.
func (r *router) readSignatures() {
	s, err := readSignatures()
	if err != nil {
		return
	}
	before := r.signatures
	r.signatures = s
	for _, n := range r.plan.Neighbours {
		p := r.peers[n.Address]
		switch {
		case p == nil || p.State == routerbgp.StateEstablished || p.State == routerbgp.StateOpenSent || p.State == routerbgp.StateOpenConfirm:
		case n.Password != "" && s.wrong > before.wrong:
			p.signature = errOtherPassword
		case n.Password != "" && s.missing > before.missing:
			p.signature = errNoPassword
		case n.Password == "" && s.unexpected > before.unexpected:
			p.signature = errNotExpected
		}
	}
}

// schedule has changes reported soon, if there are any and the agent has taken the last report.
func (r *router) schedule() {
	if !r.flushing && r.agents.idle() && (r.full || r.peersPending || len(r.pending) > 0) {
		r.flushing = true
		r.flush.Set(time.Now().Add(gatherRoutes))
	}
}

// report writes what has changed to the agent.
func (r *router) report() {
	if !r.agents.idle() {
		return
	}
	destinations := r.pending
	if r.full {
		destinations = map[netip.Prefix]bool{}
		for dst := range r.table.routes {
			destinations[dst] = true
		}
	}
	routes := make([]routerbgp.Route, 0, len(destinations))
	for dst := range destinations {
		routes = append(routes, r.table.route(dst))
	}
	slices.SortFunc(routes, func(a, b routerbgp.Route) int {
		return cmp.Or(a.Dst.Addr().Compare(b.Dst.Addr()), cmp.Compare(a.Dst.Bits(), b.Dst.Bits()))
	})
	var reports []routerbgp.Report
	for part := range slices.Chunk(routes, routerbgp.MaxRoutes) {
		reports = append(reports, routerbgp.Report{Routes: part})
	}
	if r.full || r.peersPending || len(reports) == 0 {
		reports = append(reports, r.peerReport())
	}
	if r.full {
		reports[0].Full, reports[len(reports)-1].Complete = true, true
	}
	r.agents.write(reports)
	clear(r.pending)
	r.peersPending, r.full = false, false
}

func (r *router) peerReport() routerbgp.Report {
	report := routerbgp.Report{Peers: make([]routerbgp.Peer, 0, len(r.peers)), Settled: r.settled, RouterID: r.bgp.routerID, Problem: r.problem}
	for _, neighbour := range slices.SortedFunc(maps.Keys(r.peers), netip.Addr.Compare) {
		report.Peers = append(report.Peers, r.peers[neighbour].Peer)
	}
	return report
}

// stateName returns the name of a state of a session.
func stateName(state fmt.Stringer) string {
	return map[string]string{"BGP_FSM_IDLE": routerbgp.StateIdle, "BGP_FSM_CONNECT": routerbgp.StateConnect, "BGP_FSM_ACTIVE": routerbgp.StateActive,
		"BGP_FSM_OPENSENT": routerbgp.StateOpenSent, "BGP_FSM_OPENCONFIRM": routerbgp.StateOpenConfirm, "BGP_FSM_ESTABLISHED": routerbgp.StateEstablished}[state.String()]
}
