package control

import (
	"context"
	"iter"
	"slices"
	"time"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// LoadBalancing has the operations on load balancers and what is below them: one set of records
// that several APIs show. Refusals are [neutron.LBRefusal], which has each API's words.
type LoadBalancing struct {
	*Service

	balancers lbResource[neutron.LoadBalancer, neutron.LoadBalancerView]
	listeners lbResource[neutron.Listener, neutron.ListenerView]
	pools     lbResource[neutron.LBPool, neutron.LBPoolView]
	members   lbResource[neutron.LBMember, neutron.LBMemberView]
	monitors  lbResource[neutron.HealthMonitor, neutron.HealthMonitorView]
	vips      lbResource[neutron.VIP, neutron.VIPView]
}

// LoadBalancing returns the operations on load balancers of LBaaS v2 and Octavia.
func (s *Service) LoadBalancing() *LoadBalancing {
	return &LoadBalancing{
		Service: s,
		balancers: lbResource[neutron.LoadBalancer, neutron.LoadBalancerView]{
			service: s, name: neutron.NameLoadBalancer, kind: "loadbalancer", table: schema.LoadBalancers, view: loadBalancerView,
			standard: func(b *neutron.LoadBalancer) *neutron.Standard { return &b.Standard },
		},
		listeners: lbResource[neutron.Listener, neutron.ListenerView]{
			service: s, name: neutron.NameListener, kind: "listener", table: schema.Listeners, view: listenerView,
			standard: func(l *neutron.Listener) *neutron.Standard { return &l.Standard },
		},
		pools: lbResource[neutron.LBPool, neutron.LBPoolView]{
			service: s, name: neutron.NamePool, kind: "pool", table: schema.LBPools, view: lbPoolView,
			standard: func(p *neutron.LBPool) *neutron.Standard { return &p.Standard },
			v1:       (*neutron.LBPool).V1,
		},
		members: lbResource[neutron.LBMember, neutron.LBMemberView]{
			service: s, name: neutron.NameMember, kind: "member", table: schema.LBMembers, view: lbMemberView,
			standard: func(m *neutron.LBMember) *neutron.Standard { return &m.Standard },
			v1:       func(m *neutron.LBMember) bool { return m.V1 },
		},
		monitors: lbResource[neutron.HealthMonitor, neutron.HealthMonitorView]{
			service: s, name: neutron.NameHealthMonitor, kind: "healthmonitor", table: schema.HealthMonitors, view: healthMonitorView,
			standard: func(m *neutron.HealthMonitor) *neutron.Standard { return &m.Standard },
			v1:       func(m *neutron.HealthMonitor) bool { return m.V1 },
		},
		vips: lbResource[neutron.VIP, neutron.VIPView]{
			service: s, name: "Vip", kind: "vip", table: schema.VIPs, view: vipView, ofV1: true, v1Name: neutron.VIPs,
			standard: func(v *neutron.VIP) *neutron.Standard { return &v.Standard },
			v1:       func(*neutron.VIP) bool { return true },
		},
	}
}

// LoadBalancingV1 returns the operations on load balancing of LBaaS v1: pools of routers, VIPs,
// members and health monitors.
func (s *Service) LoadBalancingV1() *LoadBalancingV1 {
	l := &LoadBalancingV1{s.LoadBalancing()}
	l.pools.ofV1, l.pools.v1Name = true, neutron.V1Pools
	l.members.ofV1, l.members.v1Name = true, neutron.V1Members
	l.monitors.ofV1, l.monitors.v1Name = true, neutron.V1HealthMonitors
	return l
}

// lbResource implements what all kinds of objects of load balancing have in common, for objects T
// shown as V.
type lbResource[T, V any] struct {
	service    *Service
	name, kind string // in texts, and in the names of rights
	table      *records.Table[T]
	standard   func(*T) *neutron.Standard
	view       func(records.Reader, *T) *V
	v1         func(*T) bool // reports whether an object is one of LBaaS v1; nil: none is
	ofV1       bool          // the API is LBaaS v1's, which shows those alone
	v1Name     neutron.Resource
}

// shown reports whether an object is one of the API's.
func (res *lbResource[T, V]) shown(o *T) bool { return (res.v1 != nil && res.v1(o)) == res.ofV1 }

// find returns an object that the caller may see.
func (res *lbResource[T, V]) find(c neutron.Caller, id string, get func(id string) (*T, bool)) (*T, error) {
	o, ok := get(id)
	if res.ofV1 && (!ok || !res.shown(o) || !c.SeesLB(res.standard(o).ProjectID)) {
		return nil, res.v1Name.NotFound(id)
	}
	switch {
	case !ok || !res.shown(o):
		return nil, neutron.LBNotFound(res.name, id)
	case !c.SeesLB(res.standard(o).ProjectID):
		return nil, neutron.LBHidden(res.name, id)
	}
	return o, nil
}

// use finds an object that something is to be made below. The commit fails if it is gone by then;
// its attributes may change.
func (res *lbResource[T, V]) use(o *operation, id string) (*T, error) {
	object, err := res.find(o.caller, id, func(id string) (*T, bool) {
		object, err := res.table.Need(o.tx, id)
		return object, err == nil
	})
	if err != nil {
		return nil, err
	}
	return object, res.authorize(o.caller, "update", res.standard(object).ProjectID)
}

// toChange finds an object for an update or a delete.
func (res *lbResource[T, V]) toChange(o *operation, id, action string) (*T, error) {
	object, err := res.find(o.caller, id, func(id string) (*T, bool) {
		object, err := res.table.Get(o.tx, id)
		return object, err == nil
	})
	if err != nil {
		return nil, err
	}
	return object, res.authorize(o.caller, action, res.standard(object).ProjectID)
}

func (res *lbResource[T, V]) authorize(c neutron.Caller, action, project string) error {
	if c.ChangesLB(project) {
		return nil
	}
	return neutron.LBForbidden(action + "_" + res.kind)
}

// show answers an object that the caller may see.
func (res *lbResource[T, V]) show(ctx context.Context, c neutron.Caller, id string) (*V, error) {
	snap, err := res.service.view(ctx)
	if err != nil {
		return nil, err
	}
	o, err := res.find(c, id, func(id string) (*T, bool) { return res.table.Peek(snap, id) })
	if err != nil {
		return nil, err
	}
	return res.view(snap, o), nil
}

// list answers the objects that the caller may see, of those that the query asks for by ids or
// projects.
func (res *lbResource[T, V]) list(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*V], error) {
	snap, err := res.service.view(ctx)
	if err != nil {
		return nil, err
	}
	return res.in(snap, c, q, res.candidates(snap, c, q)), nil
}

// in returns those of some objects that a list answers.
func (res *lbResource[T, V]) in(r records.Reader, c neutron.Caller, q neutron.Query, candidates iter.Seq[*T]) iter.Seq[*V] {
	return func(yield func(*V) bool) {
		for o := range candidates {
			id, s := res.table.ID(o), res.standard(o)
			if !q.InRange(id) || !res.shown(o) || !c.SeesLB(s.ProjectID) || !among(q.IDs, id) || !among(q.ProjectIDs, s.ProjectID) || !among(q.Names, s.Name) {
				continue
			}
			if !yield(res.view(r, o)) {
				return
			}
		}
	}
}

// candidates returns objects in order of ids, among which are all that a list may answer.
func (res *lbResource[T, V]) candidates(r records.Reader, c neutron.Caller, q neutron.Query) iter.Seq[*T] {
	switch {
	case len(q.IDs) > 0:
		return byOwnID(res.table).find(r, c, q.IDs)
	case len(q.ProjectIDs) > 0:
		return byProject(res.table).find(r, c, q.ProjectIDs)
	case c.SeesAllLB():
		return res.table.All(r)
	}
	return res.table.By(r, "project", c.ProjectID)
}

// create makes objects of a request, all or none, and answers them.
func (res *lbResource[T, V]) create(ctx context.Context, c neutron.Caller, vs []neutron.Values, one func(*operation, neutron.Values) (*V, error), id func(*V) string) ([]*V, error) {
	return createAll(ctx, res.service, c, id, func(o *operation) ([]*V, error) {
		made := make([]*V, len(vs))
		for i, v := range vs {
			var err error
			if made[i], err = one(o, v); err != nil {
				return nil, err
			}
		}
		return made, nil
	})
}

// modify updates an object: set changes a copy, in which the attributes that all objects have are
// set already, and put stores it. As in the reference an update that changes nothing counts, and
// moves updated_at.
func (res *lbResource[T, V]) modify(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64,
	set func(o *operation, changed, old *T) error, put func(o *operation, changed *T) error) (*V, error) {
	return transact(ctx, res.service, c, func(o *operation) (*V, error) {
		old, err := res.toChange(o, id, "update")
		if err != nil {
			return nil, err
		}
		if err := checkRevision(ifMatch, res.standard(old).RevisionNumber); err != nil {
			return nil, err
		}
		changed := *old
		standard := res.standard(&changed)
		applyStandard(standard, v)
		setList(&standard.Tags, v, "tags")
		if err := set(o, &changed, old); err != nil {
			return nil, err
		}
		o.bump(standard)
		if err := put(o, &changed); err != nil {
			return nil, err
		}
		return res.view(o.tx, &changed), nil
	})
}

// remove deletes an object as a request wants.
func (res *lbResource[T, V]) remove(ctx context.Context, c neutron.Caller, id string, ifMatch *int64, drop func(o *operation, object *T) error) error {
	return perform(ctx, res.service, c, func(o *operation) error {
		object, err := res.toChange(o, id, "delete")
		if err != nil {
			return err
		}
		if err := checkRevision(ifMatch, res.standard(object).RevisionNumber); err != nil {
			return err
		}
		return drop(o, object)
	})
}

// removeMuch is remove of what may need several commits: drop returns whether it has made the rest
// pending work of a kind.
func (res *lbResource[T, V]) removeMuch(ctx context.Context, c neutron.Caller, id string, ifMatch *int64, work string,
	drop func(o *operation, object *T) (pending bool, err error)) error {
	pending := false
	err := res.remove(ctx, c, id, ifMatch, func(o *operation, object *T) (err error) {
		pending, err = drop(o, object)
		return err
	})
	if pending && err == nil {
		res.service.carryOut(ctx, work, id)
	}
	return err
}

// lbStandard returns the standard attributes of a new object, with its tags.
func (o *operation) lbStandard(v neutron.Values) neutron.Standard {
	s := o.standard(v, 0)
	s.Tags = list[string](v, "tags")
	return s
}

// idsOf returns the ids of records, the oldest first.
func idsOf[T any](records iter.Seq[*T], standard func(*T) *neutron.Standard) []string {
	type entry struct {
		at time.Time
		id string
	}
	var all []entry
	for o := range records {
		s := standard(o)
		all = append(all, entry{s.CreatedAt, s.ID})
	}
	slices.SortStableFunc(all, func(a, b entry) int { return a.at.Compare(b.at) })
	ids := make([]string, len(all))
	for i, e := range all {
		ids[i] = e.id
	}
	return ids
}

// lbQuotas are the kinds of objects with limits, with the names of the quotas and of the objects in
// texts.
const (
	lbQuotaBalancer = "load_balancer"
	lbQuotaListener = "listener"
	lbQuotaPool     = "pool"
	lbQuotaMember   = "member"
	lbQuotaMonitor  = "health_monitor"
)

// chargeLB refuses to make n more objects of a kind if the project's limit does not allow it.
func (o *operation) chargeLB(project, quota, name string, n int) error {
	limit := -1
	if q, ok := schema.LBQuotas.Peek(o.tx, project); ok {
		if own, ok := q.Limits[quota]; ok {
			limit = own
		}
	}
	if o.within(limit, "lb-quota/"+project+"/"+quota, n, func() int { return lbUsage(o.tx, project, quota) }) {
		return nil
	}
	return neutron.LBQuotaMet(name)
}

// lbUsage counts what a project has of a quota.
func lbUsage(r records.Reader, project, quota string) int {
	switch quota {
	case lbQuotaBalancer:
		return schema.LoadBalancers.CountBy(r, "project", project)
	case lbQuotaListener:
		return schema.Listeners.CountBy(r, "project", project)
	case lbQuotaPool:
		return schema.LBPools.CountBy(r, "project", project)
	case lbQuotaMember:
		return schema.LBMembers.CountBy(r, "project", project)
	case lbQuotaMonitor:
		return schema.HealthMonitors.CountBy(r, "project", project)
	}
	return 0
}
