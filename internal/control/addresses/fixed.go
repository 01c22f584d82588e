package addresses

import (
	"net/netip"
	"slices"
	"strings"

	"heddle/internal/neutron"
	"heddle/internal/topology/packet"
)

// Entry is one element of a request's fixed_ips: a subnet, an address, or both.
type Entry struct {
	SubnetID  string     // "" = find the subnet of IPAddress
	IPAddress netip.Addr // not valid = choose on SubnetID
}

// Request describes the addresses that a port needs.
type Request struct {
	NetworkID   string
	Subnets     []*neutron.Subnet // of the network, all of them; automatic choice tries them in this order
	DeviceOwner string
	MAC         packet.MAC
	Automatic   bool    // fixed_ips was absent: one address of each family
	Entries     []Entry // otherwise what fixed_ips lists, [] for none
	// Own are the addresses that the port has already: they are not taken for it, and an entry that
	// names a subnet alone keeps the one there.
	Own []neutron.FixedIP
}

// FixedIPs chooses the addresses of a port (neutron-api §5): those of the entries, in order, then
// those that the machine forms itself. Errors are Neutron's own, or those of used.
func FixedIPs(r Request, used Used, random Random) ([]neutron.FixedIP, error) {
	c := chooser{Request: r, used: used, random: random}
	if r.Automatic {
		for _, version := range []int{4, 6} {
			if err := c.automatic(version); err != nil {
				return nil, err
			}
		}
	}
	// What is named is settled first, so that no choice takes it.
	c.chosen = append(c.chosen, make([]neutron.FixedIP, len(r.Entries))...)
	for i, e := range r.Entries {
		if !e.IPAddress.IsValid() {
			continue
		}
		f, err := c.named(e)
		if err != nil {
			return nil, err
		}
		c.chosen[i] = f
	}
	for i, e := range r.Entries {
		if e.IPAddress.IsValid() {
			continue
		}
		f, err := c.onSubnet(e)
		if err != nil {
			return nil, err
		}
		c.chosen[i] = f
	}
	if err := c.selfMade(); err != nil {
		return nil, err
	}
	return c.chosen, nil
}

// chooser holds one choice while it is made.
type chooser struct {
	Request
	used   Used
	random Random
	chosen []neutron.FixedIP
}

// automatic takes an address of one of the subnets of the family that hands out addresses.
func (c *chooser) automatic(version int) error {
	var eligible []*neutron.Subnet
	for _, s := range c.Subnets {
		if s.IPVersion == version && !AutoAddress(s) && serves(s, c.DeviceOwner) {
			eligible = append(eligible, s)
		}
	}
	for _, s := range eligible {
		a, ok, err := Pick(s, c, c.random)
		if err != nil {
			return err
		}
		if ok {
			c.chosen = append(c.chosen, neutron.FixedIP{SubnetID: s.ID, IPAddress: a})
			return nil
		}
	}
	if len(eligible) > 0 {
		return neutron.Errorf(neutron.Conflict, "IpAddressGenerationFailure",
			"No more IP addresses available on network %s.", c.NetworkID)
	}
	return nil
}

// named takes the address that an entry names.
func (c *chooser) named(e Entry) (neutron.FixedIP, error) {
	s, err := c.subnetOf(e)
	if err != nil {
		return neutron.FixedIP{}, err
	}
	f := neutron.FixedIP{SubnetID: s.ID, IPAddress: e.IPAddress}
	if !Usable(s.CIDR, e.IPAddress, c.DeviceOwner) {
		return f, neutron.Errorf(neutron.Invalid, "InvalidIpForSubnet",
			"IP address %s is not a valid IP for the specified subnet.", e.IPAddress)
	}
	if slices.Contains(c.chosen, f) {
		return f, neutron.Errorf(neutron.Invalid, "HTTPBadRequest",
			"Invalid input for fixed_ips. Reason: Duplicate IP address '%s'.", e.IPAddress)
	}
	if AutoAddress(s) && !router(c.DeviceOwner) && e.IPAddress != EUI64(s.CIDR, c.MAC) && !slices.Contains(c.Own, f) {
		return f, neutron.Errorf(neutron.Invalid, "AllocationOnAutoAddressSubnet", "IPv6 address %s cannot be directly "+
			"assigned to a port on subnet %s as the subnet is configured for automatic addresses", e.IPAddress, s.ID)
	}
	return f, c.refuseTaken(f)
}

// subnetOf finds the subnet that an entry names, or in which its address lies.
func (c *chooser) subnetOf(e Entry) (*neutron.Subnet, error) {
	for _, s := range c.Subnets {
		if e.SubnetID == s.ID || e.SubnetID == "" && s.CIDR.Contains(e.IPAddress) {
			return s, nil
		}
	}
	if e.SubnetID == "" {
		return nil, neutron.Errorf(neutron.Invalid, "InvalidIpForNetwork",
			"IP address %s is not a valid IP for any of the subnets on the specified network.", e.IPAddress)
	}
	return nil, neutron.Errorf(neutron.Invalid, "InvalidInput", "Invalid input for operation: Failed to create port on "+
		"network %s, because fixed_ips included invalid subnet %s.", c.NetworkID, e.SubnetID)
}

// onSubnet takes any address of the subnet that an entry names.
func (c *chooser) onSubnet(e Entry) (neutron.FixedIP, error) {
	if e.SubnetID == "" {
		return neutron.FixedIP{}, neutron.Errorf(neutron.Invalid, "InvalidInput",
			"Invalid input for operation: IP allocation requires subnet_id or ip_address.")
	}
	s, err := c.subnetOf(e)
	if err != nil {
		return neutron.FixedIP{}, err
	}
	for _, own := range c.Own {
		if own.SubnetID == s.ID && !slices.Contains(c.chosen, own) {
			return own, nil
		}
	}
	if AutoAddress(s) && !router(c.DeviceOwner) {
		f := neutron.FixedIP{SubnetID: s.ID, IPAddress: EUI64(s.CIDR, c.MAC)}
		return f, c.refuseTaken(f)
	}
	a, ok, err := Pick(s, c, c.random)
	if err != nil {
		return neutron.FixedIP{}, err
	}
	if !ok {
		return neutron.FixedIP{}, neutron.Errorf(neutron.Conflict, "IpAddressGenerationFailureForSubnet",
			"No more IP addresses available for subnet %s.", s.ID)
	}
	return neutron.FixedIP{SubnetID: s.ID, IPAddress: a}, nil
}

// selfMade adds the addresses that the machine forms itself. Routers form none.
func (c *chooser) selfMade() error {
	if router(c.DeviceOwner) {
		return nil
	}
	for _, s := range c.Subnets {
		if !AutoAddress(s) {
			continue
		}
		f := neutron.FixedIP{SubnetID: s.ID, IPAddress: EUI64(s.CIDR, c.MAC)}
		if slices.Contains(c.chosen, f) {
			continue
		}
		if err := c.refuseTaken(f); err != nil {
			return err
		}
		c.chosen = append(c.chosen, f)
	}
	return nil
}

func (c *chooser) refuseTaken(f neutron.FixedIP) error {
	if slices.Contains(c.Own, f) {
		return nil
	}
	taken, err := c.used.Has(f.SubnetID, f.IPAddress)
	if err != nil {
		return err
	}
	if taken {
		return neutron.Errorf(neutron.Conflict, "IpAddressAlreadyAllocated",
			"IP address %s already allocated in subnet %s", f.IPAddress, f.SubnetID)
	}
	return nil
}

// Has makes the chooser the Used of its own picks: what this port has been given is taken too.
func (c *chooser) Has(subnetID string, a netip.Addr) (bool, error) {
	if slices.Contains(c.chosen, neutron.FixedIP{SubnetID: subnetID, IPAddress: a}) {
		return true, nil
	}
	return c.used.Has(subnetID, a)
}

// Between adds what this port has been given.
func (c *chooser) Between(subnetID string, first, last netip.Addr) ([]netip.Addr, error) {
	taken, err := c.used.Between(subnetID, first, last)
	if err != nil {
		return nil, err
	}
	taken = slices.Clone(taken)
	for _, f := range c.chosen {
		if f.SubnetID == subnetID && !f.IPAddress.Less(first) && !last.Less(f.IPAddress) {
			taken = append(taken, f.IPAddress)
		}
	}
	slices.SortFunc(taken, netip.Addr.Compare)
	return slices.Compact(taken), nil
}

// AutoAddress reports whether machines form their own addresses on the subnet: one of its modes is
// slaac or dhcpv6-stateless, as in the reference.
func AutoAddress(s *neutron.Subnet) bool {
	return selfMade(s.IPv6AddressMode) || selfMade(s.IPv6RAMode)
}

func selfMade(mode string) bool { return mode == "slaac" || mode == "dhcpv6-stateless" }

// serves reports whether ports of the owner may be given addresses of the subnet unasked.
func serves(s *neutron.Subnet, deviceOwner string) bool {
	if len(s.ServiceTypes) == 0 {
		return true
	}
	return slices.ContainsFunc(s.ServiceTypes, func(t string) bool {
		return t != "" && strings.HasPrefix(deviceOwner, t)
	})
}

// router reports whether the port is a router's, which may have a prefix's anycast address.
func router(deviceOwner string) bool {
	return strings.HasPrefix(deviceOwner, "network:router_") || deviceOwner == "network:ha_router_replicated_interface"
}
