package overlay

import (
	"fmt"

	"heddle/internal/overlay/datapath"
	"heddle/internal/overlay/flowstate"
)

// keeper keeps connections in a table of the kernel that outlives the agent.
type keeper struct {
	table  *datapath.Table
	keys   [][flowstate.KeySize]byte // room
	values [][keptSize]byte
}

var _ flowstate.Keeper = (*keeper)(nil)

// What is kept with a key.
const (
	keptOwn      = 0
	keptImported = 1
	keptSize     = 1
)

// Apply puts what comes one after another in one call, and goes on when something is refused.
func (k *keeper) Apply(changes []flowstate.Change) error {
	var first error
	k.keys, k.values = k.keys[:0], k.values[:0]
	put := func() {
		if err := datapath.PutAll(k.table, k.keys, k.values); err != nil && first == nil {
			first = err
		}
		k.keys, k.values = k.keys[:0], k.values[:0]
	}
	for i := range changes {
		c := &changes[i]
		if c.Delete {
			put() // the key may be among them
			if err := k.table.Delete(c.Key[:]); err != nil && first == nil {
				first = err
			}
			continue
		}
		value := [keptSize]byte{keptOwn}
		if c.Imported {
			value[0] = keptImported
		}
		k.keys, k.values = append(k.keys, c.Key), append(k.values, value)
	}
	put()
	return first
}

func (k *keeper) Each(f func(key []byte, imported bool) bool) error {
	return k.table.Each(func(key, value []byte) bool { return f(key, value[0] == keptImported) })
}

// openConnections opens the table of connections with what an earlier agent knew.
func (a *Agent) openConnections() (*flowstate.Table, error) {
	table, err := a.dp.Table("connections", flowstate.KeySize, keptSize, a.opts.MaxConnections)
	if err != nil {
		return nil, err
	}
	conns := flowstate.New(flowstate.Options{Max: a.opts.MaxConnections, Keeper: &keeper{table: table}})
	if err := conns.Load(monotonic()()); err != nil {
		return nil, fmt.Errorf("connections of an earlier agent: %w", err)
	}
	return conns, nil
}
