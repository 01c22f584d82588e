package dhcp

import (
	"context"
	"log/slog"

	"heddle/calico"
	"heddle/internal/dhcp/plan"
	"heddle/internal/store"
	"heddle/internal/store/replica"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
)

const (
	subnetPrefix = "/calico/dhcp/v1/subnet/"
	readyKey     = "/calico/v1/Ready"
)

// feed follows this host's endpoints and the subnets in etcd.
type feed struct {
	endpoints string // prefix
	replica   *replica.Replica
	planner   plan.Planner // of who asks for plans
	changed   task.Notice  // holds a token when there is something new
	log       *slog.Logger
}

// entry is a key with its object, nil for one that could not be decoded.
type entry[K calico.Key, V any] struct {
	key    K
	object *V
}

func newFeed(host string, st store.Store, o replica.Options) *feed {
	log := o.Log
	f := &feed{endpoints: "/calico/v1/host/" + host + "/workload/", changed: task.NewNotice(), log: log}
	f.replica = replica.New(st, o,
		table[calico.WorkloadEndpointKey, calico.WorkloadEndpoint](f.endpoints, log),
		table[calico.DHCPSubnetKey, calico.DHCPSubnet](subnetPrefix, log),
		snapshot.Source{Name: readyKey, Prefix: readyKey, Decode: func(id string, value []byte) (any, error) { return id == "" && string(value) == "true", nil }})
	f.replica.OnChange(func(snapshot.Update) { f.changed.Give() })
	return f
}

// table reads the objects of one kind below a prefix. Those that cannot be decoded are logged.
func table[K calico.Key, V any](prefix string, log *slog.Logger) snapshot.Source {
	return snapshot.Source{Name: prefix, Prefix: prefix,
		ID: func(path string) (string, bool) {
			_, ok := calico.ParseAs[K](path)
			return path, ok
		},
		Decode: func(path string, value []byte) (any, error) {
			key, _ := calico.ParseAs[K](path)
			object, err := calico.Decode(key, value)
			if err != nil {
				log.Warn("cannot be read", "key", path, "err", err)
			}
			v, _ := object.(*V)
			return entry[K, V]{key, v}, nil
		}}
}

func (f *feed) Run(ctx context.Context) error { return f.replica.Run(ctx) }

// plan makes a plan of the current snapshot, or returns what it waits for.
func (f *feed) plan(o plan.Options) (p *plan.Plan, waits string) {
	s := f.replica.Snapshot()
	if s.Revision == 0 {
		return nil, "the store"
	}
	if e := s.Get(readyKey, ""); e == nil || e.Record != true {
		return nil, readyKey
	}
	return f.planner.Plan(o, objects[calico.WorkloadEndpointKey, calico.WorkloadEndpoint](s, f.endpoints),
		objects[calico.DHCPSubnetKey, calico.DHCPSubnet](s, subnetPrefix)), ""
}

func objects[K interface {
	comparable
	calico.Key
}, V any](s *snapshot.Snapshot, table string) map[K]*V {
	all := make(map[K]*V, s.Len(table))
	for e := range s.All(table) {
		x := e.Record.(entry[K, V])
		all[x.key] = x.object
	}
	return all
}
