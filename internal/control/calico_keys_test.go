package control_test

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/calico"
	"heddle/internal/api/apitest"
	"heddle/internal/control"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// routed makes a routed network and returns its id.
func (w *world) routed() string {
	w.t.Helper()
	return must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"provider:network_type":"routed"}`).ID
}

// openRouted has the site be ready for routed networks, which leaves settings behind.
func (w *world) openRouted(t fataler) {
	t.Helper()
	if err := w.remove(w.admin, neutron.Networks, w.routed()); err != nil {
		t.Fatal(err)
	}
	for key := range w.under(schema.SecurityGroups.Key("")) {
		if err := w.remove(w.admin, neutron.SecurityGroups, strings.TrimPrefix(key, schema.SecurityGroups.Key(""))); err != nil {
			t.Fatal(err)
		}
	}
}

// under returns the values under a prefix of the store.
func (w *world) under(prefix string) map[string]string {
	w.t.Helper()
	kvs, _, err := w.st.List(context.Background(), prefix)
	if err != nil {
		w.t.Fatal(err)
	}
	found := map[string]string{}
	for _, kv := range kvs {
		found[kv.Key] = string(kv.Value)
	}
	return found
}

// calico is Calico's data model but for settings.
func (w *world) calico() map[string]string {
	w.t.Helper()
	found := w.under("/calico/")
	for key := range found {
		if strings.HasPrefix(key, "/calico/v1/config/") {
			delete(found, key)
		}
	}
	return found
}

// fataler is a test, or one run of a property.
type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

// calicoOf derives all of Calico's keys anew.
func calicoOf(t fataler, snap *records.Snap) map[string]string {
	t.Helper()
	want := map[string]string{}
	put := func(key calico.Key, object any) {
		path, err := key.Path()
		if err != nil {
			t.Fatal(err)
		}
		value, err := calico.Encode(key, object)
		if err != nil {
			t.Fatal(err)
		}
		want[path] = string(value)
	}
	var subnets []*neutron.Subnet
	for s := range schema.Subnets.All(snap) {
		subnets = append(subnets, s)
		if n, _ := schema.Networks.Peek(snap, s.NetworkID); n.Routed() && s.EnableDHCP {
			put(calico.DHCPSubnetKey{Subnet: s.ID}, translate.DHCPSubnet(s, n))
		}
	}
	for p := range schema.Ports.All(snap) {
		if n, _ := schema.Networks.Peek(snap, p.NetworkID); translate.HasEndpoint(p, n) {
			put(translate.EndpointKey(p), translate.Endpoint(p, n, subnets, "openstacklocal"))
		}
	}
	addresses := map[string][]netip.Prefix{}
	for b := range schema.AddressBlocks.All(snap) {
		addresses[b.GroupID] = append(addresses[b.GroupID], b.Addresses...)
		slices.SortFunc(addresses[b.GroupID], neutron.ComparePrefixes)
	}
	for g := range schema.SecurityGroups.All(snap) {
		rules, tags := translate.Profile(g, addresses)
		put(calico.ProfileRulesKey{Profile: translate.ProfileID(g.ID)}, rules)
		put(calico.ProfileTagsKey{Profile: translate.ProfileID(g.ID)}, tags)
	}
	return want
}

// TestRoutedPort follows one port through its life; after each step the store has exactly the
// endpoint that is due.
func TestRoutedPort(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.hosts("h1", "h2")
	n := w.routed()
	s4 := must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+n+`","ip_version":4,"cidr":"10.65.0.0/24"}`).ID
	s6 := must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+n+`","ip_version":6,"cidr":"fd00:65::/64","gateway_ip":"fd00:65::1"}`).ID
	p := must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+n+`","mac_address":"fa:16:3e:00:00:01",
		"fixed_ips":[{"ip_address":"10.65.0.4"},{"ip_address":"fd00:65::4"}],"device_owner":"compute:nova"}`)
	group := p.SecurityGroups[0]
	endpoint := func(state, gateway4, id4, pair string, more ...string) string {
		return `{"state":"` + state + `","name":"tap` + p.ID[:11] + `","mac":"fa:16:3e:00:00:01","profile_ids":["openstack-sg-` + group + `"],` +
			`"ipv4_nets":["10.65.0.4/32"` + pair + `],"ipv6_nets":["fd00:65::4/128"],` + gateway4 + `"ipv6_gateway":"fd00:65::1","labels":{},` +
			`"ipv4_subnet_ids":["` + id4 + `"],"ipv6_subnet_ids":["` + s6 + `"],"fqdn":"host-10-65-0-4.openstacklocal"` + strings.Join(more, "") + `}`
	}
	const gateway = `"ipv4_gateway":"10.65.0.1",`
	usual := endpoint("active", gateway, s4, "")
	port := func(text string) func() {
		return func() { w.update(p.ID, text) }
	}
	other := func(r neutron.Resource, id, text string) func() {
		return func() {
			if _, err := w.change(w.admin, r, id, text); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, step := range []struct {
		name      string
		do        func()
		key, want string // below /calico/v1/host/; "" = no endpoint
	}{
		{"not bound", func() {}, "", ""},
		{"bound, without a device", port(`{"binding:host_id":"h1"}`), "h1/workload/openstack/" + p.ID, usual},
		{"a device", port(`{"device_id":"vm"}`), "h1/workload/openstack/vm", usual},
		{"a device with a slash", port(`{"device_id":"vm/1"}`), "h1/workload/openstack/vm%2f1", usual},
		{"another host", port(`{"binding:host_id":"h2","device_id":"vm"}`), "h2/workload/openstack/vm", usual},
		{"down", port(`{"admin_state_up":false}`), "h2/workload/openstack/vm", endpoint("inactive", gateway, s4, "")},
		{"up", port(`{"admin_state_up":true}`), "h2/workload/openstack/vm", usual},
		{"network down", other(neutron.Networks, n, `{"admin_state_up":false}`), "h2/workload/openstack/vm", endpoint("inactive", gateway, s4, "")},
		{"network up", other(neutron.Networks, n, `{"admin_state_up":true}`), "h2/workload/openstack/vm", usual},
		{"a pair", port(`{"allowed_address_pairs":[{"ip_address":"10.65.0.9/32"},{"ip_address":"10.65.0.4"}]}`), "h2/workload/openstack/vm",
			endpoint("active", gateway, s4, `,"10.65.0.9/32"`)},
		{"no pair", port(`{"allowed_address_pairs":[]}`), "h2/workload/openstack/vm", usual},
		{"an option", port(`{"extra_dhcp_opts":[{"opt_name":"tftp-server","opt_value":"10.65.0.9"}]}`), "h2/workload/openstack/vm",
			endpoint("active", gateway, s4, "", `,"extra_dhcp_opts":[{"opt_name":"tftp-server","opt_value":"10.65.0.9","ip_version":4}]`)},
		{"another value, another option", port(`{"extra_dhcp_opts":[{"opt_name":"tftp-server","opt_value":"10.65.0.8"},{"opt_name":"59","opt_value":"u","ip_version":6}]}`),
			"h2/workload/openstack/vm", endpoint("active", gateway, s4, "", `,"extra_dhcp_opts":[{"opt_name":"tftp-server","opt_value":"10.65.0.8","ip_version":4},`+
				`{"opt_name":"59","opt_value":"u","ip_version":6}]`)},
		{"no option", port(`{"extra_dhcp_opts":[{"opt_name":"tftp-server","opt_value":null},{"opt_name":"59","opt_value":null,"ip_version":6}]}`),
			"h2/workload/openstack/vm", usual},
		{"another address", port(`{"fixed_ips":[{"ip_address":"10.65.0.7"}]}`), "h2/workload/openstack/vm",
			strings.NewReplacer("10.65.0.4", "10.65.0.7", "host-10-65-0-4", "host-10-65-0-7", `"ipv6_nets":["fd00:65::4/128"]`, `"ipv6_nets":[]`,
				`"ipv6_gateway":"fd00:65::1",`, "", `,"ipv6_subnet_ids":["`+s6+`"]`, "").Replace(usual)},
		{"the address as before", port(`{"fixed_ips":[{"ip_address":"10.65.0.4"},{"ip_address":"fd00:65::4"}]}`), "h2/workload/openstack/vm", usual},
		{"another gateway", other(neutron.Subnets, s4, `{"gateway_ip":"10.65.0.254","allocation_pools":[{"start":"10.65.0.2","end":"10.65.0.9"}]}`),
			"h2/workload/openstack/vm", endpoint("active", `"ipv4_gateway":"10.65.0.254",`, s4, "")},
		{"no DHCP", other(neutron.Subnets, s4, `{"enable_dhcp":false,"gateway_ip":null}`), "h2/workload/openstack/vm", endpoint("active", "", "", "")},
		{"DHCP", other(neutron.Subnets, s4, `{"enable_dhcp":true,"gateway_ip":"10.65.0.1"}`), "h2/workload/openstack/vm", usual},
		{"a service's", port(`{"device_owner":"network:dhcp"}`), "", ""},
		{"a machine's", port(`{"device_owner":"compute:nova"}`), "h2/workload/openstack/vm", usual},
		{"unknown host", port(`{"binding:host_id":"h9"}`), "", ""},
		{"known host", port(`{"binding:host_id":"h1"}`), "h1/workload/openstack/vm", usual},
		{"unbound", port(`{"binding:profile":null}`), "", ""},
		{"bound", port(`{"binding:profile":{}}`), "h1/workload/openstack/vm", usual},
		{"deleted", func() {
			if err := w.remove(w.admin, neutron.Ports, p.ID); err != nil {
				t.Fatal(err)
			}
		}, "", ""},
	} {
		step.do()
		want := map[string]string{}
		if step.key != "" {
			want["/calico/v1/host/"+step.key+"/endpoint/"+p.ID] = step.want
		}
		if d := cmp.Diff(want, w.under("/calico/v1/host/")); d != "" {
			t.Errorf("%s (-want +got):\n%s", step.name, d)
		}
	}
}

// TestRoutedNothingLeft: what is made on a routed network and deleted leaves the store as it was,
// also where everything goes at once with the network.
func TestRoutedNothingLeft(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.hosts("h1")
	w.routed() // brings settings and a default group
	before := w.dump()
	n := w.routed()
	s := must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+n+`","ip_version":4,"cidr":"10.65.0.0/24","dns_nameservers":["192.0.2.53"],
		"host_routes":[{"destination":"10.9.0.0/16","nexthop":"10.65.0.9"}]}`).ID
	if got, want := w.under("/calico/dhcp/"), map[string]string{"/calico/dhcp/v1/subnet/" + s: `{"cidr":"10.65.0.0/24","gateway_ip":"10.65.0.1",` +
		`"dns_servers":["192.0.2.53"],"host_routes":[{"destination":"10.9.0.0/16","nexthop":"10.65.0.9"}],"network_id":"` + n + `","mtu":1500}`}; !cmp.Equal(got, want) {
		t.Errorf("subnet: %s", cmp.Diff(want, got))
	}
	if _, err := w.change(w.admin, neutron.Subnets, s, `{"enable_dhcp":false}`); err != nil || len(w.under("/calico/dhcp/")) > 0 {
		t.Errorf("without DHCP: %v, %v", err, w.under("/calico/dhcp/"))
	}
	if _, err := w.change(w.admin, neutron.Subnets, s, `{"enable_dhcp":true}`); err != nil || len(w.under("/calico/dhcp/")) != 1 {
		t.Errorf("with DHCP again: %v, %v", err, w.under("/calico/dhcp/"))
	}
	must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+n+`","device_owner":"network:dhcp"}`)
	must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+n+`","ip_version":6,"cidr":"fd00:65::/64"}`)
	if err := w.remove(w.admin, neutron.Networks, n); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, w.dump()); d != "" {
		t.Errorf("left in the store (+) or lost (-):\n%s", d)
	}
}

// TestRoutedSubnet follows one subnet; after each step its record is the one that is due.
func TestRoutedSubnet(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.routed()
	s := must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+n+`","ip_version":4,"cidr":"10.65.0.0/24"}`).ID
	for _, step := range []struct{ change, gateway, more string }{ // no gateway: no record
		{`{"name":"lan"}`, "10.65.0.1", ``},
		{`{"dns_nameservers":["192.0.2.53","192.0.2.54"]}`, "10.65.0.1", `"dns_servers":["192.0.2.53","192.0.2.54"],`},
		{`{"dns_nameservers":["192.0.2.54"]}`, "10.65.0.1", `"dns_servers":["192.0.2.54"],`},
		{`{"dns_nameservers":[],"host_routes":[{"destination":"10.9.0.0/16","nexthop":"10.65.0.9"}]}`, "10.65.0.1", `"host_routes":[{"destination":"10.9.0.0/16","nexthop":"10.65.0.9"}],`},
		{`{"host_routes":[]}`, "10.65.0.1", ``},
		{`{"allocation_pools":[{"start":"10.65.0.10","end":"10.65.0.20"}]}`, "10.65.0.1", ``},
		{`{"gateway_ip":"10.65.0.254"}`, "10.65.0.254", ``},
		{`{"enable_dhcp":false}`, "", ``},
		{`{"gateway_ip":"10.65.0.2"}`, "", ``},
		{`{"enable_dhcp":true}`, "10.65.0.2", ``},
	} {
		if _, err := w.change(w.admin, neutron.Subnets, s, step.change); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{}
		if step.gateway != "" {
			want["/calico/dhcp/v1/subnet/"+s] = `{"cidr":"10.65.0.0/24","gateway_ip":"` + step.gateway + `",` + step.more + `"network_id":"` + n + `","mtu":1500}`
		}
		if d := cmp.Diff(want, w.under("/calico/dhcp/")); d != "" {
			t.Errorf("%s (-want +got):\n%s", step.change, d)
		}
	}
}

// TestRoutedGroup: a rule that comes or goes is in the group's profile, and the port of another
// group in its endpoint.
func TestRoutedGroup(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.hosts("h1")
	n := w.routed()
	must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+n+`","ip_version":4,"cidr":"10.65.0.0/24"}`)
	g := must[*neutron.SecurityGroupView](w, w.admin, neutron.SecurityGroups, `{"name":"web"}`).ID
	p := must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+n+`","device_id":"vm","binding:host_id":"h1"}`)
	profile := func() string {
		return w.under("/calico/v1/policy/profile/openstack-sg-" + g + "/rules")["/calico/v1/policy/profile/openstack-sg-"+g+"/rules"]
	}
	const open = `"dst_ports":[80]`
	rule := must[*neutron.SecurityGroupRule](w, w.admin, neutron.SecurityGroupRules, `{"security_group_id":"`+g+`","direction":"ingress","protocol":"tcp","port_range_min":80,"port_range_max":80}`)
	if got := profile(); !strings.Contains(got, open) {
		t.Errorf("after a rule: %s", got)
	}
	if err := w.remove(w.admin, neutron.SecurityGroupRules, rule.ID); err != nil || strings.Contains(profile(), open) {
		t.Errorf("without the rule: %v, %s", err, profile())
	}
	w.update(p.ID, `{"security_groups":["`+g+`"]}`)
	for _, value := range w.under("/calico/v1/host/") {
		if !strings.Contains(value, `"profile_ids":["openstack-sg-`+g+`"]`) {
			t.Errorf("endpoint %s", value)
		}
	}
	w.expect(w.remove(w.admin, neutron.SecurityGroups, g), "SecurityGroupInUse: Security Group "+g+" in use.")
	_, err := w.change(w.admin, neutron.Ports, p.ID, `{"mac_address":"fa:16:3e:00:00:09"}`)
	w.expect(err, "PortBound: Unable to complete operation on port "+p.ID+", port is already bound, port type: tap, old_mac "+
		p.MACAddress.String()+", new_mac fa:16:3e:00:00:09.")
}

// TestRoutedAddressGroup: the profile of a security group has the members of the address groups
// that its rules name, from the first routed network on; each rule those of its IP version.
func TestRoutedAddressGroup(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	ag := w.addressGroup("192.0.2.7/32", "198.51.100.0/24").ID
	g := must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"web"}`).ID
	for _, version := range []string{"IPv4", "IPv6"} {
		must[*neutron.SecurityGroupRule](w, w.member, neutron.SecurityGroupRules, `{"security_group_id":"`+g+`","direction":"ingress","ethertype":"`+version+
			`","remote_address_group_id":"`+ag+`"}`)
	}
	key := "/calico/v1/policy/profile/openstack-sg-" + g + "/rules"
	inbound := func() string {
		rules, _, _ := strings.Cut(w.under(key)[key], `,"outbound_rules"`)
		return rules
	}
	rules := func(list ...string) string { return `{"inbound_rules":[` + strings.Join(list, ",") + `]` }
	of := func(version, nets string) string {
		return `{"action":"allow","ip_version":` + version + `,"src_net` + nets + `}`
	}
	change := func(change func(context.Context, neutron.Caller, string, []netip.Prefix) (*neutron.AddressGroupView, error), prefixes ...string) func() error {
		return func() error {
			_, err := change(t.Context(), w.member, ag, prefixesOf(prefixes...))
			return err
		}
	}
	for _, step := range []struct {
		name string
		do   func() error
		want string
	}{
		{"without a routed network", func() error { return nil }, rules()},
		{"with the first", func() error { w.routed(); return nil }, rules(of("4", `s":["192.0.2.7/32","198.51.100.0/24"]`))},
		{"a member more", change(w.AddAddresses, "2001:db8::/64"), rules(of("4", `s":["192.0.2.7/32","198.51.100.0/24"]`), of("6", `":"2001:db8::/64"`))},
		{"a member less", change(w.RemoveAddresses, "192.0.2.7/32"), rules(of("4", `":"198.51.100.0/24"`), of("6", `":"2001:db8::/64"`))},
		{"no members", change(w.RemoveAddresses, "198.51.100.0/24", "2001:db8::/64"), rules()},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got := inbound(); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
}

// TestRoutedAddressesAtOnce: members that change while rules name their group and the first routed
// network is made are in all profiles in the end.
func TestRoutedAddressesAtOnce(t *testing.T) {
	t.Parallel()
	ws := twoServers(t, control.Options{})
	w := ws[0]
	ag := w.addressGroup("192.0.2.0/24").ID
	var running sync.WaitGroup
	attempt := func(f func() error) {
		running.Go(func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range 8 {
		one := ws[i%2]
		g := must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"web"}`).ID
		attempt(func() error {
			_, err := one.AddAddresses(t.Context(), w.member, ag, []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 32)})
			return err
		})
		attempt(func() error {
			_, err := one.create(w.member, neutron.SecurityGroupRules, `{"security_group_id":"`+g+`","direction":"ingress","remote_address_group_id":"`+ag+`"}`)
			return err
		})
		if i == 4 {
			attempt(func() error {
				_, err := one.create(w.admin, neutron.Networks, `{"provider:network_type":"routed"}`)
				return err
			})
		}
	}
	running.Wait()
	snap, err := w.db.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(calicoOf(t, snap), w.calico()); d != "" {
		t.Errorf("keys are not what their owners mean (-want +got):\n%s", d)
	}
}

// TestRoutedHostComes: a port that named its host before that joined gets its endpoint then, and
// loses it with the host.
func TestRoutedHostComes(t *testing.T) {
	t.Parallel()
	f := follow(t, store.NewMemory())
	n := f.routed()
	must[*neutron.SubnetView](f.world, f.admin, neutron.Subnets, `{"network_id":"`+n+`","ip_version":4,"cidr":"10.65.0.0/24"}`)
	f.portsOn(n, "late", 3)
	endpoints := func() int { return len(f.under("/calico/v1/host/late/workload/openstack/")) }
	if endpoints() > 0 {
		t.Error("there are endpoints on a host that is not known")
	}
	f.putHost("id-late", "late")
	f.until("the ports to be bound", bound("id-late", 3))
	if got := endpoints(); got != 3 {
		t.Errorf("%d endpoints, want 3", got)
	}
	f.dropHost("id-late")
	f.until("the ports not to be bound", bound("id-late", 0))
	if got := endpoints(); got != 0 {
		t.Errorf("%d endpoints on a host that is gone", got)
	}
}

// TestRoutedMTU: a network's MTU is in the record of each of its subnets that DHCP serves.
func TestRoutedMTU(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{"provider:network_type":"routed","mtu":1400}`).ID
	for _, text := range []string{`"ip_version":4,"cidr":"10.65.0.0/24"`, `"ip_version":4,"cidr":"10.66.0.0/24"`, `"ip_version":4,"cidr":"10.67.0.0/24","enable_dhcp":false`,
		`"ip_version":6,"cidr":"fd00:65::/64"`} {
		must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+n+`",`+text+`}`)
	}
	for _, step := range []struct{ change, want string }{{`{}`, "1400"}, {`{"mtu":1300}`, "1300"}, {`{"name":"x"}`, "1300"}, {`{"mtu":0}`, "1500"}} {
		if _, err := w.change(w.admin, neutron.Networks, n, step.change); err != nil {
			t.Fatal(err)
		}
		records := w.under("/calico/dhcp/")
		if len(records) != 3 {
			t.Errorf("%s: %d subnets, want 3", step.change, len(records))
		}
		for key, value := range records {
			if !strings.HasSuffix(value, `"mtu":`+step.want+`}`) {
				t.Errorf("%s: %s is %s, want mtu %s", step.change, key, value, step.want)
			}
		}
	}
}

// TestRoutedRefusals: what hosts cannot do is refused by name, and nothing is written.
func TestRoutedRefusals(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.hosts("h1")
	n := w.routed()
	s := must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+n+`","ip_version":4,"cidr":"10.65.0.0/24"}`).ID
	second := w.routed()
	stateless := must[*neutron.SecurityGroupView](w, w.admin, neutron.SecurityGroups, `{"name":"s","stateful":false}`).ID
	p := must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+n+`","fixed_ips":[{"ip_address":"10.65.0.4"}]}`).ID
	before := w.dump()
	const head = "InvalidInput: Invalid input for operation: "
	for _, tt := range []struct {
		resource   neutron.Resource
		text, want string
	}{
		{neutron.Networks, `"provider:network_type":"routed","provider:segmentation_id":5`, "physical_network and segmentation_id are not for networks of type routed."},
		{neutron.Subnets, `"network_id":"` + n + `","ip_version":4,"cidr":"10.66.0.0/24","gateway_ip":null`, "gateway_ip is required on a routed network if enable_dhcp is True."},
		{neutron.Subnets, `"network_id":"` + n + `","ip_version":6,"cidr":"fd00:66::/64","gateway_ip":"fe80::1"`, "gateway_ip fe80::1 is not in fd00:66::/64, as a routed network needs if enable_dhcp is True."},
		{neutron.Subnets, `"network_id":"` + n + `","ip_version":4,"cidr":"169.254.7.0/24"`, "cidr 169.254.7.0/24 is link-local; a routed network cannot route it."},
		{neutron.Subnets, `"network_id":"` + second + `","ip_version":4,"cidr":"10.65.0.0/16"`, "Requested subnet with cidr: 10.65.0.0/16 for network: " + second + " overlaps with a subnet of another routed network."},
		{neutron.Ports, `"network_id":"` + n + `","allowed_address_pairs":[{"ip_address":"10.65.0.0/31"}]`, "allowed_address_pairs: 10.65.0.0/31 is a range; a port of a routed network may only have single addresses."},
		{neutron.Ports, `"network_id":"` + n + `","mac_address":"fa:16:3e:00:00:01","allowed_address_pairs":[{"ip_address":"10.65.0.9","mac_address":"fa:16:3e:00:00:02"}]`,
			"allowed_address_pairs: mac_address fa:16:3e:00:00:02 of 10.65.0.9 is not the port's; a port of a routed network has only its own."},
		{neutron.Ports, `"network_id":"` + n + `","fixed_ips":[{"ip_address":"10.65.0.1"}]`, "fixed_ips: 10.65.0.1 is the gateway_ip of subnet " + s + "; on a routed network every host has it itself."},
		{neutron.Ports, `"network_id":"` + n + `","port_security_enabled":false`, "port_security_enabled cannot be false on a routed network: its hosts check the source of every packet."},
		{neutron.Ports, `"network_id":"` + n + `","security_groups":["` + stateless + `"]`, "security_groups: " + stateless + " is stateless; a routed network tracks all connections."},
		{neutron.Ports, `"network_id":"` + n + `","binding:profile":{"interface_name":"eth0"}`, "interface_name 'eth0' in binding:profile does not begin with tap, as interfaces of a routed network do."},
		{neutron.Ports, `"network_id":"` + n + `","binding:profile":{"interface_name":"tap with blanks"}`,
			`WorkloadEndpoint: name: "tap with blanks": want the name of an interface: 1 to 15 of [A-Za-z0-9_.-], not . or ...`},
	} {
		_, err := w.create(w.admin, tt.resource, "{"+tt.text+"}")
		w.expect(err, head+tt.want)
	}
	for _, tt := range []struct {
		resource       neutron.Resource
		id, text, want string
	}{
		{neutron.Subnets, s, `{"gateway_ip":null}`, head + "gateway_ip is required on a routed network if enable_dhcp is True."},
		{neutron.Subnets, s, `{"gateway_ip":"10.65.0.4","allocation_pools":[{"start":"10.65.0.9","end":"10.65.0.20"}]}`,
			head + "gateway_ip 10.65.0.4 is an address of port " + p + "; on a routed network every host has it itself."},
		{neutron.Ports, p, `{"fixed_ips":[{"ip_address":"10.65.0.1"}]}`, head + "fixed_ips: 10.65.0.1 is the gateway_ip of subnet " + s + "; on a routed network every host has it itself."},
		{neutron.Networks, n, `{"provider:network_type":"vxlan"}`,
			head + "Plugin does not support updating the following provider network attributes: provider:network_type, provider:physical_network."},
	} {
		_, err := w.change(w.admin, tt.resource, tt.id, tt.text)
		w.expect(err, tt.want)
	}
	w.expect(w.remove(w.admin, neutron.Networks, n), "NetworkInUse: Unable to complete operation on network "+n+
		". There are one or more ports still in use on the network, id for these ports is: "+p+".")
	w.expect(w.remove(w.admin, neutron.Subnets, s), "SubnetInUse: Unable to complete operation on subnet "+s+": One or more ports have an IP allocation from this subnet.")
	if d := cmp.Diff(before, w.dump()); d != "" {
		t.Errorf("the store changed:\n%s", d)
	}
}

// TestRoutedSettings: the first routed network gets the agents' settings right, writing only what
// differs, and gives the groups that were there before their profiles. Later ones overrule nobody.
func TestRoutedSettings(t *testing.T) {
	t.Parallel()
	const prefix, reporting = "/calico/v1/config/InterfacePrefix", "/calico/v1/config/EndpointReportingEnabled"
	for _, tt := range []struct{ prefix, reporting, wantPrefix, wantReporting string }{
		{"", "", "cali,tap", "true"},
		{"tap", "Yes", "tap", "Yes"},
		{"cali, tap", "false", "cali, tap", "true"},
		{"vm", "t", "vm,tap", "t"},
	} {
		w := inMemory(t)
		g := must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"old"}`).ID
		profile := []string{"/calico/v1/policy/profile/openstack-sg-" + g + "/rules", "/calico/v1/policy/profile/openstack-sg-" + g + "/tags"}
		ops := []store.Op{{Key: profile[0], Delete: true}, {Key: profile[1], Delete: true}} // as if an older version had made the group
		for key, value := range map[string]string{prefix: tt.prefix, reporting: tt.reporting} {
			if value != "" {
				ops = append(ops, store.Op{Key: key, Value: []byte(value)})
			}
		}
		commit := func(ops ...store.Op) {
			if _, err := w.st.Commit(t.Context(), nil, ops); err != nil {
				t.Fatal(err)
			}
		}
		commit(ops...)
		revision, _ := w.st.Revision(t.Context())
		w.routed()
		all := w.under("/calico/")
		if all[prefix] != tt.wantPrefix || all[reporting] != tt.wantReporting {
			t.Errorf("%+v: got %q and %q", tt, all[prefix], all[reporting])
		}
		if all[profile[0]] == "" || all[profile[1]] != `["`+g+`"]` {
			t.Errorf("profile of the old group: %q, %q", all[profile[0]], all[profile[1]])
		}
		for key, unchanged := range map[string]bool{prefix: tt.prefix == tt.wantPrefix, reporting: tt.reporting == tt.wantReporting} {
			if kv, err := w.st.Get(t.Context(), key); err != nil || unchanged != (kv.ModRevision <= revision) {
				t.Errorf("%+v: %s was written at %d, after %d; %v", tt, key, kv.ModRevision, revision, err)
			}
		}
		commit(store.Op{Key: prefix, Value: []byte("eth")})
		w.routed()
		if got := w.under(prefix)[prefix]; got != "eth" {
			t.Errorf("a second network overrules the operator: %q", got)
		}
	}
}

// TestRoutedAmongOthers: the profiles of old groups are there when a request is answered that makes
// a routed network, which need not be the last of its list.
func TestRoutedAmongOthers(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	g := must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"old"}`).ID
	rules := "/calico/v1/policy/profile/openstack-sg-" + g + "/rules"
	if _, err := w.st.Commit(t.Context(), nil, []store.Op{{Key: rules, Delete: true}}); err != nil { // as if an older version had made the group
		t.Fatal(err)
	}
	if _, err := w.create(w.admin, neutron.Networks, `{"provider:network_type":"routed"}`, `{}`); err != nil {
		t.Fatal(err)
	}
	if w.under(rules)[rules] == "" {
		t.Error("the old group has no profile")
	}
}

// TestRoutedChangesAtOnce: a gateway that moves while ports are made and changed is in all
// endpoints in the end.
func TestRoutedChangesAtOnce(t *testing.T) {
	t.Parallel()
	ws := twoServers(t, control.Options{})
	w := ws[0]
	w.hosts("h1", "h2")
	n := w.routed()
	s := must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+n+`","ip_version":4,"cidr":"10.65.0.0/24",
		"allocation_pools":[{"start":"10.65.0.10","end":"10.65.0.90"}]}`).ID
	p := must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+n+`","binding:host_id":"h1"}`).ID
	var running sync.WaitGroup
	attempt := func(f func() error) {
		running.Go(func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		})
	}
	for i := range 8 {
		one, text := ws[i%2], []string{`{"gateway_ip":"10.65.0.1"}`, `{"gateway_ip":"10.65.0.254"}`}[i%2]
		attempt(func() error { _, err := one.change(w.admin, neutron.Subnets, s, text); return err })
		attempt(func() error {
			_, err := one.create(w.admin, neutron.Ports, `{"network_id":"`+n+`","binding:host_id":"h2"}`)
			return err
		})
		attempt(func() error {
			_, err := one.change(w.admin, neutron.Ports, p, `{"device_id":"`+strings.Repeat("vm", i)+`"}`)
			return err
		})
	}
	running.Wait()
	snap, err := w.db.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(calicoOf(t, snap), w.calico()); d != "" {
		t.Errorf("keys are not what their owners mean (-want +got):\n%s", d)
	}
}

// TestRoutedStatus: a port's status is what its host's policy agent says of it.
func TestRoutedStatus(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	statuses := control.NewStatuses(st, slog.New(slog.DiscardHandler))
	w := open(t, st, control.Options{Statuses: statuses})
	apitest.Run(t, statuses)
	w.hosts("h1")
	n := w.routed()
	p := must[*neutron.PortView](w, w.admin, neutron.Ports, `{"network_id":"`+n+`","device_id":"vm","binding:host_id":"h1"}`)
	if p.VIFType != "tap" || p.VIFDetails["connectivity"] != "l3" {
		t.Errorf("binding: %s %v", p.VIFType, p.VIFDetails)
	}
	const host = "/calico/felix/v1/host/h1/"
	status := host + "workload/openstack/vm/endpoint/" + p.ID
	for _, step := range []struct{ key, value, want string }{
		{"", "", "DOWN"},
		{status, `{"status":"up"}`, "ACTIVE"},
		{status, `{"status":"error"}`, "ERROR"},
		{status, `{"status":"down"}`, "DOWN"},
		{status, `{"status":"up"}`, "ACTIVE"},
		{host + "last_reported_status", `{}`, "ERROR"}, // and no sign of life: the agent is dead
		{host + "status", `{}`, "ACTIVE"},
		{host + "workload/k8s/vm/endpoint/" + p.ID, `{"status":"error"}`, "ACTIVE"},
		{status, `{"status":"sleepy"}`, "DOWN"},
		{status, `{"status":"up"}`, "ACTIVE"},
		{host + "status", "", "ERROR"},
		{host + "last_reported_status", "", "ACTIVE"},
		{status, "", "DOWN"},
	} {
		if step.key != "" {
			rev, err := st.Commit(t.Context(), nil, []store.Op{{Key: step.key, Value: []byte(step.value), Delete: step.value == ""}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := statuses.At(t.Context(), rev); err != nil {
				t.Fatal(err)
			}
		}
		got, err := w.Ports().Show(t.Context(), w.member, p.ID)
		if err == nil || problem(err) == "" {
			t.Fatalf("a member sees the admin's port: %+v", got)
		}
		got, err = w.Ports().Show(t.Context(), w.admin, p.ID)
		if err != nil || got.Status != step.want {
			t.Errorf("after %s %s: %v, %v, want %s", step.key, step.value, got.Status, err, step.want)
		}
	}
}
