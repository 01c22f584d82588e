package simulate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// logging has p1 in group client, and p2 in group web, which lets in TCP to 80, of tenant "t".
func logging() *lab {
	l := newLab()
	l.network("net")
	l.group("client")
	l.group("web", allowPort("web/80", packet.ProtoTCP, 80))
	for i, g := range []string{"client", "web"} {
		p := machine(i+1, g)
		b := p.bundle()
		for j := range b.Chains {
			b.Chains[j].TenantID = fmt.Sprint("tenant", i+1)
		}
		l.Apply(p.owner(), b)
	}
	return l
}

func (l *lab) logger(x topology.Logger) []string {
	return l.Apply(owner("log", x.ID), &topology.Bundle{Loggers: []topology.Logger{x}})
}

// logged sends a packet and returns what of it is logged, and by which rule.
func (l *lab) logged(t *testing.T, port string, frame []byte) string {
	t.Helper()
	d := l.send(port, frame)
	var all []string
	for i := range d.Logged {
		x := &d.Logged[i]
		all = append(all, fmt.Sprint(x.Log, " ", x.Event(), " ", x.PortID, " ", x.Rule))
		if says := "logged as " + x.Event() + " by log " + x.Log; !strings.Contains(walk(d), says) {
			t.Errorf("%q is not in the walk\n%s", says, walk(d))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// TestLogged: loggers of a group, a port, both and a tenant note what they ask for, once.
func TestLogged(t *testing.T) {
	t.Parallel()
	web, p2 := []string{"web/egress", "web/ingress"}, []string{"p2/in", "p2/out"}
	open, closed, reply := tcp(1, 2, 4000, 80), tcp(1, 2, 4000, 81), tcp(2, 1, 80, 4000)
	forged := tcp(1, 2, 4000, 80)
	forged[29] = 9 // source address
	for _, tt := range []struct {
		name                        string
		x                           topology.Logger
		open, reply, closed, forged string
	}{
		{"group", topology.Logger{Accepts: true, Drops: true, GroupChainIDs: web}, "x ACCEPT p2 web/80", "", "x DROP p2 p2/out/last", ""},
		{"group, accepted", topology.Logger{Accepts: true, GroupChainIDs: web}, "x ACCEPT p2 web/80", "", "", ""},
		{"group, dropped", topology.Logger{Drops: true, GroupChainIDs: web}, "", "", "x DROP p2 p2/out/last", ""},
		{"port", topology.Logger{Accepts: true, Drops: true, ChainIDs: p2}, "x ACCEPT p2 web/80", "x ACCEPT p2 p2/in/2", "x DROP p2 p2/out/last", ""},
		{"group on a port", topology.Logger{Accepts: true, Drops: true, ChainIDs: p2, GroupChainIDs: web}, "x ACCEPT p2 web/80", "", "x DROP p2 p2/out/last", ""},
		{"another group on the port", topology.Logger{Accepts: true, Drops: true, ChainIDs: p2, GroupChainIDs: []string{"client/egress", "client/ingress"}}, "", "", "", ""},
		{"tenant", topology.Logger{Accepts: true, Drops: true, TenantID: "tenant1"}, "x ACCEPT p1 client/any4", "x ACCEPT p1 p1/out/1", "x ACCEPT p1 client/any4", ""},
		{"another tenant", topology.Logger{Accepts: true, Drops: true, TenantID: "tenant3"}, "", "", "", ""},
	} {
		l := logging()
		tt.x.ID = "x"
		l.logger(tt.x)
		for _, packet := range []struct {
			name, from string
			frame      []byte
			want       string
		}{{"open", "p1", open, tt.open}, {"reply", "p2", reply, tt.reply}, {"closed", "p1", closed, tt.closed}, {"forged", "p1", forged, tt.forged}} {
			if got := l.logged(t, packet.from, packet.frame); got != packet.want {
				t.Errorf("%s, %s: logged %q, want %q", tt.name, packet.name, got, packet.want)
			}
		}
	}
}

// TestLoggedPacket: a record has the packet as the filter saw it.
func TestLoggedPacket(t *testing.T) {
	t.Parallel()
	l := logging()
	l.logger(topology.Logger{ID: "x", Drops: true, ChainIDs: []string{"p2/in", "p2/out"}})
	d := l.send("p1", tcp(1, 2, 4000, 81))
	if len(d.Logged) != 1 {
		t.Fatalf("logged %v", d.Logged)
	}
	got := d.Logged[0]
	want := got
	want.TenantID, want.Ingress, want.Chain, want.InPort, want.OutPort = "tenant2", true, "p2/out", "p1", "p2"
	want.Proto, want.Src, want.Dst, want.HasPorts, want.SrcPort, want.DstPort = packet.ProtoTCP, addr(1), addr(2), true, 4000, 81
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	ping := ipv4(1, 2, packet.IPv4{Proto: packet.ProtoICMP}, packet.ICMP{Type: 8, Rest: packet.EchoRest(7, 1)}.Append(nil, nil))
	if d := l.send("p1", ping); len(d.Logged) != 1 || d.Logged[0].SrcPort != 8 || d.Logged[0].DstPort != 0 {
		t.Errorf("echo: %+v", d.Logged)
	}
}

// TestLoggersCome: loggers and what they name may come and go in any order; ports that they are
// about are decided anew, and no reference is left.
func TestLoggersCome(t *testing.T) {
	t.Parallel()
	all := []topology.Logger{
		{ID: "b", Accepts: true, GroupChainIDs: []string{"web/egress", "web/ingress"}},
		{ID: "a", Accepts: true, Drops: true, ChainIDs: []string{"p2/in", "p2/out"}},
		{ID: "c", Accepts: true, TenantID: "tenant2"},
	}
	const want = "a ACCEPT p2 web/80, b ACCEPT p2 web/80, c ACCEPT p2 web/80"
	l := logging()
	for i := range all {
		wantAffected(t, "logger "+all[i].ID, l.logger(all[i]), "p2")
	}
	if got := l.logged(t, "p1", tcp(1, 2, 4000, 80)); got != want {
		t.Errorf("logged %q, want %q", got, want)
	}
	wantAffected(t, "the same again", l.logger(all[0]))
	web := groupBundle("web", allowPort("web/80", packet.ProtoTCP, 80))
	l.Apply(owner("security-group", "web"), nil)
	l.Apply(owner("security-group", "web"), web)
	if got := l.logged(t, "p1", tcp(1, 2, 4001, 80)); got != want {
		t.Errorf("after the group came back: logged %q, want %q", got, want)
	}
	for i := range all {
		wantAffected(t, "no logger "+all[i].ID, l.Apply(owner("log", all[i].ID), nil), "p2")
	}
	if got := l.logged(t, "p1", tcp(1, 2, 4002, 80)); got != "" {
		t.Errorf("without loggers: logged %q", got)
	}
	empty := newLab()
	for i := range all {
		empty.logger(all[i])
	}
	for i := range all {
		empty.Apply(owner("log", all[i].ID), nil)
	}
	if !empty.Empty() {
		t.Error("loggers that are gone leave references")
	}
}
