package hostnet

import (
	"net/netip"
	"testing"
)

// TestGateway makes a link that carries addresses and attracts nothing, whatever kinds of link this
// kernel has.
func TestGateway(t *testing.T) {
	t.Parallel()
	n, _ := kernels(t)
	l := n.(*Linux)
	mac := MAC{2}
	made, err := l.AddGateway("gw", mac)
	must(t, err)
	if made.MAC != mac {
		t.Errorf("MAC %x, want %x", made.MAC, mac)
	}
	for range 2 { // the second finds all in place
		again, err := l.AddGateway("gw", mac)
		must(t, err)
		if again.Index != made.Index {
			t.Errorf("made anew: %+v, was %+v", again, made)
		}
		for _, a := range []string{"192.0.2.1/24", "2001:db8::1/64"} {
			must(t, l.AddAddressAlone("gw", netip.MustParsePrefix(a)))
		}
	}
	routes, err := l.Routes()
	must(t, err)
	for _, r := range routes {
		if !r.Dst.Addr().IsLinkLocalUnicast() {
			t.Errorf("a route to %s", r.Dst)
		}
	}
	for _, a := range []string{"192.0.2.1", "2001:db8::1"} {
		at, err := l.LinkWith(netip.MustParseAddr(a))
		must(t, err)
		if at.Name != "gw" {
			t.Errorf("%s is on %s", a, at.Name)
		}
	}
}
