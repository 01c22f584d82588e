package console

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/api"
	"heddle/internal/api/neutronv2"
	"heddle/internal/api/operator"
	"heddle/internal/control"
	"heddle/internal/store/records"
)

// neutronOver makes Neutron's API over a store, as servers do.
func neutronOver(db *records.DB, tokens api.Validator) (http.Handler, error) {
	ops, err := control.New(db, control.Options{AnyUnderlay: true, Quotas: map[string]int{"router": 1}})
	if err != nil {
		return nil, err
	}
	return neutronv2.New(neutronv2.Options{Operations: ops, Tokens: tokens, Log: slog.New(slog.DiscardHandler)}), nil
}

// diff posts a question about a change, and returns the answer.
func (w *world) diff(t *testing.T, token, body string) (a operator.DiffAnswer) {
	t.Helper()
	status, text := w.postTo(t, "/v1/diffs", token, body)
	if err := json.Unmarshal([]byte(text), &a); err != nil || status != http.StatusOK {
		t.Fatalf("got %d %s: %v", status, text, err)
	}
	return a
}

// TestDiffOfRequests makes objects of many kinds in memory: later steps name those of earlier ones
// by the ids that these have in the file, and the store has nothing of it.
func TestDiffOfRequests(t *testing.T) {
	w := newWorld(t, time.Second)
	before := w.view(t)
	a := w.diff(t, "operator", `{"change":[
		{"op":"create","type":"network","data":{"id":"n","name":"inside"}},
		{"op":"create","type":"subnet","data":{"id":"s","network_id":"n","ip_version":4,"cidr":"10.1.0.0/24"}},
		{"op":"create","type":"network","data":{"id":"out","name":"public","router:external":true,"provider:network_type":"flat","provider:physical_network":"physnet1"}},
		{"op":"create","type":"subnet","data":{"network_id":"out","ip_version":4,"cidr":"203.0.113.0/24"}},
		{"op":"create","type":"security_group","data":{"id":"g","name":"web","security_group_rules":[{"id":"r","direction":"ingress","protocol":"tcp"}]}},
		{"op":"create","type":"port","data":{"id":"p","name":"vm","network_id":"n","security_groups":["g"],"fixed_ips":[{"ip_address":"10.1.0.2"}]}},
		{"op":"create","type":"router","data":{"id":"r1","external_gateway_info":{"network_id":"out"}}},
		{"op":"create","type":"router_interface","data":{"id":"r1","subnet_id":"s"}},
		{"op":"create","type":"floatingip","data":{"id":"f","floating_network_id":"out"}},
		{"op":"create","type":"port_forwarding","data":{"floatingip_id":"f","protocol":"tcp","external_port":80,"internal_port":8080,"internal_port_id":"p","internal_ip_address":"10.1.0.2"}},
		{"op":"create","type":"router","data":{"name":"second"}},
		{"op":"delete","type":"subnet","data":{"id":"s"}},
		{"op":"update","type":"port","data":{"id":"p","name":"renamed"}},
		{"op":"delete","type":"router_interface","data":{"id":"r1","subnet_id":"s"}},
		{"op":"create","type":"firewall_rule","data":{"action":"allow"}},
		{"op":"create","type":"policy","data":{"id":"q","name":"slow"}},
		{"op":"create","type":"bandwidth_limit_rule","data":{"qos_policy_id":"q","max_kbps":100}}]}`)
	var refused []string
	for _, r := range a.Refused {
		refused = append(refused, fmt.Sprint(r.Step, " ", r.Status, " ", r.Kind))
	}
	if want := []string{"11 409 OverQuota", "12 409 SubnetInUse", "14 409 RouterInterfaceInUseByFloatingIP"}; !slices.Equal(refused, want) {
		t.Errorf("refused %+v, want %v", a.Refused, want)
	}
	kinds, rules := map[string]int{}, 0
	for _, o := range a.Objects {
		kinds[o.Kind]++
		for _, f := range o.Fields {
			if o.Change != "created" || strings.Contains(string(f.After), `"p"`) {
				t.Errorf("%+v", o)
			}
			if o.Name == "web" && strings.HasPrefix(f.Name, "security_group_rules[") {
				rules++
			}
		}
	}
	if want := map[string]int{"network": 2, "subnet": 2, "security group": 2, "port": 4, "router": 1, "router port": 2, "floatingip": 1, "port forwarding": 1,
		"firewall group rule": 1, "qos policy": 1, "rbac policy": 1}; !maps.Equal(kinds, want) || rules != 1 {
		t.Errorf("created %v, want %v, with %d rules of its own", kinds, want, rules)
	}
	if after := w.view(t); after.Revision() != before.Revision() {
		t.Error("the store has changed")
	}
}

// TestDiffIsTheCallers: what a caller may not do is refused, and mistakes in questions are named.
func TestDiffIsTheCallers(t *testing.T) {
	w := newWorld(t, time.Second)
	for body, want := range map[string]string{
		`{}`: "want either change", `{"from":"1","change":[{"op":"create","type":"port","data":{}}]}`: "want either change",
		`{"change":[{"op":"make","type":"port","data":{}}]}`:           "step 1: op: \"make\": want create, update or delete",
		`{"change":[{"op":"create","type":"port","data":[]}]}`:         "step 1: data: want an object of attributes",
		`{"change":[{"op":"update","type":"port_binding","data":{}}]}`: "step 1: type: \"port_binding\" is no object that a change can update",
		`{"from":"1"}`: "keeps no journal",
	} {
		if status, text := w.postTo(t, "/v1/diffs", "admin", body); status/100 != 4 || !strings.Contains(strings.ReplaceAll(text, `\"`, `"`), want) {
			t.Errorf("%s: got %d %s, want %s", body, status, text, want)
		}
	}
	if status, _ := w.postTo(t, "/v1/diffs", "member", `{"change":[{"op":"create","type":"network","data":{}}]}`); status != http.StatusForbidden {
		t.Errorf("a member asks: %d", status)
	}
}

func (w *world) view(t *testing.T) *records.Snap {
	t.Helper()
	snap, err := w.db.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return snap
}
