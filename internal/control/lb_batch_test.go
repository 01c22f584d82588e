package control_test

import (
	"fmt"
	"testing"

	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// batch returns a request for n members of a pool, from a port on.
func (w *balanced) batch(n, port int) (vs []neutron.Values) {
	w.t.Helper()
	for i := range n {
		v, err := parse(w.member, neutron.LBMembers, neutron.Create, fmt.Sprintf(`{"address":"10.8.%d.%d","protocol_port":%d,"subnet_id":%q}`, i/250, i%250+1, port, w.subnetID))
		if err != nil {
			w.t.Fatal(err)
		}
		vs = append(vs, v)
	}
	return vs
}

// TestReplaceMembers: one request replaces as many members as a pool can have.
func TestReplaceMembers(t *testing.T) {
	t.Parallel()
	for _, n := range []int{200, 400, 500, 600, 1500} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			w := balancing(t)
			p := w.make(neutron.LBPools, `{"loadbalancer_id":"`+w.lb.ID+`","protocol":"TCP","lb_algorithm":"ROUND_ROBIN"}`).(*neutron.LBPoolView)
			for port := 80; port < 82; port++ {
				if err := w.LoadBalancing().ReplaceMembers(t.Context(), w.member, p.ID, w.batch(n, port), false); err != nil {
					t.Fatal(err)
				}
			}
			for _, m := range w.members(p.ID) {
				if m.ProtocolPort != 81 {
					t.Fatalf("a member of the first batch is still there: %+v", m.LBMember)
				}
			}
			if got := len(w.members(p.ID)); got != n {
				t.Errorf("%d members, want %d", got, n)
			}
		})
	}
}

// TestReplaceMembersOfFullPool: members are added to and replaced in a pool that has more than one
// commit can read, as parallel requests fill it.
func TestReplaceMembersOfFullPool(t *testing.T) {
	t.Parallel()
	const each = 1500
	w := balancing(t)
	p := w.make(neutron.LBPools, `{"loadbalancer_id":"`+w.lb.ID+`","protocol":"TCP","lb_algorithm":"ROUND_ROBIN"}`).(*neutron.LBPoolView)
	replace := func(port int, additive bool) {
		t.Helper()
		if err := w.LoadBalancing().ReplaceMembers(t.Context(), w.member, p.ID, w.batch(each, port), additive); err != nil {
			t.Fatal(err)
		}
	}
	for port := 80; port < 83; port++ {
		replace(port, true)
	}
	if got := len(w.members(p.ID)); got <= records.MaxOperations {
		t.Fatalf("%d members, want more than a commit's %d operations", got, records.MaxOperations)
	}
	replace(90, true)
	replace(91, false)
	for _, m := range w.members(p.ID) {
		if m.ProtocolPort != 91 {
			t.Fatalf("a member of another batch is still there: %+v", m.LBMember)
		}
	}
	if got := len(w.members(p.ID)); got != each {
		t.Errorf("%d members, want %d", got, each)
	}
}

func (w *balanced) members(pool string) (all []*neutron.LBMemberView) {
	w.t.Helper()
	seq, err := w.LoadBalancing().Members(pool).List(w.t.Context(), w.member, neutron.Query{})
	if err != nil {
		w.t.Fatal(err)
	}
	for m := range seq {
		all = append(all, m)
	}
	return all
}

// TestManyMembersGo: a pool and a load balancer go with more members than one commit deletes.
func TestManyMembersGo(t *testing.T) {
	t.Parallel()
	w := balancing(t)
	pool := func() string {
		p := w.make(neutron.LBPools, `{"loadbalancer_id":"`+w.lb.ID+`","protocol":"TCP","lb_algorithm":"ROUND_ROBIN"}`).(*neutron.LBPoolView)
		if err := w.LoadBalancing().ReplaceMembers(t.Context(), w.member, p.ID, w.batch(1200, 80), false); err != nil {
			t.Fatal(err)
		}
		return p.ID
	}
	if err := w.LoadBalancing().DeletePool(t.Context(), w.member, pool()); err != nil {
		t.Fatal(err)
	}
	pool()
	pool()
	if err := w.LoadBalancing().DeleteTree(t.Context(), w.member, w.lb.ID); err != nil {
		t.Fatal(err)
	}
	snap, err := w.db.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range schema.LBMembers.All(snap) {
		t.Fatal("a member of a deleted pool is left")
	}
	for range schema.LBPools.All(snap) {
		t.Fatal("a pool of a deleted load balancer is left")
	}
	for x := range schema.PendingWorks.All(snap) {
		t.Errorf("work is left: %+v", x)
	}
	for b := range schema.Bundles.All(snap) {
		if b.Owner.Kind == "lb-member" || b.Owner.Kind == "lb-pool" || b.Owner.Kind == "load-balancer" {
			t.Fatalf("a bundle is left: %v", b.Owner)
		}
	}
}

// TestReplaceMembersResumed: wherever a server ends while it replaces more members than one commit
// can, the old ones are there until all new ones are, and the same request does the rest.
func TestReplaceMembersResumed(t *testing.T) {
	t.Parallel()
	const members, endless = 1100, 1 << 30
	for ends := range int64(5) {
		d := &crashing{Store: store.NewMemory()}
		d.left.Store(endless)
		w := balancingIn(open(t, d, control.Options{}))
		p := w.make(neutron.LBPools, `{"loadbalancer_id":"`+w.lb.ID+`","protocol":"TCP","lb_algorithm":"ROUND_ROBIN"}`).(*neutron.LBPoolView)
		replace := func(port int) error {
			return w.LoadBalancing().ReplaceMembers(t.Context(), w.member, p.ID, w.batch(members, port), false)
		}
		if err := replace(80); err != nil {
			t.Fatal(err)
		}
		d.left.Store(ends)
		if err := replace(81); err == nil {
			t.Fatalf("the request is answered although the server ends after %d commits", ends)
		}
		d.left.Store(endless)
		count := map[int]int{}
		for _, m := range w.members(p.ID) {
			count[m.ProtocolPort]++
		}
		if count[80] < members && count[81] < members {
			t.Errorf("after %d commits there are %d old members and %d new ones, want all of one kind", ends, count[80], count[81])
		}
		if err := replace(81); err != nil {
			t.Fatal(err)
		}
		for _, m := range w.members(p.ID) {
			if m.ProtocolPort != 81 {
				t.Fatalf("an old member is still there: %+v", m.LBMember)
			}
		}
		if got := len(w.members(p.ID)); got != members {
			t.Errorf("%d members, want %d", got, members)
		}
		w.verifyStore()
	}
}

// TestReplaceMembersRefused: of a request that is refused nothing is done, however large it is.
func TestReplaceMembersRefused(t *testing.T) {
	t.Parallel()
	w := balancing(t)
	p := w.make(neutron.LBPools, `{"loadbalancer_id":"`+w.lb.ID+`","protocol":"TCP","lb_algorithm":"ROUND_ROBIN"}`).(*neutron.LBPoolView)
	vs := w.batch(1500, 80)
	vs[1499]["address"] = w.lb.VIPAddress
	if err := w.LoadBalancing().ReplaceMembers(t.Context(), w.member, p.ID, vs, false); err == nil {
		t.Error("a member at the VIP is accepted")
	}
	if got := len(w.members(p.ID)); got != 0 {
		t.Errorf("%d members of a refused request are there", got)
	}
}

// TestSubnetOfManyBalancers: a change of a subnet reaches all load balancers on it.
func TestSubnetOfManyBalancers(t *testing.T) {
	t.Parallel()
	w := balancing(t)
	w.unlimited()
	ids := []string{w.lb.ID}
	for range 150 {
		ids = append(ids, w.make(neutron.LoadBalancers, `{"vip_subnet_id":"`+w.subnetID+`"}`).(*neutron.LoadBalancerView).ID)
	}
	if _, err := w.change(w.member, neutron.Subnets, w.subnetID, `{"host_routes":[{"destination":"10.9.0.0/16","nexthop":"10.0.0.9"}]}`); err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if n := len(w.bundle("load-balancer", id).Routes); n != 4 {
			t.Fatalf("balancer %s has %d routes, want those of its address, subnet, gateway and host route", id, n)
		}
	}
}
