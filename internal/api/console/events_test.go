package console

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
)

// TestEvents: who follows the changes hears each, also those made while it was away, and only of
// kinds that it asked for.
func TestEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	name := func(name string) {
		w.update(t, func(tx *records.Tx) error {
			return schema.Networks.Put(tx, &neutron.Network{Standard: neutron.Standard{ID: network, Name: name}})
		})
	}
	first := w.follow(t, "/v1/events", "")
	name("one")
	event := first.next(t)
	if !strings.Contains(event, `event: change data: {"revision":`) || !strings.Contains(event, `"changes":[{"kind":"network","id":"`+network+`","change":"changed"}]`) {
		t.Errorf("an event is %s", event)
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(event, "id: "), " ")
	first.stop()

	name("two")
	w.update(t, func(tx *records.Tx) error { return schema.Ports.Delete(tx, loosePort) })
	again := w.follow(t, "/v1/events?kinds=port,router", id)
	if event := again.next(t); !strings.Contains(event, `{"kind":"port","id":"`+loosePort+`","change":"deleted"}`) || strings.Contains(event, network) {
		t.Errorf("after what was missed comes %s", event)
	}
	again.stop()
	other := w.follow(t, "/v1/events?since=1000000", "")
	if event := other.next(t); event != "event: reset data: {}" {
		t.Errorf("from a revision of another store: %s", event)
	}
	other.stop()

	if code, text := w.get(t, "admin", "/v1/events?since=x"); code != http.StatusBadRequest || !strings.Contains(text, `since \"x\": want a revision of the store`) {
		t.Errorf("%d %s", code, text)
	}
	if code, _ := w.get(t, "member", "/v1/events"); code != http.StatusForbidden {
		t.Errorf("a member follows the store: %d", code)
	}
}

// TestEventsAreForgotten: changes beyond the most that are kept are replaced by a reset, and so is
// all that a restored store makes untrue.
func TestEventsAreForgotten(t *testing.T) {
	t.Parallel()
	e := NewEvents()
	add := func(revision, history int64, changes int) {
		u := snapshot.Update{Prev: &snapshot.Snapshot{Revision: revision - 1, History: 1}, Next: &snapshot.Snapshot{Revision: revision, History: history}}
		for i := range changes {
			u.Changed = append(u.Changed, snapshot.Changed{Source: "port", ID: fmt.Sprint(i), New: i})
		}
		e.Add(u)
	}
	want := func(since int64, events int, known bool) {
		t.Helper()
		next, ok := e.begin(since)
		if ok != known {
			t.Fatalf("from revision %d: known is %t", since, ok)
		}
		if all, _, _, ok := e.after(next); known && (!ok || len(all) != events) {
			t.Errorf("from revision %d: %d events, want %d", since, len(all), events)
		}
	}
	add(1, 1, 3)
	add(2, 1, 1)
	want(1, 1, true)
	slow, _ := e.begin(1)
	add(3, 1, mostEvents-1)
	want(1, 2, true)
	add(4, 1, 1)
	want(1, 0, false)
	want(2, 2, true)
	if _, _, _, known := e.after(slow); known {
		t.Error("a slow reader is not told that it has missed something")
	}
	add(5, 1, mostEvents+1)
	want(4, 0, false)
	want(5, 0, true)
	add(6, 2, 1)
	want(5, 0, false)
}

// follower reads server-sent events.
type follower struct {
	scanner *bufio.Scanner
	stop    func()
}

func (w *world) follow(t *testing.T, path, last string) *follower {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Auth-Token", "admin")
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	if kind := res.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Fatalf("the answer is %s", kind)
	}
	f := &follower{bufio.NewScanner(res.Body), stop}
	f.next(t) // the greeting: from here on all is heard
	return f
}

// next returns the lines of the next event in one.
func (f *follower) next(t *testing.T) string {
	t.Helper()
	var lines []string
	for f.scanner.Scan() {
		if f.scanner.Text() == "" {
			return strings.Join(lines, " ")
		}
		lines = append(lines, f.scanner.Text())
	}
	t.Fatalf("the stream has ended: %v", f.scanner.Err())
	return ""
}
