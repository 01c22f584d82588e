package offline

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"heddle/internal/terminal"
	"heddle/internal/topology"
)

// lines collects text for people.
type lines struct{ strings.Builder }

// add adds one line.
func (l *lines) add(format string, args ...any) {
	l.WriteString(terminal.Escape(fmt.Sprintf(format, args...)) + "\n")
}

func (l *lines) writeTo(out io.Writer) error {
	_, err := io.WriteString(out, l.String())
	return err
}

// print writes what every step did, and the topology.
func (t *translation) print(out io.Writer) error {
	var l lines
	for _, s := range t.Steps {
		field := "id"
		if !s.step.data.has(field) {
			field = "port_id"
		}
		id, _ := s.step.data.get(field).text()
		what := strings.TrimRight(fmt.Sprintf("%s %s %s", s.step.op, s.step.typ, id), " ")
		if s.Error != nil {
			l.add("step %d: %s: refused (%s): %s", s.step.number, what, s.Error.Kind, s.Error.Message)
			continue
		}
		l.add("step %d: %s", s.step.number, what)
		if s.Topology != nil {
			l.topology(s.Topology)
			l.add("")
		}
	}
	l.add("")
	l.add("topology")
	l.topology(t.Topology)
	return l.writeTo(out)
}

// inOrder are the values of a map by their keys' order.
func inOrder[T any](m map[string]T) []T {
	var values []T
	for _, key := range slices.Sorted(maps.Keys(m)) {
		values = append(values, m[key])
	}
	return values
}

// topology writes each network with what is on it, then what networks share.
func (l *lines) topology(v *topology.View) {
	for _, n := range inOrder(v.Networks) {
		l.add("  network %s %q%s", n.ID, n.Name, upDown(n.AdminStateUp))
		for _, id := range n.DhcpIDs {
			l.subnet(v.Dhcps[id])
		}
		for _, id := range n.DhcpV6IDs {
			l.subnet6(v.DhcpV6s[id])
		}
		for _, id := range n.PortIDs {
			l.port(v, v.Ports[id])
		}
		for _, e := range v.Tables.MAC[n.ID][0] {
			l.add("    MAC %s behind port %s", e[0], e[1])
		}
		for _, e := range slices.Concat(v.Tables.ARP[n.ID], v.Tables.ND[n.ID]) {
			l.add("    %s is at %s", e[0], e[1])
		}
	}
	for _, r := range inOrder(v.Routers) {
		l.router(v, r)
	}
	for _, g := range inOrder(v.PortGroups) {
		l.add("%s", strings.TrimSuffix(fmt.Sprintf("  port group %s %q: %s", g.ID, g.Name, strings.Join(g.PortIDs, ", ")), ": "))
	}
	for _, x := range inOrder(v.Limits) {
		l.add("  limits %s: %s", x.ID, x)
	}
	for _, r := range inOrder(v.LoggingResources) {
		state := "not enabled"
		if r.Enabled {
			state = "enabled"
		}
		l.add("  logging resource %s, %s", r.ID, state)
		for _, id := range r.LoggerIDs {
			x := v.RuleLoggers[id]
			l.add("    log %s: %s of chain %s", id, x.Event, v.Chains[x.ChainID].Name)
		}
	}
	for _, g := range inOrder(v.IPAddrGroups) {
		l.add("  address group %s %q", g.ID, g.Name)
		for _, a := range g.IPAddrPorts {
			l.add("    %s of port %s", a.IPAddress, strings.Join(a.PortIDs, ", "))
		}
	}
	byName := func(a, b *topology.Chain) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) }
	for _, c := range slices.SortedFunc(maps.Values(v.Chains), byName) {
		l.add("  chain %s %s", c.ID, c.Name)
		for i, id := range c.RuleIDs {
			l.add("    %d. %s", i+1, v.Rules[id])
		}
	}
	for _, h := range inOrder(v.Hosts) {
		l.add("  host %s %q", h.ID, h.Name)
	}
}

func (l *lines) subnet(d *topology.Dhcp) {
	l.add("    subnet %s %s%s", d.ID, d.SubnetAddress, answering(d.Enabled))
	if d.DefaultGateway != nil {
		l.add("      gateway %s", d.DefaultGateway)
	}
	if d.ServerAddress != nil {
		l.add("      server %s", d.ServerAddress)
	}
	for _, a := range d.DNSServerAddress {
		l.add("      DNS %s", a)
	}
	if d.DomainName != "" {
		l.add("      domain %s", d.DomainName)
	}
	for _, r := range d.Opt121Routes {
		l.add("      route %s by %s", r.DstSubnet, r.Gateway)
	}
	l.dhcpHosts(d.Hosts)
}

func (l *lines) subnet6(d *topology.DhcpV6) {
	l.add("    subnet %s %s%s", d.ID, d.SubnetAddress, answering(d.Enabled))
	if d.DefaultGateway != nil {
		l.add("      gateway %s", d.DefaultGateway)
	}
	for _, a := range d.DNSServerAddress {
		l.add("      DNS %s", a)
	}
	if d.DomainName != "" {
		l.add("      domain %s", d.DomainName)
	}
	if d.RAMode != "" || d.AddressMode != "" {
		l.add("      advertised as %s, addresses by %s", cmp.Or(d.RAMode, "nothing"), cmp.Or(d.AddressMode, "nothing"))
	}
	l.dhcpHosts(d.Hosts)
}

func (l *lines) dhcpHosts(hosts []topology.DhcpHostEntry) {
	for _, h := range hosts {
		l.add("      %s for %s", h.IPAddress, strings.TrimRight(h.MAC.String()+" "+h.Name, " "))
		for _, o := range h.ExtraDhcpOpts {
			l.add("        %s = %s", o.Name, o.Value)
		}
	}
}

func (l *lines) port(v *topology.View, p *topology.Port) {
	l.add("    port %s%s, %s", p.ID, upDown(p.AdminStateUp), whereIs(p))
	if c := v.Chains[p.InboundFilterID]; c != nil {
		l.add("      from the machine: chain %s", c.Name)
	}
	if c := v.Chains[p.OutboundFilterID]; c != nil {
		l.add("      to the machine: chain %s", c.Name)
	}
	if p.LimitsID != "" {
		l.add("      limits %s", p.LimitsID)
	}
}

// router writes a router with its ports and routes.
func (l *lines) router(v *topology.View, r *topology.Router) {
	l.add("  router %s %q%s", r.ID, r.Name, upDown(r.AdminStateUp))
	for _, id := range r.PortIDs {
		p := v.Ports[id]
		l.add("    port %s%s %s, %s", p.ID, upDown(p.AdminStateUp), p.PortMAC, whereIs(p))
		for _, s := range p.PortSubnet {
			l.add("      address %s", s)
		}
		for _, id := range p.RouteIDs {
			l.route(v.Routes[id])
		}
	}
	for _, id := range r.RouteIDs {
		l.route(v.Routes[id])
	}
	l.bgp(v, r)
	for _, filter := range []struct{ name, id string }{
		{"redirect", r.LocalRedirectChainID}, {"before routing", r.InboundFilterID}, {"forward", r.ForwardChainID}, {"after routing", r.OutboundFilterID},
	} {
		if c := v.Chains[filter.id]; c != nil {
			l.add("    %s: chain %s", filter.name, c.Name)
		}
	}
}

// bgp writes the BGP of a router. Passwords are not for the eyes of people.
func (l *lines) bgp(v *topology.View, r *topology.Router) {
	if r.ASNumber == 0 {
		return
	}
	l.add("    BGP: AS %d", r.ASNumber)
	for _, id := range r.BgpPeerIDs {
		p, password := v.BgpPeers[id], ""
		if p.Password != "" {
			password = ", with a password"
		}
		l.add("      peer %s %s, AS %d%s", p.ID, p.Address, p.ASNumber, password)
	}
	for _, id := range r.BgpNetworkIDs {
		l.add("      announces %s", v.BgpNetworks[id].Subnet)
	}
}

func (l *lines) route(r *topology.Route) {
	if r.BySource {
		l.add("      gateway of %s", r.SrcSubnet.Addr())
		return
	}
	text := strings.ToLower(r.NextHop) + " " + r.DstSubnet.String()
	if r.SrcSubnet.Bits() > 0 {
		text += " from " + r.SrcSubnet.String()
	}
	if r.NextHopGateway.IsValid() {
		text += " by " + r.NextHopGateway.String()
	}
	if r.Weight > 100 {
		text += fmt.Sprintf(" weight %d", r.Weight)
	}
	l.add("      route %s", text)
}

// whereIs returns the host, peer or physical network that a port leads to.
func whereIs(p *topology.Port) string {
	switch {
	case p.Exterior() && p.VlanID != 0:
		return fmt.Sprintf("VLAN %d on interface %s of host %s", p.VlanID, p.InterfaceName, p.HostID)
	case p.Exterior():
		return "interface " + p.InterfaceName + " of host " + p.HostID
	case p.VTEP():
		return fmt.Sprintf("peer %s, VXLAN %d from %s", p.PeerID, p.VNI, p.TunnelIP)
	case p.InVLAN():
		return fmt.Sprintf("peer %s in VLAN %d", p.PeerID, p.VlanID)
	case p.PeerID != "":
		return "peer " + p.PeerID
	case p.PhysicalNetwork != "" && p.VlanID != 0:
		return fmt.Sprintf("VLAN %d of physical network %s", p.VlanID, p.PhysicalNetwork)
	case p.PhysicalNetwork != "":
		return "physical network " + p.PhysicalNetwork
	}
	return "not bound"
}

func upDown(up bool) string {
	if up {
		return ""
	}
	return " (down)"
}

func answering(dhcp bool) string {
	if dhcp {
		return ""
	}
	return " without DHCP"
}
