package policy

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"heddle/calico"
	"heddle/internal/hostnet"
)

// isWorkload says whether an interface is a workload's, by its name (spec §8.1).
func (s *Settings) isWorkload(name string) bool {
	return slices.ContainsFunc(s.Rules.WorkloadPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// device is an interface of this host with its addresses.
type device struct {
	hostnet.Link
	addresses map[netip.Addr]bool
}

// governed chooses for each interface of the host itself the endpoint that governs it: of those that match, the one
// with the lowest id (spec §8.5). An endpoint with a name matches that interface alone; one without matches each that
// has an expected address, the loopback excepted: a host must be able to talk to itself.
func governed(devices map[string]*device, workload func(name string) bool, hosts map[calico.HostEndpointKey]*calico.HostEndpoint) map[string]calico.HostEndpointKey {
	out := map[string]calico.HostEndpointKey{}
	keys := slices.SortedFunc(maps.Keys(hosts), func(a, b calico.HostEndpointKey) int { return cmp.Compare(a.Endpoint, b.Endpoint) })
	for _, key := range keys {
		ep := hosts[key]
		if ep == nil {
			continue
		}
		for name, d := range devices {
			if _, taken := out[name]; !taken && !workload(name) && matches(ep, d) {
				out[name] = key
			}
		}
	}
	return out
}

func matches(ep *calico.HostEndpoint, d *device) bool {
	if ep.Name != "" {
		return ep.Name == d.Name
	}
	if d.Kind == hostnet.Loopback {
		return false
	}
	expected := func(a netip.Addr) bool { return d.addresses[a] }
	return slices.ContainsFunc(ep.ExpectedIPv4Addrs, expected) || slices.ContainsFunc(ep.ExpectedIPv6Addrs, expected)
}
