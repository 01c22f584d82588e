package xapi

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"heddle/internal/api/credentials"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/telemetry"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// Options of a Server.
type Options struct {
	Store store.Store
	Log   *slog.Logger     // nil: nothing is logged
	Now   func() time.Time // nil = time.Now
	// RootPasswordFile is the file in which the first start leaves the password of the account
	// root, for its owner alone to read; "" makes no account.
	RootPasswordFile string
	// Hosts let machines in and out of the pool.
	Hosts    Hosts
	Watchdog *task.Watchdog // watches the copy of the store; nil: nothing does
}

// Server serves one pool. It is a task, ready once calls are answered: Run follows the store and
// does the pool's own work.
type Server struct {
	task.Part
	opts      Options
	replica   *replica.Replica
	db        *records.DB
	lease     *lease
	calls     map[string]*model.Call // by name, and with an underscore for the first dot
	handlers  map[string]handler     // of messages, by name of the call
	sessions  *sessions
	passwords *credentials.Passwords
	throttle  *credentials.Throttle
	refusals  *credentials.Refusals
	journal   *journal
	bell      task.Bell     // rings at each change of the server's view
	polls     chan struct{} // a token for each call that waits for events
	async     asyncCalls
	orphaned  task.Notice     // given when a task may have lost its server
	stopping  context.Context // ends when calls that wait have to
	stop      context.CancelFunc
}

// New makes a server; it answers once Run has read the store.
func New(o Options) *Server {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{
		Part:      task.NewPart("xapi"),
		opts:      o,
		lease:     newLease(o.Store, o.Log),
		calls:     spellings(model.Calls()),
		handlers:  operations(),
		sessions:  newSessions(o.Now),
		passwords: credentials.NewPasswords(credentials.DefaultCost()),
		throttle:  credentials.NewThrottle(o.Now),
		refusals: credentials.NewRefusals(credentials.RefusalOptions{
			API: "xapi", Message: "log-in refused", Subject: "account", Reasons: credentials.LoginReasons(), Log: o.Log, Now: o.Now,
		}),
		journal:  newJournal(),
		polls:    make(chan struct{}, maxPolls),
		async:    asyncCalls{cancels: map[string]func(){}},
		orphaned: task.NewNotice(),
	}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.replica = replica.New(o.Store, replica.Options{Log: o.Log, Watch: schema.XenPrefix, Watchdog: o.Watchdog}, tables()...)
	s.db = records.NewDB(o.Store, s.replica)
	s.replica.OnChange(s.journal.note)
	s.replica.OnChange(func(snapshot.Update) { s.bell.Ring() })
	s.replica.OnChange(s.noteTasks)
	s.replica.OnChange(s.sessions.note)
	return s
}

// tables returns the tables of a server's replica.
func tables() []snapshot.Table { return append(objects.Tables(), accounts, running, injections, marks) }

// Metrics returns the number of refused log-ins.
func (s *Server) Metrics() []telemetry.Value { return s.refusals.Metrics() }

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	return task.Run(ctx, s.replica, s.lease, newKeeper(s), s.marker(), s.sweeper(), task.New("xapi calls", s.serve))
}

// serve answers calls until ctx ends.
func (s *Server) serve(ctx context.Context, ready func()) error {
	if err := s.seed(ctx); err != nil {
		return err
	}
	s.BeReady()
	ready()
	<-ctx.Done()
	s.stop()
	s.async.end()
	return nil
}

// Polls returns a part to be started after the one that serves the Handler: when it is stopped,
// calls that wait for events end, so that the HTTP server can end before their timeouts.
func (s *Server) Polls() task.Task {
	return task.New("xapi polls", func(ctx context.Context, ready func()) error {
		select {
		case <-s.Ready():
			ready()
			<-ctx.Done()
		case <-ctx.Done():
		}
		s.stop()
		return nil
	})
}

// update commits what f writes, and returns once this server's view and its events have it.
func (s *Server) update(ctx context.Context, f func(tx *records.Tx) error) error {
	_, err := s.commit(ctx, f)
	return err
}

// commit is update, and says at which revision.
func (s *Server) commit(ctx context.Context, f func(tx *records.Tx) error) (int64, error) {
	var read int64
	rev, err := s.db.Update(ctx, func(tx *records.Tx) error {
		read = tx.Revision()
		return f(tx)
	})
	if err != nil {
		return 0, err
	}
	if _, err := s.replica.At(ctx, rev); err != nil {
		return 0, err
	}
	if rev > read { // something was written
		s.journal.await(rev)
	}
	return rev, nil
}

// view returns a snapshot with everything committed so far, by whichever server.
func (s *Server) view(ctx context.Context) (*records.Snap, error) { return s.db.View(ctx) }

// now returns what this server has: its own writes, and those of others as of a moment ago.
func (s *Server) now() *records.Snap { return records.Over(s.replica.Snapshot()) }

// object returns an object, or HANDLE_INVALID. In a transaction the commit needs it to be
// unchanged. It must not be changed: see [edited].
func object(r records.Reader, class, ref string) (*objects.Object, error) {
	o, err := objects.Table(class).Get(r, ref)
	if err != nil && unlessGone(err) == nil {
		return nil, model.HandleInvalid(class, ref)
	}
	return o, err
}

// edited returns a copy of an object with other values of some fields, to be put. The values must
// not be changed afterwards.
func edited(o *objects.Object, fields model.Record) *objects.Object {
	c := *o
	c.Fields = maps.Clone(o.Fields)
	maps.Copy(c.Fields, fields)
	return &c
}

// maxObject limits the fields of an object, in bytes.
const maxObject = 256 << 10

// put stores an object, unless it is too large.
func put(tx *records.Tx, o *objects.Object) error {
	if err := checkObjectSize(o.Fields); err != nil {
		return err
	}
	return objects.Table(o.Class).Put(tx, o)
}

// checkObjectSize refuses fields with more than maxObject bytes in all, by the name of the largest.
func checkObjectSize(fields model.Record) error {
	total, largest, name := 0, -1, ""
	for field, value := range fields {
		n := len(field)
		switch v := value.(type) {
		case string:
			n += len(v)
		case []string:
			for _, s := range v {
				n += len(s) + 1
			}
		case map[string]string:
			for k, s := range v {
				n += len(k) + len(s) + 1
			}
		}
		if total += n; n > largest || n == largest && field < name {
			largest, name = n, field
		}
	}
	if total <= maxObject {
		return nil
	}
	return model.InvalidValue(name, fmt.Sprintf("%d bytes: the fields of an object may have %d in all", largest, maxObject))
}

// remove deletes an object; HANDLE_INVALID when it is gone already.
func remove(tx *records.Tx, class, ref string) error {
	err := objects.Table(class).Delete(tx, ref)
	if err != nil && unlessGone(err) == nil {
		return model.HandleInvalid(class, ref)
	}
	return err
}

// newObject returns an object with defaults, a uuid and ref of its own, and these fields.
func newObject(class string, fields model.Record) *objects.Object {
	id := newUUID()
	o := &objects.Object{Class: class, Ref: refPrefix + id, Fields: model.New(class)}
	o.Fields["uuid"] = id
	maps.Copy(o.Fields, fields)
	return o
}
