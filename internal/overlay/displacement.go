package overlay

import (
	"context"
	"fmt"
	"sync"
	"time"

	"heddle/internal/store/presence"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/topology"
)

// displacement detects that another agent has the place of this host: one with a copy of its state
// directory, or one on a machine that joined later under the host's name. Both may write the same
// keys. The agent that reported last keeps the place, and the other one stops writing, so that they
// do not overwrite each other's keys forever.
type displacement struct {
	*Options
	instance string // identifies this agent in the host's state
	// suspend stops all writes about this host, and resume writes everything again.
	suspend, resume func()
	// regained has other hosts trust this one again.
	regained func()
	changed  task.Notice // the agent is displaced, or no longer

	reported bool // the store has had this agent's report
	missing  bool // but had none of this host in the last snapshot

	mu     sync.Mutex
	reason string // why this agent is displaced; "" = it is not
}

// Reason returns why this agent is displaced, or "".
func (d *displacement) Reason() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reason
}

// follow acts on a snapshot. It is called from one goroutine.
func (d *displacement) follow(s *snapshot.Snapshot) {
	before := d.Reason()
	now, missing := d.find(s)
	d.mu.Lock()
	d.reason = now
	d.mu.Unlock()
	d.changed.Give()
	switch {
	case now != before && now != "":
		d.Log.Error("this agent is displaced: it reports nothing, and other hosts may send it no frames", "host", d.HostName, "id", d.HostID, "err", now)
		d.suspend()
	case now != before:
		d.Log.Warn("this agent is no longer displaced; reporting again", "host", d.HostName, "id", d.HostID)
		d.regained()
		d.resume()
	case missing && !d.missing:
		d.Log.Warn("the store has lost the report of this host: its lease ended, or a client of the store deleted it; reporting again", "host", d.HostName, "id", d.HostID)
		d.resume()
	}
	d.missing = missing
}

// Run has the store show the agent while it is displaced, so that operators see both, until ctx
// ends. begun is the time at which the agent started.
func (d *displacement) Run(ctx context.Context, begun time.Time) error {
	record := &topology.DisplacedAgent{HostID: d.HostID, Instance: d.instance, TunnelIP: d.TunnelIP, StartedAt: begun.UTC().Truncate(time.Second)}
	key := schema.DisplacedAgents.KeyOf(record)
	for ctx.Err() == nil {
		d.await(ctx, true)
		if ctx.Err() != nil {
			break
		}
		shown := presence.New(presence.Options{Store: d.Store, Prefix: key, TTL: d.LeaseTTL, Leave: true, Log: d.Log})
		if err := shown.SetRecord(key, record); err != nil {
			return err
		}
		showing, end := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- shown.Run(showing) }()
		d.await(ctx, false)
		end()
		if err := <-ended; err != nil {
			return err
		}
	}
	return nil
}

// await waits until the agent is displaced, or no longer, or ctx ends.
func (d *displacement) await(ctx context.Context, displaced bool) {
	for ctx.Err() == nil && (d.Reason() != "") != displaced {
		select {
		case <-ctx.Done():
		case <-d.changed:
		}
	}
}

// restored begins anew: what the store has now may be older than this agent.
func (d *displacement) restored() { d.reported = false }

// find returns why this agent is displaced, if it is, and whether its report is missing.
func (d *displacement) find(s *snapshot.Snapshot) (reason string, missing bool) {
	r := records.Over(s)
	if h, ok := schema.Hosts.Peek(r, d.HostID); ok && h.Key != "" && d.Key != "" && h.Key != d.Key {
		return fmt.Sprintf("host %[1]s has joined again with another key, probably on another machine: stop this agent; for this machine to be %[1]s, "+
			"stop the other agent, remove host.json from the state directory here, and join with a token of `heddle host token %[1]s`", d.HostName), false
	}
	state, ok := schema.HostStates.Peek(r, d.HostID)
	switch {
	case !ok:
		return "", d.reported
	case state.Instance == d.instance:
		d.reported = true
	case d.reported: // else it is what this agent's predecessor has left
		return fmt.Sprintf("another agent reports as host %s, from %s, started at %s: two machines have the same state directory; "+
			"stop one of the two agents, empty its state directory, and let it join under another name", d.HostName, state.TunnelIP, state.StartedAt.Format(time.RFC3339)), false
	}
	return "", false
}
