package control

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// A request names a gateway by its network and, where a router has several there, by its addresses.
// The first gateway is external_gateway_info; the order of the others is that in which they came.

// addGateways gives a router more gateways.
func (s routers) addGateways(ctx context.Context, c neutron.Caller, id string, want []*neutron.GatewayRequest) (*neutron.RouterView, error) {
	return s.editGateways(ctx, c, id, "add_external_gateways", want, func(e routerEdit) (changed bool, err error) {
		for _, g := range want {
			if err := e.addAnother(g); err != nil {
				return false, err
			}
		}
		return len(want) > 0, nil
	})
}

// updateGateways makes a router's gateways those of a request, in its order. Gateways that it names
// stay, with the addresses and SNAT that it asks for.
func (s routers) updateGateways(ctx context.Context, c neutron.Caller, id string, want []*neutron.GatewayRequest) (*neutron.RouterView, error) {
	return s.editGateways(ctx, c, id, "update_external_gateways", want, func(e routerEdit) (bool, error) { return e.replaceGateways(want) })
}

// removeGateways takes gateways from a router: each those that a request describes by its network
// and, if it likes, by addresses or subnets.
func (s routers) removeGateways(ctx context.Context, c neutron.Caller, id string, which []*neutron.GatewayRequest) (*neutron.RouterView, error) {
	return s.editGateways(ctx, c, id, "remove_external_gateways", nil, func(e routerEdit) (bool, error) {
		for _, g := range which {
			i, err := e.matchGateway(g)
			if err == nil {
				err = e.removeGateway(i)
			}
			if err != nil {
				return false, err
			}
		}
		return len(which) > 0, nil
	})
}

// editGateways changes the gateways of a router. limited are requests whose keys need rights.
func (s routers) editGateways(ctx context.Context, c neutron.Caller, id, action string, limited []*neutron.GatewayRequest,
	change func(e routerEdit) (changed bool, err error)) (*neutron.RouterView, error) {
	return transact(ctx, s.service, c, func(o *operation) (*neutron.RouterView, error) {
		old, owner, err := s.inTransaction(o, id)
		if err != nil {
			return nil, err
		}
		if err := neutron.AuthorizeGateways(c, action, owner, limited); err != nil {
			return nil, err
		}
		r := *old
		e := routerEdit{o, &r}
		changed, err := change(e)
		if err != nil {
			return nil, err
		}
		if err := e.applyNDPProxy(old, nil); err != nil {
			return nil, err
		}
		if !changed {
			return routerView(o.tx, old, false), nil
		}
		o.bump(&r.Standard)
		if err := e.put(true); err != nil {
			return nil, err
		}
		return routerView(o.tx, &r, false), nil
	})
}

// addAnother gives the router a gateway behind those that it has.
func (e routerEdit) addAnother(want *neutron.GatewayRequest) error {
	n, err := e.externalNetwork(want)
	if err != nil {
		return err
	}
	return e.addGateway(want, n, want.PortID, len(e.r.Gateways))
}

// replaceGateways removes the gateways that a request does not name, changes those that it names,
// and adds the others.
func (e routerEdit) replaceGateways(want []*neutron.GatewayRequest) (changed bool, err error) {
	before := slices.Clone(e.r.Gateways)
	named, err := e.nameGateways(want)
	if err != nil {
		return false, err
	}
	for _, g := range before {
		if slices.Contains(named, g.PortID) {
			continue
		}
		if err := e.removeGateway(e.gatewayAt(g.PortID)); err != nil {
			return false, err
		}
	}
	for i, g := range want {
		if named[i] == "" {
			if err := e.addAnother(g); err != nil {
				return false, err
			}
			named[i] = e.r.Gateways[len(e.r.Gateways)-1].PortID
			continue
		}
		other, err := e.updateGateway(e.gatewayAt(named[i]), g)
		if err != nil {
			return false, err
		}
		changed = changed || other
	}
	place := func(g neutron.RouterGateway) int { return slices.Index(named, g.PortID) }
	e.r.Gateways = slices.Clone(e.r.Gateways)
	slices.SortFunc(e.r.Gateways, func(a, b neutron.RouterGateway) int { return place(a) - place(b) })
	return changed || !slices.Equal(before, e.r.Gateways), nil
}

// gatewayAt returns the index of the gateway with a port.
func (e routerEdit) gatewayAt(port string) int {
	return slices.IndexFunc(e.r.Gateways, func(g neutron.RouterGateway) bool { return g.PortID == port })
}

// nameGateways returns, for each request, the port of the gateway that it names, "" if the router
// has none: the one with its addresses or else the next to its network.
func (e routerEdit) nameGateways(want []*neutron.GatewayRequest) ([]string, error) {
	named := make([]string, len(want))
	for i, w := range want {
		if len(w.FixedIPs) == 0 {
			continue
		}
		var err error
		if named[i], err = e.nextGateway(named, w.NetworkID, w.FixedIPs); err != nil {
			return nil, err
		}
	}
	for i, w := range want {
		if named[i] != "" {
			continue
		}
		var err error
		if named[i], err = e.nextGateway(named, w.NetworkID, nil); err != nil {
			return nil, err
		}
	}
	return named, nil
}

// nextGateway returns the port of the first gateway to a network that has addresses and is not yet
// named, or "".
func (e routerEdit) nextGateway(named []string, networkID string, ips []neutron.FixedIPRequest) (string, error) {
	for _, g := range e.r.Gateways {
		if g.NetworkID != networkID || slices.Contains(named, g.PortID) {
			continue
		}
		has, err := e.hasAddresses(g, ips)
		if err != nil {
			return "", err
		}
		if has {
			return g.PortID, nil
		}
	}
	return "", nil
}

// hasAddresses reports whether a gateway has addresses, or any on a subnet where none is named.
func (e routerEdit) hasAddresses(g neutron.RouterGateway, ips []neutron.FixedIPRequest) (bool, error) {
	p, err := schema.Ports.Get(e.tx, g.PortID)
	if err != nil {
		return false, err
	}
	lacks := func(f neutron.FixedIPRequest) bool {
		return !slices.ContainsFunc(p.FixedIPs, func(a neutron.FixedIP) bool {
			return (f.SubnetID == "" || f.SubnetID == a.SubnetID) && (!f.IPAddress.IsValid() || f.IPAddress == a.IPAddress)
		})
	}
	return !slices.ContainsFunc(ips, lacks), nil
}

// updateGateway gives a gateway the addresses and SNAT of a request for its network.
func (e routerEdit) updateGateway(i int, want *neutron.GatewayRequest) (changed bool, err error) {
	n, err := e.externalNetwork(want)
	if err != nil {
		return false, err
	}
	return e.changeGateway(i, want, n)
}

// matchGateway returns the index of the gateway that a request describes.
func (e routerEdit) matchGateway(which *neutron.GatewayRequest) (int, error) {
	there := false
	for i, g := range e.r.Gateways {
		if g.NetworkID != which.NetworkID && (which.PortID == "" || g.PortID != which.PortID) {
			continue
		}
		there = true
		has, err := e.hasAddresses(g, which.FixedIPs)
		if has || err != nil {
			return i, err
		}
	}
	if !there {
		return 0, noSuchGateway(e.r.ID, "could not match a gateway port attached to network %s", which.NetworkID)
	}
	return 0, noSuchGateway(e.r.ID, "could not match a gateway port attached to network %s based on the specified fixed IPs %s",
		which.NetworkID, fixedIPTexts(which.FixedIPs))
}

func noSuchGateway(router, format string, args ...any) error {
	return neutron.Errorf(neutron.Invalid, "UnableToMatchGateways",
		"Unable to match a requested gateway port to existing gateway ports for router %s. %s", router, fmt.Sprintf(format, args...))
}

// fixedIPTexts writes requested addresses as Neutron prints them.
func fixedIPTexts(ips []neutron.FixedIPRequest) string {
	texts := make([]string, len(ips))
	for i, f := range ips {
		var keys []string
		if f.SubnetID != "" {
			keys = append(keys, "'subnet_id': '"+f.SubnetID+"'")
		}
		if f.IPAddress.IsValid() {
			keys = append(keys, "'ip_address': '"+f.IPAddress.String()+"'")
		}
		texts[i] = "{" + strings.Join(keys, ", ") + "}"
	}
	return "[" + strings.Join(texts, ", ") + "]"
}
