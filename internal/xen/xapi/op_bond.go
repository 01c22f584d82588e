package xapi

import (
	"fmt"
	"maps"
	"slices"

	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

func bondMessages() map[string]handler {
	return map[string]handler{
		"Bond.create":       bondCreate,
		"Bond.destroy":      bondDestroy,
		"Bond.set_mode":     bondSetMode,
		"Bond.set_property": bondSetProperty,
	}
}

// notOurBond is why bonds of a real host's interfaces are made on the host: they may carry its own traffic.
const notOurBond = "the pool does not bond a machine's own interfaces: make or change the bond on the host itself, the pool finds it"

// checkBond says whether the members may be bonded.
func checkBond(r records.Reader, network *objects.Object, members []string, mac string) ([]*objects.Object, error) {
	pool, err := thePool(r)
	if err != nil {
		return nil, err
	}
	pifs := make([]*objects.Object, len(members))
	for i, ref := range members {
		if pifs[i], err = object(r, "PIF", ref); err != nil {
			return nil, err
		}
	}
	switch {
	case len(slices.Compact(slices.Sorted(slices.Values(members)))) < 2:
		return nil, model.PIFBondNeedsMoreMembers()
	case mac != "" && !validMAC(mac):
		return nil, model.MACInvalid(mac)
	}
	host := pifs[0].Text("host")
	if _, err := alive(r, host); err != nil {
		return nil, err
	}
	if err := connectable(r, host, network); err != nil {
		return nil, err
	}
	for _, pif := range pifs {
		switch {
		case isSlave(pif) || first(r, "Bond", "master", pif.Ref) != nil:
			return nil, model.PIFAlreadyBonded(pif.Ref)
		case pif.Int("VLAN") >= 0:
			return nil, model.PIFVLANStillExists(pif.Ref)
		case tunnelOf(r, pif.Ref) != nil:
			return nil, model.IsTunnelAccessPIF(pif.Ref)
		case pif.Text("host") != host:
			return nil, model.PIFCannotBondCrossHost()
		case pool.Bool("ha_enabled") && pif.Bool("management"):
			return nil, model.HAIsEnabled()
		case !pif.Bool("managed"):
			return nil, model.PIFUnmanaged(pif.Ref)
		}
	}
	return pifs, able(r, host, objects.Imagined, notOurBond)
}

// primaryOf is the member whose place in the host the bond takes: that of the management, else the first that has an
// address, else the first.
func primaryOf(members []*objects.Object) *objects.Object {
	for _, has := range []func(*objects.Object) bool{func(p *objects.Object) bool { return p.Bool("management") }, configured} {
		if i := slices.IndexFunc(members, has); i >= 0 {
			return members[i]
		}
	}
	return members[0]
}

// ipFields are those that make the IP configuration of a PIF.
var ipFields = []string{"ip_configuration_mode", "IP", "netmask", "gateway", "DNS", "ipv6_configuration_mode", "IPv6", "ipv6_gateway", "primary_address_type", "management", "disallow_unplug"}

// noIP is a PIF's configuration when another has taken it over.
func noIP() model.Record {
	blank := model.New("PIF")
	return givenBy(blank, ipFields...)
}

// bondCreate bonds interfaces: the bond's master takes over the primary member's IP configuration, and what is on members
// moves to it, tunnels by being made anew (spec 7.8).
func bondCreate(c *call) (any, error) {
	var made string
	return made, c.update(func(tx *records.Tx) error {
		network, err := object(tx, "network", c.text("network"))
		if err != nil {
			return err
		}
		members, err := checkBond(tx, network, c.texts("members"), c.text("MAC"))
		if err != nil {
			return err
		}
		primary := primaryOf(members)
		mac := c.text("MAC")
		if mac == "" {
			mac = primary.Text("MAC")
		}
		fields := givenBy(primary.Fields, ipFields...)
		maps.Copy(fields, model.Record{"device": freeDevice(tx, primary.Text("host"), "bond"), "network": network.Ref, "host": primary.Text("host"), "MAC": mac, "MTU": network.Int("MTU"),
			"currently_attached": true, "properties": map[string]string{"gro": "on"}})
		master := newObject("PIF", fields)
		bond := newObject("Bond", model.Record{"master": master.Ref, "primary_slave": primary.Ref, "mode": c.text("mode"), "properties": c.pairs("properties"), "links_up": int64(len(members))})
		made = bond.Ref
		metrics := newObject("PIF_metrics", model.Record{"carrier": true, "last_updated": c.server.opts.Now().UTC().Truncate(1e9)})
		master.Fields["metrics"] = metrics.Ref
		for _, used := range append(refsOf(members), network.Ref, primary.Text("host")) {
			uses(tx, used)
		}
		for _, o := range []*objects.Object{metrics, master, bond} {
			if err := put(tx, o); err != nil {
				return err
			}
		}
		for _, m := range members {
			slave := noIP()
			maps.Copy(slave, model.Record{"bond_slave_of": bond.Ref, "currently_attached": true})
			if err := put(tx, edited(m, slave)); err != nil {
				return err
			}
			if err := moveLoad(tx, m, master); err != nil {
				return err
			}
		}
		return nil
	})
}

// bondDestroy gives the members back what the bond's master had: the primary member gets it all.
func bondDestroy(c *call) (any, error) {
	return nil, c.update(func(tx *records.Tx) error {
		bond, master, err := c.ownBond(tx)
		if err != nil {
			return err
		}
		pool, err := thePool(tx)
		if err != nil {
			return err
		}
		if pool.Bool("ha_enabled") && master.Bool("currently_attached") {
			return model.HAIsEnabled()
		}
		alone(tx, master.Ref)
		alone(tx, bond.Ref)
		for _, m := range by(tx, "PIF", "bond_slave_of", bond.Ref) {
			fields := model.Record{"bond_slave_of": model.NullRef}
			if m.Ref == bond.Text("primary_slave") {
				maps.Copy(fields, givenBy(master.Fields, ipFields...))
			}
			if err := put(tx, edited(m, fields)); err != nil {
				return err
			}
		}
		primary, err := object(tx, "PIF", bond.Text("primary_slave"))
		if err != nil {
			return err
		}
		if err := moveLoad(tx, master, primary); err != nil {
			return err
		}
		if err := remove(tx, "Bond", bond.Ref); err != nil {
			return err
		}
		return removePIF(tx, master)
	})
}

// moveLoad moves what is on a PIF to another one of its host: VLANs, tunnels, and the VIFs of the host's VMs.
func moveLoad(tx *records.Tx, from, to *objects.Object) error {
	uses(tx, to.Ref)
	for _, vlan := range by(tx, "VLAN", "tagged_PIF", from.Ref) {
		if err := moveVLAN(tx, vlan, to); err != nil {
			return err
		}
	}
	for _, t := range by(tx, "tunnel", "transport_PIF", from.Ref) {
		if err := moveTunnel(tx, t, to); err != nil {
			return err
		}
	}
	for _, vif := range by(tx, "VIF", "network", from.Text("network")) {
		vm, err := object(tx, "VM", vif.Text("VM"))
		if err != nil {
			return err
		}
		if vm.Text("resident_on") == from.Text("host") {
			if err := put(tx, edited(vif, model.Record{"network": to.Text("network")})); err != nil {
				return err
			}
		}
	}
	return nil
}

// moveVLAN puts a VLAN on another PIF; its own PIF stays, with the other device's name.
func moveVLAN(tx *records.Tx, vlan, to *objects.Object) error {
	pif, err := object(tx, "PIF", vlan.Text("untagged_PIF"))
	if err != nil {
		return err
	}
	for _, other := range by(tx, "VLAN", "tagged_PIF", to.Ref) {
		if other.Int("tag") == vlan.Int("tag") {
			return model.OperationNotAllowed(fmt.Sprintf("two of the members have a VLAN %d: destroy one of them", vlan.Int("tag")))
		}
	}
	if err := put(tx, edited(vlan, model.Record{"tagged_PIF": to.Ref})); err != nil {
		return err
	}
	return put(tx, edited(pif, model.Record{"device": to.Text("device"), "metrics": to.Text("metrics")}))
}

// moveTunnel makes a tunnel anew on another transport, plugged when the old one was.
func moveTunnel(tx *records.Tx, old, transport *objects.Object) error {
	gone, err := object(tx, "PIF", old.Text("access_PIF"))
	if err != nil {
		return err
	}
	network, err := object(tx, "network", gone.Text("network"))
	if err != nil {
		return err
	}
	if err := removeTunnel(tx, old); err != nil {
		return err
	}
	tunnel, access := newTunnel(tx, tunnelSite{transport, network}, old.Text("protocol"), randomMAC())
	tunnel.Fields["other_config"] = old.Fields["other_config"]
	access.Fields["other_config"] = gone.Fields["other_config"]
	access.Fields["disallow_unplug"] = gone.Fields["disallow_unplug"]
	access.Fields["currently_attached"] = gone.Fields["currently_attached"]
	access.Fields["MTU"] = gone.Fields["MTU"]
	return putTunnel(tx, tunnel, access)
}

// ownBond is the bond that the call is about, with its master, if the pool may change it: real hosts' bonds are their own.
func (c *call) ownBond(tx *records.Tx) (bond, master *objects.Object, err error) {
	if bond, err = object(tx, "Bond", c.text("self")); err != nil {
		return nil, nil, err
	}
	if master, err = object(tx, "PIF", bond.Text("master")); err != nil {
		return nil, nil, err
	}
	return bond, master, able(tx, master.Text("host"), objects.Imagined, notOurBond)
}

// editBond changes a bond that exists in a file alone.
func (c *call) editBond(change func(bond *objects.Object) model.Record) error {
	return c.update(func(tx *records.Tx) error {
		bond, _, err := c.ownBond(tx)
		if err != nil {
			return err
		}
		return put(tx, edited(bond, change(bond)))
	})
}

func bondSetMode(c *call) (any, error) {
	return nil, c.editBond(func(*objects.Object) model.Record { return model.Record{"mode": c.text("value")} })
}

func bondSetProperty(c *call) (any, error) {
	return nil, c.editBond(func(b *objects.Object) model.Record {
		return model.Record{"properties": with(b.Map("properties"), c.text("name"), c.text("value"))}
	})
}
