package hostnet

import (
	"net/netip"
	"os"
	"sync"
	"testing"
)

func TestNamespaceDo(t *testing.T) {
	l := kernel(t)
	must(t, func() error { _, err := l.AddLink(LinkSpec{Name: "x", Kind: Bridge}); return err }())
	home, err := CurrentNamespace()
	must(t, err)
	defer home.Close()
	must(t, l.namespace.Do(func() error {
		here, err := OpenNamespace("/proc/thread-self/ns/net")
		if err != nil {
			return err
		}
		defer here.Close()
		same, err := here.Same(l.namespace)
		if err == nil && !same {
			t.Error("Do ran outside the namespace")
		}
		return err
	}))
	same, err := home.Same(l.namespace)
	must(t, err)
	if same {
		t.Error("a new namespace is the old one")
	}
	_, err = OpenNamespace("no-such-namespace")
	wantErr(t, "open", err, ErrNotFound)
}

// TestFakeLosesEvents: a reader that does not read is told that it has lost its place, and nobody
// waits for it.
func TestFakeLosesEvents(t *testing.T) {
	f := NewFake(nil)
	events, err := f.Watch(t.Context())
	must(t, err)
	_, err = f.AddLink(LinkSpec{Name: "a", Kind: Bridge})
	must(t, err)
	for range watchQueue + 10 {
		must(t, f.SetMTU("a", 1400))
	}
	for range watchQueue {
		<-events
	}
	must(t, f.AddAddress("a", netip.MustParsePrefix("192.0.2.1/24")))
	if e := <-events; e.Kind != Lost {
		t.Errorf("got %+v, want Lost", e)
	}
}

// TestMainThread: a process stays in its network namespace for other programs, however many of its
// threads are in others.
func TestMainThread(t *testing.T) { // alone: 500 threads at once are enough
	home, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 500 {
		all.Go(func() {
			ns, err := NewNamespace()
			if err != nil {
				t.Error(err)
				return
			}
			defer ns.Close()
			if err := ns.Do(func() error {
				if now, err := os.Readlink("/proc/self/ns/net"); now != home || err != nil {
					t.Errorf("the process is in the network %s (%v), want %s", now, err, home)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// TestCurrentNamespace: it is that of the calling thread.
func TestCurrentNamespace(t *testing.T) {
	t.Parallel()
	ns, err := NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	compare := func(where string, want bool) {
		t.Helper()
		now, err := CurrentNamespace()
		if err != nil {
			t.Fatal(err)
		}
		defer now.Close()
		if same, err := now.Same(ns); same != want || err != nil {
			t.Errorf("%s: in the new namespace: %t, %v; want %t", where, same, err, want)
		}
	}
	compare("outside", false)
	if err := ns.Do(func() error {
		compare("inside", true)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	compare("after it", false)
}
