package control

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"net/netip"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// vipPort settles the address of a new load balancer, and returns its port: the one that the
// request names, which is yet to be stored, or a new one, which is.
func (o *operation) vipPort(lb *neutron.LoadBalancer, v neutron.Values) (*neutron.Port, *neutron.Network, error) {
	if err := checkVIPRequest(v); err != nil {
		return nil, nil, err
	}
	if v.Text("vip_port_id") != "" {
		return o.takeVIPPort(lb, v)
	}
	n, subnets, err := o.vipSubnets(v)
	if err != nil {
		return nil, nil, err
	}
	if err := o.checkVIPPolicy(lb.VIPQoSPolicyID); err != nil {
		return nil, nil, err
	}
	p, err := o.makeVIPPort(lb, v, n, subnets)
	return p, n, err
}

// checkVIPRequest refuses requests for what is not balanced.
func checkVIPRequest(v neutron.Values) error {
	if v.Text("vip_port_id") == "" && v.Text("vip_network_id") == "" && v.Text("vip_subnet_id") == "" {
		return neutron.LBInvalid("VIP must contain one of: vip_port_id, vip_network_id, vip_subnet_id.")
	}
	return nil
}

// checkVIPPolicy refuses a QoS policy that the caller does not see.
func (o *operation) checkVIPPolicy(id string) error {
	if id == "" {
		return nil
	}
	if _, _, err := o.qosPolicies.inTransaction(o, id); err != nil {
		return neutron.LBMissing(neutron.QoSPolicies, "qos_policy", id)
	}
	return nil
}

// takeVIPPort makes the port of a request the load balancer's.
func (o *operation) takeVIPPort(lb *neutron.LoadBalancer, v neutron.Values) (*neutron.Port, *neutron.Network, error) {
	id := v.Text("vip_port_id")
	old, _, err := o.ports.inTransaction(o, id)
	if err != nil {
		return nil, nil, neutron.LBMissing(neutron.Ports, "Port", id)
	}
	own := old.DeviceID == lb.ID && old.DeviceOwner == ownerLoadBalancer // a file makes it first
	if old.DeviceID != "" && !own {
		return nil, nil, neutron.LBInvalid("Port %s is already used by device %s ", id, old.DeviceID)
	}
	if err := errors.Join(o.checkPortInNoTrunk(old), o.checkVIPPolicy(lb.VIPQoSPolicyID)); err != nil {
		return nil, nil, err
	}
	f, err := vipOf(old, requestedAddress(v, "vip_address"), v.Text("vip_subnet_id"))
	if err != nil {
		return nil, nil, err
	}
	n, err := schema.Networks.Need(o.tx, old.NetworkID)
	if err != nil {
		return nil, nil, err
	}
	if err := checkBalanced(n, f.IPAddress); err != nil {
		return nil, nil, err
	}
	p := *old
	lb.GivenPort = &neutron.GivenPort{DeviceID: old.DeviceID, DeviceOwner: old.DeviceOwner}
	lb.VIPPortID, lb.VIPNetworkID, lb.VIPAddress, lb.VIPSubnetID = p.ID, p.NetworkID, f.IPAddress, f.SubnetID
	p.DeviceID, p.DeviceOwner = lb.ID, ownerLoadBalancer
	if lb.VIPQoSPolicyID != "" {
		p.QoSPolicyID = lb.VIPQoSPolicyID
	}
	o.bump(&p.Standard)
	return &p, n, nil
}

// vipOf returns the address of a port that a request for a load balancer means.
func vipOf(p *neutron.Port, address netip.Addr, subnet string) (neutron.FixedIP, error) {
	var none neutron.FixedIP
	fits := slices.DeleteFunc(slices.Clone(p.FixedIPs), func(f neutron.FixedIP) bool {
		return address.IsValid() && f.IPAddress != address || subnet != "" && f.SubnetID != subnet
	})
	switch {
	case subnet != "" && len(fits) == 0:
		return none, neutron.LBInvalid("No VIP address found on the specified VIP port within the specified subnet.")
	case address.IsValid() && len(fits) == 0:
		return none, neutron.LBInvalid("Specified VIP address not found on the specified VIP port.")
	case len(fits) == 1 || subnet != "" && len(fits) > 0:
		return fits[0], nil
	}
	return none, neutron.LBInvalid("VIP port's subnet could not be determined. Please specify either a VIP subnet or address.")
}

// checkBalanced refuses addresses at which nothing can be balanced.
func checkBalanced(n *neutron.Network, address netip.Addr) error {
	if n.Routed() || translate.Uplink(n) {
		return neutron.LBUnsupported("VIP addresses on networks of type %s", n.NetworkType)
	}
	if address.IsValid() && address.Is6() {
		return neutron.LBUnsupported("IPv6 VIP addresses, such as %s", address)
	}
	return nil
}

// vipSubnets returns the network of a new load balancer's port, and the subnets of which the first
// with a free address serves.
func (o *operation) vipSubnets(v neutron.Values) (*neutron.Network, []*neutron.Subnet, error) {
	address := requestedAddress(v, "vip_address")
	if id := v.Text("vip_subnet_id"); id != "" {
		s, _, err := o.subnets.inTransaction(o, id)
		if err != nil {
			return nil, nil, neutron.LBMissing(neutron.Subnets, "Subnet", id)
		}
		if network := v.Text("vip_network_id"); network != "" && network != s.NetworkID {
			return nil, nil, neutron.LBInvalid("Supplied VIP subnet %s is not one of network %s.", id, network)
		}
		n, err := o.networkFor(s.NetworkID)
		if err == nil {
			err = checkBalanced(n, s.CIDR.Addr())
		}
		return n, []*neutron.Subnet{s}, err
	}
	id := v.Text("vip_network_id")
	n, err := o.networkFor(id)
	if err != nil {
		return nil, nil, neutron.LBMissing(neutron.Networks, "Network", id)
	}
	if err := checkBalanced(n, address); err != nil {
		return nil, nil, err
	}
	all := oldestFirst(schema.Subnets.By(o.tx, "network", n.ID))
	if len(all) == 0 {
		return nil, nil, neutron.LBInvalid("Supplied network does not contain a subnet.")
	}
	fit := slices.DeleteFunc(all, func(s *neutron.Subnet) bool {
		return s.IPVersion != 4 || address.IsValid() && !s.CIDR.Contains(address)
	})
	switch {
	case len(fit) > 0:
		return n, fit, nil
	case address.IsValid():
		return nil, nil, neutron.LBInvalid("Supplied network does not contain a subnet for VIP address specified.")
	}
	return nil, nil, neutron.LBUnsupported("VIP addresses on networks without IPv4 subnets")
}

// oldestFirst sorts subnets by age.
func oldestFirst(subnets iter.Seq[*neutron.Subnet]) []*neutron.Subnet {
	return slices.SortedFunc(subnets, func(a, b *neutron.Subnet) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
}

// makeVIPPort makes the port of a load balancer, with an address on the first of the subnets that
// has one.
func (o *operation) makeVIPPort(lb *neutron.LoadBalancer, v neutron.Values, n *neutron.Network, subnets []*neutron.Subnet) (*neutron.Port, error) {
	port := neutron.Values{
		"network_id": n.ID, "project_id": lb.ProjectID, "name": "loadbalancer-" + lb.ID, "admin_state_up": true,
		"device_id": lb.ID, "device_owner": ownerLoadBalancer, "binding:vnic_type": "normal",
	}
	if v.Has("port_security_enabled") {
		port["port_security_enabled"] = v.Flag("port_security_enabled")
	}
	if lb.VIPQoSPolicyID != "" {
		port[attrQoSPolicy] = lb.VIPQoSPolicyID
	}
	p, s, err := o.portOnOne(port, requestedAddress(v, "vip_address"), subnets)
	if err != nil {
		return nil, err
	}
	lb.VIPPortID, lb.VIPNetworkID, lb.VIPSubnetID, lb.VIPAddress = p.ID, n.ID, s.ID, p.FixedIPs[0].IPAddress
	return p, nil
}

// portOnOne makes a port with an address, "any" if it is invalid, on the first of the subnets that
// has one.
func (o *operation) portOnOne(port neutron.Values, address netip.Addr, subnets []*neutron.Subnet) (p *neutron.Port, s *neutron.Subnet, err error) {
	for _, s = range subnets {
		requests := []neutron.FixedIPRequest{{SubnetID: s.ID, IPAddress: address}}
		// On another project's network, an address such as the gateway's would take packets.
		policed := neutron.Values{"network_id": s.NetworkID, "project_id": port["project_id"], "fixed_ips": requests}
		if err := o.authorizeEach(neutron.Ports, []neutron.Values{policed}); err != nil {
			return nil, nil, err
		}
		port["fixed_ips"] = requests
		p, err = o.createPort(context.Background(), port)
		var full *neutron.Error
		if err == nil || !errors.As(err, &full) || full.Type != "IpAddressGenerationFailure" {
			return p, s, err
		}
	}
	return nil, nil, err
}
