package overlay

import (
	"bytes"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/task"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

// lanPort holds the addresses of a localnet port, and the frames sent by it.
type lanPort struct {
	macs []packet.MAC
	sent [][]byte
}

func (p *lanPort) Homes(datapath.Port) ([]packet.MAC, error) { return slices.Clone(p.macs), nil }

func (p *lanPort) SetHomes(_ datapath.Port, macs ...packet.MAC) error {
	p.macs = append(p.macs, macs...)
	return nil
}

func (p *lanPort) DeleteHomes(_ datapath.Port, macs ...packet.MAC) error {
	p.macs = slices.DeleteFunc(p.macs, func(m packet.MAC) bool { return slices.Contains(macs, m) })
	return nil
}

func (p *lanPort) Send(_ datapath.Output, frame []byte, _ datapath.Offload) error {
	p.sent = append(p.sent, frame)
	return nil
}

// TestHomes follows addresses that come and go, before and after their port is attached: what an
// earlier agent entered is not announced again, nor is what has gone by its turn.
func TestHomes(t *testing.T) {
	t.Parallel()
	p := &lanPort{}
	h := &homes{net: &virtualNetwork{world: simulate.NewWorld(simulate.Options{})}, dp: p, log: slog.New(slog.DiscardHandler), changed: map[home]bool{},
		networks: map[string]*homeNetwork{}, repeats: map[announcement]int{}, work: task.NewNotice()}
	mac := func(i int) packet.MAC { return packet.MAC{2, 0, 0, 0, 0, byte(i)} }
	p.macs = []packet.MAC{mac(0), mac(99)} // of an earlier agent; the last has gone since
	for i := range 25 {
		h.move(home{"n", mac(i)}, true)
	}
	if len(p.macs) != 2 {
		t.Fatalf("entered without a port: %v", p.macs)
	}
	h.attached("n", 7)
	if len(p.macs) != 25 || slices.Contains(p.macs, mac(99)) {
		t.Errorf("entered with the port: %v", p.macs)
	}
	for i, want := range []int{10, 20, 24} {
		if more := h.announce(announceBurst, time.Time{}); len(p.sent) != want || more != (want < 24) {
			t.Errorf("after turn %d: %d announced, more %t; want %d", i, len(p.sent), more, want)
		}
	}
	for _, frame := range p.sent {
		if bytes.Equal(frame[6:12], p.macs[0][:]) {
			t.Errorf("announced what was there before: %x", frame)
		}
	}
	h.move(home{"n", mac(30)}, true)
	h.move(home{"n", mac(31)}, true)
	h.move(home{"n", mac(30)}, false)
	h.announce(announceBurst, time.Time{})
	last := p.sent[len(p.sent)-1]
	if len(p.sent) != 25 || !bytes.Equal(last[6:12], []byte{2, 0, 0, 0, 0, 31}) || slices.Contains(p.macs, mac(30)) {
		t.Errorf("%d announced, the last %x; entered: %v", len(p.sent), last, p.macs)
	}
	// To all: reverse request 3 for its own address (RFC 903).
	if want := append(append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, last[6:12]...), 0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3); !bytes.Equal(last[:22], want) || len(last) != 60 {
		t.Errorf("announced by %x", last)
	}
	h.detached("n")
	for i := range 32 {
		h.move(home{"n", mac(i)}, false)
	}
	if len(h.networks) > 0 {
		t.Errorf("left: %v", h.networks)
	}
}

// TestDefences: an address is announced at once after a conflict, after more of them once a second,
// and not without one.
func TestDefences(t *testing.T) {
	t.Parallel()
	p := &lanPort{}
	h := &homes{net: &virtualNetwork{world: simulate.NewWorld(simulate.Options{})}, dp: p, log: slog.New(slog.DiscardHandler), changed: map[home]bool{},
		networks: map[string]*homeNetwork{}, repeats: map[announcement]int{}, work: task.NewNotice()}
	mac := packet.MAC{2, 0, 0, 0, 0, 1}
	h.attached("n", 7)
	h.move(home{"n", mac}, true)
	start := time.Now()
	conflict := []flow.Conflict{{NetworkID: "n", MAC: mac}}
	pass := func(after time.Duration, want int) {
		t.Helper()
		h.repeatDue(start.Add(after))
		h.announce(announceBurst, start.Add(after))
		if len(p.sent) != want {
			t.Errorf("after %v: %d announcements, want %d", after, len(p.sent), want)
		}
	}
	pass(0, 1) // it has come here
	h.defend(conflict)
	pass(0, 2)
	for range 100 {
		h.defend(conflict)
	}
	pass(repeatEvery-1, 2)
	pass(repeatEvery, 3)
	pass(2*repeatEvery, 3)
	if len(h.repeats)+len(h.repeated) > 0 {
		t.Errorf("left: %v, %v", h.repeats, h.repeated)
	}
	h.defend(conflict)
	h.defend([]flow.Conflict{{NetworkID: "n", MAC: packet.MAC{2, 0, 0, 0, 0, 2}}, {NetworkID: "n", MAC: mac, IP: netip.MustParseAddr("192.0.2.1")}})
	pass(3*repeatEvery, 4) // of what is not at home here, or has no such address, nothing is announced
}
