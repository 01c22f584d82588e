// Package identity is a minimal Keystone v3: what the openstack command, gophercloud, Terraform and
// tempest ask of an identity service (neutron-api §11), over the tables of the store. It also
// validates tokens for Heddle's other APIs, its own or, with [Keystone], those of an existing
// Keystone.
//
// A token is random; the store has only its SHA-256, so that reading the store yields no usable
// token. A token records what was granted when it was issued, and is invalid as soon as any of that
// has changed: each server finds out from its own replica of the identity tables, in a microsecond
// and without a request to the store.
//
//	password ─▶ throttle, passwords ─▶ Token in the store ─watch─▶ every replica ─▶ Validate
package identity

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"heddle/internal/api"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/telemetry"
)

const defaultLife = time.Hour // of a token

// Options of a Service.
type Options struct {
	Store  store.Store
	Region string // "" = RegionOne
	// URL is the public address of this service, with /v3; "" = the one by which each client
	// reached it.
	URL       string
	Services  []Endpoint       // what else the catalog lists, such as Neutron
	TokenLife time.Duration    // 0 = one hour
	Log       *slog.Logger     // nil: nothing is logged
	Now       func() time.Time // nil = time.Now
}

// Service is the identity service. It is a task: Run keeps its view of the store current.
type Service struct {
	opts      Options
	directory *directory
	passwords *passwords
	tokens    *tokenStore
	catalog   catalog
}

// New makes a service; it answers once Run has read the store.
func New(o Options) *Service {
	o.Region = cmp.Or(o.Region, "RegionOne")
	o.TokenLife = cmp.Or(o.TokenLife, defaultLife)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	own := Endpoint{Type: "identity", Name: "keystone", URL: o.URL, Path: "/v3"}
	d := &directory{tables: newTables()}
	d.replica = replica.New(o.Store, replica.Options{Log: o.Log, Watch: schema.IdentityPrefix}, d.all()...)
	d.db = records.NewDB(o.Store, d.replica)
	s := &Service{
		opts: o, directory: d, passwords: newPasswords(o), tokens: newTokenStore(d, o),
		catalog: catalog{region: o.Region, services: append([]Endpoint{own}, o.Services...)},
	}
	d.changed = s.tokens.forget
	d.replica.OnChange(func(u snapshot.Update) {
		for _, c := range u.Changed {
			if c.Source != d.tokens.Name() || c.New == nil {
				s.tokens.forget() // a token was revoked, or something that tokens rest on has changed
				return
			}
		}
	})
	return s
}

// Metrics returns the number of refused logins.
func (s *Service) Metrics() []telemetry.Value { return s.passwords.refusals.Metrics() }

func (s *Service) String() string { return "identity" }

// Ready is closed once tokens can be checked.
func (s *Service) Ready() <-chan struct{} { return s.directory.replica.Ready() }

// Run follows the store until ctx ends.
func (s *Service) Run(ctx context.Context) error { return s.directory.replica.Run(ctx) }

// Validate implements api.Validator.
func (s *Service) Validate(ctx context.Context, token string) (*api.Identity, error) {
	l, err := s.tokens.check(ctx, token)
	if err != nil {
		return nil, err
	}
	return l.identity, nil
}
