package control

import (
	"context"
	"errors"
	"net/netip"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// Listeners returns the operations on listeners. Deleting one leaves its pool.
func (s *LoadBalancing) Listeners() Operations[*neutron.ListenerView] {
	id := func(v *neutron.ListenerView) string { return v.ID }
	return Operations[*neutron.ListenerView]{
		Create: func(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.ListenerView, error) {
			return s.listeners.create(ctx, c, vs, s.createListener, id)
		},
		Update: s.updateListener,
		Delete: func(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
			return s.listeners.remove(ctx, c, id, ifMatch, func(o *operation, l *neutron.Listener) error { return o.removeListener(l.ID) })
		},
		Show: s.listeners.show, List: s.listeners.list,
	}
}

func (s *LoadBalancing) createListener(o *operation, v neutron.Values) (*neutron.ListenerView, error) {
	lb, err := s.balancerToFill(o, v.Text("loadbalancer_id"))
	if err != nil {
		return nil, err
	}
	l, err := s.newListener(o, lb, v)
	if err != nil {
		return nil, err
	}
	return s.listeners.view(o.tx, l), nil
}

// newListener makes a listener of a load balancer, whose project has it.
func (s *LoadBalancing) newListener(o *operation, lb *neutron.LoadBalancer, v neutron.Values) (*neutron.Listener, error) {
	l := &neutron.Listener{
		Standard: o.lbStandard(v), AdminStateUp: v.Flag("admin_state_up"), LoadBalancerID: lb.ID,
		Protocol: v.Text("protocol"), ProtocolPort: number(v, "protocol_port"), ConnLimit: number(v, "connection_limit"),
	}
	l.ProjectID = lb.ProjectID
	if err := neutron.CheckListenerExtras(v, l.Protocol); err != nil {
		return nil, err
	}
	if err := neutron.CheckListenerProtocol(l.Protocol); err != nil {
		return nil, err
	}
	if err := s.applyListener(o, l, lb, v); err != nil {
		return nil, err
	}
	if err := o.chargeLB(l.ProjectID, lbQuotaListener, neutron.NameListener, 1); err != nil {
		return nil, err
	}
	return l, o.putListener(l, lb)
}

// applyListener sets what a request names, and checks it against the rest.
func (s *LoadBalancing) applyListener(o *operation, l *neutron.Listener, lb *neutron.LoadBalancer, v neutron.Values) error {
	setFlag(&l.AdminStateUp, v, "admin_state_up")
	setNumber(&l.ConnLimit, v, "connection_limit")
	setNumber(&l.Timeouts.ClientData, v, "timeout_client_data")
	setNumber(&l.Timeouts.MemberConnect, v, "timeout_member_connect")
	setNumber(&l.Timeouts.MemberData, v, "timeout_member_data")
	setNumber(&l.Timeouts.TCPInspect, v, "timeout_tcp_inspect")
	setList(&l.AllowedCIDRs, v, "allowed_cidrs")
	for _, p := range list[netip.Prefix](v, "allowed_cidrs") {
		if p.Addr().Is4() != lb.VIPAddress.Is4() {
			return neutron.LBInvalid("CIDR %s IP version incompatible with VIP %s IP version.", p, lb.VIPAddress)
		}
	}
	if !v.Has("default_pool_id") {
		return nil
	}
	l.DefaultPoolID = v.Text("default_pool_id")
	if l.DefaultPoolID == "" {
		return nil
	}
	p, err := s.pools.use(o, l.DefaultPoolID)
	if err == nil && o.pending(workDeletePool, p.ID) {
		err = neutron.LBNotFound(neutron.NamePool, p.ID)
	}
	if err != nil {
		return err
	}
	if p.LoadBalancerID != lb.ID {
		return neutron.LBNotFound(neutron.NamePool, p.ID)
	}
	return neutron.CheckLBProtocols(l.Protocol, p.Protocol)
}

func setNumber(to *int, v neutron.Values, name string) {
	if n := v.Number(name); n != nil {
		*to = *n
	}
}

func (s *LoadBalancing) updateListener(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.ListenerView, error) {
	var lb *neutron.LoadBalancer
	return s.listeners.modify(ctx, c, id, v, ifMatch, func(o *operation, l, _ *neutron.Listener) (err error) {
		if err := neutron.CheckListenerExtras(v, l.Protocol); err != nil {
			return err
		}
		if lb, err = schema.LoadBalancers.Need(o.tx, l.LoadBalancerID); err != nil {
			return err
		}
		return s.applyListener(o, l, lb, v)
	}, func(o *operation, l *neutron.Listener) error { return o.putListener(l, lb) })
}

// putListener stores a listener with what is derived from it.
func (o *operation) putListener(l *neutron.Listener, lb *neutron.LoadBalancer) error {
	err := schema.Listeners.Put(o.tx, l)
	var taken *records.TakenError
	if errors.As(err, &taken) && taken.Name == "protocol_port" {
		protocol := l.Protocol
		if other, ok := schema.Listeners.Peek(o.tx, taken.By); ok {
			protocol = other.Protocol
		}
		return neutron.ListenerPortTaken(lb.ID, protocol, l.ProtocolPort)
	}
	if err != nil {
		return err
	}
	return o.putBundle(kindListener, l.ID, translate.Listener(l, lb))
}

// removeListener deletes a listener with what is derived from it.
func (o *operation) removeListener(id string) error {
	return errors.Join(o.dropBundle(kindListener, id), schema.Listeners.Delete(o.tx, id))
}

func listenerView(r records.Reader, l *neutron.Listener) *neutron.ListenerView {
	status, reason := listenerStatus(r, l)
	return &neutron.ListenerView{Listener: l, OperatingStatus: status, StatusReason: reason}
}
