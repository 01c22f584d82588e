package overlay

import (
	"net/netip"
	"testing"
	"time"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

func source(port string, n byte) flow.Learned {
	return flow.Learned{NetworkID: "net", MAC: packet.MAC{2, 0, 0, 0, 0, n}, PortID: port}
}

func TestSightings(t *testing.T) {
	x := newSightings("h")
	s, fresh := x.mac(source("p", 1), 0, portSightings)
	if !fresh || s.host != "h" || s.port != "p" {
		t.Errorf("first seen: %+v, %v", s, fresh)
	}
	if again, fresh := x.mac(source("p", 1), time.Second, portSightings); fresh || again != s {
		t.Error("seen again, and told again")
	}
	moved, fresh := x.mac(source("q", 1), 2*time.Second, portSightings)
	if !fresh || moved.port != "q" || x.byPort["p"] != 0 {
		t.Errorf("moved: %+v, %v", moved, fresh)
	}
	x.seen(s, 3*time.Second) // by a flow that is as yet remembered
	if got := x.takePort("p"); got != nil {
		t.Errorf("behind the old port: %v", got)
	}
	ip := flow.LearnedNeighbour{NetworkID: "net", IP: netip.MustParseAddr("192.0.2.1"), MAC: packet.MAC{2, 0, 0, 0, 0, 1}}
	if n, fresh := x.neighbour("q", ip, 2*time.Second, portSightings); !fresh || n.ip != ip.IP {
		t.Error("a neighbour is not told")
	}
	ip.MAC[5] = 9
	if _, fresh := x.neighbour("q", ip, 2*time.Second, portSightings); !fresh {
		t.Error("another MAC of a neighbour is not told")
	}
	if old := x.takeOld(2*time.Second + sightingTTL - 1); old != nil {
		t.Errorf("too early: %v", old)
	}
	if old := x.takeOld(2*time.Second + sightingTTL); len(old) != 2 {
		t.Errorf("old: %v", old)
	}
}

// TestSightingsOfAPortAreBounded: a machine that makes up addresses does not fill the store, and
// others are seen.
func TestSightingsOfAPortAreBounded(t *testing.T) {
	x := newSightings("h")
	for i := range 2 * portSightings {
		l := source("p", byte(i))
		l.MAC[4] = byte(i >> 8)
		if s, _ := x.mac(l, 0, portSightings); (s != nil) != (i < portSightings) {
			t.Fatalf("address %d: %v", i, s)
		}
	}
	if s, _ := x.mac(source("q", 1), 0, portSightings); s == nil {
		t.Error("another port's address is refused") // it has moved here: the entry is its own now
	}
	if got := len(x.takePort("p")) + len(x.takePort("q")); got != portSightings || x.over != portSightings || len(x.known) != 0 || x.order.Len() != 0 {
		t.Errorf("%d taken, %d over, %d left", got, x.over, len(x.known))
	}
}
