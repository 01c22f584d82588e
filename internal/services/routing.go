package services

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"time"

	"heddle/internal/hostnet"
	"heddle/internal/services/plan"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/telemetry"
	"heddle/internal/topology"
	"heddle/internal/topology/routerbgp"
)

// countsEvery is the pause between reports of sessions of which only counts have changed.
const countsEvery = 5 * time.Second

// addressDrain is the time for which the namespace keeps the address of a session that is removed,
// so that the speaker can end it and the peer receives that.
const addressDrain = 10 * time.Second

// routing is the state of a container that speaks BGP for a router, of one speaker after the other.
// It is of the container's runner.
type routing struct {
	r      *runner
	routes *learnedRoutes
	lostAt time.Time // when the last speaker has ended, or the agent has begun
	ran    bool      // a speaker has run before
	// draining holds the addresses that no session has any longer, and when they go.
	draining map[netip.Addr]time.Time

	applied  *routerbgp.Plan // to the speaker that runs
	peers    []routerbgp.Peer
	why      string             // there are no peers, or the plan is not carried out
	state    *topology.BgpState // as reported
	statedAt time.Time          // likewise
}

// routingOf returns the state, which begins with what an earlier agent has reported.
func (r *runner) routingOf(c *plan.Container) *routing {
	if r.routing == nil {
		r.routing = &routing{r: r, routes: newLearnedRoutes(r.agent.opts.HostID, c.Speaker), lostAt: time.Now(),
			draining: map[netip.Addr]time.Time{}}
		r.routing.routes.load(r.agent.earlier.take(c.Speaker))
	}
	return r.routing
}

// serveRouting runs a router's speaker until ctx ends, or something fails.
func (r *runner) serveRouting(ctx context.Context, ns *hostnet.Namespace, net *hostnet.Linux) (err error) {
	c := r.desired()
	for c.Speaker == nil { // its bundle is on the way, or gone before the container's
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
			c = r.desired()
		}
	}
	g := r.routingOf(&c)
	g.applied, g.peers, g.why = nil, nil, "the BGP speaker of the router starts"
	p, err := openSpeaker(ctx, r.dir, ns)
	if err != nil {
		g.publish(err.Error())
		return err
	}
	defer p.close()
	restarting := !p.adopted && (g.ran || len(g.routes.routes) > 0)
	g.ran = true
	for ctx.Err() == nil && err == nil {
		err = g.step(ctx, net, p, restarting)
	}
	if ctx.Err() != nil {
		return nil
	}
	g.routes.abandon()
	g.lostAt = time.Now()
	g.publish(err.Error())
	// One that takes no plans, say since it is of another version, would be adopted again. Killed,
	// it leaves its routes at the peers.
	return errors.Join(err, endProcesses(ns))
}

// step has the speaker carry out the container's definition, and follows it until that changes or
// the speaker ends.
func (g *routing) step(ctx context.Context, net *hostnet.Linux, p *speakerProcess, restarting bool) error {
	c := g.r.desired()
	if c.Speaker != nil {
		actual, err := net.Addresses("lo")
		if err != nil {
			return err
		}
		c.Addresses = append(c.Addresses[:len(c.Addresses):len(c.Addresses)], g.drain(actual, c.Addresses, time.Now())...)
		if err := configure(net, &c); err != nil {
			return err
		}
		g.routes.setRouter(c.Speaker)
		next := c.Speaker.Plan
		next.Restarting, next.LingerSeconds = restarting, int(schema.HostLease/time.Second)
		if g.applied == nil || !reflect.DeepEqual(*g.applied, next) {
			if err := p.apply(&next); err != nil {
				return err
			}
			g.applied = &next
		}
		g.r.agent.report(&c, topology.ContainerRunning, "")
		g.publish("")
	}
	return g.follow(ctx, p)
}

// drain returns the actual addresses that are not desired but stay for a while.
func (g *routing) drain(actual []netip.Prefix, desired []netip.Addr, now time.Time) (keep []netip.Addr) {
	before := g.draining
	g.draining = map[netip.Addr]time.Time{}
	for _, p := range actual {
		a := p.Addr()
		if a.IsLoopback() || slices.Contains(desired, a) {
			continue
		}
		until, known := before[a]
		if !known {
			until = now.Add(addressDrain)
		}
		if until.After(now) {
			g.draining[a] = until
			keep = append(keep, a)
		}
	}
	return keep
}

// drained returns when the next address goes, the zero Time for none.
func (g *routing) drained() (next time.Time) {
	for _, until := range g.draining {
		if next.IsZero() || until.Before(next) {
			next = until
		}
	}
	return next
}

// follow takes reports until the container changes, an address has to go, ctx ends or the speaker
// does.
func (g *routing) follow(ctx context.Context, p *speakerProcess) error {
	stale, counts, drained := task.NewAlarm(), task.NewAlarm(), task.NewAlarm()
	defer stale.Set(time.Time{})
	defer drained.Set(time.Time{})
	drained.Set(g.drained())
	defer counts.Set(time.Time{})
	for {
		stale.Set(g.routes.staleUntil(g.lostAt))
		select {
		case <-ctx.Done():
			return nil
		case <-g.r.wake:
			return nil
		case <-drained.C:
			return nil
		case err := <-p.lost:
			return err
		case <-stale.C:
			g.routes.dropStale()
		case <-counts.C:
		case <-p.tick.C:
			if err := p.ticked(); err != nil {
				return err
			}
		case report := <-p.reports:
			p.silent = 0
			g.take(report)
		}
		counts.Set(g.publish(""))
	}
}

func (g *routing) take(r *routerbgp.Report) {
	g.routes.take(r)
	if r.RouterID.IsValid() || r.Peers != nil || r.Problem != "" {
		g.peers, g.why = r.Peers, cmp.Or(r.Problem, "the session is not configured yet")
	}
}

// publish reports changes of routes and sessions. While no speaker runs the caller gives the
// reason, else "". The result is when counts that have changed are to be reported, the zero Time
// for none.
func (g *routing) publish(failure string) (next time.Time) {
	a := g.r.agent
	for _, record := range g.routes.changes() {
		key := schema.LearnedRoutes.KeyOf(&record)
		if len(record.Routes) == 0 {
			a.opts.Reports.Delete(key)
		} else if err := a.opts.Reports.SetRecord(key, &record); err != nil {
			a.log.Error("cannot report a record", "key", key, "err", err)
		}
	}
	c := g.r.desired()
	peers := g.peers
	if failure != "" {
		peers = nil
	}
	state := g.routes.router.State(a.opts.HostID, c.PortID, peers, cmp.Or(failure, g.why))
	a.figures.mu.Lock()
	a.figures.routers[c.ID], a.figures.learned[c.ID] = state, len(g.routes.routes)
	a.figures.mu.Unlock()
	switch {
	case g.state != nil && reflect.DeepEqual(g.state, state):
		return time.Time{}
	case g.state != nil && sameSessions(g.state, state) && time.Since(g.statedAt) < countsEvery:
		return g.statedAt.Add(countsEvery)
	}
	g.logChanges(state)
	g.state, g.statedAt = state, time.Now()
	if err := a.opts.Reports.SetRecord(schema.BGPStates.KeyOf(state), state); err != nil {
		a.log.Error("cannot report a record", "key", schema.BGPStates.KeyOf(state), "err", err)
	}
	return time.Time{}
}

// sameSessions reports whether only counts differ.
func sameSessions(a, b *topology.BgpState) bool {
	return slices.EqualFunc(a.Peers, b.Peers, func(x, y topology.BgpPeerState) bool {
		x.Received, x.Refused, x.Advertised = y.Received, y.Refused, y.Advertised
		return x == y
	})
}

// logChanges logs sessions that come and go.
func (g *routing) logChanges(now *topology.BgpState) {
	up := map[string]bool{}
	if g.state != nil {
		for _, p := range g.state.Peers {
			up[p.PeerID] = p.State == topology.BgpEstablished
		}
	}
	for _, p := range now.Peers {
		log := g.r.agent.log.With("router", now.RouterID)
		switch isUp := p.State == topology.BgpEstablished; {
		case isUp && !up[p.PeerID]:
			log.Info("BGP session up", "peer", p.Address)
		case !isUp && up[p.PeerID]:
			if p.LastError != "" {
				log = log.With("reason", p.LastError)
			}
			log.Warn("BGP session down", "peer", p.Address)
		}
	}
}

// endRouting ends a stopped container's speaker, and withdraws what it has reported.
func (r *runner) endRouting() {
	c := r.desired()
	if c.Kind != topology.ContainerBGP {
		return
	}
	if err := endSpeaker(r.dir, c.Namespace); err != nil {
		r.agent.log.Warn("cannot end the BGP speaker of a router", "container", c.ID, "err", err)
	}
	reports := r.agent.opts.Reports
	if r.routing != nil {
		r.routing.routes.withdraw()
		for _, record := range r.routing.routes.changes() {
			reports.Delete(schema.LearnedRoutes.KeyOf(&record))
		}
	}
	reports.Delete(schema.BGPStates.KeyOf(&topology.BgpState{HostID: r.agent.opts.HostID, PortID: c.PortID}))
}

// earlierRouting holds the routes that the host's last agent has reported, which stay in force
// until the new one knows better. Its methods may be called from any goroutine.
type earlierRouting struct {
	mu     sync.Mutex
	routes []*topology.LearnedRoutes
}

// load has the last agent's routes reported on.
func (e *earlierRouting) load(o *Options, s *snapshot.Snapshot) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for r := range schema.LearnedRoutes.All(records.Over(s)) {
		if r.HostID == o.HostID && o.Reports.SetRecord(schema.LearnedRoutes.KeyOf(r), r) == nil {
			e.routes = append(e.routes, r)
		}
	}
}

// keep withdraws the routes of routers of which the host has no container.
func (e *earlierRouting) keep(o *Options, containers []plan.Container) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.routes = slices.DeleteFunc(e.routes, func(r *topology.LearnedRoutes) bool {
		gone := !slices.ContainsFunc(containers, func(c plan.Container) bool { return c.Speaker != nil && c.Speaker.HasPort(r.PortID) })
		if gone {
			o.Reports.Delete(schema.LearnedRoutes.KeyOf(r))
		}
		return gone
	})
}

// take returns the routes by the ports of a router, once.
func (e *earlierRouting) take(s *plan.Speaker) (all []*topology.LearnedRoutes) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.routes = slices.DeleteFunc(e.routes, func(r *topology.LearnedRoutes) bool {
		own := s.HasPort(r.PortID)
		if own {
			all = append(all, r)
		}
		return own
	})
	return all
}

// routing returns the metrics of routers' speakers. It needs the lock.
func (f *figures) routing() (values []telemetry.Value) {
	for _, id := range slices.Sorted(maps.Keys(f.routers)) {
		s := f.routers[id]
		values = append(values, telemetry.Gauge.Of("heddle_router_bgp_routes_learned", "Destinations that a router has learned by BGP.", f.learned[id]).With("router", s.RouterID))
		for _, p := range s.Peers {
			peer := p.Address.String()
			values = append(values,
				telemetry.Flag("heddle_router_bgp_session_up", "1 while a router's session with a peer is established.", p.State == topology.BgpEstablished).
					With("router", s.RouterID).With("peer", peer),
				telemetry.Gauge.Of("heddle_router_bgp_routes_received", "Destinations received from a peer that may be used.", p.Received).
					With("router", s.RouterID).With("peer", peer),
				telemetry.Gauge.Of("heddle_router_bgp_routes_refused", "Destinations received from a peer that are refused; heddle bgp show says why.", p.Refused).
					With("router", s.RouterID).With("peer", peer),
				telemetry.Gauge.Of("heddle_router_bgp_routes_advertised", "Destinations announced to a peer.", p.Advertised).
					With("router", s.RouterID).With("peer", peer))
		}
	}
	return values
}
