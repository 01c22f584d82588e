package policy

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/follow"
)

// root is where Calico's model lies, legacy and v1. It is watched as one prefix: what one transaction writes arrives as
// one, without asking etcd whether it is whole.
const root = "/calico/"

// elsewhere are the parts of the model that say nothing about policy, by prefix.
var elsewhere = []string{"/calico/ipam/", "/calico/bgp/v1/global/", "/calico/felix/", "/calico/dhcp/", "/calico/openstack/"}

// concerns says whether a key may say something about policy.
func concerns(key string) bool {
	for _, p := range elsewhere {
		if strings.HasPrefix(key, p) {
			return false
		}
	}
	return true
}

// news is what the feed delivers: all that there is at a revision, or what has changed since the last news.
type news struct {
	revision int64
	snapshot bool
	other    bool          // of a snapshot: the store was replaced or restored, so that revisions do not compare
	recalled time.Time     // of a snapshot from disk: when it was last known to be current
	all      []store.KV    // of a snapshot
	events   []store.Event // else
}

// feed follows the model. It begins with a snapshot and gives another one whenever it has lost its place.
type feed struct {
	follower *follow.Follower
	out      chan news
}

// newFeed returns a feed that checks at intervals of every whether the store is still the same one; 0: the default.
func newFeed(st store.Store, every time.Duration, journal *follow.Journal, log *slog.Logger) *feed {
	return &feed{out: make(chan news, 64), follower: follow.New(follow.Options{
		Store: st, Prefixes: []string{root}, Journal: journal, CheckEvery: every, Log: log})}
}

// resync asks for a snapshot.
func (f *feed) resync() { f.follower.Relist() }

// run follows the model until ctx ends.
func (f *feed) run(ctx context.Context) error {
	return f.follower.Run(ctx, func(ctx context.Context, u follow.Update) {
		select {
		case f.out <- news{revision: u.Revision, snapshot: u.Full, other: u.Diverged, recalled: u.Recalled, all: u.All, events: u.Events}:
		case <-ctx.Done():
		}
	})
}
