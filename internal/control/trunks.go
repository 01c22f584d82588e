package control

import (
	"context"
	"errors"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

func (o *operation) createTrunk(_ context.Context, v neutron.Values) (*neutron.Trunk, error) {
	t := &neutron.Trunk{Standard: o.standard(v, 0), AdminStateUp: v.Flag("admin_state_up")}
	parent, n, err := o.portForTrunk(v.Text("port_id"))
	if err != nil {
		return nil, err
	}
	if err := o.checkNoTrunk(parent.ID); err != nil {
		return nil, err
	}
	t.PortID = parent.ID
	if err := schema.Trunks.Put(o.tx, t); err != nil {
		return nil, err
	}
	p := *parent
	p.TrunkID = t.ID
	o.bump(&p.Standard)
	if err := o.putPort(&p, n); err != nil {
		return nil, err
	}
	return t, trunkEdit{o, t}.add(list[neutron.SubportRequest](v, "sub_ports"))
}

// portForTrunk finds a port that the caller wants in a trunk: who may do so may update it.
func (o *operation) portForTrunk(id string) (*neutron.Port, *neutron.Network, error) {
	p, owner, err := o.ports.inTransaction(o, id)
	if err != nil {
		return nil, nil, err
	}
	if err := neutron.Authorize(o.caller, neutron.Ports, neutron.Update, nil, owner); err != nil {
		return nil, nil, err
	}
	n, err := schema.Networks.Need(o.tx, p.NetworkID)
	if err != nil {
		return nil, nil, err
	}
	if n.Routed() || translate.Uplink(n) {
		return nil, nil, invalid("port %s cannot be in a trunk: its network is of type %s, which has no layer 2", id, n.NetworkType)
	}
	return p, n, o.refuseChange(n.ID)
}

// checkNoTrunk refuses a port that is in a trunk already.
func (o *operation) checkNoTrunk(portID string) error {
	if _, is := schema.Subports.Peek(o.tx, portID); is {
		return conflict("TrunkPortInUse", "Port %s is in use by another trunk.", portID)
	}
	if schema.Trunks.CountBy(o.tx, "parent", portID) > 0 {
		return parentPortInUse(portID)
	}
	return nil
}

func parentPortInUse(portID string) error {
	return conflict("ParentPortInUse", "Port %s is currently in use and is not eligible for use as a parent port.", portID)
}

// checkPortInNoTrunk refuses to delete a port, or to give it to a router, while it is in a trunk.
func (o *operation) checkPortInNoTrunk(p *neutron.Port) error {
	if sub, is := schema.Subports.Peek(o.tx, p.ID); is {
		return portInUseAsSubport(sub)
	}
	if p.TrunkID != "" {
		return conflict("PortInUseAsTrunkParent", "Port %s is currently a parent port for trunk %s.", p.ID, p.TrunkID)
	}
	return nil
}

func portInUseAsSubport(sub *neutron.Subport) error {
	return conflict("PortInUseAsSubPort", "Port %s is currently a subport for trunk %s.", sub.PortID, sub.TrunkID)
}

// parentOf returns the parent port of a subport.
func parentOf(r records.Reader, p *neutron.Port) (*neutron.Port, bool) {
	sub, ok := schema.Subports.Peek(r, p.ID)
	if !ok {
		return nil, false
	}
	t, ok := schema.Trunks.Peek(r, sub.TrunkID)
	if !ok {
		return nil, false
	}
	return schema.Ports.Peek(r, t.PortID)
}

// bindSubport gives a subport the binding of its parent.
func (o *operation) bindSubport(p, parent *neutron.Port) {
	before, beforeInterface := p.BoundHostID, p.InterfaceName
	p.HostID, p.BoundHostID, p.InterfaceName = parent.HostID, parent.BoundHostID, parent.InterfaceName
	if before != "" && before != p.BoundHostID {
		o.leave(p, before, beforeInterface)
	}
}

// boundLike reports whether a subport has the binding of its parent.
func boundLike(p, parent *neutron.Port) bool {
	return p.HostID == parent.HostID && p.BoundHostID == parent.BoundHostID && p.InterfaceName == parent.InterfaceName
}

// followParent binds the subports of a trunk after its parent has been bound elsewhere: up to
// stepObjects in the same commit. The others are [Bindings]'s.
func (o *operation) followParent(old, parent *neutron.Port) error {
	if parent.TrunkID == "" || old == nil || boundLike(old, parent) {
		return nil
	}
	ids := schema.Subports.Referrers(o.tx, "trunk", parent.TrunkID)
	for _, id := range ids[:min(len(ids), stepObjects)] {
		p, err := schema.Ports.Get(o.tx, id)
		if err != nil {
			return err
		}
		n, err := schema.Networks.Need(o.tx, p.NetworkID)
		if err != nil {
			return err
		}
		bound := *p
		o.bindSubport(&bound, parent)
		o.bump(&bound.Standard)
		if err := o.putPort(&bound, n); err != nil {
			return err
		}
	}
	return nil
}

// trunkEdit is a trunk whose subports an operation changes.
type trunkEdit struct {
	*operation
	t *neutron.Trunk
}

// add makes ports subports of the trunk.
func (e trunkEdit) add(requests []neutron.SubportRequest) error {
	if len(requests) == 0 {
		return nil
	}
	parent, err := schema.Ports.Get(e.tx, e.t.PortID)
	if err != nil {
		return err
	}
	n, err := schema.Networks.Need(e.tx, parent.NetworkID)
	if err != nil {
		return err
	}
	type addition struct {
		port    *neutron.Port
		network *neutron.Network
		sub     *neutron.Subport
	}
	var all []addition
	for _, r := range requests { // like the reference: before it looks at the trunk
		p, of, sub, err := e.check(r, n.MTU)
		if err != nil {
			return err
		}
		all = append(all, addition{p, of, sub})
	}
	if err := e.checkManageable(); err != nil {
		return err
	}
	for _, a := range all {
		if err := e.putSubport(a.sub); err != nil {
			return err
		}
		p := *a.port
		p.SubportVLAN, p.DeviceOwner = uint16(a.sub.SegmentationID), ownerSubport
		e.bindSubport(&p, parent)
		e.bump(&p.Standard)
		if err := e.putPort(&p, a.network); err != nil {
			return err
		}
	}
	return nil
}

// check finds the port of a request and returns the subport that it would be. mtu is the parent's.
func (e trunkEdit) check(r neutron.SubportRequest, mtu int) (*neutron.Port, *neutron.Network, *neutron.Subport, error) {
	if r.PortID == e.t.PortID {
		return nil, nil, nil, parentPortInUse(r.PortID)
	}
	p, n, missing := e.portForTrunk(r.PortID)
	if missing == nil && n.MTU > mtu {
		return nil, nil, nil, conflict("SubPortMtuGreaterThanTrunkPortMtu", "MTU %d of subport %s cannot be greater than MTU %d of trunk %s.",
			n.MTU, p.ID, mtu, e.t.PortID)
	}
	sub := &neutron.Subport{PortID: r.PortID, TrunkID: e.t.ID}
	var err error
	switch {
	case !r.Inherits():
		sub.SegmentationType, sub.SegmentationID, err = r.Segmentation()
	case missing == nil:
		id := 0
		if n.SegmentationID != nil {
			id = *n.SegmentationID
		}
		sub.SegmentationType, sub.SegmentationID, err = neutron.CheckSegmentation(n.NetworkType, id)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	if missing != nil {
		return nil, nil, nil, missing
	}
	if err := e.checkNoTrunk(r.PortID); err != nil {
		return nil, nil, nil, err
	}
	if p.DeviceID != "" {
		return nil, nil, nil, portInUse(p)
	}
	return p, n, sub, nil
}

func (e trunkEdit) checkManageable() error {
	if !e.t.AdminStateUp {
		return conflict("TrunkDisabled", "Trunk %s is currently disabled.", e.t.ID)
	}
	if e.pending(workDeleteTrunk, e.t.ID) {
		return conflict("TrunkInUse", "Trunk %s is currently in use.", e.t.ID)
	}
	return nil
}

func (e trunkEdit) putSubport(sub *neutron.Subport) error {
	err := schema.Subports.Put(e.tx, sub)
	var taken *records.TakenError
	if errors.As(err, &taken) {
		return conflict("DuplicateSubPort", "segmentation_type %s and segmentation_id %d already in use on trunk %s.",
			sub.SegmentationType, sub.SegmentationID, sub.TrunkID)
	}
	return err
}

// remove takes a subport out of the trunk: the port is as before, without a binding.
func (e trunkEdit) remove(portID string) error {
	if sub, ok := schema.Subports.Peek(e.tx, portID); !ok || sub.TrunkID != e.t.ID {
		return neutron.Errorf(neutron.NotFound, "SubPortNotFound", "SubPort %s on trunk %s could not be found.", portID, e.t.ID)
	}
	if err := schema.Subports.Delete(e.tx, portID); err != nil {
		return err
	}
	old, err := schema.Ports.Get(e.tx, portID)
	if err != nil {
		return err
	}
	n, err := schema.Networks.Need(e.tx, old.NetworkID)
	if err != nil {
		return err
	}
	p := *old
	p.SubportVLAN, p.HostID = 0, ""
	if p.DeviceOwner == ownerSubport {
		p.DeviceOwner = ""
	}
	if err := e.settleHost(&p); err != nil {
		return err
	}
	e.bump(&p.Standard)
	return e.putPort(&p, n)
}

// update changes a trunk.
func (s trunks) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.TrunkView, error) {
	return s.modify(ctx, c, id, v, ifMatch, func(_ *operation, t, _ *neutron.Trunk) error {
		setFlag(&t.AdminStateUp, v, "admin_state_up")
		return nil
	}, put(schema.Trunks))
}

// addSubports makes ports subports of a trunk.
func (s trunks) addSubports(ctx context.Context, c neutron.Caller, id string, requests []neutron.SubportRequest) (*neutron.TrunkView, error) {
	return s.edit(ctx, c, id, "add_subports", func(e trunkEdit) error {
		if len(requests) == 0 {
			return e.checkManageable()
		}
		return e.add(requests)
	})
}

// removeSubports takes subports out of a trunk.
func (s trunks) removeSubports(ctx context.Context, c neutron.Caller, id string, requests []neutron.SubportRequest) (*neutron.TrunkView, error) {
	return s.edit(ctx, c, id, "remove_subports", func(e trunkEdit) error {
		if err := e.checkManageable(); err != nil {
			return err
		}
		for _, r := range requests {
			if err := e.remove(r.PortID); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s trunks) edit(ctx context.Context, c neutron.Caller, id, action string, change func(e trunkEdit) error) (*neutron.TrunkView, error) {
	return transact(ctx, s.service, c, func(o *operation) (*neutron.TrunkView, error) {
		old, owner, err := s.inTransaction(o, id)
		if err != nil {
			return nil, err
		}
		if err := neutron.AuthorizeAction(c, neutron.Trunks, action, owner); err != nil {
			return nil, err
		}
		t := *old
		if err := change(trunkEdit{o, &t}); err != nil {
			return nil, err
		}
		o.bump(&t.Standard)
		if err := schema.Trunks.Put(o.tx, &t); err != nil {
			return nil, err
		}
		return trunkView(o.tx, &t), nil
	})
}

// delete deletes a trunk. Its ports stay, without it.
func (s trunks) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	pending, err := transact(ctx, s.service, c, func(o *operation) (pending bool, err error) {
		t, err := s.toChange(o, id, neutron.Delete, nil, ifMatch)
		if err != nil {
			return false, err
		}
		if o.pending(workDeleteTrunk, id) {
			return true, nil
		}
		if err := (trunkEdit{o, t}).checkManageable(); err != nil {
			return false, err
		}
		if len(schema.Subports.Referrers(o.tx, "trunk", id)) > stepObjects {
			return true, o.begin(workDeleteTrunk, id)
		}
		_, err = steps{o}.deleteTrunk(id)
		return false, err
	})
	if pending && err == nil {
		s.service.carryOut(ctx, workDeleteTrunk, id)
	}
	return err
}

// deleteTrunk takes some subports out of a trunk, and finally deletes it.
func (o steps) deleteTrunk(id string) (done bool, err error) {
	t, err := schema.Trunks.Get(o.tx, id)
	if err != nil {
		return true, nil // gone
	}
	subports := schema.Subports.Referrers(o.tx, "trunk", id)
	for _, port := range subports[:min(len(subports), stepObjects)] {
		if err := (trunkEdit{o.operation, t}).remove(port); err != nil {
			return false, err
		}
	}
	if len(subports) > stepObjects {
		return false, nil
	}
	if err := schema.Trunks.Delete(o.tx, id); err != nil {
		return false, err
	}
	old, err := schema.Ports.Get(o.tx, t.PortID)
	if err != nil {
		return false, err
	}
	n, err := schema.Networks.Need(o.tx, old.NetworkID)
	if err != nil {
		return false, err
	}
	parent := *old
	parent.TrunkID = ""
	o.bump(&parent.Standard)
	return true, o.putPort(&parent, n)
}
