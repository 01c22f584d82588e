package explain

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// TestClassesFollowChanges holds the classes that a World keeps to those of a new one, after each
// of many random changes and after some at once.
func TestClassesFollowChanges(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			c, ids := randomCloud(t, seed)
			x := &changer{cloud: c, r: rand.New(rand.NewPCG(seed, 4))}
			for i := range 20 { // some that are alike
				p, _ := schema.Ports.Peek(c.view(), ids[i%2])
				c.port(p.NetworkID, "like", oneOf(x.r, []string{"h1", "h2"}), fmt.Sprintf(`,"security_groups":[%q]`, x.groups()[0]))
			}
			kept := c.classesOf(c.world, c.view())
			moved := 0
			for i := range 120 {
				what := x.change()
				if i%8 == 7 {
					continue
				}
				snap := c.view()
				before := kept
				kept = c.classesOf(c.world, snap)
				if fresh := c.classesOf(NewWorld(), snap); !slices.Equal(kept, fresh) {
					t.Fatalf("after change %d, %s:\n%s\nmade anew:\n%s", i, what, strings.Join(kept, "\n"), strings.Join(fresh, "\n"))
				}
				if !slices.Equal(before, kept) {
					moved++
				}
			}
			if moved < 10 {
				t.Errorf("only %d changes moved a port to another class", moved)
			}
		})
	}
}

// classesOf returns the classes of ports in a World, each as a text.
func (c *cloud) classesOf(w *World, snap *records.Snap) (all []string) {
	w.apply(snap)
	r := w.rosterOf(snap)
	for _, is4 := range []bool{true, false} {
		for _, class := range r.classes(is4) {
			var ids []string
			for _, e := range class {
				ids = append(ids, e.PortID)
			}
			slices.Sort(ids)
			all = append(all, fmt.Sprint(is4, ids))
		}
	}
	slices.Sort(all)
	return all
}

// changer makes random changes of a cloud.
type changer struct {
	*cloud
	r *rand.Rand
}

// one returns one of all at random.
func oneOf[T any](r *rand.Rand, all []T) T { return all[r.IntN(len(all))] }

// machines and groups return ids.
func (x *changer) machines() (ids []string) {
	for p := range schema.Ports.All(x.view()) {
		if isMachine(x.view(), p) {
			ids = append(ids, p.ID)
		}
	}
	return ids
}

func (x *changer) groups() (ids []string) {
	for g := range schema.SecurityGroups.All(x.view()) {
		ids = append(ids, g.ID)
	}
	return ids
}

// change makes one change, and names it.
func (x *changer) change() string {
	r, snap := x.r, x.view()
	switch r.IntN(15) {
	case 0, 1, 2:
		x.randomRule(r, oneOf(r, x.groups()), x.groups())
		return "a rule"
	case 3:
		var ids []string
		for g := range schema.SecurityGroups.All(snap) {
			for i := range g.Rules {
				ids = append(ids, g.Rules[i].ID)
			}
		}
		if err := x.SecurityGroupRules().Delete(context.Background(), admin, oneOf(r, ids), nil); err != nil {
			x.t.Fatal(err)
		}
		return "a rule less"
	case 4:
		update(x.cloud, x.Ports(), neutron.Ports, oneOf(r, x.machines()), fmt.Sprintf(`{"port_security_enabled":true,"security_groups":[%q]}`, oneOf(r, x.groups())))
		return "groups of a port"
	case 11:
		g := create(x.cloud, x.SecurityGroups(), neutron.SecurityGroups, `{"name":"new"}`).ID
		for _, id := range x.machines() {
			if p, _ := schema.Ports.Peek(snap, id); p.PortSecurityEnabled && r.IntN(2) == 0 {
				update(x.cloud, x.Ports(), neutron.Ports, id, fmt.Sprintf(`{"security_groups":[%q]}`, g))
			}
		}
		create(x.cloud, x.SecurityGroupRules(), neutron.SecurityGroupRules, `{"security_group_id":%q,"direction":"ingress","remote_group_id":%q}`, oneOf(r, x.groups()), g)
		return "a group that a rule asks for"
	case 12:
		p, _ := schema.Ports.Peek(snap, oneOf(r, x.machines()))
		pairs := ""
		if r.IntN(3) > 0 {
			q, _ := schema.Ports.Peek(snap, oneOf(r, x.machines()))
			pairs = fmt.Sprintf(`{"ip_address":%q,"mac_address":%q}`, q.FixedIPs[0].IPAddress, q.MACAddress)
		}
		if p.PortSecurityEnabled {
			update(x.cloud, x.Ports(), neutron.Ports, p.ID, fmt.Sprintf(`{"allowed_address_pairs":[%s]}`, pairs))
		}
		return "address pairs of a port"
	case 13:
		x.changeAddressGroup()
		return "an address group"
	case 5:
		update(x.cloud, x.Ports(), neutron.Ports, oneOf(r, x.machines()), fmt.Sprintf(`{"admin_state_up":%t}`, r.IntN(2) > 0))
		return "state of a port"
	case 6:
		p, _ := schema.Ports.Peek(snap, oneOf(r, x.machines()))
		x.port(p.NetworkID, "more", oneOf(r, []string{"h1", "h2"}), fmt.Sprintf(`,"security_groups":[%q]`, oneOf(r, x.groups())))
		return "a port"
	case 7:
		_ = x.Ports().Delete(context.Background(), admin, oneOf(r, x.machines()), nil) // some are in use
		return "a port less"
	case 8:
		update(x.cloud, x.Ports(), neutron.Ports, oneOf(r, x.machines()), fmt.Sprintf(`{"binding:host_id":%q}`, oneOf(r, []string{"h1", "h2"})))
		return "host of a port"
	case 9:
		s := oneOf(r, slices.Collect(schema.Subnets.All(snap)))
		routes := ""
		if r.IntN(2) == 0 {
			routes = fmt.Sprintf(`{"destination":"10.0.%d.%d/27","nexthop":"10.0.1.1"}`, 1+r.IntN(2), 32*r.IntN(8))
		}
		if s.CIDR.Addr().Is4() {
			update(x.cloud, x.Subnets(), neutron.Subnets, s.ID, fmt.Sprintf(`{"host_routes":[%s]}`, routes))
		}
		return "routes of a subnet"
	case 10:
		p, _ := schema.Ports.Peek(snap, oneOf(r, x.machines()))
		x.commit(func(tx *records.Tx) error {
			id := oneOf(r, []string{"id-h1", "id-h2"})
			m := topology.LearnedMAC{HostID: id, NetworkID: p.NetworkID, PortID: oneOf(r, x.machines()), MAC: p.MACAddress}
			return schema.LearnedMACs.Put(tx, &m)
		})
		return "a MAC address seen"
	default:
		id := oneOf(r, []string{"id-h1", "id-h2"})
		x.commit(func(tx *records.Tx) error {
			if _, ok := schema.HostStates.Peek(tx, id); ok {
				return schema.HostStates.Delete(tx, id)
			}
			return schema.HostStates.Put(tx, &topology.HostState{HostID: id})
		})
		return "state of a host"
	}
}

// changeAddressGroup changes an address group, or makes one that a rule asks for.
func (x *changer) changeAddressGroup() {
	prefix := netip.MustParsePrefix(fmt.Sprintf("10.0.%d.%d/%d", 1+x.r.IntN(2), x.r.IntN(256), 24+x.r.IntN(3))).Masked()
	all := slices.Collect(schema.AddressGroups.All(x.view()))
	if len(all) < 3 {
		g := create(x.cloud, x.AddressGroups(), neutron.AddressGroups, `{"name":"a"}`).ID
		create(x.cloud, x.SecurityGroupRules(), neutron.SecurityGroupRules, `{"security_group_id":%q,"direction":"ingress","remote_address_group_id":%q}`, oneOf(x.r, x.groups()), g)
		return
	}
	change := x.AddAddresses
	g := oneOf(x.r, all)
	for b := range schema.AddressBlocks.By(x.view(), "group", g.ID) {
		if slices.Contains(b.Addresses, prefix) {
			change = x.RemoveAddresses
		}
	}
	if _, err := change(context.Background(), admin, g.ID, []netip.Prefix{prefix}); err != nil {
		x.t.Fatal(err)
	}
}
