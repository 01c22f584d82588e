package xapi

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

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

// notOurBond is the error for bonds of a real host's interfaces, which may carry its own traffic:
// they are made on the host.
const notOurBond = "the pool does not bond a machine's own interfaces: make or change the bond on the host itself, the pool finds it"

// checkBond returns the members of a bond, and fails if they may not be bonded.
func (p *pool) checkBond(network *objects.Object, members []string, mac string) []*objects.Object {
	own := p.own()
	pifs := make([]*objects.Object, len(members))
	for i, ref := range members {
		pifs[i] = p.get("PIF", ref)
	}
	switch {
	case len(slices.Compact(slices.Sorted(slices.Values(members)))) < 2:
		p.fail(model.PIFBondNeedsMoreMembers())
		return pifs
	case mac != "" && !validMAC(mac):
		p.fail(model.MACInvalid(mac))
	}
	host := pifs[0].Text("host")
	p.alive(host)
	p.connectable(host, network)
	for _, pif := range pifs {
		switch {
		case isSlave(pif) || bondOf(p, pif.Ref) != nil:
			p.fail(model.PIFAlreadyBonded(pif.Ref))
		case pif.Int("VLAN") >= 0:
			p.fail(model.PIFVLANStillExists(pif.Ref))
		case tunnelOf(p, pif.Ref) != nil:
			p.fail(model.IsTunnelAccessPIF(pif.Ref))
		case pif.Text("host") != host:
			p.fail(model.PIFCannotBondCrossHost())
		case own.Bool("ha_enabled") && pif.Bool("management"):
			p.fail(model.HAIsEnabled())
		case !pif.Bool("managed"):
			p.fail(model.PIFUnmanaged(pif.Ref))
		}
	}
	p.able(host, objects.Imagined, notOurBond)
	return pifs
}

// primaryOf returns the member whose place in the host the bond takes: that of the management, else
// the first that has an address, else the first.
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

// noIP returns the configuration of a PIF when another has taken it over.
func noIP() model.Record { return givenBy(model.New("PIF"), ipFields...) }

// bondCreate bonds interfaces: the bond's master takes over the primary member's IP configuration,
// and what is on members moves to it, tunnels by being replaced (spec 7.8).
func bondCreate(c *call) (any, error) {
	var made string
	err := c.change(func(p *pool) {
		network := p.get("network", c.text("network"))
		members := p.checkBond(network, c.texts("members"), c.text("MAC"))
		if p.err != nil {
			return
		}
		primary := primaryOf(members)
		host := primary.Text("host")
		fields := givenBy(primary.Fields, ipFields...)
		maps.Copy(fields, model.Record{"device": p.freeDevice(host, "bond"), "network": network.Ref, "host": host, "MAC": cmp.Or(c.text("MAC"), primary.Text("MAC")),
			"MTU": network.Int("MTU"), "currently_attached": true, "properties": map[string]string{"gro": "on"}})
		metrics := newObject("PIF_metrics", model.Record{"carrier": true, "last_updated": c.server.time()})
		fields["metrics"] = metrics.Ref
		master := newObject("PIF", fields)
		bond := newObject("Bond", model.Record{"master": master.Ref, "primary_slave": primary.Ref, "mode": c.text("mode"), "properties": c.pairs("properties"), "links_up": int64(len(members))})
		made = bond.Ref
		p.uses(append(refsOf(members), network.Ref, host)...)
		p.put(metrics, master, bond)
		for _, m := range members {
			slave := noIP()
			maps.Copy(slave, model.Record{"bond_slave_of": bond.Ref, "currently_attached": true})
			p.edit(m, slave)
			p.moveLoad(m, master)
		}
	})
	return made, err
}

// bondDestroy gives the members back what the bond's master had: the primary member gets it all.
func bondDestroy(c *call) (any, error) {
	return nil, c.change(func(p *pool) {
		bond, master := c.ownBond(p)
		if p.own().Bool("ha_enabled") && master.Bool("currently_attached") {
			p.fail(model.HAIsEnabled())
		}
		p.alone(master.Ref, bond.Ref)
		for _, m := range by(p, "PIF", "bond_slave_of", bond.Ref) {
			fields := model.Record{"bond_slave_of": model.NullRef}
			if m.Ref == bond.Text("primary_slave") {
				maps.Copy(fields, givenBy(master.Fields, ipFields...))
			}
			p.edit(m, fields)
		}
		p.moveLoad(master, p.get("PIF", bond.Text("primary_slave")))
		p.remove("Bond", bond.Ref)
		p.removePIF(master)
	})
}

// moveLoad moves VLANs, tunnels, and the VIFs of the host's VMs from a PIF to another one.
func (p *pool) moveLoad(from, to *objects.Object) {
	p.uses(to.Ref)
	for _, vlan := range by(p, "VLAN", "tagged_PIF", from.Ref) {
		p.moveVLAN(vlan, to)
	}
	for _, t := range by(p, "tunnel", "transport_PIF", from.Ref) {
		p.moveTunnel(t, to)
	}
	for _, vif := range by(p, "VIF", "network", from.Text("network")) {
		if p.get("VM", vif.Text("VM")).Text("resident_on") == from.Text("host") {
			p.edit(vif, model.Record{"network": to.Text("network")})
		}
	}
}

// moveVLAN puts a VLAN on another PIF; its own PIF stays, with the other device's name.
func (p *pool) moveVLAN(vlan, to *objects.Object) {
	pif := p.get("PIF", vlan.Text("untagged_PIF"))
	for _, other := range by(p, "VLAN", "tagged_PIF", to.Ref) {
		if other.Int("tag") == vlan.Int("tag") {
			p.fail(model.OperationNotAllowed(fmt.Sprintf("two of the members have a VLAN %d: destroy one of them", vlan.Int("tag"))))
		}
	}
	p.edit(vlan, model.Record{"tagged_PIF": to.Ref})
	p.edit(pif, model.Record{"device": to.Text("device"), "metrics": to.Text("metrics")})
}

// moveTunnel replaces a tunnel by one on another transport, plugged when the old one was.
func (p *pool) moveTunnel(old, transport *objects.Object) {
	gone := p.get("PIF", old.Text("access_PIF"))
	network := p.get("network", gone.Text("network"))
	p.removeTunnel(old)
	tunnel, access := p.newTunnel(tunnelSite{transport, network}, old.Text("protocol"), randomMAC())
	tunnel.Fields["other_config"] = old.Fields["other_config"]
	maps.Copy(access.Fields, givenBy(gone.Fields, "other_config", "disallow_unplug", "currently_attached", "MTU"))
	p.putTunnel(tunnel, access)
}

// ownBond returns the bond that the call is about, with its master. It fails if the bond is a real
// host's: the pool does not change those.
func (c *call) ownBond(p *pool) (bond, master *objects.Object) {
	bond = p.get("Bond", c.text("self"))
	master = p.get("PIF", bond.Text("master"))
	p.able(master.Text("host"), objects.Imagined, notOurBond)
	return bond, master
}

func bondSetMode(c *call) (any, error) {
	return nil, c.change(func(p *pool) {
		bond, _ := c.ownBond(p)
		p.edit(bond, model.Record{"mode": c.text("value")})
	})
}

func bondSetProperty(c *call) (any, error) {
	return nil, c.change(func(p *pool) {
		bond, _ := c.ownBond(p)
		p.edit(bond, model.Record{"properties": with(bond.Map("properties"), c.text("name"), c.text("value"))})
	})
}
