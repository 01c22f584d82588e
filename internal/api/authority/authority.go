// Package authority exchanges the authority that signs the certificates of servers and hosts,
// without an outage, and shows who has a certificate of which one.
//
//	operator ─ POST /v1/authority/rotate ─▶ a new authority, trusted beside the present one
//	servers  ─ all trust it ──────────────▶ it signs; servers and hosts renew by themselves
//	servers  ─ the former is out of use ──▶ it is trusted no more
//
// The operator makes the first step; [Keeper] makes the others when their conditions hold. Each is
// one transaction of the store, so that it does not matter which server makes it, or dies at it.
package authority

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"heddle/internal/api"
	"heddle/internal/api/hosts"
	"heddle/internal/store/backend"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// Store is the store's part in a rotation; [backend.Etcd] has it.
type Store interface {
	AuthorityState(ctx context.Context) (backend.AuthorityState, error)
	AnnounceAuthority(ctx context.Context, now time.Time) error
	PromoteAuthority(ctx context.Context, now time.Time) error
	RetireAuthority(ctx context.Context) error
	Members(ctx context.Context) ([]backend.Member, error)
	Programs(ctx context.Context) (map[string]string, error)
	PublishAuthorities(ctx context.Context, hosts []byte) error
	Authority() *backend.Authority
}

// Options of the API and of [Keeper].
type Options struct {
	DB *records.DB // over a replica that holds schema's tables and those of hosts
	// Store is nil for a server without an authority: its calls are refused.
	Store Store
	// Given: the authority is in files of the operator, for a cluster of his own. Its status can be
	// seen; the operator exchanges it.
	Given bool
	Log   *slog.Logger     // nil: nothing is logged
	Now   func() time.Time // nil = time.Now
}

func (o Options) withDefaults() Options {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

type service struct{ Options }

// Register adds the API's routes to guarded, which must be behind api.RequireToken.
func Register(guarded *http.ServeMux, o Options) {
	s := &service{o.withDefaults()}
	guarded.HandleFunc("GET /v1/authority", api.Admin(s.signing(s.answer)))
	guarded.HandleFunc("POST /v1/authority/rotate", api.Admin(s.owning(s.rotate)))
	guarded.HandleFunc("POST /v1/authority/retire", api.Admin(s.owning(s.retire)))
}

// signing refuses calls of a server that signs no certificates.
func (s *service) signing(h func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if s.Store == nil {
			return api.Errorf(http.StatusConflict, "This server signs no certificates: one with --agents-listen does, or, over an etcd cluster of your own, one with --hosts-ca-cert.")
		}
		return h(w, r)
	}
}

// owning refuses calls of a server whose authority is not of its own making.
func (s *service) owning(h func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return s.signing(func(w http.ResponseWriter, r *http.Request) error {
		if s.Given {
			return api.Errorf(http.StatusConflict, "The authority of hosts' certificates is in the files of --hosts-ca-cert and --hosts-ca-key, and yours to exchange: docs/guides/authority.md says how.")
		}
		return h(w, r)
	})
}

// answer answers with the status.
func (s *service) answer(w http.ResponseWriter, r *http.Request) error {
	v, _, err := s.status(r.Context())
	if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, v)
	return nil
}

// rotate begins a rotation.
func (s *service) rotate(w http.ResponseWriter, r *http.Request) error {
	err := s.Store.AnnounceAuthority(r.Context(), s.Now())
	switch {
	case errors.Is(err, backend.ErrAnnounced):
		return api.Errorf(http.StatusConflict, "The authority is being exchanged already, and the new one does not sign yet: "+
			"`heddle ca status` says what that waits for. If the new one's key may have been read, too, exchange that one after this exchange.")
	case errors.Is(err, backend.ErrRotating):
		return api.Errorf(http.StatusConflict, "The authority is being exchanged already, and the one before it is still trusted: "+
			"`heddle ca status` says what the end of that waits for; `heddle ca rotate --retire` does not wait.")
	case err != nil:
		return err
	}
	s.Log.Info("the authority is to be exchanged", "by", api.Who(r.Context()).UserID)
	return s.answer(w, r)
}

// retire ends the trust in the former authority, also if hosts or programs still have certificates
// of it.
func (s *service) retire(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	v, state, err := s.status(ctx)
	if err != nil {
		return err
	}
	switch {
	case state.Next == nil && state.Former == nil:
		return api.Errorf(http.StatusConflict, "The authority that signs is the first, so there is none to retire: `heddle ca rotate` begins to exchange it.")
	case state.Next != nil:
		return api.Errorf(http.StatusConflict, "The new authority does not sign yet: `heddle ca status` says what that waits for.")
	case len(v.behind) > 0:
		return api.Errorf(http.StatusConflict, "Servers would lose each other: %s.", v.behind[0])
	}
	if err := s.Store.RetireAuthority(ctx); err != nil {
		return err
	}
	s.Log.Info("the authority before is trusted no more", "by", api.Who(ctx).UserID)
	return s.answer(w, r)
}

// status reads what there is.
func (s *service) status(ctx context.Context) (view, backend.AuthorityState, error) {
	if s.Given {
		state := backend.AuthorityState{Signs: s.Store.Authority().Certificate()}
		snap, err := s.DB.View(ctx)
		if err != nil {
			return view{}, state, err
		}
		return s.found(snap, state, nil, nil).view(), state, nil
	}
	state, err := s.Store.AuthorityState(ctx)
	if err != nil {
		return view{}, state, err
	}
	members, err := s.Store.Members(ctx)
	if err != nil {
		return view{}, state, err
	}
	programs, err := s.Store.Programs(ctx)
	if err != nil {
		return view{}, state, err
	}
	snap, err := s.DB.View(ctx)
	if err != nil {
		return view{}, state, err
	}
	return s.found(snap, state, members, programs).view(), state, nil
}

// found gathers the facts that the status follows from.
func (s *service) found(r records.Reader, state backend.AuthorityState, members []backend.Member, programs map[string]string) found {
	f := found{state: state, programs: programs, now: s.Now()}
	for server := range schema.Servers.All(r) {
		if server.Role == "serve" || server.Trust != nil { // which heddle xapi has where it has the store open
			f.servers = append(f.servers, *server)
		}
	}
	for _, m := range members {
		f.members = append(f.members, m.Name)
	}
	for j := range hosts.Certificates(r) {
		h, ok := schema.Hosts.Peek(r, j.HostID)
		if !ok {
			continue // removed at this moment
		}
		_, overlay := schema.HostStates.Peek(r, j.HostID)
		_, pool := schema.PoolHosts.Peek(r, schema.XenRef(j.HostID))
		f.hosts = append(f.hosts, host{name: h.Name, alive: overlay || pool, signer: j.Signer, until: j.Until})
	}
	return f
}

func fingerprint(cert *x509.Certificate) string {
	if cert == nil {
		return ""
	}
	return api.Fingerprint(cert.Raw)
}
