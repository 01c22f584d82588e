// Package identity is Keystone v3 in the small: what the openstack command, gophercloud, Terraform and tempest ask of an
// identity service (neutron-api §11), over the tables of the store. It also validates tokens for Heddle's other APIs,
// its own or, with [Keystone], those of an existing Keystone.
//
// A token is random; the store has only its SHA-256, so that reading the store gives nobody a token. It says what was
// granted when it was issued and is worth nothing as soon as any of that is no longer so: each server finds that out on
// its own replica of the identity tables, in a microsecond and without asking the store.
//
//	password ─▶ throttle, passwords ─▶ Token in the store ─watch─▶ replica of every server ─▶ Validate
package identity

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"heddle/internal/api"
	"heddle/internal/api/credentials"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
)

const (
	defaultLife = time.Hour
	// leaseWindow is how long tokens share one lease.
	leaseWindow = 5 * time.Minute
	// maxFresh bounds how many unknown tokens are looked for in the store at once.
	maxFresh = 16
)

// Options of a Service.
type Options struct {
	Store  store.Store
	Region string // "" = RegionOne
	// URL is the public address of this service, with /v3; "" = by which each client reached it.
	URL       string
	Services  []Endpoint       // what else the catalog lists, such as Neutron
	TokenLife time.Duration    // 0 = one hour
	Log       *slog.Logger     // nil: nothing is logged
	Now       func() time.Time // nil = time.Now
}

// Service is the identity service. It is a task: Run keeps its view of the store current.
type Service struct {
	*tables
	opts      Options
	catalog   catalog
	replica   *replica.Replica
	db        *records.DB
	passwords passwords
	throttle  *credentials.Throttle
	leases    leases
	looking   chan struct{} // slots for looking unknown tokens up
	checked   atomic.Pointer[checked]
}

// New makes a service; it answers once Run has read the store.
func New(o Options) *Service {
	if o.Region == "" {
		o.Region = "RegionOne"
	}
	if o.TokenLife == 0 {
		o.TokenLife = defaultLife
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	own := Endpoint{Type: "identity", Name: "keystone", URL: o.URL, Path: "/v3"}
	s := &Service{
		tables:    newTables(),
		opts:      o,
		catalog:   catalog{region: o.Region, services: append([]Endpoint{own}, o.Services...)},
		passwords: newPasswords(credentials.DefaultCost()),
		throttle:  credentials.NewThrottle(o.Now),
		leases:    leases{store: o.Store, life: o.TokenLife, now: o.Now},
		looking:   make(chan struct{}, maxFresh),
	}
	s.replica = replica.New(o.Store, replica.Options{Log: o.Log, Watch: schema.IdentityPrefix}, s.all()...)
	s.db = records.NewDB(o.Store, s.replica)
	s.forget()
	s.replica.OnChange(func(u replica.Update) {
		for _, c := range u.Changed {
			if c.Source != s.tokens.Name() || c.New == nil {
				s.forget() // something a token may rest on, or a token itself, is not what it was
				return
			}
		}
	})
	return s
}

func (s *Service) String() string { return "identity" }

// Ready is closed once tokens can be checked.
func (s *Service) Ready() <-chan struct{} { return s.replica.Ready() }

// Run follows the store until ctx ends.
func (s *Service) Run(ctx context.Context) error { return s.replica.Run(ctx) }

// update commits what f writes and returns once this server's own view has it.
func (s *Service) update(ctx context.Context, f func(tx *records.Tx) error) error {
	rev, err := s.db.Update(ctx, f)
	if err != nil {
		return explain(err)
	}
	if _, err := s.replica.At(ctx, rev); err != nil {
		return explain(err)
	}
	s.forget()
	return nil
}

// amend changes one record, which is a copy for edit to change, and returns it.
func amend[T any](ctx context.Context, s *Service, t *records.Table[T], id string, edit func(o *T) error) (*T, error) {
	var o *T
	err := s.update(ctx, func(tx *records.Tx) error {
		old, err := t.Get(tx, id)
		if err != nil {
			return err
		}
		o = clone(old)
		if err := edit(o); err != nil {
			return err
		}
		return t.Put(tx, o)
	})
	return o, err
}

// view is a snapshot with everything committed so far, by whichever server.
func (s *Service) view(ctx context.Context) (*records.Snap, error) {
	snap, err := s.db.View(ctx)
	return snap, explain(err)
}

// explain turns errors of the store into Keystone's answers.
func explain(err error) error {
	var (
		absent *records.NotFoundError
		taken  *records.TakenError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &absent):
		return notFound(absent.Table, absent.ID)
	case errors.As(err, &taken):
		_, name, inDomain := strings.Cut(taken.Value, "/")
		if !inDomain {
			name = taken.Value
		}
		return api.Errorf(http.StatusConflict, "Conflict occurred attempting to store %s - Duplicate entry found with name %s.", taken.Table, name)
	case errors.Is(err, store.ErrOutcomeUnknown):
		return fmt.Errorf("%w: %w", api.ErrOutcomeUnknown, err)
	case errors.Is(err, store.ErrFull):
		return api.Errorf(http.StatusServiceUnavailable, "Nothing was changed: %v.", err)
	case errors.Is(err, store.ErrUnavailable):
		return fmt.Errorf("%w: %w", api.ErrUnavailable, err)
	case errors.Is(err, store.ErrTooLarge):
		return api.Errorf(http.StatusConflict, "The request changes too many objects at once: delete what belongs to it first, such as users and projects (%v).", err)
	case errors.Is(err, store.ErrConflict):
		return api.Errorf(http.StatusConflict, "Others kept changing the same object; try again.")
	}
	return err
}

// newID makes an id of the shape Keystone's have: 32 hex digits.
func newID() string { return strings.ReplaceAll(uuid.NewString(), "-", "") }

// clone is a copy to change: records that were read are shared.
func clone[T any](record *T) *T {
	c := *record
	return &c
}
