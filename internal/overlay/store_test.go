package overlay

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/schema"
)

// there returns the contents of the store below a prefix, as "key=value".
func there(t *testing.T, st store.Store, prefix string) string {
	t.Helper()
	kvs, _, err := st.List(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, kv := range kvs {
		out = append(out, strings.TrimPrefix(kv.Key, prefix)+"="+string(kv.Value))
	}
	return strings.Join(out, " ")
}

// TestStoreAway: with the store stopped everything goes on, also what is new; changes made after
// are caught up, and an agent that was started in between waits with traffic flowing.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	l := newRemoteLab(t, 2)
	n := l.network("blue")
	out := allow("egress", "IPv4", "", 0)
	client, server := l.group(out), l.group(out, allow("ingress", "IPv4", "tcp", 80))
	l.start()
	h := l.hosts[0]
	a, near, far := n.machine(h, client), n.machine(h, server), n.machine(l.hosts[1], server)
	for _, m := range []*machine{near, far} {
		m.listen("tcp", 80)
		m.listen("tcp", 81)
	}
	established, err := a.dial(far.v4, 80, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer established.Close()
	go1 := func() error { return exchange(established, 100000, 5*time.Second) }
	if err := go1(); err != nil {
		t.Fatal(err)
	}

	l.server.stop()
	if err := go1(); err != nil {
		t.Errorf("established, without the store: %v", err)
	}
	for _, to := range []*machine{near, far} {
		if err := connects(a, to.v4, 80, long); err != nil {
			t.Errorf("new, without the store: %v", err)
		}
		if err := connects(a, to.v4, 81, short); err == nil {
			t.Error("denied, but passed without the store")
		}
	}
	h.stop()
	h.run() // waits for the store
	if err := go1(); err != nil {
		t.Errorf("established, agent started without the store: %v", err)
	}
	select {
	case <-h.agent.Ready():
		t.Error("an agent that knows no topology is ready")
	default:
	}

	l.server.start()
	l.wait("the agent to be ready", func() bool {
		select {
		case <-h.agent.Ready():
			return true
		default:
			return false
		}
	})
	l.setRules(server, out, allow("ingress", "IPv4", "tcp", 81))
	l.wait("the rule that was added to be in force", func() bool { return connects(a, near.v4, 81, short) == nil })
	l.wait("it to be in force for another host", func() bool { return connects(a, far.v4, 81, short) == nil })
	l.wait("the rule that was taken away to be in force", func() bool { return exchange(established, 10, short) != nil })
}

// TestLeaseLost: a host whose lease has ended takes another and reports everything again.
func TestLeaseLost(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	n := l.network("blue")
	l.start()
	h := l.hosts[0]
	a := n.machine(h, l.group(everything()...))
	first := h.agent.presence.Lease()
	if err := l.st.Revoke(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	l.wait("another lease", func() bool { x := h.agent.presence.Lease(); return x != 0 && x != first })
	a.served()
	kv, err := l.st.Get(t.Context(), schema.HostStates.Key(h.id))
	for err != nil {
		l.wait("the host to be alive", func() bool { kv, err = l.st.Get(t.Context(), schema.HostStates.Key(h.id)); return err == nil })
	}
	if kv.Lease == 0 || kv.Lease == first {
		t.Errorf("the host is alive under lease %d, was %d", kv.Lease, first)
	}
}

// TestDeadHost: what a host learned goes with its lease, and what others knew by it too.
func TestDeadHost(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n := l.network("blue")
	l.start()
	a, b := n.machine(l.hosts[0]), n.machine(l.hosts[1]) // without port security: any source address
	strange := "02:00:00:00:00:99"
	a.MustIP(t, "link set eth0 down", "link set eth0 address "+strange, "link set eth0 up")
	if err := a.ping(b.v4, 2); err != nil {
		t.Fatal(err)
	}
	prefix := schema.StatePrefix + l.hosts[0].id + "/macs/"
	l.wait("the learned address to be told", func() bool { return there(t, l.st, prefix) != "" })
	if err := b.ping(a.v4, 2); err != nil {
		t.Error(err)
	}
	lease := l.hosts[0].agent.presence.Lease()
	l.hosts[0].stop()
	if err := l.st.Revoke(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	l.wait("the learned address to go", func() bool { return there(t, l.st, prefix) == "" })
}

// TestAddressMovesBetweenHosts: a MAC that nobody seeded is found where it was seen last, also when
// it comes back.
func TestAddressMovesBetweenHosts(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n := l.network("blue")
	l.start()
	a, b, c := n.machine(l.hosts[0]), n.machine(l.hosts[1]), n.machine(l.hosts[0])
	floating := netip.MustParseAddr("10.0.0.200")
	was := a
	for round, m := range []*machine{a, b, a, b} {
		was.MustIP(t, "link set eth0 down", "addr flush dev eth0", "link set eth0 address "+was.port.MACAddress.String())
		m.MustIP(t, "link set eth0 down", "link set eth0 address 02:00:00:00:00:99", "link set eth0 up", "addr replace "+floating.String()+"/24 dev eth0")
		was = m
		l.wait(fmt.Sprintf("answers in round %d", round), func() bool { return m.answers(c.v4) })
		// The other host hears of the move by the store, maybe after the answer.
		l.wait(fmt.Sprintf("the machine of before to be left in round %d", round), func() bool { return c.answers(floating) })
	}
}

// TestRegistration: a host that has joined changes only its own record, one that has not makes it,
// and one whose record is lost makes it again.
func TestRegistration(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	joined, h := l.hosts[0], l.hosts[1]
	l.commit(store.Op{Key: schema.Hosts.Key(joined.id), Value: []byte(`{"id":"` + joined.id + `","name":"h1"}`)})
	l.start()
	for _, x := range l.hosts {
		l.wait("the tunnel address of "+x.name, func() bool { return strings.Contains(there(t, l.st, schema.Underlays.Key(x.id)), x.ip.String()) })
	}
	l.commit(store.Op{Key: schema.Underlays.Key(joined.id), Value: []byte(`{"hostId":"` + joined.id + `"}`)})
	l.wait("the record to be mended", func() bool {
		return strings.Contains(there(t, l.st, schema.Underlays.Key(joined.id)), joined.ip.String())
	})
	l.wait("the way to "+joined.name, func() bool { _, ok := h.agent.underlay.Tunnel(joined.ip); return ok })

	// The name in the store belongs to another id.
	joined.stop()
	joined.options.HostName = "other"
	joined.run()
	l.wait("the contradiction to be told", func() bool { return strings.Contains(joined.log.String(), "is called") })
}
