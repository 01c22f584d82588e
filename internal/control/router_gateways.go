package control

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// A router has at most one gateway to a network, so that the network names it. The first gateway is
// external_gateway_info; the order of the others is that in which they came.

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

// updateGateways makes a router's gateways those of a request, in its order. Gateways to networks
// that it names stay, with the addresses and SNAT that it asks for.
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
	return transact(ctx, s.Service, c, func(o *operation) (*neutron.RouterView, error) {
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
	if slices.ContainsFunc(e.r.Gateways, func(g neutron.RouterGateway) bool { return g.NetworkID == n.ID }) {
		return secondGateway(e.r.ID, n.ID)
	}
	return e.addGateway(want, n, want.PortID, len(e.r.Gateways))
}

// secondGateway returns the refusal of a second gateway to a network.
func secondGateway(router, network string) error {
	return neutron.Errorf(neutron.Invalid, "UnableToAddExtraGateways", "Unable to add extra gateways to a router %s: "+
		"a gateway to network %s is there already, and a router has at most one to each network", router, network)
}

// replaceGateways removes the gateways to networks that a request does not name, changes those to
// networks that it names, and adds the others.
func (e routerEdit) replaceGateways(want []*neutron.GatewayRequest) (changed bool, err error) {
	to := func(network string) int {
		return slices.IndexFunc(want, func(g *neutron.GatewayRequest) bool { return g.NetworkID == network })
	}
	for i := len(e.r.Gateways) - 1; i >= 0; i-- {
		if to(e.r.Gateways[i].NetworkID) >= 0 {
			continue
		}
		if err := e.removeGateway(i); err != nil {
			return false, err
		}
		changed = true
	}
	for i, g := range want {
		if to(g.NetworkID) < i {
			return false, secondGateway(e.r.ID, g.NetworkID)
		}
		has := slices.IndexFunc(e.r.Gateways, func(had neutron.RouterGateway) bool { return had.NetworkID == g.NetworkID })
		if has < 0 {
			err, changed = e.addAnother(g), true
		} else {
			var other bool
			other, err = e.updateGateway(has, g)
			changed = changed || other
		}
		if err != nil {
			return false, err
		}
	}
	before := slices.Clone(e.r.Gateways)
	e.r.Gateways = slices.Clone(e.r.Gateways)
	slices.SortFunc(e.r.Gateways, func(a, b neutron.RouterGateway) int { return to(a.NetworkID) - to(b.NetworkID) })
	return changed || !slices.Equal(before, e.r.Gateways), nil
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
	i := slices.IndexFunc(e.r.Gateways, func(g neutron.RouterGateway) bool {
		return g.NetworkID == which.NetworkID || which.PortID != "" && g.PortID == which.PortID
	})
	if i < 0 {
		return 0, noSuchGateway(e.r.ID, "could not match a gateway port attached to network %s", which.NetworkID)
	}
	p, err := schema.Ports.Get(e.tx, e.r.Gateways[i].PortID)
	if err != nil {
		return 0, err
	}
	for _, f := range which.FixedIPs {
		has := func(a neutron.FixedIP) bool {
			return (f.SubnetID == "" || f.SubnetID == a.SubnetID) && (!f.IPAddress.IsValid() || f.IPAddress == a.IPAddress)
		}
		if !slices.ContainsFunc(p.FixedIPs, has) {
			return 0, noSuchGateway(e.r.ID, "could not match a gateway port attached to network %s based on the specified fixed IPs %s",
				which.NetworkID, fixedIPTexts(which.FixedIPs))
		}
	}
	return i, nil
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
