package overlay

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestPingAndTCP(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n := l.network("blue")
	g := l.group(everything()...)
	l.start()
	a, b, c := n.machine(l.hosts[0], g), n.machine(l.hosts[0], g), n.machine(l.hosts[1], g)
	b.listen("tcp", 80)
	c.listen("tcp", 80)
	for _, to := range []*machine{b, c} {
		where := "on another host"
		if to.host == a.host {
			where = "on one host"
		}
		if err := a.ping(to.v4, 3); err != nil {
			t.Errorf("%s: %v", where, err)
		}
		if err := a.ping(to.v6, 3); err != nil {
			t.Errorf("%s: %v", where, err)
		}
		conn, err := a.dial(to.v4, 80, 5*time.Second)
		if err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		if err := exchange(conn, 4<<20, 10*time.Second); err != nil {
			t.Errorf("%s: %v", where, err)
		}
		conn.Close()
	}
}

// TestNegativeTables: an agent refuses tables of a negative size before it opens any.
func TestNegativeTables(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{MaxFlows: -5}, {MaxConnections: -5}, {MaxTranslations: -5}} {
		o.HostID, o.HostName, o.TunnelIP = "00000000-0000-0000-0000-000000000001", "h1", netip.MustParseAddr("192.0.2.1")
		if err := New(o).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "none can be negative") {
			t.Errorf("%d flows, %d connections, %d translations: %v", o.MaxFlows, o.MaxConnections, o.MaxTranslations, err)
		}
	}
}
