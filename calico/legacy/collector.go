package legacy

import (
	"context"
	"errors"

	"heddle/calico"
	"heddle/calico/client"
)

// Collector deletes profiles whose count was 0 at one sweep and unchanged at the next: between two
// sweeps an endpoint may be added that names a new profile.
type Collector struct {
	writer *Writer
	idle   map[string]int64 // profiles at 0 by the revision of their count, at the last sweep
}

// NewCollector makes a Collector that works through c.
func NewCollector(c *client.Client) *Collector {
	return &Collector{writer: NewWriter(c), idle: map[string]int64{}}
}

// Sweep deletes what is due and returns the names of it. Faults are counts that are corrupt, or 0
// though endpoints name the profile, which is then kept.
func (c *Collector) Sweep(ctx context.Context) (deleted []string, faults []Fault, err error) {
	s, err := c.writer.etcd.List(ctx, calico.ProfileRefcountKey{}, calico.WorkloadEndpointKey{Legacy: true})
	if err != nil {
		return nil, nil, err
	}
	named, idle := tally(s), map[string]int64{}
	var failed []error
	for _, e := range s.Entries {
		key, ok := e.Key.(calico.ProfileRefcountKey)
		if !ok {
			continue
		}
		n, ok := e.Object.(uint64)
		switch {
		case !ok:
			faults = append(faults, Fault{key, ErrCorruptCount})
		case n > 0:
		case named[key.Profile] > 0:
			faults = append(faults, Fault{key, ErrInUse})
		case c.idle[key.Profile] != e.Revision:
			idle[key.Profile] = e.Revision
		default:
			_, err := c.writer.etcd.Commit(ctx, count{key, 0, e.Revision}.delete()...)
			if err == nil {
				deleted = append(deleted, key.Profile)
			} else if !overtaken(err) {
				failed = append(failed, err)
				idle[key.Profile] = e.Revision
			}
		}
	}
	c.idle = idle
	return deleted, faults, errors.Join(failed...)
}
