package demo

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/listeners"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/loadbalancers"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/monitors"
	"github.com/gophercloud/gophercloud/v2/openstack/loadbalancer/v2/pools"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"

	"heddle/internal/netlab"
)

const (
	balancedPort = allowedPort + 4
	// noticed bounds the time from a member's end until it gets no connection: one check that
	// fails, a second after the last one, and what haproxy and the hosts need.
	noticed = 4 * time.Second
)

// showBalancer balances connections over two machines, one of which is killed under load.
func (d *demo) showBalancer(ctx context.Context, c *cast) error {
	rule, err := c.blue.Allow(ctx, c.web, rules.CreateOpts{Protocol: rules.ProtocolTCP, PortRangeMin: balancedPort, PortRangeMax: balancedPort})
	if err != nil {
		return err
	}
	defer func() { _ = c.blue.Forbid(context.WithoutCancel(ctx), rule) }() // goes with its group otherwise
	one, err := c.a1.serve(balancedPort)
	if err != nil {
		return err
	}
	defer one.Close()
	two, err := c.a2.serve(balancedPort)
	if err != nil {
		return err
	}
	defer func() { _ = two.Close() }() // also when it was closed
	vip, err := d.makeBalancer(ctx, c)
	if err != nil {
		return fmt.Errorf("load balancer: %w", err)
	}
	both := func() (string, error) { return c.a3.askBoth(ctx, vip) }
	d.check("balancer: connections of a3 reach both of its members", "a1 and a2", both)
	load := startLoad(ctx, c.a3, vip)
	defer load.Close()
	killed := time.Now()
	if err := two.Close(); err != nil {
		return err
	}
	d.checkWithin("a2's service killed under load: connections reach a1 alone", noticed, func() (time.Duration, error) {
		return load.steadyAfter(ctx, killed)
	})
	if two, err = c.a2.serve(balancedPort); err != nil {
		return err
	}
	d.check("a2's service is back: it gets its share again", "a1 and a2", both)
	return nil
}

// makeBalancer makes a load balancer for a1 and a2 by one call of Octavia's API, and returns its
// address.
func (d *demo) makeBalancer(ctx context.Context, c *cast) (vip string, err error) {
	client, err := openstack.NewLoadBalancerV2(c.blue.API.ProviderClient, gophercloud.EndpointOpts{})
	if err != nil {
		return "", err
	}
	members := make([]pools.CreateMemberOpts, 2)
	for i, w := range []*workload{c.a1, c.a2} {
		members[i] = pools.CreateMemberOpts{Name: w.Name, Address: w.Address(false), ProtocolPort: balancedPort}
	}
	lb, err := loadbalancers.Create(ctx, client, loadbalancers.CreateOpts{
		Name: "web", VipSubnetID: c.subnet(),
		Listeners: []listeners.CreateOpts{{
			Name: "web", Protocol: listeners.ProtocolTCP, ProtocolPort: balancedPort,
			DefaultPool: &pools.CreateOpts{
				Name: "web", Protocol: pools.ProtocolTCP, LBMethod: pools.LBMethodRoundRobin, Members: members,
				Monitor: monitors.CreateOpts{Type: monitors.TypeTCP, Delay: 1, Timeout: 1, MaxRetries: 1, MaxRetriesDown: 1},
			},
		}},
	}).Extract()
	if err != nil {
		return "", err
	}
	d.undo.Add("load balancer", func(ctx context.Context) error {
		return loadbalancers.Delete(ctx, client, lb.ID, loadbalancers.DeleteOpts{Cascade: true}).ExtractErr()
	})
	return lb.VipAddress, nil
}

// subnet returns the id of blue's IPv4 subnet.
func (c *cast) subnet() string {
	for _, f := range c.a1.Port.FixedIPs {
		if f.IPAddress == c.a1.Address(false) {
			return f.SubnetID
		}
	}
	return ""
}

// askBoth connects to a balancer until both members have answered.
func (w *workload) askBoth(ctx context.Context, vip string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*noticed)
	defer cancel()
	seen := map[string]bool{}
	err := netlab.Until(ctx, "answers of both members", func() (bool, error) {
		got, err := w.ask(ctx, vip, balancedPort)
		if err == nil { // a member that is down refuses
			seen[got] = true
		}
		return seen["a1 answered"] && seen["a2 answered"], nil
	})
	if err != nil {
		return fmt.Sprint("only ", seen), nil
	}
	return "a1 and a2", nil
}

// load connects to a balancer all the time.
type load struct {
	io.Closer
	bad atomic.Int64 // time in Unix ns of the last connection that a1 did not answer
	run atomic.Int64 // connections in a row that it did answer
}

type cancelCloser func()

func (f cancelCloser) Close() error { f(); return nil }

// startLoad has a workload connect, again and again, until it is closed.
func startLoad(ctx context.Context, from *workload, vip string) *load {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{Closer: cancelCloser(cancel)}
	go func() {
		for ctx.Err() == nil {
			if got, err := from.ask(ctx, vip, balancedPort); err != nil || got != "a1 answered" {
				l.run.Store(0)
				l.bad.Store(time.Now().UnixNano())
				continue
			}
			l.run.Add(1)
		}
	}()
	return l
}

// steadyAfter waits until many connections in a row reach a1, and returns how long after a moment
// the last other one was.
func (l *load) steadyAfter(ctx context.Context, since time.Time) (time.Duration, error) {
	const many = 100 // by chance once in 2^100 times with two members
	ctx, cancel := context.WithTimeout(ctx, 2*noticed)
	defer cancel()
	err := netlab.Until(ctx, "connections to a1 alone", func() (bool, error) { return l.run.Load() >= many, nil })
	return max(0, time.Unix(0, l.bad.Load()).Sub(since)), err
}
