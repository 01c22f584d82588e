package neutron

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// TestDomainWithDot: a domain written with a dot at its end makes the same names as one without.
func TestDomainWithDot(t *testing.T) {
	t.Parallel()
	port := &PortView{Port: &Port{FixedIPs: []FixedIP{{IPAddress: netip.MustParseAddr("10.0.0.5")}}}}
	for _, domain := range []string{"example.org", "example.org."} {
		got := string(NewTables(domain).Ports.Encoder(true, []string{"dns_assignment"}).Append(nil, port))
		if !strings.Contains(got, `"fqdn":"host-10-0-0-5.example.org."`) {
			t.Errorf("%s: %s", domain, got)
		}
	}
}

// TestListsAreBounded: a list of 100 entries is read; one of 101 is refused by the attribute's name
// before its entries are looked at, so that a long list costs no more than to be decoded.
func TestListsAreBounded(t *testing.T) {
	t.Parallel()
	admin := Caller{ProjectID: "p", Roles: []string{"admin"}}
	const id = "00000000-0000-0000-0000-00000000%04x"
	for _, tt := range []struct {
		res  Resource
		name string
		item string // with a number
	}{
		{Ports, "tags", `"tag %d"`}, {Ports, "security_groups", `"` + id + `"`}, {Ports, "fixed_ips", `{"ip_address":"10.0.0.%d"}`},
		{Ports, "extra_dhcp_opts", `{"opt_name":"%d","opt_value":"x"}`}, {Subnets, "service_types", `"compute:%d"`},
		{Subnets, "allocation_pools", `{"start":"10.0.0.%[1]d","end":"10.0.0.%[1]d"}`},
	} {
		parse := func(item func(i int) string, n int) error {
			items := make([]string, n)
			for i := range items {
				items[i] = item(i)
			}
			d := json.NewDecoder(strings.NewReader(`{"` + tt.name + `":[` + strings.Join(items, ",") + `]}`))
			d.UseNumber()
			var body map[string]any
			if err := d.Decode(&body); err != nil {
				t.Fatal(err)
			}
			if tt.res == Ports {
				body["network_id"] = fmt.Sprintf(id, 1)
			} else {
				body["network_id"], body["ip_version"], body["cidr"] = fmt.Sprintf(id, 1), json.Number("4"), "10.0.0.0/24"
			}
			_, err := Parse(admin, tt.res, Create, body)
			return err
		}
		if err := parse(func(i int) string { return fmt.Sprintf(tt.item, i) }, MaxList); err != nil {
			t.Errorf("%s of %d: %v", tt.name, MaxList, err)
		}
		err := parse(func(int) string { return `"no such entry"` }, MaxList+1)
		var e *Error
		if !errors.As(err, &e) || e.Message != "Invalid input for "+tt.name+". Reason: '101' entries are too many - there may be no more than '100'." {
			t.Errorf("%s of %d: %v", tt.name, MaxList+1, err)
		}
	}
	if _, err := ParseTags(make([]any, MaxList+1)); err == nil {
		t.Error("tags of 101 are accepted where they are replaced")
	}
	profile := map[string]any{"binding:profile": map[string]any{"x": strings.Repeat("y", 4096)}}
	if _, err := Parse(admin, Ports, Update, profile); err == nil || !strings.Contains(err.Error(), "binding:profile value too large") {
		t.Errorf("profile: %v", err)
	}
}
