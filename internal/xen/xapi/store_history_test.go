package xapi

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"heddle/internal/store/backend"
	"heddle/internal/store/storetest"
)

// TestEventsOfARestoredStore: clients that wait for events while the etcd is restored to an older
// state are given all that there is, and a token of before counts for nothing even when the store
// has come past its revision; at every server alike.
func TestEventsOfARestoredStore(t *testing.T) {
	t.Parallel()
	etcd := storetest.StartSingle(t)
	open := func() *backend.Etcd {
		t.Helper()
		st, err := backend.Open(t.Context(), backend.Options{Cluster: &backend.Cluster{Endpoints: []string{etcd.Endpoint}, SkipLimits: true}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { st.Close() })
		return st
	}
	network := func(name string) map[string]any { return map[string]any{"name_label": name} }
	var clients []*clientOf
	for range 2 {
		s := started(t, Options{Store: open(), RootPasswordFile: t.TempDir() + "/root"})
		if len(clients) == 0 {
			if err := WithAccounts(t.Context(), s.opts.Store, nil, func(ctx context.Context, a *Accounts) error { return a.SetPassword(ctx, RootAccount, "secret") }); err != nil {
				t.Fatal(err)
			}
		}
		c := connect(t, s, RootAccount, "secret")
		c.must("event.register", []string{"network"})
		clients = append(clients, c)
	}
	first := clients[0]
	kept := first.must("network.create", network("kept")).(string)
	restore := etcd.Save(t)
	eventually(t, "the store is back", func() bool { _, err := first.call("network.create", network("lost")); return err == nil })
	for i := range 20 {
		first.must("network.create", network(fmt.Sprint("lost ", i)))
	}
	before := first.from("", 0, "network").token
	answers := make([]chan batch, len(clients))
	for i, c := range clients {
		eventually(t, "the server has everything", func() bool { return c.from("", 0, "network").token >= before })
		answers[i] = make(chan batch, 1)
		go func() { answers[i] <- c.from(before, time.Minute, "network") }()
	}
	restore()
	for i, c := range clients {
		if b := <-answers[i]; !slices.Equal(b.told(nil), []string{"add network " + kept}) || b.counts["network"] != int64(1) {
			t.Errorf("server %d gives a client that waits %v, counts %v", i, b.told(nil), b.counts)
		}
		c.fails("EVENTS_LOST", "event.next")
	}
	eventually(t, "a new mark", func() bool { return clients[1].from("", 0, "network").token[20:] != before[20:] })
	changed := false
	for range 100 { // past the revision of before
		first.must("network.set_name_description", kept, fmt.Sprint(changed))
		changed = !changed
	}
	for i, c := range clients {
		if b := c.from(before, 0, "network"); !slices.Equal(b.told(nil), []string{"add network " + kept}) {
			t.Errorf("server %d takes a token of before for one of now: %v", i, b.told(nil))
		}
		now := c.from("", 0, "network").token
		other := clients[1-i]
		other.must("network.set_name_description", kept, fmt.Sprint("by ", i))
		if b := c.from(now, time.Minute, "network"); !slices.Equal(b.told(nil), []string{"mod network " + kept}) {
			t.Errorf("server %d goes on with %v", i, b.told(nil))
		}
	}
}
