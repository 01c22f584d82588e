package vtep

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"heddle/internal/ovsdb"
	"heddle/internal/topology/packet"
)

// prefix begins the names of our logical switches, followed by the network's id.
const prefix = "heddle-"

// unknownDst is the MAC of the rows that say where frames to many and to unknown addresses go.
const unknownDst = "unknown-dst"

const (
	vxlan      = "vxlan_over_ipv4"
	sourceNode = "source_node" // who sends replicates: no service node does
)

// segment is one network of a device, as the switch should know it.
type segment struct {
	networkID string
	portID    string // router's port, which has the VNI
	behindID  string // network's port to the router
	vni       uint32
	locator   netip.Addr // our tunnel address
	// macs are the network's own addresses, with the IP address of each or an invalid one.
	macs map[packet.MAC]netip.Addr
	// bindings are VLANs by names of the switch's ports; 0 is frames without a tag.
	bindings map[string][]int
}

func (s *segment) name() string { return prefix + s.networkID }

// edit collects the operations of one transaction after which the switch has the segments, and no
// others of ours.
type edit struct {
	now      *tables
	ops      []ovsdb.Op
	names    int
	locators map[netip.Addr]any // of ours: UUID or Named
	sets     map[netip.Addr]any
	faults   []string // what could not be done, in words
}

// plan returns the operations, and what they leave undone, in words.
func plan(now *tables, segments []segment) (ops []ovsdb.Op, faults []string) {
	e := &edit{now: now, locators: map[netip.Addr]any{}, sets: map[netip.Addr]any{}}
	ours := map[string]ovsdb.UUID{}
	for id, l := range now.logical {
		if strings.HasPrefix(l.name, prefix) {
			ours[l.name] = id
		}
	}
	rows := e.rowsBySwitch()
	for i := range segments {
		s := &segments[i]
		e.ensure(s, ours[s.name()], rows[ours[s.name()]])
		delete(ours, s.name())
	}
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		e.remove(name, ours[name])
	}
	return e.ops, e.faults
}

// remoteRows are the rows of the tables that we write, of one logical switch.
type remoteRows struct{ ucast, mcast []ovsdb.UUID }

func (e *edit) rowsBySwitch() map[ovsdb.UUID]remoteRows {
	all := map[ovsdb.UUID]remoteRows{}
	for _, id := range sorted(e.now.ucastRemote) {
		r := all[e.now.ucastRemote[id].logical]
		r.ucast = append(r.ucast, id)
		all[e.now.ucastRemote[id].logical] = r
	}
	for _, id := range sorted(e.now.mcastRemote) {
		r := all[e.now.mcastRemote[id].logical]
		r.mcast = append(r.mcast, id)
		all[e.now.mcastRemote[id].logical] = r
	}
	return all
}

func (e *edit) add(op ovsdb.Op) { e.ops = append(e.ops, op) }

func (e *edit) name() ovsdb.Named {
	e.names++
	return ovsdb.Named(fmt.Sprintf("row%d", e.names))
}

// ensure makes a segment's logical switch and its rows, or changes what differs.
func (e *edit) ensure(s *segment, id ovsdb.UUID, have remoteRows) {
	var logical any = id
	if id == "" {
		name := e.name()
		row := ovsdb.Row{"name": s.name(), "tunnel_key": int64(s.vni)}
		if e.replicates() {
			row["replication_mode"] = sourceNode
		}
		e.add(ovsdb.Insert("Logical_Switch", name, row))
		logical = name
	} else {
		e.update(s, id)
	}
	e.ensureUcast(s, logical, have.ucast)
	e.ensureMcast(s, logical, have.mcast)
	for _, port := range slices.Sorted(maps.Keys(s.bindings)) {
		e.bind(s, logical, port)
	}
}

// replicates reports whether the switch has the column replication_mode.
func (e *edit) replicates() bool { return !e.now.Missing["Logical_Switch.replication_mode"] }

func (e *edit) update(s *segment, id ovsdb.UUID) {
	row := ovsdb.Row{}
	if l := e.now.logical[id]; l.tunnelKey != int64(s.vni) {
		row["tunnel_key"] = int64(s.vni)
	}
	if e.replicates() && e.now.logical[id].mode != sourceNode {
		row["replication_mode"] = sourceNode
	}
	if len(row) > 0 {
		e.add(ovsdb.Update("Logical_Switch", ovsdb.Is(id), row).Called(s.name()))
	}
}

// ensureUcast makes the rows of the network's MAC addresses, and deletes others.
func (e *edit) ensureUcast(s *segment, logical any, have []ovsdb.UUID) {
	missing := maps.Clone(s.macs)
	for _, id := range have {
		row := e.now.ucastRemote[id]
		mac, err := packet.ParseMAC(row.mac)
		ip, wanted := missing[mac]
		if err != nil || !wanted {
			e.add(ovsdb.Delete("Ucast_Macs_Remote", ovsdb.Is(id)).Called(row.mac))
			continue
		}
		delete(missing, mac)
		change := ovsdb.Row{}
		if !e.isOurs(row.to, s.locator) {
			change["locator"] = e.locator(s.locator)
		}
		if row.ip != text(ip) {
			change["ipaddr"] = text(ip)
		}
		if len(change) > 0 {
			e.add(ovsdb.Update("Ucast_Macs_Remote", ovsdb.Is(id), change).Called(row.mac))
		}
	}
	for _, mac := range slices.SortedFunc(maps.Keys(missing), compareMACs) {
		e.add(ovsdb.Insert("Ucast_Macs_Remote", "", ovsdb.Row{"MAC": mac.String(), "logical_switch": logical,
			"locator": e.locator(s.locator), "ipaddr": text(missing[mac])}).Called(mac.String()))
	}
}

// ensureMcast has frames to many and to unknown addresses go to us.
func (e *edit) ensureMcast(s *segment, logical any, have []ovsdb.UUID) {
	there := false
	for _, id := range have {
		row := e.now.mcastRemote[id]
		if row.mac == unknownDst && !there && e.isOurSet(row.to, s.locator) {
			there = true
			continue
		}
		e.add(ovsdb.Delete("Mcast_Macs_Remote", ovsdb.Is(id)).Called(row.mac))
	}
	if !there {
		e.add(ovsdb.Insert("Mcast_Macs_Remote", "", ovsdb.Row{"MAC": unknownDst, "logical_switch": logical,
			"locator_set": e.set(s.locator), "ipaddr": ""}).Called(unknownDst))
	}
}

// bind binds VLANs of a port to a segment. One that is bound to another switch stays so.
func (e *edit) bind(s *segment, logical any, name string) {
	found := false
	for _, id := range sorted(e.now.ports) {
		p := e.now.ports[id]
		if p.name != name {
			continue
		}
		found = true
		missing := ovsdb.Map{}
		for _, vlan := range s.bindings[name] {
			switch bound, is := p.bindings[int64(vlan)]; {
			case !is:
				missing[int64(vlan)] = logical
			case any(bound) == logical:
			case strings.HasPrefix(e.switchName(bound), prefix): // of a connection that has gone, or has another VLAN now
				e.add(ovsdb.Mutate("Physical_Port", ovsdb.Is(id), ovsdb.Mutation{"vlan_bindings", "delete", ovsdb.Set{int64(vlan)}}).Called(name))
				missing[int64(vlan)] = logical
			default:
				e.faults = append(e.faults, fmt.Sprintf("port %s: VLAN %d is bound to logical switch %s already: unbind it there", name, vlan, e.switchName(bound)))
			}
		}
		if len(missing) > 0 {
			e.add(ovsdb.Mutate("Physical_Port", ovsdb.Is(id), ovsdb.Mutation{"vlan_bindings", "insert", missing}).Called(name))
		}
	}
	if !found {
		e.faults = append(e.faults, fmt.Sprintf("the switch has no port %s: correct the gateway's interfaces, or add the port", name))
	}
}

func (e *edit) switchName(id ovsdb.UUID) string {
	if l := e.now.logical[id]; l != nil {
		return l.name
	}
	return string(id)
}

// remove deletes a logical switch of ours with all that refers to it, which the database demands.
func (e *edit) remove(name string, id ovsdb.UUID) {
	for _, port := range sorted(e.now.ports) {
		p, bound := e.now.ports[port], ovsdb.Set{}
		for _, vlan := range slices.Sorted(maps.Keys(p.bindings)) {
			if p.bindings[vlan] == id {
				bound = append(bound, vlan)
			}
		}
		if len(bound) > 0 {
			e.add(ovsdb.Mutate("Physical_Port", ovsdb.Is(port), ovsdb.Mutation{"vlan_bindings", "delete", bound}).Called(p.name))
		}
	}
	for _, table := range []string{"Ucast_Macs_Local", "Ucast_Macs_Remote", "Mcast_Macs_Local", "Mcast_Macs_Remote"} {
		e.add(ovsdb.Delete(table, []ovsdb.Condition{{"logical_switch", "==", id}}).Called("of " + name))
	}
	e.add(ovsdb.Delete("Logical_Switch", ovsdb.Is(id)).Called(name))
}

// locator returns the row of an address, made in this transaction if there is none.
func (e *edit) locator(ip netip.Addr) any {
	if l, ok := e.locators[ip]; ok {
		return l
	}
	for _, id := range sorted(e.now.locators) {
		if e.isOurs(id, ip) {
			e.locators[ip] = id
			return id
		}
	}
	name := e.name()
	e.add(ovsdb.Insert("Physical_Locator", name, ovsdb.Row{"encapsulation_type": vxlan, "dst_ip": ip.String()}).Called(ip.String()))
	e.locators[ip] = name
	return name
}

// set returns the row of the set of one address.
func (e *edit) set(ip netip.Addr) any {
	if s, ok := e.sets[ip]; ok {
		return s
	}
	for _, id := range sorted(e.now.sets) {
		if e.isOurSet(id, ip) {
			e.sets[ip] = id
			return id
		}
	}
	name, to := e.name(), e.locator(ip)
	e.add(ovsdb.Insert("Physical_Locator_Set", name, ovsdb.Row{"locators": to}).Called(ip.String()))
	e.sets[ip] = name
	return name
}

// isOurs reports whether a locator is that of an address, whatever VNI frames have.
func (e *edit) isOurs(id ovsdb.UUID, ip netip.Addr) bool {
	l := e.now.locators[id]
	return l != nil && l.encapsulation == vxlan && l.dst == ip.String() && l.tunnelKey < 0
}

func (e *edit) isOurSet(id ovsdb.UUID, ip netip.Addr) bool {
	s := e.now.sets[id]
	return s != nil && len(s.locators) == 1 && e.isOurs(s.locators[0], ip)
}

// text writes an address as the database has it: "" for none.
func text(ip netip.Addr) string {
	if !ip.IsValid() {
		return ""
	}
	return ip.String()
}

func compareMACs(a, b packet.MAC) int { return cmp.Compare(a.String(), b.String()) }
