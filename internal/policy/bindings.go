package policy

import (
	"context"
	"log/slog"

	"heddle/internal/store"
	"heddle/internal/store/follow"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
)

// bindings tells which interfaces of this host belong to ports of the virtual topology: those are the overlay's, whatever
// their names (spec §8.1). It holds their names only, not the topology.
type bindings struct {
	replica *replica.Replica
	out     chan map[string]bool // the newest set; of one
	count   map[string]int       // by name of interface
}

func newBindings(st store.Store, hostID string, journal *follow.Journal, log *slog.Logger) *bindings {
	b := &bindings{out: make(chan map[string]bool, 1), count: map[string]int{}}
	source := schema.Bundles.Source()
	decode := source.Decode
	source.Indexes = nil
	source.Decode = func(id string, value []byte) (any, error) {
		record, err := decode(id, value)
		if err != nil {
			return nil, err
		}
		var names []string
		for i := range record.(*schema.Bundle).Bundle.Ports {
			if p := &record.(*schema.Bundle).Bundle.Ports[i]; p.HostID == hostID && p.Exterior() {
				names = append(names, p.InterfaceName)
			}
		}
		return names, nil
	}
	b.replica = replica.New(st, replica.Options{Journal: journal, Log: log}, source)
	b.replica.OnChange(b.changed)
	return b
}

func (b *bindings) run(ctx context.Context) error { return b.replica.Run(ctx) }

// changed is called from one goroutine.
func (b *bindings) changed(u replica.Update) {
	for _, c := range u.Changed {
		before, _ := c.Old.([]string)
		after, _ := c.New.([]string)
		for _, name := range before {
			if b.count[name]--; b.count[name] == 0 {
				delete(b.count, name)
			}
		}
		for _, name := range after {
			b.count[name]++
		}
	}
	names := make(map[string]bool, len(b.count))
	for name := range b.count {
		names[name] = true
	}
	select {
	case <-b.out: // an older set that nobody has taken
	default:
	}
	b.out <- names
}
