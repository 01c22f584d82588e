package xapi

import (
	"fmt"
	"slices"
	"strings"

	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// by are the objects of a class whose field, a reference or another index, has this value. A transaction does not guard
// them: what follows from them needs [alone] or [object] too.
func by(r records.Reader, class, field, value string) []*objects.Object {
	return slices.Collect(objects.Table(class).By(r, field, value))
}

// first is the only one of [by]; nil: there is none.
func first(r records.Reader, class, field, value string) *objects.Object {
	for o := range objects.Table(class).By(r, field, value) {
		return o
	}
	return nil
}

// refsOf are the references of the objects.
func refsOf(list []*objects.Object) []string {
	var out []string
	for _, o := range list {
		out = append(out, o.Ref)
	}
	return out
}

// thePool is the pool's object.
func thePool(r records.Reader) (*objects.Object, error) {
	for p := range objects.Table("pool").All(r) {
		return object(r, "pool", p.Ref)
	}
	return nil, model.InternalError("the pool has no object yet; try again")
}

// guard is the key by which those who begin to use an object and those who rely on nobody using it know of each other.
// Objects share a few hundred keys: a needless conflict costs another attempt, a key for each object would stay.
func guard(ref string) string { return "xen/" + ref[max(0, len(ref)-2):] }

// uses says that the transaction makes an object that refers to this one, or sets one going on it.
func uses(tx *records.Tx, ref string) { tx.Mark(guard(ref)) }

// alone has the commit fail, and be tried again, when somebody else begins to use the object at the same time.
func alone(tx *records.Tx, ref string) { tx.Heed(guard(ref)) }

// alive says that the host's agent reports, or answers HOST_OFFLINE.
func alive(r records.Reader, host string) (*objects.HostReport, error) {
	if _, err := object(r, "host", host); err != nil {
		return nil, err
	}
	report, ok := objects.HostReports.Peek(r, host)
	if !ok {
		return nil, model.HostOffline(host)
	}
	return report, nil
}

// able says that the host can do a thing of those in HostReport.Can, or answers that it cannot and what to do.
func able(r records.Reader, host, can, what string) error {
	report, err := alive(r, host)
	if err != nil || slices.Contains(report.Can, can) || slices.Contains(report.Can, objects.Imagined) {
		return err
	}
	return model.OperationNotAllowed(fmt.Sprintf("host %s: %s", report.Name, what))
}

// imagined says that the host exists in a file alone.
func imagined(r records.Reader, host string) bool {
	report, ok := objects.HostReports.Peek(r, host)
	return ok && slices.Contains(report.Can, objects.Imagined)
}

// tunnelOf is the tunnel whose access PIF this is; nil: it is none.
func tunnelOf(r records.Reader, pif string) *objects.Object {
	return first(r, "tunnel", "access_PIF", pif)
}

// vlanOf is the VLAN whose untagged PIF this is; nil: it is none.
func vlanOf(r records.Reader, pif string) *objects.Object {
	return first(r, "VLAN", "untagged_PIF", pif)
}

// on is the host's PIF on a network; nil: it has none.
func on(r records.Reader, host, network string) *objects.Object {
	return first(r, "PIF", "host_network", host+"/"+network)
}

// isSlave says that the PIF is a member of a bond.
func isSlave(pif *objects.Object) bool { return !null(pif.Text("bond_slave_of")) }

func null(ref string) bool { return ref == model.NullRef || ref == "" }

// configured says that the PIF has an IP configuration, of the family by which it is reached.
func configured(pif *objects.Object) bool {
	if pif.Text("primary_address_type") == "IPv6" {
		return pif.Text("ipv6_configuration_mode") != "None"
	}
	return pif.Text("ip_configuration_mode") != "None"
}

// lowestFree is prefix and the lowest number that no name has.
func lowestFree(prefix string, taken map[string]bool) string {
	for n := 0; ; n++ {
		if name := fmt.Sprint(prefix, n); !taken[name] {
			return name
		}
	}
}

// inTurn has transactions that choose from the same names go one after another, instead of all choosing the same one.
func inTurn(r records.Reader, names string) {
	if tx, ok := r.(*records.Tx); ok {
		tx.Touch("xen-names/" + names)
	}
}

// freeDevice is a device name for a new PIF of a host.
func freeDevice(r records.Reader, host, prefix string) string {
	inTurn(r, guard(host))
	taken := map[string]bool{}
	for pif := range objects.Table("PIF").By(r, "host", host) {
		if strings.HasPrefix(pif.Text("device"), prefix) {
			taken[pif.Text("device")] = true
		}
	}
	return lowestFree(prefix, taken)
}
