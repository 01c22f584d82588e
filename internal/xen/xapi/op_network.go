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

// checkBridgeName says whether clients may call a bridge so.
func checkBridgeName(r records.Reader, name string) error {
	reserved := slices.ContainsFunc(reservedBridges, func(p string) bool { return strings.HasPrefix(name, p) })
	if len(name) > maxBridgeName || reserved || strings.ContainsAny(name, "/ \t\n\x00") || name == "." || name == ".." || isInterface(r, name) {
		return model.InvalidValue("bridge", name)
	}
	if first(r, "network", "bridge", name) != nil {
		return model.BridgeNameExists(name)
	}
	return nil
}

// isInterface says whether a host has an interface of that name, where no bridge could be made.
func isInterface(r records.Reader, name string) bool {
	for report := range objects.HostReports.All(r) {
		if slices.ContainsFunc(report.Interfaces, func(i objects.Interface) bool { return i.Device == name }) {
			return true
		}
	}
	return name == "lo"
}

// freeBridge is a name that no network's bridge has.
func freeBridge(r records.Reader) string {
	inTurn(r, "bridges")
	taken := map[string]bool{}
	for n := range objects.Table("network").All(r) {
		taken[n.Text("bridge")] = true
	}
	return lowestFree("xapi", taken)
}

// givenBy are those of the fields that a constructor got.
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
	return network.Ref, c.update(func(tx *records.Tx) error {
		made := network
		if given == "" {
			made = edited(network, model.Record{"bridge": freeBridge(tx)})
		} else if err := checkBridgeName(tx, given); err != nil {
			return err
		}
		return put(tx, made)
	})
}

// networkDestroy takes a network away that no PIF and no attached VIF is on; VIFs that are not attached go with it.
func networkDestroy(c *call) (any, error) {
	return nil, c.update(func(tx *records.Tx) error {
		network, err := object(tx, "network", c.text("self"))
		if err != nil {
			return err
		}
		alone(tx, network.Ref)
		vifs := by(tx, "VIF", "network", network.Ref)
		attached := slices.DeleteFunc(slices.Clone(vifs), func(v *objects.Object) bool { return !v.Bool("currently_attached") })
		if len(attached) > 0 {
			return model.NetworkContainsVIF(refsOf(attached)...)
		}
		if pifs := by(tx, "PIF", "network", network.Ref); len(pifs) > 0 {
			return model.NetworkContainsPIF(refsOf(pifs)...)
		}
		for _, v := range vifs {
			if err := remove(tx, "VIF", v.Ref); err != nil {
				return err
			}
		}
		return remove(tx, "network", network.Ref)
	})
}

// networkAttach plugs the host's PIF on the network, if it has one.
func networkAttach(c *call) (any, error) {
	r, err := c.view()
	if err != nil {
		return nil, err
	}
	if _, err := object(r, "network", c.text("network")); err != nil {
		return nil, err
	}
	if _, err := alive(r, c.text("host")); err != nil {
		return nil, err
	}
	if pif := on(r, c.text("host"), c.text("network")); pif != nil {
		return nil, c.plug(pif.Ref)
	}
	return nil, nil
}

func networkPurpose(c *call, change func(all []string, one string) []string) error {
	return c.update(func(tx *records.Tx) error {
		network, err := object(tx, "network", c.text("self"))
		if err != nil {
			return err
		}
		old, _ := network.Fields["purpose"].([]string)
		purpose := change(slices.Clone(old), c.text("value"))
		slices.Sort(purpose)
		return put(tx, edited(network, model.Record{"purpose": append([]string{}, slices.Compact(purpose)...)}))
	})
}
