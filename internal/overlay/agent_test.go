package overlay

import (
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
