package flowstate

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"heddle/internal/topology/flow"
)

// TestEnds: a connection lives for ten seconds after its end and as long as ever while it has not
// ended in both directions, or goes on after a RST.
func TestEnds(t *testing.T) {
	e := dnat4(1)
	forward, replies := e.NATKey, e.Reverse().NATKey
	type packet struct {
		key   flow.NATKey
		signs Ends
		at    time.Duration
	}
	for _, c := range []struct {
		name    string
		packets []packet
		until   time.Duration
	}{
		{"open", []packet{{forward, 0, 5 * second}}, 65 * second},
		{"half-closed", []packet{{forward, FIN, 5 * second}, {replies, 0, 6 * second}}, 66 * second},
		{"half-closed by the server", []packet{{replies, FIN, 5 * second}, {forward, 0, 6 * second}}, 66 * second},
		{"FIN twice in one direction", []packet{{forward, FIN, 5 * second}, {forward, FIN, 6 * second}}, 66 * second},
		{"closed", []packet{{forward, FIN, 5 * second}, {replies, FIN, 6 * second}, {forward, FIN, 7 * second}}, 17 * second},
		{"closed, and read in another order", []packet{{replies, FIN, 6 * second}, {forward, FIN, 5 * second}}, 16 * second},
		{"reset", []packet{{forward, RST, 5 * second}}, 15 * second},
		{"reset by the server", []packet{{replies, RST, 5 * second}}, 15 * second},
		{"reset, and replies under way", []packet{{forward, RST, 5 * second}, {replies, 0, 6 * second}}, 16 * second},
		{"the same, read in another order", []packet{{replies, 0, 6 * second}, {forward, RST, 5 * second}}, 16 * second},
		{"begun anew", []packet{{forward, FIN, 5 * second}, {replies, FIN, 5 * second}, {forward, Anew, 7 * second}, {replies, Anew, 8 * second}}, 68 * second},
		{"begun anew, and closed", []packet{{forward, FIN, 5 * second}, {replies, FIN, 5 * second}, {forward, Anew | FIN, 7 * second}, {replies, Anew | FIN, 8 * second}}, 18 * second},
		{"a forged RST, then replies", []packet{{forward, RST, 5 * second}, {replies, 0, 8 * second}}, 68 * second},
		{"the same, read in another order", []packet{{replies, 0, 8 * second}, {forward, RST, 5 * second}}, 68 * second},
		{"a forged RST, read again", []packet{{forward, RST, 5 * second}, {replies, 0, 8 * second}, {forward, RST, 5 * second}}, 68 * second},
	} {
		tab := NewTranslations(TranslationOptions{})
		tab.Add([]flow.NATEntry{e}, portA, nil, 0)
		for _, p := range c.packets {
			if !tab.Observe(p.key, p.signs, p.at) {
				t.Fatalf("%s: no translation", c.name)
			}
		}
		tab.Expire(c.until - 1)
		if _, ok := tab.Get(replies, c.until-1); !ok {
			t.Errorf("%s: gone just before %v", c.name, c.until)
		}
		tab.Expire(c.until)
		if tab.Stats().Entries != 0 || len(tab.TakeGone()) != 1 {
			t.Errorf("%s: still there at %v", c.name, c.until)
		}
	}
	if NewTranslations(TranslationOptions{}).Observe(forward, RST, 0) {
		t.Error("observed a translation that is not there")
	}
}

// TestEndsInAnyOrder: the ends of connections are read in any order, and each is forgotten in time.
func TestEndsInAnyOrder(t *testing.T) {
	first, last := dnat4(1), dnat4(2)
	for _, order := range [][]flow.NATEntry{{first, last}, {last, first}} {
		tab := NewTranslations(TranslationOptions{})
		tab.Add([]flow.NATEntry{first}, portA, nil, 0)
		tab.Add([]flow.NATEntry{last}, portA, nil, 5*second)
		for _, e := range order {
			tab.Observe(e.Reverse().NATKey, FIN, 0)
			tab.Observe(e.NATKey, FIN, 0)
		}
		tab.Expire(12 * second)
		if gone := tab.TakeGone(); !slices.Equal(gone, []flow.NATEntry{first}) {
			t.Errorf("gone %v, want the first alone", gone)
		}
	}
}

// TestEndsLeaveStickyClients: the member for a client stays when a connection of the client ends.
func TestEndsLeaveStickyClients(t *testing.T) {
	tab, e := NewTranslations(TranslationOptions{}), sticky4(1, 300)
	tab.Add([]flow.NATEntry{e}, portA, nil, 0)
	tab.Observe(e.NATKey, RST|FIN, 0)
	tab.Expire(299 * second)
	if tab.Stats().Entries != 1 {
		t.Error("the member for the client is gone")
	}
}

// TestEndedCountNoMore: a member's connections are those that live.
func TestEndedCountNoMore(t *testing.T) {
	tab, ended, open := NewTranslations(TranslationOptions{}), dnat4(1), dnat4(2)
	tab.Add([]flow.NATEntry{ended, open}, portA, nil, 0)
	target := flow.Endpoint{Device: ended.Device, Addr: ended.Addr, Port: ended.Port, Proto: ended.Proto}
	tab.Observe(ended.NATKey, RST, 1*second)
	tab.Expire(11 * second)
	if n := tab.To(target); n != 1 {
		t.Errorf("%d connections to the target, want the open one", n)
	}
}

// pair is two hosts: a has opened a connection, whose replies come in at b.
type pair struct {
	t    testing.TB
	a, b *Translations
	e    flow.NATEntry
}

func newPair(t testing.TB) *pair {
	p := &pair{t, NewTranslations(TranslationOptions{HostID: hostA}), NewTranslations(TranslationOptions{HostID: hostB}), dnat4(1)}
	p.a.Add([]flow.NATEntry{p.e}, portA, []string{hostB}, 0)
	p.b.Import([]flow.NATEntry{p.e}, hostA, 0)
	return p
}

// deliver sends what is due until nothing is, as messages, and returns their number.
func (p *pair) deliver(now time.Duration) (n int) {
	p.t.Helper()
	for {
		toB, toA := p.a.TakeEnds(now)[hostB], p.b.TakeEnds(now)[hostA]
		if len(toA)+len(toB) == 0 {
			return n
		}
		if n += len(toA) + len(toB); n > 10 {
			p.t.Fatal("the hosts never stop sending")
		}
		p.b.ImportEnds(sent(p.t, toB), hostA, now)
		p.a.ImportEnds(sent(p.t, toA), hostB, now)
	}
}

// sent returns ends as the receiver of messages reads them.
func sent(t testing.TB, ends []End) (got []End) {
	t.Helper()
	bodies, err := (&State{Ends: ends}).Bodies()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bodies {
		s, err := ParseBody(b)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, s.Ends...)
	}
	return got
}

// wantGone checks when both hosts forget the connection.
func (p *pair) wantGone(a, b time.Duration) {
	p.t.Helper()
	for i, tab := range []*Translations{p.a, p.b} {
		at := []time.Duration{a, b}[i]
		if tab.Expire(at - 1); tab.Stats().Entries != 1 {
			p.t.Errorf("host %c has forgotten it before %v", 'a'+i, at)
		}
		if tab.Expire(at); tab.Stats().Entries != 0 {
			p.t.Errorf("host %c still has it at %v", 'a'+i, at)
		}
	}
}

func TestEndsOnTwoHosts(t *testing.T) {
	replies := func(p *pair) flow.NATKey { return p.e.Reverse().NATKey }
	t.Run("closed", func(t *testing.T) {
		p := newPair(t)
		p.a.Observe(p.e.NATKey, FIN, 20*second)
		if n := p.deliver(22 * second); n != 0 {
			t.Errorf("%d messages about one direction", n)
		}
		p.b.Observe(replies(p), FIN, 20*second)
		if n := p.deliver(25 * second); n != 2 {
			t.Errorf("%d messages, want one each way", n)
		}
		p.wantGone(30*second, 30*second)
	})
	t.Run("half-closed", func(t *testing.T) {
		p := newPair(t)
		p.b.Observe(replies(p), FIN, 5*second)
		p.deliver(6 * second)
		p.a.Observe(p.e.NATKey, 0, 7*second)
		p.deliver(8 * second)
		p.wantGone(67*second, 95*second)
	})
	t.Run("reset by the client", func(t *testing.T) {
		p := newPair(t)
		p.a.Observe(p.e.NATKey, RST, 5*second)
		if n := p.deliver(12 * second); n != 1 {
			t.Errorf("%d messages, want one", n)
		}
		p.wantGone(15*second, 15*second)
	})
	t.Run("reset by the server", func(t *testing.T) {
		p := newPair(t)
		p.b.Observe(replies(p), RST, 5*second)
		p.deliver(12 * second)
		p.wantGone(15*second, 15*second)
	})
	t.Run("a use before the end is read after it", func(t *testing.T) {
		p := newPair(t)
		p.a.Observe(p.e.NATKey, RST, 31*second)
		p.b.Observe(replies(p), 0, 30*second)
		for host, entries := range p.b.TakeDue() {
			if host == hostA {
				p.a.Import(entries, hostB, 40*second)
			}
		}
		p.deliver(40 * second)
		p.wantGone(41*second, 41*second)
	})
	t.Run("a forged RST at one host, replies at the other", func(t *testing.T) {
		p := newPair(t)
		p.a.Observe(p.e.NATKey, RST, 5*second)
		p.deliver(6 * second)
		p.b.Observe(replies(p), 0, 12*second)
		p.a.Observe(p.e.NATKey, RST, 5*second)
		p.deliver(13 * second)
		p.wantGone(72*second, 102*second)
	})
	t.Run("begun anew", func(t *testing.T) {
		p := newPair(t)
		p.a.Observe(p.e.NATKey, FIN, 5*second)
		p.b.Observe(replies(p), FIN, 5*second)
		p.deliver(6 * second)
		p.a.Use(p.e.NATKey, portA, []string{hostB}, 14*second)
		entry, hosts := p.a.Renew(p.e.NATKey)
		if entry != p.e || !slices.Equal(hosts, []string{hostB}) {
			t.Errorf("the new connection is told as %v to %v", entry, hosts)
		}
		p.b.ImportEnds(sent(t, []End{{NATEntry: entry, Ends: Anew}}), hostA, 14*second)
		p.deliver(14 * second)
		p.wantGone(74*second, 104*second)
	})
	t.Run("the server's FIN is void", func(t *testing.T) {
		p := newPair(t)
		p.b.Observe(replies(p), FIN, 5*second)
		p.deliver(5 * second)
		p.b.Observe(replies(p), Anew, 6*second)
		p.a.Observe(p.e.NATKey, FIN, 6*second)
		p.deliver(6 * second)
		p.wantGone(66*second, 96*second)
	})
	t.Run("begun anew when the other host has forgotten it", func(t *testing.T) {
		p := newPair(t)
		p.b.Delete([]flow.NATKey{p.e.NATKey})
		if fresh := p.b.ImportEnds([]End{{NATEntry: p.e, Ends: Anew}}, hostA, 14*second); !slices.Equal(fresh, []flow.NATEntry{p.e}) {
			t.Errorf("new: %v", fresh)
		}
		p.wantGone(60*second, 104*second)
	})
	t.Run("a host that has nothing to do with it", func(t *testing.T) {
		p := newPair(t)
		for _, tab := range []*Translations{p.a, p.b} {
			tab.ImportEnds([]End{{NATEntry: p.e, Ends: RST}}, hostC, 5*second)
		}
		p.wantGone(60*second, 90*second)
	})
	t.Run("another translation with the same key", func(t *testing.T) {
		p := newPair(t)
		other := p.e
		other.Port++
		p.a.ImportEnds([]End{{NATEntry: other, Ends: RST}}, hostB, 5*second)
		p.wantGone(60*second, 90*second)
	})
}

// TestLivingConnectionStays: whatever signs two hosts see and tell, late or not at all, neither
// forgets a connection that each has seen in use within ten seconds.
func TestLivingConnectionStays(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p, now := newPair(t), time.Duration(0)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			now += time.Duration(rapid.IntRange(0, 9000).Draw(rt, "ms")) * time.Millisecond
			p.a.Observe(p.e.NATKey, Ends(rapid.SampledFrom([]Ends{0, FIN, RST, FIN | RST}).Draw(rt, "signs")), now)
			p.b.Observe(p.e.Reverse().NATKey, Ends(rapid.SampledFrom([]Ends{0, FIN, RST}).Draw(rt, "replies' signs")), now)
			switch rapid.IntRange(0, 3).Draw(rt, "then") {
			case 0:
				p.deliver(now)
			case 1:
				p.a.TakeEnds(now)
			case 2:
				p.b.TakeEnds(now)
			}
			p.a.Expire(now)
			p.b.Expire(now)
			if p.a.Stats().Entries != 1 || p.b.Stats().Entries != 1 {
				rt.Fatalf("at %v: %d and %d", now, p.a.Stats().Entries, p.b.Stats().Entries)
			}
		}
	})
}

// TestFullTableEvictsByAge: an ended connection is not evicted before one that is idle for longer:
// its RST may be forged.
func TestFullTableEvictsByAge(t *testing.T) {
	tab := NewTranslations(TranslationOptions{Max: 2})
	idle, reset, fresh := dnat4(1), dnat4(2), dnat4(3)
	tab.Add([]flow.NATEntry{idle}, portA, nil, 0)
	tab.Add([]flow.NATEntry{reset}, portA, nil, 1*second)
	tab.Observe(reset.NATKey, RST, 1*second)
	tab.Add([]flow.NATEntry{fresh}, portA, nil, 2*second)
	if gone := tab.TakeGone(); !slices.Equal(gone, []flow.NATEntry{idle}) {
		t.Errorf("evicted %v, want %v", gone, idle)
	}
}

func TestEndBytes(t *testing.T) {
	want := []End{{dnat4(1), FIN | ReplyFIN, 7 * second}, {dnat4(2), Anew, 0}, {dnat4(3), 0, 255 * second}}
	bodies, err := (&State{Ends: want}).Bodies()
	if err != nil || len(bodies) != 1 {
		t.Fatalf("%d bodies, %v", len(bodies), err)
	}
	b := bodies[0]
	if b[0] != 0xC0|3 || len(b) != 1+3*74 || !bytes.Equal(b[1+72:1+74], []byte{3, 7}) {
		t.Errorf("got % x", b)
	}
	if s, err := ParseBody(b); err != nil || !reflect.DeepEqual(s, State{Ends: want}) {
		t.Errorf("read %+v, %v", s, err)
	}
	long, err := (&State{Ends: []End{{dnat4(1), RST, time.Hour}}}).Bodies()
	if err != nil || long[0][len(long[0])-1] != 255 {
		t.Errorf("an hour is % x, %v", long, err)
	}
	for _, c := range []struct {
		name  string
		at    int
		to    byte
		wants string
	}{
		{"none", 0, 0xC0, "says it holds 0"},
		{"too many", 0, 0xC0 | 16, "says it holds 16"},
		{"signs", 1 + 72, 16, "unknown signs 0x10"},
		{"anew and a FIN", 1 + 72, 9, "unknown signs 0x9"},
		{"of a member for a client", 1, flagSticky, "in a message of others"},
	} {
		bad := bytes.Clone(b)
		bad[c.at] = c.to
		if _, err := ParseBody(bad); err == nil || !strings.Contains(err.Error(), c.wants) {
			t.Errorf("%s: got error %v, want one with %q", c.name, err, c.wants)
		}
	}
	if _, err := (&State{Ends: []End{{NATEntry: sticky4(1, 300)}}}).Bodies(); err == nil {
		t.Error("the end of a member for a client was accepted")
	}
}
