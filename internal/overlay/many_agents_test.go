package overlay

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/backend"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/store/storetest"
	"heddle/internal/topology"
	"heddle/internal/topology/simulate"
)

// fleet is a router in an etcd that many agents follow. Each has its own connection, the replica of
// an agent's tables, and a world to which it applies them, but no host: thousands fit on a machine.
type fleet struct {
	*routed
	agents int
	newest atomic.Pointer[netip.Prefix] // destination of the route added last, or the member
	at     chan time.Time               // an agent's world has that
}

// newFleet starts the agents, and waits until all have the router.
func newFleet(t testing.TB, agents int) *fleet {
	t.Helper()
	dir := t.TempDir()
	l := &lab{t: t, st: storetest.Open(t, dir)}
	f := &fleet{routed: l.routed(), agents: agents, at: make(chan time.Time, agents)}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { stop(); running.Wait() })
	ready := make(chan struct{}, agents)
	slots := make(chan struct{}, 32) // that start at once
	for i := range agents {
		running.Go(func() {
			slots <- struct{}{}
			st, err := backend.OpenRunning(ctx, dir, nil)
			if err != nil {
				t.Error(err)
				ready <- struct{}{}
				return
			}
			defer st.Close()
			r := f.follow(st, fmt.Sprintf("host-%d", i))
			running.Go(func() {
				<-r.Ready()
				<-slots
				ready <- struct{}{}
			})
			if err := r.Run(ctx); ctx.Err() == nil {
				t.Errorf("agent %d ended: %v", i, err)
			}
		})
	}
	for range agents {
		<-ready
	}
	if t.Failed() {
		t.FailNow()
	}
	return f
}

// follow returns the replica of a host's agent, which applies its changes to a world.
func (f *fleet) follow(st *backend.Etcd, host string) *replica.Replica {
	r := replica.New(st, replica.Options{}, tables(host)...)
	world := simulate.NewWorld(simulate.Options{})
	r.OnChange(func(u snapshot.Update) {
		for _, c := range u.Changed {
			b, ok := c.New.(*schema.Bundle)
			if !ok {
				continue
			}
			world.Apply(b.Owner, &b.Bundle)
			if f.hasNewest(&b.Bundle) {
				f.at <- time.Now()
			}
		}
	})
	return r
}

// hasNewest reports whether a bundle has the route or the member that was added last.
func (f *fleet) hasNewest(b *topology.Bundle) bool {
	newest := f.newest.Load()
	return newest != nil &&
		(slices.ContainsFunc(b.Routes, func(r topology.Route) bool { return r.DstSubnet == *newest }) ||
			slices.ContainsFunc(b.MemberSets, func(s topology.MemberSet) bool { return slices.Contains(s.Prefixes, *newest) }))
}

// addRoute gives the router one more route, in place of its oldest if it has 30, and returns the
// times from the commit until half of the agents had it, and all.
func (f *fleet) addRoute(t testing.TB, n int) (half, last time.Duration) {
	t.Helper()
	destination := netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, byte(n), 0}), 24)
	f.newest.Store(&destination)
	if len(f.router.Routes) == 30 {
		f.router.Routes = f.router.Routes[1:]
	}
	f.router.Routes = append(f.router.Routes, neutron.HostRoute{Destination: destination, Nexthop: netip.MustParseAddr("10.0.0.9")})
	b := translate.Router(&f.router, []translate.RouterLink{f.gateway, f.inside})
	f.lab.put(topology.Owner{Kind: "router", ID: f.router.ID}, &b)
	return f.arrived(t, time.Now())
}

// arrived waits until all agents have what was committed, and returns the times until half of them
// had it, and all.
func (f *fleet) arrived(t testing.TB, committed time.Time) (half, last time.Duration) {
	t.Helper()
	var took []time.Duration
	for range f.agents {
		select {
		case at := <-f.at:
			took = append(took, max(at.Sub(committed), 0))
		case <-time.After(time.Minute):
			t.Fatalf("%d of %d agents have the change", len(took), f.agents)
		}
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)-1]
}

// TestRouteReachesAllAgents: each agent's world gets each route once.
func TestRouteReachesAllAgents(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 20)
	for n := range 40 {
		f.addRoute(t, n)
	}
	if len(f.at) > 0 {
		t.Errorf("routes came again %d times", len(f.at))
	}
}

// BenchmarkRouteReachesAgents measures the time from a commit that adds a route until 3,000 agents
// have it: the median of all rounds, and the worst. The goal is 0.4 s for the last agent.
//
//	go test ./internal/overlay -run '^$' -bench RouteReachesAgents -benchtime 20x
func BenchmarkRouteReachesAgents(b *testing.B) {
	f := newFleet(b, 3000)
	var halves, lasts []time.Duration
	for n := 0; b.Loop(); n++ {
		half, last := f.addRoute(b, n)
		halves, lasts = append(halves, half), append(lasts, last)
	}
	slices.Sort(halves)
	slices.Sort(lasts)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(halves[len(halves)/2]), "ms-half")
	b.ReportMetric(ms(lasts[len(lasts)/2]), "ms-all")
	b.ReportMetric(ms(lasts[len(lasts)-1]), "ms-all-worst")
}
