package netlab

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// A packet put on a wire is seen where it comes out: of another wire when it is forwarded, at the
// host itself when it is the host's. What is behind it on the wire says that it would have come by
// then.
func TestWiresAndHost(t *testing.T) {
	t.Parallel()
	r := newRouter(t)
	marks := 0
	send := func(dst netip.Addr) (forwarded, delivered bool) {
		t.Helper()
		marks++
		mark, behind := fmt.Appendf(nil, "packet %04d", marks), fmt.Appendf(nil, "behind %04d", marks)
		err := r.ns.OnOneCore(func() error {
			if err := r.left.Send(r.frame(udpPacket(r.client, dst, 40000, 53, mark))); err != nil {
				return err
			}
			if err := r.left.Send(r.probe(behind)); err != nil {
				return err
			}
			if _, err := r.inside.Until(behind, mark); err != nil {
				return err
			}
			if err := r.outside.Send(r.probe(behind)); err != nil {
				return err
			}
			var err error
			if forwarded, err = r.right.Until(behind, mark); err != nil {
				return err
			}
			delivered, err = r.host.Has(mark)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return forwarded, delivered
	}
	if forwarded, delivered := send(r.server); !forwarded || delivered {
		t.Errorf("a packet to the other side: forwarded %v, delivered here %v", forwarded, delivered)
	}
	if forwarded, delivered := send(r.own); forwarded || !delivered {
		t.Errorf("a packet to the router: forwarded %v, delivered here %v", forwarded, delivered)
	}
	r.rules(t, "add chain inet t n { type nat hook prerouting priority -100; }",
		"add chain inet t f { type filter hook forward priority 0; policy drop; }", "add rule inet t f ct state established accept")
	if forwarded, _ := send(r.server); forwarded {
		t.Error("a packet of no connection was forwarded, although only those of one may")
	}
	c := Connection{Protocol: 17, Src: netip.AddrPortFrom(r.client, 40000), Dst: netip.AddrPortFrom(r.server, 53)}
	if err := r.ns.Establish(c); err != nil {
		t.Fatal(err)
	}
	if forwarded, _ := send(r.server); !forwarded {
		t.Error("a packet of a tracked connection was not forwarded")
	}
	if err := r.ns.ForgetConnections(); err != nil {
		t.Fatal(err)
	}
	if forwarded, _ := send(r.server); forwarded {
		t.Error("a packet of a forgotten connection was forwarded")
	}
	c.Dst, c.Translated = netip.AddrPortFrom(netip.MustParseAddr("203.0.113.80"), 53), r.server
	if err := r.ns.Establish(c); err != nil {
		t.Fatal(err)
	}
	if forwarded, _ := send(c.Dst.Addr()); !forwarded {
		t.Error("a packet of a translated connection was not forwarded to where it is translated")
	}
}

// Connections of every kind are tracked as asked.
func TestEstablish(t *testing.T) {
	t.Parallel()
	ns := ForTest(t).MustNamespace(t, "host")
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	a6, b6 := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
	at := netip.AddrPortFrom
	for _, c := range []Connection{
		{Protocol: 6, Src: at(a, 1000), Dst: at(b, 80)}, {Protocol: 6, Src: at(a6, 1000), Dst: at(b6, 80)},
		{Protocol: 17, Src: at(a, 1000), Dst: at(b, 53)}, {Protocol: 1, Src: at(a, 8<<8), Dst: at(b, 7)},
		{Protocol: 58, Src: at(a6, 128<<8), Dst: at(b6, 7)}, {Protocol: 17, Src: at(a6, 1001), Dst: at(b6, 53), Translated: a6},
	} {
		if err := ns.Establish(c); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := ns.Establish(Connection{Protocol: 17, Src: at(a, 1000), Dst: at(b, 53)}); err == nil {
		t.Error("a connection was made twice")
	}
}

// router is a namespace with a wire on either side.
type router struct {
	ns                  *Namespace
	left, right         *Wire // of the machines
	inside, outside     *Wire // of the router's ends towards them
	host                *Host
	client, server, own netip.Addr
}

const routerMAC = "02:00:00:00:00:01"

func newRouter(t *testing.T) *router {
	t.Helper()
	l := ForTest(t)
	r := &router{ns: l.MustNamespace(t, "router"), client: netip.MustParseAddr("192.0.2.9"), server: netip.MustParseAddr("198.51.100.9"),
		own: netip.MustParseAddr("192.0.2.1")}
	far := l.MustNamespace(t, "far")
	l.MustVeth(t, r.ns, "in0", far, "p0")
	l.MustVeth(t, r.ns, "out0", far, "p1")
	if err := r.ns.Sysctl("net/ipv4/ip_forward", "1"); err != nil {
		t.Fatal(err)
	}
	r.ns.MustIP(t, "link set in0 address "+routerMAC, "addr add 192.0.2.1/24 dev in0", "addr add 198.51.100.1/24 dev out0",
		"neigh add 198.51.100.9 lladdr 02:00:00:00:00:09 dev out0 nud permanent")
	var err error
	for _, w := range []struct {
		to   **Wire
		ns   *Namespace
		name string
	}{{&r.left, far, "p0"}, {&r.right, far, "p1"}, {&r.inside, r.ns, "in0"}, {&r.outside, r.ns, "out0"}} {
		if *w.to, err = w.ns.Wire(w.name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup((*w.to).Close)
	}
	if r.host, err = r.ns.Host(17, false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.host.Close)
	return r
}

// rules loads nftables rules into a table t of the router.
func (r *router) rules(t *testing.T, lines ...string) {
	t.Helper()
	script := append([]string{"add table inet t"}, lines...)
	if out, err := r.ns.Output(context.Background(), "nft", strings.Join(script, "\n")); err != nil {
		t.Fatalf("nft: %v\n%s", err, out)
	}
}

// frame is a packet on its way to the router.
func (r *router) frame(packet []byte) []byte {
	return append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0}, packet...)
}

// probe is a frame of no protocol that the kernel knows.
func (r *router) probe(mark []byte) []byte {
	return append(append([]byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5}, mark...), make([]byte, 60)...)
}

// udpPacket is a UDP datagram over IPv4, without a UDP checksum.
func udpPacket(src, dst netip.Addr, sport, dport uint16, payload []byte) []byte {
	b := []byte{0x45, 0, 0, 0, 0, 1, 0, 0, 64, 17, 0, 0}
	b = append(append(b, src.AsSlice()...), dst.AsSlice()...)
	binary.BigEndian.PutUint16(b[2:], uint16(28+len(payload)))
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	binary.BigEndian.PutUint16(b[10:], ^uint16(sum+sum>>16))
	b = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(b, sport), dport)
	b = binary.BigEndian.AppendUint16(b, uint16(8+len(payload)))
	return append(append(b, 0, 0), payload...)
}
