package xapi

import (
	"fmt"
	"slices"
	"strings"

	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// by returns the objects of a class whose field, a reference or another index, has this value. A
// transaction does not guard them: what follows from them needs [pool.alone] or [pool.get] too.
func by(r records.Reader, class, field, value string) []*objects.Object {
	return slices.Collect(objects.Table(class).By(r, field, value))
}

// first returns the first of [by], nil if there is none.
func first(r records.Reader, class, field, value string) *objects.Object {
	for o := range objects.Table(class).By(r, field, value) {
		return o
	}
	return nil
}

// refsOf returns the references of the objects.
func refsOf(list []*objects.Object) []string {
	var out []string
	for _, o := range list {
		out = append(out, o.Ref)
	}
	return out
}

// thePool returns the pool's own object.
func thePool(r records.Reader) (*objects.Object, error) {
	for p := range objects.Table("pool").All(r) {
		return object(r, "pool", p.Ref)
	}
	return nil, model.InternalError("the pool has no object yet; try again")
}

// guard returns the key by which transactions that begin to use an object and those that rely on no
// use of it exclude each other. Objects share a few hundred keys: a needless conflict costs another
// attempt, a key for each object would stay.
func guard(ref string) string { return "xen/" + ref[max(0, len(ref)-2):] }

// reports reports whether a host's agent does.
func reports(r records.Reader, host string) bool {
	_, ok := objects.HostReports.Peek(r, host)
	return ok
}

// imagined reports whether the host exists in a file alone.
func imagined(r records.Reader, host string) bool {
	report, ok := objects.HostReports.Peek(r, host)
	return ok && slices.Contains(report.Can, objects.Imagined)
}

// tunnelOf returns the tunnel whose access PIF this is, nil if it is none.
func tunnelOf(r records.Reader, pif string) *objects.Object {
	return first(r, "tunnel", "access_PIF", pif)
}

// vlanOf returns the VLAN whose untagged PIF this is, nil if it is none.
func vlanOf(r records.Reader, pif string) *objects.Object {
	return first(r, "VLAN", "untagged_PIF", pif)
}

// bondOf returns the bond whose master this is, nil if it is none.
func bondOf(r records.Reader, pif string) *objects.Object {
	return first(r, "Bond", "master", pif)
}

// on returns the host's PIF on a network, nil if it has none.
func on(r records.Reader, host, network string) *objects.Object {
	return first(r, "PIF", "host_network", host+"/"+network)
}

// isSlave reports whether the PIF is a member of a bond.
func isSlave(pif *objects.Object) bool { return !null(pif.Text("bond_slave_of")) }

func null(ref string) bool { return ref == model.NullRef || ref == "" }

// configured reports whether the PIF has an IP configuration, of the family by which it is reached.
func configured(pif *objects.Object) bool {
	if pif.Text("primary_address_type") == "IPv6" {
		return pif.Text("ipv6_configuration_mode") != "None"
	}
	return pif.Text("ip_configuration_mode") != "None"
}

// lowestFree returns prefix and the lowest number that no name has.
func lowestFree(prefix string, taken map[string]bool) string {
	for n := 0; ; n++ {
		if name := fmt.Sprint(prefix, n); !taken[name] {
			return name
		}
	}
}

// freeDevice returns a device name for a new PIF of a host.
func (p *pool) freeDevice(host, prefix string) string {
	p.inTurn(guard(host))
	taken := map[string]bool{}
	for pif := range objects.Table("PIF").By(p, "host", host) {
		if strings.HasPrefix(pif.Text("device"), prefix) {
			taken[pif.Text("device")] = true
		}
	}
	return lowestFree(prefix, taken)
}
