package overlay

import (
	"net/netip"
	"testing"
	"time"

	"heddle/internal/neutron"
)

// short is the time for which a test waits for what must not come, and long that for what must.
const (
	short = 300 * time.Millisecond
	long  = 20 * time.Second
)

func TestSecurityGroupsDenyFromBothSides(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n := l.network("blue")
	egress := []neutron.SecurityGroupRule{allow("egress", "IPv4", "", 0), allow("egress", "IPv6", "", 0)}
	client := l.group(egress...)
	web := l.group(append(egress, allow("ingress", "IPv4", "tcp", 80), allow("ingress", "IPv6", "tcp", 80))...)
	mute := l.group(allow("egress", "IPv4", "udp", 53))
	l.start()
	a, near, far := n.machine(l.hosts[0], client), n.machine(l.hosts[0], web), n.machine(l.hosts[1], web)
	silent := n.machine(l.hosts[1], mute)
	for _, m := range []*machine{near, far, silent} {
		m.listen("tcp", 80)
		m.listen("tcp", 81)
	}
	a.listen("tcp", 80)
	for _, c := range []struct {
		name     string
		from, to *machine
		port     int
		want     bool
	}{
		{"allowed port on one host", a, near, 80, true},
		{"allowed port on another host", a, far, 80, true},
		{"other port on one host", a, near, 81, false},
		{"other port on another host", a, far, 81, false},
		{"back to who has no ingress rule, on one host", near, a, 80, false},
		{"back to who has no ingress rule, from another host", far, a, 80, false},
		{"from who may not send TCP", silent, far, 80, false},
		{"to who has no ingress rule", a, silent, 80, false},
	} {
		limit := short
		if c.want {
			limit = long
		}
		for family, to := range map[string]netip.Addr{"IPv4": c.to.v4, "IPv6": c.to.v6} {
			if err := connects(c.from, to, c.port, limit); (err == nil) != c.want {
				t.Errorf("%s, %s: connected %v (%v), want %v", c.name, family, err == nil, err, c.want)
			}
		}
	}
	if a.answers(near.v4) || a.answers(far.v6) {
		t.Error("a ping passed that no rule allows")
	}
}

// connects makes a TCP connection within a limit, and sends something both ways.
func connects(from *machine, to netip.Addr, port int, limit time.Duration) error {
	c, err := from.dial(to, port, limit)
	if err != nil {
		return err
	}
	defer c.Close()
	return exchange(c, 10000, long)
}

func TestTenantsWithTheSameSubnet(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	blue, red := l.network("blue"), l.network("red")
	g := l.group(everything()...)
	l.start()
	a, b := blue.machine(l.hosts[0], g), red.machine(l.hosts[0], g)
	c := blue.machine(l.hosts[0], g)
	if a.v4 != b.v4 {
		t.Fatalf("the tenants' machines have addresses %s and %s", a.v4, b.v4)
	}
	if err := a.ping(c.v4, 1); err != nil {
		t.Error(err)
	}
	if b.answers(c.v4) {
		t.Error("a machine of one tenant reached that of another")
	}
}

// TestRulesUnderTraffic: a rule that goes stops connections that are under way, and lets them go on
// when it comes back.
func TestRulesUnderTraffic(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"one host", "two hosts"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			hosts := 1
			if where == "two hosts" {
				hosts = 2
			}
			l := newLab(t, hosts)
			n := l.network("blue")
			out := allow("egress", "IPv4", "", 0)
			client, server := l.group(out), l.group(out, allow("ingress", "IPv4", "tcp", 80))
			l.start()
			a, b := n.machine(l.hosts[0], client), n.machine(l.hosts[hosts-1], server)
			b.listen("tcp", 80)
			c, err := a.dial(b.v4, 80, 5*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := exchange(c, 100000, 5*time.Second); err != nil {
				t.Fatal(err)
			}
			l.setRules(server, out)
			l.wait("the rule's end to be in force", func() bool { return exchange(c, 10, short) != nil })
			changed := time.Now()
			l.setRules(server, out, allow("ingress", "IPv4", "tcp", 80))
			l.wait("the rule to be in force again", func() bool {
				again, err := a.dial(b.v4, 80, short)
				if err != nil {
					return false
				}
				defer again.Close()
				return exchange(again, 10, short) == nil
			})
			t.Logf("rule written to connection made: %v", time.Since(changed))
		})
	}
}
