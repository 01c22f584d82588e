package main

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// registerHost makes the store's record of a host that neither joined nor has an overlay agent to make it. Without one
// Neutron knows no such host, and binds no port to it.
func registerHost(ctx context.Context, st *store.Etcd, id, name string) error {
	ctx, stop := context.WithCancel(ctx)
	hosts := replica.New(st, replica.Options{}, schema.Hosts)
	var following errgroup.Group
	following.Go(func() error { return hosts.Run(ctx) })
	_, err := records.NewDB(st, hosts).Update(ctx, func(tx *records.Tx) error {
		there, known := schema.Hosts.Peek(tx, id)
		switch {
		case !known:
			return schema.Hosts.Put(tx, &topology.Host{ID: id, Name: name})
		case there.Name != name:
			return fmt.Errorf("%w: the host with id %s is called %q there, here %q", errOtherHost, id, there.Name, name)
		}
		return nil
	})
	var taken *records.TakenError
	if errors.As(err, &taken) {
		err = fmt.Errorf("%w: %w", errOtherHost, err)
	}
	stop()
	return errors.Join(err, following.Wait())
}

// errOtherHost: the store knows a host with this name and another id, or the other way round. What goes by the name works.
var errOtherHost = errors.New("the store has another record of this host")
