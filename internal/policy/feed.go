package policy

import (
	"context"
	"log/slog"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/follow"
)

// modelPrefix is watched as one prefix, so that one transaction arrives as one update.
const modelPrefix = "/calico/"

// feed follows the model. Its first update is a full one, as is each one after a lost watch.
type feed struct {
	follower *follow.Follower
	out      chan follow.Update
}

// newFeed returns a feed that checks the identity of the store at intervals; 0: the default.
func newFeed(st store.Store, checkEvery time.Duration, journal *follow.Journal, log *slog.Logger) *feed {
	return &feed{out: make(chan follow.Update, 64), follower: follow.New(follow.Options{
		Store: st, Prefixes: []string{modelPrefix}, Journal: journal, CheckEvery: checkEvery, Log: log})}
}

func (f *feed) relist() { f.follower.Relist() }

// run follows the model until ctx ends.
func (f *feed) run(ctx context.Context) error {
	return f.follower.Run(ctx, func(ctx context.Context, u follow.Update) {
		select {
		case f.out <- u:
		case <-ctx.Done():
		}
	})
}
