package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"heddle/internal/api"
	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
)

// draft is a change that is made in memory alone, by Neutron's own API.
type draft struct {
	base    int64         // revision that it is a change of
	under   *records.Snap // likewise
	fork    *records.Fork
	neutron http.Handler
	ids     map[string]string // of the objects that steps have made, by the ids that steps have for them
	refused []operator.RefusedStep
}

// newDraft makes the steps of a change over what is there at a moment.
func (c *console) newDraft(ctx context.Context, at moment, steps []operator.ChangeStep) (*draft, error) {
	if c.Neutron == nil {
		return nil, api.Errorf(http.StatusNotFound, "This server has no networks to change.")
	}
	under := c.DB.Store()
	if at.time != nil {
		under = nil // it has the present
	}
	d := &draft{base: at.snap.Revision(), under: at.snap, fork: records.NewFork(at.snap, under, schema.All()...), ids: map[string]string{}, refused: []operator.RefusedStep{}}
	var err error
	if d.neutron, err = c.Neutron(d.fork.DB(), asCaller{api.Who(ctx)}); err != nil {
		return nil, err
	}
	ctx = store.WithNote(ctx, nil) // nothing of it is done
	for i := range steps {
		if err := d.step(ctx, i, &steps[i]); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// calico returns Calico's objects with what the change makes of them.
func (d *draft) calico(under *snapshot.Snapshot) *snapshot.Snapshot {
	update, _ := snapshot.Of(schema.CalicoObjects()).Apply(under, d.fork.Written(), under.Revision)
	return update.Next
}

// asCaller takes every token for one of the caller's.
type asCaller struct{ id *api.Identity }

func (c asCaller) Validate(context.Context, string) (*api.Identity, error) { return c.id, nil }

// step makes the requests of one step. A refusal is noted; an error is one of the change as such.
func (d *draft) step(ctx context.Context, i int, s *operator.ChangeStep) error {
	fault := func(field, format string, args ...any) error {
		return api.Errorf(http.StatusBadRequest, "step %d: %s: %s", i+1, field, fmt.Sprintf(format, args...))
	}
	data := map[string]any{}
	if len(s.Data) > 0 {
		decoder := json.NewDecoder(bytes.NewReader(s.Data))
		decoder.UseNumber()
		if err := decoder.Decode(&data); err != nil || data == nil {
			return fault("data", "want an object of attributes")
		}
	}
	if s.Op != "create" && s.Op != "update" && s.Op != "delete" {
		return fault("op", "%q: want create, update or delete", s.Op)
	}
	own, _ := data["id"].(string)
	d.translate(data)
	if attribute, why, err := d.resolve(ctx, s, data); err != nil || why != "" {
		if why != "" {
			err = fault("data."+attribute, "%s", why)
		}
		return err
	}
	rules, ofItsOwn := takeRules(s, data)
	q, ok := requestOf(s, data)
	if !ok {
		return fault("type", "%q is no object that a change can %s", s.Type, s.Op)
	}
	answer, refused, err := d.do(ctx, q)
	if err == nil && refused == nil {
		d.noteID(s, own, answer)
		if ofItsOwn {
			refused, err = d.replaceRules(ctx, answer, rules)
		}
	}
	if refused != nil {
		refused.Step = i + 1
		d.refused = append(d.refused, *refused)
	}
	return err
}

// takeRules takes the rules out of a step that makes a security group with rules of its own, which
// the API makes one by one.
func takeRules(s *operator.ChangeStep, data map[string]any) (rules []any, ofItsOwn bool) {
	if s.Op != "create" || s.Type != neutron.SecurityGroups.Name() {
		return nil, false
	}
	const attribute = "security_group_rules"
	rules, ofItsOwn = data[attribute].([]any)
	delete(data, attribute)
	return rules, ofItsOwn
}

// replaceRules gives a new security group other rules than those that it was made with.
func (d *draft) replaceRules(ctx context.Context, answer []byte, rules []any) (refused *operator.RefusedStep, err error) {
	var made struct {
		Group struct {
			ID    string                `json:"id"`
			Rules []struct{ ID string } `json:"security_group_rules"`
		} `json:"security_group"`
	}
	if err := json.Unmarshal(answer, &made); err != nil {
		return nil, err
	}
	path, name := neutron.SecurityGroupRules.Path(), neutron.SecurityGroupRules.Name()
	var requests []neutronCall
	for _, r := range made.Group.Rules {
		requests = append(requests, neutronCall{http.MethodDelete, path + "/" + r.ID, nil})
	}
	for _, r := range rules {
		if o, ok := r.(map[string]any); ok {
			delete(o, "id")
			o["security_group_id"] = made.Group.ID
		}
		requests = append(requests, neutronCall{http.MethodPost, path, map[string]any{name: r}})
	}
	for _, q := range requests {
		if _, refused, err = d.do(ctx, q); refused != nil || err != nil {
			break
		}
	}
	return refused, err
}

// translate puts the ids of objects that steps have made in the place of those that steps have for
// them.
func (d *draft) translate(data map[string]any) {
	var in func(v any) any
	in = func(v any) any {
		switch v := v.(type) {
		case string:
			if id, made := d.ids[v]; made {
				return id
			}
		case []any:
			for i := range v {
				v[i] = in(v[i])
			}
		case map[string]any:
			for name := range v {
				v[name] = in(v[name])
			}
		}
		return v
	}
	in(data)
}

// noteID notes the id of an object that a step has made.
func (d *draft) noteID(s *operator.ChangeStep, own string, answer []byte) {
	var made map[string]struct{ ID string }
	if s.Op != "create" || own == "" || json.Unmarshal(answer, &made) != nil {
		return
	}
	if o := made[s.Type]; o.ID != "" {
		d.ids[own] = o.ID
	}
}

// neutronCall is a call of Neutron's API.
type neutronCall struct {
	method, path string
	body         any
}

// do makes a request. A refusal is one of the caller's doing; the server's own failures are errors.
func (d *draft) do(ctx context.Context, q neutronCall) (answer []byte, refused *operator.RefusedStep, err error) {
	var body bytes.Buffer
	if q.body != nil {
		if err := json.NewEncoder(&body).Encode(q.body); err != nil {
			return nil, nil, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, q.method, "http://draft/v2.0"+q.path, &body)
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set(api.TokenHeader, "caller")
	w := recorder{header: http.Header{}, status: http.StatusOK}
	d.neutron.ServeHTTP(&w, r)
	if w.status < http.StatusBadRequest {
		return w.body.Bytes(), nil, nil
	}
	var reason struct {
		NeutronError struct{ Type, Message string }
	}
	if err := json.Unmarshal(w.body.Bytes(), &reason); err != nil {
		return nil, nil, fmt.Errorf("%s %s: status %d: %w", q.method, q.path, w.status, err)
	}
	if w.status >= http.StatusInternalServerError && w.status != http.StatusNotImplemented {
		return nil, nil, fmt.Errorf("%s %s: status %d: %s", q.method, q.path, w.status, reason.NeutronError.Message)
	}
	return nil, &operator.RefusedStep{Status: w.status, Kind: reason.NeutronError.Type, Message: reason.NeutronError.Message}, nil
}

// recorder is an http.ResponseWriter that keeps the answer.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header               { return w.header }
func (w *recorder) WriteHeader(status int)            { w.status = status }
func (w *recorder) Write(b []byte) (n int, err error) { return w.body.Write(b) }

// parents has, of the resources that the API has below another object, that one's resource and the
// attribute of a step that names it.
var parents = map[neutron.Resource]struct {
	attribute string
	of        neutron.Resource
}{
	neutron.PortForwardings:           {"floatingip_id", neutron.FloatingIPs},
	neutron.FirewallLogs:              {"logging_resource_id", neutron.LoggingResources},
	neutron.RemoteMACEntries:          {"device_id", neutron.GatewayDevices},
	neutron.LocalIPAssociations:       {"local_ip_id", neutron.LocalIPs},
	neutron.LBMembers:                 {"pool_id", neutron.LBPools},
	neutron.QoSBandwidthLimitRules:    {"qos_policy_id", neutron.QoSPolicies},
	neutron.QoSDSCPMarkingRules:       {"qos_policy_id", neutron.QoSPolicies},
	neutron.QoSMinimumBandwidthRules:  {"qos_policy_id", neutron.QoSPolicies},
	neutron.QoSMinimumPacketRateRules: {"qos_policy_id", neutron.QoSPolicies},
	neutron.QoSPacketRateLimitRules:   {"qos_policy_id", neutron.QoSPolicies},
}

// resourceNamed returns the resource of a step's type. Of two with one name it is that of the newer
// API.
func resourceNamed(typ string) (found neutron.Resource, ok bool) {
	for _, r := range neutron.Resources() {
		older := r == neutron.FirewallRules || r == neutron.FirewallPolicies || r == neutron.V1Pools || r == neutron.V1Members
		if !older && r.Name() == typ {
			return r, true
		}
	}
	return 0, false
}

// requestOf returns the call that a step is; false for a type that no call is for.
func requestOf(s *operator.ChangeStep, data map[string]any) (q neutronCall, ok bool) {
	id := idIn(data, "id")
	delete(data, "id")
	switch s.Type {
	case "router_interface":
		call := map[string]string{"create": "/add_router_interface", "delete": "/remove_router_interface"}[s.Op]
		return neutronCall{http.MethodPut, "/routers/" + id + call, data}, call != ""
	case "port_binding":
		return bindingRequest(s.Op, id, data), s.Op != "update"
	}
	r, ok := resourceNamed(s.Type)
	if !ok {
		return q, false
	}
	path := r.Path()
	if p, below := parents[r]; below {
		path = p.of.Path() + "/" + idIn(data, p.attribute) + "/" + r.Collection()
		delete(data, p.attribute)
	}
	switch s.Op {
	case "create":
		return neutronCall{http.MethodPost, path, map[string]any{s.Type: data}}, true
	case "update":
		return neutronCall{http.MethodPut, path + "/" + id, map[string]any{s.Type: data}}, true
	}
	return neutronCall{http.MethodDelete, path + "/" + id, nil}, true
}

// idIn returns an id among attributes as a path has it.
func idIn(data map[string]any, attribute string) string {
	id, _ := data[attribute].(string)
	return url.PathEscape(id)
}

// bindingRequest returns the call that binds a port to a host, or unbinds it.
func bindingRequest(op, id string, data map[string]any) neutronCall {
	if data["port_id"] != nil {
		id = idIn(data, "port_id")
	}
	port := map[string]any{"binding:host_id": data["host_id"], "binding:profile": map[string]any{"interface_name": data["interface_name"]}}
	if op == "delete" {
		port = map[string]any{"binding:host_id": "", "binding:profile": nil}
	}
	return neutronCall{http.MethodPut, "/ports/" + id, map[string]any{"port": port}}
}
