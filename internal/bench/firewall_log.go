package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/layer3/routers"

	"heddle/internal/lab"
	"heddle/internal/netlab"
)

// loggedRate is the rate of new flows beside which a firewall's log is measured, per second.
const loggedRate = 1000

// firewallLog compares flow set-ups through a router whose firewall logs all with those through one
// whose firewall logs nothing (services §14, row 11): at a steady rate, and as fast as one core
// sends.
func (b *bench) firewallLog(ctx context.Context, x *balancing) error {
	var paths [2]netlab.Path
	for i, logs := range []bool{true, false} {
		var err error
		if paths[i], err = x.fenced(ctx, i, logs); err != nil {
			return err
		}
	}
	if err := warm(ctx, paths[:]...); err != nil {
		return err
	}
	if err := b.loggedSteadily(ctx, x, paths[:]); err != nil {
		return err
	}
	b.logf("firewall log: as many flows as one core opens")
	rates, err := netlab.Alternate(ctx, paths[:], b.slices, func(p netlab.Path) (float64, error) { return x.setUpsOf(ctx, p, b.slice()) })
	if err != nil {
		return err
	}
	b.add(ratio("firewall log: flow set-ups/s, as many as one core opens / without", rates[0], rates[1], atLeast(0.95),
		fmt.Sprintf("%.0f / %.0f a second", netlab.Median(rates[0]), netlab.Median(rates[1]))))
	return nil
}

// loggedSteadily compares set-ups of flows that begin at loggedRate.
func (b *bench) loggedSteadily(ctx context.Context, x *balancing, paths []netlab.Path) error {
	b.logf("firewall log: %d new flows a second", loggedRate)
	before, err := x.logRecords(ctx)
	if err != nil {
		return err
	}
	openers := map[string]*flowOpener{}
	for _, p := range paths {
		o, err := newFlowOpener(p)
		if err != nil {
			return err
		}
		defer o.conn.Close()
		openers[p.Name] = o
	}
	n := int(loggedRate * b.slice().Seconds())
	rates, err := netlab.Alternate(ctx, paths, b.slices, func(p netlab.Path) (float64, error) { return x.steadySetUps(ctx, openers[p.Name], n) })
	if err != nil {
		return err
	}
	after, err := x.logRecords(ctx)
	if err != nil {
		return err
	}
	if after.written == before.written {
		return fmt.Errorf("firewall log: nothing was written")
	}
	b.add(ratio(fmt.Sprintf("firewall log: flow set-ups/s at %d a second / without", loggedRate), rates[0], rates[1], atLeast(0.95),
		fmt.Sprintf("%.0f / %.0f a second; %.0f records written, %.0f suppressed", netlab.Median(rates[0]), netlab.Median(rates[1]),
			after.written-before.written, after.suppressed-before.suppressed)))
	return nil
}

// fenced makes a router with a firewall between two networks of its own, and returns the path
// through it.
func (x *balancing) fenced(ctx context.Context, i int, logs bool) (p netlab.Path, err error) {
	r, err := routers.Create(ctx, x.tenant.API, routers.CreateOpts{Name: fmt.Sprintf("fenced%d", i)}).Extract()
	if err != nil {
		return p, fmt.Errorf("router: %w", err)
	}
	var ends [2]*lab.Workload
	for side := range ends {
		name, net := fmt.Sprintf("f%d%d", i, side), fmt.Sprintf("10.%d.0", 20+2*i+side)
		network, err := x.tenant.Network(ctx, name, net+".0/16", "")
		if err != nil {
			return p, err
		}
		if ends[side], err = x.place(ctx, x.tenant, name, x.h1, network.ID, net+".10", x.group); err != nil {
			return p, err
		}
		subnet := ends[side].Port.FixedIPs[0].SubnetID
		if _, err := routers.AddInterface(ctx, x.tenant.API, r.ID, routers.AddInterfaceOpts{SubnetID: subnet}).Extract(); err != nil {
			return p, fmt.Errorf("interface of the router: %w", err)
		}
		if err := ends[side].NS.IP("route add default via " + net + ".1"); err != nil {
			return p, err
		}
	}
	if err := x.fence(ctx, r.ID, logs); err != nil {
		return p, err
	}
	if p, err = path("Heddle, firewall", ends[0], ends[1]); logs {
		p.Name += " that logs"
	}
	return p, err
}

// fence gives a router a firewall that allows all, and a log of that if it is to.
func (x *balancing) fence(ctx context.Context, router string, logs bool) error {
	allow, err := x.tenant.Create(ctx, "firewall_rule", map[string]any{"action": "allow"}, "fw", "firewall_rules")
	if err != nil {
		return err
	}
	policy, err := x.tenant.Create(ctx, "firewall_policy", map[string]any{"name": "bench", "firewall_rules": []string{allow}}, "fw", "firewall_policies")
	if err != nil {
		return err
	}
	firewall, err := x.tenant.Create(ctx, "firewall", map[string]any{"firewall_policy_id": policy, "router_ids": []string{router}}, "fw", "firewalls")
	if err != nil || !logs {
		return err
	}
	resource, err := x.tenant.Create(ctx, "logging_resource", map[string]any{"name": "bench", "enabled": true}, "logging", "logging_resources")
	if err != nil {
		return err
	}
	_, err = x.tenant.Create(ctx, "firewall_log", map[string]any{"firewall_id": firewall, "fw_event": "ALL"}, "logging", "logging_resources", resource, "firewall_logs")
	return err
}

// setUpsOf opens flows for a time as fast as one core can, and returns the rate of set-ups.
func (x *balancing) setUpsOf(ctx context.Context, p netlab.Path, d time.Duration) (float64, error) {
	before, err := x.setUp(ctx)
	if err != nil {
		return 0, err
	}
	limited, stop := context.WithTimeout(ctx, d)
	defer stop()
	if _, err := p.Scan(limited, 0); err != nil {
		return 0, err
	}
	after, err := x.setUp(ctx)
	return (after.flows - before.flows) / after.at.Sub(before.at).Seconds(), err
}

// steadySetUps opens n flows at loggedRate, waits until the agent has set up so many, and returns
// their rate.
func (x *balancing) steadySetUps(ctx context.Context, o *flowOpener, n int) (float64, error) {
	before, err := x.setUp(ctx)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := o.open(n); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, lab.StartTimeout)
	defer cancel()
	var after effort
	err = netlab.Until(ctx, fmt.Sprintf("%d flows to be set up", n), func() (bool, error) {
		var err error
		after, err = x.setUp(ctx)
		return after.flows >= before.flows+float64(n), err
	})
	return (after.flows - before.flows) / after.at.Sub(begun).Seconds(), err
}

// flowOpener begins flows: datagrams from one socket, each to another port.
type flowOpener struct {
	conn net.PacketConn
	to   netip.Addr
	next uint16 // port
}

func newFlowOpener(p netlab.Path) (o *flowOpener, err error) {
	o = &flowOpener{to: p.Address, next: 1024}
	return o, p.Client.Do(func() (err error) {
		o.conn, err = net.ListenPacket("udp4", ":0")
		return err
	})
}

// open begins n flows at loggedRate. What it is late with follows at once.
func (o *flowOpener) open(n int) error {
	begun := time.Now()
	for i := range n {
		time.Sleep(time.Until(begun.Add(time.Duration(i) * time.Second / loggedRate)))
		if _, err := o.conn.WriteTo([]byte("flow"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(o.to, o.next))); err != nil {
			return err
		}
		o.next++
	}
	return nil
}

// logRecords counts records of logs.
type logRecords struct{ written, suppressed float64 }

func (x *balancing) logRecords(ctx context.Context) (n logRecords, err error) {
	var err1, err2 error
	n.written, err1 = metric(ctx, x.h1.NS, "heddle_overlay_log_records_total", "")
	n.suppressed, err2 = metric(ctx, x.h1.NS, "heddle_overlay_log_records_suppressed_total", "")
	return n, errors.Join(err1, err2)
}
