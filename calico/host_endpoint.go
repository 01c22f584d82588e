package calico

// hostInterface is a host endpoint while it is read.
type hostInterface struct {
	HostEndpoint
	profiles profiles
}

func readHostEndpoint(r *reader) *HostEndpoint {
	h := &hostInterface{}
	r.members(h, &h.Unknown)
	h.ProfileIDs = h.profiles.ids(r)
	return &h.HostEndpoint
}

func (h *hostInterface) member(r *reader, name string) bool {
	switch name {
	case "name":
		h.Name = r.kept()
	case "expected_ipv4_addrs":
		h.ExpectedIPv4Addrs = r.addresses()
	case "expected_ipv6_addrs":
		h.ExpectedIPv6Addrs = r.addresses()
	case "labels":
		h.Labels = r.stringMap()
	case "state", "mac", "ipv4_nets", "ipv6_nets", "ipv4_nat", "ipv6_nat", "ipv4_gateway", "ipv6_gateway":
		r.wrong("is for workload endpoints alone")
	default:
		return h.profiles.member(r, name)
	}
	return true
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (h *HostEndpoint) Validate() error { return h.check().of(string(KindHostEndpoint)) }

func (h *HostEndpoint) check() *Error {
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
		checkUnknown[hostInterface](h.Unknown),
	)
}

func (h *HostEndpoint) write(w *writer) {
	w.open('{')
	w.optional("name", h.Name)
	w.addresses("expected_ipv4_addrs", h.ExpectedIPv4Addrs)
	w.addresses("expected_ipv6_addrs", h.ExpectedIPv6Addrs)
	w.texts("profile_ids", h.ProfileIDs)
	w.name("labels")
	w.stringMap(h.Labels)
	w.unknown(h.Unknown)
	w.end('}')
}
