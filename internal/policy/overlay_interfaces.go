package policy

import (
	"log/slog"
	"maps"

	"heddle/internal/store"
	"heddle/internal/store/follow"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
)

// overlayInterfaces reads the names of this host's interfaces that are bound to ports of the
// virtual topology. Policy leaves those alone (spec §8.1).
type overlayInterfaces struct {
	replica *replica.Replica
	out     chan map[string]bool // the newest set
	ports   map[string]int       // how many ports name an interface
}

func newOverlayInterfaces(st store.Store, hostID string, journal *follow.Journal, log *slog.Logger) *overlayInterfaces {
	o := &overlayInterfaces{out: make(chan map[string]bool, 1), ports: map[string]int{}}
	source := schema.Bundles.Source()
	decode := source.Decode
	source.Indexes = nil
	source.Decode = func(id string, value []byte) (any, error) {
		record, err := decode(id, value)
		if err != nil {
			return nil, err
		}
		var names []string
		for _, p := range record.(*schema.Bundle).Bundle.Ports {
			if name := p.InterfaceOn(hostID); name != "" {
				names = append(names, name)
			}
		}
		return names, nil
	}
	o.replica = replica.New(st, replica.Options{Journal: journal, Log: log}, source)
	o.replica.OnChange(o.changed)
	return o
}

// changed is called from one goroutine.
func (o *overlayInterfaces) changed(u snapshot.Update) {
	for _, c := range u.Changed {
		before, _ := c.Old.([]string)
		after, _ := c.New.([]string)
		for _, name := range before {
			o.ports[name]--
		}
		for _, name := range after {
			o.ports[name]++
		}
	}
	maps.DeleteFunc(o.ports, func(_ string, n int) bool { return n == 0 })
	names := make(map[string]bool, len(o.ports))
	for name := range o.ports {
		names[name] = true
	}
	select {
	case <-o.out: // an older set that was not received
	default:
	}
	o.out <- names
}
