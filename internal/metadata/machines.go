package metadata

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"heddle/internal/sealing"
	"heddle/internal/store"
	"heddle/internal/store/follow"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/topology"
)

// Machines holds a copy of what a host is to know of the machines behind its ports, and publishes
// the key for which servers seal their secrets. It is a task.
type Machines struct {
	task.Part
	opts      MachinesOptions
	objects   *replica.Replica
	changed   task.Notice
	published time.Time // the last time that the key was written
}

// MachinesOptions configure Machines. Snapshots alone may be left empty.
type MachinesOptions struct {
	Store  store.Store
	HostID string
	Key    *sealing.HostKey
	// Snapshots is a directory for what was last read, for a start without the store; "": none.
	Snapshots string
	Log       *slog.Logger
}

// republishAfter is the time after which the host's key is written again over another one: two
// hosts with one id would else write over each other's without a pause.
const republishAfter = time.Minute

// NewMachines returns the task. It knows no machine until Run.
func NewMachines(o MachinesOptions) *Machines {
	m := &Machines{Part: task.NewPart("metadata of machines"), opts: o, changed: task.NewNotice()}
	m.objects = replica.New(o.Store, replica.Options{Journal: follow.NewJournal(o.Snapshots, "metadata", o.HostID), Log: o.Log},
		narrow(schema.Instances, schema.SecretsPrefix+o.HostID+"/metadata/"),
		narrow(schema.MetadataKeys, schema.StatePrefix+o.HostID+schema.MetadataKeyTail),
		narrow(schema.Hosts, schema.HostsPrefix+o.HostID))
	m.objects.OnChange(func(snapshot.Update) { m.changed.Give() })
	return m
}

// narrow returns the part of a table whose keys begin with a longer prefix than the table's.
func narrow(t snapshot.Table, prefix string) snapshot.Table {
	s := t.Source()
	if whole := s.Prefix; s.ID == nil {
		s.ID = func(key string) (string, bool) { return key[len(whole):], true }
	}
	s.Prefix = prefix
	return s
}

// Find returns the machine behind a port. The error is [ErrUnknown] while this host has not read of
// it.
func (m *Machines) Find(port string) (*Machine, error) {
	i, ok := schema.Instances.Peek(records.Over(m.objects.Snapshot()), m.opts.HostID+"/"+port)
	if !ok {
		return nil, ErrUnknown
	}
	found := &Machine{Instance: i}
	if i.Secrets == nil {
		return found, nil
	}
	if i.Secrets.Key != sealing.Fingerprint(m.opts.Key.Public()) {
		return nil, ErrUnknown // the servers are to read this host's key first
	}
	secret, err := m.opts.Key.Open(schema.Instances.ID(i), i.Secrets.Box)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(secret, &found.InstanceSecrets); err != nil {
		return nil, fmt.Errorf("secrets of port %s: %w", port, err)
	}
	return found, nil
}

// Run follows the store until ctx ends.
func (m *Machines) Run(ctx context.Context) error {
	m.BeReady()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return m.objects.Run(ctx) })
	g.Go(func() error { return m.publish(ctx) })
	return g.Wait()
}

// publish keeps the host's key in the store for as long as the host has a record there.
func (m *Machines) publish(ctx context.Context) error {
	var retry task.Backoff
	for {
		pause, err := m.putKey(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			m.opts.Log.Error("cannot publish the key of machines' metadata; trying again", "err", err)
			pause = retry.Next()
		default:
			retry.Reset()
		}
		var again <-chan time.Time
		if pause > 0 {
			again = time.After(pause)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.changed:
		case <-again:
		}
	}
}

// putKey writes the host's key, unless it is there. pause says when to look again; 0: at a change.
func (m *Machines) putKey(ctx context.Context) (pause time.Duration, err error) {
	r := records.Over(m.objects.Snapshot())
	if _, is := schema.Hosts.Peek(r, m.opts.HostID); !is {
		return 0, nil // not yet, or not any more
	}
	own := &topology.MetadataKey{HostID: m.opts.HostID, Key: m.opts.Key.Public()}
	if there, ok := schema.MetadataKeys.Peek(r, own.HostID); ok {
		if bytes.Equal(there.Key, own.Key) {
			return 0, nil
		}
		if wait := time.Until(m.published.Add(republishAfter)); wait > 0 {
			return wait, nil
		}
	}
	value, err := json.Marshal(own)
	if err != nil {
		return 0, err
	}
	rev, err := m.opts.Store.Commit(ctx, nil, []store.Op{{Key: schema.MetadataKeys.KeyOf(own), Value: value}})
	if err != nil {
		return 0, err
	}
	m.published = time.Now()
	// A key that is lost before the copy has it comes as no change.
	_, err = m.objects.At(ctx, rev)
	m.changed.Give()
	return 0, err
}
