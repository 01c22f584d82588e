// Package dnsupdate publishes the names of floating IPs and ports on a DNS server, by updates of
// RFC 2136 that are signed with TSIG.
//
//	replica ──desired()──▶ records by name ─┐
//	                                        ├─▶ differences ─▶ note in the store ─▶ update ─▶ note
//	store: what was published ──────────────┘
//
// Of all servers one publishes, the one that holds a key under its lease. It compares states, so
// that what it has missed is made up for. It never changes records of others: a name is first
// published on condition that the server has no records of it.
package dnsupdate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"heddle/internal/neutron"
	"heddle/internal/store/presence"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/telemetry"
)

// Publisher keeps records on the DNS server as the objects define them. It is a task.
type Publisher struct {
	task.Part
	opts   Options
	server *server
	log    *slog.Logger
	wake   task.Notice // given after objects have changed

	mu      sync.Mutex
	figures figures
}

// figures are the metrics.
type figures struct {
	publishing                  bool
	published, failing, updates int
}

// New returns the task, which follows the replica from when that runs. Its errors name the option.
func New(o Options) (*Publisher, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	p := &Publisher{
		Part: task.NewPart("DNS updates"), opts: o, server: &server{o.Server, o.Key}, log: o.Log, wake: task.NewNotice(),
	}
	o.Objects.OnChange(p.notice)
	return p, nil
}

// notice wakes the task for changes of objects that may have names.
func (p *Publisher) notice(u snapshot.Update) {
	if slices.ContainsFunc(u.Changed, concernsNames) {
		p.wake.Give()
	}
}

// concernsNames reports whether a change may change what is published: of most ports it does not,
// for they have no names.
func concernsNames(c snapshot.Changed) bool {
	switch c.Source {
	case schema.FloatingIPs.Name(), schema.Networks.Name():
		return true
	case schema.Ports.Name():
		return isNamed(c.Old) || isNamed(c.New)
	}
	return false
}

func isNamed(port any) bool {
	p, ok := port.(*neutron.Port)
	return ok && p.DNSName != ""
}

// Metrics returns the state of publishing.
func (p *Publisher) Metrics() []telemetry.Value {
	p.mu.Lock()
	f := p.figures
	p.mu.Unlock()
	return []telemetry.Value{
		telemetry.Flag("heddle_dns_publishing", "1 while this server is the one that publishes names on the DNS server.", f.publishing),
		telemetry.Gauge.Of("heddle_dns_names_published", "Names with records on the DNS server; on the server that publishes.", f.published),
		telemetry.Gauge.Of("heddle_dns_names_failing", "Names that cannot be published or withdrawn; on the server that publishes.", f.failing),
		telemetry.Counter.Of("heddle_dns_updates_total", "Updates that the DNS server has carried out.", f.updates),
	}
}

const leastPause, mostPause = time.Second, time.Minute

// Run publishes until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	p.BeReady()
	backoff := task.Backoff{Least: leastPause, Most: mostPause}
	for ctx.Err() == nil {
		err := presence.Campaign(ctx, p.opts.Store, publisherKey, p.opts.TTL, func(ctx context.Context, term int64) error {
			backoff.Reset()
			return p.lead(ctx, term)
		})
		p.note(func(f *figures) { *f = figures{updates: f.updates} })
		if ctx.Err() != nil {
			return nil
		}
		p.log.Warn("stopped publishing DNS names", "err", err)
		backoff.Pause(ctx)
	}
	return nil
}

func (p *Publisher) note(change func(*figures)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.figures)
}

// lead publishes until ctx ends, or the store refuses.
func (p *Publisher) lead(ctx context.Context, term int64) error {
	l, err := loadLedger(ctx, p.opts.Store, term)
	if err != nil {
		return err
	}
	p.log.Info("publishing DNS names", "server", p.opts.Server, "zones", p.opts.Zones)
	// All is written once again: the server may have lost what it had.
	round := &round{Publisher: p, ledger: l, doubtful: map[string]bool{}, failed: map[string]string{}}
	for name := range l.names {
		round.doubtful[name] = true
	}
	backoff := task.Backoff{Least: leastPause, Most: mostPause}
	for {
		if err := round.pass(ctx); err != nil {
			return err
		}
		var retry <-chan time.Time
		if round.retry {
			retry = time.After(backoff.Next())
		} else {
			backoff.Reset()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.wake:
		case <-retry:
		}
	}
}

// round is the state that a publisher keeps from pass to pass.
type round struct {
	*Publisher
	ledger   *ledger
	doubtful map[string]bool   // names that are written although they seem right
	failed   map[string]string // why names are not as desired
	retry    bool              // the last pass has left something undone that may succeed later
}

// pass makes the records of all names those desired. Its error is the store's: what the DNS server
// refuses is logged, and the pass goes on with other names.
func (r *round) pass(ctx context.Context) error {
	snap, err := r.opts.Objects.Fresh(ctx)
	if err != nil {
		return err
	}
	want, failed := desired(records.Over(snap), r.opts.Zones)
	r.retry = false
	names := maps.Clone(want)
	for name, has := range r.ledger.names {
		if _, wanted := want[name]; !wanted {
			names[name] = has.recordSet
		}
	}
	waiting := 0 // names that were not tried, since the zone or the server fails
	for _, name := range slices.Sorted(maps.Keys(names)) {
		zone := names[name].Zone
		if !r.differs(name, want[name]) {
			continue
		}
		if failed[everything] != "" || failed["zone "+zone] != "" {
			if why := r.failed[name]; why != "" {
				failed[name] = why // as far as is known
			} else {
				waiting++
			}
			continue
		}
		err := r.bring(ctx, name, want[name])
		var stored storeError
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &stored):
			return stored.error
		case zoneWide(err):
			name = "zone " + zone
		case !errors.As(err, new(refusal)) && !errors.Is(err, errForeign):
			name = everything
		}
		failed[name], r.retry = err.Error(), true
	}
	r.report(failed, waiting)
	return nil
}

// everything stands for all names, which fail while the DNS server does not answer.
const everything = "all names"

// report logs what fails newly or otherwise than before, and what no longer does.
func (r *round) report(failed map[string]string, waiting int) {
	for _, what := range slices.Sorted(maps.Keys(failed)) {
		if failed[what] != r.failed[what] {
			r.log.Warn("cannot publish on the DNS server", "what", what, "err", failed[what])
		}
	}
	for _, what := range slices.Sorted(maps.Keys(r.failed)) {
		if failed[what] == "" {
			r.log.Info("no longer fails on the DNS server", "what", what)
		}
	}
	r.failed = failed
	names := 0
	for _, p := range r.ledger.names {
		if len(p.Records) > 0 {
			names++
		}
	}
	r.note(func(f *figures) { f.publishing, f.published, f.failing = true, names, len(failed)+waiting })
}

// errForeign reports that the DNS server has records of a name that Heddle did not write.
var errForeign = errors.New("the DNS server has other records of the name, which are left alone")

// storeError is an error of the store, after which nothing more may be published.
type storeError struct{ error }

// differs reports whether a name needs an update.
func (r *round) differs(name string, want recordSet) bool {
	has, known := r.ledger.names[name]
	if !known {
		return len(want.Records) > 0
	}
	return r.doubtful[name] || has.Pending || has.Zone != want.Zone || !slices.Equal(has.Records, want.Records)
}

// bring makes a name's records those desired; none withdraws it.
func (r *round) bring(ctx context.Context, name string, want recordSet) error {
	if !r.differs(name, want) {
		return nil
	}
	has := r.ledger.names[name]
	if has.Zone != "" && want.Zone != "" && has.Zone != want.Zone { // zones were split or joined
		if err := r.bring(ctx, name, recordSet{}); err != nil {
			return err
		}
		has = published{}
	}
	if want.Zone == "" {
		want.Zone = has.Zone
	}
	var err error
	if len(has.Records) > 0 {
		err = r.replace(ctx, name, has, want)
	} else {
		err = r.publish(ctx, name, has, want)
	}
	if err == nil {
		delete(r.doubtful, name)
	}
	return err
}

// replace changes records of a name that is ours.
func (r *round) replace(ctx context.Context, name string, has published, want recordSet) error {
	attempt := union(has.Attempt, want.Records)
	if err := r.put(ctx, name, published{recordSet: has.recordSet, Attempt: attempt, Pending: true}); err != nil {
		return err
	}
	remove := slices.DeleteFunc(union(has.Records, attempt), func(record string) bool { return slices.Contains(want.Records, record) })
	if err := r.send(ctx, update{zone: want.Zone, name: name, remove: remove, insert: want.Records}); err != nil {
		return err
	}
	return r.put(ctx, name, published{recordSet: want})
}

// publish writes the first records of a name. An attempt before may have succeeded: it is undone.
func (r *round) publish(ctx context.Context, name string, has published, want recordSet) error {
	if len(has.Attempt) > 0 {
		undo := update{zone: want.Zone, name: name, exact: has.Attempt, remove: has.Attempt}
		if err := r.send(ctx, undo); err != nil && !unmet(err) {
			return err
		}
	}
	if len(want.Records) == 0 {
		return r.put(ctx, name, published{})
	}
	if err := r.put(ctx, name, published{recordSet: recordSet{Zone: want.Zone}, Attempt: want.Records, Pending: true}); err != nil {
		return err
	}
	err := r.send(ctx, update{zone: want.Zone, name: name, unused: true, insert: want.Records})
	if unmet(err) { // the same records are ours, of a store before it was restored
		err = r.send(ctx, update{zone: want.Zone, name: name, exact: want.Records})
	}
	if unmet(err) {
		if err := r.put(ctx, name, published{}); err != nil {
			return err
		}
		return errForeign
	}
	if err != nil {
		return err
	}
	return r.put(ctx, name, published{recordSet: want})
}

func (r *round) put(ctx context.Context, name string, p published) error {
	if err := r.ledger.put(ctx, name, p); err != nil {
		return storeError{fmt.Errorf("note %s: %w", name, err)}
	}
	return nil
}

func (r *round) send(ctx context.Context, u update) error {
	err := r.server.send(ctx, u)
	if err == nil {
		r.note(func(f *figures) { f.updates++ })
	}
	return err
}

// union returns the elements of two lists, sorted.
func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
