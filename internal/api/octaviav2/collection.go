package octaviav2

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"heddle/internal/api"
	"heddle/internal/control"
	"heddle/internal/neutron"
)

// collection serves one resource: what resources share is here, what differs in the columns and the
// operations.
type collection[V any] struct {
	*handler
	name   string // of one object in bodies
	plural string
	arg    string // Octavia's name of the argument of a create; that of an update ends in _
	argPut string
	tableOf[V]
	ops     func(r *http.Request) control.Operations[V]
	prepare func(b *body, v neutron.Values) error // of a create; may be nil
	created func(V) map[string]any                // the answer to a create; nil: as to a show
	drop    func(ctx context.Context, r *http.Request, id string) error
}

func (c *collection[V]) create(w http.ResponseWriter, r *http.Request) error {
	var v neutron.Values
	err := readBody(r, create, c.arg, c.name, func(b *body, raw json.RawMessage) (err error) {
		if v, err = b.object(c.rows, c.name, raw); err != nil {
			return err
		}
		if err := settleProject(b.c, v); err != nil {
			return err
		}
		if c.prepare != nil {
			return c.prepare(b, v)
		}
		return nil
	})
	if err != nil {
		return c.inPool(r, err)
	}
	made, err := c.ops(r).Create(r.Context(), caller(r), []neutron.Values{v})
	if err != nil {
		return c.inPool(r, err)
	}
	answer := c.answer(made[0], nil)
	if c.created != nil {
		answer = c.created(made[0])
	}
	answer["updated_at"] = nil // nothing has happened since; the reference sets it when it is done
	return c.write(w, http.StatusCreated, answer)
}

func (c *collection[V]) update(w http.ResponseWriter, r *http.Request) error {
	var v neutron.Values
	err := readBody(r, update, c.argPut, c.name, func(b *body, raw json.RawMessage) (err error) {
		v, err = b.object(c.rows, c.name, raw)
		return err
	})
	if err != nil {
		return err
	}
	o, err := c.ops(r).Update(r.Context(), caller(r), r.PathValue("id"), v, nil)
	if err != nil {
		return c.inPool(r, err)
	}
	return c.write(w, http.StatusOK, c.answer(o, nil))
}

func (c *collection[V]) show(w http.ResponseWriter, r *http.Request) error {
	o, err := c.ops(r).Show(r.Context(), caller(r), r.PathValue("id"))
	if err != nil {
		return c.inPool(r, err)
	}
	return c.write(w, http.StatusOK, c.answer(o, r.URL.Query()["fields"]))
}

func (c *collection[V]) remove(w http.ResponseWriter, r *http.Request) error {
	if err := c.drop(r.Context(), r, r.PathValue("id")); err != nil {
		return c.inPool(r, err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (c *collection[V]) write(w http.ResponseWriter, status int, o map[string]any) error {
	api.WriteJSON(w, status, map[string]any{c.name: o})
	return nil
}

// answer returns an object as answers have it: all of it, or the fields that are asked for.
func (c *collection[V]) answer(o V, fields []string) map[string]any {
	var asked map[string]bool
	for _, f := range fields {
		if f == "" {
			continue
		}
		if asked == nil {
			asked = map[string]bool{}
		}
		asked[f] = true
	}
	a := make(map[string]any, len(c.columns))
	for i := range c.columns {
		col := &c.columns[i]
		if col.get == nil || col.hidden || asked != nil && !asked[col.name] {
			continue
		}
		if v := col.get(o); v != any(none{}) {
			a[col.name] = v
		}
	}
	return a
}

// inPool returns the answer to a missing pool of members, which has a form of its own.
func (c *collection[V]) inPool(r *http.Request, err error) error {
	var refusal *neutron.LBRefusal
	pool := r.PathValue("pool")
	if pool != "" && errors.As(err, &refusal) && refusal.Octavia.Message == neutron.NamePool+" "+pool+" not found." {
		return &pageFault{http.StatusNotFound, "Bad Request", refusal.Octavia.Message}
	}
	return err
}

// fixed returns operations that do not depend on the request.
func fixed[V any](o control.Operations[V]) func(*http.Request) control.Operations[V] {
	return func(*http.Request) control.Operations[V] { return o }
}

func (h *handler) loadBalancers() *collection[*neutron.LoadBalancerView] {
	c := &collection[*neutron.LoadBalancerView]{
		handler: h, name: "loadbalancer", plural: "loadbalancers", arg: "load_balancer", argPut: "load_balancer",
		tableOf: h.balancers, ops: fixed(h.ops.LoadBalancers()), prepare: h.prepareLoadBalancer,
	}
	c.created = func(v *neutron.LoadBalancerView) map[string]any {
		a := c.answer(v, nil)
		if v.Made != nil {
			h.addMade(a, v.Made)
		}
		return a
	}
	c.drop = func(ctx context.Context, r *http.Request, id string) error {
		if all, _ := truth(r.URL.Query().Get("cascade")); all {
			return h.ops.DeleteTree(ctx, caller(r), id)
		}
		return h.ops.LoadBalancers().Delete(ctx, caller(r), id, nil)
	}
	return c
}

// prepareLoadBalancer checks what is not an object's, and opens the port: the listeners alone say
// who may connect, as in Octavia.
func (h *handler) prepareLoadBalancer(_ *body, v neutron.Values) error {
	if p := v.Text("provider"); p != "" && !h.knowsProvider(p) {
		return neutron.LBProviderUnknown(p)
	}
	if v.Text("flavor_id") != "" {
		return neutron.LBInvalid("Invalid flavor_id.")
	}
	if v.Text("availability_zone") != "" {
		return neutron.LBInvalid("Invalid availability zone.")
	}
	v["port_security_enabled"] = false
	return nil
}

// addMade adds what was made with a load balancer to the answer.
func (h *handler) addMade(a map[string]any, made *neutron.LBTree) {
	listeners, pools := []map[string]any{}, []map[string]any{}
	lc, pc, mc, hc := h.listeners(), h.pools(), h.members(), h.monitors()
	for _, l := range made.Listeners {
		o := lc.answer(l, nil)
		delete(o, "loadbalancers")
		listeners = append(listeners, o)
	}
	for _, p := range made.Pools {
		o := pc.answer(p.LBPoolView, nil)
		delete(o, "loadbalancers")
		delete(o, "healthmonitor_id")
		members := []map[string]any{}
		for _, m := range p.Members {
			members = append(members, mc.answer(m, nil))
		}
		o["members"], o["healthmonitor"] = members, nil
		if p.Monitor != nil {
			m := hc.answer(p.Monitor, nil)
			delete(m, "pools")
			o["healthmonitor"] = m
		}
		pools = append(pools, o)
	}
	a["listeners"], a["pools"] = listeners, pools
}

func (h *handler) listeners() *collection[*neutron.ListenerView] {
	ops := h.ops.Listeners()
	return &collection[*neutron.ListenerView]{
		handler: h, name: "listener", plural: "listeners", arg: "listener_", argPut: "listener_", tableOf: h.listener, ops: fixed(ops),
		drop: func(ctx context.Context, r *http.Request, id string) error {
			return ops.Delete(ctx, caller(r), id, nil)
		},
	}
}

func (h *handler) pools() *collection[*neutron.LBPoolView] {
	return &collection[*neutron.LBPoolView]{
		handler: h, name: "pool", plural: "pools", arg: "pool_", argPut: "pool_", tableOf: h.pool, ops: fixed(h.ops.Pools()),
		drop: func(ctx context.Context, r *http.Request, id string) error {
			return h.ops.DeletePool(ctx, caller(r), id)
		},
	}
}

func (h *handler) members() *collection[*neutron.LBMemberView] {
	ops := func(r *http.Request) control.Operations[*neutron.LBMemberView] {
		return h.ops.Members(r.PathValue("pool"))
	}
	return &collection[*neutron.LBMemberView]{
		handler: h, name: "member", plural: "members", arg: "member_", argPut: "member_", tableOf: h.member, ops: ops,
		drop: func(ctx context.Context, r *http.Request, id string) error {
			return ops(r).Delete(ctx, caller(r), id, nil)
		},
	}
}

func (h *handler) monitors() *collection[*neutron.HealthMonitorView] {
	ops := h.ops.HealthMonitors()
	return &collection[*neutron.HealthMonitorView]{
		handler: h, name: "healthmonitor", plural: "healthmonitors", arg: "health_monitor_", argPut: "health_monitor_", tableOf: h.monitor, ops: fixed(ops),
		drop: func(ctx context.Context, r *http.Request, id string) error {
			return ops.Delete(ctx, caller(r), id, nil)
		},
	}
}

// replaceMembers makes the members of a pool those of a request.
func (h *handler) replaceMembers(w http.ResponseWriter, r *http.Request) error {
	c := h.members()
	bare := withoutDefaults(c.rows)
	var vs []neutron.Values
	err := readBody(r, create, "members_", "members", func(b *body, raw json.RawMessage) error {
		items, err := elements(raw)
		if err != nil {
			return b.refuse(err, "members", raw)
		}
		for _, item := range items {
			v, err := b.object(c.rows, "members", item)
			if err != nil {
				return err
			}
			given, err := (&body{op: create, arg: b.arg, raw: b.raw, c: b.c}).object(bare, "members", item)
			if err != nil {
				return err
			}
			if err := settleProject(b.c, v); err != nil {
				return err
			}
			v[control.GivenOnly] = given
			vs = append(vs, v)
		}
		return nil
	})
	if err != nil {
		return err
	}
	additive, _ := truth(r.URL.Query().Get("additive_only"))
	if err := h.ops.ReplaceMembers(r.Context(), caller(r), r.PathValue("pool"), vs, additive); err != nil {
		return c.inPool(r, err)
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// withoutDefaults returns rows of which only those that a request names have values.
func withoutDefaults(rows []*attribute) []*attribute {
	all := make([]*attribute, len(rows))
	for i, a := range rows {
		bare := *a
		bare.def = none{}
		all[i] = &bare
	}
	return all
}
