package client

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"heddle/internal/xen/model"
)

// Operation is a kind of change of an object.
type Operation string

// Operations.
const (
	Add Operation = "add"
	Mod Operation = "mod"
	Del Operation = "del"
)

// Event is a change of an object.
type Event struct {
	Class     string // as the model spells it; as the server does when the model lacks it
	Operation Operation
	Ref       string
	Record    model.Record // the object after the change; nil after Del
}

// Batch holds the changes up to a token.
type Batch struct {
	Events []Event
	Token  string           // where the next batch begins
	Counts map[string]int64 // living objects by class, as the server counts them
}

// grace is added to the timeout of event.from for its answer to arrive.
const grace = 30 * time.Second

// eventsLost is the error of a server that no longer has all changes since a token.
const eventsLost = "EVENTS_LOST"

// Events are the changes of objects of some classes ("*": of all) since a token; with token ""
// every living object comes as an Add. It waits for the first at most for wait, and then answers
// without any.
func (s *Session) Events(ctx context.Context, classes []string, token string, wait time.Duration) (Batch, error) {
	b, _, err := s.events(ctx, classes, token, wait)
	return b, err
}

// events also says with which login it asked.
func (s *Session) events(ctx context.Context, classes []string, token string, wait time.Duration) (Batch, int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, wait+grace, fmt.Errorf("no answer to event.from, %s after it was due", grace))
	defer cancel()
	raw, nth, err := s.call(ctx, "event.from", []any{classes, token, wait.Seconds()})
	if err != nil {
		return Batch{}, nth, err
	}
	b, err := batch(raw)
	if err != nil {
		return Batch{}, nth, fmt.Errorf("event.from: %w", err)
	}
	return b, nth, nil
}

// batch reads what event.from answers.
func batch(raw any) (Batch, error) {
	r, ok := raw.(map[string]any)
	if !ok {
		return Batch{}, fmt.Errorf("%T is no record", raw)
	}
	token, ok := r["token"].(string)
	if !ok {
		return Batch{}, fmt.Errorf("token: %T is no text", r["token"])
	}
	list, ok := r["events"].([]any)
	if !ok {
		return Batch{}, fmt.Errorf("events: %T is no set", r["events"])
	}
	counts, ok := r["valid_ref_counts"].(map[string]any)
	if !ok {
		return Batch{}, fmt.Errorf("valid_ref_counts: %T is no map", r["valid_ref_counts"])
	}
	b := Batch{Token: token, Events: make([]Event, len(list)), Counts: make(map[string]int64, len(counts))}
	var err error
	for i, raw := range list {
		if b.Events[i], err = event(raw); err != nil {
			return Batch{}, err
		}
	}
	for class, n := range counts {
		if b.Counts[spelt(class)], err = integer(n); err != nil {
			return Batch{}, fmt.Errorf("valid_ref_counts: %s: %w", class, err)
		}
	}
	return b, nil
}

// event reads one event.
func event(raw any) (Event, error) {
	members, ok := raw.(map[string]any)
	if !ok {
		return Event{}, fmt.Errorf("event: %T is no record", raw)
	}
	class, _ := members["class"].(string)
	operation, _ := members["operation"].(string)
	e := Event{Class: spelt(class), Operation: Operation(operation)}
	e.Ref, _ = members["ref"].(string)
	if e.Ref == "" || (e.Operation != Add && e.Operation != Mod && e.Operation != Del) {
		return Event{}, fmt.Errorf("event of class %q with operation %q and reference %q", class, operation, e.Ref)
	}
	if e.Operation == Del {
		return e, nil
	}
	var err error
	if e.Record, err = record(e.Class, members["snapshot"]); err != nil {
		return Event{}, fmt.Errorf("event of %s %s: %w", class, e.Ref, err)
	}
	return e, nil
}

// spelt is a class of an event, which may be in lower case, as the model spells it.
func spelt(class string) string {
	if c := model.LookupFold(class); c != nil {
		return c.Name
	}
	return class
}

// Objects are those of some classes: by class, by reference.
type Objects map[string]map[string]model.Record

// pollPeriod is the timeout of Follow's event.from: shorter than that of connections in firewalls.
const pollPeriod = 30 * time.Second

// Follow keeps a copy of all objects of some classes, none of them "*". It calls changed with all
// of them at the start, then after every change, with what changed since the last call; the objects
// are only lent for the call. When the server may have left out a change, as after EVENTS_LOST, or
// counts other objects than the copy has, it reads everything anew and delivers the differences. It
// returns when ctx ends or something fails that reading anew does not cure; to go on, call it
// again.
func (s *Session) Follow(ctx context.Context, classes []string, changed func(Objects, []Event) error) error {
	f := follower{session: s, classes: classes, objects: Objects{}}
	for _, class := range classes {
		f.objects[class] = map[string]model.Record{}
	}
	for first := true; ; first = false {
		events, err := f.next(ctx)
		if err != nil {
			return err
		}
		if !first && len(events) == 0 {
			continue
		}
		if err := changed(f.objects, events); err != nil {
			return err
		}
	}
}

// follower is a Follow under way.
type follower struct {
	session *Session
	classes []string
	objects Objects
	token   string // "": everything is to be read
	login   int    // the token is of it
}

// next waits for changes, brings the copy up to date and gives them. There may be none.
func (f *follower) next(ctx context.Context) ([]Event, error) {
	b, login, err := f.session.events(ctx, f.classes, f.token, pollPeriod)
	switch {
	case Code(err) == eventsLost && f.token != "":
		f.token = ""
		return nil, nil
	case err != nil:
		return nil, err
	case f.token != "" && login != f.login:
		// The server forgot the session: it may have begun anew, and tokens with it.
		f.token, f.login = "", login
		return nil, nil
	}
	all := f.token == ""
	f.token, f.login = b.Token, login
	if all {
		return f.replace(b.Events), nil
	}
	f.apply(b.Events)
	for class, n := range b.Counts {
		if objects, ok := f.objects[class]; ok && int64(len(objects)) != n {
			f.token = ""
		}
	}
	return b.Events, nil
}

// apply puts changes into the copy.
func (f *follower) apply(events []Event) {
	for _, e := range events {
		objects, ok := f.objects[e.Class]
		switch {
		case !ok: // not asked for
		case e.Operation == Del:
			delete(objects, e.Ref)
		default:
			objects[e.Ref] = e.Record
		}
	}
}

// replace makes the copy what the events add, and gives the difference, in the server's order.
func (f *follower) replace(events []Event) []Event {
	was := f.objects
	f.objects = Objects{}
	for _, class := range f.classes {
		f.objects[class] = map[string]model.Record{}
	}
	f.apply(events)
	var changes []Event
	for _, e := range events {
		before, ok := was[e.Class][e.Ref]
		switch {
		case !ok:
			changes = append(changes, e)
		case !reflect.DeepEqual(before, e.Record):
			changes = append(changes, Event{e.Class, Mod, e.Ref, e.Record})
		}
	}
	for _, class := range f.classes {
		for _, ref := range slices.Sorted(maps.Keys(was[class])) {
			if _, ok := f.objects[class][ref]; !ok {
				changes = append(changes, Event{Class: class, Operation: Del, Ref: ref})
			}
		}
	}
	return changes
}
