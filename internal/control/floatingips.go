package control

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// createFloatingIP makes a floating IP with the hidden port that holds its address.
//
// Callers in this process may name its router (router_id), which otherwise follows from the port,
// and the port that holds the address (floating_port_id), which is made unless it exists.
func (o *operation) createFloatingIP(ctx context.Context, v neutron.Values) (*neutron.FloatingIP, error) {
	n, err := o.floatingNetwork(v.Text("floating_network_id"))
	if err != nil {
		return nil, err
	}
	f := &neutron.FloatingIP{
		Standard: o.standard(v, 0), FloatingNetworkID: n.ID, DNSName: v.Text("dns_name"), DNSDomain: v.Text("dns_domain"),
	}
	if err := neutron.CheckFloatingDNS(f.DNSName, f.DNSDomain); err != nil {
		return nil, err
	}
	if err := o.applyFloatingQoSPolicy(f, v); err != nil {
		return nil, err
	}
	holder, err := o.floatingPort(ctx, f, v)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(holder.FixedIPs, func(a neutron.FixedIP) bool { return a.IPAddress.Is4() })
	if i < 0 {
		return nil, neutron.Errorf(neutron.Invalid, "ExternalIpAddressExhausted", "Unable to find any IP address on external network %s.", n.ID)
	}
	f.FloatingPortID, f.FloatingIPAddress = holder.ID, holder.FixedIPs[i].IPAddress
	if err := o.associate(f, v); err != nil {
		return nil, err
	}
	return f, o.putFloatingIP(f)
}

// floatingNetwork finds the external network of a new floating IP.
func (o *operation) floatingNetwork(id string) (*neutron.Network, error) {
	n, err := o.networkFor(id)
	switch {
	case err != nil:
		return nil, err
	case !n.External:
		return nil, badFloatingIP("Network %s is not a valid external network", id)
	}
	if n.Routed() || translate.Uplink(n) {
		return nil, badFloatingIP("Network %s is of type %s: routers translate only to networks with a layer 2", id, n.NetworkType)
	}
	for s := range schema.Subnets.By(o.tx, "network", id) {
		if s.IPVersion == 4 {
			return n, nil
		}
	}
	return nil, badFloatingIP("Network %s does not contain any IPv4 subnet", id)
}

// floatingPort makes the port that holds a floating IP's address. No project has it, so members do
// not see it and no quota counts it.
func (o *operation) floatingPort(ctx context.Context, f *neutron.FloatingIP, v neutron.Values) (*neutron.Port, error) {
	id := v.Text("floating_port_id")
	if p, ok := schema.Ports.Peek(o.tx, id); ok {
		return p, nil
	}
	port := neutron.Values{
		"id":         id,
		"network_id": f.FloatingNetworkID, "project_id": "", "admin_state_up": true,
		"device_id": f.ID, "device_owner": ownerFloatingIP, "binding:vnic_type": "normal",
	}
	address, _ := v["floating_ip_address"].(netip.Addr)
	if want := (neutron.FixedIPRequest{SubnetID: v.Text("subnet_id"), IPAddress: address}); want != (neutron.FixedIPRequest{}) {
		port["fixed_ips"] = []neutron.FixedIPRequest{want}
	}
	return o.createPort(ctx, port)
}

// update changes a floating IP. Without port_id its association stays, but an update of nothing
// takes it from its port, as in the reference.
func (s floatingIPs) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.FloatingIPView, error) {
	return transact(ctx, s.service, c, func(o *operation) (*neutron.FloatingIPView, error) {
		old, err := s.toChange(o, id, neutron.Update, v, ifMatch)
		if err != nil {
			return nil, err
		}
		f := *old
		applyStandard(&f.Standard, v)
		if len(v) == 0 && !f.Forwarded() {
			disassociate(&f)
		}
		if err := errors.Join(o.applyFloatingQoSPolicy(&f, v), o.associate(&f, v)); err != nil {
			return nil, err
		}
		if reflect.DeepEqual(&f, old) {
			return s.service.floatingIPView(o.tx, old), nil
		}
		o.bump(&f.Standard)
		if err := o.putFloatingIP(&f); err != nil {
			return nil, err
		}
		return s.service.floatingIPView(o.tx, &f), nil
	})
}

// delete deletes a floating IP with the port that holds its address.
func (s floatingIPs) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return perform(ctx, s.service, c, func(o *operation) error {
		f, err := s.toChange(o, id, neutron.Delete, nil, ifMatch)
		if err != nil {
			return err
		}
		holder, err := schema.Ports.Get(o.tx, f.FloatingPortID)
		if err != nil {
			return err
		}
		n, err := schema.Networks.Need(o.tx, holder.NetworkID)
		if err != nil {
			return err
		}
		if f.Forwarded() {
			return inUseByForwardings(f)
		}
		if err := o.removeFloatingIP(id); err != nil {
			return err
		}
		return o.deletePort(holder, n) // which an administrator may have given another purpose
	})
}

// removeFloatingIP deletes a floating IP, but not the port that holds its address.
func (o *operation) removeFloatingIP(id string) error {
	return errors.Join(o.dropBundle(kindFloatingIP, id), schema.FloatingIPs.Delete(o.tx, id))
}

// removeFloatingIPOf deletes the floating IP whose address a port holds, if there is one.
func (o *operation) removeFloatingIPOf(holder string) error {
	for f := range schema.FloatingIPs.By(o.tx, "floating_port", holder) {
		return o.removeFloatingIP(f.ID)
	}
	return nil
}

// holdsUnused reports whether a port holds the address of a floating IP that no router serves.
// Should that change, the commit fails.
func (o *operation) holdsUnused(p *neutron.Port) bool {
	if p.DeviceOwner != ownerFloatingIP {
		return false
	}
	for _, id := range schema.FloatingIPs.Referrers(o.tx, "floating_port", p.ID) {
		f, err := schema.FloatingIPs.Get(o.tx, id)
		return err == nil && f.RouterID == ""
	}
	return false
}

// putFloatingIP stores a floating IP with what is derived from it.
func (o *operation) putFloatingIP(f *neutron.FloatingIP) error {
	err := schema.FloatingIPs.Put(o.tx, f)
	var taken *records.TakenError
	if errors.As(err, &taken) && taken.Name == "fixed_ip" {
		return alreadyAssociated(f)
	}
	if err != nil {
		return err
	}
	return o.deriveFloatingIP(f)
}

// deriveFloatingIP stores what a floating IP means to packets now.
func (o *operation) deriveFloatingIP(f *neutron.FloatingIP) error {
	if f.PortID == "" {
		return errors.Join(o.putBundle(kindFloatingIP, f.ID, topology.Bundle{}), o.deriveForwardings(f))
	}
	r, link, err := o.serverOf(f)
	if err != nil {
		return err
	}
	return o.putBundle(kindFloatingIP, f.ID, translate.FloatingIP(f, r, link))
}

// serverOf returns the router that serves a floating IP, and its link to the floating network.
func (o *operation) serverOf(f *neutron.FloatingIP) (*neutron.Router, translate.RouterLink, error) {
	var link translate.RouterLink
	x, err := schema.RouterPorts.Need(o.tx, f.ServedBy)
	if err != nil {
		return nil, link, err
	}
	if link.Port, err = schema.Ports.Get(o.tx, f.ServedBy); err != nil {
		return nil, link, err
	}
	if link.Network, err = schema.Networks.Need(o.tx, link.Port.NetworkID); err != nil {
		return nil, link, err
	}
	r, err := schema.Routers.Get(o.tx, x.RouterID)
	return r, link, err
}

// floatingIPView returns a floating IP with its port as the API shows it.
func (s *Service) floatingIPView(r records.Reader, f *neutron.FloatingIP) *neutron.FloatingIPView {
	v := &neutron.FloatingIPView{FloatingIP: f}
	if p, ok := schema.Ports.Peek(r, f.PortID); ok {
		v.Port = s.portView(r, p)
	}
	if f.Forwarded() {
		v.Forwardings = slices.Collect(schema.PortForwardings.By(r, "floating_ip", f.ID))
	}
	return v
}

// disassociate takes a floating IP from its port.
func disassociate(f *neutron.FloatingIP) {
	f.PortID, f.FixedIPAddress, f.RouterID, f.ServedBy = "", netip.Addr{}, "", ""
}

// releaseFloatingIPs disassociates the floating IPs of a port whose fixed addresses are not among
// those kept.
func (o *operation) releaseFloatingIPs(port string, kept []neutron.FixedIP) error {
	for old := range schema.FloatingIPs.By(o.tx, "port", port) {
		if slices.ContainsFunc(kept, func(a neutron.FixedIP) bool { return a.IPAddress == old.FixedIPAddress }) {
			continue
		}
		f := *old
		disassociate(&f)
		o.bump(&f.Standard)
		if err := o.putFloatingIP(&f); err != nil {
			return err
		}
	}
	return nil
}

// followPort adapts floating IPs and NDP proxies to a change of a port: of its fixed addresses, or
// of the MAC address by which it serves them. The address that it holds for one cannot change.
func (o *operation) followPort(old, p *neutron.Port) error {
	if old == nil {
		return nil
	}
	if p.MACAddress != old.MACAddress {
		if err := errors.Join(o.deriveServedBy(p.ID), o.deriveProxiedBy(p.ID)); err != nil {
			return err
		}
	}
	if slices.Equal(p.FixedIPs, old.FixedIPs) {
		return nil
	}
	for f := range schema.FloatingIPs.By(o.tx, "floating_port", p.ID) {
		return neutron.Errorf(neutron.Invalid, "BadRequest",
			"Bad port request: Port %s holds the address of floating IP %s. Delete that instead of changing fixed_ips.", p.ID, f.ID)
	}
	return errors.Join(o.releaseFloatingIPs(p.ID, p.FixedIPs), o.releaseForwardings(p.ID, p.FixedIPs), o.releaseNDPProxies(p.ID, p.FixedIPs))
}

// deriveServedBy stores what the floating IPs mean that a port of a router serves.
func (o *operation) deriveServedBy(port string) error {
	for _, id := range schema.FloatingIPs.Referrers(o.tx, "served_by", port) {
		f, err := schema.FloatingIPs.Get(o.tx, id)
		if err != nil {
			return err
		}
		if err := o.deriveFloatingIP(f); err != nil {
			return err
		}
	}
	return nil
}

// checkPortFree refuses to delete a port that floating IPs need: one that holds an address, or by
// which a router serves some.
func (o *operation) checkPortFree(p *neutron.Port) error {
	if schema.FloatingIPs.CountBy(o.tx, "floating_port", p.ID)+schema.FloatingIPs.CountBy(o.tx, "served_by", p.ID) > 0 {
		return servicePortInUse(p)
	}
	return nil
}

func floatingIPOwner(f *neutron.FloatingIP) neutron.Owner {
	return neutron.Owner{ProjectID: f.ProjectID}
}

func badFloatingIP(format string, args ...any) error {
	e := neutron.Errorf(neutron.Invalid, "BadRequest", format, args...)
	e.Message = "Bad floatingip request: " + e.Message + "."
	return e
}

func alreadyAssociated(f *neutron.FloatingIP) error {
	return conflict("FloatingIPPortAlreadyAssociated", "Cannot associate floating IP %s (%s) with port %s using fixed IP %s, "+
		"as that fixed IP already has a floating IP on external network %s.",
		f.FloatingIPAddress, f.ID, f.PortID, f.FixedIPAddress, f.FloatingNetworkID)
}
