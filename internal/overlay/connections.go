package overlay

import (
	"fmt"

	"heddle/internal/overlay/datapath"
	"heddle/internal/overlay/flowstate"
)

// keeper keeps connections in a table of the kernel that outlives the agent.
type keeper struct{ table *datapath.Table }

var _ flowstate.Keeper = keeper{}

// What is kept with a key.
const (
	keptOwn      = 0
	keptImported = 1
	keptSize     = 1
)

// Apply writes the changes one by one; when one is refused the others are written all the same.
func (k keeper) Apply(changes []flowstate.Change) error {
	var first error
	own, imported := []byte{keptOwn}, []byte{keptImported}
	for i := range changes {
		c := &changes[i]
		var err error
		switch {
		case c.Delete:
			err = k.table.Delete(c.Key[:])
		case c.Imported:
			err = k.table.Put(c.Key[:], imported)
		default:
			err = k.table.Put(c.Key[:], own)
		}
		if err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Each lists them.
func (k keeper) Each(f func(key []byte, imported bool) bool) error {
	return k.table.Each(func(key, value []byte) bool { return f(key, value[0] == keptImported) })
}

// openConnections opens the table of connections with what an earlier agent knew.
func (a *Agent) openConnections() (*flowstate.Table, error) {
	table, err := a.dp.Table("connections", flowstate.KeySize, keptSize, a.opts.MaxConnections)
	if err != nil {
		return nil, err
	}
	conns := flowstate.New(flowstate.Options{Max: a.opts.MaxConnections, Keeper: keeper{table}})
	if err := conns.Load(monotonic()()); err != nil {
		return nil, fmt.Errorf("connections of an earlier agent: %w", err)
	}
	return conns, nil
}
