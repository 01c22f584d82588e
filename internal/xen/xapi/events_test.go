package xapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/storetest"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// change commits.
func change(t testing.TB, s *Server, f func(tx *records.Tx) error) {
	t.Helper()
	if err := s.update(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

// told are events as "operation class name", where names maps references.
func (b batch) told(names map[string]string) []string {
	var all []string
	for _, e := range b.events {
		name := names[e["ref"].(string)]
		if name == "" {
			name = e["ref"].(string)
		}
		all = append(all, fmt.Sprintf("%s %s %s", e["operation"], e["class"], name))
	}
	return all
}

// TestEvents: what clients are told of a tunnel's life, far ends and all, by each class and filter.
func TestEvents(t *testing.T) {
	t.Parallel()
	s, c := served(t)
	begin := c.from("", 0, "*")
	for _, e := range begin.events {
		if e["operation"] != "add" || e["snapshot"] == nil || e["timestamp"] != "0.0" {
			t.Errorf("%v", e)
		}
	}
	host, network, transport, access, tunnel := aPool(t, s)
	pool, private := anyPool(c), c.must("PIF.get_network", access.Ref).(string)
	names := map[string]string{host.Ref: "host", network.Ref: "network", private: "private", transport.Ref: "transport", access.Ref: "access", tunnel.Ref: "tunnel", pool: "pool",
		host.Text("metrics"): "metrics"}
	all := c.from(begin.token, time.Second, "*")
	got := all.told(names)
	slices.Sort(got)
	want := []string{"add host host", "add host_metrics metrics", "add network network", "add network private", "add pif access", "add pif transport", "add tunnel tunnel", "mod pool pool"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if all.token <= begin.token || len(all.token) != 41 {
		t.Errorf("tokens %q, then %q", begin.token, all.token)
	}
	if got := all.counts; got["pif"] != int64(2) || got["task"] != int64(0) || got["tunnel"] != int64(1) {
		t.Errorf("counts %v", got)
	}
	for _, e := range all.events {
		if e["class"] == "pif" && len(e["snapshot"].(map[string]any)) != len(model.Lookup("PIF").Fields) {
			t.Errorf("%v", e["snapshot"])
		}
	}

	// Several changes are one event; what came and went is none; far ends change too.
	change(t, s, func(tx *records.Tx) error {
		return errors.Join(remove(tx, "tunnel", tunnel.Ref), remove(tx, "PIF", access.Ref))
	})
	c.must("network.set_name_label", network.Ref, "x")
	c.must("network.set_name_label", network.Ref, "y")
	passing := made(t, s, newObject("task", nil))
	c.must("task.destroy", passing)
	destroyed := c.from(all.token, time.Second, "*")
	want = []string{"mod network network", "mod network private", "mod host host", "mod pif transport", "del tunnel tunnel", "del pif access"}
	got = destroyed.told(names)
	if i := slices.Index(got, "del tunnel tunnel"); i < 0 || i < len(got)-2 {
		t.Errorf("deletions come last: %v", got)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, e := range destroyed.events {
		if _, there := e["snapshot"]; there == (e["operation"] == "del") {
			t.Errorf("%v", e)
		}
		if e["ref"] == network.Ref && e["snapshot"].(map[string]any)["name_label"] != "y" {
			t.Errorf("%v", e)
		}
	}

	// Filters.
	filters := []struct {
		classes []string
		want    []string
	}{
		{[]string{"TUNNEL"}, []string{"del tunnel tunnel"}},
		{[]string{"network/" + network.Ref, "nosuch"}, []string{"mod network network"}},
		{[]string{"Network/" + private, "tunnel/" + tunnel.Ref}, []string{"mod network private", "del tunnel tunnel"}},
		{[]string{"network/" + host.Ref}, nil},
		{nil, nil},
		{[]string{"nosuch"}, nil},
	}
	for _, f := range filters {
		b := c.from(all.token, 0, f.classes...)
		if diff := cmp.Diff(f.want, b.told(names)); diff != "" {
			t.Errorf("%v: %s", f.classes, diff)
		}
		if b.token < destroyed.token {
			t.Errorf("%v: token %q after %q", f.classes, b.token, destroyed.token)
		}
	}
	if got := c.from("", 0, "network/"+private, "tunnel").told(names); !cmp.Equal(got, []string{"add network private"}) {
		t.Errorf("from the beginning: %v", got)
	}
	for _, bad := range []string{"x", "1", "1,x", "-1,0", ",", "1,2,3", "99999999999999999999999,0"} {
		if got := c.fails("EVENT_FROM_TOKEN_PARSE_FAILURE", "event.from", []string{"*"}, bad, 0.0); got[0] != bad {
			t.Error(got)
		}
	}
	// A token of another store tells nothing here.
	if got := c.from(token(1<<40), 0, "network"); len(got.events) != 2 || got.events[0]["operation"] != "add" || got.token >= token(1<<40) {
		t.Errorf("%v", got)
	}
}

// TestEventsWait: a call that waits is answered by the first change that concerns it, and by the
// end of its session.
func TestEventsWait(t *testing.T) {
	t.Parallel()
	s, c := served(t)
	_, network, _, _, _ := aPool(t, s)
	now := c.from("", 0, "network").token
	answers := make(chan batch, 1)
	go func() { answers <- c.from(now, time.Minute, "network") }()
	c.must("session.add_to_other_config", c.session, "nothing", "of interest")
	c.must("pool.add_to_other_config", anyPool(c), "nothing", "of interest")
	c.must("network.add_tags", network.Ref, "x")
	if got := (<-answers).told(nil); !cmp.Equal(got, []string{"mod network " + network.Ref}) {
		t.Error(got)
	}
	idle := c.from(c.from("", 0, "*").token, 0, "*")
	if len(idle.events) != 0 || idle.counts["network"] != int64(2) {
		t.Error(idle)
	}
	failures := make(chan error, 2)
	for _, args := range [][]any{{"event.from", []string{"*"}, idle.token, 60.0}, {"event.next"}} {
		if args[0] == "event.next" {
			c.must("event.register", []string{"*"})
		}
		go func() {
			_, err := c.call(args[0].(string), args[1:]...)
			failures <- err
		}()
	}
	eventually(t, "both calls wait", func() bool { return len(s.polls) == 2 })
	c.must("session.logout")
	for range 2 {
		if err := <-failures; err == nil || !strings.HasPrefix(err.Error(), "SESSION_INVALID") {
			t.Error(err)
		}
	}
}

// TestPollsEnd: when the server is told to stop, calls that wait are answered.
func TestPollsEnd(t *testing.T) {
	t.Parallel()
	s, c := served(t)
	now := c.from("", 0, "*")
	answers := make(chan batch, 1)
	go func() { answers <- c.from(now.token, time.Minute, "*") }()
	eventually(t, "the call waits", func() bool { return len(s.polls) == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Polls().Run(ctx); err != nil {
		t.Fatal(err)
	}
	if b := <-answers; len(b.events) != 0 || b.token < now.token {
		t.Error(b)
	}
}

// TestOldEvents: register, next and unregister.
func TestOldEvents(t *testing.T) {
	t.Parallel()
	s, c := served(t)
	_, network, transport, _, _ := aPool(t, s)
	names := map[string]string{network.Ref: "network", transport.Ref: "transport"}
	next := func() []string {
		var b batch
		for _, e := range c.must("event.next").([]any) {
			b.events = append(b.events, e.(map[string]any))
		}
		return b.told(names)
	}
	if got := c.fails("SESSION_NOT_REGISTERED", "event.next"); got[0] != c.session {
		t.Error(got)
	}
	c.must("network.add_tags", network.Ref, "before")
	c.must("event.register", []string{"network"})
	c.must("PIF.add_to_other_config", transport.Ref, "before", "")
	c.must("event.register", []string{"PIF"})
	c.must("network.add_tags", network.Ref, "after")
	if got := next(); !cmp.Equal(got, []string{"mod network network"}) {
		t.Error(got)
	}
	c.must("PIF.add_to_other_config", transport.Ref, "after", "")
	if got := next(); !cmp.Equal(got, []string{"mod pif transport"}) {
		t.Error(got)
	}
	c.must("event.unregister", []string{"PIF"})
	c.must("PIF.remove_from_other_config", transport.Ref, "after")
	c.must("network.remove_tags", network.Ref, "after")
	if got := next(); !cmp.Equal(got, []string{"mod network network"}) {
		t.Error(got)
	}
	// A client that is too far behind reads everything again, then goes on.
	s.journal.mu.Lock()
	s.journal.horizon = s.journal.snap.Revision + 1
	s.journal.mu.Unlock()
	c.must("network.add_tags", network.Ref, "lost")
	c.must("network.add_tags", network.Ref, "lost too")
	c.must("network.add_tags", network.Ref, "and this")
	c.fails("EVENTS_LOST", "event.next")
	c.must("network.add_tags", network.Ref, "found")
	if got := next(); !cmp.Equal(got, []string{"mod network network"}) {
		t.Error(got)
	}
	if id := c.must("event.get_current_id"); fmt.Sprint(id) == "0" {
		t.Error(id)
	}
	c.must("event.unregister", []string{"Network"})
	c.fails("SESSION_NOT_REGISTERED", "event.next")
}

// TestInject: an artificial change is seen at each server, with tokens good at both.
func TestInject(t *testing.T) {
	t.Parallel()
	st := storetest.Open(t, t.TempDir())
	file := t.TempDir() + "/root"
	a := started(t, Options{Store: st, RootPasswordFile: file})
	b := started(t, Options{Store: st})
	withAccounts(t, a, func(ctx context.Context, l *Accounts) error { return l.Add(ctx, "ada", "x", model.ReadOnly) })
	aPool(t, a)
	at, other := connect(t, a, "ada", "x"), connect(t, b, "ada", "x")
	pool := anyPool(at)
	for range 3 {
		before := at.from("", 0, "pool").token
		token := at.must("event.inject", "pool", pool).(string)
		if token < before {
			t.Errorf("token %q after %q", token, before)
		}
		for _, c := range []*clientOf{at, other} {
			got := c.from(token, 10*time.Second, "pool")
			if diff := cmp.Diff([]string{"mod pool " + pool}, got.told(nil)); diff != "" {
				t.Error(diff)
			}
			if got.token <= token {
				t.Errorf("token %q after %q", got.token, token)
			}
		}
	}
	at.fails("HANDLE_INVALID", "event.inject", "pool", "OpaqueRef:x")
	at.fails("HANDLE_INVALID", "event.inject", "nosuch", pool)
}

// TestLive: host_metrics.live follows the host's report, in events too.
func TestLive(t *testing.T) {
	t.Parallel()
	s, c := served(t)
	host, _, _, _, _ := aPool(t, s)
	metrics := host.Text("metrics")
	now := c.from("", 0, "host_metrics").token
	for _, live := range []bool{true, false, true} {
		change(t, s, func(tx *records.Tx) error {
			if live {
				return objects.HostReports.PutLeased(tx, &objects.HostReport{Host: host.Ref}, s.lease.current())
			}
			return objects.HostReports.Delete(tx, host.Ref)
		})
		for told := !live; told != live; { // the keeper may have had something to say of it before
			b := c.from(now, 10*time.Second, "host_metrics/"+metrics)
			if len(b.events) != 1 {
				t.Fatalf("live %v: %v", live, b)
			}
			told, now = b.events[0]["snapshot"].(map[string]any)["live"].(bool), b.token
		}
	}
}

// TestOldToken: a server that began after the token was given tells of everything, and of what was
// deleted meanwhile.
func TestOldToken(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"memory", "etcd", "compacted"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			compacted := kind == "compacted"
			var st store.Store
			if kind == "etcd" {
				st = storetest.Open(t, t.TempDir())
			} else {
				st = store.NewMemory()
				t.Cleanup(func() { st.Close() })
			}
			first := started(t, Options{Store: st})
			host, network, transport, access, tunnel := aPool(t, first)
			now, _ := first.journal.position()
			change(t, first, func(tx *records.Tx) error {
				return errors.Join(remove(tx, "tunnel", tunnel.Ref), remove(tx, "PIF", access.Ref), put(tx, newObject("task", nil)))
			})
			passing := made(t, first, newObject("tunnel", nil))
			change(t, first, func(tx *records.Tx) error { return remove(tx, "tunnel", passing) })
			if compacted { // the store in memory keeps less than 20,000 revisions
				for i := range 20_000 {
					if _, err := st.Commit(t.Context(), nil, []store.Op{{Key: "/elsewhere", Value: fmt.Append(nil, i)}}); err != nil {
						t.Fatal(err)
					}
				}
			}
			second := started(t, Options{Store: st})
			withAccounts(t, second, func(ctx context.Context, l *Accounts) error { return l.Add(ctx, "ada", "x", model.PoolAdmin) })
			c := connect(t, second, "ada", "x")
			got := c.from(now.token(), 0, "tunnel", "pif", "network/"+network.Ref, "host").told(map[string]string{
				host.Ref: "host", network.Ref: "network", transport.Ref: "transport", access.Ref: "access", tunnel.Ref: "tunnel"})
			want := []string{"add host host", "add network network", "add pif transport", "del pif access", "del tunnel tunnel"}
			if compacted {
				want = want[:3]
			}
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestJournalForgets: the journal keeps so many changes, and says that it does not reach back
// further.
func TestJournalForgets(t *testing.T) {
	t.Parallel()
	s, c := served(t)
	j := s.journal
	j.mu.Lock()
	for i := range int64(keptChanges + keptChanges/4 + 1) { // long before anything that has happened here
		j.entries = slices.Insert(j.entries, int(i), entry{rev: i - 1<<20, class: "network", ref: "OpaqueRef:x"})
	}
	j.horizon = -1 << 21
	before := len(j.entries)
	j.mu.Unlock()
	c.must("task.create", "", "")
	j.mu.Lock()
	defer j.mu.Unlock()
	if got := len(j.entries); got > keptChanges+4 || got < keptChanges-4 {
		t.Errorf("%d entries of %d", got, before)
	}
	if first := j.entries[0].rev; j.horizon >= first || j.horizon != first-1 {
		t.Errorf("horizon %d before %d", j.horizon, first)
	}
}

// TestFollower: whoever reads everything and then follows the events, in whatever steps, has what
// the server has.
func TestFollower(t *testing.T) {
	t.Parallel()
	s, c := served(t)
	rapid.Check(t, func(rt *rapid.T) {
		classes := []string{"host", "PIF", "network", "tunnel"}
		seen := map[string]any{}
		token := ""
		follow := func() {
			b := c.from(token, 0, classes...)
			if token == "" {
				clear(seen)
			}
			for _, e := range b.events {
				key := e["class"].(string) + "/" + e["ref"].(string)
				_, there := seen[key]
				switch op := e["operation"]; {
				case op == "del":
					delete(seen, key)
				case op == "add" && there, op == "mod" && !there:
					rt.Fatalf("%s of %s, there %v", op, key, there)
				default:
					seen[key] = e["snapshot"]
				}
			}
			token = b.token
		}
		follow()
		refs := map[string][]string{}
		some := func(class string) string {
			if len(refs[class]) == 0 || rapid.IntRange(0, 3).Draw(rt, "new") == 0 {
				o := newObject(class, nil)
				switch class {
				case "network":
					o.Fields["bridge"] = o.UUID()
				case "PIF":
					o.Fields["network"], o.Fields["host"], o.Fields["device"] = model.NullRef, o.UUID(), o.UUID()
				}
				refs[class] = append(refs[class], made(t, s, o))
			}
			return rapid.SampledFrom(refs[class]).Draw(rt, class)
		}
		for range rapid.IntRange(1, 15).Draw(rt, "steps") {
			switch class := rapid.SampledFrom(classes).Draw(rt, "class"); rapid.IntRange(0, 4).Draw(rt, "step") {
			case 0:
				follow()
			case 1:
				ref := some(class)
				refs[class] = slices.DeleteFunc(refs[class], func(r string) bool { return r == ref })
				change(t, s, func(tx *records.Tx) error { return remove(tx, class, ref) })
			case 2:
				tunnel, field, pif := some("tunnel"), rapid.SampledFrom([]string{"access_PIF", "transport_PIF"}).Draw(rt, "field"), some("PIF")
				change(t, s, func(tx *records.Tx) error {
					o, err := object(tx, "tunnel", tunnel)
					if err != nil {
						return err
					}
					return put(tx, edited(o, model.Record{field: pif}))
				})
			default:
				ref := some(class)
				c.must(class+".set_other_config", ref, map[string]string{"x": rapid.StringMatching("[a-z]").Draw(rt, "value")})
			}
		}
		follow()
		has := map[string]any{}
		for _, class := range classes {
			for ref, r := range c.records(class) {
				has[strings.ToLower(class)+"/"+ref] = r
			}
		}
		if diff := cmp.Diff(has, seen); diff != "" {
			rt.Fatal(diff)
		}
	})
}

// TestServers: clients of two servers over one etcd, which take turns with tokens, miss no change
// of either.
func TestServers(t *testing.T) {
	t.Parallel()
	st := storetest.Open(t, t.TempDir())
	servers := []*Server{started(t, Options{Store: st}), started(t, Options{Store: st})}
	withAccounts(t, servers[0], func(ctx context.Context, l *Accounts) error { return l.Add(ctx, "ada", "x", model.PoolAdmin) })
	clients := []*clientOf{connect(t, servers[0], "ada", "x"), connect(t, servers[1], "ada", "x")}
	const writers, rounds = 4, 25
	var writing sync.WaitGroup
	for w := range writers {
		writing.Go(func() {
			c := clients[w%2]
			network := made(t, servers[w%2], newObject("network", model.Record{"bridge": fmt.Sprint("br", w)}))
			for i := range rounds {
				c.must("network.set_name_label", network, fmt.Sprint(i))
				if passing := c.must("task.create", "", ""); i%2 == 0 {
					c.must("task.destroy", passing)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writing.Wait(); close(done) }()
	seen, at := map[string]any{}, ""
	follow := func(c *clientOf, wait time.Duration) {
		b := c.from(at, wait, "network", "task")
		for _, e := range b.events {
			if key := e["class"].(string) + "/" + e["ref"].(string); e["operation"] == "del" {
				delete(seen, key)
			} else {
				seen[key] = e["snapshot"]
			}
		}
		if b.token < at {
			t.Errorf("token %s after %s", b.token, at)
		}
		at = b.token
	}
	for i := 0; ; i++ {
		follow(clients[i%2], 20*time.Millisecond)
		select {
		case <-done:
		default:
			continue
		}
		break
	}
	last, err := st.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range servers {
		eventually(t, "the server has everything", func() bool { now, _ := s.journal.position(); return now.rev >= last })
	}
	follow(clients[0], 0)
	for _, c := range clients {
		has := map[string]any{}
		for _, class := range []string{"network", "task"} {
			for ref, r := range c.records(class) {
				has[class+"/"+ref] = r
			}
		}
		if diff := cmp.Diff(has, seen); diff != "" || len(has) != writers+writers*(rounds/2) {
			t.Errorf("%d objects: %s", len(has), diff)
		}
	}
}

// BenchmarkEvents200 is the time until 200 clients that wait have their event.
func BenchmarkEvents200(b *testing.B) {
	s, c := served(b)
	_, network, _, _, _ := aPool(b, s)
	token := c.from("", 0, "network").token
	answers := make(chan batch, 200)
	var late time.Duration
	for i := 0; b.Loop(); i++ {
		for range cap(answers) {
			go func() { answers <- c.from(token, time.Minute, "network") }()
		}
		eventually(b, "all wait", func() bool { return len(s.polls) == cap(answers) })
		began := time.Now()
		c.must("network.set_name_label", network.Ref, fmt.Sprint(i))
		for range cap(answers) {
			token = (<-answers).token
		}
		late += time.Since(began)
		eventually(b, "all have ended", func() bool { return len(s.polls) == 0 })
	}
	b.ReportMetric(float64(late.Microseconds())/float64(b.N)/1000, "ms-to-all")
}

// BenchmarkEvent is the time from the answer to a change until a client that waits has its event,
// over HTTP and etcd.
func BenchmarkEvent(b *testing.B) {
	st := storetest.Open(b, b.TempDir())
	s := started(b, Options{Store: st})
	withAccounts(b, s, func(ctx context.Context, l *Accounts) error { return l.Add(ctx, "ada", "x", model.PoolAdmin) })
	_, network, _, _, _ := aPool(b, s)
	c := connect(b, s, "ada", "x")
	token := c.from("", 0, "network").token
	answers := make(chan batch, 1)
	var late time.Duration
	for i := 0; b.Loop(); i++ {
		go func() { answers <- c.from(token, time.Minute, "network") }()
		eventually(b, "the call waits", func() bool { return len(s.polls) == 1 })
		c.must("network.set_name_label", network.Ref, fmt.Sprint(i))
		committed := time.Now()
		token = (<-answers).token
		late += time.Since(committed)
		eventually(b, "the call has ended", func() bool { return len(s.polls) == 0 })
	}
	b.ReportMetric(float64(late.Microseconds())/float64(b.N)/1000, "ms-after-commit")
}
