package calico

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
)

// profiles are the profiles of an endpoint while it is read.
type profiles struct {
	list   []string
	given  bool            // a list, if an empty one
	single json.RawMessage // profile_id of the legacy model, which counts where no list is given
}

func (p *profiles) member(r *reader, name string) bool {
	switch name {
	case "profile_ids":
		p.given = r.peek() != 'n'
		p.list = r.texts()
	case "profile_id":
		p.single = r.raw()
	default:
		return false
	}
	return true
}

func (p *profiles) ids(r *reader) []string {
	if p.given || p.single == nil || string(p.single) == "null" || r.failed != nil {
		return p.list
	}
	var id string
	if err := read(p.single, nil, func(r *reader) { id = r.kept() }); err != nil {
		r.failed = err.in("profile_id")
	}
	return []string{id}
}

// workload is a workload endpoint while it is read.
type workload struct {
	WorkloadEndpoint
	profiles profiles
}

func readWorkloadEndpoint(r *reader) *WorkloadEndpoint {
	w := &workload{}
	r.members(w, &w.Unknown)
	w.ProfileIDs = w.profiles.ids(r)
	return &w.WorkloadEndpoint
}

func (w *workload) member(r *reader, name string) bool {
	e := &w.WorkloadEndpoint
	switch name {
	case "state":
		e.State = oneOf(r.optional(), Active, Inactive)
	case "name":
		e.Name = r.kept()
	case "active_instance_id":
		e.ActiveInstanceID = r.kept()
	case "mac":
		e.MAC = r.mac()
	case "ipv4_nets":
		e.IPv4Nets = r.prefixes()
	case "ipv6_nets":
		e.IPv6Nets = r.prefixes()
	case "ipv4_nat":
		e.IPv4NAT = r.nat()
	case "ipv6_nat":
		e.IPv6NAT = r.nat()
	case "ipv4_gateway":
		e.IPv4Gateway = r.address()
	case "ipv6_gateway":
		e.IPv6Gateway = r.address()
	case "labels":
		e.Labels = r.stringMap()
	case "ipv4_subnet_ids":
		e.IPv4SubnetIDs = r.texts()
	case "ipv6_subnet_ids":
		e.IPv6SubnetIDs = r.texts()
	case "fqdn":
		e.FQDN = r.kept()
	case "expected_ipv4_addrs", "expected_ipv6_addrs":
		r.wrong("is for host endpoints alone")
	default:
		return w.profiles.member(r, name)
	}
	return true
}

// oneOf is a text that is often one of a few words, in memory of its own.
func oneOf(text string, words ...string) string {
	for _, w := range words {
		if w == text {
			return w
		}
	}
	return strings.Clone(text)
}

// mac reads a MAC address; nil for null.
func (r *reader) mac() *MAC {
	if r.null() {
		return nil
	}
	start := r.next()
	m, err := ParseMAC(r.text())
	if err != nil {
		r.fail(start, wantMAC)
	}
	return &m
}

// translation is a NAT while it is read.
type translation NAT

func (t *translation) member(r *reader, name string) bool {
	switch name {
	case "int_ip":
		t.IntIP = r.address()
	case "ext_ip":
		t.ExtIP = r.address()
	default:
		return false
	}
	return true
}

func (r *reader) nat() (list []NAT) {
	r.list(func(int) {
		var t translation
		var ignored Unknown
		r.members(&t, &ignored)
		list = append(list, NAT(t))
	})
	return list
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (e *WorkloadEndpoint) Validate() error { return e.check().of(string(KindWorkloadEndpoint)) }

func (e *WorkloadEndpoint) check() *Error {
	switch {
	case e.State == "":
		return refuse("state", nil, "is missing; want active or inactive")
	case e.State != Active && e.State != Inactive:
		return refuse("state", e.State, "want active or inactive")
	case e.Name == "":
		return refuse("name", nil, "is missing; %s", wantInterface)
	case !isInterface(e.Name):
		return refuse("name", e.Name, wantInterface)
	}
	return first(
		checkProfiles(e.ProfileIDs),
		checkNets("ipv4_nets", e.IPv4Nets, 4), checkNets("ipv6_nets", e.IPv6Nets, 6),
		checkNAT("ipv4", e.IPv4NAT, e.IPv4Nets, 4), checkNAT("ipv6", e.IPv6NAT, e.IPv6Nets, 6),
		checkGateway("ipv4_gateway", e.IPv4Gateway, 4), checkGateway("ipv6_gateway", e.IPv6Gateway, 6),
		checkLabels("labels", e.Labels),
		checkTexts("ipv4_subnet_ids", e.IPv4SubnetIDs), checkTexts("ipv6_subnet_ids", e.IPv6SubnetIDs),
		checkText("fqdn", e.FQDN), checkText("active_instance_id", e.ActiveInstanceID),
		checkUnknown[workload](e.Unknown),
	)
}

func checkNets(field string, nets []netip.Prefix, family int) *Error {
	for i, p := range nets {
		switch {
		case !p.IsValid():
			return refuse(index(field, i), nil, "is missing")
		case familyOf(p.Addr()) != family:
			return refuse(index(field, i), p, "want an IPv%d address", family)
		case p.Bits() != p.Addr().BitLen():
			return refuse(index(field, i), p, "want the prefix of one address, /%d", p.Addr().BitLen())
		}
	}
	return nil
}

func checkNAT(version string, nat []NAT, nets []netip.Prefix, family int) *Error {
	for i, n := range nat {
		field := func() string { return index(version+"_nat", i) }
		if err := checkFamily("int_ip", n.IntIP, family); err != nil {
			return err.in(field())
		}
		if err := checkFamily("ext_ip", n.ExtIP, family); err != nil {
			return err.in(field())
		}
		if !slices.ContainsFunc(nets, func(p netip.Prefix) bool { return p.Addr() == n.IntIP }) {
			return refuse("int_ip", n.IntIP, "want one of the endpoint's own %s_nets", version).in(field())
		}
	}
	return nil
}

func checkGateway(field string, a netip.Addr, family int) *Error {
	if !a.IsValid() {
		return nil
	}
	return checkFamily(field, a, family)
}

func (e *WorkloadEndpoint) write(w *writer) {
	w.open('{')
	e.writeInterface(w)
	w.texts("profile_ids", e.ProfileIDs)
	e.writeNets(w)
	w.translations("ipv4_nat", e.IPv4NAT)
	w.translations("ipv6_nat", e.IPv6NAT)
	w.name("labels")
	w.stringMap(e.Labels)
	w.optional("active_instance_id", e.ActiveInstanceID)
	w.optionalTexts("ipv4_subnet_ids", e.IPv4SubnetIDs)
	w.optionalTexts("ipv6_subnet_ids", e.IPv6SubnetIDs)
	w.optional("fqdn", e.FQDN)
	w.unknown(e.Unknown)
	w.end('}')
}

func (e *WorkloadEndpoint) writeInterface(w *writer) {
	w.stringMember("state", e.State)
	w.stringMember("name", e.Name)
	if e.MAC != nil {
		w.stringMember("mac", e.MAC.String())
	}
}

func (e *WorkloadEndpoint) writeNets(w *writer) {
	w.prefixes("ipv4_nets", e.IPv4Nets)
	w.prefixes("ipv6_nets", e.IPv6Nets)
	w.addressMember("ipv4_gateway", e.IPv4Gateway)
	w.addressMember("ipv6_gateway", e.IPv6Gateway)
}

func (w *writer) translations(name string, list []NAT) {
	if len(list) == 0 {
		return
	}
	w.name(name)
	w.open('[')
	for _, n := range list {
		w.comma()
		w.open('{')
		w.addressMember("int_ip", n.IntIP)
		w.addressMember("ext_ip", n.ExtIP)
		w.end('}')
	}
	w.end(']')
}

// writeLegacy writes with the members of seed 000 alone.
func (e *WorkloadEndpoint) writeLegacy(w *writer) {
	w.open('{')
	e.writeInterface(w)
	if len(e.ProfileIDs) > 0 {
		w.stringMember("profile_id", e.ProfileIDs[0])
	}
	e.writeNets(w)
	w.unknown(e.Unknown)
	w.end('}')
}

// checkLegacy refuses what seed 000 has no member for.
func (e *WorkloadEndpoint) checkLegacy() *Error {
	for _, m := range []struct {
		name  string
		given bool
	}{
		{"labels", len(e.Labels) > 0}, {"ipv4_nat", len(e.IPv4NAT) > 0}, {"ipv6_nat", len(e.IPv6NAT) > 0},
		{"active_instance_id", e.ActiveInstanceID != ""}, {"fqdn", e.FQDN != ""},
		{"ipv4_subnet_ids", len(e.IPv4SubnetIDs) > 0}, {"ipv6_subnet_ids", len(e.IPv6SubnetIDs) > 0},
	} {
		if m.given {
			return refuse(m.name, nil, "the legacy model has no such member")
		}
	}
	if len(e.ProfileIDs) > 1 {
		return refuse("profile_ids[1]", e.ProfileIDs[1], "an endpoint of the legacy model has one profile")
	}
	return nil
}
