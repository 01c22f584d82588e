// Package etcd holds what all clients of etcd share: connections, errors, and watches that deliver
// whole revisions. It needs no server, so that other programs may use it; package backend builds on
// it.
package etcd

import (
	"go.etcd.io/etcd/api/v3/mvccpb"

	"heddle/internal/store"
)

// FromProto converts a key of etcd's client.
func FromProto(kv *mvccpb.KeyValue) store.KV {
	return store.KV{Key: string(kv.Key), Value: kv.Value, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Lease: store.Lease(kv.Lease)}
}
