package hostkey

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"heddle/internal/topology"
)

const (
	hostA = "00000000-0000-4000-8000-00000000000a"
	hostB = "00000000-0000-4000-8000-00000000000b"
	hostC = "00000000-0000-4000-8000-00000000000c"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func load(t interface {
	Helper()
	Fatal(...any)
}, dir string, now time.Time) *Ring {
	t.Helper()
	r, err := Load(dir, now)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func derive(t interface {
	Helper()
	Fatal(...any)
}, p *Pairs, host string, k *topology.TunnelKeys, before *Pair) *Pair {
	t.Helper()
	x, err := p.Derive(host, k, before)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestPairsAgree(t *testing.T) {
	a, b, c := NewPairs(load(t, t.TempDir(), epoch), hostA, 1), NewPairs(load(t, t.TempDir(), epoch), hostB, 2), NewPairs(load(t, t.TempDir(), epoch), hostC, 3)
	ab, ba := derive(t, a, hostB, b.Public(), nil), derive(t, b, hostA, a.Public(), nil)
	ac, cb := derive(t, a, hostC, c.Public(), nil), derive(t, c, hostB, b.Public(), nil)
	if !slices.Equal(ab.Accept, []uint32{ba.Send}) || !slices.Equal(ba.Accept, []uint32{ab.Send}) {
		t.Errorf("a sends %x and accepts %x, b sends %x and accepts %x", ab.Send, ab.Accept, ba.Send, ba.Accept)
	}
	all := []uint32{ab.Send, ba.Send, ac.Send, ac.Accept[0], cb.Send, cb.Accept[0]}
	slices.Sort(all)
	if all[0] == 0 || len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("secrets of pairs and directions are not all different: %x", all)
	}
	// What a host has is no use for what two others share, even under their names.
	if forged := derive(t, NewPairs(c.ring, hostA, 1), hostB, b.Public(), nil); slices.Contains(ba.Accept, forged.Send) {
		t.Error("a host's keys gave another's secret")
	}
}

func TestHostsWithoutKeys(t *testing.T) {
	ring := load(t, t.TempDir(), epoch)
	a := NewPairs(ring, hostA, 1)
	if x := derive(t, a, hostB, nil, nil); x.Send != 0 || !slices.Equal(x.Accept, []uint32{0}) || !x.Plain || x.Sealed() {
		t.Errorf("with a host that publishes nothing: %+v", x)
	}
	low := make([]byte, 32) // a point of low order: everybody would share 0 with it
	for name, k := range map[string]*topology.TunnelKeys{
		"no key":        {},
		"three keys":    {Keys: [][]byte{low, low, low}},
		"short key":     {Keys: [][]byte{low[:31]}},
		"low order":     {Keys: [][]byte{low}},
		"open with two": {Keys: [][]byte{a.Public().Keys[0], a.Public().Keys[0]}, Open: true},
	} {
		if _, err := a.Derive(hostB, k, nil); err == nil || !strings.Contains(err.Error(), hostB) {
			t.Errorf("%s: %v, want an error that names the host", name, err)
		}
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	r := load(t, dir, epoch)
	info, err := os.Stat(filepath.Join(dir, FileName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v, %v; want mode 0600", info, err)
	}
	again := load(t, dir, epoch.Add(-time.Hour)) // the clock was set back
	if !bytes.Equal(again.Public().Keys[0], r.Public().Keys[0]) || again.Session() <= r.Session() {
		t.Errorf("after a restart: another key, or session %d after %d", again.Session(), r.Session())
	}
	for name, content := range map[string]string{"no JSON": "x", "no keys": `{}`, "short key": `{"keys":[{"private":"AAAA"}]}`} {
		if err := os.WriteFile(filepath.Join(dir, FileName), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(dir, epoch); err == nil || !strings.Contains(err.Error(), FileName) || !strings.Contains(err.Error(), "remove the file") {
			t.Errorf("%s: %v, want an error that names the file and what to do", name, err)
		}
	}
	if _, err := Load(filepath.Join(dir, "missing"), epoch); err == nil {
		t.Error("keys in a directory that is not there")
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	if len(left) != 1 {
		t.Errorf("files left: %v", left)
	}
}

// node is a host in TestRotationLosesNothing: what it publishes, and what it has read of the other.
type node struct {
	pairs *Pairs
	ring  *Ring
	peer  string
	store *topology.TunnelKeys // its record
	read  *topology.TunnelKeys // of the other
	lag   time.Duration        // since it read what the other has published last
	pair  *Pair
}

func (n *node) derive(t *rapid.T) { n.pair = derive(t, n.pairs, n.peer, n.read, n.pair) }

// TestRotationLosesNothing: however two hosts rotate, restart and lag behind the store, for as long
// as neither lags by more than a key settles, what either sends the other accepts. So also while
// both are upgraded from none.
func TestRotationLosesNothing(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		now := epoch
		var nodes [2]*node
		for i, id := range []string{hostA, hostB} {
			d, err := os.MkdirTemp(dir, "")
			if err != nil {
				t.Fatal(err)
			}
			n := &node{ring: load(t, d, now), peer: []string{hostB, hostA}[i]}
			n.pairs = NewPairs(n.ring, id, uint64(i))
			nodes[i] = n
		}
		upgraded := [2]bool{true, true}
		if rapid.Bool().Draw(t, "from an earlier version") {
			upgraded = [2]bool{}
		} else {
			for _, n := range nodes {
				n.store = n.pairs.Public()
			}
		}
		for i, n := range nodes {
			n.read = nodes[1-i].store
			n.derive(t)
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			i := rapid.IntRange(0, 1).Draw(t, "host")
			n, other := nodes[i], nodes[1-i]
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0: // time passes, but nobody lags for as long as a key settles
				d := rapid.SampledFrom([]time.Duration{time.Second, Settle / 2, Settle, Life}).Draw(t, "time")
				now = now.Add(d)
				for j, x := range nodes {
					if x.lag += d; x.lag >= Settle {
						x.read, x.lag = nodes[1-j].store, 0
						x.derive(t)
					}
				}
			case 1:
				n.read, n.lag = other.store, 0
				n.derive(t)
			case 2:
				if !upgraded[i] {
					upgraded[i] = true
					if err := n.ring.OpenForUpgrade(); err != nil {
						t.Fatal(err)
					}
					n.derive(t)
					n.store, other.lag = n.pairs.Public(), 0
					continue
				}
				change, err := n.ring.Step(now, true, true)
				if err != nil {
					t.Fatal(err)
				}
				if n.derive(t); change == Made || change == Dropped {
					n.store, other.lag = n.pairs.Public(), 0
				}
			case 3:
				n.ring = load(t, filepath.Dir(n.ring.path), now)
				n.pairs = NewPairs(n.ring, n.pairs.id, n.pairs.boot)
				n.pair = nil
				n.derive(t)
			}
			for i, n := range nodes {
				other := nodes[1-i]
				if !upgraded[i] || !upgraded[1-i] {
					// One of an earlier version sends and takes 0.
					if !upgraded[i] && !upgraded[1-i] {
						continue
					}
					if upgraded[i] && (n.read == nil && n.pair.Send != 0 || !slices.Contains(n.pair.Accept, 0)) {
						t.Fatalf("beside a host of an earlier version %s sends %x and accepts %x", n.pairs.id, n.pair.Send, n.pair.Accept)
					}
					continue
				}
				if !slices.Contains(other.pair.Accept, n.pair.Send) {
					t.Fatalf("%s sends %x, the other accepts %x", n.pairs.id, n.pair.Send, other.pair.Accept)
				}
				if len(n.pair.Accept) > 4 {
					t.Fatalf("%d secrets are accepted", len(n.pair.Accept))
				}
			}
		}
	})
}

func TestRotationIsDue(t *testing.T) {
	r := load(t, t.TempDir(), epoch)
	first := r.Public().Keys[0]
	step := func(at time.Duration, published, allAlive bool, want Change) {
		t.Helper()
		got, err := r.Step(epoch.Add(at), published, allAlive)
		if err != nil || got != want {
			t.Errorf("at %v: change %v, %v; want %v", at, got, err, want)
		}
	}
	step(Life-1, true, true, None)
	step(Life, false, true, None) // the store is away
	step(Life, true, true, Made)
	if k := r.Public().Keys; len(k) != 2 || !bytes.Equal(k[1], first) || bytes.Equal(k[0], first) {
		t.Error("the new key is not published before the old one")
	}
	at := Life + time.Hour
	step(at, false, true, None)
	step(at, true, true, None) // counts from here: now the store has it
	step(at+Settle-1, true, true, None)
	step(at+Settle, true, false, None) // a host is not heard of
	step(at+MaxWait, true, false, Switched)
	at += MaxWait
	step(at+Settle, true, true, Dropped)
	if k := r.Public().Keys; len(k) != 1 || bytes.Equal(k[0], first) {
		t.Error("the old key is still published")
	}
	step(at+2*Settle, true, true, Made) // it is older than a key lives
}

// TestMessages seals messages and has everything refused that is not one of them, once.
func TestMessages(t *testing.T) {
	dirA, dirB := t.TempDir(), t.TempDir()
	a, b := NewPairs(load(t, dirA, epoch), hostA, 1), NewPairs(load(t, dirB, epoch), hostB, 2)
	ab, ba := derive(t, a, hostB, b.Public(), nil), derive(t, b, hostA, a.Public(), nil)
	seal := func(p *Pair) (Head, []byte) {
		t.Helper()
		h, err := p.Next()
		if err != nil {
			t.Fatal(err)
		}
		return h, p.Seal(nil, h, []byte("as written"), []byte("hello"))
	}
	h, sealed := seal(ab)
	if m, err := ba.Open(h, []byte("as written"), sealed); err != nil || string(m) != "hello" {
		t.Fatalf("opened as %q, %v", m, err)
	}
	refused := func(name string, p *Pair, h Head, written string, sealed []byte) {
		t.Helper()
		if _, err := p.Open(h, []byte(written), sealed); !errors.Is(err, ErrForged) {
			t.Errorf("%s: %v, want ErrForged", name, err)
		}
	}
	refused("head written otherwise", ba, h, "As written", sealed)
	refused("truncated", ba, h, "as written", sealed[:len(sealed)-1])
	refused("empty", ba, h, "as written", nil)
	for i := range sealed {
		changed := bytes.Clone(sealed)
		changed[i] ^= 0x10
		refused("a byte changed", ba, h, "as written", changed)
	}
	for name, change := range map[string]func(*Head){
		"another counter": func(h *Head) { h.Counter++ }, "another session": func(h *Head) { h.Session++ },
		"unknown sender key": func(h *Head) { h.SenderKey++ }, "unknown receiver key": func(h *Head) { h.ReceiverKey++ },
	} {
		other := h
		change(&other)
		refused(name, ba, other, "as written", sealed)
	}
	refused("sent back", ab, h, "as written", sealed)
	c := NewPairs(load(t, t.TempDir(), epoch), hostC, 3)
	bc := derive(t, b, hostC, c.Public(), nil)
	refused("as if from another host", bc, h, "as written", sealed)
	if m, err := ba.Open(h, []byte("as written"), sealed); err != nil || string(m) != "hello" {
		t.Errorf("after all these: %q, %v", m, err)
	}
	// The receiver has lost what it knew of messages that have come.
	refused("for an earlier boot", derive(t, NewPairs(b.ring, hostB, 99), hostA, a.Public(), nil), h, "as written", sealed)
	// A restarted sender goes on with a later session.
	a = NewPairs(load(t, dirA, epoch), hostA, 1)
	again := derive(t, a, hostB, b.Public(), nil)
	h2, sealed2 := seal(again)
	if m, err := ba.Open(h2, []byte("as written"), sealed2); err != nil || string(m) != "hello" || h2.Session <= h.Session {
		t.Errorf("after a restart of the sender, session %d after %d: %q, %v", h2.Session, h.Session, m, err)
	}
	if !ba.Uses(h.SenderKey) || ba.Uses(h.SenderKey+1) {
		t.Error("the keys in use are others")
	}
	// Nothing derived anew uses a counter again.
	h3, _ := seal(derive(t, a, hostB, b.Public(), again))
	h4, _ := seal(derive(t, a, hostB, b.Public(), nil))
	if h3.Counter <= h2.Counter || h4.Counter <= h3.Counter && h4.Counter == h2.Counter {
		t.Errorf("counters %d, %d, %d", h2.Counter, h3.Counter, h4.Counter)
	}
}

func TestWindow(t *testing.T) {
	var w Window
	for i, c := range []struct {
		session, counter uint64
		want             bool
	}{
		{5, 100, true}, {5, 100, false}, {5, 101, true}, {5, 103, true}, {5, 102, true}, {5, 102, false}, {5, 101, false},
		{5, 40, true}, {5, 40, false}, {5, 39, false}, // 64 behind 103 is too far
		{5, 1000, true}, {5, 103, false}, {5, 937, true}, {5, 936, false},
		{4, 2000, false}, {6, 1, true}, {6, 1, false}, {5, 1001, false},
	} {
		if got := w.Accept(Head{Session: c.session, Counter: c.counter}); got != c.want {
			t.Errorf("%d: session %d counter %d accepted: %v", i, c.session, c.counter, got)
		}
	}
	back, err := ParseWindow(w.Append(nil))
	if err != nil || back != w {
		t.Errorf("read back %+v, %v; want %+v", back, err, w)
	}
	if _, err := ParseWindow(make([]byte, WindowSize-1)); err == nil {
		t.Error("a short window was read")
	}
}

// TestWindowIsExact: no message is accepted twice, and none that is new and no more than the
// window's width late is refused.
func TestWindowIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w Window
		seen, highest := map[uint64]bool{}, uint64(0)
		for range rapid.IntRange(1, 200).Draw(t, "messages") {
			n := rapid.Uint64Range(1, 300).Draw(t, "counter")
			want := !seen[n] && (n > highest || highest-n < windowWidth)
			if got := w.Accept(Head{Session: 1, Counter: n}); got != want {
				t.Fatalf("counter %d, highest %d, seen %v: accepted %v", n, highest, seen[n], got)
			}
			if want {
				seen[n], highest = true, max(highest, n)
			}
		}
	})
}

// FuzzOpen: no bytes of a stranger are opened.
func FuzzOpen(f *testing.F) {
	dirA, dirB := f.TempDir(), f.TempDir()
	ra, err := Load(dirA, epoch)
	rb, err2 := Load(dirB, epoch)
	if err := errors.Join(err, err2); err != nil {
		f.Fatal(err)
	}
	a, b := NewPairs(ra, hostA, 1), NewPairs(rb, hostB, 2)
	ba, err := b.Derive(hostA, a.Public(), nil)
	if err != nil {
		f.Fatal(err)
	}
	own, other := keyID(b.Public().Keys[0]), keyID(a.Public().Keys[0])
	f.Add(true, uint64(1), uint64(1), []byte("head"), []byte("sealed, or so it says, 16 bytes"))
	f.Add(false, uint64(0), uint64(0), []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, known bool, session, counter uint64, written, sealed []byte) {
		h := Head{Session: session, Counter: counter}
		if known {
			h.SenderKey, h.ReceiverKey = other, own
		}
		if m, err := ba.Open(h, written, sealed); err == nil {
			t.Errorf("opened %x as %x", sealed, m)
		}
	})
}

// BenchmarkDerive measures the cost of one host that is new or has changed its key, and one when
// this host has changed its own.
func BenchmarkDerive(b *testing.B) {
	a := NewPairs(load(b, b.TempDir(), epoch), hostA, 1)
	private, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	k := &topology.TunnelKeys{Keys: [][]byte{private.PublicKey().Bytes()}}
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			derive(b, a, hostB, k, nil)
		}
	})
	before := derive(b, a, hostB, k, nil)
	b.Run("unchanged key", func(b *testing.B) {
		for b.Loop() {
			derive(b, a, hostB, k, before)
		}
	})
}

// BenchmarkMessage measures what authentication adds to a message of two connections.
func BenchmarkMessage(b *testing.B) {
	one, two := NewPairs(load(b, b.TempDir(), epoch), hostA, 1), NewPairs(load(b, b.TempDir(), epoch), hostB, 2)
	to, from := derive(b, one, hostB, two.Public(), nil), derive(b, two, hostA, one.Public(), nil)
	body, written := make([]byte, 109), make([]byte, 26)
	var h Head
	var sealed []byte
	b.Run("seal", func(b *testing.B) {
		for b.Loop() {
			h, _ = to.Next()
			sealed = to.Seal(sealed[:0], h, written, body)
		}
	})
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			if _, err := from.Open(h, written, sealed); err != nil {
				b.Fatal(err)
			}
		}
	})
}
