package offline

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"heddle/internal/api"
	"heddle/internal/api/apitest"
	"heddle/internal/api/neutronv2"
	"heddle/internal/control"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
)

// anAdministrator is the identity of every token.
type anAdministrator struct{}

func (anAdministrator) Validate(context.Context, string) (*api.Identity, error) {
	return &api.Identity{UserID: "u", ProjectID: "p", Roles: []string{"admin"}}, nil
}

// apiServer is the Neutron API as a server has it.
func apiServer(t *testing.T) http.Handler {
	t.Helper()
	st := store.NewMemory()
	t.Cleanup(func() { _ = st.Close() })
	rep := replica.New(st, replica.Options{Watch: schema.Root}, schema.All()...)
	apitest.Run(t, rep)
	ops, err := control.New(records.NewDB(st, rep), control.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return neutronv2.New(neutronv2.Options{Operations: ops, Tokens: anAdministrator{}, Log: slog.New(slog.DiscardHandler)})
}

// call makes a request, and returns the id of what it made or changed, or else its refusal.
func call(t *testing.T, server http.Handler, method, resource, id, attributes string) (made, kind, message string) {
	t.Helper()
	body := ""
	if method != http.MethodDelete {
		body = `{"` + resource + `":` + attributes + `}`
	}
	r := httptest.NewRequest(method, "/v2.0/"+strings.ReplaceAll(resource, "_", "-")+"s"+id, strings.NewReader(body))
	r.Header.Set("X-Auth-Token", "t")
	w := httptest.NewRecorder()
	server.ServeHTTP(w, r)
	var answer map[string]struct{ ID, Message string }
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatalf("%s %s: %v in %s", method, resource, err, w.Body)
		}
	}
	kinds := map[int]string{http.StatusBadRequest: "invalid", http.StatusConflict: "conflict", http.StatusNotFound: "notFound"}
	if w.Code >= 300 && kinds[w.Code] == "" {
		t.Fatalf("%s %s: %d %s", method, resource, w.Code, w.Body)
	}
	return answer[resource].ID, kinds[w.Code], answer["NeutronError"].Message
}

// uuidNamed is the id in the file of what the cases call $name; its last digit is the name's.
func uuidNamed(letter byte) string { return "00000000-0000-4000-8000-00000000000" + string(letter) }

// TestRefusedAsByTheServer: what the server refuses, translate refuses too, in the server's words.
func TestRefusedAsByTheServer(t *testing.T) {
	t.Parallel()
	server := apiServer(t)
	// What the cases refer to, by the names of their ids: $1 and so on.
	fixture := []struct{ resource, attributes string }{
		1: {"network", `{}`},
		2: {"subnet", `{"network_id":"$1","ip_version":4,"cidr":"10.9.0.0/24"}`},
		3: {"security_group", `{"name":"tracks"}`},
		4: {"security_group", `{"name":"does not","stateful":false}`},
		5: {"port", `{"network_id":"$1","mac_address":"fa:16:3e:00:00:01","fixed_ips":[{"ip_address":"10.9.0.9"}],"security_groups":["$3"]}`},
		6: {"security_group_rule", `{"security_group_id":"$3","direction":"ingress","protocol":"tcp","port_range_min":80,"port_range_max":80}`},
		7: {"network", `{"provider:network_type":"routed","port_security_enabled":true}`},
		8: {"subnet", `{"network_id":"$7","ip_version":4,"cidr":"10.8.0.0/24"}`},
	}
	var toServer, toFile, back []string // pairs for a Replacer
	var steps []string
	for i, f := range fixture {
		if f.resource == "" {
			continue
		}
		name := string(rune('0' + i))
		made, _, message := call(t, server, http.MethodPost, f.resource, "", strings.NewReplacer(toServer...).Replace(f.attributes))
		if made == "" {
			t.Fatalf("%s %s: %s", f.resource, f.attributes, message)
		}
		toServer = append(toServer, "$"+name, made)
		toFile = append(toFile, "$"+name, uuidNamed(name[0]))
		back = append(back, made, uuidNamed(name[0]))
		steps = append(steps, stepAbout("create", f.resource, name[0], strings.NewReplacer(toFile...).Replace(f.attributes)))
	}
	for _, tt := range []struct{ op, resource, attributes string }{
		{"create", "network", `{"name":5}`},
		{"create", "network", `{"admin_state_up":"perhaps"}`},
		{"create", "network", `{"admin_state_up":null}`},
		{"create", "network", `{"mtu":-1}`},
		{"create", "network", `{"provider:network_type":"UPLINK"}`},
		{"create", "network", `{"provider:network_type":"vxlan","provider:segmentation_id":16777216}`},
		{"create", "network", `{"provider:network_type":"uplink","provider:segmentation_id":7}`},
		{"create", "network", `{"qos_policy_id":"` + uuidNamed('1') + `"}`},
		{"create", "network", `{"dns_domain":"example.org"}`},
		{"update 1", "network", `{"provider:network_type":"uplink"}`},
		{"update 1", "network", `{"mtu":60}`},
		{"update 9", "network", `{"name":"nobody"}`},
		{"delete 1", "network", ``},

		{"create", "subnet", `{"network_id":"$1","ip_version":4,"cidr":"10.0.0.0/24","gateway_ip":"10.0.0.255"}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":4,"cidr":"10.0.0.0/24","gateway_ip":"10.0.0.0"}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":4,"cidr":"127.0.0.0/8"}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":4,"cidr":"224.0.0.0/24"}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":4,"cidr":"0.0.0.0/8"}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":4,"cidr":"0.0.0.0/0","enable_dhcp":false}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":4,"cidr":"10.0.0.0/31"}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":4,"cidr":"10.0.0.1/32"}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":4,"cidr":"10.0.0.1"}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":4,"cidr":"10.9.0.0/25"}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":4,"cidr":"10.0.0.0/24","gateway_ip":"fd00::1"}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":4,"cidr":"10.0.0.0/24","gateway_ip":"010.0.0.1"}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":4,"cidr":"10.0.0.0/24","dns_nameservers":["fd00::1"]}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":4,"cidr":"10.0.0.0/24",
			"dns_nameservers":["192.0.2.1","192.0.2.2","192.0.2.3","192.0.2.4","192.0.2.5","192.0.2.6"]}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":4,"cidr":"10.0.0.0/24","host_routes":[{"destination":"fd00::/64","nexthop":"10.0.0.9"}]}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":4,"cidr":"10.0.0.0/24","host_routes":[{"destination":"10.0.0.1/8","nexthop":"10.0.0.9"}]}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":4,"cidr":"10.0.0.0/24","allocation_pools":[{"start":"10.0.1.2","end":"10.0.1.9"}]}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":4,"cidr":"10.0.0.0/24",
			"allocation_pools":[{"start":"10.0.0.2","end":"10.0.0.9"},{"start":"10.0.0.9","end":"10.0.0.12"}]}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":4,"cidr":"10.0.0.0/24","gateway_ip":"10.0.0.5","allocation_pools":[{"start":"10.0.0.2","end":"10.0.0.9"}]}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":4,"cidr":"10.0.0.0/24","ipv6_ra_mode":"slaac"}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":6,"cidr":"fd00::/80","ipv6_ra_mode":"slaac","ipv6_address_mode":"slaac"}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":6,"cidr":"fd00::/64","ipv6_ra_mode":"slaac","ipv6_address_mode":"dhcpv6-stateful"}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":6,"cidr":"fd00::/64","ipv6_ra_mode":"slaac","enable_dhcp":false}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":6,"cidr":"fd00::/127"}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":4,"cidr":"fd00::/64"}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":4}`},
		{"create", "subnet", `{"ip_version":4,"cidr":"10.0.0.0/24"}`},
		{"create", "subnet", `{"network_id":"` + uuidNamed('9') + `","ip_version":4,"cidr":"10.0.0.0/24"}`},
		{"create", "subnet", `{"network_id":"$7","ip_version":4,"cidr":"10.0.0.0/24","gateway_ip":null}`},
		{"create", "subnet", `{"network_id":"$1","ip_version":4,"cidr":"10.0.0.0/24","service_types":["x"]}`},
		{"update 2", "subnet", `{"cidr":"10.10.0.0/24"}`},
		{"update 2", "subnet", `{"gateway_ip":"10.9.0.9"}`},
		{"delete 2", "subnet", ``},

		{"create", "port", `{"network_id":"$1","mac_address":"fa:16:3e:00:00:01"}`},
		{"create", "port", `{"network_id":"$1","mac_address":"ff:ff:ff:ff:ff:ff"}`},
		{"create", "port", `{"network_id":"$1","fixed_ips":[{"ip_address":"10.9.0.9"}]}`},
		{"create", "port", `{"network_id":"$1","fixed_ips":[{"ip_address":"10.9.0.255"}]}`},
		{"create", "port", `{"network_id":"$1","fixed_ips":[{"ip_address":"10.1.0.1"}]}`},
		{"create", "port", `{"network_id":"$1","fixed_ips":[{"ip_address":"10.9.0.7"},{"ip_address":"10.9.0.7"}]}`},
		{"create", "port", `{"network_id":"$1","fixed_ips":[{"subnet_id":"$8"}]}`},
		{"create", "port", `{"network_id":"$1","fixed_ips":[{"subnet_id":"` + uuidNamed('9') + `"}]}`},
		{"create", "port", `{"network_id":"$1","fixed_ips":null}`},
		{"create", "port", `{"network_id":"$1","security_groups":["` + uuidNamed('9') + `"]}`},
		{"create", "port", `{"network_id":"$1","security_groups":["$3","$4"]}`},
		{"create", "port", `{"network_id":"$1","security_groups":["$3"],"port_security_enabled":false}`},
		{"create", "port", `{"network_id":"$1","port_security_enabled":false,"allowed_address_pairs":[{"ip_address":"10.0.0.1"}]}`},
		{"create", "port", `{"network_id":"$1","allowed_address_pairs":[{"mac_address":"fa:16:3e:00:00:07"}]}`},
		{"create", "port", `{"network_id":"$1","extra_dhcp_opts":[{"opt_name":"mtu","opt_value":1400}]}`},
		{"create", "port", `{"network_id":"$1","dns_name":"a_b"}`},
		{"create", "port", `{"network_id":"$7","allowed_address_pairs":[{"ip_address":"10.0.0.0/24"}]}`},
		{"create", "port", `{"network_id":"$7","port_security_enabled":false}`},
		{"create", "port", `{"network_id":"$7","fixed_ips":[{"ip_address":"10.8.0.1"}]}`},
		{"update 5", "port", `{"network_id":"$7"}`},
		{"update 5", "port", `{"port_security_enabled":false}`},
		{"update 5", "port", `{"security_groups":["$4","$3"]}`},

		{"create", "security_group", `{"name":"default"}`},
		{"update 3", "security_group", `{"stateful":false}`},
		{"delete 3", "security_group", ``},
		{"create", "security_group_rule", `{"security_group_id":"$3"}`},
		{"create", "security_group_rule", `{"security_group_id":"$3","direction":"sideways"}`},
		{"create", "security_group_rule", `{"security_group_id":"$3","direction":"ingress","protocol":"carrier-pigeon"}`},
		{"create", "security_group_rule", `{"security_group_id":"$3","direction":"ingress","protocol":"tcp","port_range_min":80}`},
		{"create", "security_group_rule", `{"security_group_id":"$3","direction":"ingress","protocol":"tcp","port_range_min":90,"port_range_max":80}`},
		{"create", "security_group_rule", `{"security_group_id":"$3","direction":"ingress","protocol":"icmp","port_range_min":256}`},
		{"create", "security_group_rule", `{"security_group_id":"$3","direction":"ingress","port_range_min":1,"port_range_max":2}`},
		{"create", "security_group_rule", `{"security_group_id":"$3","direction":"ingress","protocol":"ipv6-icmp"}`},
		{"create", "security_group_rule", `{"security_group_id":"$3","direction":"ingress","remote_ip_prefix":"fd00::/8"}`},
		{"create", "security_group_rule", `{"security_group_id":"$3","direction":"ingress","remote_ip_prefix":"10.0.0.0/8","remote_group_id":"$4"}`},
		{"create", "security_group_rule", `{"security_group_id":"$3","direction":"ingress","remote_group_id":"` + uuidNamed('9') + `"}`},
		{"create", "security_group_rule", `{"security_group_id":"` + uuidNamed('9') + `","direction":"ingress"}`},
		{"create", "security_group_rule", `{"security_group_id":"$3","direction":"ingress","protocol":6,"port_range_min":"80","port_range_max":80}`},
		{"update 6", "security_group_rule", `{"direction":"egress"}`},
	} {
		op, which, _ := strings.Cut(tt.op, " ")
		method, path := http.MethodPost, ""
		switch op {
		case "update":
			method = http.MethodPut
		case "delete":
			method = http.MethodDelete
		}
		id := byte('a') // of what is not made
		if which != "" {
			id = which[0]
			path = "/" + uuidNamed(id)
			if id != '9' {
				path = "/" + strings.NewReplacer(toServer...).Replace("$"+which)
			}
		}
		_, kind, message := call(t, server, method, tt.resource, path, strings.NewReplacer(toServer...).Replace(tt.attributes))
		if kind == "" {
			t.Errorf("%s %s %s: the server accepts it", tt.op, tt.resource, tt.attributes)
			continue
		}
		last := stepAbout(op, tt.resource, id, strings.NewReplacer(toFile...).Replace(tt.attributes))
		got := refusalOfLast(t, append(steps, last))
		want := refusal{kind, strings.NewReplacer(back...).Replace(message)}
		switch {
		case got == nil:
			t.Errorf("%s %s %s: translate accepts it, the server says: %s", tt.op, tt.resource, tt.attributes, want.Message)
		case *got != want:
			t.Errorf("%s %s %s: translate says %s: %s\nthe server %s: %s", tt.op, tt.resource, tt.attributes, got.Kind, got.Message, want.Kind, want.Message)
		}
	}
}

// stepAbout is a step of a file about the object with this id.
func stepAbout(op, resource string, id byte, attributes string) string {
	data := `{"id":"` + uuidNamed(id) + `"`
	if inner := strings.TrimSpace(strings.TrimPrefix(attributes, "{")); inner != "" && inner != "}" {
		data += "," + inner
	} else {
		data += "}"
	}
	return `{"op":"` + op + `","type":"` + resource + `","data":` + data + `}`
}

// refusalOfLast translates steps, of which the last may be refused.
func refusalOfLast(t *testing.T, steps []string) *refusal {
	t.Helper()
	var out bytes.Buffer
	if err := Translate(t.Context(), strings.NewReader(`{"steps":[`+strings.Join(steps, ",")+`]}`), TranslateOptions{JSON: true}, &out); err != nil {
		t.Fatal(err)
	}
	var got struct{ Steps []struct{ Error *refusal } }
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || len(got.Steps) != len(steps) {
		t.Fatalf("%v: %s", err, out.String())
	}
	for i, s := range got.Steps[:len(steps)-1] {
		if s.Error != nil {
			t.Fatalf("%s: %s", steps[i], s.Error.Message)
		}
	}
	return got.Steps[len(steps)-1].Error
}
