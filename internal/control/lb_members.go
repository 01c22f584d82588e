package control

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// Members returns the operations on the members of a pool.
func (s *LoadBalancing) Members(pool string) Operations[*neutron.LBMemberView] {
	id := func(v *neutron.LBMemberView) string { return v.ID }
	return Operations[*neutron.LBMemberView]{
		Create: func(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.LBMemberView, error) {
			return s.members.create(ctx, c, vs, func(o *operation, v neutron.Values) (*neutron.LBMemberView, error) { return s.createMember(o, pool, v) }, id)
		},
		Update: func(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.LBMemberView, error) {
			return s.members.modify(ctx, c, id, v, ifMatch, func(_ *operation, m, _ *neutron.LBMember) error {
				if m.PoolID != pool {
					return neutron.LBNotFound(neutron.NameMember, id)
				}
				return applyMember(m, v)
			}, (*operation).putMember)
		},
		Delete: func(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
			return s.members.remove(ctx, c, id, ifMatch, func(o *operation, m *neutron.LBMember) error {
				if m.PoolID != pool {
					return neutron.LBNotFound(neutron.NameMember, id)
				}
				return o.removeMember(id)
			})
		},
		Show: func(ctx context.Context, c neutron.Caller, id string) (*neutron.LBMemberView, error) {
			v, err := s.members.show(ctx, c, id)
			if err == nil && v.PoolID != pool {
				return nil, neutron.LBNotFound(neutron.NameMember, id)
			}
			return v, err
		},
		List: func(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.LBMemberView], error) {
			return s.listMembers(ctx, c, pool, q)
		},
	}
}

func (s *LoadBalancing) listMembers(ctx context.Context, c neutron.Caller, pool string, q neutron.Query) (iter.Seq[*neutron.LBMemberView], error) {
	snap, err := s.Service.view(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := s.pools.find(c, pool, func(id string) (*neutron.LBPool, bool) { return schema.LBPools.Peek(snap, id) }); err != nil {
		return nil, err
	}
	return s.members.in(snap, c, q, schema.LBMembers.By(snap, "pool", pool)), nil
}

func (s *LoadBalancing) createMember(o *operation, pool string, v neutron.Values) (*neutron.LBMemberView, error) {
	p, lb, err := s.poolToFill(o, pool)
	if err != nil {
		return nil, err
	}
	if err := o.chargeLB(p.ProjectID, lbQuotaMember, neutron.NameMember, 1); err != nil {
		return nil, err
	}
	m, err := s.newMember(o, p, lb, v)
	if err != nil {
		return nil, err
	}
	return s.members.view(o.tx, m), nil
}

// poolToFill finds a pool that members are made in, and its load balancer.
func (s *LoadBalancing) poolToFill(o *operation, pool string) (*neutron.LBPool, *neutron.LoadBalancer, error) {
	p, err := s.pools.use(o, pool)
	if err != nil {
		return nil, nil, err
	}
	if o.pending(workDeletePool, p.ID) || o.pending(workDeleteBalancer, p.LoadBalancerID) {
		return nil, nil, neutron.LBNotFound(neutron.NamePool, p.ID)
	}
	lb, err := schema.LoadBalancers.Need(o.tx, p.LoadBalancerID)
	return p, lb, err
}

// newMember makes a member of a pool, whose project has it. The caller has charged for it.
func (s *LoadBalancing) newMember(o *operation, p *neutron.LBPool, lb *neutron.LoadBalancer, v neutron.Values) (*neutron.LBMember, error) {
	m := &neutron.LBMember{
		Standard: o.lbStandard(v), AdminStateUp: v.Flag("admin_state_up"), PoolID: p.ID, Weight: 1,
		Address: requestedAddress(v, "address"), ProtocolPort: number(v, "protocol_port"), SubnetID: v.Text("subnet_id"),
	}
	m.ProjectID = p.ProjectID
	if err := neutron.CheckMemberAddress(m.Address, lb.VIPAddress); err != nil {
		return nil, err
	}
	if m.SubnetID != "" {
		if _, _, err := o.subnets.inTransaction(o, m.SubnetID); err != nil {
			return nil, neutron.LBMissing(neutron.Subnets, "Subnet", m.SubnetID)
		}
	}
	if err := applyMember(m, v); err != nil {
		return nil, err
	}
	return m, o.putMember(m)
}

// applyMember sets what a request names.
func applyMember(m *neutron.LBMember, v neutron.Values) error {
	setFlag(&m.AdminStateUp, v, "admin_state_up")
	setFlag(&m.Backup, v, "backup")
	setNumber(&m.Weight, v, "weight")
	if v.Has("monitor_port") {
		m.MonitorPort = 0
		setNumber(&m.MonitorPort, v, "monitor_port")
	}
	if v.Has("monitor_address") {
		m.MonitorAddress = requestedAddress(v, "monitor_address")
	}
	return neutron.CheckMonitorAddress(m.MonitorAddress)
}

// putMember stores a member with what is derived from it.
func (o *operation) putMember(m *neutron.LBMember) error {
	err := schema.LBMembers.Put(o.tx, m)
	var taken *records.TakenError
	if errors.As(err, &taken) && taken.Name == "address" {
		return neutron.MemberTaken(m.PoolID, m.Address.String(), m.ProtocolPort)
	}
	if err != nil {
		return err
	}
	return o.putBundle(kindLBMember, m.ID, translate.LBMember(m))
}

// removeMember deletes a member with what is derived from it.
func (o *operation) removeMember(id string) error {
	return errors.Join(o.dropBundle(kindLBMember, id), schema.LBMembers.Delete(o.tx, id))
}

// keepMember gives a member that stays what a request names.
func (s *LoadBalancing) keepMember(o *operation, id string, v neutron.Values) error {
	old, err := schema.LBMembers.Get(o.tx, id)
	if err != nil {
		return err
	}
	m := *old
	if given, all := v[GivenOnly].(neutron.Values); all {
		v = given
	}
	applyStandard(&m.Standard, v)
	setList(&m.Tags, v, "tags")
	if err := applyMember(&m, v); err != nil {
		return err
	}
	o.bump(&m.Standard)
	return o.putMember(&m)
}

// GivenOnly is the name under which the values of a member that may be there already have those
// that the request names, without defaults.
const GivenOnly = "heddle:given"

// memberPlace returns what no two members of a pool share.
func memberPlace(a netip.Addr, port int) string { return fmt.Sprintf("%s/%d", a, port) }

func lbMemberView(r records.Reader, m *neutron.LBMember) *neutron.LBMemberView {
	status, since := memberStatus(r, m)
	return &neutron.LBMemberView{LBMember: m, OperatingStatus: status, Since: since}
}
