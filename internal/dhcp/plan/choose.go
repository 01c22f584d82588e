package plan

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"heddle/calico"
)

// candidate is an endpoint with the findings about it, which depend on the endpoint and the subnets
// alone.
type candidate struct {
	key calico.WorkloadEndpointKey
	*calico.WorkloadEndpoint
	reason    string     // why it waits, whatever else there is; "" when nothing of its own speaks against it
	addresses []assigned // of both families, IPv4 first, in the order of the endpoint

	// The outcome, once it was served.
	written      bool
	extras       []extraOption
	port         Port
	names, hosts string   // its files
	problems     []string // what of it cannot be honoured
}

func (c *candidate) problem(reason string) { c.problems = append(c.problems, reason) }

// assigned is an address with its subnet.
type assigned struct {
	ip     netip.Addr
	subnet *subnet
}

// candidates returns the endpoints that could be served, in the order of keys. All others wait.
// cache holds candidates of the plan before.
func (p *planner) candidates(keys []calico.WorkloadEndpointKey, endpoints map[calico.WorkloadEndpointKey]*calico.WorkloadEndpoint, cache map[calico.WorkloadEndpointKey]*candidate) []*candidate {
	list := make([]*candidate, 0, len(keys))
	for _, key := range keys {
		c := cache[key]
		if c == nil || c.WorkloadEndpoint != endpoints[key] {
			c = &candidate{key: key, WorkloadEndpoint: endpoints[key]}
			c.reason = p.examine(c)
			cache[key] = c
		}
		if c.reason != "" {
			p.wait(key, c.reason)
			continue
		}
		list = append(list, c)
	}
	return list
}

// examine finds an endpoint's addresses, or the reason why it cannot be served.
func (p *planner) examine(c *candidate) string {
	if c.WorkloadEndpoint == nil {
		return "is invalid: it could not be decoded"
	}
	if err := c.Validate(); err != nil {
		return "is invalid: " + err.Error()
	}
	switch {
	case !hasPrefix(c.Name, p.options.InterfacePrefixes):
		return fmt.Sprintf("interface %s is not served: its name begins with none of %s", c.Name, strings.Join(p.options.InterfacePrefixes, ", "))
	case c.MAC == nil:
		return "has no mac"
	case *c.MAC == calico.MAC{} || c.MAC[0]&1 != 0:
		return fmt.Sprintf("mac %s is not that of one machine", c.MAC)
	}
	all := append(pair(c.IPv4Nets, c.IPv4SubnetIDs), pair(c.IPv6Nets, c.IPv6SubnetIDs)...)
	if len(all) == 0 {
		return "has no address with a subnet ID"
	}
	return p.place(c, all)
}

// named is an address with the ID of its subnet.
type named struct {
	ip netip.Addr
	id string
}

// pair joins nets and IDs by position. Nets beyond the IDs have no subnet: allowed address pairs
// follow the fixed addresses. An empty ID keeps the place of an address that DHCP does not serve.
func pair(nets []netip.Prefix, ids []string) (list []named) {
	for i := range min(len(nets), len(ids)) {
		if ids[i] != "" {
			list = append(list, named{nets[i].Addr(), ids[i]})
		}
	}
	return list
}

// place finds the subnet of each address.
func (p *planner) place(c *candidate, all []named) string {
	passedOver := ""
	for _, a := range all {
		s := p.known[a.id]
		switch {
		case s == nil:
			return fmt.Sprintf("subnet %q is not known", a.id)
		case s.refused != "":
			return fmt.Sprintf("subnet %q %s", a.id, s.refused)
		case !s.CIDR.Contains(a.ip):
			return fmt.Sprintf("address %s is not in subnet %s (%s)", a.ip, a.id, s.CIDR)
		case a.ip == s.server:
			return fmt.Sprintf("address %s is the gateway of subnet %s", a.ip, a.id)
		case s.mode == skipped:
			passedOver = a.id + " " + s.skipped
		case slices.ContainsFunc(c.addresses, func(other assigned) bool { return other.ip == a.ip }): // named twice
		default:
			c.addresses = append(c.addresses, assigned{a.ip, s})
		}
	}
	if len(c.addresses) == 0 {
		return fmt.Sprintf("has no address that can be served: subnet %s", passedOver)
	}
	return ""
}

// choose serves candidates without conflicts. Of two in conflict, the one whose key, or whose
// subnet's ID, comes first is served, so that the outcome does not depend on history.
func (p *planner) choose(candidates []*candidate) {
	shadowed := overlaps(candidates)
	holders := newClaims(len(candidates))
	for _, c := range candidates {
		if reason := cmp.Or(shadowed.reason(c), holders.reason(c)); reason != "" {
			p.wait(c.key, reason)
			continue
		}
		holders.add(c)
		p.write(c)
		p.served = append(p.served, c)
	}
	p.used = subnetsOf(p.served)
}

func subnetsOf(list []*candidate) []*subnet {
	found := map[*subnet]bool{}
	for _, c := range list {
		for _, a := range c.addresses {
			found[a.subnet] = true
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b *subnet) int { return cmp.Compare(a.id, b.id) })
}

// shadows maps subnets that cannot be served to the served ones that they overlap.
type shadows map[*subnet]*subnet

// overlaps returns the shadows: dnsmasq does not distinguish overlapping subnets.
func overlaps(candidates []*candidate) shadows {
	found := shadows{}
	var served []*subnet
	for _, s := range subnetsOf(candidates) {
		at := slices.IndexFunc(served, func(other *subnet) bool { return s.CIDR.Overlaps(other.CIDR) })
		if at >= 0 {
			found[s] = served[at]
			continue
		}
		served = append(served, s)
	}
	return found
}

func (s shadows) reason(c *candidate) string {
	for _, a := range c.addresses {
		if other := s[a.subnet]; other != nil {
			return fmt.Sprintf("subnet %s (%s) overlaps subnet %s (%s), which is served", a.subnet.id, a.subnet.CIDR, other.id, other.CIDR)
		}
	}
	return ""
}

// claims are the endpoints that have what only one can.
type claims struct {
	macs       map[calico.MAC]calico.WorkloadEndpointKey
	interfaces map[string]calico.WorkloadEndpointKey
	addresses  map[netip.Addr]calico.WorkloadEndpointKey
}

func newClaims(size int) claims {
	return claims{make(map[calico.MAC]calico.WorkloadEndpointKey, size), make(map[string]calico.WorkloadEndpointKey, size), make(map[netip.Addr]calico.WorkloadEndpointKey, size)}
}

func (h claims) add(c *candidate) {
	h.macs[*c.MAC], h.interfaces[c.Name] = c.key, c.key
	for _, a := range c.addresses {
		h.addresses[a.ip] = c.key
	}
}

func (h claims) reason(c *candidate) string {
	if other, ok := h.macs[*c.MAC]; ok {
		return fmt.Sprintf("mac %s is already that of %s", c.MAC, keyText(other))
	}
	if other, ok := h.interfaces[c.Name]; ok {
		return fmt.Sprintf("interface %s is already that of %s", c.Name, keyText(other))
	}
	for _, a := range c.addresses {
		if other, ok := h.addresses[a.ip]; ok {
			return fmt.Sprintf("address %s is already that of %s", a.ip, keyText(other))
		}
	}
	return ""
}

func hasPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

func compareKeys(a, b calico.WorkloadEndpointKey) int {
	return cmp.Or(
		cmp.Compare(a.Host, b.Host), cmp.Compare(a.Orchestrator, b.Orchestrator), cmp.Compare(a.Workload, b.Workload),
		cmp.Compare(a.Endpoint, b.Endpoint), cmp.Compare(boolRank(a.Legacy), boolRank(b.Legacy)),
	)
}

func boolRank(b bool) int {
	if b {
		return 1
	}
	return 0
}

func sortByKey(p *Plan) {
	slices.SortFunc(p.Waiting, func(a, b Waiting) int { return compareKeys(a.Key, b.Key) })
	slices.SortStableFunc(p.Problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(keyText(a.Key), keyText(b.Key)), cmp.Compare(a.Reason, b.Reason))
	})
}

func keyText(key calico.Key) string {
	path, err := key.Path()
	if err != nil {
		return fmt.Sprintf("%+v", key)
	}
	return path
}
