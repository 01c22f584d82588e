package control_test

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// lbGame plays with load balancers.
type lbGame struct {
	*world
	subnet string
}

// idsOfAll returns the ids of a table's objects.
func idsOfAll[T any](g *lbGame, table *records.Table[T], keep func(*T) bool) []string {
	var ids []string
	for o := range table.All(must2(g.db.View(g.t.Context()))) {
		if keep(o) {
			ids = append(ids, table.ID(o))
		}
	}
	return ids
}

func anyThing[T any](*T) bool { return true }

// ids returns the ids of the objects of a resource.
func (g *lbGame) ids(r neutron.Resource) []string {
	switch r {
	case neutron.LoadBalancers:
		return idsOfAll(g, schema.LoadBalancers, anyThing)
	case neutron.Listeners:
		return idsOfAll(g, schema.Listeners, anyThing)
	case neutron.LBPools:
		return idsOfAll(g, schema.LBPools, func(p *neutron.LBPool) bool { return !p.V1() })
	case neutron.V1Pools:
		return idsOfAll(g, schema.LBPools, (*neutron.LBPool).V1)
	case neutron.V1Members:
		return idsOfAll(g, schema.LBMembers, func(m *neutron.LBMember) bool { return m.V1 })
	case neutron.HealthMonitors:
		return idsOfAll(g, schema.HealthMonitors, func(m *neutron.HealthMonitor) bool { return !m.V1 })
	case neutron.V1HealthMonitors:
		return idsOfAll(g, schema.HealthMonitors, func(m *neutron.HealthMonitor) bool { return m.V1 })
	}
	return idsOfAll(g, schema.VIPs, anyThing)
}

// one returns some object of a resource, or none.
func (g *lbGame) one(rt *rapid.T, r neutron.Resource) string {
	return rapid.SampledFrom(append(g.ids(r), "11111111-1111-1111-1111-111111111111")).Draw(rt, r.Collection())
}

// attempt runs a request, which may be refused, but then must leave no trace.
func (g *lbGame) attempt(rt *rapid.T, request func() error) {
	before := g.dump()
	err := request()
	if err == nil {
		return
	}
	rt.Logf("refused: %s", problem(err))
	if strings.HasPrefix(problem(err), "not for clients") {
		rt.Fatalf("%v", err)
	}
	if d := cmp.Diff(before, g.dump()); d != "" {
		rt.Fatalf("refused with %v, but the store changed:\n%s", err, d)
	}
}

// step returns the creation of an object.
func (g *lbGame) step(text string, r neutron.Resource) func(*rapid.T) {
	return func(rt *rapid.T) {
		filled := strings.NewReplacer("SUBNET", g.subnet, "LB", g.one(rt, neutron.LoadBalancers), "LISTENER", g.one(rt, neutron.Listeners),
			"V1POOL", g.one(rt, neutron.V1Pools), "POOL", g.one(rt, neutron.LBPools), "PORT", strconv.Itoa(rapid.IntRange(1, 3).Draw(rt, "port"))).Replace(text)
		g.attempt(rt, func() error { _, err := g.create(g.member, r, filled); return err })
	}
}

func (g *lbGame) replaceMembers(rt *rapid.T) {
	var vs []neutron.Values
	for _, n := range rapid.SliceOfN(rapid.IntRange(20, 24), 0, 4).Draw(rt, "members") {
		vs = append(vs, neutron.Values{
			"address": netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), "protocol_port": 80, "weight": 1, "admin_state_up": true, "project_id": g.member.ProjectID,
		})
	}
	pool := g.one(rt, neutron.LBPools)
	g.attempt(rt, func() error {
		return g.LoadBalancing().ReplaceMembers(g.t.Context(), g.member, pool, vs, rapid.Bool().Draw(rt, "additive"))
	})
}

func (g *lbGame) associate(rt *rapid.T) {
	pool, monitor := g.one(rt, neutron.V1Pools), g.one(rt, neutron.V1HealthMonitors)
	g.attempt(rt, func() error {
		if rapid.Bool().Draw(rt, "away") {
			return g.LoadBalancingV1().Dissociate(g.t.Context(), g.member, pool, monitor)
		}
		_, err := g.LoadBalancingV1().Associate(g.t.Context(), g.member, pool, monitor)
		return err
	})
}

// deletable are the resources in an order in which all can be deleted.
var deletable = []neutron.Resource{neutron.VIPs, neutron.V1Pools, neutron.V1Members, neutron.V1HealthMonitors, neutron.HealthMonitors, neutron.Listeners, neutron.LBPools, neutron.LoadBalancers}

func (g *lbGame) deleteAny(rt *rapid.T) {
	r := rapid.SampledFrom(deletable).Draw(rt, "resource")
	id := g.one(rt, r)
	g.attempt(rt, func() error { return g.remove(g.member, r, id) })
}

func (g *lbGame) deleteTree(rt *rapid.T) {
	id := g.one(rt, neutron.LoadBalancers)
	g.attempt(rt, func() error { return g.LoadBalancing().DeleteTree(g.t.Context(), g.member, id) })
}

func (g *lbGame) deletePool(rt *rapid.T) {
	id := g.one(rt, neutron.LBPools)
	g.attempt(rt, func() error { return g.LoadBalancing().DeletePool(g.t.Context(), g.member, id) })
}

func (g *lbGame) deleteAll(rt *rapid.T) {
	for _, id := range g.ids(neutron.LoadBalancers) {
		if err := g.LoadBalancing().DeleteTree(g.t.Context(), g.member, id); err != nil {
			rt.Fatal(err)
		}
	}
	for _, r := range deletable {
		for _, id := range g.ids(r) {
			if err := g.remove(g.member, r, id); err != nil {
				rt.Fatalf("delete %s %s: %v", r, id, err)
			}
		}
	}
}
