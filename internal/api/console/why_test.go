package console

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	"heddle/calico"
	"heddle/internal/api"
	"heddle/internal/api/operator"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// TestWhoMayAsk: members and readers ask within their project, and users without one or without a
// role do not. Of the port, which has no address, administrators hear that, and tenants that it is
// not there.
func TestWhoMayAsk(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Millisecond)
	for _, tt := range []struct {
		token string
		want  int
	}{{"admin", http.StatusConflict}, {"member", http.StatusForbidden}, {"tenant", http.StatusNotFound}, {"stranger", http.StatusForbidden}} {
		if status, text := w.postTo(t, "/v1/why", tt.token, `{"from":"`+boundPort+`","to":"198.51.100.7"}`); status != tt.want {
			t.Errorf("as %s: %d, want %d: %s", tt.token, status, tt.want, text)
		}
	}
}

// TestQuestions: a user has few questions in flight, whatever others have.
func TestQuestions(t *testing.T) {
	t.Parallel()
	q := inFlight{byUser: map[string]int{}}
	var ends []func()
	for range mostQuestions {
		end, err := q.begin("u")
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	var refused *api.Error
	if _, err := q.begin("u"); !errors.As(err, &refused) || refused.Status != http.StatusTooManyRequests {
		t.Errorf("one too many: %v", err)
	}
	if end, err := q.begin("other"); err != nil {
		t.Errorf("another user: %v", err)
	} else {
		end()
	}
	ends[0]()
	if _, err := q.begin("u"); err != nil {
		t.Errorf("after the end of one: %v", err)
	}
}

// TestWhyWithRoutedPorts: a question about a change of routed ports is answered by what the change
// makes of Calico's objects.
func TestWhyWithRoutedPorts(t *testing.T) {
	w := newWorld(t, time.Second)
	w.update(t, func(tx *records.Tx) error { return schema.Hosts.Put(tx, &topology.Host{ID: host, Name: "h1"}) })
	prefix, err := calico.GlobalConfigKey{Name: "InterfacePrefix"}.Path()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.db.Store().Commit(t.Context(), nil, []store.Op{{Key: prefix, Value: []byte("tap")}}); err != nil {
		t.Fatal(err)
	}
	steps := `{"op":"create","type":"network","data":{"id":"n","provider:network_type":"routed"}},
		{"op":"create","type":"subnet","data":{"network_id":"n","ip_version":4,"cidr":"10.66.0.0/24"}},
		{"op":"create","type":"security_group","data":{"id":"g","name":"db"}},
		{"op":"create","type":"port","data":{"name":"front","network_id":"n","binding:host_id":"h1","device_owner":"compute:nova","device_id":"vm1"}},
		{"op":"create","type":"port","data":{"name":"db","network_id":"n","binding:host_id":"h1","device_owner":"compute:nova","device_id":"vm2","security_groups":["g"]}}`
	rule := `,{"op":"create","type":"security_group_rule","data":{"security_group_id":"g","direction":"ingress","protocol":"tcp","port_range_min":80,"port_range_max":80}}`
	for _, c := range []struct {
		steps string
		want  operator.Verdict
		code  flow.Code
	}{{steps, operator.Denied, flow.CodeDefaultDeny}, {steps + rule, operator.Allowed, 0}} {
		status, text := w.postTo(t, "/v1/why", "operator", `{"from":"front","to":"db","port":80,"with":[`+c.steps+`]}`)
		var a operator.WhyAnswer
		if err := json.Unmarshal([]byte(text), &a); err != nil || status != http.StatusOK {
			t.Fatalf("got %d %s: %v", status, text, err)
		}
		if a.Verdict != c.want || a.There.Trace.Code != c.code || a.To.Endpoint == "" {
			t.Errorf("%s, want %s: %s", a.Verdict, c.want, text)
		}
	}
}
