package hostnet

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

// TestCard: what the kernel tells of an interface beside its addresses: whose port it is, how fast,
// which addresses end.
func TestCard(t *testing.T) {
	t.Parallel()
	n := kernel(t)
	if _, err := n.AddLink(LinkSpec{Name: "br0", Kind: Bridge}); err != nil {
		t.Fatal(err)
	}
	if _, err := n.AddLink(LinkSpec{Name: "eth0", Kind: Veth, Peer: "peer0"}); err != nil {
		t.Fatal(err)
	}
	bridge, err := n.handle.LinkByName("br0")
	if err != nil {
		t.Fatal(err)
	}
	eth, err := n.handle.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.handle.LinkSetMaster(eth, bridge); err != nil {
		t.Fatal(err)
	}
	if l, err := n.Link("eth0"); err != nil || l.Master != bridge.Attrs().Index {
		t.Errorf("%+v, %v: want the bridge %d as master", l, err, bridge.Attrs().Index)
	}
	stays, ends := netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("198.51.100.1/24")
	if err := n.AddAddress("br0", stays); err != nil {
		t.Fatal(err)
	}
	if err := n.handle.AddrAdd(bridge, &netlink.Addr{IPNet: ipNet(ends), ValidLft: 3600, PreferedLft: 1800}); err != nil {
		t.Fatal(err)
	}
	leased, err := n.Leased()
	if diff := cmp.Diff(map[int][]netip.Prefix{bridge.Attrs().Index: {ends}}, leased, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	speeds, err := n.Speeds("eth0", "none")
	if diff := cmp.Diff(map[string]Speed{"eth0": {10000, true}}, speeds); err != nil || diff != "" { // what a veth says
		t.Errorf("%v\n%s", err, diff)
	}
	driver, on, err := n.Offloads("eth0")
	if driver != "veth" || !on["tx-udp_tnl-segmentation"] || on["no-such-feature"] || err != nil {
		t.Errorf("driver %q with %v, %v", driver, on, err)
	}
	if driver, on, err := n.Offloads("none"); driver != "" || len(on) > 0 || err != nil {
		t.Errorf("of no link: driver %q with %v, %v", driver, on, err)
	}
}
