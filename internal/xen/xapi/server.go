package xapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"heddle/internal/api/credentials"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/task"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// Options of a Server.
type Options struct {
	Store store.Store
	Log   *slog.Logger     // nil: nothing is logged
	Now   func() time.Time // nil = time.Now
	// RootPasswordFile is where the first start leaves the password of the account root, for its owner alone to read; ""
	// makes no account.
	RootPasswordFile string
	// Hosts let machines in and out of the pool.
	Hosts Hosts
}

// Server serves one pool. It is a task: Run keeps its view of the store current and does the pool's own work.
type Server struct {
	opts      Options
	replica   *replica.Replica
	db        *records.DB
	lease     *lease
	calls     map[string]*model.Call // by name, and with an underscore for the first dot
	handlers  map[string]handler     // of messages, by name of the call
	sessions  *sessions
	passwords *credentials.Passwords
	throttle  *credentials.Throttle
	journal   *journal
	bell      *bell
	polls     chan struct{} // a token for each call that waits for events
	ready     chan struct{}
	stopping  chan struct{}     // closed when calls that wait are to end
	async     sync.WaitGroup    // calls made with Async
	orphaned  task.Notice       // holds a token when a task may have lost its server
	cancels   map[string]func() // of Async calls under way, by task
	cancelsMu sync.Mutex
}

// New makes a server; it answers once Run has read the store.
func New(o Options) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{
		opts:      o,
		lease:     newLease(o.Store, o.Log),
		calls:     spellings(model.Calls()),
		handlers:  operations(),
		sessions:  newSessions(o.Now),
		passwords: credentials.NewPasswords(credentials.DefaultCost()),
		throttle:  credentials.NewThrottle(o.Now),
		journal:   newJournal(),
		bell:      newBell(),
		polls:     make(chan struct{}, maxPolls),
		ready:     make(chan struct{}),
		stopping:  make(chan struct{}),
		orphaned:  task.NewNotice(),
		cancels:   map[string]func(){},
	}
	maps.Copy(s.handlers, sessionMessages())
	maps.Copy(s.handlers, eventMessages())
	maps.Copy(s.handlers, taskMessages())
	s.replica = replica.New(o.Store, replica.Options{Log: o.Log, Watch: schema.XenPrefix}, append(objects.Tables(), accounts, running, injections, marks)...)
	s.db = records.NewDB(o.Store, s.replica)
	s.replica.OnChange(s.journal.note)
	s.replica.OnChange(s.bell.ring)
	s.replica.OnChange(s.noteTasks)
	s.replica.OnChange(s.noteMembership)
	return s
}

func (s *Server) String() string { return "xapi" }

// Ready is closed once calls are answered.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	parts := []task.Task{s.replica, s.lease}
	parts = append(parts, s.background()...)
	parts = append(parts, &sweeper{server: s, ready: make(chan struct{})}, serving{s})
	return task.Run(ctx, parts...)
}

// serving is the last part: while it runs, calls are answered.
type serving struct{ *Server }

func (s serving) String() string { return "xapi calls" }

func (s serving) Run(ctx context.Context) error {
	if err := s.seed(ctx); err != nil {
		return err
	}
	close(s.ready)
	<-ctx.Done()
	s.endPolls()
	s.cancelAll()
	s.async.Wait()
	return nil
}

// Polls is a part to be started after whatever serves the Handler: when it is told to stop, calls that wait for events
// end, so that they do not hold up the end of the HTTP server for as long as clients like to wait.
func (s *Server) Polls() task.Task { return polls{s} }

type polls struct{ *Server }

func (p polls) String() string { return "xapi polls" }

func (p polls) Run(ctx context.Context) error {
	<-ctx.Done()
	p.endPolls()
	return nil
}

func (s *Server) endPolls() {
	s.cancelsMu.Lock()
	defer s.cancelsMu.Unlock()
	select {
	case <-s.stopping:
	default:
		close(s.stopping)
	}
}

// update commits what f writes, all or nothing, and returns once this server's own view and its events have it.
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

// view is a snapshot with everything committed so far, by whichever server.
func (s *Server) view(ctx context.Context) (*records.Snap, error) { return s.db.View(ctx) }

// now is what this server has: its own writes, and those of others as of a moment ago.
func (s *Server) now() *records.Snap { return records.Over(s.replica.Snapshot()) }

// object is an object, or HANDLE_INVALID. In a transaction the commit needs it to be unchanged. It must not be changed:
// see [edited].
func object(r records.Reader, class, ref string) (*objects.Object, error) {
	o, err := objects.Table(class).Get(r, ref)
	if absent := (*records.NotFoundError)(nil); errors.As(err, &absent) {
		return nil, model.HandleInvalid(class, ref)
	}
	return o, err
}

// edited is a copy of an object with other values of some fields, to be put. The values must not be changed afterwards.
func edited(o *objects.Object, fields model.Record) *objects.Object {
	c := &objects.Object{Class: o.Class, Ref: o.Ref, Fields: maps.Clone(o.Fields)}
	maps.Copy(c.Fields, fields)
	return c
}

// maxObject is how many bytes the fields of an object may have in all.
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
	if absent := (*records.NotFoundError)(nil); errors.As(err, &absent) {
		return model.HandleInvalid(class, ref)
	}
	return err
}

// newObject is an object with defaults, a uuid and ref of its own, and these fields.
func newObject(class string, fields model.Record) *objects.Object {
	id := newUUID()
	o := &objects.Object{Class: class, Ref: refPrefix + id, Fields: model.New(class)}
	o.Fields["uuid"] = id
	maps.Copy(o.Fields, fields)
	return o
}
