package overlay

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/uuid"

	"heddle/internal/store"
	"heddle/internal/store/schema"
	"heddle/internal/topology/flow"
)

// TestSlowFlowReader: packets are decided, and other readers served, while a server takes no
// records; it gets those that it asked for later. A subscription ends with its request.
func TestSlowFlowReader(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	n := l.network("blue")
	h := l.hosts[0]
	slow, quick := uuid.NewString(), uuid.NewString()
	release := make(chan struct{})
	posted := make(chan flow.FlowRecord, 1000)
	h.options.PostFlows = func(ctx context.Context, id string, _ *flow.FlowSubscription, p *flow.FlowPost) (over bool, err error) {
		if id == slow {
			select {
			case <-release:
			case <-ctx.Done():

			}
		}
		for _, r := range p.Records {
			r.Host = id
			posted <- r
		}
		return false, nil
	}
	l.start()
	a, b := n.machine(h, l.group(everything()...)), n.machine(h, l.group(allow("ingress", "IPv6", "", 0)))
	request := func(id string) (store.Op, store.Op) {
		r := &flow.TraceRequest{ID: id, HostID: h.id, Flows: &flow.FlowSubscription{FlowFilter: flow.FlowFilter{Port: b.port.ID, Code: flow.CodeNoRule}, Follow: true}}
		value, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		key := schema.TraceRequests.KeyOf(r)
		return store.Op{Key: key, Value: value}, store.Op{Key: key, Delete: true}
	}
	askSlow, leaveSlow := request(slow)
	askQuick, _ := request(quick)
	l.commit(askSlow, askQuick)
	readers := h.agent.feed.traces.readers
	l.wait("both subscriptions", func() bool {
		readers.mu.Lock()
		defer readers.mu.Unlock()
		return len(readers.ends) == 2
	})
	refused := a.udp(b, 80)
	firstOf := func(id string) {
		t.Helper()
		l.wait("a record", func() bool {
			send(t, refused, 1)
			select {
			case r := <-posted:
				return r.Host == id && r.PeerPort == b.port.ID && r.Port == a.port.ID && r.Code == flow.CodeNoRule
			default:
				return false
			}
		})
	}
	firstOf(quick)
	close(release)
	firstOf(slow)
	l.commit(leaveSlow)
	l.wait("the subscription to end", func() bool {
		readers.mu.Lock()
		defer readers.mu.Unlock()
		return len(readers.ends) == 1
	})
}
