package overlay

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// reportOf returns what the store has as the host's state, and its lease.
func reportOf(t *testing.T, st store.Store, host string) (state topology.HostState, lease store.Lease) {
	t.Helper()
	kv, err := st.Get(t.Context(), schema.HostStates.Key(host))
	if err != nil {
		return state, 0
	}
	if err := json.Unmarshal(kv.Value, &state); err != nil {
		t.Fatal(err)
	}
	return state, kv.Lease
}

// TestCopiedStateDirectory: of two agents with the same identity the one that started last has the
// host's place. The other one says so and writes nothing, until that one is gone. Then other hosts
// take its messages again, though they have had later ones from the other.
func TestCopiedStateDirectory(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	a, b, other := l.hosts[0], l.hosts[1], l.hosts[2]
	a.start()
	other.start()
	n := l.network("blue")
	answering := n.machine(other, l.group(allow("ingress", "IPv4", "", 0))) // by what other hosts say of connections
	m := n.machine(a)
	if err := m.ping(answering.v4, 3); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(b.options.StateDir, os.DirFS(a.options.StateDir)); err != nil {
		t.Fatal(err)
	}
	b.id, b.options.HostID, b.options.HostName = a.id, a.id, a.name
	b.start()
	l.wait("the first agent to be displaced", func() bool {
		return strings.Contains(a.agent.Displaced(), fmt.Sprintf("another agent reports as host %s, from %s,", a.name, b.ip))
	})
	if !strings.Contains(a.log.String(), "this agent is displaced") {
		t.Errorf("the log does not say that the agent is displaced:\n%s", a.log)
	}
	reported := func(h *testHost) func() bool {
		return func() bool {
			state, _ := reportOf(t, l.st, a.id)
			return state.TunnelIP == h.ip && strings.Contains(there(t, l.st, schema.Underlays.Key(a.id)), h.ip.String())
		}
	}
	l.wait("the second agent's report", reported(b))
	a.agent.wayChanged()
	a.agent.feed.registrar.changed.Give()
	// The second agent has seen all this too.
	if err := n.machine(b).ping(answering.v4, 3); err != nil {
		t.Fatal(err)
	}
	if !reported(b)() || b.agent.Displaced() != "" {
		t.Errorf("the agents overwrite each other's reports: %s; the second is displaced: %q", there(t, l.st, schema.StatePrefix), b.agent.Displaced())
	}

	yields := schema.DisplacedAgents.Key(a.id + "/" + a.agent.place.instance)
	l.wait("the displaced agent to show itself", func() bool { return strings.Contains(there(t, l.st, yields), a.ip.String()) })

	_, lease := reportOf(t, l.st, a.id)
	b.stop()
	if err := l.st.Revoke(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	l.wait("the first agent's report", reported(a))
	l.wait("the first agent to have its place", func() bool { return a.agent.Displaced() == "" })
	l.wait("answers to the first host", func() bool { return m.answers(answering.v4) })
	l.wait("nothing to show a displaced agent", func() bool { return there(t, l.st, schema.StatePrefix+a.id+schema.DisplacedAgentsTail) == "" })
}

// TestReportDeleted: an agent whose report was deleted reports again, and says so.
func TestReportDeleted(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	l.start()
	h := l.hosts[0]
	l.wait("the agent to see its report", func() bool {
		_, there := schema.HostStates.Peek(records.Over(h.agent.replica.Snapshot()), h.id)
		return there
	})
	l.commit(store.Op{Key: schema.HostStates.Key(h.id), Delete: true})
	l.wait("another report", func() bool { _, lease := reportOf(t, l.st, h.id); return lease != 0 })
	l.wait("the log to say so", func() bool { return strings.Contains(h.log.String(), "the store has lost the report of this host") })
	if why := h.agent.Displaced(); why != "" {
		t.Errorf("displaced: %s", why)
	}
}

// TestJoinedAgainElsewhere: an agent whose host joined later with another key reports nothing, also
// when it starts then.
func TestJoinedAgainElsewhere(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	h.options.Key = "first"
	joinedBy := func(key string) {
		l.commit(store.Op{Key: schema.Hosts.Key(h.id), Value: fmt.Appendf(nil, `{"id":%q,"name":%q,"key":%q}`, h.id, h.name, key)})
	}
	isDisplaced := func() bool { return strings.Contains(h.agent.Displaced(), "has joined again with another key") }
	joinedBy("first")
	l.start()
	if why := h.agent.Displaced(); why != "" {
		t.Errorf("displaced: %s", why)
	}
	joinedBy("second")
	l.wait("the agent to be displaced", isDisplaced)
	lease := h.agent.presence.Lease()
	h.stop()
	if err := l.st.Revoke(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	h.run()
	l.wait("the agent to be displaced when it starts", isDisplaced)
	l.wait("its lease", func() bool { return h.agent.presence.Lease() != 0 })
	select {
	case <-h.agent.Ready():
		t.Error("a displaced agent is ready")
	default:
	}
	if _, lease := reportOf(t, l.st, h.id); lease != 0 {
		t.Error("a displaced agent reports")
	}
	joinedBy("first")
	l.wait("the agent to be ready", func() bool {
		select {
		case <-h.agent.Ready():
			return true
		default:
			return false
		}
	})
}
