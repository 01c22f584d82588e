package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"time"

	"heddle/internal/api/hosts"
	"heddle/internal/cli"
	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/records"
	"heddle/internal/telemetry"
)

// addSpace adds the parts that keep the store from filling up.
func (s *server) addSpace() {
	keeper := backend.NewSpaceKeeper(s.store, s.log.With("part", "space"))
	accounts := backend.NewHostAccounts(s.store, s.log.With("part", "host accounts"))
	s.tasks = append(s.tasks, keeper, accounts)
	s.metrics.Register(func() []telemetry.Value {
		values := append(spaceValues(keeper), diskValues(s.config.data)...)
		if len(s.config.etcd.Endpoints) == 0 {
			values = append(values, backupValues(s.config.data)...)
		}
		for c := range hosts.CutOffs(records.Over(s.replica.Snapshot())) {
			values = append(values,
				telemetry.Flag("heddle_host_cut_off", "Hosts that were cut off since they exceeded their limits in the store.", true).With("host", c.HostID))
		}
		return values
	})
}

// spaceValues returns the metrics of the store's space.
func spaceValues(keeper *backend.SpaceKeeper) (values []telemetry.Value) {
	for _, m := range keeper.Space() {
		values = append(values,
			telemetry.Gauge.Of("heddle_store_bytes", "Size of the store's database.", int(m.Size)).With("member", m.Member),
			telemetry.Gauge.Of("heddle_store_bytes_in_use", "How much of it is in use; the rest is returned by defragmenting.", int(m.InUse)).With("member", m.Member),
			telemetry.Gauge.Of("heddle_store_quota_bytes", "Size at which the store accepts nothing more: as it reports, as --etcd-quota has it, or assumed.", int(m.Quota)).With("member", m.Member),
			telemetry.Flag("heddle_store_alarm", "1 while etcd refuses all writes for lack of space.", m.NoSpace).With("member", m.Member))
	}
	return values
}

// diskValues returns the metric of the data directory's disk, if it can be read.
func diskValues(dataDir string) []telemetry.Value {
	free, err := backend.DiskFree(dataDir)
	if err != nil {
		return nil
	}
	return []telemetry.Value{telemetry.Gauge.Of("heddle_data_disk_free_bytes", "Free space on the disk of the data directory.", int(free))}
}

// backupValues returns the metrics of the backups of an embedded store.
func backupValues(dataDir string) []telemetry.Value {
	made, verified := backend.LastBackups(dataDir)
	return []telemetry.Value{
		telemetry.Gauge.Of("heddle_backup_last_made_timestamp_seconds", "Time of the last backup of this server's store by heddle backup, in seconds since 1970; 0 if there was none.", unixSeconds(made)),
		telemetry.Gauge.Of("heddle_backup_last_verified_timestamp_seconds", "Time of the last one that was verified by a restore; 0 if there was none.", unixSeconds(verified)),
		telemetry.Gauge.Of("heddle_backup_last_drill_timestamp_seconds", "Time of the last drill that succeeded, by heddle drill; 0 if there was none.", unixSeconds(backend.LastDrill(dataDir))),
	}
}

// unixSeconds returns seconds since 1970, 0 for the zero Time.
func unixSeconds(t time.Time) int {
	if t.IsZero() {
		return 0
	}
	return int(t.Unix())
}

// withReserve lets deletions and log-ins use a full store's reserve.
func withReserve(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete || r.Method == http.MethodPost && r.URL.Path == "/v3/auth/tokens" {
			r = r.WithContext(store.WithReserve(r.Context()))
		}
		h.ServeHTTP(w, r)
	})
}

// diskCheck checks the disk of this machine's embedded store, if there is one.
func diskCheck(server cli.Server) cli.Check {
	return cli.Check{
		Name: "space on the store's disk", For: "serve", Fix: "make room on the disk of " + server.Data,
		Run: func(context.Context) error {
			if len(server.Cluster.Endpoints) > 0 {
				return nil
			}
			if err := backend.CheckDisk(server.Data); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		},
	}
}

// spaceCheck checks the store of this machine's server, if there is one.
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
				if m.NearlyFull() {
					return fmt.Errorf("nearly full: %s", m)
				}
			}
			return nil
		},
	}
}

// openServersStore opens the server's cluster, or its embedded store if that runs; nil if not.
func openServersStore(ctx context.Context, server cli.Server) (*backend.Etcd, error) {
	cluster := server.Cluster
	cluster.SkipLimits = true
	if len(cluster.Endpoints) == 0 {
		var err error
		cluster, err = backend.Running(server.Data)
		if moved := new(backend.MovedError); errors.Is(err, store.ErrUnavailable) || errors.As(err, &moved) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
	}
	attempt, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return backend.Open(attempt, backend.Options{Cluster: &cluster})
}
