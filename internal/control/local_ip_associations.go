package control

import (
	"context"
	"iter"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// LocalIPAssociations returns the operations on the associations of a local IP with ports, each by
// the id of its port.
func (s *Service) LocalIPAssociations(localIP string) Operations[*neutron.LocalIPAssociationView] {
	a := localIPAssociations{s, localIP}
	return Operations[*neutron.LocalIPAssociationView]{Create: a.create, Delete: a.delete, Show: a.show, List: a.list}
}

// localIPAssociations are the operations on the associations of a local IP. Who sees that sees
// them, and who may change it may change them.
type localIPAssociations struct {
	*Service
	of string // id of the local IP
}

// read returns a snapshot in which the caller sees the local IP, and that.
func (a localIPAssociations) read(ctx context.Context, c neutron.Caller) (*records.Snap, *neutron.LocalIP, error) {
	snap, err := a.view(ctx)
	if err != nil {
		return nil, nil, err
	}
	l, ok := schema.LocalIPs.Peek(snap, a.of)
	if !ok || !a.localIPs.sees(snap, c, l) {
		return nil, nil, neutron.LocalIPs.NotFound(a.of)
	}
	return snap, l, nil
}

func (a localIPAssociations) show(ctx context.Context, c neutron.Caller, port string) (*neutron.LocalIPAssociationView, error) {
	snap, l, err := a.read(ctx, c)
	if err != nil {
		return nil, err
	}
	x, ok := schema.LocalIPAssociations.Peek(snap, neutron.LocalIPAssociationID(a.of, port))
	if !ok {
		return nil, neutron.LocalIPAssociationNotFound(a.of, port)
	}
	return localIPAssociationView(snap, l, x), nil
}

func (a localIPAssociations) list(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.LocalIPAssociationView], error) {
	snap, l, err := a.read(ctx, c)
	if err != nil {
		return nil, err
	}
	return func(yield func(*neutron.LocalIPAssociationView) bool) {
		for x := range schema.LocalIPAssociations.By(snap, "local_ip", l.ID) {
			if q.InRange(x.FixedPortID) && !yield(localIPAssociationView(snap, l, x)) {
				return
			}
		}
	}, nil
}

// localIPAssociationView returns an association as the API shows it.
func localIPAssociationView(r records.Reader, l *neutron.LocalIP, x *neutron.LocalIPAssociation) *neutron.LocalIPAssociationView {
	v := &neutron.LocalIPAssociationView{LocalIPAssociation: x, Address: l.Address}
	if p, ok := schema.Ports.Peek(r, x.FixedPortID); ok {
		v.HostID = p.HostID
	}
	return v
}

// create makes associations, all or none.
func (a localIPAssociations) create(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.LocalIPAssociationView, error) {
	id := func(v *neutron.LocalIPAssociationView) string { return v.FixedPortID }
	return createAll(ctx, a.Service, c, id, func(o *operation) ([]*neutron.LocalIPAssociationView, error) {
		l, err := a.localIP(o, neutron.Create)
		if err != nil {
			return nil, err
		}
		var made []*neutron.LocalIPAssociationView
		for _, v := range vs {
			x, err := o.associateLocalIP(l, v)
			if err != nil {
				return nil, err
			}
			made = append(made, localIPAssociationView(o.tx, l, x))
		}
		return made, nil
	})
}

// localIP returns the local IP if the caller may change its associations.
func (a localIPAssociations) localIP(o *operation, op neutron.Op) (*neutron.LocalIP, error) {
	l, err := schema.LocalIPs.Need(o.tx, a.of)
	if err != nil || !a.localIPs.sees(o.tx, o.caller, l) {
		return nil, neutron.LocalIPs.NotFound(a.of)
	}
	return l, neutron.AuthorizeLocalIPAssociation(o.caller, op, l.ProjectID)
}

// associateLocalIP associates a local IP with a port of its network: on another network the port's
// project would take packets from the machines there, which may be other projects'.
func (o *operation) associateLocalIP(l *neutron.LocalIP, v neutron.Values) (*neutron.LocalIPAssociation, error) {
	id := v.Text("fixed_port_id")
	p, err := schema.Ports.Get(o.tx, id)
	if err != nil || !o.caller.Owns(p.ProjectID) {
		return nil, badLocalIPAssociation("Port %s not found", id)
	}
	x := &neutron.LocalIPAssociation{LocalIPID: l.ID, FixedPortID: id}
	if x.FixedIP, err = addressOfPort(p, requestedAddress(v, "fixed_ip")); err != nil {
		return nil, err
	}
	_, exists := schema.LocalIPAssociations.Peek(o.tx, x.ID())
	switch {
	case exists:
		return nil, conflict("LocalIPAssociationExists", "Local IP %s association with port %s already exists.", l.ID, id)
	case p.NetworkID != l.NetworkID:
		return nil, badLocalIPAssociation("Port %s is on network %s, and local IP %s on network %s", id, p.NetworkID, l.ID, l.NetworkID)
	case !x.FixedIP.Is4():
		return nil, badLocalIPAssociation("Local IPs stand for IPv4 addresses, and %s is not", x.FixedIP)
	}
	// All of a port's local IPs are in its bundle.
	if err := neutron.CheckList("local_ips", schema.LocalIPAssociations.CountBy(o.tx, "fixed_port", id)+1); err != nil {
		return nil, err
	}
	if err := schema.LocalIPAssociations.Put(o.tx, x); err != nil {
		return nil, err
	}
	return x, o.derivePortBundle(p)
}

func (a localIPAssociations) delete(ctx context.Context, c neutron.Caller, port string, _ *int64) error {
	return perform(ctx, a.Service, c, func(o *operation) error {
		if _, err := a.localIP(o, neutron.Delete); err != nil {
			return err
		}
		x, err := schema.LocalIPAssociations.Get(o.tx, neutron.LocalIPAssociationID(a.of, port))
		if err != nil {
			return neutron.LocalIPAssociationNotFound(a.of, port)
		}
		p, err := schema.Ports.Get(o.tx, port)
		if err != nil {
			return err
		}
		if err := schema.LocalIPAssociations.Delete(o.tx, x.ID()); err != nil {
			return err
		}
		return o.derivePortBundle(p)
	})
}

// releaseLocalIPs deletes the associations with addresses that a port no longer has.
func (o *operation) releaseLocalIPs(p *neutron.Port) error {
	for _, x := range slices.Collect(schema.LocalIPAssociations.By(o.tx, "fixed_port", p.ID)) {
		if _, has := fixedIPOf(p, x.FixedIP); has {
			continue
		}
		if err := schema.LocalIPAssociations.Delete(o.tx, x.ID()); err != nil {
			return err
		}
	}
	return nil
}

// derivePortBundle rewrites the bundle of a port.
func (o *operation) derivePortBundle(p *neutron.Port) error {
	n, err := schema.Networks.Need(o.tx, p.NetworkID)
	if err != nil {
		return err
	}
	groups, err := o.groupsOf(p)
	if err != nil {
		return err
	}
	o.heedQoSPolicy(n)
	return o.putPortBundle(p, n, groups)
}

// putPortBundle stores what a port means to packets, with the local IPs that it has or is
// associated with. Who changes these writes the same bundle, so that they need no guard.
func (o *operation) putPortBundle(p *neutron.Port, n *neutron.Network, groups []*neutron.SecurityGroup) error {
	b := translate.Port(p, n, groups)
	for l := range schema.LocalIPs.By(o.tx, "local_port", p.ID) {
		b.LocalIPs = append(b.LocalIPs, translate.LocalIPHome(l, p))
	}
	for x := range schema.LocalIPAssociations.By(o.tx, "fixed_port", p.ID) {
		l, err := schema.LocalIPs.Need(o.tx, x.LocalIPID)
		if err != nil {
			return err
		}
		b.LocalIPs = append(b.LocalIPs, translate.LocalIP(l, x, p))
	}
	return o.putBundle(kindPort, p.ID, b)
}

// badLocalIPAssociation returns the error of an association that does not fit other objects.
func badLocalIPAssociation(format string, args ...any) error {
	e := neutron.Errorf(neutron.Invalid, "BadRequest", format, args...)
	e.Message = "Bad local_ip_port_association request: " + e.Message + "."
	return e
}
