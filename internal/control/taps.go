package control

import (
	"context"
	"errors"
	"fmt"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

type (
	// tapServices implements the operations on tap services.
	tapServices struct {
		*resource[neutron.TapService, neutron.TapServiceView]
	}
	// tapFlows implements the operations on tap flows.
	tapFlows struct {
		*resource[neutron.TapFlow, neutron.TapFlowView]
	}
)

func newTapServices(s *Service) *resource[neutron.TapService, neutron.TapServiceView] {
	t := schema.TapServices
	return &resource[neutron.TapService, neutron.TapServiceView]{
		service: s, name: neutron.TapServices, make: (*operation).createTapService,
		finder:     ofProject(t, by(t, "port", func(q *neutron.Query) []string { return q.PortIDs }), byProject(t)),
		standard:   func(x *neutron.TapService) *neutron.Standard { return &x.Standard },
		attributes: func(x *neutron.TapServiceView) *neutron.Standard { return &x.Standard },
		answer: func(r records.Reader, x *neutron.TapService, q neutron.Query) *neutron.TapServiceView {
			v := &neutron.TapServiceView{TapService: x}
			if !q.WithoutComputed {
				v.Status = s.tapStatus(r, x)
			}
			if p, ok := schema.Ports.Peek(r, x.PortID); ok {
				v.Filtered = p.PortSecurityEnabled
			}
			return v
		},
	}
}

func newTapFlows(s *Service) *resource[neutron.TapFlow, neutron.TapFlowView] {
	t := schema.TapFlows
	return &resource[neutron.TapFlow, neutron.TapFlowView]{
		service: s, name: neutron.TapFlows, make: (*operation).createTapFlow,
		finder:     ofProject(t, byProject(t)),
		standard:   func(x *neutron.TapFlow) *neutron.Standard { return &x.Standard },
		attributes: func(x *neutron.TapFlowView) *neutron.Standard { return &x.Standard },
		answer: func(r records.Reader, x *neutron.TapFlow, q neutron.Query) *neutron.TapFlowView {
			v := &neutron.TapFlowView{TapFlow: x}
			if service, ok := schema.TapServices.Peek(r, x.TapServiceID); ok && !q.WithoutComputed {
				v.Status = s.tapStatus(r, service)
			}
			return v
		},
	}
}

// tapStatus returns the status of a tap service and its flows.
func (s *Service) tapStatus(r records.Reader, x *neutron.TapService) string {
	if p, ok := schema.Ports.Peek(r, x.PortID); ok && s.portView(r, p).Status == statusActive {
		return statusActive
	}
	return statusDown
}

// TapServices returns the operations on tap services.
func (s *Service) TapServices() Operations[*neutron.TapServiceView] {
	o := s.tapServices.untagged()
	o.Update, o.Delete = s.tapServices.update, s.tapServices.delete
	return o
}

// TapFlows returns the operations on tap flows.
func (s *Service) TapFlows() Operations[*neutron.TapFlowView] {
	o := s.tapFlows.untagged()
	o.Update, o.Delete = s.tapFlows.update, s.tapFlows.delete
	return o
}

func (o *operation) createTapService(_ context.Context, v neutron.Values) (*neutron.TapService, error) {
	x := &neutron.TapService{Standard: o.standard(v, 0), PortID: v.Text("port_id")}
	p, err := o.portToTap(neutron.TapServices, x.PortID)
	switch {
	case err != nil:
		return nil, err
	case p.ProjectID != x.ProjectID:
		return nil, neutron.NotOfTapsProject()
	case ofRouter(p.DeviceOwner):
		return nil, badTap(neutron.TapServices, "Port %s is one of a router, which would send the copies on", p.ID)
	}
	return x, errors.Join(schema.TapServices.Put(o.tx, x), o.putBundle(kindTapService, x.ID, translate.TapService(x)))
}

// createTapFlow makes a tap flow. Only an admin taps ports of other projects.
func (o *operation) createTapFlow(_ context.Context, v neutron.Values) (*neutron.TapFlow, error) {
	x := &neutron.TapFlow{Standard: o.standard(v, 0), TapServiceID: v.Text("tap_service_id"), SourcePortID: v.Text("source_port"),
		Direction: v.Text("direction"), VLANFilter: v.Text("vlan_filter")}
	service, _, err := o.tapServices.inTransaction(o, x.TapServiceID)
	switch {
	case err != nil:
		return nil, err
	case service.ProjectID != x.ProjectID:
		return nil, neutron.TapServiceNotOfProject()
	case service.PortID == x.SourcePortID:
		return nil, badTap(neutron.TapFlows, "Port %s is that of tap service %s itself", x.SourcePortID, service.ID)
	}
	p, err := o.portToTap(neutron.TapFlows, x.SourcePortID)
	switch {
	case err != nil:
		return nil, err
	case p.ProjectID != x.ProjectID && !o.caller.Admin():
		return nil, neutron.NotOfTapsProject()
	}
	// A packet is copied for each of them.
	if err := neutron.CheckList(neutron.TapFlows.Collection(), schema.TapFlows.CountBy(o.tx, "source_port", p.ID)+1); err != nil {
		return nil, err
	}
	return x, errors.Join(schema.TapFlows.Put(o.tx, x), o.putBundle(kindTapFlow, x.ID, translate.TapFlow(x)))
}

// portToTap finds a port that a tap names, and refuses one that has no place in the virtual
// topology.
func (o *operation) portToTap(name neutron.Resource, id string) (*neutron.Port, error) {
	p, _, err := o.ports.inTransaction(o, id)
	if err != nil {
		return nil, err
	}
	n, err := schema.Networks.Need(o.tx, p.NetworkID)
	switch {
	case err != nil:
		return nil, err
	case n.Routed() || translate.Uplink(n):
		return nil, badTap(name, "Port %s is on network %s of type %s: taps are on networks with a layer 2", p.ID, n.ID, n.NetworkType)
	case p.DeviceOwner == ownerFloatingIP:
		return nil, badTap(name, "Port %s holds a floating IP, and passes no packets: tap the port that the address leads to", p.ID)
	}
	return p, nil
}

// badTap returns the error of a tap that does not fit its ports.
func badTap(name neutron.Resource, format string, args ...any) error {
	return neutron.Errorf(neutron.Invalid, "BadRequest", "Bad %s request: %s.", name.Name(), fmt.Sprintf(format, args...))
}

func (s tapServices) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.TapServiceView, error) {
	return s.modify(ctx, c, id, v, ifMatch, nil, put(schema.TapServices))
}

func (s tapFlows) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.TapFlowView, error) {
	return s.modify(ctx, c, id, v, ifMatch, nil, put(schema.TapFlows))
}

func (s tapServices) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return s.remove(ctx, c, id, ifMatch, func(o *operation, x *neutron.TapService) error {
		return errors.Join(o.dropTapService(x), schema.TapServices.Delete(o.tx, id))
	})
}

func (s tapFlows) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return s.remove(ctx, c, id, ifMatch, func(o *operation, _ *neutron.TapFlow) error {
		return errors.Join(schema.TapFlows.Delete(o.tx, id), o.dropBundle(kindTapFlow, id))
	})
}

// dropTapService deletes what is derived from a tap service that goes, and from its flows.
func (o *operation) dropTapService(x *neutron.TapService) error {
	errs := []error{o.dropBundle(kindTapService, x.ID)}
	for f := range schema.TapFlows.By(o.tx, "tap_service", x.ID) {
		errs = append(errs, o.dropBundle(kindTapFlow, f.ID))
	}
	return errors.Join(errs...)
}

// dropTaps deletes what is derived from the taps that go with a port.
func (o *operation) dropTaps(port string) error {
	var errs []error
	for x := range schema.TapServices.By(o.tx, "port", port) {
		errs = append(errs, o.dropTapService(x))
	}
	for f := range schema.TapFlows.By(o.tx, "source_port", port) {
		errs = append(errs, o.dropBundle(kindTapFlow, f.ID))
	}
	return errors.Join(errs...)
}
