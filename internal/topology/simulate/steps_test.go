package simulate

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"heddle/internal/topology/flow"
)

// witnessed is a memory that knows when its entries were used.
type witnessed struct{ *Memory }

func (witnessed) ConnIdle(flow.ConnKey) (time.Duration, bool) { return 7 * time.Second, true }

func (witnessed) NATIdle(flow.NATKey) (time.Duration, bool) { return 0, false }

func (witnessed) NATHost(string, netip.Addr, uint16) string { return "h9" }

// TestStepsOfState: steps say what connections and translations they have met, in both directions,
// and what the packet's headers were before and after.
func TestStepsOfState(t *testing.T) {
	t.Parallel()
	l, pair := example(), clientAndServer()
	state := witnessed{NewMemory()}
	run := func(l *lab, port string, frame []byte, with State) *flow.Decision {
		return l.sim.Run(Input{PortID: port, Frame: frame, State: with, Explain: true})
	}
	step := func(d *flow.Decision, has func(flow.Step) bool) flow.Step {
		t.Helper()
		i := slices.IndexFunc(d.Walk, has)
		if i < 0 {
			t.Fatalf("no such step in\n%s", walk(d))
		}
		return d.Walk[i]
	}
	nat := func(s flow.Step) bool { return s.Translation != nil }
	conn := func(s flow.Step) bool { return s.Connection != nil && !s.Connection.New }

	there := frameSpec{n: 2, to: 2, src: ipY, dst: ipOut}.tcp(4000, 80)
	d := run(l, "p-y", there, state)
	s := step(d, nat)
	if s.Kind != flow.StepTranslation || s.Translation.Kind != flow.ForwardSNAT || !s.Translation.New || s.Translation.Host != "h9" || s.Translation.Idle != nil ||
		s.Translation.From != netip.AddrPortFrom(ipY, 4000) || s.Before.Src != ipY || s.Before.SrcPort != 4000 || s.After.Src != s.Translation.To.Addr() {
		t.Errorf("the translation: %+v", s)
	}
	left, sent := flow.Answer(d).State, delivered(t, d, there)
	if s := step(run(l, "p-y", there, Assume(state, left)), nat); s.Translation.New {
		t.Errorf("the next packet's translation: %+v", s)
	}
	d = run(l, "p-up", tcpReply(sent), Assume(state, left))
	if s := step(d, nat); s.Translation.Kind != flow.ReverseSNAT || s.Translation.New || s.Translation.Host != "h9" || s.After.Dst != ipY || s.After.DstPort != 4000 {
		t.Errorf("the reply's translation: %+v", s)
	}
	if d := run(l, "p-up", tcpReply(sent), state); d.Verdict == flow.Forward {
		t.Errorf("the reply passes without the state that the first packet has left:\n%s", walk(d))
	}

	d = run(pair, "p1", tcp(1, 2, 4000, 80), state)
	if s := step(d, conn); s.Connection.Known || s.Connection.Key.DstPort != 80 || *s.Connection.Idle != 7 {
		t.Errorf("a new connection: %+v", s)
	}
	answer := flow.Answer(d)
	if s := step(run(pair, "p2", tcp(2, 1, 80, 4000), Assume(state, answer.State)), conn); !s.Connection.Known {
		t.Errorf("its reply: %+v", s)
	}
	if s := step(run(pair, "p2", tcp(2, 1, 80, 4000), NewMemory()), conn); s.Connection.Known || s.Connection.Idle != nil {
		t.Errorf("no reply: %+v", s)
	}
}
