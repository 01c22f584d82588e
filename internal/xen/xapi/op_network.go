package xapi

import (
	"slices"
	"strings"

	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

func networkMessages() map[string]handler {
	return map[string]handler{
		"network.create":  networkCreate,
		"network.destroy": networkDestroy,
		"network.attach":  networkAttach,
		"network.set_default_locking_mode": func(c *call) (any, error) {
			return nil, c.edit("network", c.text("network"), model.Record{"default_locking_mode": c.text("value")})
		},
		"network.add_purpose": func(c *call) (any, error) {
			return nil, networkPurpose(c, func(all []string, one string) []string { return append(all, one) })
		},
		"network.remove_purpose": func(c *call) (any, error) {
			return nil, networkPurpose(c, func(all []string, one string) []string {
				return slices.DeleteFunc(all, func(p string) bool { return p == one })
			})
		},
	}
}

const (
	maxBridgeName = 15 // characters: the kernel's limit for an interface's name
	defaultMTU    = 1500
)

// reservedBridges begin names that the host keeps for interfaces of its own making.
var reservedBridges = []string{"xen", "xapi", "vif", "tap", "eth"}

// checkBridgeName fails if clients may not give a bridge this name.
func (p *pool) checkBridgeName(name string) {
	reserved := slices.ContainsFunc(reservedBridges, func(begin string) bool { return strings.HasPrefix(name, begin) })
	if len(name) > maxBridgeName || reserved || strings.ContainsAny(name, "/ \t\n\x00") || name == "." || name == ".." || isInterface(p, name) {
		p.fail(model.InvalidValue("bridge", name))
	}
	if first(p, "network", "bridge", name) != nil {
		p.fail(model.BridgeNameExists(name))
	}
}

// isInterface reports whether a host has an interface of that name, where no bridge could be made.
func isInterface(r records.Reader, name string) bool {
	for report := range objects.HostReports.All(r) {
		if slices.ContainsFunc(report.Interfaces, func(i objects.Interface) bool { return i.Device == name }) {
			return true
		}
	}
	return name == "lo"
}

// freeBridge returns a name that no network's bridge has.
func (p *pool) freeBridge() string {
	p.inTurn("bridges")
	taken := map[string]bool{}
	for n := range objects.Table("network").All(p) {
		taken[n.Text("bridge")] = true
	}
	return lowestFree("xapi", taken)
}

// givenBy returns those of the fields that are among args.
func givenBy(args model.Record, fields ...string) model.Record {
	r := model.Record{}
	for _, f := range fields {
		if v, ok := args[f]; ok {
			r[f] = v
		}
	}
	return r
}

func networkCreate(c *call) (any, error) {
	args := c.record("args")
	network := newObject("network", givenBy(args, "name_label", "name_description", "MTU", "other_config", "bridge", "managed", "tags"))
	if network.Int("MTU") <= 0 {
		network.Fields["MTU"] = int64(defaultMTU)
	}
	given := network.Text("bridge")
	return network.Ref, c.change(func(p *pool) {
		if given == "" {
			p.edit(network, model.Record{"bridge": p.freeBridge()})
		} else {
			p.checkBridgeName(given)
			p.put(network)
		}
	})
}

// networkDestroy removes a network without PIFs and attached VIFs, and its other VIFs.
func networkDestroy(c *call) (any, error) {
	return nil, c.change(func(p *pool) {
		network := p.get("network", c.text("self"))
		p.alone(network.Ref)
		vifs := by(p, "VIF", "network", network.Ref)
		attached := slices.DeleteFunc(slices.Clone(vifs), func(v *objects.Object) bool { return !v.Bool("currently_attached") })
		if len(attached) > 0 {
			p.fail(model.NetworkContainsVIF(refsOf(attached)...))
		}
		if pifs := by(p, "PIF", "network", network.Ref); len(pifs) > 0 {
			p.fail(model.NetworkContainsPIF(refsOf(pifs)...))
		}
		p.removeAll(vifs)
		p.remove("network", network.Ref)
	})
}

// networkAttach plugs the host's PIF on the network, if it has one.
func networkAttach(c *call) (any, error) {
	p := c.look()
	p.needs("network", c.text("network"))
	p.alive(c.text("host"))
	if pif := on(p, c.text("host"), c.text("network")); p.err == nil && pif != nil {
		return nil, c.plug(pif.Ref)
	}
	return nil, p.err
}

func networkPurpose(c *call, change func(all []string, one string) []string) error {
	return c.change(func(p *pool) {
		network := p.get("network", c.text("self"))
		old, _ := network.Fields["purpose"].([]string)
		purpose := change(slices.Clone(old), c.text("value"))
		slices.Sort(purpose)
		p.edit(network, model.Record{"purpose": append([]string{}, slices.Compact(purpose)...)})
	})
}
