package translate

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"slices"

	"heddle/calico"
	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// HasEndpoint reports whether a port is an endpoint of Calico's data model: a machine's interface
// on a routed network that is bound to a host.
func HasEndpoint(p *neutron.Port, n *neutron.Network) bool {
	return n.Routed() && ClassOf(p.DeviceOwner) == VIF && p.BoundHostID != "" && p.InterfaceName != ""
}

// EndpointKey returns the key of a bound port's endpoint. Without a device, the port is the
// workload.
func EndpointKey(p *neutron.Port) calico.WorkloadEndpointKey {
	return calico.WorkloadEndpointKey{Host: p.HostID, Orchestrator: calico.OpenStack, Workload: workload(p), Endpoint: p.ID}
}

// EndpointStatusKey returns the key of the status that the policy agent reports.
func EndpointStatusKey(p *neutron.Port) calico.WorkloadEndpointStatusKey {
	return calico.WorkloadEndpointStatusKey{Host: p.HostID, Orchestrator: calico.OpenStack, Workload: workload(p), Endpoint: p.ID}
}

func workload(p *neutron.Port) string { return cmp.Or(p.DeviceID, p.ID) }

// Endpoint translates a port that has an endpoint (spec 18). subnets are those of its addresses;
// addresses on missing ones get neither gateway nor subnet id. dnsDomain completes its name.
func Endpoint(p *neutron.Port, n *neutron.Network, subnets []*neutron.Subnet, dnsDomain string) *calico.WorkloadEndpoint {
	mac := calico.MAC(p.MACAddress)
	e := &calico.WorkloadEndpoint{State: calico.Inactive, Name: p.InterfaceName, MAC: &mac}
	if p.AdminStateUp && n.AdminStateUp {
		e.State = calico.Active
	}
	for _, group := range groupIDs(p) {
		e.ProfileIDs = append(e.ProfileIDs, ProfileID(group))
	}
	for _, f := range p.FixedIPs {
		i := slices.IndexFunc(subnets, func(s *neutron.Subnet) bool { return s.ID == f.SubnetID })
		if i < 0 {
			addAddress(e, f.IPAddress, nil)
			continue
		}
		addAddress(e, f.IPAddress, subnets[i])
	}
	for _, pair := range p.AllowedAddressPairs {
		if a, ok := HostAddress(pair.IPAddress); ok {
			addPair(e, a)
		}
	}
	if len(p.FixedIPs) > 0 {
		e.FQDN = topology.AssignedName(p.FixedIPs[0].IPAddress, p.DNSName, dnsDomain)
	}
	if len(p.ExtraDHCPOpts) > 0 {
		e.Unknown = calico.Unknown{extraOptions: asJSON(p.ExtraDHCPOpts)}
	}
	return e
}

// extraOptions is a member unknown to Calico's model: the port's own DHCP options.
const extraOptions = "extra_dhcp_opts"

func asJSON(opts []neutron.DHCPOpt) json.RawMessage {
	text, err := json.Marshal(opts)
	if err != nil {
		panic(err) // texts and numbers alone
	}
	return text
}

// addAddress adds a fixed address. The last gateway of each family wins. An address whose subnet
// DHCP does not serve has an empty subnet id, which keeps the ids in step with the nets.
func addAddress(e *calico.WorkloadEndpoint, a netip.Addr, s *neutron.Subnet) {
	nets, ids, gateway := &e.IPv4Nets, &e.IPv4SubnetIDs, &e.IPv4Gateway
	if a.Is6() {
		nets, ids, gateway = &e.IPv6Nets, &e.IPv6SubnetIDs, &e.IPv6Gateway
	}
	*nets = append(*nets, netip.PrefixFrom(a, a.BitLen()))
	id := ""
	if s != nil && s.EnableDHCP {
		id = s.ID
	}
	*ids = append(*ids, id)
	if s != nil && s.GatewayIP != nil {
		*gateway = *s.GatewayIP
	}
}

// addPair adds an address that a machine may also have, without a subnet.
func addPair(e *calico.WorkloadEndpoint, a netip.Addr) {
	nets := &e.IPv4Nets
	if a.Is6() {
		nets = &e.IPv6Nets
	}
	if p := netip.PrefixFrom(a, a.BitLen()); !slices.Contains(*nets, p) {
		*nets = append(*nets, p)
	}
}

// HostAddress reads the address of an allowed address pair, if it is one address and no range.
func HostAddress(text string) (netip.Addr, bool) {
	p, ok := prefixOf(text)
	if !ok || !p.IsSingleIP() {
		return netip.Addr{}, false
	}
	return p.Addr().Unmap(), true
}

// DHCPSubnet translates a subnet of routed network n; nil when DHCP does not serve it.
func DHCPSubnet(s *neutron.Subnet, n *neutron.Network) *calico.DHCPSubnet {
	if !s.EnableDHCP || s.GatewayIP == nil {
		return nil
	}
	d := &calico.DHCPSubnet{
		CIDR:            s.CIDR,
		GatewayIP:       *s.GatewayIP,
		DNSServers:      s.DNSNameservers,
		NetworkID:       s.NetworkID,
		IPv6AddressMode: s.IPv6AddressMode,
		IPv6RAMode:      s.IPv6RAMode,
		MTU:             n.MTU,
	}
	for _, r := range s.HostRoutes {
		d.HostRoutes = append(d.HostRoutes, calico.HostRoute{Destination: r.Destination.Masked(), NextHop: r.Nexthop})
	}
	return d
}
