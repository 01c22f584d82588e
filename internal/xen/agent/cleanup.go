package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"heddle/internal/ovsdb"
	"heddle/internal/xen/ovs"
)

// cleanupTimeout bounds Cleanup.
const cleanupTimeout = 20 * time.Second

// Cleanup takes away what agents have made in this host's Open vSwitch: bridges with all their
// ports, ports on bridges of others, and where its database listens. A host without Open vSwitch is
// clean.
func Cleanup(o Options) error {
	o = o.withDefaults()
	alone, err := lock()
	if err != nil {
		return err
	}
	defer alone.Close()
	ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout)
	defer cancel()
	sw, err := ovs.Dial(ctx, ovsdb.Options{Address: o.OVSDB, Log: o.Log})
	if err != nil {
		o.Log.Info("Open vSwitch's database does not answer: nothing is taken away", "database", o.OVSDB, "err", err)
		return nil
	}
	defer sw.Close()
	s := sw.Snapshot()
	edit := ovs.NewEdit(s, mark)
	err = sweep(edit, s, func(string) bool { return false })
	edit.KeepManagers()
	ops := edit.Ops()
	if s.Root == nil {
		return nil // nothing was made
	}
	if ssl := s.SSLs[s.Root.SSL]; ssl != nil && marked(ssl.ExternalIDs) {
		ops = append(ops, ovsdb.Update(ovs.Database, nil, ovsdb.Row{"ssl": ovsdb.Set{}}))
	}
	if len(ops) > 0 {
		_, _, applied := sw.Apply(ctx, ops...)
		if errors.Is(applied, ovs.ErrNotApplied) {
			applied = nil // the switch will find it so when it runs again
		}
		err = errors.Join(err, applied)
	}
	if err != nil {
		return fmt.Errorf("clean up Open vSwitch: %w", err)
	}
	return nil
}
