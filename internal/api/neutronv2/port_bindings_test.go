package neutronv2_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"heddle/internal/control"
)

// bindings returns the bindings in an answer: host, status and vif_type of each.
func (a answer) bindings() string {
	doc := a.doc()
	if o, one := doc["binding"]; one {
		doc = map[string]any{"bindings": []any{o}}
	} else if _, bare := doc["host"]; bare {
		doc = map[string]any{"bindings": []any{map[string]any(doc)}}
	}
	var out []string
	for _, o := range list(doc["bindings"]) {
		b := first(o)
		out = append(out, fmt.Sprint(b["host"], " ", b["status"], " ", b["vif_type"], " ", b["vnic_type"], " ", b["profile"]))
	}
	return strings.Join(out, ", ")
}

// TestPortBindings: the bindings of a port to several hosts, with the reference's answers.
func TestPortBindings(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	for i := range 3 {
		s.addHost(t, fmt.Sprintf("99999999-0000-0000-0000-00000000000%d", i), fmt.Sprintf("h%d", i))
	}
	net := s.create(t, "member", "networks", `{"network":{}}`)["id"]
	port := func(text string) string {
		return s.create(t, "admin", "ports", fmt.Sprintf(`{"port":{"network_id":%q,"project_id":%q,%s}}`, net, memberProject, text))["id"].(string)
	}
	vm, plain := port(`"device_owner":"compute:nova","binding:host_id":"h0"`), port(`"name":"p"`)
	taken := port(`"binding:host_id":"h2","binding:profile":{"interface_name":"eth7"}`)
	const (
		absent  = "HTTPNotFound The resource could not be found."
		missing = "PortBindingNotFound Binding for port PORT for host h9 could not be found."
		noHost  = "PortBindingError Binding for port PORT on host h9 could not be created or updated: no host has joined under this name, see heddle host list."
		onlyVM  = "BadRequest Bad port request: Invalid port PLAIN. Operation only valid on compute ports."
		clash   = "PortBindingError Binding for port PORT on host h2 could not be created: interface eth7 carries port TAKEN. " +
			"Name another in binding:profile.interface_name or unbind that port."
	)
	for _, tt := range []struct {
		who, request, body string
		status             int
		want               string // bindings, or the error
	}{
		{"admin", "GET PORT/bindings", "", 200, "h0 ACTIVE tap normal map[]"},
		{"member", "GET PORT/bindings", "", 200, ""},
		{"other", "GET PORT/bindings", "", 404, "PortNotFound Port PORT could not be found."},
		{"admin", "GET PLAIN/bindings", "", 400, onlyVM},
		{"admin", "POST PLAIN/bindings", `{"binding":{"host":"h1"}}`, 400, onlyVM},
		{"admin", "PUT PLAIN/bindings/h1/activate", "", 400, onlyVM},
		{"admin", "DELETE PLAIN/bindings/h1", "", 400, onlyVM},
		{"admin", "GET nosuch/bindings", "", 404, "PortNotFound Port nosuch could not be found."},
		{"admin", "GET PORT/bindings/h0", "", 200, "h0 ACTIVE tap normal map[]"},
		{"member", "GET PORT/bindings/h0", "", 404, absent},
		{"admin", "GET PORT/bindings/h9", "", 404, missing},
		{"member", "POST PORT/bindings", `{"binding":{"host":"h1"}}`, 403, "PolicyNotAuthorized rule:create_port_binding is disallowed by policy"},
		{"admin", "POST PORT/bindings", `{"binding":{}}`, 400, "HTTPBadRequest Failed to parse request. Required attribute 'host' not specified"},
		{"admin", "POST PORT/bindings", `{"binding":{"host":""}}`, 400, "HTTPBadRequest Invalid input for host. Reason: '' Blank strings are not permitted."},
		{"admin", "POST PORT/bindings", `{"binding":{"host":"h1","status":"ACTIVE"}}`, 400, "HTTPBadRequest Attribute 'status' not allowed in POST"},
		{"admin", "POST PORT/bindings", `{"binding":{"host":"h1","vnic_type":"x"}}`, 400, "HTTPBadRequest Invalid input for vnic_type. Reason: x is not in valid_values."},
		{"admin", "POST PORT/bindings", `{"binding":{"host":"h1","profile":"x"}}`, 400, "HTTPBadRequest Invalid input for profile. Reason: 'x' is not a dictionary."},
		{"admin", "POST PORT/bindings", `{"bindings":[{"host":"h1"}]}`, 400, "HTTPBadRequest Bulk operation not supported"},
		{"admin", "POST PORT/bindings", `{"binding":{"host":"h0"}}`, 409, "PortBindingAlreadyExists Binding for port PORT on host h0 already exists."},
		{"admin", "POST PORT/bindings", `{"binding":{"host":"h9"}}`, 409, noHost},
		{"admin", "POST PORT/bindings", `{"binding":{"host":"h2","profile":{"interface_name":"eth7"}}}`, 409, clash},
		{"admin", "POST PORT/bindings", `{"binding":{"host":"h1","vnic_type":"direct","profile":{"a":1},"project_id":"x"}}`, 201, "h1 INACTIVE tap direct map[a:1]"},
		{"admin", "POST PORT/bindings", `{"binding":{"host":"h1"}}`, 409, "PortBindingAlreadyExists Binding for port PORT on host h1 already exists."},
		{"admin", "GET PORT/bindings", "", 200, "h0 ACTIVE tap normal map[], h1 INACTIVE tap direct map[a:1]"},
		{"admin", "GET PORT/bindings?status=INACTIVE", "", 200, "h1 INACTIVE tap direct map[a:1]"},
		{"admin", "GET PORT/bindings?sort_key=host&sort_dir=desc&limit=1", "", 200, "h1 INACTIVE tap direct map[a:1]"},
		{"admin", "PUT PORT/bindings/h1", `{"binding":{"profile":null}}`, 200, "h1 INACTIVE tap direct map[]"},
		{"admin", "PUT PORT/bindings/h1", `{"binding":{"vnic_type":"normal","profile":{"b":2}}}`, 200, "h1 INACTIVE tap normal map[b:2]"},
		{"admin", "PUT PORT/bindings/h1", `{"binding":{"host":"h0"}}`, 409, "PortBindingAlreadyExists Binding for port PORT on host h0 already exists."},
		{"admin", "PUT PORT/bindings/h1", `{"binding":{"vif_type":"ovs"}}`, 400, "HTTPBadRequest Cannot update read-only attribute vif_type"},
		{"admin", "PUT PORT/bindings/h9", `{"binding":{"profile":{}}}`, 404, missing},
		{"member", "PUT PORT/bindings/h1", `{"binding":{"profile":{}}}`, 404, absent},
		{"admin", "PUT PORT/bindings/h9/activate", "", 404, missing},
		{"member", "PUT PORT/bindings/h1/activate", "", 404, absent},
		{"admin", "PUT PORT/bindings/h0/activate", "", 409, "PortBindingAlreadyActive Binding for port PORT on host h0 is already active."},
		{"admin", "PORT", "", 200, "h0 tap map[]"},
		{"admin", "PUT PORT/bindings/h1/activate", "", 200, "h1 ACTIVE tap normal map[b:2]"},
		{"admin", "PORT", "", 200, "h1 tap map[b:2]"},
		{"admin", "GET PORT/bindings", "", 200, "h0 INACTIVE unbound normal map[], h1 ACTIVE tap normal map[b:2]"},
		{"admin", "PUT PORT/bindings/h0", `{"binding":{}}`, 200, "h0 INACTIVE tap normal map[]"},
		{"admin", "DELETE PORT/bindings/h0", `{}`, 400, "HTTPBadRequest Request body is not supported in DELETE."},
		{"member", "DELETE PORT/bindings/h0", "", 404, absent},
		{"admin", "DELETE PORT/bindings/h0", "", 204, ""},
		{"admin", "DELETE PORT/bindings/h0", "", 404, strings.ReplaceAll(missing, "h9", "h0")},
		// An update may move the active one; one of the port replaces an inactive one.
		{"admin", "PUT PORT/bindings/h1", `{"binding":{"host":"h2","profile":{}}}`, 200, "h2 ACTIVE tap normal map[]"},
		{"admin", "POST PORT/bindings", `{"binding":{"host":"h0"}}`, 201, "h0 INACTIVE tap normal map[]"},
		{"admin", "POST PORT/bindings", `{"binding":{"host":"h1"}}`, 201, "h1 INACTIVE tap normal map[]"},
		{"admin", "PUT PORT", `{"port":{"binding:host_id":"h0"}}`, 200, ""},
		{"admin", "GET PORT/bindings", "", 200, "h0 ACTIVE tap normal map[], h1 INACTIVE tap normal map[]"},
		// Without an active binding the port is unbound, and the next one made is active.
		{"admin", "DELETE PORT/bindings/h0", "", 204, ""},
		{"admin", "PORT", "", 200, " unbound map[]"},
		{"admin", "GET PORT/bindings", "", 200, "h1 INACTIVE tap normal map[]"},
		{"admin", "POST PORT/bindings", `{"binding":{"host":"h2"}}`, 201, "h2 ACTIVE tap normal map[]"},
		{"admin", "DELETE PORT", "", 204, ""},
		{"admin", "GET PORT/bindings", "", 404, "PortNotFound Port PORT could not be found."},
	} {
		fill := strings.NewReplacer("PORT", vm, "PLAIN", plain, "TAKEN", taken)
		method, path, asked := strings.Cut(tt.request, " ")
		if !asked {
			method, path = http.MethodGet, tt.request
		}
		var body any
		if tt.body != "" {
			body = tt.body
		}
		a := s.do(t, tt.who, method, "/ports/"+fill.Replace(path), body, nil)
		got := ""
		if refusal, refused := a.doc()["NeutronError"]; refused {
			got = fmt.Sprint(first(refusal)["type"], " ", first(refusal)["message"])
		} else if p, is := a.doc()["port"]; is && tt.body == "" {
			got = fmt.Sprint(first(p)["binding:host_id"], " ", first(p)["binding:vif_type"], " ", first(p)["binding:profile"])
		} else {
			got = a.bindings()
		}
		if want := fill.Replace(tt.want); a.status != tt.status || got != want {
			t.Errorf("%s %s %s: %d %q, want %d %q", tt.who, tt.request, tt.body, a.status, got, tt.status, want)
		}
	}
}
