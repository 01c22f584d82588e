package control

import (
	"context"
	"errors"
	"iter"
	"net/netip"
	"reflect"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

func newPortForwardings(s *Service) *resource[neutron.PortForwarding, neutron.PortForwarding] {
	t := schema.PortForwardings
	return &resource[neutron.PortForwarding, neutron.PortForwarding]{
		service: s, name: neutron.PortForwardings,
		finder: finder[neutron.PortForwarding]{table: t, criteria: []criterion[neutron.PortForwarding]{
			byOwnID(t),
		}},
		standard:   func(x *neutron.PortForwarding) *neutron.Standard { return &x.Standard },
		attributes: func(x *neutron.PortForwarding) *neutron.Standard { return &x.Standard },
	}
}

// PortForwardings returns the operations on the port forwardings of a floating IP. Callers in this
// process may leave the id of that empty, and name it as floatingip_id at create.
func (s *Service) PortForwardings(floatingIP string) Operations[*neutron.PortForwarding] {
	p := portForwardings{s.portForwardings, floatingIP}
	return Operations[*neutron.PortForwarding]{Create: p.create, Update: p.update, Delete: p.delete, Show: p.show, List: p.list}
}

// portForwardings are the operations on the port forwardings of a floating IP. Who sees that sees
// them.
type portForwardings struct {
	*resource[neutron.PortForwarding, neutron.PortForwarding]
	of string // id of the floating IP; "" = any
}

// read returns a snapshot in which the caller sees the floating IP.
func (p portForwardings) read(ctx context.Context, c neutron.Caller) (*records.Snap, error) {
	snap, err := p.service.view(ctx)
	if err != nil || p.of == "" {
		return snap, err
	}
	f, ok := schema.FloatingIPs.Peek(snap, p.of)
	if !ok || !p.service.floatingIPs.sees(snap, c, f) {
		return nil, neutron.FloatingIPs.NotFound(p.of)
	}
	return snap, nil
}

// has reports whether a forwarding is one of the floating IP's.
func (p portForwardings) has(x *neutron.PortForwarding) bool {
	return p.of == "" || x.FloatingIPID == p.of
}

func (p portForwardings) show(ctx context.Context, c neutron.Caller, id string) (*neutron.PortForwarding, error) {
	snap, err := p.read(ctx, c)
	if err != nil {
		return nil, err
	}
	x, ok := p.table.Peek(snap, id)
	if !ok || !p.has(x) {
		return nil, neutron.PortForwardings.NotFound(id)
	}
	return x, nil
}

func (p portForwardings) list(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.PortForwarding], error) {
	snap, err := p.read(ctx, c)
	if err != nil {
		return nil, err
	}
	return func(yield func(*neutron.PortForwarding) bool) {
		for x := range p.table.By(snap, "floating_ip", p.of) {
			if q.InRange(x.ID) && p.matches(x, &q, -1) && !yield(x) {
				return
			}
		}
	}, nil
}

// create makes forwardings, all or none.
func (p portForwardings) create(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.PortForwarding, error) {
	id := func(x *neutron.PortForwarding) string { return x.ID }
	return createAll(ctx, p.service, c, id, func(o *operation) ([]*neutron.PortForwarding, error) {
		var made []*neutron.PortForwarding
		for _, v := range vs {
			x, err := p.createOne(o, v)
			if err != nil {
				return nil, err
			}
			made = append(made, x)
		}
		return made, nil
	})
}

func (p portForwardings) createOne(o *operation, v neutron.Values) (*neutron.PortForwarding, error) {
	of := p.of
	if of == "" {
		of = v.Text("floatingip_id")
	}
	f, err := p.floatingIP(o, of, neutron.Create)
	if err != nil {
		return nil, err
	}
	x := &neutron.PortForwarding{Standard: o.standard(v, 0), FloatingIPID: f.ID}
	x.ProjectID = f.ProjectID
	applyForwarding(x, v)
	if _, _, err := p.service.ports.inTransaction(o, x.InternalPortID); err != nil {
		return nil, err
	}
	if err := o.checkForwarding(x, f); err != nil {
		return nil, err
	}
	if f.PortID != "" {
		f := *f
		f.PortID, f.FixedIPAddress = x.InternalPortID, x.InternalIPAddress
		return nil, alreadyAssociated(&f)
	}
	if err := o.placeForwarding(x, f); err != nil {
		return nil, err
	}
	return x, o.putForwarding(x, f)
}

// floatingIP returns a copy of the floating IP of a forwarding that the caller wants to change. Its
// forwardings do not change meanwhile, as each change of one is one of the floating IP.
func (p portForwardings) floatingIP(o *operation, id string, op neutron.Op) (*neutron.FloatingIP, error) {
	f, owner, err := p.service.floatingIPs.inTransaction(o, id)
	if err != nil {
		return nil, err
	}
	if err := neutron.AuthorizeForwarding(o.caller, op, owner.ProjectID); err != nil {
		return nil, err
	}
	changed := *f
	return &changed, nil
}

// applyForwarding sets what a request names.
func applyForwarding(x *neutron.PortForwarding, v neutron.Values) {
	setText(&x.Description, v, "description")
	setText(&x.Protocol, v, "protocol")
	setText(&x.InternalPortID, v, "internal_port_id")
	x.InternalIPAddress = neutron.InternalAddress(v, x.InternalIPAddress)
	x.External = neutron.ForwardedPorts(v, "external_port", x.External)
	x.Internal = neutron.ForwardedPorts(v, "internal_port", x.Internal)
}

// putForwarding stores a forwarding of a floating IP with what is derived from both.
func (o *operation) putForwarding(x *neutron.PortForwarding, f *neutron.FloatingIP) error {
	o.bump(&f.Standard)
	if err := errors.Join(schema.FloatingIPs.Put(o.tx, f), schema.PortForwardings.Put(o.tx, x)); err != nil {
		return err
	}
	r, link, err := o.serverOf(f)
	if err != nil {
		return err
	}
	return o.putBundle(kindPortForwarding, x.ID, translate.PortForwarding(x, f, r, link))
}

// update changes a forwarding.
func (p portForwardings) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.PortForwarding, error) {
	return transact(ctx, p.service, c, func(o *operation) (*neutron.PortForwarding, error) {
		old, f, err := p.toChange(o, id, neutron.Update, ifMatch)
		if err != nil {
			return nil, err
		}
		x := *old
		applyForwarding(&x, v)
		if reflect.DeepEqual(&x, old) {
			return old, nil
		}
		if x.InternalPortID != old.InternalPortID {
			if _, _, err := p.service.ports.inTransaction(o, x.InternalPortID); err != nil {
				return nil, err
			}
		}
		if err := o.checkForwarding(&x, f); err != nil {
			return nil, err
		}
		if x.InternalPortID != old.InternalPortID || x.InternalIPAddress != old.InternalIPAddress {
			if err := o.placeForwarding(&x, f); err != nil {
				return nil, err
			}
		}
		o.bump(&x.Standard)
		return &x, o.putForwarding(&x, f)
	})
}

// toChange finds a forwarding and its floating IP for an update or a delete.
func (p portForwardings) toChange(o *operation, id string, op neutron.Op, ifMatch *int64) (*neutron.PortForwarding, *neutron.FloatingIP, error) {
	x, err := p.table.Get(o.tx, id)
	of := p.of
	if err == nil && of == "" {
		of = x.FloatingIPID
	}
	f, refused := p.floatingIP(o, of, op)
	switch {
	case refused != nil:
		return nil, nil, refused
	case err != nil || !p.has(x):
		return nil, nil, neutron.PortForwardings.NotFound(id)
	}
	return x, f, checkRevision(ifMatch, x.RevisionNumber)
}

func (p portForwardings) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return perform(ctx, p.service, c, func(o *operation) error {
		x, f, err := p.toChange(o, id, neutron.Delete, ifMatch)
		if err != nil {
			return err
		}
		return o.removeForwarding(x, f)
	})
}

// removeForwarding deletes a forwarding. With its last one the floating IP leaves its router. f is
// the caller's to change.
func (o *operation) removeForwarding(x *neutron.PortForwarding, f *neutron.FloatingIP) error {
	if err := errors.Join(o.dropBundle(kindPortForwarding, x.ID), schema.PortForwardings.Delete(o.tx, x.ID)); err != nil {
		return err
	}
	if schema.PortForwardings.CountBy(o.tx, "floating_ip", f.ID) == 0 {
		disassociate(f)
	}
	o.bump(&f.Standard)
	return schema.FloatingIPs.Put(o.tx, f)
}

// releaseForwardings deletes the forwardings to a port's addresses that are not among those kept.
func (o *operation) releaseForwardings(port string, kept []neutron.FixedIP) error {
	for _, id := range schema.PortForwardings.Referrers(o.tx, "internal_port", port) {
		x, err := schema.PortForwardings.Get(o.tx, id)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(kept, func(a neutron.FixedIP) bool { return a.IPAddress == x.InternalIPAddress }) {
			continue
		}
		f, err := schema.FloatingIPs.Get(o.tx, x.FloatingIPID)
		if err != nil {
			return err
		}
		changed := *f
		if err := o.removeForwarding(x, &changed); err != nil {
			return err
		}
	}
	return nil
}

// deriveForwardings stores what the forwardings of a floating IP mean to packets now.
func (o *operation) deriveForwardings(f *neutron.FloatingIP) error {
	if !f.Forwarded() {
		return nil
	}
	r, link, err := o.serverOf(f)
	if err != nil {
		return err
	}
	for x := range schema.PortForwardings.By(o.tx, "floating_ip", f.ID) {
		if err := o.putBundle(kindPortForwarding, x.ID, translate.PortForwarding(x, f, r, link)); err != nil {
			return err
		}
	}
	return nil
}

// forwardsTo reports whether a floating IP forwards to addresses of a subnet.
func (o *operation) forwardsTo(f *neutron.FloatingIP, s *neutron.Subnet) bool {
	for x := range schema.PortForwardings.By(o.tx, "floating_ip", f.ID) {
		p, ok := schema.Ports.Peek(o.tx, x.InternalPortID)
		if ok && slices.Contains(p.FixedIPs, neutron.FixedIP{SubnetID: s.ID, IPAddress: x.InternalIPAddress}) {
			return true
		}
	}
	return false
}

// inUseByForwardings is the refusal of what a floating IP with forwardings cannot do.
func inUseByForwardings(f *neutron.FloatingIP) error {
	return conflict("FipInUseByPortForwarding", "Floating IP %s in use by Port Forwarding resources.", f.ID)
}

// badForwarding returns the error of a forwarding that does not fit.
func badForwarding(format string, args ...any) error {
	e := neutron.Errorf(neutron.Invalid, "BadRequest", format, args...)
	e.Message = "Bad port_forwarding request: " + e.Message + "."
	return e
}

// fixedIPOf returns the IPv4 address of a port that a forwarding leads to.
func fixedIPOf(p *neutron.Port, a netip.Addr) (neutron.FixedIP, bool) {
	i := slices.IndexFunc(p.FixedIPs, func(f neutron.FixedIP) bool { return f.IPAddress == a && a.Is4() })
	if i < 0 {
		return neutron.FixedIP{}, false
	}
	return p.FixedIPs[i], true
}
