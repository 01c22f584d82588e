package control

import (
	"context"
	"errors"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// The statuses of bindings. A port has at most one that is active.
const (
	bindingActive   = "ACTIVE"
	bindingInactive = "INACTIVE"
)

// PortBindingOperations are the operations on the bindings of one port, each named by its host.
// Only admins see them.
type PortBindingOperations struct {
	Operations[*neutron.PortBindingView]
	// Activate makes an inactive binding the active one, and that inactive: the port moves.
	Activate func(ctx context.Context, c neutron.Caller, host string) (*neutron.PortBindingView, error)
}

// PortBindings returns the operations on the bindings of a port.
func (s *Service) PortBindings(portID string) PortBindingOperations {
	b := portBindings{s.ports, portID}
	return PortBindingOperations{
		Operations: Operations[*neutron.PortBindingView]{Create: b.create, Update: b.update, Delete: b.delete, Show: b.show, List: b.list},
		Activate:   b.activate,
	}
}

// portBindings are the operations on a port's bindings. The attributes of the active one are the
// port's, and the others are stored with it.
type portBindings struct {
	ports
	id string // of the port
}

// check returns an error unless the port is a machine's, as the reference wants it.
func (b portBindings) check(p *neutron.Port) error {
	if strings.HasPrefix(p.DeviceOwner, "compute:") && p.SubportVLAN == 0 {
		return nil
	}
	return neutron.Errorf(neutron.Invalid, "BadRequest", "Bad port request: Invalid port %s. Operation only valid on compute ports.", p.ID)
}

func (b portBindings) notFound(host string) error {
	return neutron.Errorf(neutron.NotFound, "PortBindingNotFound", "Binding for port %s for host %s could not be found.", b.id, host)
}

// read returns the port and the snapshot it is in.
func (b portBindings) read(ctx context.Context, c neutron.Caller) (*records.Snap, *neutron.Port, error) {
	snap, err := b.service.view(ctx)
	if err != nil {
		return nil, nil, err
	}
	p, ok := schema.Ports.Peek(snap, b.id)
	if !ok || !b.sees(snap, c, p) {
		return nil, nil, neutron.Ports.NotFound(b.id)
	}
	return snap, p, b.check(p)
}

func (b portBindings) list(ctx context.Context, c neutron.Caller, _ neutron.Query) (iter.Seq[*neutron.PortBindingView], error) {
	snap, p, err := b.read(ctx, c)
	if err != nil {
		return nil, err
	}
	var all []*neutron.PortBindingView
	if c.Admin() {
		if !p.BindingDeleted {
			all = append(all, b.active(snap, p))
		}
		for _, other := range p.OtherBindings {
			all = append(all, b.inactive(snap, p, other))
		}
	}
	slices.SortFunc(all, func(a, b *neutron.PortBindingView) int { return strings.Compare(a.HostID, b.HostID) })
	return slices.Values(all), nil
}

func (b portBindings) show(ctx context.Context, c neutron.Caller, host string) (*neutron.PortBindingView, error) {
	snap, p, err := b.read(ctx, c)
	if err != nil {
		return nil, err
	}
	i, err := b.find(p, c, host)
	switch {
	case err != nil:
		return nil, err
	case i < 0:
		return b.active(snap, p), nil
	}
	return b.inactive(snap, p, p.OtherBindings[i]), nil
}

// find returns the place of a host's binding among the inactive ones of a port, or -1 for the
// active one.
func (b portBindings) find(p *neutron.Port, c neutron.Caller, host string) (int, error) {
	i := indexOfBinding(p, host)
	if i < 0 && !bindingActiveOn(p, host) {
		return 0, b.notFound(host)
	}
	if !c.Admin() { // who may not see it does not learn that it is there
		return 0, neutron.Errorf(neutron.NotFound, "HTTPNotFound", "The resource could not be found.")
	}
	return i, nil
}

func indexOfBinding(p *neutron.Port, host string) int {
	return slices.IndexFunc(p.OtherBindings, func(o neutron.PortBinding) bool { return o.HostID == host })
}

func bindingActiveOn(p *neutron.Port, host string) bool { return !p.BindingDeleted && p.HostID == host }

func (b portBindings) active(r records.Reader, p *neutron.Port) *neutron.PortBindingView {
	v := b.service.portView(r, p)
	return &neutron.PortBindingView{
		PortBinding: activeBinding(p), Status: bindingActive, VIFType: v.VIFType, VIFDetails: v.VIFDetails,
	}
}

// activeBinding returns the binding that the port's own attributes are.
func activeBinding(p *neutron.Port) neutron.PortBinding {
	return neutron.PortBinding{HostID: p.HostID, VNICType: p.VNICType, Profile: p.Profile}
}

func (b portBindings) inactive(r records.Reader, p *neutron.Port, o neutron.PortBinding) *neutron.PortBindingView {
	v := &neutron.PortBindingView{PortBinding: o, Status: bindingInactive, VIFType: vifUnbound, VIFDetails: b.service.vifNone}
	if o.Deactivated {
		return v
	}
	if _, err := schema.HostByName(r, o.HostID); err != nil {
		v.VIFType = vifFailed
		return v
	}
	v.VIFType, v.VIFDetails = vifTap, b.service.vifOverlay
	if b.service.onRouted(r, p) {
		v.VIFDetails = b.service.vifRouted
	}
	return v
}

// edit changes the port in a transaction. change gets a copy of the port, and returns the view of
// the binding it is about.
func (b portBindings) edit(ctx context.Context, c neutron.Caller, ifMatch *int64,
	change func(o *operation, p *neutron.Port) (view func() *neutron.PortBindingView, err error)) (*neutron.PortBindingView, error) {
	return transact(ctx, b.service, c, func(o *operation) (*neutron.PortBindingView, error) {
		old, _, err := b.inTransaction(o, b.id)
		if err != nil {
			return nil, err
		}
		if err := b.check(old); err != nil {
			return nil, err
		}
		n, err := schema.Networks.Need(o.tx, old.NetworkID)
		if err != nil {
			return nil, err
		}
		p := *old
		p.OtherBindings = slices.Clone(old.OtherBindings)
		view, err := change(o, &p)
		if err != nil {
			return nil, err
		}
		if err := checkRevision(ifMatch, old.RevisionNumber); err != nil {
			return nil, err
		}
		if err := o.refuseChange(n.ID); err != nil {
			return nil, err
		}
		if !reflect.DeepEqual(&p, old) {
			o.bump(&p.Standard)
			if err := o.putPort(&p, n); err != nil {
				return nil, err
			}
		}
		return view(), nil
	})
}

// create makes the binding of vs, which has one. It is inactive unless the active one is deleted.
func (b portBindings) create(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.PortBindingView, error) {
	if err := neutron.AuthorizeBinding(c, neutron.Create); err != nil {
		return nil, err
	}
	made := neutron.PortBinding{Profile: map[string]any{}}
	applyBinding(&made, vs[0])
	v, err := b.edit(ctx, c, nil, func(o *operation, p *neutron.Port) (func() *neutron.PortBindingView, error) {
		if bindingActiveOn(p, made.HostID) || indexOfBinding(p, made.HostID) >= 0 {
			return nil, b.alreadyExists(made.HostID)
		}
		if p.BindingDeleted {
			return b.setActive(o, p, made)
		}
		if err := neutron.CheckList("bindings", len(p.OtherBindings)+1); err != nil {
			return nil, err
		}
		if err := b.resolve(o, p, &made); err != nil {
			return nil, err
		}
		p.OtherBindings = append(p.OtherBindings, made)
		return func() *neutron.PortBindingView { return b.inactive(o.tx, p, made) }, nil
	})
	return []*neutron.PortBindingView{v}, err
}

func (b portBindings) alreadyExists(host string) error {
	return conflict("PortBindingAlreadyExists", "Binding for port %s on host %s already exists.", b.id, host)
}

// applyBinding sets what a request names.
func applyBinding(to *neutron.PortBinding, v neutron.Values) {
	setText(&to.HostID, v, "host")
	setText(&to.VNICType, v, "vnic_type")
	if profile, ok := v["profile"].(map[string]any); ok {
		to.Profile = maps.Clone(profile)
	}
}

// update changes a binding. Another host for the active one moves the port.
func (b portBindings) update(ctx context.Context, c neutron.Caller, host string, v neutron.Values, ifMatch *int64) (*neutron.PortBindingView, error) {
	return b.edit(ctx, c, ifMatch, func(o *operation, p *neutron.Port) (func() *neutron.PortBindingView, error) {
		i, err := b.find(p, c, host)
		if err != nil {
			return nil, err
		}
		changed := activeBinding(p)
		if i >= 0 {
			changed = p.OtherBindings[i]
		}
		applyBinding(&changed, v)
		if changed.HostID != host && (bindingActiveOn(p, changed.HostID) || indexOfBinding(p, changed.HostID) >= 0) {
			return nil, b.alreadyExists(changed.HostID)
		}
		if i < 0 {
			return b.setActive(o, p, changed)
		}
		changed.Deactivated = false
		if err := b.resolve(o, p, &changed); err != nil {
			return nil, err
		}
		p.OtherBindings[i] = changed
		return func() *neutron.PortBindingView { return b.inactive(o.tx, p, changed) }, nil
	})
}

// delete deletes a binding. Without its active one a port is not bound.
func (b portBindings) delete(ctx context.Context, c neutron.Caller, host string, ifMatch *int64) error {
	_, err := b.edit(ctx, c, ifMatch, func(o *operation, p *neutron.Port) (func() *neutron.PortBindingView, error) {
		i, err := b.find(p, c, host)
		if err != nil {
			return nil, err
		}
		none := func() *neutron.PortBindingView { return nil }
		if i >= 0 {
			p.OtherBindings = slices.Delete(p.OtherBindings, i, i+1)
			return none, nil
		}
		p.HostID, p.Profile, p.BindingDeleted = "", map[string]any{}, true
		return none, o.settleHost(p)
	})
	return err
}

// activate makes an inactive binding the active one.
func (b portBindings) activate(ctx context.Context, c neutron.Caller, host string) (*neutron.PortBindingView, error) {
	return b.edit(ctx, c, nil, func(o *operation, p *neutron.Port) (func() *neutron.PortBindingView, error) {
		i, err := b.find(p, c, host)
		if err != nil {
			return nil, err
		}
		if i < 0 {
			return nil, conflict("PortBindingAlreadyActive", "Binding for port %s on host %s is already active.", b.id, host)
		}
		return b.exchange(o, p, i)
	})
}

// exchange makes one of the inactive bindings the active one, and that inactive.
func (b portBindings) exchange(o *operation, p *neutron.Port, i int) (func() *neutron.PortBindingView, error) {
	chosen, before := p.OtherBindings[i], activeBinding(p)
	p.OtherBindings = slices.Delete(p.OtherBindings, i, i+1)
	if before.HostID != "" {
		if before.Profile == nil {
			before.Profile = map[string]any{}
		}
		before.Deactivated = true
		p.OtherBindings = append(p.OtherBindings, before)
	}
	return b.setActive(o, p, chosen)
}

// setActive binds the port as a binding says.
func (b portBindings) setActive(o *operation, p *neutron.Port, to neutron.PortBinding) (func() *neutron.PortBindingView, error) {
	if err := b.resolve(o, p, &to); err != nil {
		return nil, err
	}
	before := p.HostID
	p.HostID, p.VNICType, p.Profile, p.BindingDeleted = to.HostID, to.VNICType, to.Profile, false
	return func() *neutron.PortBindingView { return b.active(o.tx, p) }, errors.Join(portEdit{o, p, nil}.settleSegment(before), o.settleHost(p))
}

// resolve finds the host of a binding. It is an error unless the port can be bound as the binding
// says: the host has joined, and no other port has the interface there.
func (b portBindings) resolve(o *operation, p *neutron.Port, as *neutron.PortBinding) error {
	h, err := schema.HostByName(o.tx, as.HostID)
	if err != nil {
		return conflict("PortBindingError", "Binding for port %s on host %s could not be created or updated: "+
			"no host has joined under this name, see heddle host list.", b.id, as.HostID)
	}
	as.BoundHostID = h.ID
	bound := *p
	bound.HostID, bound.Profile = as.HostID, as.Profile
	name := translate.InterfaceName(&bound)
	for other := range schema.Ports.By(o.tx, "interface", schema.PortInterface(h.ID, name)) {
		if other.ID != p.ID {
			return interfaceTaken(&bound, name, other.ID)
		}
	}
	return nil
}
