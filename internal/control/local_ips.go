package control

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// localIPs are the operations on local IPs.
type localIPs struct {
	*resource[neutron.LocalIP, neutron.LocalIP]
}

func newLocalIPs(s *Service) *resource[neutron.LocalIP, neutron.LocalIP] {
	t := schema.LocalIPs
	return asStored(s, neutron.LocalIPs, ofProject(t, byProject(t)),
		func(l *neutron.LocalIP) *neutron.Standard { return &l.Standard }, (*operation).createLocalIP)
}

// LocalIPs returns the operations on local IPs.
func (s *Service) LocalIPs() Operations[*neutron.LocalIP] {
	o := s.localIPs.untagged()
	o.Update, o.Delete = s.localIPs.update, s.localIPs.delete
	return o
}

// createLocalIP makes a local IP for an address of a port, or with a port that is made for it.
func (o *operation) createLocalIP(ctx context.Context, v neutron.Values) (*neutron.LocalIP, error) {
	l := &neutron.LocalIP{Standard: o.standard(v, 0), Mode: v.Text("ip_mode")}
	p, err := o.localPort(ctx, l.Standard, v)
	if err != nil {
		return nil, err
	}
	n, err := schema.Networks.Need(o.tx, p.NetworkID)
	if err != nil {
		return nil, err
	}
	if n.Routed() || translate.Uplink(n) {
		return nil, badLocalIP("Network %s is of type %s: local IPs are on networks with a layer 2", n.ID, n.NetworkType)
	}
	l.LocalPortID, l.NetworkID = p.ID, p.NetworkID
	if v.Has("local_port_id") {
		l.Address, err = addressOfPort(p, requestedAddress(v, "local_ip_address"))
	} else {
		l.Address, err = firstIPv4(p)
	}
	if err != nil {
		return nil, err
	}
	if !l.Address.Is4() {
		return nil, badLocalIP("Local IPs are IPv4 addresses, and %s is not", l.Address)
	}
	// All of a port's local IPs are in its bundle.
	if err := neutron.CheckList("local_ips", len(schema.LocalIPs.Referrers(o.tx, "local_port", l.LocalPortID))+1); err != nil {
		return nil, err
	}
	if err := schema.LocalIPs.Put(o.tx, l); err != nil {
		return nil, err
	}
	return l, o.derivePortBundle(p)
}

// localPort returns the port that a request for a local IP names, or makes one on the network that
// it names.
func (o *operation) localPort(ctx context.Context, l neutron.Standard, v neutron.Values) (*neutron.Port, error) {
	switch {
	case v.Has("local_port_id"):
		p, err := schema.Ports.Get(o.tx, v.Text("local_port_id"))
		if err != nil || !o.caller.Owns(p.ProjectID) {
			return nil, badLocalIP("Port %s not found", v.Text("local_port_id"))
		}
		return p, nil
	case !v.Has("network_id"):
		return nil, neutron.Errorf(neutron.Invalid, "LocalIPPortOrNetworkRequired", "Either Port ID or Network ID must be specified for Local IP create.")
	}
	n, err := o.networkFor(v.Text("network_id"))
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(slices.Collect(schema.Subnets.By(o.tx, "network", n.ID)), func(s *neutron.Subnet) bool { return s.IPVersion == 4 }) {
		return nil, badLocalIP("Network %s does not contain any IPv4 subnet", n.ID)
	}
	port := neutron.Values{
		"network_id": n.ID, "project_id": l.ProjectID, "admin_state_up": true,
		"device_id": l.ID, "device_owner": ownerLocalIP, "binding:vnic_type": "normal",
	}
	if want := requestedAddress(v, "local_ip_address"); want.IsValid() {
		port["fixed_ips"] = []neutron.FixedIPRequest{{IPAddress: want}}
		// On another project's network, an address such as the gateway's would take packets.
		if err := o.authorizeEach(neutron.Ports, []neutron.Values{{"network_id": n.ID, "project_id": l.ProjectID, "fixed_ips": port["fixed_ips"]}}); err != nil {
			return nil, err
		}
	}
	return o.createPort(ctx, port)
}

// requestedAddress returns the address that a request names, or an invalid one.
func requestedAddress(v neutron.Values, name string) netip.Addr {
	a, _ := v[name].(netip.Addr)
	return a
}

// firstIPv4 returns the first IPv4 address of a port.
func firstIPv4(p *neutron.Port) (netip.Addr, error) {
	for _, f := range p.FixedIPs {
		if f.IPAddress.Is4() {
			return f.IPAddress, nil
		}
	}
	return netip.Addr{}, portWithoutIP(p)
}

// portWithoutIP returns the error of a port without an address to be a local IP, or to stand for.
func portWithoutIP(p *neutron.Port) error {
	return neutron.Errorf(neutron.Invalid, "LocalIPNoIP", "Specified Port %s has no fixed IPs configured.", p.ID)
}

// addressOfPort returns the address of a port that a request names, or the only one.
func addressOfPort(p *neutron.Port, want netip.Addr) (netip.Addr, error) {
	has := slices.ContainsFunc(p.FixedIPs, func(f neutron.FixedIP) bool { return f.IPAddress == want })
	switch {
	case has:
		return want, nil
	case len(p.FixedIPs) == 0:
		return want, portWithoutIP(p)
	case want.IsValid():
		return want, neutron.Errorf(neutron.Invalid, "LocalIPRequestedIPNotFound", "Specified Port %s does not have requested IP address: %s.", p.ID, want)
	case len(p.FixedIPs) > 1:
		return want, neutron.Errorf(neutron.Invalid, "LocalIPNoRequestedIP",
			"Specified Port %s has several IPs, should specify exact IP address to use for Local IP.", p.ID)
	}
	return p.FixedIPs[0].IPAddress, nil
}

// update changes the name and the description of a local IP.
func (s localIPs) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.LocalIP, error) {
	return s.modify(ctx, c, id, v, ifMatch, nil, put(schema.LocalIPs))
}

// delete deletes a local IP that no port is associated with, and the port that was made for it.
func (s localIPs) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return s.remove(ctx, c, id, ifMatch, func(o *operation, l *neutron.LocalIP) error {
		if len(schema.LocalIPAssociations.Referrers(o.tx, "local_ip", id)) > 0 {
			return conflict("LocalIPInUse", "Local IP %s is still associated with one or more ports.", id)
		}
		p, err := schema.Ports.Get(o.tx, l.LocalPortID)
		if err != nil {
			return err
		}
		if err := schema.LocalIPs.Delete(o.tx, id); err != nil {
			return err
		}
		others := schema.LocalIPs.Referrers(o.tx, "local_port", p.ID)
		if p.DeviceOwner != ownerLocalIP || p.DeviceID != id || len(others) > 0 {
			return o.derivePortBundle(p)
		}
		n, err := schema.Networks.Need(o.tx, p.NetworkID)
		if err != nil {
			return err
		}
		return o.deletePort(p, n)
	})
}

// checkLocalPortFree refuses to delete a port of which a local IP has the address.
func (o *operation) checkLocalPortFree(p *neutron.Port) error {
	if len(schema.LocalIPs.Referrers(o.tx, "local_port", p.ID)) > 0 {
		return conflict("ServicePortInUse", "Port %s cannot be deleted directly via the port API: still referenced by Local IPs.", p.ID)
	}
	return nil
}

// checkLocalAddresses refuses to take an address from a port that a local IP has: it could become
// another project's.
func (o *operation) checkLocalAddresses(p *neutron.Port) error {
	for _, id := range schema.LocalIPs.Referrers(o.tx, "local_port", p.ID) {
		l, err := schema.LocalIPs.Need(o.tx, id)
		if err != nil {
			return err
		}
		if _, ok := fixedIPOf(p, l.Address); !ok {
			return neutron.Errorf(neutron.Invalid, "BadRequest",
				"Bad port request: Port %s has the address %s of local IP %s. Delete that before you take the address from the port.", p.ID, l.Address, id)
		}
	}
	return nil
}

// badLocalIP returns the error of a local IP that does not fit other objects.
func badLocalIP(format string, args ...any) error {
	e := neutron.Errorf(neutron.Invalid, "BadRequest", format, args...)
	e.Message = "Bad local_ip request: " + e.Message + "."
	return e
}

// followLocalIPs adapts what a port has of local IPs to a change of its addresses. old is nil for a
// new port.
func (o *operation) followLocalIPs(old, p *neutron.Port) error {
	if old == nil || slices.Equal(p.FixedIPs, old.FixedIPs) {
		return nil
	}
	return errors.Join(o.checkLocalAddresses(p), o.releaseLocalIPs(p))
}
