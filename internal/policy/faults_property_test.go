package policy

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"heddle/internal/hostnet"
)

// TestWantedIsFound: after any sequence of changes and faults, once these end, the host is as that
// of an agent which has seen the last state alone.
func TestWantedIsFound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		stored := map[string]string{ready: "true", "/calico/v1/policy/profile/open/rules": open}
		b := newBench(t)
		b.fatalf = rt.Fatalf
		b.snapshot(pairs(stored)...)
		write := func(key, value string) {
			if value == "" {
				delete(stored, key)
			} else {
				stored[key] = value
			}
			b.change(key, value)
		}
		name := rapid.SampledFrom([]string{"cali1", "cali2", "cali3", "eth0"})
		address := rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2", "10.0.0.3"})
		key := rapid.SampledFrom([]string{epA, epB, "/calico/v1/host/h1/workload/o/c/endpoint/e", "/calico/host/h1/workload/o/a/endpoint/e"})
		rt.Repeat(map[string]func(*rapid.T){
			"endpoint": func(t *rapid.T) {
				mac := rapid.SampledFrom([]string{`"mac": "02:00:00:00:00:01", `, `"mac": "02:00:00:00:00:02", `, ""}).Draw(t, "mac")
				state := rapid.SampledFrom([]string{"active", "active", "inactive", "bad"}).Draw(t, "state")
				gateway := rapid.SampledFrom([]string{`"2001:db8::1"`, `"2001:db8::2"`, "null"}).Draw(t, "gateway")
				write(key.Draw(t, "key"), fmt.Sprintf(`{"state": %q, "name": %q, %s"profile_ids": ["open"], "ipv6_gateway": %s, "ipv4_nets": [%q, "10.0.1.1"], "ipv4_nat": [{"int_ip": "10.0.1.1", "ext_ip": %q}]}`,
					state, name.Draw(t, "name"), mac, gateway, address.Draw(t, "address"), address.Draw(t, "floating")))
			},
			"remove": func(t *rapid.T) { write(key.Draw(t, "key"), "") },
			"gate":   func(t *rapid.T) { write(ready, rapid.SampledFrom([]string{"true", "false", ""}).Draw(t, "ready")) },
			"prefix": func(t *rapid.T) {
				write("/calico/v1/config/InterfacePrefix", rapid.SampledFrom([]string{"cali", "cali,eth", "x,", ""}).Draw(t, "prefix"))
			},
			"snapshot": func(t *rapid.T) { b.snapshot(pairs(stored)...) },
			"plug":     func(t *rapid.T) { b.plug(name.Draw(t, "name")) },
			"unplug": func(t *rapid.T) {
				if err := b.net.DeleteLink(name.Draw(t, "name")); err != nil {
					t.Fatal(err)
				}
				b.act()
			},
			"down": func(t *rapid.T) {
				_ = b.net.SetUp(name.Draw(t, "name"), rapid.Bool().Draw(t, "up")) // it need not be there
				b.act()
			},
			"overlay": func(t *rapid.T) {
				b.bind(map[string]bool{name.Draw(t, "name"): rapid.Bool().Draw(t, "bound")})
				b.act()
			},
			"foreign route": func(t *rapid.T) {
				_ = b.net.SetRoute(hostnet.Route{Dst: host(ip(address.Draw(t, "address"))), Link: name.Draw(t, "name"), Protocol: 4})
				b.act()
			},
			"lost route": func(t *rapid.T) {
				if err := b.net.DeleteRoute(host(ip(address.Draw(t, "address")))); err != nil {
					t.Fatal(err)
				}
				b.act()
			},
			"wipe":    func(*rapid.T) { b.nft.Wipe(); b.core.rulesChanged(); b.act() },
			"refuse":  func(*rapid.T) { b.nft.Refuse(func(string) error { return errors.New("no") }) },
			"accept":  func(*rapid.T) { b.nft.Refuse(nil) },
			"time":    func(t *rapid.T) { b.after(time.Duration(rapid.IntRange(1, 20000).Draw(t, "ms")) * time.Millisecond) },
			"restart": func(*rapid.T) { b = b.restart(); b.snapshot(pairs(stored)...) },
			"":        func(t *rapid.T) { b.aligned(t) },
		})

		stored[ready] = "true"
		stored["/calico/v1/config/InterfacePrefix"] = "cali"
		b.nft.Refuse(nil)
		b.snapshot(pairs(stored)...)
		b.bind(map[string]bool{})
		for range 4 {
			b.after(time.Minute)
		}
		if what, err := b.rules.Mend(t.Context()); what != "" || err != nil {
			rt.Errorf("after all, nftables lack: %s, %v", what, err)
		}
		fresh := newBench(t)
		links, err := b.net.Links()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			if l.Kind != hostnet.Loopback && l.Up {
				fresh.plug(l.Name)
			}
		}
		fresh.snapshot(pairs(stored)...)
		if got, want := b.workloadsText(), fresh.workloadsText(); got != want {
			rt.Errorf("the network has\n%s\nwant\n%s", got, want)
		}
	})
}

func pairs(stored map[string]string) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(stored)) {
		out = append(out, k, stored[k])
	}
	return out
}

// plug makes an interface, or another one of the same name.
func (b *bench) plug(name string) {
	b.t.Helper()
	if err := b.net.DeleteLink(name); err != nil {
		b.t.Fatal(err)
	}
	b.link(name)
	b.act()
}

// restart returns another agent over the same kernel.
func (b *bench) restart() *bench {
	b.t.Helper()
	next := buildBench(b.t, b.net, b.nft)
	next.time, next.revision, next.fatalf = b.time, b.revision, b.fatalf
	return next
}

// aligned checks what must hold at any moment: an address of workloads is routed to one interface
// at most, this agent wires no interface that is the overlay's, and a pass does not ask for another
// at once.
func (b *bench) aligned(t *rapid.T) {
	if !b.next.After(b.time) {
		t.Fatalf("a pass wants another at once")
	}
	routes, err := b.net.Routes()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[netip.Prefix]bool{}
	for _, r := range routes {
		if r.Protocol != RouteProtocol {
			continue
		}
		if seen[r.Dst] {
			t.Fatalf("%s is routed twice", r.Dst)
		}
		seen[r.Dst] = true
		if _, wired := b.core.wiring.desired[r.Link]; wired && b.bound[r.Link] && b.metric("waiting") == 0 {
			t.Fatalf("the overlay's interface %s has our route to %s", r.Link, r.Dst)
		}
	}
}

// workloadsText returns the state of workloads' interfaces.
func (b *bench) workloadsText() string {
	b.t.Helper()
	text, err := hostnet.Text(b.net)
	if err != nil {
		b.t.Fatal(err)
	}
	proxies, err := b.net.Proxies()
	if err != nil {
		b.t.Fatal(err)
	}
	var lines []string
	for _, p := range proxies {
		if strings.HasPrefix(p.Link, "cali") {
			lines = append(lines, fmt.Sprint(p))
		}
	}
	for _, line := range strings.Split(text, "\n") {
		if strings.Contains(line, "link cali") && !strings.HasPrefix(line, "link ") || strings.HasPrefix(line, "route 10.0.1.1") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}
