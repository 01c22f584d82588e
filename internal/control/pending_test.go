package control_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"heddle/internal/api/apitest"
	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// crashing is a store that accepts so many commits more and then none, as if its server had been
// killed.
type crashing struct {
	store.Store
	left atomic.Int64
}

var errCrashed = errors.New("crashed")

func (c *crashing) Commit(ctx context.Context, conds []store.Cond, ops []store.Op) (int64, error) {
	if c.left.Add(-1) < 0 {
		return 0, errCrashed
	}
	return c.Store.Commit(ctx, conds, ops)
}

// unlimited takes the limits of the member's project away.
func (w *world) unlimited() {
	w.t.Helper()
	v, err := parse(w.admin, neutron.Quotas, neutron.Update, `{"network":-1,"subnet":-1,"port":-1,"security_group":-1,"security_group_rule":-1,
		"floatingip":-1,"firewall":-1,"firewall_policy":-1,"rbac_policy":-1}`)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.SetQuota(context.Background(), w.admin, "mine", v, false); err != nil {
		w.t.Fatal(err)
	}
}

// many makes n objects, some at once, and returns the views.
func (w *world) many(c neutron.Caller, r neutron.Resource, n int, text func(i int) string) []any {
	w.t.Helper()
	var made []any
	for len(made) < n {
		var texts []string
		for i := len(made); i < min(n, len(made)+50); i++ {
			texts = append(texts, text(i))
		}
		views, err := w.create(c, r, texts...)
		if err != nil {
			w.t.Fatal(err)
		}
		made = append(made, views...)
	}
	return made
}

// A cascade is an operation that concerns many objects.
type cascade struct {
	name    string
	furnish func(w *world, n int) (id string)
	perform func(w *world, id string) error
	// refuse adds to what is being deleted, which has to fail.
	refuse func(w *world, id string) error
	// check reports what the finished operation has left that should not be there.
	check func(w *world, snap *records.Snap, id string) error
}

func cascades() []cascade {
	return []cascade{
		{
			name: "delete network",
			furnish: func(w *world, n int) string {
				net := w.network(`{}`)
				for i := range 3 {
					w.subnet(net.ID, fmt.Sprintf(`"ip_version":4,"cidr":"10.%d.0.0/16"`, i))
				}
				w.many(w.admin, neutron.Ports, n, func(int) string {
					return `{"network_id":"` + net.ID + `","project_id":"mine","device_owner":"network:dhcp","device_id":"d"}`
				})
				return net.ID
			},
			perform: func(w *world, id string) error { return w.remove(w.member, neutron.Networks, id) },
			refuse: func(w *world, id string) error {
				_, err := w.create(w.member, neutron.Ports, `{"network_id":"`+id+`"}`)
				return err
			},
			check: func(w *world, snap *records.Snap, id string) error {
				if ports, subnets, networks := schema.Ports.Count(snap), schema.Subnets.Count(snap), schema.Networks.Count(snap); ports+subnets+networks > 0 {
					return fmt.Errorf("%d ports, %d subnets and %d networks are left", ports, subnets, networks)
				}
				return nil
			},
		},
		{
			name: "delete external network",
			furnish: func(w *world, n int) string {
				id := w.externalNetwork("198.18.0.0/16")
				w.many(w.member, neutron.FloatingIPs, n, func(int) string { return `{"floating_network_id":"` + id + `"}` })
				return id
			},
			perform: func(w *world, id string) error { return w.remove(w.admin, neutron.Networks, id) },
			refuse: func(w *world, id string) error {
				_, err := w.create(w.member, neutron.FloatingIPs, `{"floating_network_id":"`+id+`"}`)
				return err
			},
			check: func(w *world, snap *records.Snap, id string) error {
				if floating, ports, networks := schema.FloatingIPs.Count(snap), schema.Ports.Count(snap), schema.Networks.Count(snap); floating+ports+networks > 0 {
					return fmt.Errorf("%d floating IPs, %d ports and %d networks are left", floating, ports, networks)
				}
				return nil
			},
		},
		{
			name: "delete subnet",
			furnish: func(w *world, n int) string {
				net := w.network(`{}`)
				sub := w.subnet(net.ID, `"ip_version":6,"cidr":"2001:db8::/64","ipv6_address_mode":"slaac","ipv6_ra_mode":"slaac"`)
				w.many(w.member, neutron.Ports, n, func(int) string { return `{"network_id":"` + net.ID + `"}` })
				return sub.ID
			},
			perform: func(w *world, id string) error { return w.remove(w.member, neutron.Subnets, id) },
			refuse: func(w *world, id string) error {
				s, err := w.Subnets().Show(w.t.Context(), w.member, id)
				if err == nil {
					_, err = w.create(w.member, neutron.Ports, `{"network_id":"`+s.NetworkID+`","fixed_ips":[{"subnet_id":"`+id+`"}]}`)
				}
				return err
			},
			check: func(w *world, snap *records.Snap, id string) error {
				if n := schema.Ports.CountBy(snap, "subnet", id) + schema.Subnets.Count(snap); n > 0 {
					return fmt.Errorf("%d ports have an address of the subnet, or it is there", n)
				}
				return nil
			},
		},
		{
			name: "delete security group",
			furnish: func(w *world, n int) string {
				g := must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"g"}`)
				others := w.many(w.member, neutron.SecurityGroups, n, func(i int) string { return fmt.Sprintf(`{"name":"g%d"}`, i) })
				rule := func(in, remote string) string {
					return `{"security_group_id":"` + in + `","direction":"ingress","remote_group_id":"` + remote + `"}`
				}
				w.many(w.member, neutron.SecurityGroupRules, n, func(i int) string { return rule(g.ID, others[i].(*neutron.SecurityGroupView).ID) })
				for _, o := range others {
					must[*neutron.SecurityGroupRule](w, w.member, neutron.SecurityGroupRules, rule(o.(*neutron.SecurityGroupView).ID, g.ID))
				}
				return g.ID
			},
			perform: func(w *world, id string) error { return w.remove(w.member, neutron.SecurityGroups, id) },
			refuse: func(w *world, id string) error {
				_, err := w.create(w.member, neutron.SecurityGroupRules, `{"security_group_id":"`+id+`","direction":"ingress"}`)
				return err
			},
			check: func(w *world, snap *records.Snap, id string) error {
				if _, there := schema.SecurityGroups.Peek(snap, id); there || schema.SecurityGroups.CountBy(snap, "remote_group", id) > 0 {
					return errors.New("the group or rules that name it are left")
				}
				return nil
			},
		},
		{
			name: "stop routed network",
			furnish: func(w *world, n int) string {
				w.hosts("h1")
				id := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"provider:network_type":"routed","project_id":"mine"}`).ID
				w.subnet(id, `"ip_version":4,"cidr":"10.9.0.0/16"`)
				w.many(w.admin, neutron.Ports, n, func(int) string { return `{"network_id":"` + id + `","project_id":"mine","binding:host_id":"h1"}` })
				return id
			},
			perform: func(w *world, id string) error {
				_, err := w.change(w.member, neutron.Networks, id, `{"admin_state_up":false}`)
				return err
			},
			check: func(w *world, snap *records.Snap, id string) error {
				for key, value := range w.calico() {
					if strings.Contains(key, "/endpoint/") && !strings.Contains(value, `"state":"inactive"`) {
						return fmt.Errorf("%s is %s", key, value)
					}
				}
				return nil
			},
		},
		{
			name: "change rule of firewalls",
			furnish: func(w *world, n int) string {
				rule := w.firewallRule(`{"shared":true}`)
				policy := must[*neutron.FirewallPolicyView](w, w.member, neutron.FirewallPolicies, `{"shared":true,"firewall_rules":["`+rule+`"]}`).ID
				w.many(w.member, neutron.Firewalls, n, func(int) string { return `{"firewall_policy_id":"` + policy + `"}` })
				return rule
			},
			perform: func(w *world, id string) error {
				_, err := w.change(w.member, neutron.FirewallRules, id, `{"action":"allow"}`)
				return err
			},
			check: func(w *world, snap *records.Snap, id string) error {
				for f := range schema.Firewalls.All(snap) {
					if rules := w.bundle("firewall", f.ID).Chains[0].Rules; rules[1].Action != topology.Accept {
						return fmt.Errorf("firewall %s still has %+v", f.ID, rules[1])
					}
				}
				return nil
			},
		},
		{
			name: "change rule of firewall group policies",
			furnish: func(w *world, n int) string {
				rule := w.groupRule(`{"action":"allow"}`)
				w.many(w.member, neutron.FirewallGroupPolicies, n, func(int) string { return `{"audited":true,"firewall_rules":["` + rule + `"]}` })
				return rule
			},
			perform: func(w *world, id string) error {
				_, err := w.change(w.member, neutron.FirewallGroupRules, id, `{"action":"reject"}`)
				return err
			},
			check: func(w *world, snap *records.Snap, id string) error {
				for p := range schema.FirewallGroupPolicies.All(snap) {
					if rules := w.bundle("firewall-group-policy", p.ID).Chains[0].Rules; rules[1].Action != topology.Reject || p.Audited {
						return fmt.Errorf("policy %+v still has %+v", p, rules[1])
					}
				}
				return nil
			},
		},
	}
}

// finished waits until no work is pending.
func (w *world) finished() {
	w.t.Helper()
	prefix := schema.PendingWorks.Key("")
	kvs, rev, err := w.st.List(w.t.Context(), prefix)
	if err != nil {
		w.t.Fatal(err)
	}
	left := map[string]bool{}
	for _, kv := range kvs {
		left[kv.Key] = true
	}
	changes, failed := w.st.Watch(w.t.Context(), rev, prefix)
	for len(left) > 0 {
		c, ok := <-changes
		if !ok {
			w.t.Fatal("pending work is not finished:", failed())
		}
		for _, e := range c.Events {
			if e.Deleted {
				delete(left, e.Key)
			}
		}
	}
}

// verifyStore checks the rules of all tables.
func (w *world) verifyStore() {
	w.t.Helper()
	var tables []records.Target
	for _, t := range schema.All() {
		tables = append(tables, t.(records.Target))
	}
	if err := records.Verify(context.Background(), w.st, tables...); err != nil {
		w.t.Error(err)
	}
}

// A server that is killed in the middle of a large cascade leaves a store that breaks no rule, to
// which nothing can be added that the cascade would miss, and whose next server finishes it.
func TestLargeCascadesSurviveAKill(t *testing.T) {
	t.Parallel()
	for _, c := range cascades() {
		for _, commits := range []int64{1, 2, 4} {
			t.Run(fmt.Sprintf("%s after %d commits", c.name, commits), func(t *testing.T) {
				t.Parallel()
				real := store.NewMemory()
				st := &crashing{Store: real}
				st.left.Store(1 << 40)
				w := open(t, st, control.Options{})
				w.unlimited()
				id := c.furnish(w, 300)
				st.left.Store(commits)
				if err := c.perform(w, id); err != nil {
					t.Fatal("a decided operation should not fail:", err)
				}
				if left := w.under(schema.PendingWorks.Key("")); len(left) != 1 {
					t.Fatalf("pending after the kill: %v, want one", left)
				}
				w.verifyStore()

				var pending *control.Pending
				w = openBefore(t, real, control.Options{}, func(s *control.Service, rep *replica.Replica) {
					pending = control.NewPending(s, rep, slog.New(slog.DiscardHandler)).Impatiently()
				})
				if c.refuse != nil {
					if err := c.refuse(w, id); err == nil {
						t.Error("something was added to what is being deleted")
					}
				}
				apitest.Run(t, pending)
				w.finished()
				w.verifyStore()
				snap, err := w.db.View(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if err := c.check(w, snap, id); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// While a large cascade runs every commit is bounded, and what another client writes waits for a
// few of them at most.
func TestLargeCascadesLetOthersWrite(t *testing.T) {
	t.Parallel()
	for _, c := range cascades() {
		t.Run(c.name, func(t *testing.T) {
			st := inEtcd(t, false)
			w := open(t, st, control.Options{})
			w.unlimited()
			id := c.furnish(w, 300)
			start, err := st.Revision(t.Context())
			if err != nil {
				t.Fatal(err)
			}

			done := make(chan error)
			go func() { done <- c.perform(w, id) }()
			writes, waited := 0, []int64{}
			for running := true; running; {
				select {
				case err := <-done:
					if err != nil {
						t.Error(err)
					}
					running = false
				default:
					before, err1 := st.Revision(t.Context())
					after, err2 := st.Commit(t.Context(), nil, []store.Op{{Key: "/other/program", Value: []byte("x")}})
					if err := errors.Join(err1, err2); err != nil {
						t.Fatal(err)
					}
					writes, waited = writes+1, append(waited, after-before-1)
				}
			}
			// One commit may be under way when the other client begins, and one more come before
			// its own.
			if most := slices.Max(waited); most > 3 {
				t.Errorf("one of %d writes of another client waited for %d commits", writes, most)
			}
			rev, err := st.Revision(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			changes, failed := st.Watch(t.Context(), start, "/")
			sizes := map[int64]int{}
			for c := range changes {
				for _, e := range c.Events {
					sizes[e.ModRevision]++
				}
				if c.Revision >= rev {
					break
				}
			}
			if failed() != nil {
				t.Fatal(failed())
			}
			largest, steps := 0, 0
			for _, n := range sizes {
				largest = max(largest, n)
				if n > 1 {
					steps++
				}
			}
			if steps < 300/64 || largest > 2048 {
				t.Errorf("%d commits, the largest of %d operations", steps, largest)
			}
			w.verifyStore()
			snap, err := w.db.View(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := c.check(w, snap, id); err != nil {
				t.Error(err)
			}
		})
	}
}

// A request for more objects than one commit may have is refused as a whole, whatever the store.
func TestTooManyAtOnce(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.unlimited()
	n := w.network(`{}`)
	w.subnet(n.ID, `"ip_version":4,"cidr":"10.0.0.0/16"`)
	texts := slices.Repeat([]string{`{"network_id":"` + n.ID + `"}`}, 600)
	before := w.dump()
	_, err := w.create(w.member, neutron.Ports, texts...)
	if got := problem(err); !strings.HasPrefix(got, "BadRequest: The request changes too many objects at once:") || !strings.Contains(got, "at most 4096") {
		t.Errorf("600 ports in one request: %s", got)
	}
	if after := w.dump(); len(after) != len(before) {
		t.Errorf("the refused request wrote: %d keys, %d before", len(after), len(before))
	}
}
