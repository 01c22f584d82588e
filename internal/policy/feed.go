package policy

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"heddle/internal/store"
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

const (
	// leastPause and mostPause bound the pauses between attempts to follow the store.
	leastPause, mostPause = 50 * time.Millisecond, 2 * time.Second
	// sameEvery is how often the store is asked whether it is still the same: a watch does not tell that another cluster
	// answers, or one that was restored from a backup.
	sameEvery = 10 * time.Second
	// askPatience bounds that question.
	askPatience = 5 * time.Second
)

// news is what the feed tells: all that there is at a revision, or what has changed since the last news.
type news struct {
	revision int64
	snapshot bool
	other    bool          // of a snapshot: the store is another one, so that revisions do not compare
	all      []store.KV    // of a snapshot
	events   []store.Event // else
}

// feed follows the model. It begins with a snapshot and gives another one whenever it has lost its place.
type feed struct {
	store     store.Store
	log       *slog.Logger
	sameEvery time.Duration
	out       chan news
	again     chan struct{} // holds a token when a snapshot is asked for
	told      int64         // the revision of the last news
	cluster   uint64
	other     bool // the store is another one than that of the last snapshot
	away      bool // as last logged
}

func newFeed(st store.Store, every time.Duration, log *slog.Logger) *feed {
	return &feed{store: st, log: log, sameEvery: every, out: make(chan news, 64), again: make(chan struct{}, 1)}
}

// identified is a store that can tell which cluster it is.
type identified interface {
	ClusterID(context.Context) (uint64, error)
}

// errOther says that another cluster answers than before, or one from before.
var errOther = errors.New("the store is another one than before")

// errAsked says that a snapshot was asked for.
var errAsked = errors.New("resync")

// resync asks for a snapshot.
func (f *feed) resync() {
	select {
	case f.again <- struct{}{}:
	default:
	}
}

// run follows the model until ctx ends.
func (f *feed) run(ctx context.Context) error {
	list := true
	for pause := leastPause; ; pause = min(2*pause, mostPause) {
		began := time.Now()
		err := f.follow(ctx, list)
		if ctx.Err() != nil {
			return nil
		}
		f.other = f.other || errors.Is(err, errOther)
		list = f.told == 0 || errors.Is(err, store.ErrCompacted) || errors.Is(err, errOther) || errors.Is(err, errAsked)
		if errors.Is(err, errAsked) {
			pause = leastPause / 2
			continue
		}
		if !f.away {
			f.away = true
			f.log.Warn("lost the store; what is in force stays", "err", err, "revision", f.told)
		}
		if time.Since(began) > mostPause {
			pause = leastPause
		}
		wait(ctx, pause/2+rand.N(pause))
	}
}

// wait waits, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// follow takes a snapshot if told to, then passes on what the watch brings until it ends.
func (f *feed) follow(ctx context.Context, list bool) error {
	if err := f.identify(ctx); err != nil && !errors.Is(err, errOther) {
		return err
	} else if err != nil {
		list, f.other = true, true
	}
	if list {
		kvs, rev, err := f.store.List(ctx, root)
		if err != nil {
			return err
		}
		if !f.tell(ctx, news{revision: rev, snapshot: true, other: f.other, all: kvs}) {
			return nil
		}
		f.other = false
	}
	watching, cancel := context.WithCancel(ctx)
	changes, failed := f.store.Watch(watching, f.told, root)
	if f.away {
		f.away = false
		f.log.Info("following the store again", "revision", f.told)
	}
	defer func() {
		cancel()
		for range changes { // until the watch has let go
		}
	}()
	same := time.NewTicker(f.sameEvery)
	defer same.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.again:
			return errAsked
		case <-same.C:
			if err := f.identify(ctx); errors.Is(err, errOther) {
				return err
			}
		case c, ok := <-changes:
			if !ok {
				return failed()
			}
			if !f.tell(ctx, news{revision: c.Revision, events: c.Events}) {
				return nil
			}
		}
	}
}

// identify asks the store who it is and where. While it does not answer, nothing is known to have changed.
func (f *feed) identify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	rev, err := f.store.Revision(ctx)
	if err != nil {
		return err
	}
	if rev < f.told {
		return errOther
	}
	named, ok := f.store.(identified)
	if !ok {
		return nil
	}
	id, err := named.ClusterID(ctx)
	if err != nil {
		return err
	}
	was := f.cluster
	f.cluster = id
	if was != 0 && was != id {
		return errOther
	}
	return nil
}

// tell passes news on; false when ctx has ended.
func (f *feed) tell(ctx context.Context, n news) bool {
	select {
	case f.out <- n:
		f.told = n.revision
		return true
	case <-ctx.Done():
		return false
	}
}
