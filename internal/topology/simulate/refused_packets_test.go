package simulate

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// options puts IPv4 options, whole words of them, behind the header of a frame.
func options(frame []byte, o ...byte) []byte {
	b := slices.Insert(slices.Clone(frame), 34, o...)
	b[14] += byte(len(o) / 4)
	b[17] += byte(len(o))
	b[24], b[25] = 0, 0
	sum := packet.Fold(packet.Sum(0, b[14:34+len(o)]))
	b[24], b[25] = byte(sum>>8), byte(sum)
	return b
}

// refused checks that a router drops a frame, for a reason that contains text.
func (l *lab) refused(t *testing.T, name, from string, frame []byte, text string) {
	t.Helper()
	d := l.send(from, frame)
	if d.Verdict != flow.Drop || d.Device != "r" || !strings.Contains(d.Reason, text) {
		t.Errorf("%s: want a drop at the router because of %q\n%s", name, text, walk(d))
	}
	if len(d.Emit) > 0 {
		t.Errorf("%s: answered\n%s", name, walk(d))
	}
}

// TestSourceRoutes: routers forward no packets that name their own way, which their flows do not
// tell from others; networks do.
func TestSourceRoutes(t *testing.T) {
	l := example()
	toZ := frameSpec{n: 2, to: 2, src: ipY, dst: ipZ}.udp(1000, 53)
	if d := l.send("p-y", toZ); d.Verdict != flow.Forward || !d.Cacheable {
		t.Errorf("without options\n%s", walk(d))
	}
	if d := l.send("p-y", options(toZ, 0x94, 4, 0, 0)); d.Verdict != flow.Forward || !d.Cacheable {
		t.Errorf("with a router alert\n%s", walk(d))
	}
	hop := ipX.As4()
	route := append([]byte{7, 4}, hop[:]...)
	for name, c := range map[string]struct {
		option []byte
		text   string
	}{
		"loose source route":  {slices.Concat([]byte{131}, route, []byte{0}), packet.SourceRouteOption},
		"strict source route": {slices.Concat([]byte{1, 137}, route), packet.SourceRouteOption},
		"broken option":       {[]byte{7, 1, 0, 0}, packet.BadIPv4Option},
	} {
		c.option = append(c.option, make([]byte, -len(c.option)&3)...)
		frame := options(toZ, c.option...)
		l.refused(t, name, "p-y", frame, c.text)
		if d := l.send("p-y", frame); d.Cacheable {
			t.Errorf("%s: cacheable, for packets without options too", name)
		}
		ping := options(frameSpec{n: 2, to: 2, src: ipY, dst: r2.at.Addr()}.echo(packet.ICMPEchoRequest, 7), c.option...)
		l.refused(t, name+" to the router", "p-y", ping, c.text)
		stranger := mac(9)
		copy(ping, stranger[:]) // to a machine that is not known: flooded
		l.station("y2", "net2", 8, addr(99))
		expect(t, l.send("p-y", ping), flow.Forward, "p-y2")
	}
}

// TestMartians: routers forward nothing from or to the addresses of RFC 1812 §5.3.7.
func TestMartians(t *testing.T) {
	l := example()
	for _, a := range []string{"0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.5", "240.0.0.1", "255.255.255.254", "255.255.255.255"} {
		martian := netip.MustParseAddr(a)
		l.refused(t, "to "+a, "p-y", frameSpec{n: 2, to: 2, src: ipY, dst: martian}.udp(1000, 53), "the router takes no packets from")
		l.refused(t, "from "+a, "p-y", frameSpec{n: 2, to: 2, src: martian, dst: ipZ}.udp(1000, 53), "the router takes no packets from")
	}
	for _, a := range []string{"1.0.0.1", "223.255.255.254", "192.88.99.1", "100.64.0.1"} {
		d := l.send("p-y", frameSpec{n: 2, to: 2, src: ipY, dst: netip.MustParseAddr(a)}.udp(1000, 53))
		if strings.Contains(d.Reason, "the router takes no packets") {
			t.Errorf("to %s\n%s", a, walk(d))
		}
	}
}
