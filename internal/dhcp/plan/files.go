package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"heddle/calico"
)

// write derives a served endpoint's port and files, once.
func (p *planner) write(c *candidate) {
	if c.written {
		return
	}
	c.written = true
	c.extras = c.readExtras()
	name := p.fullName(c)
	c.port = Port{Key: c.key, Interface: c.Name, MAC: *c.MAC, Name: name(c.addresses[0].ip), Advertisement: p.advertisement(c)}
	var names strings.Builder
	for _, a := range c.addresses {
		c.port.Addresses = append(c.port.Addresses, Address{a.ip, a.subnet.id})
		full := name(a.ip)
		short, _, _ := strings.Cut(full, ".")
		names.WriteString(a.ip.String() + "\t" + full)
		if short != full {
			names.WriteString(" " + short)
		}
		names.WriteByte('\n')
	}
	c.names, c.hosts = names.String(), hostLines(c, name)
}

// fullName returns a function from an endpoint's addresses to names: its own, else one made of the
// address.
func (p *planner) fullName(c *candidate) func(netip.Addr) string {
	made := func(ip netip.Addr) string {
		name := "host-" + strings.ReplaceAll(strings.ReplaceAll(ip.String(), ".", "-"), ":", "-")
		if p.options.Domain != "" {
			name += "." + p.options.Domain
		}
		return name
	}
	if c.FQDN == "" {
		return made
	}
	if reason := badName(c.FQDN); reason != "" {
		c.problem(fmt.Sprintf("fqdn %q %s: its name is made of its address", c.FQDN, reason))
		return made
	}
	return func(netip.Addr) string { return c.FQDN }
}

// hostLines returns the lines of a port that gets its addresses by DHCP. The last one has the first
// IPv4 address and all of IPv6: of lines with the same MAC address, dnsmasq takes the last for
// either family.
func hostLines(c *candidate, name func(netip.Addr) string) string {
	var v4, v6 []netip.Addr
	for _, a := range c.addresses {
		switch {
		case a.subnet.mode != static:
		case a.ip.Is4():
			v4 = append(v4, a.ip)
		default:
			v6 = append(v6, a.ip)
		}
	}
	var lines strings.Builder
	tag := ""
	if len(c.extras) > 0 {
		tag = "set:" + PortTag(c.Name) + ","
	}
	line := func(first netip.Addr, addresses ...string) {
		lines.WriteString(c.MAC.String() + "," + tag + name(first) + "," + strings.Join(addresses, ",") + "\n")
	}
	var bracketed []string
	for _, ip := range v6 {
		bracketed = append(bracketed, bracket(ip))
	}
	for len(v4) > 1 {
		last := len(v4) - 1
		line(v4[last], v4[last].String())
		v4 = v4[:last]
	}
	if len(v4) > 0 {
		bracketed = append([]string{v4[0].String()}, bracketed...)
	}
	if first := append(v4, v6...); len(first) > 0 {
		line(first[0], bracketed...)
	}
	return lines.String()
}

// bracket writes an address as dnsmasq reads it: IPv6 in brackets.
func bracket(ip netip.Addr) string {
	if ip.Is4() {
		return ip.String()
	}
	return "[" + ip.String() + "]"
}

// advertisement returns the router advertisement for a port, nil without IPv6 addresses. Of several
// subnets the least MTU counts.
func (p *planner) advertisement(c *candidate) *Advertisement {
	a := &Advertisement{Domain: p.options.Domain, LeaseSeconds: p.options.LeaseSeconds}
	for _, own := range c.addresses {
		s := own.subnet
		prefix := AdvertisedPrefix{Prefix: s.CIDR, Autonomous: s.mode != static}
		if s.CIDR.Addr().Is4() || slices.Contains(a.Prefixes, prefix) {
			continue
		}
		a.Prefixes = append(a.Prefixes, prefix)
		if mtu := p.advertisedMTU(s); a.MTU == 0 || mtu > 0 && mtu < a.MTU {
			a.MTU = mtu
		}
		a.DNSServers = append(a.DNSServers, servers(s)...)
		a.Managed = a.Managed || s.mode == static
		a.Other = a.Other || s.mode != slaac
	}
	if len(a.Prefixes) == 0 {
		return nil
	}
	return a
}

// leastMTU is IPv6's least, in bytes (RFC 8200 §5). Machines ignore advertisements of less.
const leastMTU = 1280

// advertisedMTU returns that of a subnet's network, else the operator's; 0 for none.
func (p *planner) advertisedMTU(s *subnet) int {
	mtu := cmp.Or(s.MTU, p.options.MTU)
	if mtu < leastMTU {
		return 0
	}
	return mtu
}

// subnetOptions returns the option lines of a subnet, in the order of the spec.
func (p *planner) subnetOptions(s *subnet) string {
	var lines strings.Builder
	add := func(option string, values []string) {
		fmt.Fprintf(&lines, "tag:%s,%s,%s\n", s.tag, option, strings.Join(values, ","))
	}
	if servers := p.dnsServers(s); len(servers) > 0 {
		add(optionName(s, "dns-server"), servers)
	}
	if !s.CIDR.Addr().Is4() {
		if p.options.Domain != "" {
			add("option6:domain-search", []string{p.options.Domain})
		}
		return lines.String()
	}
	if routes, twice := p.routes(s); len(routes) > 0 {
		add("option:classless-static-route", routes)
		if twice {
			add("249", routes)
		}
	}
	add("option:router", []string{s.GatewayIP.String()})
	return lines.String()
}

func optionName(s *subnet, name string) string {
	if s.CIDR.Addr().Is4() {
		return "option:" + name
	}
	return "option6:" + name
}

// The bounds of options: a DHCPv4 option has 255 bytes (RFC 2132), and dnsmasq reads 1024 bytes of
// a line, of which tag and option name take up to 110.
//
// Unless a machine allows more, a message has 312 bytes for options, and the field for a boot file
// may have one more of less than 125 bytes; dnsmasq leaves out what does not fit. Routes of
// mostTwiceBytes fit as option 121 and again as 249, next to all other options; mostRouteBytes fit
// as option 121 alone.
const (
	mostOptionBytes = 255
	mostRouteBytes  = 180
	mostTwiceBytes  = 120
	mostText        = 900
)

// wantedServers returns the DNS servers of a subnet: without any, the host itself, as in Neutron. A
// single unspecified address means none, as in Neutron.
func (s *subnet) wantedServers() []netip.Addr {
	switch {
	case len(s.DNSServers) == 0:
		return []netip.Addr{s.server}
	case len(s.DNSServers) == 1 && s.DNSServers[0].IsUnspecified():
		return nil
	}
	return s.DNSServers
}

// servers returns the DNS servers of a subnet that fit into an option.
func servers(s *subnet) (list []netip.Addr) {
	left := mostText
	for i, ip := range s.wantedServers() {
		ip = ip.WithZone("")
		left -= len(bracket(ip)) + 1
		if left < 0 || ip.Is4() && i == mostOptionBytes/4 {
			break
		}
		list = append(list, ip)
	}
	return list
}

func (p *planner) dnsServers(s *subnet) (list []string) {
	fitting, wanted := servers(s), s.wantedServers()
	for _, ip := range fitting {
		list = append(list, bracket(ip))
	}
	if len(list) < len(wanted) {
		p.problem(calico.DHCPSubnetKey{Subnet: s.id}, fmt.Sprintf("dns_servers: only the first %d of %d fit into an option", len(list), len(wanted)))
	}
	return list
}

// routes returns the classless routes of an IPv4 subnet: its own, the other subnets of its network
// as on-link, and the gateway; none if there is only the gateway. It skips a default route among
// its own, and subnets that overlap this one. Other subnets are left out where there is no room, as
// the default route leads there too. twice reports whether the routes fit into both options that
// carry them.
func (p *planner) routes(s *subnet) (list []string, twice bool) {
	gateway := calico.HostRoute{Destination: netip.PrefixFrom(netip.IPv4Unspecified(), 0), NextHop: s.GatewayIP}
	var own, others []calico.HostRoute
	for _, r := range s.HostRoutes {
		if r.Destination.Bits() > 0 {
			own = append(own, r)
		}
	}
	for _, cidr := range p.networks[s.network] {
		if !cidr.Overlaps(s.CIDR) {
			others = append(others, calico.HostRoute{Destination: cidr, NextHop: netip.IPv4Unspecified()})
		}
	}
	if len(own)+len(others) == 0 {
		return nil, false
	}
	last := routeText(gateway)
	bytes, text := routeBytes(gateway), textBytes(last)
	take := func(routes []calico.HostRoute, most int) (taken int) {
		for _, r := range routes {
			fields := routeText(r)
			if bytes+routeBytes(r) > most || text+textBytes(fields) > mostText {
				return taken
			}
			bytes, text = bytes+routeBytes(r), text+textBytes(fields)
			list = append(list, fields...)
			taken++
		}
		return taken
	}
	if n := take(own, mostRouteBytes); n < len(own) {
		p.problem(calico.DHCPSubnetKey{Subnet: s.id}, fmt.Sprintf("host_routes: only the first %d of %d fit into a message", n, len(own)))
	}
	if n := take(others, mostTwiceBytes); n < len(others) {
		p.problem(calico.DHCPSubnetKey{Subnet: s.id}, fmt.Sprintf("routes to %d of %d other subnets of network %s do not fit into a message, %s to %s: the default route leads there",
			len(others)-n, len(others), s.network, others[n].Destination, others[len(others)-1].Destination))
	}
	return append(list, last...), bytes <= mostTwiceBytes
}

func routeText(r calico.HostRoute) []string {
	return []string{r.Destination.String(), r.NextHop.String()}
}

func textBytes(fields []string) int { return len(strings.Join(fields, ",")) + 1 }

// routeBytes returns the length of a route in option 121 (RFC 3442): significant octets of the
// destination, their number of bits, the router.
func routeBytes(r calico.HostRoute) int { return 1 + (r.Destination.Bits()+7)/8 + 4 }
