package flowstate

import (
	"slices"
	"testing"
	"time"

	"heddle/internal/topology/flow"
)

// TestStickyLife: the member for a client lives as long as its pool says after its last use, beside
// connections that live as ever; a host that received it keeps it half as long again.
func TestStickyLife(t *testing.T) {
	tab := NewTranslations(TranslationOptions{})
	short, long, usual := sticky4(1, 20), sticky4(2, 300), dnat4(3)
	tab.Add([]flow.NATEntry{long, usual, usual.Reverse(), short}, portA, nil, 0)
	has := func(now time.Duration, want ...flow.NATEntry) {
		t.Helper()
		var got []flow.NATEntry
		tab.Expire(now)
		for _, e := range []flow.NATEntry{short, long, usual} {
			if b, ok := tab.Get(e.NATKey, now); ok && b == e.NATBinding {
				got = append(got, e)
			}
		}
		if !slices.Equal(got, want) || tab.Stats().Entries != len(want) {
			t.Errorf("at %v: %v of %d, want %v", now, got, tab.Stats().Entries, want)
		}
	}
	has(19*second, short, long, usual)
	has(20*second, long, usual)
	tab.Touch(long.NATKey, 50*second)
	has(60*second, long)
	has(349*second, long)
	has(350 * second)
	tab.Import([]flow.NATEntry{long}, hostA, 0)
	has(449*second, long)
	has(450 * second)
}

// Hosts beside hostA.
const (
	hostB = "00000000-0000-4000-8000-00000000000b"
	hostC = "00000000-0000-4000-8000-00000000000c"
)

// TestStickyConflict: two hosts that chose other members for a client agree on the choice of the
// one with the lower id, whatever the order of their messages, and so does a third.
func TestStickyConflict(t *testing.T) {
	low, high := sticky4(1, 300), sticky4(1, 300)
	high.Port = 9
	for _, first := range []string{hostA, hostB} {
		hosts := map[string]*Translations{}
		for _, id := range []string{hostA, hostB, hostC} {
			hosts[id] = NewTranslations(TranslationOptions{HostID: id})
		}
		hosts[hostA].Add([]flow.NATEntry{low}, portA, []string{hostB, hostC}, 0)
		hosts[hostB].Add([]flow.NATEntry{high}, portA, []string{hostC}, 0) // it does not know that A has the client too
		sends := []func(){
			func() {
				hosts[hostB].Import([]flow.NATEntry{low}, hostA, 0)
				hosts[hostC].Import([]flow.NATEntry{low}, hostA, 0)
			},
			func() {
				hosts[hostA].Import([]flow.NATEntry{high}, hostB, 0)
				hosts[hostC].Import([]flow.NATEntry{high}, hostB, 0)
			},
		}
		if first == hostB {
			slices.Reverse(sends)
		}
		sends[0]()
		sends[1]()
		for id, x := range hosts {
			if b, ok := x.Get(low.NATKey, 0); !ok || b != low.NATBinding {
				t.Errorf("%s first: host %s has %v", first, id, b)
			}
		}
		if gone := hosts[hostB].TakeGone(); !slices.Equal(gone, []flow.NATEntry{high}) {
			t.Errorf("%s first: the loser forgot %v", first, gone)
		}
		if due := hosts[hostA].TakeDue(); !slices.Equal(due[hostB], []flow.NATEntry{low}) {
			t.Errorf("%s first: A sends %v", first, due)
		}
	}
}

// TestStickyChangesMember: a host that sends a client to another member than before replaces its
// own choice on the hosts that have it.
func TestStickyChangesMember(t *testing.T) {
	before, after := sticky4(1, 300), sticky4(1, 300)
	after.Port = 9
	x := NewTranslations(TranslationOptions{HostID: hostB})
	x.Import([]flow.NATEntry{before}, hostA, 0)
	x.Import([]flow.NATEntry{after}, hostA, 0)
	if b, ok := x.Get(after.NATKey, 0); !ok || b != after.NATBinding {
		t.Errorf("the client goes to %v, want %v", b, after.NATBinding)
	}
}

// TestCounts: connections to a VIP count for its limit on the host that let them in, and for their
// member wherever they are known.
func TestCounts(t *testing.T) {
	tab := NewTranslations(TranslationOptions{})
	e, other := dnat4(1), dnat4(2)
	vip := flow.Endpoint{Device: e.Device, Addr: e.Dst, Port: e.DstPort, Proto: e.Proto}
	member := flow.Endpoint{Device: e.Device, Addr: e.Addr, Port: e.Port, Proto: e.Proto}
	want := func(what string, letIn, to int) {
		t.Helper()
		if a, b := tab.LetIn(vip), tab.To(member); a != letIn || b != to {
			t.Errorf("%s: %d let in and %d to the member, want %d and %d", what, a, b, letIn, to)
		}
	}
	tab.Add([]flow.NATEntry{e, sticky4(1, 300)}, portA, nil, 0)
	tab.Import([]flow.NATEntry{other}, hostA, 0)
	want("one of each host", 1, 2)
	tab.Use(other.NATKey, portA, nil, 0)
	want("the other comes in here", 2, 2)
	tab.Delete([]flow.NATKey{e.NATKey, dnat4(9).NATKey})
	want("one deleted", 1, 1)
	if gone := tab.TakeGone(); !slices.Equal(gone, []flow.NATEntry{e}) {
		t.Errorf("gone %v", gone)
	}
	tab.Expire(500 * second)
	want("all expired", 0, 0)
	if len(tab.letIn)+len(tab.targets) != 0 {
		t.Errorf("left %v, %v", tab.letIn, tab.targets)
	}
}
