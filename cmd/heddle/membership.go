package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/google/uuid"

	"heddle/internal/store"
	"heddle/internal/store/presence"
	"heddle/internal/store/schema"
	"heddle/internal/task"
)

// newMembership returns a task that reports in the store that this server is alive, and which
// formats it knows.
func newMembership(st store.Store, role string, log *slog.Logger) task.Task {
	name, _ := os.Hostname() // without one `heddle upgrade status` shows the id alone
	newest := schema.KnownFormats().Newest()
	server := &schema.Server{ID: uuid.NewString(), Name: name, Role: role, Version: version, Reads: newest, Writes: newest, StartedAt: time.Now().UTC().Truncate(time.Second)}
	return newLoop("membership", func(ctx context.Context) error {
		key := schema.Servers.KeyOf(server)
		p := presence.New(presence.Options{Store: st, Prefix: key, TTL: schema.HostLease, Leave: true, Log: log.With("part", "membership")})
		if err := p.SetRecord(key, server); err != nil {
			return err
		}
		p.Complete()
		return p.Run(ctx)
	})
}
