package policy

import (
	"errors"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/hostnet"
	"heddle/internal/store"
	"heddle/internal/store/follow"
)

// coreAt returns a core with default settings that has the model and knows that there are no ports
// of the virtual topology.
func coreAt(t *testing.T, now time.Time, pairs ...string) *core {
	t.Helper()
	c := newCore("h1", now)
	u := follow.Update{Revision: 1, Full: true}
	for i := 0; i < len(pairs); i += 2 {
		u.All = append(u.All, store.KV{Key: pairs[i], Value: []byte(pairs[i+1]), ModRevision: 1})
	}
	c.applyStore(u)
	c.setOverlay(map[string]bool{})
	if c.needsSettings() && !c.configure(configured{settings: usual(t), ipv6: true}) {
		t.Fatal("the default settings cannot be used")
	}
	return c
}

// TestCore: events lead to plans: nothing is wired before a commit has succeeded, a failed one is
// due again after a pause, and an interface that goes gives its address up before the next commit.
func TestCore(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	c := coreAt(t, now, ready, "true", epA, valueA)
	c.applyEvent(hostnet.Event{Kind: hostnet.LinkSet, Link: hostnet.Link{Index: 2, Name: "cali1", Up: true, Running: true}}, now)
	if r := c.takeRequests(); !slices.Equal(r.kick, []string{"cali1"}) || r.relist || !r.recheck {
		t.Errorf("events ask for %+v, want to wire cali1, and to compare statuses", r)
	}
	if p := c.prepare(now); !p.ready || !p.commit || len(p.updates) == 0 || p.around == nil || len(p.release) > 0 {
		t.Errorf("at first: %+v, want a commit with updates and surroundings", p)
	}
	c.committed(errors.New("no"), 0, now)
	if w := c.wire(); w.first || len(w.want) > 0 {
		t.Errorf("after a failed commit: %+v, want nothing wired", w)
	}
	if p := c.prepare(now); p.commit {
		t.Error("a failed commit is due again at once")
	}
	now = now.Add(retryMin)
	if p := c.prepare(now); !p.commit {
		t.Error("a failed commit is not due again after a pause")
	}
	c.committed(nil, 0, now)
	if w := c.wire(); !w.first || !slices.Equal(slices.Collect(maps.Keys(w.want)), []string{"cali1"}) {
		t.Errorf("after a commit: %+v, want cali1 wired", w)
	}
	if p := c.prepare(now); p.commit || len(p.updates) > 0 {
		t.Errorf("without a change: %+v, want no commit", p)
	}

	c.applyStore(follow.Update{Revision: 2, Events: []store.Event{{KV: store.KV{Key: epA}, Deleted: true}}})
	p := c.prepare(now)
	if keep, ok := p.release["cali1"]; !p.commit || !ok || len(keep.Routed) > 0 || len(p.forget) != 1 || p.forget[0] != ip("10.0.0.1") {
		t.Errorf("without the endpoint: %+v, want 10.0.0.1 released with the commit", p)
	}
	c.committed(nil, 0, now)
	if w := c.wire(); !slices.Equal(w.unwant, []string{"cali1"}) {
		t.Errorf("without the endpoint: %+v, want cali1 unwired", w)
	}
}

// TestMendIsRetried: rules that could not be read back are read again after a pause, also where
// they are checked only after changes by others.
func TestMendIsRetried(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	c := coreAt(t, now, ready, "true")
	c.config.settings.RulesRefresh = 0
	if c.planUpkeep(now).mend {
		t.Error("rules are read back although nothing changed them")
	}
	c.dirty.rules = true
	if !c.planUpkeep(now).mend {
		t.Error("rules that another program changed are not read back")
	}
	c.mended("", errors.New("no"), now)
	if next := c.nextUpkeep(now); !next.Equal(now.Add(retryMax)) {
		t.Errorf("the next check is at %v, want %v", next, now.Add(retryMax))
	}
	if c.planUpkeep(now).mend || !c.planUpkeep(now.Add(retryMax)).mend || c.planUpkeep(now.Add(2*retryMax)).mend {
		t.Error("rules that could not be read back are not read again once, after a pause")
	}
}

// TestCoreWaits: while Ready is not "true", nothing is prepared; when it is again, the store is
// listed first.
func TestCoreWaits(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	c := coreAt(t, now, ready, "true")
	c.prepare(now)
	c.committed(nil, 0, now)
	c.wire()
	change := func(rev int64, value string) {
		c.applyStore(follow.Update{Revision: rev, Events: []store.Event{{KV: store.KV{Key: ready, Value: []byte(value), ModRevision: rev}}}})
	}
	change(2, "false")
	if p := c.prepare(now); p.ready || c.waiting.cause != errNotReady.Error() {
		t.Errorf("not ready: %+v, waiting for %q", p, c.waiting.cause)
	}
	change(3, "true")
	if r, p := c.takeRequests(), c.prepare(now); !r.relist || p.ready {
		t.Errorf("ready again: the store is listed: %v, and changes prepared: %v", r.relist, p.ready)
	}
}

// TestCoreIsPure: the files of the core import nothing that has side effects, and read no clock.
func TestCoreIsPure(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"core.go", "model.go", "unreadable.go", "links.go", "endpoints.go", "wiring.go", "upkeep.go", "status.go", "metrics.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range f.Imports {
			if slices.Contains([]string{`"context"`, `"os"`, `"net"`, `"sync"`, `"math/rand/v2"`, `"heddle/internal/store"`}, i.Path.Value) {
				t.Errorf("%s imports %s", name, i.Path.Value)
			}
		}
		if text, err := os.ReadFile(name); err != nil || strings.Contains(string(text), "time.Now") {
			t.Errorf("%s reads the clock, or cannot be read: %v", name, err)
		}
	}
}
