package calico

import (
	"net/netip"
	"slices"
)

// interfaceColumns are the first members of an endpoint in either tree.
var interfaceColumns = []column[WorkloadEndpoint]{
	member("state", func(e *WorkloadEndpoint) *string { return &e.State }, asWord(Active, Inactive)),
	member("name", func(e *WorkloadEndpoint) *string { return &e.Name }, asText),
	member("mac", func(e *WorkloadEndpoint) **MAC { return &e.MAC }, format[*MAC]{(*reader).mac, (*writer).mac, isZero[*MAC]}),
}

// netColumns follow the profiles in either tree.
var netColumns = []column[WorkloadEndpoint]{
	member("ipv4_nets", func(e *WorkloadEndpoint) *[]netip.Prefix { return &e.IPv4Nets }, asPrefixes),
	member("ipv6_nets", func(e *WorkloadEndpoint) *[]netip.Prefix { return &e.IPv6Nets }, asPrefixes),
	member("ipv4_gateway", func(e *WorkloadEndpoint) *netip.Addr { return &e.IPv4Gateway }, asAddress),
	member("ipv6_gateway", func(e *WorkloadEndpoint) *netip.Addr { return &e.IPv6Gateway }, asAddress),
}

var workloadTable = table[WorkloadEndpoint]{
	columns: slices.Concat(
		interfaceColumns,
		profileColumns(func(e *WorkloadEndpoint) *[]string { return &e.ProfileIDs }),
		netColumns,
		[]column[WorkloadEndpoint]{
			member("ipv4_nat", func(e *WorkloadEndpoint) *[]NAT { return &e.IPv4NAT }, omitEmpty(asObjects(&natTable))),
			member("ipv6_nat", func(e *WorkloadEndpoint) *[]NAT { return &e.IPv6NAT }, omitEmpty(asObjects(&natTable))),
			member("labels", func(e *WorkloadEndpoint) *map[string]string { return &e.Labels }, asMap),
			member("active_instance_id", func(e *WorkloadEndpoint) *string { return &e.ActiveInstanceID }, asText),
			member("ipv4_subnet_ids", func(e *WorkloadEndpoint) *[]string { return &e.IPv4SubnetIDs }, omitEmpty(asTexts)),
			member("ipv6_subnet_ids", func(e *WorkloadEndpoint) *[]string { return &e.IPv6SubnetIDs }, omitEmpty(asTexts)),
			member("fqdn", func(e *WorkloadEndpoint) *string { return &e.FQDN }, asText),
		},
		refused[WorkloadEndpoint]("is for host endpoints alone", "expected_ipv4_addrs", "expected_ipv6_addrs"),
	),
	unknown: func(e *WorkloadEndpoint) *Unknown { return &e.Unknown },
}

// legacyWorkloadTable has the members of seed 000. It is only written.
var legacyWorkloadTable = table[WorkloadEndpoint]{
	columns: slices.Concat(interfaceColumns, []column[WorkloadEndpoint]{
		member("profile_id", func(e *WorkloadEndpoint) *[]string { return &e.ProfileIDs }, omitEmpty(format[[]string]{
			write: func(w *writer, ids []string) { w.string(ids[0]) },
		})),
	}, netColumns),
	unknown: workloadTable.unknown,
}

// natTable describes a floating address. Members of later versions are dropped.
var natTable = table[NAT]{
	columns: []column[NAT]{
		member("int_ip", func(n *NAT) *netip.Addr { return &n.IntIP }, asAddress),
		member("ext_ip", func(n *NAT) *netip.Addr { return &n.ExtIP }, asAddress),
	},
	skip: true,
}

// profileColumns returns the columns of an endpoint's profiles: the list, and the single profile of
// the legacy model, which counts where no list is given.
func profileColumns[O any](ids func(o *O) *[]string) []column[O] {
	return []column[O]{
		member("profile_ids", ids, asTexts),
		{name: "profile_id", read: func(r *reader, _ *O) { r.profile = r.raw() }},
	}
}

// singleProfile returns the list that profile_id stands for.
func (r *reader) singleProfile() []string {
	if r.profile == nil || r.failed != nil {
		return nil
	}
	var id string
	if err := readAll(r.profile, nil, func(r *reader) { id = r.kept() }); err != nil {
		r.failed = err.in("profile_id")
	}
	return []string{id}
}

func readWorkloadEndpoint(r *reader) *WorkloadEndpoint {
	e := &WorkloadEndpoint{}
	if found := workloadTable.read(r, e); !workloadTable.has(found, "profile_ids") {
		e.ProfileIDs = r.singleProfile()
	}
	return e
}

func (r *reader) mac() *MAC {
	start := r.next()
	m, err := ParseMAC(r.text())
	if err != nil {
		r.fail(start, wantMAC)
	}
	return &m
}

func (w *writer) mac(m *MAC) { w.string(m.String()) }

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (e *WorkloadEndpoint) Validate() error {
	return e.check(options{}).of(string(KindWorkloadEndpoint))
}

func (e *WorkloadEndpoint) check(options) *Error {
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
		workloadTable.checkUnknown(e),
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

func (e *WorkloadEndpoint) write(w *writer)       { workloadTable.write(w, e) }
func (e *WorkloadEndpoint) writeLegacy(w *writer) { legacyWorkloadTable.write(w, e) }

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
