package simulate

import (
	"testing"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// twoMachines are p1 and p2 in group web, which lets in TCP 80.
func twoMachines() *lab {
	l := newLab()
	l.network("net")
	l.group("web", allowPort("http", packet.ProtoTCP, 80))
	l.port(machine(1, "web"))
	l.port(machine(2, "web"))
	return l
}

func TestUnicastThroughGroups(t *testing.T) {
	t.Parallel()
	l := twoMachines()
	expect(t, l.send("p1", tcp(1, 2, 4000, 22)), flow.Drop)
	d := l.send("p1", tcp(1, 2, 4000, 80))
	expect(t, d, flow.Forward, "p2")
	if !d.Cacheable || !d.Tracked || d.Return || len(d.NewConns) != 2 || d.Learn != nil {
		t.Errorf("got %+v", d)
	}
	d = l.send("p2", tcp(2, 1, 80, 4000))
	expect(t, d, flow.Forward, "p1")
	if !d.Return || len(d.NewConns) != 0 {
		t.Errorf("the reply is taken for a new connection\n%s", walk(d))
	}
	expect(t, l.send("p2", tcp(2, 1, 81, 4000)), flow.Drop)
}
