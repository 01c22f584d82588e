package overlay

import (
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// TestLiveFrames: a frame answers the requests that it is like, each once, and requests beyond a
// bound are refused.
func TestLiveFrames(t *testing.T) {
	t.Parallel()
	var refused []string
	l := &liveFrames{publish: func(r *flow.TraceRequest, a flow.TraceAnswer) {
		if a.Error != "" {
			refused = append(refused, r.ID)
		}
	}}
	a, b := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	f := &packet.Frame{EtherType: packet.TypeIPv4, SrcIP: a, DstIP: b, Proto: packet.ProtoTCP, HasTp: true, TpSrc: 4000, TpDst: 80}
	add := func(id, port string, want flow.LiveFrames) {
		l.add(&flow.TraceRequest{ID: id, PortID: port, Live: &want})
	}
	take := func(dropped bool) (ids []string) {
		for _, r := range l.take("p", f, dropped) {
			ids = append(ids, r.ID)
		}
		return ids
	}
	like := flow.LiveFrames{Src: a, Dst: b, Proto: packet.ProtoTCP, DstPort: 80}
	add("like", "p", like)
	add("elsewhere", "q", like)
	other := like
	other.DstPort = 81
	add("other", "p", other)
	from := like
	from.SrcPort = 4001
	add("from", "p", from)
	dropped := like
	dropped.Dropped = true
	add("dropped", "p", dropped)
	if got := take(false); !slices.Equal(got, []string{"like"}) {
		t.Errorf("a frame that passes answers %q", got)
	}
	if got := take(true); !slices.Equal(got, []string{"dropped"}) {
		t.Errorf("a frame that is dropped answers %q", got)
	}
	l.remove("other")
	if n := l.waiting.Load(); n != 2 {
		t.Errorf("%d requests wait, want 2", n)
	}
	for i := range mostLive {
		add(strconv.Itoa(i), "p", like)
	}
	if !slices.Equal(refused, []string{"14", "15"}) {
		t.Errorf("refused %q", refused)
	}
}
