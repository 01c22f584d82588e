package overlay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"heddle/internal/hostnet"
	"heddle/internal/netlab"
	"heddle/internal/overlay/datapath"
	"heddle/internal/overlay/hostkey"
	"heddle/internal/overlay/wireguard"
	"heddle/internal/store"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

const reasonClear = "tunnelled in the clear though encrypted, or the other way round"

// encrypted makes a lab whose hosts encrypt.
func encrypted(t *testing.T, hosts int) *lab {
	t.Helper()
	l := newLab(t, hosts)
	for _, h := range l.hosts {
		h.options.Encryption = Encrypt
	}
	return l
}

// reader reads what one host sends to the underlay.
type reader struct{ clear, cipher *netlab.Wire }

// read begins to read.
func (l *lab) read(h *testHost) *reader {
	l.t.Helper()
	open := func() *netlab.Wire {
		w, err := l.wire.Wire(h.name)
		if err != nil {
			l.t.Fatal(err)
		}
		l.t.Cleanup(func() { w.Close() })
		return w
	}
	return &reader{clear: open(), cipher: open()}
}

// ports are those of a datagram between two WireGuard devices.
func ports(n uint16) []byte { return []byte{byte(n >> 8), byte(n), byte(n >> 8), byte(n)} }

// saw ends reading: the payload of tests in the clear, and datagrams of WireGuard.
func (r *reader) saw(h *testHost) (clear, cipher bool) {
	t := h.lab.t
	t.Helper()
	const mark = "the end of what is read"
	if err := h.ns.Do(func() error {
		other := h.lab.hosts[0]
		if other == h {
			other = h.lab.hosts[1]
		}
		c, err := net.Dial("udp4", netip.AddrPortFrom(other.ip, 9).String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte(mark))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	clear, err := r.clear.Until([]byte(mark), []byte("heddle-heddle-"))
	if err != nil {
		t.Fatal(err)
	}
	cipher, err = r.cipher.Until([]byte(mark), ports(wireguard.Port))
	if err != nil {
		t.Fatal(err)
	}
	return clear, cipher
}

// connected connects to a machine, which echoes what comes.
func (m *machine) connected(to *machine) net.Conn {
	t := m.lab.t
	t.Helper()
	to.listen("tcp", 80)
	c, err := m.dial(to.v4, 80, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestEncrypted: what a machine sends to one on another host cannot be read on the underlay: small
// and large packets, TCP that the kernel cuts, what the workload's own tunnels and virtual machines
// send.
func TestEncrypted(t *testing.T) {
	t.Parallel()
	l := encrypted(t, 2)
	n := l.network("blue")
	open := l.group(everything()...)
	l.start()
	h1, h2 := l.hosts[0], l.hosts[1]
	a, b := n.machine(h1, open), n.machine(h2, open)
	from1, from2 := l.read(h1), l.read(h2)
	if err := errors.Join(a.ping(b.v4, 3), a.ping(b.v6, 3), b.ping(a.v4, 3)); err != nil {
		t.Fatal(err)
	}
	c := a.connected(b)
	if err := exchange(c, 1<<20, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	for h, r := range map[*testHost]*reader{h1: from1, h2: from2} {
		if clear, cipher := r.saw(h); clear || !cipher {
			t.Errorf("%s sent in the clear: %v, encrypted: %v", h.name, clear, cipher)
		}
		if mtu := h.agent.underlay.MTU(); mtu != 1500-wireguard.Overhead {
			t.Errorf("%s tells an MTU of %d", h.name, mtu)
		}
		if n := h.agent.keys.crypt.count(); n != 1 {
			t.Errorf("%s encrypts to %d hosts, want 1", h.name, n)
		}
		device, err := h.agent.keys.crypt.device.Find()
		if err != nil {
			t.Fatal(err)
		}
		place := map[bool]string{true: "in the kernel", false: "in a process"}[device.Kind == hostnet.WireGuard]
		if log := h.log.String(); !strings.Contains(log, "encrypting "+place) {
			t.Errorf("%s encrypts %s; its log:\n%s", h.name, place, log)
		}
		t.Logf("%s encrypts %s, by a device of kind %q", h.name, place, device.Kind)
	}
	// The largest packet that the network carries, and one byte more.
	size := 1500 - wireguard.Overhead - datapath.Overhead - 28
	for by, want := range map[int]bool{0: true, 1: false} {
		_, err := a.Output(t.Context(), "ping", "-n", "-c", "1", "-W", "5", "-M", "do", "-s", strconv.Itoa(size+by), b.v4.String())
		if (err == nil) != want {
			t.Errorf("a ping of %d bytes: %v", size+by, err)
		}
	}
}

// TestEncryptedForgery: from a host that encrypts nothing is believed in the clear, even with the
// right secret, and nothing by whoever has another key.
func TestEncryptedForgery(t *testing.T) {
	t.Parallel()
	l := encrypted(t, 2)
	n := l.network("blue")
	open := l.group(everything()...)
	l.start()
	h1, h2 := l.hosts[0], l.hosts[1]
	a, b := n.machine(h1, open), n.machine(h2, open)
	if err := a.ping(b.v4, 3); err != nil {
		t.Fatal(err)
	}
	inbox := b.inbox()
	secret := h1.agent.dp.Peers()[h2.ip].Send
	wire := l.stranger("reader", "198.51.100.66")
	frame := vxlan(secret, uint32(b.port.TunnelKey), b.inner("forged"))
	if err := sendFrom(wire, h1.ip, h2.ip, frame); err != nil {
		t.Fatal(err)
	}
	l.wait("the frame in the clear to be dropped", func() bool { return h2.kernelDrops(reasonClear) == 1 })

	// A device of somebody else's, with the host's address inside.
	stranger := wireguard.Key{1, 2, 3}
	if err := h1.agent.keys.crypt.device.SetPrivate(stranger); err != nil {
		t.Fatal(err)
	}
	if a.answers(b.v4) {
		t.Error("a host with another key was answered")
	}
	if err := h1.agent.keys.crypt.device.SetPrivate(h1.agent.keys.crypt.private); err != nil {
		t.Fatal(err)
	}
	l.wait("its own key to be believed", func() bool { return a.answers(b.v4) })
	if err := a.Do(func() error { return sendUDP(b.v4.String(), inboxPort) }); err != nil {
		t.Fatal(err)
	}
	if got := next(t, inbox); got != "heddle" {
		t.Errorf("%q came", got)
	}
}

// TestEncryptionKeyCopied: a host that publishes another's public key as its own does not take that
// one off the network.
func TestEncryptionKeyCopied(t *testing.T) {
	t.Parallel()
	l := encrypted(t, 3)
	n := l.network("blue")
	open := l.group(everything()...)
	l.start()
	h1, h2, h3 := l.hosts[0], l.hosts[1], l.hosts[2]
	a, b := n.machine(h1, open), n.machine(h2, open)
	if err := a.ping(b.v4, 3); err != nil {
		t.Fatal(err)
	}
	copied := *h3.agent.keys.public()
	copied.Wireguard, _ = h2.agent.keys.crypt.public()
	h3.stop()
	l.commit(publishes(t, &copied))
	l.wait("the copied key to be refused", func() bool { return strings.Contains(h1.log.String(), "it is the key of host "+h2.id) })
	if err := a.ping(b.v4, 3); err != nil {
		t.Error(err)
	}
	s, err := h1.agent.keys.crypt.device.State()
	if own, _ := h2.agent.keys.crypt.public(); err != nil || s.Peers[wireguard.Key(own)].Address != h2.ip {
		t.Errorf("the key belongs to %+v, %v", s.Peers, err)
	}
}

// publishes returns the writing of a host's tunnel keys.
func publishes(t testing.TB, keys *topology.TunnelKeys) store.Op {
	t.Helper()
	value, err := json.Marshal(keys)
	if err != nil {
		t.Fatal(err)
	}
	return store.Op{Key: schema.TunnelKeys.Key(keys.HostID), Value: value}
}

// impostors registers hosts without agents, which publish what publish says.
func (l *lab) impostors(n int, publish func(*topology.TunnelKeys)) (ids []string) {
	l.t.Helper()
	for range n {
		id := uuid.NewString()
		value, err := json.Marshal(&topology.Host{ID: id, Name: "impostor-" + id})
		if err != nil {
			l.t.Fatal(err)
		}
		ids = append(ids, id)
		l.ports++
		l.commit(store.Op{Key: schema.Hosts.Key(id), Value: value}, reports(l.t, id, absent(int(l.ports))))
	}
	l.impersonate(ids, publish)
	return ids
}

// impersonate has impostors publish something else.
func (l *lab) impersonate(ids []string, publish func(*topology.TunnelKeys)) {
	l.t.Helper()
	for _, id := range ids {
		keys := &topology.TunnelKeys{HostID: id, Keys: [][]byte{publicOf(bytes.Repeat([]byte{7}, 32))}, Boot: 1}
		publish(keys)
		l.commit(publishes(l.t, keys))
	}
}

// TestEncryptionKeyCopiedAcrossRestarts: a restart of the agent leaves a key with the host that has
// it, or with the older record if the device has gone; and a host that has lost its key so gets it
// back when the others no longer publish it.
func TestEncryptionKeyCopiedAcrossRestarts(t *testing.T) {
	t.Parallel()
	l := encrypted(t, 2)
	n := l.network("blue")
	open := l.group(everything()...)
	ownKey := func(k *topology.TunnelKeys) { k.Wireguard = publicOf([]byte(strings.ReplaceAll(k.HostID, "-", ""))) }
	older := l.impostors(2, ownKey)
	l.start()
	h1, h2 := l.hosts[0], l.hosts[1]
	a, b := n.machine(h1, open), n.machine(h2, open)
	copied, _ := h2.agent.keys.crypt.public()
	copyKey := func(k *topology.TunnelKeys) { k.Wireguard = copied }
	restart := func(withoutDevice bool) {
		t.Helper()
		h1.stop()
		if withoutDevice { // as after a reboot
			h1.ns.MustIP(t, "link delete "+wireguardName(h1.options.Datapath))
		}
		h1.start()
	}

	l.impersonate(older, copyKey)
	l.impostors(6, copyKey)
	if err := a.ping(b.v4, 3); err != nil {
		t.Fatal(err)
	}
	restart(false)
	l.wait("an answer after a restart", func() bool { return a.answers(b.v4) })
	l.impersonate(older, ownKey)
	restart(true) // frames are dropped until there is a device
	l.wait("an answer after a restart without the device", func() bool { return a.answers(b.v4) })

	l.impersonate(older, copyKey)
	restart(true)
	if a.answers(b.v4) {
		t.Fatal("a key counts as that of the host whose record is newer")
	}
	refused := fmt.Sprintf("no tunnels with host %s: its WireGuard key cannot be used: it is the key of host %s", h2.id, older[0])
	if faults := h1.agent.hostReport(false).Faults; !slices.Contains(faults, refused) {
		t.Errorf("the report has %q, want %q", faults, refused)
	}
	l.impersonate(older[:1], ownKey)
	l.commit(store.Op{Key: schema.Hosts.Key(older[1]), Delete: true})
	l.wait("the owner of the key to be reached again", func() bool { return a.answers(b.v4) })
	if faults := h1.agent.hostReport(false).Faults; slices.Contains(faults, refused) {
		t.Errorf("the report has %q still", faults)
	}
}

// TestEncryptionRotates changes the keys of both hosts under traffic.
func TestEncryptionRotates(t *testing.T) {
	t.Parallel()
	l := encrypted(t, 2)
	n := l.network("blue")
	open := l.group(everything()...)
	l.start()
	h1, h2 := l.hosts[0], l.hosts[1]
	a, b := n.machine(h1, open), n.machine(h2, open)
	c := a.connected(b)
	flow := func() {
		t.Helper()
		if err := exchange(c, 20000, 20*time.Second); err != nil {
			t.Error(err)
		}
	}
	flow()
	for i, h := range []*testHost{h1, h2, h1} {
		was, _ := h.agent.keys.crypt.public()
		other := l.hosts[(i+1)%2]
		h.rotate(flow, other)
		now, next := h.agent.keys.crypt.public()
		if bytes.Equal(was, now) || next != nil {
			t.Errorf("%s has its key still", h.name)
		}
		l.wait("the other host to know one key alone", func() bool {
			s, err := other.agent.keys.crypt.device.State()
			return err == nil && len(s.Peers) == 1 && s.Peers[wireguard.Key(now)].Carries
		})
		flow()
	}
}

// TestEncryptionBegins: hosts that have sent in the clear begin to encrypt one after the other, and
// end; packets under way are not lost but for those of the moment in which the first has ended and
// the second does not know yet.
func TestEncryptionBegins(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n := l.network("blue")
	open := l.group(everything()...)
	l.start()
	h1, h2 := l.hosts[0], l.hosts[1]
	a, b := n.machine(h1, open), n.machine(h2, open)
	if err := a.ping(b.v4, 3); err != nil {
		t.Fatal(err)
	}
	pings := a.pinging(b.v4)
	for _, h := range l.hosts {
		h.stop()
		h.options.Encryption = Encrypt
		h.start()
	}
	for _, h := range l.hosts {
		l.wait(h.name+" to encrypt", func() bool { return h.agent.keys.crypt.count() == 1 })
	}
	if answered, gaps := pings(); answered < 10 || len(gaps) > 0 {
		t.Errorf("%d pings answered while encryption began, lost %v", answered, gaps)
	}
	for _, h := range l.hosts { // the other way round, each accepts what is in the clear no longer
		h.agent.clock.ahead.Add(int64(hostkey.Settle))
		h.agent.keys.crypt.wake()
		l.wait(h.name+" to accept nothing in the clear", func() bool {
			p, _ := h.agent.dp.Peer(map[*testHost]*testHost{h1: h2, h2: h1}[h].ip)
			return p.Ways == datapath.Encrypted
		})
	}
	if err := a.ping(b.v4, 3); err != nil {
		t.Error(err)
	}
	h1.stop()
	h1.options.Encryption = NoEncryption
	h1.start()
	l.wait("packets in the clear again", func() bool { return a.answers(b.v4) && b.answers(a.v4) })
}

// encryptsTo reports whether no frames to another host leave in the clear.
func (h *testHost) encryptsTo(other *testHost) bool {
	link, err := h.agent.keys.crypt.to(other.ip)
	return err != nil || link != 0
}

// TestEncryptionBesideForeignAddress: a host whose record has a tunnel address that no host can
// have does not keep the others from encrypting.
func TestEncryptionBesideForeignAddress(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	n := l.network("blue")
	open := l.group(everything()...)
	l.start()
	h1, h2, h3 := l.hosts[0], l.hosts[1], l.hosts[2]
	a, c := n.machine(h1, open), n.machine(h3, open)
	if err := a.ping(c.v4, 3); err != nil {
		t.Fatal(err)
	}
	keys := h2.agent.keys.public()
	keys.Wireguard = publicOf(bytes.Repeat([]byte{7}, 32))
	h2.stop()
	l.commit(reports(t, h2.id, netip.MustParseAddr("2001:db8::1")), publishes(t, keys))
	for _, h := range []*testHost{h1, h3} {
		h.stop()
		h.options.Encryption = Encrypt
		h.start()
	}
	l.wait("the other hosts to encrypt", func() bool { return h1.encryptsTo(h3) && h3.encryptsTo(h1) })
	l.wait("encrypted frames", func() bool {
		from := l.read(h1)
		if err := a.ping(c.v4, 3); err != nil {
			t.Error(err)
		}
		clear, cipher := from.saw(h1)
		if clear {
			t.Fatal("sent in the clear")
		}
		return cipher
	})
	if log := h1.log.String(); !strings.Contains(log, "ignoring a host's tunnel address") || !strings.Contains(log, "host=h2") {
		t.Error("the log does not name the host and its address")
	}
	if faults := h1.agent.hostReport(false).Faults; len(faults) != 1 || !strings.Contains(faults[0], "address 2001:db8::1, host h2") {
		t.Errorf("the report has %q", faults)
	}
}

// TestEncryptionPeerRejected: a host that the device does not take as a peer keeps no other one
// out, now or when keys change.
func TestEncryptionPeerRejected(t *testing.T) {
	t.Parallel()
	l := encrypted(t, 3)
	n := l.network("blue")
	open := l.group(everything()...)
	l.hosts[0].start()
	h1, h2, h3 := l.hosts[0], l.hosts[1], l.hosts[2]
	// No device takes a peer without an address; no record gets so far.
	h1.agent.keys.crypt.learn([]hostRecord{{host: "another", addrs: []netip.Addr{{}},
		keys: &topology.TunnelKeys{Wireguard: publicOf(bytes.Repeat([]byte{7}, 32))}}})
	h1.agent.keys.crypt.wake()
	l.wait("the log to name the host", func() bool {
		return strings.Contains(h1.log.String(), "the WireGuard device does not take a host") && strings.Contains(h1.log.String(), "host=another")
	})
	if faults := h1.agent.hostReport(false).Faults; len(faults) != 1 || !strings.Contains(faults[0], "no tunnels with host another") {
		t.Errorf("the report has %q", faults)
	}
	h2.start()
	h3.start()
	a, b, c := n.machine(h1, open), n.machine(h2, open), n.machine(h3, open)
	l.wait("answers of both", func() bool { return a.answers(b.v4) && a.answers(c.v4) }) // a first attempt to shake hands may be lost
	h1.rotate(func() {}, h2, h3)
	if err := errors.Join(a.ping(b.v4, 3), a.ping(c.v4, 3)); err != nil {
		t.Errorf("with another key: %v", err)
	}
	if log := h1.log.String(); strings.Contains(log, "cannot change the key") || strings.Contains(log, "cannot encrypt") {
		t.Error("a peer that was rejected counts as a fault of the device")
	}
}

// TestEncryptionWithoutDevice: where no device can be had, what has travelled in the clear does so
// for the minute that a switch to encryption may take, and no longer.
func TestEncryptionWithoutDevice(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n := l.network("blue")
	open := l.group(everything()...)
	l.start()
	h1, h2 := l.hosts[0], l.hosts[1]
	a, b := n.machine(h1, open), n.machine(h2, open)
	if err := a.ping(b.v4, 3); err != nil {
		t.Fatal(err)
	}
	for _, h := range l.hosts {
		h.stop()
		h.options.Encryption = Encrypt
	}
	device := wireguardName(h1.options.Datapath)
	h1.ns.MustIP(t, "link add "+device+" type bridge") // in its place
	for _, h := range l.hosts {
		h.start()
	}
	if err := a.ping(b.v4, 3); err != nil {
		t.Errorf("within the minute: %v", err)
	}
	if faults := h1.agent.hostReport(false).Faults; len(faults) != 1 || !strings.Contains(faults[0], "cannot encrypt: WireGuard device "+device) {
		t.Errorf("the report has %q", faults)
	}
	h1.agent.clock.ahead.Add(int64(hostkey.Settle))
	h1.agent.keys.crypt.wake()
	l.wait("the minute to end", func() bool { return h1.encryptsTo(h2) })
	l.wait("packets to be lost", func() bool { return !a.answers(b.v4) })
	from := l.read(h1)
	if a.answers(b.v4) {
		t.Error("packets are answered without a device")
	}
	if clear, _ := from.saw(h1); clear {
		t.Error("packets left in the clear")
	}
	h1.ns.MustIP(t, "link delete "+device)
	l.wait("packets to be encrypted", func() bool { return a.answers(b.v4) })
}

// TestEncryptionRequired: there is no way in the clear to a host that requires encryption.
func TestEncryptionRequired(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	n := l.network("blue")
	open := l.group(everything()...)
	l.hosts[0].options.Encryption = RequireEncryption
	l.hosts[1].options.Encryption = Encrypt
	l.start()
	a, b, c := n.machine(l.hosts[0], open), n.machine(l.hosts[1], open), n.machine(l.hosts[2], open)
	if err := errors.Join(a.ping(b.v4, 3), b.ping(c.v4, 3)); err != nil {
		t.Fatal(err)
	}
	from := l.read(l.hosts[0])
	if a.answers(c.v4) || c.answers(a.v4) {
		t.Error("a host that does not encrypt was answered")
	}
	if clear, _ := from.saw(l.hosts[0]); clear {
		t.Error("packets left in the clear")
	}
	l.wait("the log to say so", func() bool { return strings.Contains(l.hosts[0].log.String(), errNotEncrypted.Error()) })
}

// TestEncryptionOutlivesTheAgent: frames go on encrypted while no agent runs, the next agent takes
// the device over as it is, and where its process dies the agent has another one. A host that is
// removed is cut off.
func TestEncryptionOutlivesTheAgent(t *testing.T) {
	t.Parallel()
	l := encrypted(t, 3)
	n := l.network("blue")
	open := l.group(everything()...)
	l.start()
	h1, h2, h3 := l.hosts[0], l.hosts[1], l.hosts[2]
	a, b, c := n.machine(h1, open), n.machine(h2, open), n.machine(h3, open)
	if err := errors.Join(a.ping(b.v4, 3), a.ping(c.v4, 3)); err != nil {
		t.Fatal(err)
	}
	// A flow that the kernel knows: its id stays while the agent is away.
	if err := a.pingAs(77, b.v4, 3); err != nil {
		t.Fatal(err)
	}
	link, err := h1.agent.keys.crypt.device.Find()
	if err != nil {
		t.Fatal(err)
	}
	h1.stop()
	if err := a.pingAs(77, b.v4, 3); err != nil {
		t.Errorf("without the agent: %v", err)
	}
	h1.start()
	if now, err := h1.agent.keys.crypt.device.Find(); err != nil || now.Index != link.Index {
		t.Errorf("the next agent has device %+v, %v; want %d", now, err, link.Index)
	}
	if err := a.ping(b.v4, 3); err != nil {
		t.Error(err)
	}

	h1.ns.MustIP(t, "link delete "+link.Name) // as when its process dies
	l.wait("another device", func() bool {
		now, err := h1.agent.keys.crypt.device.Find()
		return err == nil && now.Index != link.Index && a.answers(b.v4)
	})

	l.commit(store.Op{Key: schema.Hosts.Key(h3.id), Delete: true})
	l.wait("the removed host to be no peer", func() bool {
		s, err := h1.agent.keys.crypt.device.State()
		return err == nil && len(s.Peers) == 1
	})
	if a.answers(c.v4) {
		t.Error("a removed host was answered")
	}
}

// TestEncryptionRotatesWithoutStore: a host changes to a key that the others know already, and
// cannot tell them. They notice.
func TestEncryptionRotatesWithoutStore(t *testing.T) {
	t.Parallel()
	l := newRemoteLab(t, 2)
	for _, h := range l.hosts {
		h.options.Encryption = Encrypt
	}
	n := l.network("blue")
	open := l.group(everything()...)
	l.start()
	h1, h2 := l.hosts[0], l.hosts[1]
	a, b := n.machine(h1, open), n.machine(h2, open)
	c := a.connected(b)
	if err := exchange(c, 20000, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	turn := func(d time.Duration) {
		h1.agent.clock.ahead.Add(int64(d))
		select {
		case h1.agent.keys.kick <- struct{}{}:
		default:
		}
	}
	turn(hostkey.Life)
	l.wait("the other host to know two keys", func() bool {
		turn(0)
		s, err := h2.agent.keys.crypt.device.State()
		return err == nil && len(s.Peers) == 2 && h1.agent.keys.published(h1.agent.replica.Snapshot())
	})
	l.server.stop()
	l.wait("the host to change to its new key", func() bool {
		turn(hostkey.Settle)
		_, next := h1.agent.keys.crypt.public()
		return next == nil
	})
	if err := exchange(c, 20000, 20*time.Second); err != nil {
		t.Error(err)
	}
	l.server.start()
	l.wait("the other host to know the new key alone", func() bool {
		s, err := h2.agent.keys.crypt.device.State()
		return err == nil && len(s.Peers) == 1
	})
	if err := exchange(c, 20000, 20*time.Second); err != nil {
		t.Error(err)
	}
}
