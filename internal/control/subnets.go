package control

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"reflect"
	"slices"

	"heddle/internal/control/addresses"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// createSubnet makes a subnet. One with automatic addresses gives every port of its network one.
func (o *operation) createSubnet(_ context.Context, v neutron.Values) (*neutron.Subnet, error) {
	s, err := o.newSubnet(v)
	if err != nil {
		return nil, err
	}
	// The network's revision rises, so subnets that are made at once are held against each other.
	if err := o.bumpNetwork(s.NetworkID); err != nil {
		return nil, err
	}
	others := slices.Collect(schema.Subnets.By(o.tx, "network", s.NetworkID))
	if err := cmp.Or(checkOverlap(s, others), o.checkPoolAffinity(s, others)); err != nil {
		return nil, err
	}
	s.Standard = o.standard(v, 0)
	if err := o.checkSubnetSegment(s, nil); err != nil {
		return nil, err
	}
	if err := schema.Subnets.Put(o.tx, s); err != nil {
		return nil, err
	}
	n, err := schema.Networks.Get(o.tx, s.NetworkID)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(checkRoutedSubnet(s, n), o.calico().checkOverlap(s, n)); err != nil {
		return nil, err
	}
	if err := o.putSubnetMeaning(s, n, nil); err != nil {
		return nil, err
	}
	if !addresses.AutoAddress(s) {
		return s, nil
	}
	return s, o.addAutomatic(s, n)
}

// newSubnet makes the subnet that a request describes, and checks it by itself.
func (o *operation) newSubnet(v neutron.Values) (*neutron.Subnet, error) {
	pool, err := o.poolFor(v)
	if err != nil {
		return nil, err
	}
	cidr, chosen, err := o.rangeFor(pool, v)
	if err != nil {
		return nil, err
	}
	s := &neutron.Subnet{
		NetworkID:       v.Text("network_id"),
		IPVersion:       number(v, "ip_version"),
		CIDR:            cidr,
		GatewayIP:       gateway(v),
		DNSNameservers:  list[netip.Addr](v, "dns_nameservers"),
		HostRoutes:      list[neutron.HostRoute](v, "host_routes"),
		EnableDHCP:      v.Flag("enable_dhcp"),
		IPv6RAMode:      v.Text("ipv6_ra_mode"),
		IPv6AddressMode: v.Text("ipv6_address_mode"),
		ServiceTypes:    list[string](v, "service_types"),
		SegmentID:       v.Text("segment_id"),
	}
	if err := o.opts.checkSubnet(s, nil); err != nil {
		return nil, err
	}
	if pool != nil {
		s.SubnetPoolID = pool.ID
	}
	if a, ok := defaultGateway(cidr, chosen); ok && !v.Has("gateway_ip") {
		s.GatewayIP = &a
	}
	if !v.Has("allocation_pools") {
		s.AllocationPools = addresses.DefaultPools(cidr, s.GatewayIP)
		return s, nil
	}
	s.AllocationPools = list[neutron.Pool](v, "allocation_pools")
	if err := checkPools(s.AllocationPools, cidr); err != nil {
		return nil, err
	}
	return s, checkGatewayOutside(s.GatewayIP, s.AllocationPools)
}

// defaultGateway returns the gateway of a new subnet that names none: of a range that the server
// has chosen, in IPv6 too, the first address after the network's, as in the reference.
func defaultGateway(cidr netip.Prefix, chosen bool) (netip.Addr, bool) {
	if chosen && !cidr.IsSingleIP() {
		return cidr.Addr().Next(), true
	}
	return addresses.DefaultGateway(cidr)
}

// gateway returns the gateway that a request names, nil for none.
func gateway(v neutron.Values) *netip.Addr {
	if a, ok := v["gateway_ip"].(netip.Addr); ok {
		return &a
	}
	return nil
}

// list returns a list attribute as a new slice, empty where absent or null.
func list[T any](v neutron.Values, name string) []T {
	l, _ := v[name].([]T)
	return append([]T{}, l...)
}

// addAutomatic gives the ports that are on the network their addresses on a new subnet.
func (o *operation) addAutomatic(s *neutron.Subnet, n *neutron.Network) error {
	for _, p := range o.portsOf(n.ID) {
		if routerInterface(p.DeviceOwner) {
			continue
		}
		changed := *p
		changed.FixedIPs = append(slices.Clone(p.FixedIPs), neutron.FixedIP{SubnetID: s.ID, IPAddress: addresses.EUI64(s.CIDR, p.MACAddress)})
		o.bump(&changed.Standard)
		if err := o.putPort(&changed, n); err != nil {
			return err
		}
	}
	return nil
}

// update changes a subnet.
func (s subnets) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.SubnetView, error) {
	pending, routers, balancers := "", false, false
	view, err := transact(ctx, s.service, c, func(o *operation) (*neutron.SubnetView, error) {
		pending, routers, balancers = "", false, false
		old, n, err := o.subnetToChange(id, neutron.Update, v, ifMatch)
		if err != nil {
			return nil, err
		}
		if err := o.refuseChange(n.ID); err != nil {
			return nil, err
		}
		if o.pending(workDeleteSubnet, id) {
			return nil, subnetInUse(id)
		}
		sub := *old
		if err := o.applySubnet(&sub, old, v); err != nil {
			return nil, err
		}
		if err := errors.Join(checkRoutedSubnet(&sub, n), o.calico().checkNoMachine(&sub, n)); err != nil {
			return nil, err
		}
		if reflect.DeepEqual(&sub, old) {
			return s.answerTo(o.tx, c, old, neutron.Query{}), nil
		}
		o.bump(&sub.Standard)
		if err := schema.Subnets.Put(o.tx, &sub); err != nil {
			return nil, err
		}
		if err := o.bumpNetwork(n.ID); err != nil {
			return nil, err
		}
		if n.Routed() && (sub.EnableDHCP != old.EnableDHCP || !reflect.DeepEqual(sub.GatewayIP, old.GatewayIP)) {
			later, err := o.calico().deriveEndpoints(schema.Ports.Referrers(o.tx, "subnet", id), n)
			if err != nil {
				return nil, err
			}
			if later {
				pending = n.ID
			}
		}
		if err := o.deriveSubnet(&sub, n); err != nil {
			return nil, err
		}
		if !reflect.DeepEqual(sub.GatewayIP, old.GatewayIP) || !reflect.DeepEqual(sub.HostRoutes, old.HostRoutes) {
			if balancers, err = o.deriveLoadBalancersOn(id); err != nil {
				return nil, err
			}
		}
		if !reflect.DeepEqual(sub.GatewayIP, old.GatewayIP) {
			if routers, err = o.deriveRouterPorts(id); err != nil {
				return nil, err
			}
		}
		return s.answerTo(o.tx, c, &sub, neutron.Query{}), nil
	})
	if pending != "" && err == nil {
		s.service.carryOut(ctx, workDeriveEndpoints, pending)
	}
	if routers && err == nil {
		s.service.carryOut(ctx, workDeriveRouterPorts, id)
	}
	if balancers && err == nil {
		s.service.carryOut(ctx, workDeriveLoadBalancers, id)
	}
	return view, err
}

// applySubnet sets what an update names, and checks it against the rest.
func (o *operation) applySubnet(s, old *neutron.Subnet, v neutron.Values) error {
	applyStandard(&s.Standard, v)
	if v.Has("gateway_ip") {
		s.GatewayIP = gateway(v)
	}
	setList(&s.DNSNameservers, v, "dns_nameservers")
	setList(&s.HostRoutes, v, "host_routes")
	setFlag(&s.EnableDHCP, v, "enable_dhcp")
	setList(&s.ServiceTypes, v, "service_types")
	setText(&s.SegmentID, v, "segment_id")
	if err := o.checkSubnetSegment(s, old); err != nil {
		return err
	}
	if err := o.opts.checkSubnet(s, old); err != nil {
		return err
	}
	moved := !reflect.DeepEqual(s.GatewayIP, old.GatewayIP)
	if moved {
		if err := o.checkGatewayFree(old); err != nil {
			return err
		}
	}
	if v.Has("allocation_pools") {
		s.AllocationPools = list[neutron.Pool](v, "allocation_pools")
		if err := checkPools(s.AllocationPools, s.CIDR); err != nil {
			return err
		}
	}
	if !moved && !v.Has("allocation_pools") {
		return nil
	}
	return checkGatewayOutside(s.GatewayIP, s.AllocationPools)
}

// checkGatewayFree refuses to move a gateway that a router has.
func (o *operation) checkGatewayFree(s *neutron.Subnet) error {
	if s.GatewayIP == nil {
		return nil
	}
	for p := range schema.Ports.By(o.tx, "ip", schema.PortIP(s.ID, *s.GatewayIP)) {
		if routerInterface(p.DeviceOwner) {
			return conflict("GatewayIpInUse", "Current gateway ip %s already in use by port %s. Unable to update.", *s.GatewayIP, p.ID)
		}
	}
	return nil
}

// delete deletes a subnet. Ports lose automatic addresses, in steps if many; others refuse.
func (s subnets) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	pending, err := transact(ctx, s.service, c, func(o *operation) (pending bool, err error) {
		sub, _, err := o.subnetToChange(id, neutron.Delete, nil, ifMatch)
		if err != nil {
			return false, err
		}
		if o.pending(workDeleteSubnet, id) {
			return true, nil
		}
		ports := schema.Ports.Referrers(o.tx, "subnet", id)
		for _, portID := range ports {
			p, err := schema.Ports.Get(o.tx, portID)
			if err != nil {
				return false, err
			}
			if routerInterface(p.DeviceOwner) || !addresses.AutoAddress(sub) && !goesWithNetwork(p.DeviceOwner) {
				return false, subnetInUse(id)
			}
		}
		if len(ports) > stepObjects {
			return true, o.begin(workDeleteSubnet, id)
		}
		_, err = steps{o}.deleteSubnet(id)
		return false, err
	})
	if pending && err == nil {
		s.service.carryOut(ctx, workDeleteSubnet, id)
	}
	return err
}

func subnetInUse(id string) error {
	return conflict("SubnetInUse",
		"Unable to complete operation on subnet %s: One or more ports have an IP allocation from this subnet.", id)
}

// removeSubnet deletes a subnet with what is derived from it.
func (o *operation) removeSubnet(id string, n *neutron.Network) error {
	s, err := schema.Subnets.Get(o.tx, id)
	if err != nil {
		return err
	}
	if err := errors.Join(o.dropBundle(kindSubnet, id), o.calico().dropDHCP(id, n)); err != nil {
		return err
	}
	if s.SubnetPoolID != "" {
		if err := o.space(s.SubnetPoolID).give(s.CIDR); err != nil {
			return err
		}
	}
	return schema.Subnets.Delete(o.tx, id)
}

// subnetToChange finds a subnet and its network for an update or a delete.
func (o *operation) subnetToChange(id string, op neutron.Op, v neutron.Values, ifMatch *int64) (*neutron.Subnet, *neutron.Network, error) {
	s, err := o.subnets.toChange(o, id, op, v, ifMatch)
	if err != nil {
		return nil, nil, err
	}
	n, err := schema.Networks.Get(o.tx, s.NetworkID)
	return s, n, err
}

func subnetOwner(s *neutron.Subnet, n *neutron.Network) neutron.Owner {
	return neutron.Owner{ProjectID: s.ProjectID, NetworkProjectID: n.ProjectID}
}

// deriveSubnet stores what is derived from a subnet now. The old bundle is read as a whole, so that
// a DHCP port and a subnet that change at once are derived one after the other.
func (o *operation) deriveSubnet(s *neutron.Subnet, n *neutron.Network) error {
	id := schema.BundleID(topology.Owner{Kind: kindSubnet, ID: s.ID})
	if _, err := schema.Bundles.Get(o.tx, id); err != nil {
		return err
	}
	return o.putSubnetMeaning(s, n, slices.Collect(schema.Ports.By(o.tx, "dhcp_subnet", s.ID)))
}

// putSubnetMeaning stores what a subnet of network n means to packets; servers are its DHCP ports.
func (o *operation) putSubnetMeaning(s *neutron.Subnet, n *neutron.Network, servers []*neutron.Port) error {
	return errors.Join(o.putBundle(kindSubnet, s.ID, translate.Subnet(s, n, servers, o.opts.DNSDomain)), o.calico().deriveDHCP(s, n))
}
