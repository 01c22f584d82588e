package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"
	"golang.org/x/sync/errgroup"

	"heddle/internal/lab"
	"heddle/internal/netlab"
)

// Ports of the datagrams: of streams, and of flows that are new in each restart.
const (
	streamPort  = 9000
	newFlowPort = 9001
)

// changes measures how soon a change by the API is in force on all hosts, with few flows and with
// many, and what a restart of an agent costs established flows.
func (b *bench) changes(ctx context.Context) error {
	return b.withStand(ctx, func(s *stand) error {
		// The tenth rule is removed and added.
		group, err := tenRules(ctx, s.tenant, "changing", rules.CreateOpts{Protocol: rules.ProtocolTCP})
		if err != nil {
			return err
		}
		rule, err := s.tenant.Allow(ctx, group, rules.CreateOpts{Protocol: rules.ProtocolUDP})
		if err != nil {
			return err
		}
		c := &changing{stand: s, group: group, rule: rule}
		defer c.close()
		if err := c.populate(ctx); err != nil {
			return err
		}
		if err := b.inForce(ctx, c, "few flows"); err != nil {
			return err
		}
		b.logf("filling the flow table")
		flows, err := c.fill(ctx, b.pick(100_000, 2000))
		if err != nil {
			return err
		}
		if err := b.inForce(ctx, c, fmt.Sprintf("%.0f flows", flows)); err != nil {
			return err
		}
		return b.restart(ctx, c, flows)
	})
}

// changing has workloads in a group with a rule that is removed and added, and streams of datagrams
// that only the rule allows, in each direction.
type changing struct {
	*stand
	group, rule string
	scan        netlab.Path
	ways        [][2]*lab.Workload
	streams     []*lab.UDPStream
}

func (c *changing) populate(ctx context.Context) error {
	w, one, _, err := c.pair(ctx, c.group)
	if err != nil {
		return err
	}
	c.scan = one
	c.ways = [][2]*lab.Workload{{w[0], w[1]}, {w[0], w[2]}, {w[2], w[0]}}
	return c.send(ctx)
}

// send starts all streams and waits until they flow.
func (c *changing) send(ctx context.Context) error {
	c.close()
	for _, way := range c.ways {
		d, err := lab.StartUDPStream(ctx, way[0], way[1], streamPort)
		if err != nil {
			return err
		}
		c.streams = append(c.streams, d)
	}
	_, err := slowest(c.streams, func(d *lab.UDPStream) (time.Duration, error) { return d.FlowsAfter(ctx, time.Now()) })
	return err
}

func (c *changing) close() {
	for _, d := range c.streams {
		d.Close()
	}
	c.streams = nil
}

// fill makes at least so many flows that depend on the rule, and returns their number.
func (c *changing) fill(ctx context.Context, flows int) (got float64, err error) {
	for range 20 {
		if _, err = c.scan.Scan(ctx, flows); err != nil {
			return got, err
		}
		if got, err = metric(ctx, c.h1.NS, "heddle_overlay_flows", ""); err != nil || got >= float64(flows) {
			return got, err
		}
	}
	return got, fmt.Errorf("only %.0f flows after 20 scans, want %d", got, flows)
}

// inForce removes and adds the rule, and measures when the last stream follows.
func (b *bench) inForce(ctx context.Context, c *changing, when string) error {
	var stops, passes []time.Duration
	for round := range b.pick(4*b.rounds, 1) {
		b.logf("change %d, %s", round+1, when)
		called := time.Now()
		if err := c.tenant.Forbid(ctx, c.rule); err != nil {
			return err
		}
		stopped, err := slowest(c.streams, func(d *lab.UDPStream) (time.Duration, error) { return d.StopsAfter(ctx, called) })
		if err != nil {
			return err
		}
		called = time.Now()
		if c.rule, err = c.tenant.Allow(ctx, c.group, rules.CreateOpts{Protocol: rules.ProtocolUDP}); err != nil {
			return err
		}
		passed, err := slowest(c.streams, func(d *lab.UDPStream) (time.Duration, error) { return d.FlowsAfter(ctx, called) })
		if err != nil {
			return err
		}
		stops, passes = append(stops, stopped), append(passes, passed)
	}
	b.add(measure{Name: "rule removed, call to last packet on all hosts, " + when, Got: millis(netlab.Median(stops)), Unit: "ms", Goal: atMost(100),
		Beside: fmt.Sprintf("worst of %d: %.0f ms", len(stops), millis(slices.Max(stops)))})
	b.add(measure{Name: "rule added, call to first packet on all hosts, " + when, Got: millis(netlab.Median(passes)), Unit: "ms", Goal: atMost(100),
		Beside: fmt.Sprintf("worst of %d: %.0f ms", len(passes), millis(slices.Max(passes)))})
	return nil
}

func slowest(streams []*lab.UDPStream, f func(*lab.UDPStream) (time.Duration, error)) (most time.Duration, err error) {
	for _, d := range streams {
		took, err := f(d)
		if err != nil {
			return 0, err
		}
		most = max(most, took)
	}
	return most, nil
}

// restart restarts the agent of a host several times during the streams, counts lost datagrams, and
// measures how long flows wait that are opened as soon as the agent has ended.
func (b *bench) restart(ctx context.Context, c *changing, flows float64) error {
	if err := c.send(ctx); err != nil {
		return err
	}
	var took, waited []time.Duration
	for round := range b.rounds {
		b.logf("restart %d", round+1)
		c.h1.Agent.Kill()
		begun := time.Now()
		wait, err := c.open(ctx, func() error {
			err := c.StartAgent(ctx, c.h1)
			took = append(took, time.Since(begun))
			return err
		})
		if err != nil {
			return err
		}
		waited = append(waited, wait)
		if _, err := slowest(c.streams, func(d *lab.UDPStream) (time.Duration, error) { return d.FlowsAfter(ctx, time.Now()) }); err != nil {
			return err
		}
	}
	var sent, lost int64
	for _, d := range c.streams {
		s, l := d.Finish()
		sent, lost = sent+s, lost+l
	}
	b.add(measure{Name: "agent killed and started: packets of established flows lost", Got: float64(lost), Goal: atMost(0),
		Beside: fmt.Sprintf("of %d over %d restarts, ready after %.0f ms", sent, b.rounds, millis(netlab.Median(took)))})
	b.add(measure{Name: "agent killed and started: flows opened meanwhile wait", Got: millis(netlab.Median(waited)), Unit: "ms", Goal: atMost(1000),
		Beside: fmt.Sprintf("for the first packet, the slowest of %d; at worst %.0f ms; beside %.0f flows", len(c.ways), millis(slices.Max(waited)), flows)})
	return nil
}

// open opens a new flow each way, calls f, and returns how long the slowest flow waited.
func (c *changing) open(ctx context.Context, f func() error) (time.Duration, error) {
	var flowing errgroup.Group
	waits := make([]time.Duration, len(c.ways))
	for i, way := range c.ways {
		d, err := lab.StartUDPStream(ctx, way[0], way[1], newFlowPort)
		if err != nil {
			return 0, err
		}
		defer d.Close()
		opened := time.Now()
		flowing.Go(func() (err error) {
			waits[i], err = d.FlowsAfter(ctx, opened)
			return err
		})
	}
	err := errors.Join(f(), flowing.Wait())
	return slices.Max(waits), err
}
