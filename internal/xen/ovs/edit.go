package ovs

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"heddle/internal/ovsdb"
)

// ErrForeign is wrapped in the errors of an [Edit] that has to change a row without its mark.
var ErrForeign = errors.New("it belongs to another program")

// flushVLAN is no VLAN that frames can have (802.1Q reserves it), so that putting it among a
// bridge's flood_vlans or taking it away changes nothing but that the switch forgets what it has
// learnt.
const flushVLAN = 4095

// Mark identifies our own rows: a key of external_ids with its value.
type Mark struct{ Key, Value string }

// On reports whether a row with these external_ids bears the mark.
func (m Mark) On(externalIDs map[string]string) bool { return externalIDs[m.Key] == m.Value }

// with is external_ids with the mark among them.
func (m Mark) with(ids map[string]string) map[string]string {
	all := maps.Clone(ids)
	if all == nil {
		all = map[string]string{}
	}
	all[m.Key] = m.Value
	return all
}

// Edit collects the operations of one transaction that make a database as it is wanted: what is so
// already costs none. It rests on a snapshot; when another writer was quicker, the transaction
// fails with nothing changed, or finds the work done. All that it makes bears its mark, and it
// neither changes nor deletes bridges, ports and other rows without.
type Edit struct {
	snap    *Snapshot
	mark    Mark
	ops     []ovsdb.Op
	names   int
	bridges map[string]ovsdb.Named // bridges made here, by name
	ports   map[string]bool        // ports made here
	sure    map[ovsdb.UUID]bool    // bridges that the transaction makes sure of
	gone    map[ovsdb.UUID]bool    // bridges and ports deleted here
	flushed map[ovsdb.UUID]bool
}

// NewEdit begins with nothing to do.
func NewEdit(snap *Snapshot, mark Mark) *Edit {
	return &Edit{snap: snap, mark: mark, bridges: map[string]ovsdb.Named{}, ports: map[string]bool{}, sure: map[ovsdb.UUID]bool{}, gone: map[ovsdb.UUID]bool{}, flushed: map[ovsdb.UUID]bool{}}
}

// Ops are the operations so far; none when all is as it should be.
func (e *Edit) Ops() []ovsdb.Op { return e.ops }

func (e *Edit) add(op ovsdb.Op) { e.ops = append(e.ops, op) }

// name is one for a row that the transaction makes.
func (e *Edit) name() ovsdb.Named {
	e.names++
	return ovsdb.Named(fmt.Sprintf("row%d", e.names))
}

// BridgeSpec is a bridge as it is wanted.
type BridgeSpec struct {
	Name         string
	DatapathType string            // "" = system, the kernel's
	FailMode     string            // standalone or secure; "" leaves it as it is
	MAC          string            // other_config:hwaddr; "" leaves it to the switch
	MTU          int               // of its internal device, bytes; 0 leaves it to the switch
	ExternalIDs  map[string]string // beside the mark and those that others have put there
	OtherConfig  map[string]string // beside hwaddr and those that others have put there
}

// EnsureBridge makes the bridge, with its internal port, or sets what differs.
func (e *Edit) EnsureBridge(spec BridgeSpec) error {
	other := maps.Clone(spec.OtherConfig)
	if spec.MAC != "" {
		if other == nil {
			other = map[string]string{}
		}
		other["hwaddr"] = spec.MAC
	}
	if _, ok := e.bridges[spec.Name]; ok {
		return fmt.Errorf("bridge %s: it is wanted twice", spec.Name)
	}
	b := e.snap.Bridge(spec.Name)
	if b == nil || e.gone[b.UUID] {
		e.insertBridge(spec, other)
		return nil
	}
	if !e.mark.On(b.ExternalIDs) {
		return fmt.Errorf("bridge %s: %w", b.Name, ErrForeign)
	}
	before := len(e.ops)
	row := ovsdb.Row{}
	if b.DatapathType != spec.DatapathType {
		row["datapath_type"] = spec.DatapathType
	}
	if spec.FailMode != "" && b.FailMode != spec.FailMode {
		row["fail_mode"] = spec.FailMode
	}
	e.update("Bridge", b.UUID, b.Name, row)
	e.merge("Bridge", b.UUID, b.Name, "external_ids", b.ExternalIDs, spec.ExternalIDs)
	e.merge("Bridge", b.UUID, b.Name, "other_config", b.OtherConfig, other)
	if i := e.snap.Interface(spec.Name); i != nil && spec.MTU > 0 && i.MTURequest != int64(spec.MTU) {
		e.update("Interface", i.UUID, i.Name, ovsdb.Row{"mtu_request": spec.MTU})
	}
	if len(e.ops) > before {
		e.makeSure(b)
	}
	return nil
}

func (e *Edit) insertBridge(spec BridgeSpec, other map[string]string) {
	bridge, port, iface := e.name(), e.name(), e.name()
	device := ovsdb.Row{"name": spec.Name, "type": "internal"}
	if spec.MTU > 0 {
		device["mtu_request"] = spec.MTU
	}
	row := ovsdb.Row{"name": spec.Name, "datapath_type": spec.DatapathType, "ports": port,
		"external_ids": ovsdb.Strings(e.mark.with(spec.ExternalIDs)), "other_config": ovsdb.Strings(other)}
	if spec.FailMode != "" {
		row["fail_mode"] = spec.FailMode
	}
	e.add(ovsdb.Insert("Interface", iface, device))
	e.add(ovsdb.Insert("Port", port, ovsdb.Row{"name": spec.Name, "interfaces": iface, "external_ids": ovsdb.Strings(e.mark.with(nil))}))
	e.add(ovsdb.Insert("Bridge", bridge, row))
	e.add(ovsdb.Mutate(Database, nil, ovsdb.Mutation{"bridges", "insert", bridge}).Called("for bridge " + spec.Name))
	e.bridges[spec.Name] = bridge
}

// DeleteBridge removes the bridge with all its ports, if it is there.
func (e *Edit) DeleteBridge(name string) error {
	b := e.snap.Bridge(name)
	if b == nil || e.gone[b.UUID] {
		return nil
	}
	if !e.mark.On(b.ExternalIDs) {
		return fmt.Errorf("bridge %s: %w", name, ErrForeign)
	}
	e.gone[b.UUID] = true
	for _, p := range b.Ports {
		e.gone[p] = true
	}
	e.add(ovsdb.Mutate(Database, nil, ovsdb.Mutation{"bridges", "delete", b.UUID}).Called("for bridge " + name))
	return nil
}

// PortSpec is a port with its one interface, of the same name, as it is wanted.
type PortSpec struct {
	Name         string            // at most 15 characters
	Type         string            // of the interface: "" = a device of the kernel, internal, gre, vxlan, …
	Options      map[string]string // of the interface
	BFD          map[string]string // of the interface; nil leaves BFD off
	ExternalIDs  map[string]string // of the port, beside the mark
	InterfaceIDs map[string]string // external_ids of the interface
	Tag          int64             // VLAN; 0 = none
	Protected    bool              // passes no frames to other protected ports
}

// EnsurePort puts the port on the bridge, which need not bear the mark, or sets what differs. A
// port of that name on another bridge moves.
func (e *Edit) EnsurePort(bridge string, spec PortSpec) error {
	if e.ports[spec.Name] {
		return fmt.Errorf("port %s: it is wanted twice", spec.Name)
	}
	var on any // the bridge
	b := e.snap.Bridge(bridge)
	if made, ok := e.bridges[bridge]; ok {
		on, b = made, nil
	} else if b == nil || e.gone[b.UUID] {
		return fmt.Errorf("port %s: there is no bridge %s", spec.Name, bridge)
	} else {
		on = b.UUID
	}
	p := e.snap.Port(spec.Name)
	if p != nil && !e.gone[p.UUID] {
		if !e.mark.On(p.ExternalIDs) {
			return fmt.Errorf("port %s: %w", spec.Name, ErrForeign)
		}
		i := e.snap.InterfaceOf(p)
		if b != nil && e.snap.BridgeOf(p.UUID) == b && i != nil {
			e.updatePort(p, i, spec)
			return nil
		}
		e.removePort(p)
	}
	if b != nil {
		e.makeSure(b)
	}
	e.insertPort(bridge, on, spec)
	return nil
}

// makeSure has the transaction fail when the bridge is gone: ports put on it would vanish.
func (e *Edit) makeSure(b *Bridge) {
	if !e.sure[b.UUID] {
		e.sure[b.UUID] = true
		e.add(ovsdb.Wait("Bridge", ovsdb.Is(b.UUID), "==", 0, []string{"name"}, ovsdb.Row{"name": b.Name}).Called("until there is " + b.Name))
	}
}

func (e *Edit) insertPort(bridge string, on any, spec PortSpec) {
	port, iface := e.name(), e.name()
	row := ovsdb.Row{"name": spec.Name, "interfaces": iface, "external_ids": ovsdb.Strings(e.mark.with(spec.ExternalIDs))}
	if spec.Tag > 0 {
		row["tag"] = spec.Tag
	}
	if spec.Protected {
		row["protected"] = true
	}
	e.add(ovsdb.Insert("Interface", iface, ovsdb.Row{"name": spec.Name, "type": spec.Type, "options": ovsdb.Strings(spec.Options),
		"bfd": ovsdb.Strings(spec.BFD), "external_ids": ovsdb.Strings(spec.InterfaceIDs)}))
	e.add(ovsdb.Insert("Port", port, row))
	e.add(ovsdb.Mutate("Bridge", ovsdb.Is(on), ovsdb.Mutation{"ports", "insert", port}).Called(bridge + " for port " + spec.Name))
	e.ports[spec.Name] = true
}

// updatePort sets what differs of a port of ours: all of it is as in the spec then.
func (e *Edit) updatePort(p *Port, i *Interface, spec PortSpec) {
	row := ovsdb.Row{}
	if ids := e.mark.with(spec.ExternalIDs); !maps.Equal(p.ExternalIDs, ids) {
		row["external_ids"] = ovsdb.Strings(ids)
	}
	if p.Protected != spec.Protected {
		row["protected"] = spec.Protected
	}
	switch {
	case spec.Tag > 0 && p.Tag != spec.Tag:
		row["tag"] = spec.Tag
	case spec.Tag == 0 && p.Tag >= 0:
		row["tag"] = ovsdb.Set{}
	}
	e.update("Port", p.UUID, p.Name, row)
	row = ovsdb.Row{}
	if i.Type != spec.Type {
		row["type"] = spec.Type
	}
	if !maps.Equal(i.Options, spec.Options) {
		row["options"] = ovsdb.Strings(spec.Options)
	}
	if !maps.Equal(i.BFD, spec.BFD) {
		row["bfd"] = ovsdb.Strings(spec.BFD)
	}
	if !maps.Equal(i.ExternalIDs, spec.InterfaceIDs) {
		row["external_ids"] = ovsdb.Strings(spec.InterfaceIDs)
	}
	e.update("Interface", i.UUID, i.Name, row)
}

// DeletePort removes the port, from whatever bridge it is on, if it is there.
func (e *Edit) DeletePort(name string) error {
	p := e.snap.Port(name)
	if p == nil || e.gone[p.UUID] {
		return nil
	}
	if !e.mark.On(p.ExternalIDs) {
		return fmt.Errorf("port %s: %w", name, ErrForeign)
	}
	e.removePort(p)
	return nil
}

func (e *Edit) removePort(p *Port) {
	e.gone[p.UUID] = true
	if b := e.snap.BridgeOf(p.UUID); b != nil {
		e.add(ovsdb.Mutate("Bridge", ovsdb.Is(b.UUID), ovsdb.Mutation{"ports", "delete", p.UUID}).Called(b.Name + " for port " + p.Name))
	}
}

// FlushMACs flushes the MAC table of the bridge, also of one made by others, in the same
// moment in which the rest of the transaction takes effect: each change of flood_vlans empties the
// table, so every other flush puts the unused VLAN 4095 there and the next takes it away. Deleting
// a port forgets only what was learnt behind it.
//
// Flush with the change, and again some 500 ms later: a switch counts the frames of known flows up
// to that long after they passed, and learns from them only then.
func (e *Edit) FlushMACs(bridge string) {
	b := e.snap.Bridge(bridge)
	if b == nil || e.gone[b.UUID] || e.flushed[b.UUID] {
		return
	}
	e.flushed[b.UUID] = true
	mutator := "insert"
	if slices.Contains(b.FloodVLANs, flushVLAN) {
		mutator = "delete"
	}
	e.add(ovsdb.Mutate("Bridge", ovsdb.Is(b.UUID), ovsdb.Mutation{"flood_vlans", mutator, flushVLAN}).Called(bridge))
}

// EnsureManager has the database listen, or call, where target says, such as pssl:6640:192.0.2.1.
// An existing one is kept, even if another program made it.
func (e *Edit) EnsureManager(target string) {
	for _, m := range e.snap.Managers {
		if m.Target == target && !e.gone[m.UUID] {
			return
		}
	}
	manager := e.name()
	e.add(ovsdb.Insert("Manager", manager, ovsdb.Row{"target": target, "external_ids": ovsdb.Strings(e.mark.with(nil))}).Called(target))
	e.add(ovsdb.Mutate(Database, nil, ovsdb.Mutation{"manager_options", "insert", manager}).Called("for manager " + target))
}

// KeepManagers removes those with our mark that are not in targets.
func (e *Edit) KeepManagers(targets ...string) {
	for _, id := range slices.Sorted(maps.Keys(e.snap.Managers)) {
		m := e.snap.Managers[id]
		if e.mark.On(m.ExternalIDs) && !slices.Contains(targets, m.Target) && !e.gone[id] {
			e.gone[id] = true
			e.add(ovsdb.Mutate(Database, nil, ovsdb.Mutation{"manager_options", "delete", id}).Called("for manager " + m.Target))
		}
	}
}

// EnsureSSL gives the database its certificate: names of files that its server can read.
func (e *Edit) EnsureSSL(privateKey, certificate, caCert string) error {
	row := ovsdb.Row{"private_key": privateKey, "certificate": certificate, "ca_cert": caCert}
	var have *SSL
	if e.snap.Root != nil {
		have = e.snap.SSLs[e.snap.Root.SSL]
	}
	switch {
	case have == nil:
		ssl := e.name()
		row["external_ids"] = ovsdb.Strings(e.mark.with(nil))
		e.add(ovsdb.Insert("SSL", ssl, row))
		e.add(ovsdb.Update(Database, nil, ovsdb.Row{"ssl": ssl}))
	case have.PrivateKey == privateKey && have.Certificate == certificate && have.CACert == caCert:
	case !e.mark.On(have.ExternalIDs):
		return fmt.Errorf("certificate %s of the database: %w", have.Certificate, ErrForeign)
	default:
		e.update("SSL", have.UUID, certificate, row)
	}
	return nil
}

// update sets columns of a row, if there are any to set.
func (e *Edit) update(table string, id ovsdb.UUID, name string, row ovsdb.Row) {
	if len(row) > 0 {
		e.add(ovsdb.Update(table, ovsdb.Is(id), row).Called(name))
	}
}

// merge sets keys of a map that others have keys in too.
func (e *Edit) merge(table string, id ovsdb.UUID, name, column string, have, want map[string]string) {
	missing, other := ovsdb.Strings{}, ovsdb.Set{}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if v, ok := have[k]; !ok || v != want[k] {
			missing[k] = want[k]
			if ok {
				other = append(other, k)
			}
		}
	}
	if len(missing) == 0 {
		return
	}
	var mutations []ovsdb.Mutation
	if len(other) > 0 { // insert does not replace
		mutations = append(mutations, ovsdb.Mutation{column, "delete", other})
	}
	e.add(ovsdb.Mutate(table, ovsdb.Is(id), append(mutations, ovsdb.Mutation{column, "insert", missing})...).Called(name))
}
