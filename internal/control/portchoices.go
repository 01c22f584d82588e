package control

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"heddle/internal/control/addresses"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology/packet"
)

// chooseMAC gives a new port the MAC address it asked for, or a free one.
func (o *operation) chooseMAC(p *neutron.Port, v neutron.Values) (err error) {
	taken := func(m packet.MAC) (bool, error) {
		return schema.Ports.CountBy(o.tx, "mac", schema.PortMAC(p.NetworkID, m)) > 0, nil
	}
	m, asked := v["mac_address"].(packet.MAC)
	if !asked {
		p.MACAddress, err = addresses.MAC(p.NetworkID, taken, o.random)
		return err
	}
	if used, _ := taken(m); used {
		return conflict("MacAddressInUse", "Unable to complete operation for network %s. The mac address %s is in use.", p.NetworkID, m)
	}
	p.MACAddress = m
	return nil
}

// changeMAC gives a port another MAC address, unless a machine or a service knows the one it has.
func (o *operation) changeMAC(p *neutron.Port, v neutron.Values) error {
	want, asked := v["mac_address"].(packet.MAC)
	switch {
	case asked && want == p.MACAddress:
		return nil
	case p.BoundHostID != "":
		return conflict("PortBound", "Unable to complete operation on port %s, port is already bound, port type: %s, old_mac %s, new_mac %s.",
			p.ID, o.portView(o.tx, p).VIFType, p.MACAddress, want)
	case strings.HasPrefix(p.DeviceOwner, ownerNetworkPrefix):
		return conflict("UnsupportedPortDeviceOwner", "Operation mac address update is not supported for device_owner %s on port %s.",
			p.DeviceOwner, p.ID)
	}
	return o.chooseMAC(p, v)
}

// chooseTunnelKey gives a port the key that names it on its host to other hosts.
func (o *operation) chooseTunnelKey(p *neutron.Port) (err error) {
	taken := func(key uint32) (bool, error) {
		return schema.Ports.CountBy(o.tx, "tunnel_key", schema.TunnelKey(key)) > 0, nil
	}
	if o.opts.Ordered {
		p.TunnelKey, err = addresses.NextTunnelKey(schema.Ports.Count(o.tx), taken)
		return err
	}
	p.TunnelKey, err = addresses.TunnelKey(taken, o.random)
	return err
}

// newAddresses gives a new port its fixed addresses.
func (o *operation) newAddresses(p *neutron.Port, v neutron.Values) error {
	return o.chooseAddresses(p, addresses.Request{Automatic: !v.Has("fixed_ips")}, v)
}

// changeAddresses gives a port the addresses that an update asks for, or those of its new MAC address. It keeps what it
// has where that is what was asked for; the rest is free for others at once.
func (o *operation) changeAddresses(p, old *neutron.Port, v neutron.Values) error {
	subnets := slices.Collect(schema.Subnets.By(o.tx, "network", p.NetworkID))
	selfMade := func(f neutron.FixedIP) bool {
		i := slices.IndexFunc(subnets, func(s *neutron.Subnet) bool { return s.ID == f.SubnetID })
		return i >= 0 && addresses.AutoAddress(subnets[i]) && !routerInterface(p.DeviceOwner)
	}
	own := slices.Clone(old.FixedIPs)
	if p.MACAddress != old.MACAddress {
		own = slices.DeleteFunc(own, selfMade)
	}
	if !v.Has("fixed_ips") {
		v = neutron.Values{"fixed_ips": asRequests(own)}
	}
	return o.chooseAddresses(p, addresses.Request{Own: own}, v)
}

// asRequests asks for the addresses that are there.
func asRequests(ips []neutron.FixedIP) []neutron.FixedIPRequest {
	requests := make([]neutron.FixedIPRequest, len(ips))
	for i, f := range ips {
		requests[i] = neutron.FixedIPRequest(f)
	}
	return requests
}

// chooseAddresses completes r and chooses. What other operations of this process hold is avoided at first; if nothing
// else is left, the commit decides who gets it.
func (o *operation) chooseAddresses(p *neutron.Port, r addresses.Request, v neutron.Values) error {
	r.NetworkID, r.DeviceOwner, r.MAC = p.NetworkID, p.DeviceOwner, p.MACAddress
	// A subnet that comes meanwhile may be one on which the port has to have an address.
	for _, id := range schema.Subnets.Referrers(o.tx, "network", p.NetworkID) {
		s, err := schema.Subnets.Need(o.tx, id)
		if err != nil {
			return err
		}
		if o.pending(workDeleteSubnet, id) {
			continue
		}
		r.Subnets = append(r.Subnets, s)
	}
	// Subnets that are meant for certain owners come first.
	slices.SortStableFunc(r.Subnets, func(a, b *neutron.Subnet) int {
		return cmp.Compare(min(1, len(b.ServiceTypes)), min(1, len(a.ServiceTypes)))
	})
	for _, f := range list[neutron.FixedIPRequest](v, "fixed_ips") {
		r.Entries = append(r.Entries, addresses.Entry{SubnetID: f.SubnetID, IPAddress: f.IPAddress})
	}
	if err := o.checkSubnetsExist(&r); err != nil {
		return err
	}
	random := addresses.Random(o.random)
	if o.opts.Ordered {
		random = addresses.Lowest{}
	}
	ips, err := addresses.FixedIPs(r, &used{o, true}, random)
	var refused *neutron.Error
	if errors.As(err, &refused) && refused.Kind == neutron.Conflict {
		ips, err = addresses.FixedIPs(r, &used{o, false}, random)
	}
	if err != nil {
		return err
	}
	forOthers := func(s *neutron.Subnet) bool { return len(s.ServiceTypes) > 0 }
	if r.Automatic && len(ips) == 0 && len(r.Subnets) > 0 && forOthers(r.Subnets[len(r.Subnets)-1]) {
		return conflict("IpAddressGenerationFailureNoMatchingSubnet",
			"No valid service subnet for the given device owner, network %s, service type %s.", p.NetworkID, p.DeviceOwner)
	}
	for _, f := range ips {
		o.hold.take(f.SubnetID, f.IPAddress)
	}
	p.FixedIPs = append([]neutron.FixedIP{}, ips...)
	return nil
}

// checkSubnetsExist tells subnets that are nowhere from those of other networks.
func (o *operation) checkSubnetsExist(r *addresses.Request) error {
	if len(r.Entries) > 0 && len(r.Subnets) == 0 {
		return invalid("IP allocation requires subnets for network")
	}
	for _, e := range r.Entries {
		if e.SubnetID == "" {
			continue
		}
		if _, ok := schema.Subnets.Peek(o.tx, e.SubnetID); !ok {
			return neutron.Subnets.NotFound(e.SubnetID)
		}
	}
	return nil
}

// used are the addresses that ports have, and if avoidHeld those that other operations are about to give.
type used struct {
	o         *operation
	avoidHeld bool
}

// Has implements addresses.Used. An address it calls free is held for this operation.
func (u *used) Has(subnetID string, a netip.Addr) (bool, error) {
	if schema.Ports.CountBy(u.o.tx, "ip", schema.PortIP(subnetID, a)) > 0 {
		return true, nil
	}
	return !u.o.hold.take(subnetID, a) && u.avoidHeld, nil
}

// Between implements addresses.Used.
func (u *used) Between(subnetID string, first, last netip.Addr) ([]netip.Addr, error) {
	var taken []netip.Addr
	for p := range schema.Ports.By(u.o.tx, "subnet", subnetID) {
		for _, f := range p.FixedIPs {
			if f.SubnetID == subnetID && !f.IPAddress.Less(first) && !last.Less(f.IPAddress) {
				taken = append(taken, f.IPAddress)
			}
		}
	}
	if u.avoidHeld {
		return u.o.hold.others(subnetID, first, last, taken), nil
	}
	slices.SortFunc(taken, netip.Addr.Compare)
	return slices.Compact(taken), nil
}

// portTaken turns what the store refuses about a port into what Neutron says.
func portTaken(p *neutron.Port, err error) error {
	var taken *records.TakenError
	if !errors.As(err, &taken) {
		return err
	}
	switch taken.Name {
	case "mac":
		return conflict("MacAddressInUse", "Unable to complete operation for network %s. The mac address %s is in use.", p.NetworkID, p.MACAddress)
	case "ip":
		for _, f := range p.FixedIPs {
			if schema.PortIP(f.SubnetID, f.IPAddress) == taken.Value {
				return conflict("IpAddressAlreadyAllocated", "IP address %s already allocated in subnet %s", f.IPAddress, f.SubnetID)
			}
		}
	case "interface":
		return conflict("PortBindingError", "Binding for port %s on host %s could not be created: interface %s carries port %s. "+
			"Name another in binding:profile.interface_name or unbind that port.", p.ID, p.HostID, p.InterfaceName, taken.By)
	}
	return err
}
