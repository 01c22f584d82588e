package control_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"heddle/internal/api/apitest"
	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/replica"
)

// TestDNSNames: names and domains of networks, ports and floating IPs are kept, and reach the
// port's DHCP hosts and the endpoint of a routed network.
func TestDNSNames(t *testing.T) {
	t.Parallel()
	w := behindRouter(open(t, store.NewMemory(), control.Options{DNSDomain: "example.org."}))
	n := w.network(`{"dns_domain":"tenant.example."}`)
	w.subnet(n.ID, `"ip_version":4,"cidr":"10.20.0.0/24"`)
	p := w.port(n.ID, `"dns_name":"vm","dns_domain":"own.example."`)
	if n.DNSDomain != "tenant.example." || p.DNSName != "vm" || p.DNSDomain != "own.example." {
		t.Errorf("network %q, port %q %q", n.DNSDomain, p.DNSName, p.DNSDomain)
	}
	if h := w.bundle("port", p.ID).DhcpHosts[0]; h.Name != "vm" {
		t.Errorf("DHCP host %q", h.Name)
	}
	for _, tt := range []struct {
		r        neutron.Resource
		id, text string
	}{
		{neutron.Networks, n.ID, `{"dns_domain":""}`},
		{neutron.Ports, p.ID, `{"dns_name":"a.b.example.org.","dns_domain":""}`},
	} {
		if _, err := w.change(w.member, tt.r, tt.id, tt.text); err != nil {
			t.Errorf("%s: %v", tt.text, err)
		}
	}
	if h := w.bundle("port", p.ID).DhcpHosts[0]; h.Name != "a.b.example.org." {
		t.Errorf("DHCP host %q after the update", h.Name)
	}
	f := w.floatingIP(`"dns_name":"www","dns_domain":"example.net."`)
	if f.DNSName != "www" || f.DNSDomain != "example.net." {
		t.Errorf("floating IP %q %q", f.DNSName, f.DNSDomain)
	}

	s := w.site()
	for name, want := range map[string]string{"vm": "vm.example.org", "": "host-10-65-0-4.example.org", "x.example.org.": "x.example.org"} {
		if _, err := w.change(w.admin, neutron.Ports, s.port, `{"dns_name":"`+name+`"}`); err != nil {
			t.Fatal(err)
		}
		if got := w.calico()[endpointPath("h1", "openstack/vm", s.port)]; !strings.Contains(got, `"fqdn":"`+want+`"`) {
			t.Errorf("dns_name %q: %s", name, got)
		}
	}
}

// TestDNSNameRefusals: names and domains are refused in the reference's words.
func TestDNSNameRefusals(t *testing.T) {
	t.Parallel()
	w := behindRouter(open(t, store.NewMemory(), control.Options{DNSDomain: "example.org."}))
	p := w.port(w.tenant, "")
	long := strings.Repeat("a", 63) + "."
	label := " must be 1-63 characters long, each of which can only be alphanumeric or a hyphen"
	foreign := "The dns_name passed is a FQDN. Its higher level labels must be equal to the dns_domain option in neutron.conf, that has been set to " +
		"'example.org.'. It must also include one or more valid DNS labels to the left of 'example.org.'"
	for _, tt := range []struct {
		r              neutron.Resource
		name, value    string
		reason, format string // format is why the text is no domain name
	}{
		{r: neutron.Ports, name: "dns_name", value: "VM", format: "Name 'VM'" + label},
		{r: neutron.Ports, name: "dns_name", value: "-a", format: "Name '-a' must not start or end with a hyphen"},
		{r: neutron.Ports, name: "dns_name", value: "a..b", format: "Encountered an empty component"},
		{r: neutron.Ports, name: "dns_name", value: "a.1", format: "TLD '1' must not be all numeric"},
		{r: neutron.Ports, name: "dns_name", value: "b" + long, format: "Name 'b" + long[:63] + "'" + label},
		{r: neutron.Ports, name: "dns_name", value: strings.Repeat(long, 4) + "a",
			format: "'" + strings.Repeat(long, 4) + "a' exceeds the 255 character FQDN limit"},
		{r: neutron.Ports, name: "dns_name", value: "vm.example.com.", reason: foreign},
		{r: neutron.Ports, name: "dns_name", value: "example.org.", reason: foreign},
		{r: neutron.Ports, name: "dns_name", value: strings.Repeat(long, 3) + strings.Repeat("a", 52),
			reason: "The dns_name passed is a PQDN and its size is '244'. The dns_domain option in neutron.conf is set to example.org., with a length of '13'. " +
				"When the two are concatenated to form a FQDN (with a '.' at the end), the resulting length exceeds the maximum size of '255'"},
		{r: neutron.Ports, name: "dns_domain", value: "example.org", reason: "'example.org' is not a FQDN"},
		{r: neutron.Networks, name: "dns_domain", value: "exa_mple.", format: "Name 'exa_mple'" + label},
		{r: neutron.FloatingIPs, name: "dns_name", value: "a.", reason: "'a.' is a FQDN. It should be a relative domain name"},
		{r: neutron.FloatingIPs, name: "dns_name", value: "a b", format: "Name 'a b'" + label},
		{r: neutron.FloatingIPs, name: "dns_name", value: strings.Repeat(long, 3) + strings.Repeat("a", 61),
			reason: "'" + strings.Repeat(long, 3) + strings.Repeat("a", 61) +
				"' contains 253 characters. Adding a domain name will cause it to exceed the maximum length of a FQDN of '255'"},
		{r: neutron.FloatingIPs, name: "dns_domain", value: strings.Repeat(long, 3) + strings.Repeat("a", 61) + ".",
			reason: "'" + strings.Repeat(long, 3) + strings.Repeat("a", 61) +
				".' contains 254 characters. Adding a sub-domain will cause it to exceed the maximum length of a FQDN of '255'"},
	} {
		reason := tt.reason
		if tt.format != "" {
			reason = "'" + tt.value + "' not a valid PQDN or FQDN. Reason: " + tt.format
		}
		text := `{"` + tt.name + `":"` + tt.value + `"`
		switch tt.r {
		case neutron.Ports:
			text += `,"network_id":"` + w.tenant + `"`
		case neutron.FloatingIPs:
			text += `,"floating_network_id":"` + w.external + `"`
		}
		_, err := w.create(w.member, tt.r, text+"}")
		w.expect(err, "HTTPBadRequest: Invalid input for "+tt.name+". Reason: "+reason+".")
	}
	_, err := w.change(w.member, neutron.Ports, p.ID, `{"dns_name":"vm.example.com."}`)
	w.expect(err, "HTTPBadRequest: Invalid input for dns_name. Reason: "+foreign+".")
	for given, missing := range map[string]string{`"dns_name":"www"`: "dns_domain", `"dns_domain":"example.net."`: "dns_name"} {
		_, err := w.create(w.member, neutron.FloatingIPs, `{"floating_network_id":"`+w.external+`",`+given+`}`)
		name, _, _ := strings.Cut(given[1:], `"`)
		w.expect(err, "BadRequest: Bad floatingip request: "+name+" cannot be specified without a "+missing+".")
	}
}

// TestNewDomainOfSubnets: a server that starts with another domain gives it to the DHCP of all
// subnets, and leaves those of routed networks to the repair of their keys.
func TestNewDomainOfSubnets(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	w := open(t, st, control.Options{})
	n := w.network(`{}`)
	s4 := w.subnet(n.ID, `"ip_version":4,"cidr":"10.20.0.0/24"`).ID
	s6 := w.subnet(n.ID, `"ip_version":6,"cidr":"fd00:20::/64"`).ID
	routed := w.site().dhcp
	if got := w.bundle("subnet", s4).Dhcps[0].DomainName; got != "openstacklocal" {
		t.Errorf("domain %q", got)
	}
	var domains *control.Domains
	later := openBefore(t, st, control.Options{DNSDomain: "example.org."}, func(s *control.Service, r *replica.Replica) {
		domains = control.NewDomains(s, r, slog.New(slog.DiscardHandler))
	})
	from, err := st.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	changes, _ := st.Watch(t.Context(), from, "/heddle/topology/")
	apitest.Run(t, domains)
	timeout := time.After(20 * time.Second)
	for {
		b4, b6 := later.bundle("subnet", s4), later.bundle("subnet", s6)
		if b4.Dhcps[0].DomainName == "example.org" && b6.DhcpV6s[0].DomainName == "example.org" {
			break
		}
		select {
		case <-changes:
		case <-timeout:
			t.Fatalf("domains %q, %q", b4.Dhcps[0].DomainName, b6.DhcpV6s[0].DomainName)
		}
	}
	if b := later.bundle("subnet", routed); len(b.Dhcps) > 0 {
		t.Errorf("a routed subnet has %+v", b.Dhcps)
	}
}
