package control

import (
	"errors"
	"fmt"
	"strings"

	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// maxForwardings bounds the port forwardings of a floating IP, and those to a port: all of them are
// derived again, or deleted, at once. A range of ports is one.
const maxForwardings = 500

// checkForwarding refuses forwardings that contradict themselves or others.
func (o *operation) checkForwarding(x *neutron.PortForwarding, f *neutron.FloatingIP) error {
	for _, side := range []struct {
		name string
		neutron.PortRange
	}{{"external_port", x.External}, {"internal_port", x.Internal}} {
		if side.First == 0 {
			return badForwarding("%s or %s_range must be specified", side.name, side.name)
		}
	}
	if n := x.Internal.Last - x.Internal.First; n > 0 && n != x.External.Last-x.External.First {
		return badForwarding("Invalid ranges of internal and/or external ports. The relation between internal and external ports must be N-N or 1-N")
	}
	key := "port-forwarding/" + x.InternalPortID // of several floating IPs
	o.tx.Heed(key)
	o.tx.Touch(key)
	toPort, ofAddress := 0, 0
	for other := range schema.PortForwardings.By(o.tx, "internal_port", x.InternalPortID) {
		if other.ID == x.ID {
			continue
		}
		toPort++
		if other.Protocol == x.Protocol && other.InternalIPAddress == x.InternalIPAddress && other.Internal.Overlaps(x.Internal) {
			return collision("internal_port_range", other.Internal, x.Internal)
		}
	}
	for other := range schema.PortForwardings.By(o.tx, "floating_ip", f.ID) {
		if other.ID == x.ID {
			continue
		}
		ofAddress++
		if other.Protocol == x.Protocol && other.External.Overlaps(x.External) {
			return collision("external_port_range", other.External, x.External)
		}
	}
	if max(toPort, ofAddress) >= maxForwardings {
		return badForwarding("There may be no more than %d port forwardings of a floating IP, and to a port", maxForwardings)
	}
	return nil
}

func collision(name string, there, wanted neutron.PortRange) error {
	return badForwarding("There is a port collision with the %s. The following ranges collides: %s and %s", name, there, wanted)
}

// placeForwarding checks the port of a forwarding, and finds the router between it and the floating
// network, which is the same for all forwardings of a floating IP.
func (o *operation) placeForwarding(x *neutron.PortForwarding, f *neutron.FloatingIP) error {
	for other := range schema.FloatingIPs.By(o.tx, "port", x.InternalPortID) {
		return conflict("PortHasBindingFloatingIP", "Cannot create port forwarding to floating IP %s (%s) with port %s using fixed IP %s, "+
			"as that port already has a binding floating IP.", other.FloatingIPAddress, other.ID, x.InternalPortID, x.InternalIPAddress)
	}
	p, owner, err := o.ports.inTransaction(o, x.InternalPortID)
	if err != nil {
		return err
	}
	if err := neutron.AuthorizePortUse(o.caller, owner); err != nil {
		return err
	}
	a, ok := fixedIPOf(p, x.InternalIPAddress)
	if !ok {
		return notOfPort(p, x)
	}
	found := *f
	if err := o.place(&found, a.SubnetID, ""); err != nil {
		var refused *neutron.Error
		if errors.As(err, &refused) && refused.Type == "ExternalGatewayForFloatingIPNotFound" {
			return badForwarding("External network %s is not reachable from subnet %s. Cannot set Port forwarding for port %s with Floating IP %s",
				f.FloatingNetworkID, a.SubnetID, p.ID, f.ID)
		}
		return err
	}
	if f.RouterID != "" && f.RouterID != found.RouterID {
		return badForwarding("The Floating IP %s had been set on router %s, the internal Neutron port %s can not reach it", f.ID, f.RouterID, p.ID)
	}
	f.RouterID, f.ServedBy = found.RouterID, found.ServedBy
	return nil
}

// notOfPort is the refusal of an address that the port of a forwarding does not have.
func notOfPort(p *neutron.Port, x *neutron.PortForwarding) error {
	var v4 []string
	for _, a := range p.FixedIPs {
		if a.IPAddress.Is4() {
			v4 = append(v4, fmt.Sprintf("{'subnet_id': '%s', 'ip_address': '%s'}", a.SubnetID, a.IPAddress))
		}
	}
	if v4 == nil {
		return badForwarding("Requested internal port %s must allocate an IPv4 address at least", p.ID)
	}
	return badForwarding("Requested internal IP address %s is not suitable for internal neutron port %s, as its fixed_ips are [%s]",
		x.InternalIPAddress, p.ID, strings.Join(v4, ", "))
}
