package xapi

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

const (
	maxPolls = 1024 // calls that wait for events at once
	// longestPoll bounds the timeout of event.from; clients ask again then.
	longestPoll = 10 * time.Minute
	// historyTimeout bounds the search for what was deleted before this server began.
	historyTimeout = 5 * time.Second
)

// injection is an artificial change of an object.
type injection struct {
	Class string `json:"class"`
	Ref   string `json:"ref"`
}

// injections are "<class>/<ref>"; they go with the server's lease, since only the change counts.
var injections = records.NewTable("xen-injection", schema.XenPrefix+"injections/", func(i *injection) string { return i.Class + "/" + i.Ref })

// subscription holds the classes that a session registered for, with the revision since when.
type subscription struct {
	classes map[string]int64
	upTo    position // up to which event.next has answered
}

func eventMessages() map[string]handler {
	return map[string]handler{
		"event.from":           eventFrom,
		"event.next":           eventNext,
		"event.register":       eventRegister,
		"event.unregister":     eventUnregister,
		"event.inject":         eventInject,
		"event.get_current_id": eventCurrentID,
	}
}

// position is a revision of the store, in one of its histories. Servers share both, so that a token
// from one server is good at another (spec 6).
type position struct{ rev, history int64 }

// token is the position as clients see it.
func (p position) token() string { return fmt.Sprintf("%020d,%020d", p.rev, p.history) }

func parseToken(t string) (position, error) {
	if t == "" {
		return position{}, nil
	}
	first, second, two := strings.Cut(t, ",")
	rev, err := strconv.ParseInt(first, 10, 64)
	history, err2 := strconv.ParseInt(second, 10, 64)
	if err != nil || err2 != nil || !two || rev < 0 || history < 0 {
		return position{}, model.EventFromTokenParseFailure(t)
	}
	return position{rev, history}, nil
}

// poll takes a place among the calls that wait; leave gives it back.
func (c *call) poll() (leave func(), err error) {
	select {
	case c.server.polls <- struct{}{}:
		return func() { <-c.server.polls }, nil
	default:
		return nil, model.InternalError(fmt.Sprintf("%d calls wait for events already; try again", maxPolls))
	}
}

// wait waits for more changes. If it is done, the call answers with what there is.
func (c *call) wait(more <-chan struct{}, late <-chan time.Time) (done bool, err error) {
	select {
	case <-more:
		return false, nil
	case <-late:
		return true, nil
	case <-c.server.stopping.Done():
		return true, nil
	case <-c.session.ended:
		return true, model.SessionInvalid(c.session.ref)
	case <-c.ctx.Done():
		return true, c.ctx.Err()
	}
}

func eventFrom(c *call) (any, error) {
	leave, err := c.poll()
	if err != nil {
		return nil, err
	}
	defer leave()
	f := newFilter(c.texts("classes"))
	after, err := parseToken(c.text("token"))
	if err != nil {
		return nil, err
	}
	if after.rev == 0 || c.server.ahead(c.ctx, after.rev) {
		return c.server.everything(c.ctx, f, position{}), nil
	}
	late := time.NewTimer(pollTime(c.float("timeout")))
	defer late.Stop()
	for {
		events, upTo, more, covered := c.server.journal.changes(after, func(e entry) bool { return f.matches(e.class, e.ref) })
		if !covered {
			return c.server.everything(c.ctx, f, after), nil
		}
		if len(events) > 0 {
			return eventBatch(c.server.now(), events, upTo), nil
		}
		after = upTo
		if done, err := c.wait(more, late.C); err != nil {
			return nil, err
		} else if done {
			return eventBatch(c.server.now(), nil, upTo), nil
		}
	}
}

// pollTime returns the time to wait for a client's seconds.
func pollTime(seconds float64) time.Duration {
	if math.IsNaN(seconds) || seconds < 0 {
		return 0
	}
	return time.Duration(min(seconds, longestPoll.Seconds()) * float64(time.Second))
}

// ahead reports whether the store never had this revision: the token is from another store.
func (s *Server) ahead(ctx context.Context, rev int64) bool {
	if known, _ := s.journal.position(); rev <= known.rev {
		return false
	}
	newest, err := s.opts.Store.Revision(ctx)
	return err == nil && rev > newest
}

// everything is all objects as added, for a client that begins or that the journal does not reach
// back to; for the latter also what was deleted after the revision, as far as the store remembers.
// Of another history it remembers nothing.
func (s *Server) everything(ctx context.Context, f filter, after position) model.Record {
	upTo, _ := s.journal.position() // before the snapshot: what comes between is sent twice rather than never
	now := s.now()
	var events []event
	for _, class := range model.Classes() {
		table := objects.Table(class.Name)
		if table == nil || !f.anyOf(class.Name) {
			continue
		}
		for o := range table.All(now) {
			if f.matches(class.Name, o.Ref) {
				events = append(events, event{upTo.rev, class.Name, o.Ref, added, o})
			}
		}
	}
	if after.rev > 0 && after.history == upTo.history {
		events = append(events, s.deletedSince(ctx, now, after.rev, upTo.rev, f)...)
	}
	return eventBatch(now, events, upTo)
}

// deletedSince asks the store's history for objects that were there at a revision and are no more.
// When the store has forgotten so much, clients find out by valid_ref_counts.
func (s *Server) deletedSince(ctx context.Context, now *records.Snap, after, upTo int64, f filter) []event {
	ctx, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	changes, failure := s.opts.Store.Watch(ctx, after, schema.XenPrefix+"objects/")
	s.opts.Store.Nudge(upTo)
	born := map[string]bool{}
	var gone []event
	for c := range changes {
		for _, e := range c.Events {
			class, ref, _ := strings.Cut(strings.TrimPrefix(e.Key, schema.XenPrefix+"objects/"), "/")
			switch {
			case !e.Deleted && e.CreateRevision == e.ModRevision:
				born[e.Key] = true
			case e.Deleted && !born[e.Key] && f.matches(class, ref) && objects.Table(class) != nil:
				if _, back := objects.Table(class).Peek(now, ref); !back {
					gone = append(gone, event{rev: e.ModRevision, class: class, ref: ref, operation: deleted})
				}
			}
		}
		if c.Revision >= upTo {
			cancel()
		}
	}
	if err := failure(); err != nil {
		s.opts.Log.Info("a client's token is older than the store's history; sending it all objects", "err", err)
	}
	return gone
}

// eventBatch returns the answer of event.from.
func eventBatch(r records.Reader, events []event, upTo position) model.Record {
	counts := map[string]int64{}
	for _, c := range model.Classes() {
		if t := objects.Table(c.Name); t != nil {
			counts[strings.ToLower(c.Name)] = int64(t.Count(r))
		}
	}
	all := eventRecords(r, events)
	for _, one := range all {
		one["id"] = strconv.FormatInt(one["id"].(int64), 10) // a text here, a number from event.next (spec 6)
	}
	return model.Record{"events": all, "token": upTo.token(), "valid_ref_counts": counts}
}

// eventRecords returns events as clients see them.
func eventRecords(r records.Reader, events []event) []model.Record {
	all := make([]model.Record, 0, len(events))
	for _, e := range events {
		one := model.Record{"id": e.rev, "timestamp": "0.0", "class": strings.ToLower(e.class), "operation": e.operation, "ref": e.ref}
		if e.object != nil {
			one["snapshot"] = recordOf(r, e.object)
		}
		all = append(all, one)
	}
	return all
}

func eventRegister(c *call) (any, error) {
	now, _ := c.server.journal.position()
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	if c.session.watched == nil {
		c.session.watched = &subscription{classes: map[string]int64{}, upTo: now}
	}
	for _, class := range c.texts("classes") {
		class = lowerClass(class)
		if _, there := c.session.watched.classes[class]; !there {
			c.session.watched.classes[class] = now.rev
		}
	}
	return nil, nil
}

func eventUnregister(c *call) (any, error) {
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	if c.session.watched == nil {
		return nil, nil
	}
	for _, class := range c.texts("classes") {
		delete(c.session.watched.classes, lowerClass(class))
	}
	if len(c.session.watched.classes) == 0 {
		c.session.watched = nil
	}
	return nil, nil
}

// registered returns the session's filter, and the position up to which it has the events.
func (o *session) registered() (wants func(entry) bool, upTo position, registered bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.watched == nil {
		return nil, position{}, false
	}
	type since struct {
		filter
		rev int64
	}
	var all []since
	for class, rev := range o.watched.classes {
		all = append(all, since{newFilter([]string{class}), rev})
	}
	return func(e entry) bool {
		for _, s := range all {
			if e.rev > s.rev && s.matches(e.class, e.ref) {
				return true
			}
		}
		return false
	}, o.watched.upTo, true
}

// delivered notes up to where event.next has answered. In another history all counts from there.
func (o *session) delivered(upTo position) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.watched == nil {
		return
	}
	if o.watched.upTo.history != upTo.history {
		for class, since := range o.watched.classes {
			o.watched.classes[class] = min(since, upTo.rev)
		}
		o.watched.upTo = upTo
	}
	o.watched.upTo.rev = max(o.watched.upTo.rev, upTo.rev)
}

func eventNext(c *call) (any, error) {
	leave, err := c.poll()
	if err != nil {
		return nil, err
	}
	defer leave()
	for {
		wants, after, registered := c.session.registered()
		if !registered {
			return nil, model.SessionNotRegistered(c.session.ref)
		}
		events, upTo, more, covered := c.server.journal.changes(after, wants)
		if !covered {
			now, _ := c.server.journal.position()
			c.session.delivered(now)
			return nil, model.EventsLost()
		}
		c.session.delivered(upTo)
		if len(events) > 0 {
			return eventRecords(c.server.now(), events), nil
		}
		if done, err := c.wait(more, nil); err != nil {
			return nil, err
		} else if done {
			return nil, model.SessionInvalid(c.session.ref) // the server ends, and its sessions with it
		}
	}
}

// eventInject makes an artificial change of an object. The token is of before it.
func eventInject(c *call) (any, error) {
	class, ref := c.text("class"), c.text("ref")
	known := classNamed(class)
	if known == "" {
		return nil, model.HandleInvalid(class, ref)
	}
	rev, err := c.server.commit(c.ctx, func(tx *records.Tx) error {
		if _, err := object(tx, known, ref); err != nil {
			return err
		}
		return injections.PutLeased(tx, &injection{known, ref}, c.server.lease.current())
	})
	if err != nil {
		return nil, err
	}
	now, _ := c.server.journal.position()
	return position{rev - 1, now.history}.token(), nil
}

// classNamed is the class of this name in whatever case, of those that are stored; "" for none.
func classNamed(name string) string {
	for _, c := range model.Classes() {
		if strings.EqualFold(c.Name, name) && objects.Table(c.Name) != nil {
			return c.Name
		}
	}
	return ""
}

func eventCurrentID(c *call) (any, error) {
	now, _ := c.server.journal.position()
	return now.rev, nil
}
