package vtep

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/presence"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/topology"
)

const (
	leastPause, mostPause = time.Second, 30 * time.Second
	// settleTime lets changes of the store that come together be one pass.
	settleTime = 50 * time.Millisecond
	// keptLost is the time for which what was learned of a switch stays while the switch, or the
	// server that was connected to it, cannot be heard (services §7.4).
	keptLost = 60 * time.Second
)

// Options of Gateways. Store and Objects are required.
type Options struct {
	Store   store.Store
	Objects *replica.Replica // of schema's tables
	Server  string           // name of this machine, for the agents list
	TTL     time.Duration    // after which another server takes over when this one is gone; 0 = 5 s
	// Kept is the time for which what was learned of a lost switch stays; 0 = 60 s.
	Kept time.Duration
	// Dial makes the streams to switches, say in another network namespace. Default: a net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	Log  *slog.Logger // default: none
}

// Gateways keeps the switches of gateway devices in step. It is a task; of all servers that run
// one, one is elected.
type Gateways struct {
	task.Part
	opts Options
	log  *slog.Logger
	wake task.Notice
}

// New returns the task, which follows the replica from when that runs.
func New(o Options) *Gateways {
	o.TTL, o.Kept, o.Log = cmp.Or(o.TTL, 5*time.Second), cmp.Or(o.Kept, keptLost), cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	g := &Gateways{Part: task.NewPart("gateways"), opts: o, log: o.Log, wake: task.NewNotice()}
	o.Objects.OnChange(g.notice)
	return g
}

// notice wakes the task when something changes that segments are made of.
func (g *Gateways) notice(u snapshot.Update) {
	r := records.Over(u.Next)
	if slices.ContainsFunc(u.Changed, func(c snapshot.Changed) bool { return concerns(r, c) }) {
		g.wake.Give()
	}
}

// concerns reports whether a change may change a segment. Of ports and of what hosts have seen,
// only what is on a connected network does.
func concerns(r records.Reader, c snapshot.Changed) bool {
	switch c.Source {
	case schema.GatewayDevices.Name(), schema.L2Gateways.Name(), schema.L2GatewayConnections.Name():
		return true
	case schema.Bundles.Name():
		return strings.HasPrefix(c.ID, connectionBundle+"/")
	case schema.Ports.Name():
		return connected(r, c, func(p *neutron.Port) string { return p.NetworkID })
	case schema.LearnedMACs.Name():
		return connected(r, c, func(m *topology.LearnedMAC) string { return m.NetworkID })
	}
	return false
}

// connected reports whether the network of a record that has changed is connected to a device.
func connected[T any](r records.Reader, c snapshot.Changed, networkOf func(*T) string) bool {
	for _, one := range []any{c.Old, c.New} {
		if record, ok := one.(*T); ok && schema.L2GatewayConnections.CountBy(r, "network", networkOf(record)) > 0 {
			return true
		}
	}
	return false
}

// Run drives the switches, while this server is elected, until ctx ends.
func (g *Gateways) Run(ctx context.Context) error {
	g.BeReady()
	backoff := task.Backoff{Least: leastPause, Most: mostPause}
	for ctx.Err() == nil {
		err := presence.Campaign(ctx, g.opts.Store, schema.GatewaysKey, g.opts.TTL, func(ctx context.Context, _ int64) error {
			backoff.Reset()
			return g.lead(ctx)
		})
		if ctx.Err() != nil {
			return nil
		}
		g.log.Warn("stopped driving the switches of gateway devices", "err", err)
		backoff.Pause(ctx)
	}
	return nil
}

// leader drives the switches while this server is elected.
type leader struct {
	*Gateways
	reports   *presence.Presence
	followers map[string]*follower // by device
	running   sync.WaitGroup
}

// lead drives the switches until ctx ends, or the store refuses.
func (g *Gateways) lead(ctx context.Context) error {
	l := &leader{Gateways: g, followers: map[string]*follower{},
		reports: presence.New(presence.Options{Store: g.opts.Store, Prefix: schema.StatePrefix + topology.RemoteHolder + "/",
			TTL: g.opts.Kept, Log: g.log})}
	ctx, cancel := context.WithCancel(ctx)
	defer l.running.Wait()
	defer cancel()
	l.running.Go(func() { _ = l.reports.Run(ctx) })
	snap, err := g.opts.Objects.Fresh(ctx)
	if err != nil {
		return err
	}
	l.pass(ctx, records.Over(snap))
	l.running.Go(func() { l.completeReports(ctx, slices.Collect(maps.Values(l.followers))) })
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-g.wake:
		}
		task.Pause(ctx, settleTime)
		if snap, err = g.opts.Objects.Fresh(ctx); err != nil {
			return err
		}
		l.pass(ctx, records.Over(snap))
	}
}

// completeReports has what an earlier leader left deleted, once each switch has been heard or has
// had its time.
func (l *leader) completeReports(ctx context.Context, first []*follower) {
	for _, f := range first {
		select {
		case <-f.settled:
		case <-ctx.Done():
			return
		}
	}
	l.reports.Complete()
}

// pass has a follower for each managed device, with what its switch should know.
func (l *leader) pass(ctx context.Context, r records.Reader) {
	devices := managedDevices(r)
	for id, f := range l.followers {
		switch d := devices[id]; {
		case d == nil: // no other follower will report of it
			delete(l.followers, id)
			l.running.Go(func() { f.stop(ctx) })
		case f.address != addressOf(d):
			delete(l.followers, id)
			f.stop(ctx)
		}
	}
	segments, networks := map[string][]segment{}, map[string]bool{}
	for id, d := range devices {
		segments[id] = segmentsOf(r, d)
		for _, s := range segments[id] {
			networks[s.networkID] = true
		}
	}
	learned := learnedBehind{}
	if len(networks) > 0 {
		learned = readLearned(r, networks)
	}
	for id, d := range devices {
		f := l.followers[id]
		if f == nil {
			f = newFollower(l, d)
			l.followers[id] = f
			f.start(ctx)
		}
		f.want(segments[id], learned)
	}
}

// addressOf returns the address of a device's switch, as OVSDB clients write it.
func addressOf(d *neutron.GatewayDevice) string {
	return "tcp:" + net.JoinHostPort(d.ManagementIP.String(), strconv.Itoa(d.ManagementPort))
}

// stateKey returns the key of a device's GatewayState.
func stateKey(deviceID string) string {
	return schema.GatewayStates.Key(topology.RemoteHolder + "/" + deviceID)
}
