package ovs_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"heddle/internal/netlab"
	"heddle/internal/ovsdb"
	"heddle/internal/xen/ovs"
)

// BenchmarkLegs makes the legs of 100 networks over 8 hosts with standing bridges, centers spread,
// one transaction a host, and waits until every switch has them: 1,400 ports. The goal for the
// whole controller is 10 s.
func BenchmarkLegs(b *testing.B) {
	const networks = 100
	l := netlab.OVSForTest(b, 8)
	hosts := l.Hosts()
	clients := make([]*ovs.Client, len(hosts))
	for i, h := range hosts {
		clients[i] = follow(b, h, func(o *ovsdb.Options) { o.Timeout = time.Minute })
	}
	onAll := func(edit func(i int, e *ovs.Edit) error) {
		b.Helper()
		var all errgroup.Group
		for i, c := range clients {
			all.Go(func() error {
				e := ovs.NewEdit(c.Snapshot(), ours)
				if err := edit(i, e); err != nil {
					return err
				}
				snap, _, err := c.Apply(b.Context(), e.Ops()...)
				if err != nil {
					return err
				}
				for _, iface := range snap.Interfaces {
					if iface.OfPort <= 0 && iface.Error != "" {
						return fmt.Errorf("host %s: %s: %s", hosts[i].Name, iface.Name, iface.Error)
					}
				}
				return nil
			})
		}
		if err := all.Wait(); err != nil {
			b.Fatal(err)
		}
	}
	start := time.Now()
	onAll(func(_ int, e *ovs.Edit) error {
		for n := range networks {
			if err := e.EnsureBridge(ovs.BridgeSpec{Name: fmt.Sprintf("xapi%d", n), DatapathType: "netdev"}); err != nil {
				return err
			}
		}
		return nil
	})
	bridges := time.Since(start)
	legs := func(i int, do func(bridge string, spec ovs.PortSpec) error) error {
		for n := range networks {
			center := n % len(hosts)
			for j, peer := range hosts {
				if i != j && (i == center || j == center) {
					if err := do(fmt.Sprintf("xapi%d", n), leg("gre", peer, n+1)); err != nil {
						return err
					}
				}
			}
		}
		return nil
	}
	for b.Loop() {
		onAll(func(i int, e *ovs.Edit) error { return legs(i, e.EnsurePort) })
		b.StopTimer()
		onAll(func(i int, e *ovs.Edit) error {
			return legs(i, func(_ string, p ovs.PortSpec) error { return e.DeletePort(p.Name) })
		})
		b.StartTimer()
	}
	b.ReportMetric(bridges.Seconds(), "s/bridges")
}

// BenchmarkFollow connects to a database of 2,000 rows until all are known.
func BenchmarkFollow(b *testing.B) {
	address := database(b, asItIs)
	writer := dial(b, ovsdb.Options{Address: address})
	if _, err := writer.Transact(b.Context(), ovsdb.Insert(ovs.Database, "", ovsdb.Row{})); err != nil {
		b.Fatal(err)
	}
	e := ovs.NewEdit(writer.Snapshot(), ours)
	for n := range 100 {
		name := "xapi" + strconv.Itoa(n)
		if err := e.EnsureBridge(ovs.BridgeSpec{Name: name}); err != nil {
			b.Fatal(err)
		}
		for p := range 8 {
			if err := e.EnsurePort(name, ovs.PortSpec{Name: fmt.Sprintf("t%d-%d", n, p), Type: "gre",
				Options: map[string]string{"remote_ip": fmt.Sprintf("198.18.0.%d", p), "key": strconv.Itoa(n)}}); err != nil {
				b.Fatal(err)
			}
		}
	}
	if _, err := writer.Transact(b.Context(), e.Ops()...); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		c, err := ovs.Dial(b.Context(), ovsdb.Options{Address: address})
		if err != nil {
			b.Fatal(err)
		}
		s := c.Snapshot()
		if n := len(s.Bridges) + len(s.Ports) + len(s.Interfaces); n < 1900 {
			b.Fatalf("%d rows", n)
		}
		c.Close()
	}
}

// BenchmarkAddPort adds a tunnel port and waits for the switch.
func BenchmarkAddPort(b *testing.B) {
	l := netlab.OVSForTest(b, 1)
	c := follow(b, l.Hosts()[0])
	change(b, c, bridge("xapi0"))
	spec := ovs.PortSpec{Name: "gre0", Type: "gre", Options: map[string]string{"remote_ip": "198.18.0.9", "key": "7"}}
	for b.Loop() {
		if snap := change(b, c, port("xapi0", spec)); snap.Interface("gre0").OfPort <= 0 {
			b.Fatal(snap.Interface("gre0").Error)
		}
		b.StopTimer()
		change(b, c, func(e *ovs.Edit) error { return e.DeletePort("gre0") })
		b.StartTimer()
	}
}
