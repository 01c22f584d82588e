package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"

	"heddle/internal/cli"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/telemetry"

	"heddle/internal/api/hosts"
)

// addSpace adds what keeps the store from filling up.
func (s *server) addSpace() {
	keeper := store.NewSpaceKeeper(s.store, s.log.With("part", "space"))
	accounts := store.NewHostAccounts(s.store, s.log.With("part", "host accounts"))
	s.tasks = append(s.tasks, keeper, accounts)
	s.metrics.Register(func() []telemetry.Value {
		values := append(spaceValues(keeper), diskValues(s.config.data)...)
		for c := range hosts.CutOffs(records.Over(s.replica.Snapshot())) {
			values = append(values, telemetry.Value{
				Name: "heddle_host_cut_off", Help: "Hosts that were cut off since they exceeded their limits in the store.", Kind: telemetry.Gauge,
				Labels: map[string]string{"host": c.HostID}, Value: 1,
			})
		}
		return values
	})
}

// spaceValues are the metrics of how full the store is.
func spaceValues(keeper *store.SpaceKeeper) (values []telemetry.Value) {
	gauge := func(name, help, member string, value int64) telemetry.Value {
		return telemetry.Value{Name: name, Help: help, Kind: telemetry.Gauge, Labels: map[string]string{"member": member}, Value: float64(value)}
	}
	for _, m := range keeper.Space() {
		alarm := int64(0)
		if m.NoSpace {
			alarm = 1
		}
		values = append(values,
			gauge("heddle_store_bytes", "Size of the store's database.", m.Member, m.Size),
			gauge("heddle_store_bytes_in_use", "How much of it is in use; the rest is returned by defragmenting.", m.Member, m.InUse),
			gauge("heddle_store_quota_bytes", "Size at which the store accepts nothing more: as it reports, as --etcd-quota has it, or assumed.", m.Member, m.Quota),
			gauge("heddle_store_alarm", "1 while etcd refuses all writes for lack of space.", m.Member, alarm))
	}
	return values
}

// diskValues is the metric of the data directory's disk. There is none while that cannot be read.
func diskValues(dataDir string) []telemetry.Value {
	free, err := store.DiskFree(dataDir)
	if err != nil {
		return nil
	}
	return []telemetry.Value{{
		Name: "heddle_data_disk_free_bytes", Help: "Free space on the disk of the data directory.", Kind: telemetry.Gauge, Value: float64(free),
	}}
}

// withReserve lets deletions and log-ins use the reserve of a store that is full.
func withReserve(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete || r.Method == http.MethodPost && r.URL.Path == "/v3/auth/tokens" {
			r = r.WithContext(store.WithReserve(r.Context()))
		}
		h.ServeHTTP(w, r)
	})
}

// spaceCheck looks at the disk and the store of this machine's server, if there is one.
func spaceCheck(server cli.Server) cli.Check {
	return cli.Check{
		Name: "space in the store", For: "serve", Fix: "heddle store reclaim; docs/guides/operating.md has the rest",
		Run: func(ctx context.Context) error {
			st, err := openServersStore(ctx, server)
			if err != nil || st == nil {
				return err
			}
			defer st.Close()
			space, err := st.Space(ctx)
			if err != nil {
				return err
			}
			for _, m := range space {
				if m.NoSpace || m.NearlyFull() {
					return fmt.Errorf("nearly full: %s", m)
				}
			}
			return nil
		},
	}
}

// openServersStore opens the cluster that the server works over, else the embedded store if that runs; nil: it does not.
func openServersStore(ctx context.Context, server cli.Server) (*store.Etcd, error) {
	if len(server.Cluster.Endpoints) > 0 {
		attempt, cancel := context.WithTimeout(ctx, openTimeout)
		defer cancel()
		cluster := server.Cluster
		cluster.SkipLimits = true
		return store.Open(attempt, store.Options{Cluster: &cluster})
	}
	if err := store.CheckDisk(server.Data); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	st, err := store.OpenRunning(ctx, server.Data, nil)
	if errors.Is(err, store.ErrUnavailable) {
		return nil, nil
	}
	return st, err
}
