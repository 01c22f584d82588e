package offline

import (
	"encoding/json"
	"strings"
	"testing"

	"heddle/internal/api/apitest"
	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
)

// TestRefusedAsByTheServer: what the server refuses, translate refuses too, in the server's words.
func TestRefusedAsByTheServer(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	t.Cleanup(func() { _ = st.Close() })
	rep := replica.New(st, replica.Options{Watch: schema.Root}, schema.All()...)
	apitest.Run(t, rep)
	server, err := control.New(records.NewDB(st, rep), control.Options{})
	if err != nil {
		t.Fatal(err)
	}
	caller := neutron.Caller{ProjectID: "p", Roles: []string{"admin"}}
	parse := func(r neutron.Resource, body map[string]any) neutron.Values {
		t.Helper()
		v, err := neutron.Parse(caller, r, neutron.Create, body)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	made, err := server.CreateNetworks(t.Context(), caller, []neutron.Values{parse(neutron.Networks, map[string]any{})})
	if err != nil {
		t.Fatal(err)
	}
	network := made[0].ID
	if _, err := server.CreateSubnets(t.Context(), caller, []neutron.Values{parse(neutron.Subnets,
		map[string]any{"network_id": network, "ip_version": json.Number("4"), "cidr": "10.9.0.0/24"})}); err != nil {
		t.Fatal(err)
	}
	for _, attributes := range []string{
		`"cidr":"10.0.0.0/24","gateway_ip":"10.0.0.255"`,
		`"cidr":"10.0.0.0/24","gateway_ip":"10.0.0.0"`,
		`"cidr":"127.0.0.0/8"`,
		`"cidr":"224.0.0.0/24"`,
		`"cidr":"0.0.0.0/8"`,
		`"cidr":"0.0.0.0/0","enable_dhcp":false`,
		`"cidr":"10.0.0.0/31"`,
		`"cidr":"10.0.0.1/32"`,
		`"cidr":"10.9.0.0/25"`,
		`"cidr":"10.0.0.0/24","gateway_ip":"fd00::1"`,
		`"cidr":"10.0.0.0/24","dns_nameservers":["fd00::1"]`,
		`"cidr":"10.0.0.0/24","dns_nameservers":["192.0.2.1","192.0.2.2","192.0.2.3","192.0.2.4","192.0.2.5","192.0.2.6"]`,
		`"cidr":"10.0.0.0/24","host_routes":[{"destination":"fd00::/64","nexthop":"10.0.0.9"}]`,
		`"cidr":"10.0.0.0/24","allocation_pools":[{"start":"10.0.1.2","end":"10.0.1.9"}]`,
		`"cidr":"10.0.0.0/24","allocation_pools":[{"start":"10.0.0.2","end":"10.0.0.9"},{"start":"10.0.0.9","end":"10.0.0.12"}]`,
		`"cidr":"10.0.0.0/24","gateway_ip":"10.0.0.5","allocation_pools":[{"start":"10.0.0.2","end":"10.0.0.9"}]`,
		`"cidr":"10.0.0.0/24","ipv6_ra_mode":"slaac"`,
		`"cidr":"fd00::/80","ip_version":6,"ipv6_ra_mode":"slaac","ipv6_address_mode":"slaac"`,
		`"cidr":"fd00::/64","ip_version":6,"ipv6_ra_mode":"slaac","ipv6_address_mode":"dhcpv6-stateful"`,
		`"cidr":"fd00::/64","ip_version":6,"ipv6_ra_mode":"slaac","enable_dhcp":false`,
		`"cidr":"fd00::/127","ip_version":6`,
		`"cidr":"fd00::/64","ip_version":4`,
	} {
		if !strings.Contains(attributes, "ip_version") {
			attributes = `"ip_version":4,` + attributes
		}
		d := json.NewDecoder(strings.NewReader(`{` + attributes + `}`))
		d.UseNumber()
		var body map[string]any
		if err := d.Decode(&body); err != nil {
			t.Fatal(err)
		}
		body["network_id"] = network
		_, err := server.CreateSubnets(t.Context(), caller, []neutron.Values{parse(neutron.Subnets, body)})
		if err == nil {
			t.Errorf("%s: the server accepts it", attributes)
			continue
		}
		const id = "00000000-0000-4000-8000-00000000000"
		steps := `{"steps":[{"op":"create","type":"network","data":{"id":"` + id + `1"}},
			{"op":"create","type":"subnet","data":{"id":"` + id + `2","network_id":"` + id + `1","cidr":"10.9.0.0/24"}},
			{"op":"create","type":"subnet","data":{"id":"` + id + `3","network_id":"` + id + `1",` + attributes + `}}]}`
		var out strings.Builder
		if err := Translate(strings.NewReader(steps), TranslateOptions{JSON: true}, &out); err != nil {
			t.Errorf("%s: %v", attributes, err)
			continue
		}
		var got struct{ Steps []struct{ Error *refusal } }
		if err := json.Unmarshal([]byte(out.String()), &got); err != nil || len(got.Steps) != 3 {
			t.Fatalf("%v: %s", err, out.String())
		}
		want := strings.ReplaceAll(err.Error(), network, id+"1")
		want = strings.ReplaceAll(want, "new subnet", id+"3") // translate is told the id, the server has yet to choose it
		switch refused := got.Steps[2].Error; {
		case refused == nil:
			t.Errorf("%s: translate accepts it, the server says: %s", attributes, want)
		case refused.Message != want:
			t.Errorf("%s: translate says: %s\nthe server: %s", attributes, refused.Message, want)
		}
	}
}
