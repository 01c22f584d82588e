package overlay

import (
	"fmt"

	"heddle/internal/overlay/datapath"
	"heddle/internal/overlay/flowstate"
	"heddle/internal/topology/flow"
)

// keeper keeps records R, encoded as arrays A, in a table of the kernel that outlives the agent.
type keeper[R, A any] struct {
	table  *datapath.Table
	encode func(b []byte, r R) ([]byte, error)
	decode func(b []byte) (R, error)
	bytes  func(*A) []byte

	keys   []A // room
	values [][keptSize]byte
}

// What is kept with a record.
const (
	keptOwn      = 0
	keptImported = 1
	keptSize     = 1
)

// Apply puts what comes one after another in one call, and goes on when something is refused.
// Records that cannot be encoded are not kept.
func (k *keeper[R, A]) Apply(changes []flowstate.Change[R]) error {
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
		var key A
		if _, err := k.encode(k.bytes(&key)[:0], c.Record); err != nil {
			continue
		}
		if c.Delete {
			put() // the key may be among them
			if err := k.table.Delete(k.bytes(&key)); err != nil && first == nil {
				first = err
			}
			continue
		}
		value := [keptSize]byte{keptOwn}
		if c.Imported {
			value[0] = keptImported
		}
		k.keys, k.values = append(k.keys, key), append(k.values, value)
	}
	put()
	return first
}

func (k *keeper[R, A]) Each(f func(r R, imported bool) bool) error {
	var bad [][]byte
	err := k.table.Each(func(key, value []byte) bool {
		r, err := k.decode(key)
		if err != nil {
			bad = append(bad, append([]byte(nil), key...))
			return true
		}
		return f(r, value[0] == keptImported)
	})
	if err != nil {
		return err
	}
	return k.table.Delete(bad...)
}

type (
	connKeeper = keeper[flow.ConnKey, [flowstate.KeySize]byte]
	natKeeper  = keeper[flow.NATEntry, [flowstate.TranslationSize]byte]
)

var (
	_ flowstate.Keeper[flow.ConnKey]  = (*connKeeper)(nil)
	_ flowstate.Keeper[flow.NATEntry] = (*natKeeper)(nil)
)

// openState opens the tables of connections, translations and clients of the metadata service with
// what an earlier agent knew.
func (a *Agent) openState() (k kept, err error) {
	conns, err := a.dp.Table("connections", flowstate.KeySize, keptSize, a.opts.MaxConnections)
	if err != nil {
		return k, err
	}
	nats, err := a.dp.Table("translations", flowstate.TranslationSize, keptSize, a.opts.MaxTranslations)
	if err != nil {
		return k, err
	}
	k.conns = flowstate.New(flowstate.Options{Max: a.opts.MaxConnections, Keeper: &connKeeper{table: conns, encode: flowstate.AppendKey,
		decode: flowstate.ParseKey, bytes: func(b *[flowstate.KeySize]byte) []byte { return b[:] }}})
	k.nats = flowstate.NewTranslations(flowstate.TranslationOptions{Max: a.opts.MaxTranslations, HostID: a.opts.HostID, Keeper: &natKeeper{table: nats, encode: flowstate.AppendTranslation,
		decode: flowstate.ParseTranslation, bytes: func(b *[flowstate.TranslationSize]byte) []byte { return b[:] }}})
	now := monotonic()()
	if err := k.conns.Load(now); err != nil {
		return k, fmt.Errorf("connections of an earlier agent: %w", err)
	}
	if err := k.nats.Load(now); err != nil {
		return k, fmt.Errorf("translations of an earlier agent: %w", err)
	}
	if k.clients, err = openMetadataClients(a.dp); err != nil {
		return k, fmt.Errorf("clients of the metadata service: %w", err)
	}
	return k, nil
}
