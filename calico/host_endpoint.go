package calico

import (
	"net/netip"
	"slices"
)

var hostEndpointTable = table[HostEndpoint]{
	columns: slices.Concat(
		[]column[HostEndpoint]{
			member("name", func(h *HostEndpoint) *string { return &h.Name }, asText),
			member("expected_ipv4_addrs", func(h *HostEndpoint) *[]netip.Addr { return &h.ExpectedIPv4Addrs }, asAddresses),
			member("expected_ipv6_addrs", func(h *HostEndpoint) *[]netip.Addr { return &h.ExpectedIPv6Addrs }, asAddresses),
		},
		profileColumns(func(h *HostEndpoint) *[]string { return &h.ProfileIDs }),
		[]column[HostEndpoint]{
			member("labels", func(h *HostEndpoint) *map[string]string { return &h.Labels }, asMap),
		},
		refused[HostEndpoint]("is for workload endpoints alone",
			"state", "mac", "ipv4_nets", "ipv6_nets", "ipv4_nat", "ipv6_nat", "ipv4_gateway", "ipv6_gateway"),
	),
	unknown: func(h *HostEndpoint) *Unknown { return &h.Unknown },
}

func readHostEndpoint(r *reader) *HostEndpoint {
	h := &HostEndpoint{}
	if found := hostEndpointTable.read(r, h); !hostEndpointTable.has(found, "profile_ids") {
		h.ProfileIDs = r.singleProfile()
	}
	return h
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (h *HostEndpoint) Validate() error { return h.check(options{}).of(string(KindHostEndpoint)) }

func (h *HostEndpoint) check(options) *Error {
	switch {
	case h.Name == "" && len(h.ExpectedIPv4Addrs)+len(h.ExpectedIPv6Addrs) == 0:
		return refuse("name", nil, "is missing, and so are expected addresses; want one of them")
	case h.Name != "" && !isInterface(h.Name):
		return refuse("name", h.Name, wantInterface)
	}
	return first(
		checkFamilies("expected_ipv4_addrs", h.ExpectedIPv4Addrs, 4), checkFamilies("expected_ipv6_addrs", h.ExpectedIPv6Addrs, 6),
		checkProfiles(h.ProfileIDs),
		checkLabels("labels", h.Labels),
		hostEndpointTable.checkUnknown(h),
	)
}

func (h *HostEndpoint) write(w *writer) { hostEndpointTable.write(w, h) }
