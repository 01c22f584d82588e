package overlay

import (
	"fmt"

	"heddle/internal/overlay/datapath"
	"heddle/internal/overlay/flowstate"
)

// keeper keeps connections in a table of the kernel that outlives the agent.
type keeper struct{ table *datapath.Table }

var _ flowstate.Keeper = keeper{}

// Apply writes the changes one by one; when one is refused the others are written all the same.
func (k keeper) Apply(changes []flowstate.Change) error {
	var first error
	for i := range changes {
		c := &changes[i]
		var err error
		if c.Value == nil {
			err = k.table.Delete(c.Key[:])
		} else {
			err = k.table.Put(c.Key[:], c.Value)
		}
		if err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Each lists them.
func (k keeper) Each(f func(key, value []byte) bool) error { return k.table.Each(f) }

// openConnections opens the table of connections with what an earlier agent knew.
func (a *Agent) openConnections() (*flowstate.Table, error) {
	table, err := a.dp.Table("connections", flowstate.KeySize, flowstate.ValueSize, a.opts.MaxConnections)
	if err != nil {
		return nil, err
	}
	conns := flowstate.New(flowstate.Options{Max: a.opts.MaxConnections, Keeper: keeper{table}})
	if err := conns.Load(monotonic()()); err != nil {
		return nil, fmt.Errorf("connections of an earlier agent: %w", err)
	}
	return conns, nil
}
