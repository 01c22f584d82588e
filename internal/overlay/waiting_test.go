package overlay

import (
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/flow"
)

func neighbourWait(n byte) flow.Wait {
	return flow.Wait{Device: "net", Neighbour: netip.AddrFrom4([4]byte{10, 0, 0, n})}
}

func arp() []flow.Emission { return []flow.Emission{{Frame: []byte("who has")}} }

func packetOf(port string, came time.Duration) *waitingPacket {
	return &waitingPacket{port: port, came: came, upcall: datapath.Upcall{Frame: []byte("packet")}}
}

func TestQuestionsAreRepeated(t *testing.T) {
	t.Parallel()
	w, key, from := newWaiting(), neighbourWait(1), &localPort{id: "p"}
	put := func(now time.Duration, wantAsk bool) {
		t.Helper()
		if ask, room := w.put(packetOf("p", now), key, w.wakes(), arp(), from, now); ask != wantAsk || !room {
			t.Errorf("at %v: ask %v, room %v; want %v", now, ask, room, wantAsk)
		}
	}
	put(0, true)
	put(time.Millisecond, false) // the question is on its way
	var asked []time.Duration
	over := 0
	for now := time.Duration(0); now <= 10*time.Second; now += 10 * time.Millisecond {
		d := w.take(now)
		over += len(d.over)
		for range d.repeat {
			asked = append(asked, now)
		}
	}
	if len(asked) != 2 || asked[0] < 750*time.Millisecond || asked[0] > 1260*time.Millisecond || asked[1] < asked[0]+1500*time.Millisecond {
		t.Errorf("asked again at %v", asked)
	}
	if over != 2 || w.count() != 0 || len(w.waits) != 0 || len(w.byPort) != 0 {
		t.Errorf("%d packets are over, %d wait; %v, %v", over, w.count(), w.waits, w.byPort)
	}
	put(20*time.Second, true)
}

func TestWoken(t *testing.T) {
	t.Parallel()
	w := newWaiting()
	from := &localPort{id: "p"}
	w.put(packetOf("p", 1), neighbourWait(1), w.wakes(), arp(), from, 1)
	w.put(packetOf("p", 1), neighbourWait(2), w.wakes(), arp(), from, 1)
	w.put(packetOf("p", 1), flow.Wait{Device: "r", NATAddr: netip.MustParseAddr("192.0.2.1")}, w.wakes(), nil, from, 1)
	before := w.wakes()
	w.wake(func(x flow.Wait) bool { return x == neighbourWait(1) })
	if d := w.take(2); len(d.woken) != 1 || len(d.over) != 0 || w.count() != 2 {
		t.Errorf("%d woken, %d over, %d wait", len(d.woken), len(d.over), w.count())
	}
	// What this one waits for came while it was simulated; when it comes back it waits.
	late := packetOf("p", 3)
	if ask, _ := w.put(late, neighbourWait(1), before, arp(), from, 3); ask {
		t.Error("asks for what may have come")
	}
	if d := w.take(3); len(d.woken) != 1 || d.woken[0] != late {
		t.Errorf("woken %v", d.woken)
	}
	if ask, _ := w.put(late, neighbourWait(1), w.wakes(), arp(), from, 4); !ask || w.count() != 3 {
		t.Errorf("ask %v, %d wait", ask, w.count())
	}
}

// TestWaitingIsBounded: whatever comes and goes, no port has more packets waiting than its share,
// and the counts are those of the packets.
func TestWaitingIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, now := newWaiting(), time.Duration(1)
		from := &localPort{id: "p"}
		model := map[string]int{}
		gone := func(all ...*waitingPacket) {
			for _, p := range all {
				model[p.port]--
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				port := rapid.SampledFrom([]string{"p", "q"}).Draw(t, "port")
				for range rapid.IntRange(1, 50).Draw(t, "packets") {
					_, room := w.put(packetOf(port, now), neighbourWait(rapid.Byte().Draw(t, "neighbour")), w.wakes(), arp(), from, now)
					if room != (model[port] < waitingOfPort) {
						t.Fatalf("room %v for the packet after %d", room, model[port])
					}
					if room {
						model[port]++
					}
				}
			},
			"wake": func(t *rapid.T) {
				n := rapid.Byte().Draw(t, "neighbour")
				w.wake(func(x flow.Wait) bool { return x == neighbourWait(n) })
			},
			"take": func(t *rapid.T) {
				now += time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond
				d := w.take(now)
				gone(d.woken...)
				gone(d.over...)
				for _, p := range d.over {
					if now < p.came+waitMost {
						t.Fatalf("over after %v", now-p.came)
					}
				}
			},
			"": func(t *rapid.T) {
				if w.count() != model["p"]+model["q"] || w.byPort["p"] != model["p"] || w.byPort["q"] != model["q"] {
					t.Fatalf("%d wait, %v; want %v", w.count(), w.byPort, model)
				}
			},
		})
	})
}

// TestWaitReason: what is dropped because it waits names what it waits for.
func TestWaitReason(t *testing.T) {
	t.Parallel()
	nat := flow.Decision{Verdict: flow.Postponed, Wait: flow.Wait{Device: "r", NATAddr: netip.MustParseAddr("192.0.2.1")}}
	for _, c := range []struct {
		d    flow.Decision
		full string
		over string
	}{
		{nat, "too many packets wait for NAT ports", "waited too long for NAT ports"},
		{flow.Decision{Verdict: flow.Postponed, Wait: neighbourWait(1)}, "too many packets wait for neighbours", "waited too long for a neighbour"},
		{flow.Decision{Verdict: flow.ErrorDrop}, "too many packets wait for neighbours", "waited too long for a neighbour"},
	} {
		full, over := waitReason(&c.d, dropWaitingNeighbour, dropWaitingNAT), waitReason(&c.d, dropOverdueNeighbour, dropOverdueNAT)
		if full.String() != c.full || over.String() != c.over {
			t.Errorf("%+v: %q and %q", c.d.Wait, full, over)
		}
	}
}

func TestErrorLimit(t *testing.T) {
	t.Parallel()
	l := newPortLimit(errorsAtOnce, errorEvery)
	now, n := time.Hour, 0
	for l.allow("p", now) {
		n++
	}
	if n != errorsAtOnce {
		t.Errorf("%d at once", n)
	}
	if l.allow("p", now+errorEvery-1) || !l.allow("p", now+errorEvery) || l.allow("p", now+errorEvery) {
		t.Error("another one is allowed too soon, or too late")
	}
	if !l.allow("q", now) {
		t.Error("one port's errors count against another")
	}
	l.forget("p")
	if !l.allow("p", now) {
		t.Error("a port that has gone is remembered")
	}
}
