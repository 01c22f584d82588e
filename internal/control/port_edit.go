package control

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"heddle/internal/control/addresses"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology/packet"
)

// portEdit is a port that an operation makes or changes as values say.
type portEdit struct {
	*operation
	p *neutron.Port
	v neutron.Values
}

// chooseMAC gives a new port the MAC address it asked for, or a free one.
func (e portEdit) chooseMAC() (err error) {
	m, asked := e.v["mac_address"].(packet.MAC)
	if !asked {
		e.p.MACAddress, err = addresses.MAC(e.p.NetworkID, e.takenMAC, e.random)
		return err
	}
	if used, _ := e.takenMAC(m); used {
		return conflict("MacAddressInUse", "Unable to complete operation for network %s. The mac address %s is in use.", e.p.NetworkID, m)
	}
	e.p.MACAddress = m
	return nil
}

// takenMAC reports whether a port of the network has a MAC address.
func (e portEdit) takenMAC(m packet.MAC) (bool, error) {
	return schema.Ports.CountBy(e.tx, "mac", schema.PortMAC(e.p.NetworkID, m)) > 0, nil
}

// chooseVIPMAC gives the new port of a VIP the MAC address that follows from its network and
// address, unless the request has one: a VIP that is made again at the same address keeps the MAC
// address that clients have in their neighbour caches.
func (e portEdit) chooseVIPMAC() (err error) {
	_, asked := e.v["mac_address"].(packet.MAC)
	if asked || e.p.DeviceOwner != ownerLoadBalancer && e.p.DeviceOwner != ownerVIP || len(e.p.FixedIPs) == 0 {
		return nil
	}
	e.p.MACAddress, err = addresses.MAC(e.p.NetworkID, e.takenMAC, seeded(e.p.NetworkID+" "+e.p.FixedIPs[0].IPAddress.String()))
	e.p.AllowedAddressPairs = pairs(e.v, e.p.MACAddress)
	return err
}

// seeded returns random numbers that are the same for a seed each time.
func seeded(seed string) addresses.Random {
	sum := sha256.Sum256([]byte(seed))
	return rand.New(rand.NewPCG(binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])))
}

// changeMAC gives a port another MAC address, unless the present one is in use.
func (e portEdit) changeMAC() error {
	want, asked := e.v["mac_address"].(packet.MAC)
	switch {
	case asked && want == e.p.MACAddress:
		return nil
	case e.p.BoundHostID != "":
		return conflict("PortBound", "Unable to complete operation on port %s, port is already bound, port type: %s, old_mac %s, new_mac %s.",
			e.p.ID, e.portView(e.tx, e.p).VIFType, e.p.MACAddress, want)
	case strings.HasPrefix(e.p.DeviceOwner, ownerNetworkPrefix) && !e.opts.ServiceMACs:
		return conflict("UnsupportedPortDeviceOwner", "Operation mac address update is not supported for device_owner %s on port %s.",
			e.p.DeviceOwner, e.p.ID)
	}
	return e.chooseMAC()
}

// chooseTunnelKey gives a port the key that names it on its host to other hosts.
func (e portEdit) chooseTunnelKey() (err error) {
	taken := func(key uint32) (bool, error) {
		return schema.Ports.CountBy(e.tx, "tunnel_key", schema.TunnelKey(key)) > 0, nil
	}
	e.p.TunnelKey, err = e.freeTunnelKey(schema.Ports.Count(e.tx), taken)
	return err
}

// freeTunnelKey chooses a tunnel key that is not taken: if ports are to be reproducible, the first
// above least.
func (o *operation) freeTunnelKey(least int, taken func(uint32) (bool, error)) (uint32, error) {
	if o.opts.Ordered {
		return addresses.NextTunnelKey(least, taken)
	}
	return addresses.TunnelKey(taken, o.random)
}

// newAddresses gives a new port its fixed addresses.
func (e portEdit) newAddresses() error {
	if e.p.HostID == "" && e.defersAddresses() {
		e.p.IPAllocation = allocationDeferred
		return nil
	}
	return e.chooseAddresses(addresses.Request{Automatic: !e.v.Has("fixed_ips")}, list[neutron.FixedIPRequest](e.v, "fixed_ips"))
}

// changeAddresses gives a port the addresses of an update, or those of its new MAC address. It
// keeps matching ones; the rest is free at once.
func (e portEdit) changeAddresses(old *neutron.Port) error {
	subnets := slices.Collect(schema.Subnets.By(e.tx, "network", e.p.NetworkID))
	selfMade := func(f neutron.FixedIP) bool {
		i := slices.IndexFunc(subnets, func(s *neutron.Subnet) bool { return s.ID == f.SubnetID })
		return i >= 0 && addresses.AutoAddress(subnets[i]) && !routerInterface(e.p.DeviceOwner)
	}
	own := slices.Clone(old.FixedIPs)
	if e.p.MACAddress != old.MACAddress {
		own = slices.DeleteFunc(own, selfMade)
	}
	requests := list[neutron.FixedIPRequest](e.v, "fixed_ips")
	if !e.v.Has("fixed_ips") {
		for _, f := range own {
			requests = append(requests, neutron.FixedIPRequest(f))
		}
	}
	return e.chooseAddresses(addresses.Request{Own: own}, requests)
}

// chooseAddresses completes r and chooses. What other operations of this process hold is avoided at
// first; if nothing else is left, the commit decides who gets it.
func (e portEdit) chooseAddresses(r addresses.Request, requests []neutron.FixedIPRequest) error {
	r.NetworkID, r.DeviceOwner, r.MAC = e.p.NetworkID, e.p.DeviceOwner, e.p.MACAddress
	// A subnet that comes meanwhile may be one on which the port has to have an address.
	for _, id := range schema.Subnets.Referrers(e.tx, "network", e.p.NetworkID) {
		s, err := schema.Subnets.Need(e.tx, id)
		if err != nil {
			return err
		}
		if e.pending(workDeleteSubnet, id) {
			continue
		}
		r.Subnets = append(r.Subnets, s)
	}
	// Subnets that are meant for certain owners come first.
	slices.SortStableFunc(r.Subnets, func(a, b *neutron.Subnet) int {
		return cmp.Compare(min(1, len(b.ServiceTypes)), min(1, len(a.ServiceTypes)))
	})
	for _, f := range requests {
		r.Entries = append(r.Entries, addresses.Entry{SubnetID: f.SubnetID, IPAddress: f.IPAddress})
	}
	if err := e.checkSubnetsExist(&r); err != nil {
		return err
	}
	random := addresses.Random(e.random)
	if e.opts.Ordered {
		random = addresses.Lowest{}
	}
	ips, err := addresses.FixedIPs(r, &used{e.operation, true}, random)
	var refused *neutron.Error
	if errors.As(err, &refused) && refused.Kind == neutron.Conflict {
		ips, err = addresses.FixedIPs(r, &used{e.operation, false}, random)
	}
	if err != nil {
		return err
	}
	forOthers := func(s *neutron.Subnet) bool { return len(s.ServiceTypes) > 0 }
	if r.Automatic && len(ips) == 0 && len(r.Subnets) > 0 && forOthers(r.Subnets[len(r.Subnets)-1]) {
		return conflict("IpAddressGenerationFailureNoMatchingSubnet",
			"No valid service subnet for the given device owner, network %s, service type %s.", e.p.NetworkID, e.p.DeviceOwner)
	}
	for _, f := range ips {
		e.reserved.take(f.SubnetID, f.IPAddress)
	}
	e.p.FixedIPs = append([]neutron.FixedIP{}, ips...)
	if e.v.Has("fixed_ips") {
		e.p.IPAllocation = ""
		if len(requests) == 0 {
			e.p.IPAllocation = allocationNone
		}
	}
	return nil
}

// checkSubnetsExist refuses subnets that do not exist, or that the caller does not see.
func (e portEdit) checkSubnetsExist(r *addresses.Request) error {
	if len(r.Entries) > 0 && len(r.Subnets) == 0 {
		return invalid("IP allocation requires subnets for network")
	}
	for _, entry := range r.Entries {
		if entry.SubnetID == "" {
			continue
		}
		s, ok := schema.Subnets.Peek(e.tx, entry.SubnetID)
		if !ok || s.NetworkID != r.NetworkID && !e.subnets.sees(e.tx, e.caller, s) {
			return neutron.Subnets.NotFound(entry.SubnetID)
		}
	}
	return nil
}

// used reports addresses of ports, and with avoidReserved those reserved by other operations.
type used struct {
	o             *operation
	avoidReserved bool
}

// Has implements addresses.Used. It reserves an address that it calls free.
func (u *used) Has(subnetID string, a netip.Addr) (bool, error) {
	if schema.Ports.CountBy(u.o.tx, "ip", schema.PortIP(subnetID, a)) > 0 {
		return true, nil
	}
	return !u.o.reserved.take(subnetID, a) && u.avoidReserved, nil
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
	if u.avoidReserved {
		return u.o.reserved.others(subnetID, first, last, taken), nil
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
		return interfaceTaken(p, p.InterfaceName, taken.By)
	}
	return err
}

// interfaceTaken refuses to bind a port to the interface of another on the host that it names.
func interfaceTaken(p *neutron.Port, name, by string) error {
	return conflict("PortBindingError", "Binding for port %s on host %s could not be created: interface %s carries port %s. "+
		"Name another in binding:profile.interface_name or unbind that port.", p.ID, p.HostID, name, by)
}
