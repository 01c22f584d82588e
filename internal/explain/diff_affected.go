package explain

import (
	"maps"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/reach"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// affectedEnds has the machines that a difference may affect.
type affectedEnds struct {
	direct map[string]bool // connections from and to which may fare otherwise
	// component has, of the machines whose connections by routers may fare otherwise, the number of
	// the networks that these routers connect.
	component map[string]int
}

// affected returns the machines that the difference may affect: those that the world says, those
// that send by other routes, those whose addresses outside differ, and those whose groups ask for
// members of an address group that differs.
func (c *comparison) affected() affectedEnds {
	a := affectedEnds{direct: map[string]bool{}, component: map[string]int{}}
	for _, id := range c.machineIDs() {
		if c.noted[id] || !sameEnd(c.sides[0].machine(id), c.sides[1].machine(id)) {
			a.direct[id] = true
		}
	}
	c.affectedByAddresses(a.direct)
	c.affectedByRouters(a.component)
	return a
}

// sameEnd reports whether two ends send and receive alike, but for what the world has about them.
func sameEnd(a, b *reach.End) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.HostID == b.HostID && a.NetworkID == b.NetworkID && a.MAC == b.MAC && slices.Equal(a.Addresses, b.Addresses) && slices.Equal(a.Routes, b.Routes)
}

// affectedByAddresses adds the machines whose addresses outside differ, or whose groups ask for
// addresses of address groups that differ.
func (c *comparison) affectedByAddresses(direct map[string]bool) {
	before, after := c.sides[0].snap, c.sides[1].snap
	differing(schema.FloatingIPs, before, after, func(f *neutron.FloatingIP) { direct[f.PortID] = true })
	differing(schema.PortForwardings, before, after, func(f *neutron.PortForwarding) { direct[f.InternalPortID] = true })
	differing(schema.AddressBlocks, before, after, func(b *neutron.AddressBlock) {
		for _, s := range c.sides {
			for g := range schema.SecurityGroups.By(s.snap, "remote_address_group", b.GroupID) {
				for p := range schema.Ports.By(s.snap, "security_group", g.ID) {
					direct[p.ID] = true
				}
			}
		}
	})
}

// differing calls note for the records that two snapshots have otherwise. Those that have not
// changed are shared.
func differing[T any](t *records.Table[T], before, after *records.Snap, note func(*T)) {
	for _, way := range [][2]*records.Snap{{before, after}, {after, before}} {
		for r := range t.All(way[0]) {
			if other, ok := t.Peek(way[1], t.ID(r)); !ok || other != r {
				note(r)
			}
		}
	}
}

// affectedByRouters adds the machines on networks that are connected by routers which the
// difference affects, directly or by others.
func (c *comparison) affectedByRouters(component map[string]int) {
	networks := map[string]string{} // to another of its component, or itself
	var find func(id string) string
	find = func(id string) string {
		if up := networks[id]; up != "" && up != id {
			networks[id] = find(up)
			return networks[id]
		}
		return id
	}
	var touched []string // networks of routers that are affected
	for _, s := range c.sides {
		first := map[string]string{} // network of each router
		for x := range schema.RouterPorts.All(s.snap) {
			p, ok := schema.Ports.Peek(s.snap, x.PortID)
			if !ok {
				continue
			}
			if first[x.RouterID] == "" {
				first[x.RouterID] = p.NetworkID
			}
			if a, b := find(p.NetworkID), find(first[x.RouterID]); a != b {
				networks[a] = b
			}
			if c.noted[x.RouterID] || c.noted[x.PortID] {
				touched = append(touched, p.NetworkID)
			}
		}
	}
	number := map[string]int{}
	for _, n := range touched {
		if root := find(n); number[root] == 0 {
			number[root] = len(number) + 1
		}
	}
	for _, s := range c.sides {
		for id, p := range maps.All(s.roster.machines) {
			if n := number[find(p.NetworkID)]; n != 0 {
				component[id] = n
			}
		}
	}
}
