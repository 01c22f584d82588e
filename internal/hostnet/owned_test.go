package hostnet

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"
)

func owned(dst string, paths ...Path) OwnedRoute {
	return OwnedRoute{Dst: netip.MustParsePrefix(dst), Paths: paths}
}

// wantOwned compares an owner's routes, whatever their order.
func wantOwned(t *testing.T, l *Linux, o Owner, want ...OwnedRoute) {
	t.Helper()
	got, err := l.OwnedRoutes(o)
	must(t, err)
	same := len(got) == len(want)
	for _, w := range want {
		same = same && slices.ContainsFunc(got, w.Equal)
	}
	if !same {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestOwnedRoutes: an owner's routes are set, replaced and deleted in one step each, beside those
// of others.
func TestOwnedRoutes(t *testing.T) {
	t.Parallel()
	l := kernel(t)
	o := Owner{Protocol: ProtocolBGP, Metric: 77}
	_, err := l.AddLink(LinkSpec{Name: "a", Kind: Veth, Peer: "b"})
	must(t, err, l.SetUp("lo", true), l.SetUp("a", true), l.SetUp("b", true))
	for link, addresses := range map[string][]string{"a": {"192.0.2.1/24", "2001:db8::1/64"}, "b": {"198.51.100.1/24", "2001:db8:1::1/64"}} {
		for _, a := range addresses {
			must(t, l.AddAddress(link, netip.MustParsePrefix(a)))
		}
	}
	viaA, viaB := Path{Gateway: netip.MustParseAddr("192.0.2.9"), Link: "a"}, Path{Gateway: netip.MustParseAddr("198.51.100.9"), Link: "b"}
	viaA6, viaB6 := Path{Gateway: netip.MustParseAddr("2001:db8::9"), Link: "a"}, Path{Gateway: netip.MustParseAddr("2001:db8:1::9"), Link: "b"}
	far := Path{Gateway: netip.MustParseAddr("203.0.113.9"), Link: "a", OnLink: true}

	// Somebody else's route to the same destination stays what it is throughout.
	others := Route{Dst: netip.MustParsePrefix("10.1.0.0/26"), Gateway: netip.MustParseAddr("192.0.2.200"), Link: "a"}
	must(t, l.SetRoute(others))

	for _, step := range [][]OwnedRoute{
		{owned("10.1.0.0/26", viaA), owned("fd00:1::/122", viaA6)},
		{owned("10.1.0.0/26", viaA, viaB), owned("fd00:1::/122", viaA6, viaB6)},
		{owned("10.1.0.0/26", viaB), owned("fd00:1::/122", viaB6)},
		{owned("10.1.0.0/26", far), owned("fd00:1::/122", viaB6)},
		{owned("10.1.0.0/26"), owned("fd00:1::/122")},
		{owned("10.1.0.0/26", viaA), owned("fd00:1::/122", viaA6)},
	} {
		for _, r := range step {
			must(t, l.SetOwned(o, r), l.SetOwned(o, r))
		}
		wantOwned(t, l, o, step...)
	}
	wantOwned(t, l, Owner{Protocol: ProtocolBGP, Metric: 78})
	must(t, l.SetOwned(o, owned("10.1.0.0/26", viaA, viaB)), l.SetOwned(o, owned("fd00:1::/122", viaA6, viaB6)))
	for range 2 {
		must(t, l.DeleteOwned(o, netip.MustParsePrefix("10.1.0.0/26")), l.DeleteOwned(o, netip.MustParsePrefix("fd00:1::/122")))
		wantOwned(t, l, o)
	}
	routes, err := l.Routes()
	must(t, err)
	if !slices.ContainsFunc(routes, func(r Route) bool { return r.Dst == others.Dst && r.Gateway == others.Gateway }) {
		t.Errorf("the other's route is gone: %v", routes)
	}

	wantErr(t, "a link that is not there", l.SetOwned(o, owned("10.2.0.0/26", Path{Gateway: viaA.Gateway, Link: "x"})), ErrNotFound)
	wantErr(t, "a gateway that is not on the link", l.SetOwned(o, owned("10.2.0.0/26", Path{Gateway: viaB.Gateway, Link: "a"})), ErrUnreachable)
	must(t, l.SetUp("a", false))
	wantErr(t, "a link that is down", l.SetOwned(o, owned("10.2.0.0/26", viaA)), ErrUnreachable)
}

// TestWatchTable: changes of routes come with protocol and metric, those of links by name.
func TestWatchTable(t *testing.T) {
	t.Parallel()
	l := kernel(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	events, err := l.WatchTable(ctx)
	must(t, err)
	if e := <-events; !e.Lost {
		t.Errorf("the first event is %+v, want Lost", e)
	}
	await := func(what string, match func(TableEvent) bool) {
		t.Helper()
		for {
			select {
			case e := <-events:
				if match(e) {
					return
				}
			case <-ctx.Done():
				t.Fatalf("not told: %s", what)
			}
		}
	}
	_, err = l.AddLink(LinkSpec{Name: "a", Kind: Veth, Peer: "b"})
	must(t, err, l.SetUp("a", true), l.SetUp("b", true), l.AddAddress("a", netip.MustParsePrefix("192.0.2.1/24")))
	await("link a", func(e TableEvent) bool { return e.Link == "a" && !e.Up && !e.Removed })
	await("link a up", func(e TableEvent) bool { return e.Link == "a" && e.Up })
	o := Owner{Protocol: ProtocolBGP, Metric: 77}
	r := owned("10.1.0.0/26", Path{Gateway: netip.MustParseAddr("192.0.2.9"), Link: "a"})
	mine := func(removed bool) func(TableEvent) bool {
		return func(e TableEvent) bool {
			return e.Route.Dst == r.Dst && e.Route.Protocol == ProtocolBGP && e.Metric == 77 && e.Removed == removed
		}
	}
	must(t, l.SetOwned(o, r))
	await("route set", mine(false))
	all, err := l.Table()
	must(t, err)
	if !slices.ContainsFunc(all, mine(false)) {
		t.Errorf("the table has no %v: %v", r, all)
	}
	must(t, l.DeleteOwned(o, r.Dst))
	await("route removed", mine(true))
	must(t, l.DeleteLink("a"))
	await("link gone", func(e TableEvent) bool { return e.Link == "a" && e.Removed })
	cancel()
	for range events {
	}
}
