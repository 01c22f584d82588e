package plug

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/hostnet"
)

func addr(text string) *netip.Addr {
	a := netip.MustParseAddr(text)
	return &a
}

// TestWiring: addresses have their subnets' prefixes, and routes come from the subnets of the
// port's addresses alone, host routes before gateways.
func TestWiring(t *testing.T) {
	t.Parallel()
	subnets := []subnet{
		{ID: "a", CIDR: netip.MustParsePrefix("10.0.0.0/24"), GatewayIP: addr("10.0.0.1"), DNS: []string{"192.0.2.53", "192.0.2.54"},
			HostRoutes: []hostRoute{
				{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParseAddr("10.0.0.9")},
				{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParseAddr("10.0.0.11")}, // the port itself
			}},
		{ID: "b", CIDR: netip.MustParsePrefix("10.1.0.0/16"), GatewayIP: addr("10.1.0.1"), DNS: []string{"192.0.2.53"},
			HostRoutes: []hostRoute{{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("10.1.0.7")}}},
		{ID: "six", CIDR: netip.MustParsePrefix("2001:db8::/64"), GatewayIP: addr("fe80::1")},
		{ID: "far", CIDR: netip.MustParsePrefix("10.2.0.0/24"), GatewayIP: addr("192.0.2.1")},
		{ID: "closed", CIDR: netip.MustParsePrefix("10.3.0.0/24")},
	}
	type route struct {
		dst, by string
		onLink  bool
	}
	for name, c := range map[string]struct {
		ips       []fixedIP
		addresses string
		routes    []route
		dns       string
	}{
		"gateway and host routes": {[]fixedIP{{"a", *addr("10.0.0.11")}}, "10.0.0.11/24",
			[]route{{"198.51.100.0/24", "10.0.0.9", false}, {"0.0.0.0/0", "10.0.0.1", false}}, "192.0.2.53 192.0.2.54"},
		"a host route to everything": {[]fixedIP{{"b", *addr("10.1.0.5")}}, "10.1.0.5/16", []route{{"0.0.0.0/0", "10.1.0.7", false}}, "192.0.2.53"},
		"two subnets, the first gateway": {[]fixedIP{{"a", *addr("10.0.0.5")}, {"b", *addr("10.1.0.5")}}, "10.0.0.5/24 10.1.0.5/16",
			[]route{{"198.51.100.0/24", "10.0.0.9", false}, {"203.0.113.0/24", "10.0.0.11", false}, {"0.0.0.0/0", "10.0.0.1", false}}, "192.0.2.53 192.0.2.54"},
		"a link-local gateway":           {[]fixedIP{{"six", *addr("2001:db8::5")}}, "2001:db8::5/64", []route{{"::/0", "fe80::1", false}}, ""},
		"a gateway outside of the range": {[]fixedIP{{"far", *addr("10.2.0.5")}}, "10.2.0.5/24", []route{{"0.0.0.0/0", "192.0.2.1", true}}, ""},
		"no gateway":                     {[]fixedIP{{"closed", *addr("10.3.0.5")}}, "10.3.0.5/24", nil, ""},
		"the gateway itself":             {[]fixedIP{{"six", *addr("fe80::1")}}, "fe80::1/64", nil, ""},
		"no address":                     {nil, "", nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := newWiring(&port{MACAddress: "fa:16:3e:00:00:01", FixedIPs: c.ips}, network{MTU: 1400}, subnets)
			if err != nil {
				t.Fatal(err)
			}
			var texts []string
			for _, a := range w.addresses {
				texts = append(texts, a.String())
			}
			var routes []route
			for _, r := range w.routes {
				routes = append(routes, route{r.Dst.String(), r.Gateway.String(), r.OnLink})
			}
			if diff := cmp.Diff(c.routes, routes, cmp.AllowUnexported(route{})); diff != "" {
				t.Errorf("routes (-want +got):\n%s", diff)
			}
			if got := strings.Join(texts, " "); got != c.addresses {
				t.Errorf("addresses %q, want %q", got, c.addresses)
			}
			if got := strings.Join(w.nameservers, " "); got != c.dns {
				t.Errorf("name servers %q, want %q", got, c.dns)
			}
			if w.mtu != 1400 || w.mac != (hostnet.MAC{0xfa, 0x16, 0x3e, 0, 0, 1}) {
				t.Errorf("MTU %d, MAC address %x", w.mtu, w.mac)
			}
		})
	}
}

// TestWiringRefuses: what the kernel would refuse is named before anything is made.
func TestWiringRefuses(t *testing.T) {
	t.Parallel()
	six := []subnet{{ID: "six", CIDR: netip.MustParsePrefix("2001:db8::/64")}}
	for want, c := range map[string]struct {
		port port
		mtu  int
	}{
		"an interface with IPv6 needs 1280": {port{MACAddress: "fa:16:3e:00:00:01", FixedIPs: []fixedIP{{"six", *addr("2001:db8::5")}}}, 1200},
		"which is none of Ethernet":         {port{MACAddress: "fa:16"}, 1400},
		"an address of subnet other":        {port{MACAddress: "fa:16:3e:00:00:01", FixedIPs: []fixedIP{{"other", *addr("10.0.0.5")}}}, 1400},
	} {
		if _, err := newWiring(&c.port, network{MTU: c.mtu}, six); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
