package datapath

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// TestForgedFrames lists tunnelled frames that no host of the virtual network would send. Nothing
// of them arrives, and nothing is handed on.
func TestForgedFrames(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	stranger, other := netip.MustParseAddr("198.51.100.77"), netip.MustParseAddr("198.51.100.3")
	if err := l.SetPeer(other, Peer{Send: 1, Accept: []uint32{0x77777777}, Ways: Plain}); err != nil {
		t.Fatal(err)
	}
	frame, state := udp4([]byte("in")), append(make([]byte, 14), 0, 1, 'x')
	for name, c := range map[string]struct {
		frame []byte
		drop  string
	}{
		"a stranger, right key":             {outerFrameOf(stranger, 0, testKey, frame), "tunnelled by an unknown host"},
		"a stranger, right key and secret":  {outerFrameOf(stranger, secretIn, testKey, frame), "tunnelled by an unknown host"},
		"a stranger's state message":        {outerFrameOf(stranger, secretIn, StateKey, state), "tunnelled by an unknown host"},
		"forged source, no secret":          {outerFrameOf(farIP, 0, testKey, frame), "wrong tunnel secret"},
		"forged source, first bit wrong":    {outerFrameOf(farIP, secretIn^1<<31, testKey, frame), "wrong tunnel secret"},
		"forged source, last bit wrong":     {outerFrameOf(farIP, secretIn^1, testKey, frame), "wrong tunnel secret"},
		"forged source, other way's secret": {outerFrameOf(farIP, secretOut, testKey, frame), "wrong tunnel secret"},
		"forged source, other pair's":       {outerFrameOf(farIP, 0x77777777, testKey, frame), "wrong tunnel secret"},
		"forged source of a state message":  {outerFrameOf(farIP, 5, StateKey, state), "wrong tunnel secret"},
		"unknown key, wrong secret":         {outerFrameOf(farIP, 5, 77, frame), "wrong tunnel secret"},
		"a host without port in the network": {outerFrameOf(other, 0x77777777, testKey, frame),
			"tunnelled by a host without port in the network"},
	} {
		before := l.counters().Drops
		verdict, out := l.tunnelled(c.frame)
		after := l.counters().Drops
		if verdict != tcxDrop || !bytes.Equal(out, c.frame) || after[c.drop] != before[c.drop]+1 {
			t.Errorf("%s: verdict %d, drops %v, before %v; want it dropped for %q", name, verdict, after, before, c.drop)
		}
	}
	if u := l.upcall(); u != nil {
		t.Errorf("a forged frame went up: %+v", u)
	}
	// What the kernel's vxlan device has unpacked without from_underlay goes nowhere either.
	if verdict, _ := l.run(l.programs.FromVxlan, frame); verdict != tcxDrop || l.counters().Drops["tunnelled and not from the underlay"] != 1 {
		t.Errorf("a frame of the vxlan device: verdict %d, drops %v", verdict, l.counters().Drops)
	}
}

// TestPeerChanges rotates a peer's secrets, removes it and gives its bit to another.
func TestPeerChanges(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	accepted := func(src netip.Addr, secret uint32) bool {
		verdict, _ := l.tunnelled(outerFrameOf(src, secret, testKey, udp4(nil)))
		return verdict == tcxRedirect
	}
	check := func(when string, src netip.Addr, secret uint32, want bool) {
		t.Helper()
		if got := accepted(src, secret); got != want {
			t.Errorf("%s: frame of %s with secret %#x accepted: %v, want %v", when, src, secret, got, want)
		}
	}
	if err := l.SetPeer(farIP, Peer{Send: 9, Accept: []uint32{1, 2, secretIn, 4}, Ways: Plain | Encrypted}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []uint32{1, 2, secretIn, 4} {
		check("while secrets change", farIP, s, true)
	}
	check("while secrets change", farIP, 3, false)
	frame := udp4(nil)
	l.install(Flow{Key: l.keyOf(frame), Out: Output{Tunnel: l.tunnel, TunnelKey: testKey}})
	if _, out := l.workload(frame); secretOf(out) != 9 {
		t.Errorf("sent with secret %#x, want 9", secretOf(out))
	}
	if err := l.SetPeer(farIP, Peer{Accept: []uint32{0}, Ways: Plain}); err != nil {
		t.Fatal(err)
	}
	check("a host without secrets", farIP, 0, true)
	check("a host without secrets", farIP, 1, false)

	if err := l.SetPeer(farIP, Peer{Accept: []uint32{0}, Ways: Encrypted}); err != nil {
		t.Fatal(err)
	}
	check("in the clear from a host that encrypts", farIP, 0, false)
	c, err := l.Counters()
	if err != nil || c.Drops["tunnelled in the clear though encrypted, or the other way round"] != 1 {
		t.Errorf("counted %v, %v; want one frame in the clear", c.Drops, err)
	}

	if err := errors.Join(l.RemovePeer(farIP), l.RemovePeer(farIP)); err != nil {
		t.Fatal(err)
	}
	check("after it was removed", farIP, 0, false)
	other := netip.MustParseAddr("198.51.100.9")
	if err := l.SetPeer(other, Peer{Accept: []uint32{7}, Ways: Plain}); err != nil {
		t.Fatal(err)
	}
	check("a new peer in its place", other, 7, false)
	l.SetSenders(l.out, map[netip.Addr]bool{other: true})
	check("once it has a port in the network", other, 7, true)
	l.AllowSender(l.out, other, false)
	check("once it has none any more", other, 7, false)

	for name, err := range map[string]error{
		"no address":       l.SetPeer(netip.Addr{}, Peer{Accept: []uint32{1}}),
		"no secret":        l.SetPeer(other, Peer{}),
		"too many secrets": l.SetPeer(other, Peer{Accept: make([]uint32, MaxSecrets+1)}),
	} {
		if err == nil || !strings.Contains(err.Error(), "peer") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPeersSurviveARestart keeps peers, secrets and senders over a restart of the agent.
func TestPeersSurviveARestart(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	d, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	l := labOf(t, d, PortOptions{})
	if err := errors.Join(l.SetPeer(farIP, Peer{Send: 5, Accept: []uint32{6, 7}, Ways: Plain, Wireguard: 77}), d.Close()); err != nil {
		t.Fatal(err)
	}
	again := openWith(t, opts)
	p := again.Peers()[farIP]
	if len(again.Peers()) != 1 || p.Send != 5 || p.Ways != Plain || p.Wireguard != 77 || !slices.Equal(p.Accept, []uint32{6, 7}) {
		t.Errorf("peers %+v", again.Peers())
	}
	l.Datapath = again
	for secret, want := range map[uint32]int{6: tcxRedirect, 7: tcxRedirect, 8: tcxDrop} {
		if verdict, _ := l.tunnelled(outerFrameOf(farIP, secret, testKey, udp4(nil))); verdict != want {
			t.Errorf("secret %d after a restart: verdict %d, want %d", secret, verdict, want)
		}
	}
}

// TestUnguardedUpgrade: what an agent that knew no peers left goes on being served until its
// successor knows them.
func TestUnguardedUpgrade(t *testing.T) {
	t.Parallel()
	opts := testOptions(t)
	d, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	labOf(t, d, PortOptions{})
	if err := errors.Join(d.RemovePeer(farIP), d.configure(func(c *bpfConfig) { c.Guarded = 0 }), d.Close()); err != nil {
		t.Fatal(err)
	}
	l := &lab{Datapath: openWith(t, opts), t: t}
	old := outerFrameOf(farIP, 0, testKey, udp4(nil))
	if verdict, _ := l.tunnelled(old); verdict != tcxRedirect {
		t.Errorf("before the peers are known: verdict %d, want redirect", verdict)
	}
	if err := l.Guard(); err != nil {
		t.Fatal(err)
	}
	if verdict, _ := l.tunnelled(old); verdict != tcxDrop {
		t.Errorf("once they are: verdict %d, want drop", verdict)
	}
}
