package main

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"heddle/internal/store/backend"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// registerHost makes the record of a host that neither joined nor has an overlay agent to make it.
// Without a record Neutron binds no port to the host.
func registerHost(ctx context.Context, st *backend.Etcd, id, name string) error {
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

// errOtherHost: the store has a host with this name and another id, or with this id and another
// name.
var errOtherHost = errors.New("the store has another record of this host")
