package hostnet

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"
)

// two are two networks that can be joined by veth pairs: this host's and that of a machine.
type two func(t *testing.T) (host, machine Net)

func fakes(t *testing.T) (Net, Net) {
	host := NewFake(nil)
	return host, NewFake(host)
}

func kernels(t *testing.T) (Net, Net) {
	return kernel(t), kernel(t)
}

func kernel(t *testing.T) *Linux {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to make network namespaces")
	}
	ns, err := NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewLinux(ns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); ns.Close() })
	return l
}

// TestContract runs one body over the fake and the kernel.
func TestContract(t *testing.T) {
	for name, open := range map[string]two{"fake": fakes, "kernel": kernels} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for what, body := range map[string]func(*testing.T, Net, Net){
				"links": links, "refusals": refusals, "addresses": addresses, "routes": routes, "neighbours": neighbours,
				"watch": watch, "kinds": kinds, "settings": kernelSettings, "proxies": proxies, "forwards": forwards, "protocols": protocols,
			} {
				t.Run(what, func(t *testing.T) {
					t.Parallel()
					host, machine := open(t)
					body(t, host, machine)
				})
			}
		})
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got error %v, want %v", what, err, want)
	}
}

func wantText(t *testing.T, n Net, want string) {
	t.Helper()
	got, err := Text(n)
	must(t, err)
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// join makes a veth pair a (host, 192.0.2.1/24) and b (machine, 192.0.2.2/24) and sets all up.
func join(t *testing.T, host, machine Net) {
	t.Helper()
	_, err := host.AddLink(LinkSpec{Name: "a", Kind: Veth, Peer: "b", PeerNet: machine})
	must(t, err, host.SetUp("a", true), machine.SetUp("b", true),
		host.AddAddress("a", netip.MustParsePrefix("192.0.2.1/24")), machine.AddAddress("b", netip.MustParsePrefix("192.0.2.2/24")))
}

func links(t *testing.T, host, machine Net) {
	l, err := host.AddLink(LinkSpec{Name: "a", Kind: Veth, Peer: "b", PeerNet: machine, MTU: 1400})
	must(t, err)
	if !l.Elsewhere {
		t.Errorf("the other end is in another namespace, but %+v", l)
	}
	must(t, host.Silence("a"))
	if l.Kind != Veth || l.Name != "a" || l.MTU != 1400 || l.Up || l.Running || l.Index == 0 || l.MAC == (MAC{}) {
		t.Errorf("made %+v", l)
	}
	wantText(t, host, "link a veth down mtu 1400\n")
	wantText(t, machine, "link b veth down mtu 1400\n")
	must(t, host.SetUp("a", true))
	wantText(t, host, "link a veth up mtu 1400\n")
	must(t, machine.SetUp("b", true), host.SetMTU("a", 1300), host.SetUp("a", true))
	wantText(t, host, "link a veth running mtu 1300\n")
	must(t, machine.SetUp("b", false))
	wantText(t, host, "link a veth up mtu 1300\n")
	must(t, machine.DeleteLink("b"), host.DeleteLink("a"))
	wantText(t, host, "")
	wantText(t, machine, "")
}

func refusals(t *testing.T, host, machine Net) {
	_, err := host.AddLink(LinkSpec{Name: "a", Kind: Veth, Peer: "b", PeerNet: machine})
	must(t, err)
	_, err = host.AddLink(LinkSpec{Name: "a", Kind: Bridge})
	wantErr(t, "a name twice", err, ErrExists)
	_, err = host.AddLink(LinkSpec{Name: "a", Kind: Tap})
	wantErr(t, "a tap's name twice", err, ErrExists)
	_, err = host.AddLink(LinkSpec{Name: "c", Kind: Veth, Peer: "b", PeerNet: machine})
	wantErr(t, "a peer's name twice", err, ErrExists)
	_, err = host.AddLink(LinkSpec{Name: "c", Kind: "unheard"})
	wantErr(t, "an unknown kind", err, ErrInvalid)
	_, err = host.Link("c")
	wantErr(t, "a link that is not there", err, ErrNotFound)
	wantErr(t, "up", host.SetUp("c", true), ErrNotFound)
	wantErr(t, "silence", host.Silence("c"), ErrNotFound)
	wantErr(t, "mtu", host.SetMTU("c", 1500), ErrNotFound)
	wantErr(t, "mtu", host.SetMTU("a", 20), ErrInvalid)
	wantErr(t, "address", host.AddAddress("c", netip.MustParsePrefix("192.0.2.1/24")), ErrNotFound)
	wantErr(t, "probe", host.Probe("c", netip.MustParseAddr("192.0.2.1")), ErrNotFound)
	_, err = host.Addresses("c")
	wantErr(t, "addresses", err, ErrNotFound)
	must(t, host.DeleteLink("c"), host.DeleteAddress("c", netip.MustParsePrefix("192.0.2.1/24")), host.DeleteRoute(netip.MustParsePrefix("192.0.2.0/24")),
		host.DeleteNeighbour("c", netip.MustParseAddr("192.0.2.1")), host.DeleteNeighbour("a", netip.MustParseAddr("192.0.2.1")),
		host.DeleteAddress("a", netip.MustParsePrefix("192.0.2.1/24")))
}

func addresses(t *testing.T, host, machine Net) {
	join(t, host, machine)
	must(t, host.AddAddress("a", netip.MustParsePrefix("192.0.2.1/24")), host.AddAddress("a", netip.MustParsePrefix("2001:db8::1/64")))
	wantText(t, host, `link a veth running mtu 1500
  address 192.0.2.1/24
  address 2001:db8::1/64
route 192.0.2.0/24 link a kernel
route 2001:db8::/64 link a kernel
`)
	of, err := host.Addresses("a")
	must(t, err)
	if want := []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("2001:db8::1/64")}; !slices.Equal(of, want) {
		t.Errorf("addresses of a are %v, want %v", of, want)
	}
	l, err := host.LinkWith(netip.MustParseAddr("192.0.2.1"))
	must(t, err)
	if l.Name != "a" {
		t.Errorf("the address is on %+v", l)
	}
	_, err = host.LinkWith(netip.MustParseAddr("192.0.2.2"))
	wantErr(t, "the machine's address", err, ErrNotFound)
	must(t, host.DeleteAddress("a", netip.MustParsePrefix("192.0.2.1/24")), host.DeleteAddress("a", netip.MustParsePrefix("192.0.2.1/24")))
	wantText(t, host, `link a veth running mtu 1500
  address 2001:db8::1/64
route 2001:db8::/64 link a kernel
`)
}

func routes(t *testing.T, host, machine Net) {
	join(t, host, machine)
	far := netip.MustParsePrefix("198.51.100.0/24")
	gw := netip.MustParseAddr("192.0.2.2")
	_, err := host.RouteTo(netip.MustParseAddr("198.51.100.7"))
	wantErr(t, "no route", err, ErrNotFound)
	wantErr(t, "a gateway nowhere", host.SetRoute(Route{Dst: far, Gateway: netip.MustParseAddr("203.0.113.1")}), ErrUnreachable)
	wantErr(t, "a link that is not there", host.SetRoute(Route{Dst: far, Link: "zz"}), ErrNotFound)
	must(t, host.SetRoute(Route{Dst: far, Gateway: gw}), host.SetRoute(Route{Dst: far, Gateway: gw, MTU: 1400}))
	wantText(t, host, `link a veth running mtu 1500
  address 192.0.2.1/24
route 192.0.2.0/24 link a kernel
route 198.51.100.0/24 via 192.0.2.2 link a mtu 1400
`)
	h, err := host.RouteTo(netip.MustParseAddr("198.51.100.7"))
	must(t, err)
	if h.Link.Name != "a" || h.NextHop != gw || h.Source != netip.MustParseAddr("192.0.2.1") || h.MTU != 1400 || h.Local {
		t.Errorf("by the gateway: %+v", h)
	}
	links, err := host.LinksTo(netip.MustParseAddr("198.51.100.7"))
	if err != nil || len(links) != 1 || links[0].Index != h.Link.Index {
		t.Errorf("links %+v, %v; want that of %+v", links, err, h)
	}
	h, err = host.RouteTo(gw)
	must(t, err)
	if h.Link.Name != "a" || h.NextHop != gw || h.MTU != 1500 {
		t.Errorf("on the link: %+v", h)
	}
	h, err = host.RouteTo(netip.MustParseAddr("192.0.2.1"))
	must(t, err)
	if !h.Local {
		t.Errorf("own address: %+v", h)
	}
	must(t, host.DeleteRoute(far))
	_, err = host.RouteTo(netip.MustParseAddr("198.51.100.7"))
	wantErr(t, "after deletion", err, ErrNotFound)
	must(t, host.SetRoute(Route{Dst: far, Link: "a"}), host.SetUp("a", false))
	wantText(t, host, "link a veth down mtu 1500\n  address 192.0.2.1/24\n")
}

func neighbours(t *testing.T, host, machine Net) {
	join(t, host, machine)
	events, err := host.Watch(t.Context())
	must(t, err)
	b, err := machine.Link("b")
	must(t, err, host.Probe("a", netip.MustParseAddr("192.0.2.2")))
	e := await(t, events, func(e Event) bool { return e.Kind == NeighbourSet && e.Neighbour.Usable() })
	if e.Neighbour.MAC != b.MAC || e.Neighbour.IP != netip.MustParseAddr("192.0.2.2") {
		t.Errorf("told %+v, the machine has %x", e, b.MAC)
	}
	must(t, host.Probe("a", netip.MustParseAddr("192.0.2.2")))
	must(t, host.SetNeighbour("a", netip.MustParseAddr("192.0.2.9"), MAC{2, 0, 0, 0, 0, 9}))
	list, err := host.Neighbours()
	must(t, err)
	if len(list) != 2 || list[1].MAC != (MAC{2, 0, 0, 0, 0, 9}) || list[1].State != Reachable || list[0].Link != "a" {
		t.Errorf("neighbours %+v", list)
	}
	must(t, host.DeleteNeighbour("a", netip.MustParseAddr("192.0.2.9")))
	await(t, events, func(e Event) bool {
		return e.Neighbour.IP == netip.MustParseAddr("192.0.2.9") && (e.Kind == NeighbourGone || !e.Neighbour.Usable())
	})
}

func watch(t *testing.T, host, machine Net) {
	events, err := host.Watch(t.Context())
	must(t, err)
	join(t, host, machine)
	awaitAll(t, events, map[string]func(Event) bool{
		"made": func(e Event) bool { return e.Kind == LinkSet && e.Link.Name == "a" && !e.Link.Up },
		"up":   func(e Event) bool { return e.Kind == LinkSet && e.Link.Name == "a" && e.Link.Running },
		"address": func(e Event) bool {
			return e.Kind == AddressChanged && e.Address == netip.MustParsePrefix("192.0.2.1/24")
		},
		"route": func(e Event) bool {
			return e.Kind == RouteChanged && e.Route.Dst == netip.MustParsePrefix("192.0.2.0/24")
		},
	})
	must(t, host.SetMTU("a", 1400))
	await(t, events, func(e Event) bool { return e.Kind == LinkSet && e.Link.MTU == 1400 })
	must(t, machine.DeleteLink("b"))
	await(t, events, func(e Event) bool { return e.Kind == LinkGone && e.Link.Name == "a" })
}

func kinds(t *testing.T, host, _ Net) {
	for _, spec := range []LinkSpec{{Name: "t", Kind: Tap}, {Name: "v", Kind: VXLAN, Port: 6677}, {Name: "br", Kind: Bridge}} {
		l, err := host.AddLink(spec)
		must(t, err, host.SetUp(spec.Name, true))
		if l.Kind != spec.Kind {
			t.Errorf("made a %s, asked for %s", l.Kind, spec.Kind)
		}
	}
	if l, err := host.Link("t"); err != nil || l.Kind != Tap || !l.Up || l.Running {
		t.Errorf("a tap that nobody has open: %+v, %v", l, err)
	}
	both, err := host.AddLink(LinkSpec{Name: "p", Kind: Veth, Peer: "q"})
	must(t, err)
	if both.Elsewhere {
		t.Errorf("both ends are here, but %+v", both)
	}
	must(t, host.DeleteLink("p"))
	all, err := host.Links()
	must(t, err)
	if len(all) != 4 || all[0].Kind != Loopback {
		t.Errorf("links %+v", all)
	}
}

// await reads events until one matches.
func await(t *testing.T, events <-chan Event, match func(Event) bool) Event {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		select {
		case e, ok := <-events:
			if !ok {
				t.Fatal("the watch has ended")
			}
			if match(e) {
				return e
			}
		case <-deadline:
			t.Fatal("no such event in 10 s")
		}
	}
}

// awaitAll reads events until each of the wanted ones was seen, in any order.
func awaitAll(t *testing.T, events <-chan Event, want map[string]func(Event) bool) {
	t.Helper()
	await(t, events, func(e Event) bool {
		for name, match := range want {
			if match(e) {
				delete(want, name)
			}
		}
		return len(want) == 0
	})
}

func TestWatchEnds(t *testing.T) {
	for name, open := range map[string]two{"fake": fakes, "kernel": kernels} {
		t.Run(name, func(t *testing.T) {
			host, _ := open(t)
			ctx, cancel := context.WithCancel(t.Context())
			events, err := host.Watch(ctx)
			must(t, err)
			cancel()
			deadline := time.After(10 * time.Second)
			for {
				select {
				case _, ok := <-events:
					if !ok {
						return
					}
				case <-deadline:
					t.Fatal("the channel of a watch that was stopped stays open")
				}
			}
		})
	}
}
