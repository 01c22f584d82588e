// Package hosts lets machines become hosts of the virtual network, and shuts them out again.
//
//	operator ─ POST /v1/join-tokens ─▶ token: where the servers are, how to know them, a secret good once
//	host     ─ POST /v1/join ────────▶ certificate for a key made on the host, and where the store is
//	agent    ─ etcd, with the certificate: a user that may read the virtual network and write about itself alone
//
// [Join] is the host's side. Whoever has the secret becomes a host, so the store has only its hash, it expires, and it
// is used up in the transaction that makes the host.
package hosts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"time"

	"heddle/internal/api"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// defaultLife is how long a join token is good when the operator does not say; maxLife the most he can.
const (
	defaultLife = time.Hour
	maxLife     = 30 * 24 * time.Hour
)

// Admission lets hosts into the store; [store.Etcd] does.
type Admission interface {
	// AllowHost gives a host its rights in the store; doing it again is fine.
	AllowHost(ctx context.Context, hostID, name string) error
	// RemoveHost takes them away at once, and what the host reported.
	RemoveHost(ctx context.Context, hostID string) error
	// Issue signs a host's certificate request; request and certificate are PEM.
	Issue(hostID string, csr []byte) ([]byte, error)
}

// Options of the API.
type Options struct {
	DB        *records.DB // over a replica that holds schema's tables and [Tables]
	Admission Admission
	// CA (PEM) is the authority by which hosts know the store's servers; without it no host can join.
	CA []byte
	// Endpoints are the URLs by which hosts reach the store. Without any it is on StorePort of whatever host they
	// reached this API by.
	Endpoints []string
	StorePort int
	// Servers are the base URLs of this API that tokens carry; without any, the one the operator reached it by.
	Servers []string
	// Pin is the fingerprint of a certificate in the chain that the servers present, as api.Server tells it; "" without TLS.
	Pin func() string
	Log *slog.Logger     // nil: nothing is logged
	Now func() time.Time // nil = time.Now
}

// JoinToken is what the store knows of a join token: everything but its secret.
type JoinToken struct {
	Hash      string    `json:"hash"`           // SHA-256 of the secret, hex; the key
	Name      string    `json:"name,omitempty"` // of the only host that may use it; "" = any that is new
	CreatedBy string    `json:"created_by"`     // user id
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

// id names a token to operators without giving its hash away.
func (t *JoinToken) id() string { return t.Hash[:16] }

// Joined says when a host was last let in.
type Joined struct {
	HostID string    `json:"host_id"`
	At     time.Time `json:"at"`
}

// The tables of this package, whose records nobody else reads.
var (
	tokens = records.NewTable("join-token", schema.JoinPrefix+"tokens/", func(t *JoinToken) string { return t.Hash },
		records.Index("id", func(t *JoinToken) []string { return []string{t.id()} }))
	joined = records.NewTable("joined", schema.JoinPrefix+"hosts/", func(j *Joined) string { return j.HostID })
)

// Tables are what the replica of the API's DB must hold beside schema's.
func Tables() []replica.Table { return []replica.Table{tokens, joined} }

type service struct{ Options }

func (o Options) withDefaults() Options {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Register adds the API's routes: those of operators to guarded, which must be behind api.RequireToken, and the one by
// which hosts join to open, which needs no token but its own.
func Register(open, guarded *http.ServeMux, o Options) {
	s := &service{o.withDefaults()}
	open.HandleFunc("POST /v1/join", answering(s.join))
	guarded.HandleFunc("POST /v1/join-tokens", admin(s.createToken))
	guarded.HandleFunc("GET /v1/join-tokens", admin(s.listTokens))
	guarded.HandleFunc("DELETE /v1/join-tokens/{id}", admin(s.deleteToken))
	guarded.HandleFunc("GET /v1/hosts", admin(s.list))
	guarded.HandleFunc("GET /v1/hosts/{id}", admin(s.show))
	guarded.HandleFunc("DELETE /v1/hosts/{id}", admin(s.remove))
}

// handler answers a request, or returns the error to answer it with.
type handler func(w http.ResponseWriter, r *http.Request) error

func answering(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			if errors.Is(err, store.ErrUnavailable) {
				err = fmt.Errorf("%w: %w", api.ErrUnavailable, err)
			}
			api.WriteError(w, r, err)
		}
	}
}

func admin(h handler) http.HandlerFunc {
	return answering(func(w http.ResponseWriter, r *http.Request) error {
		if who := api.Who(r.Context()); who == nil || !who.Admin() {
			return api.Errorf(http.StatusForbidden, "This call wants the role admin.")
		}
		return h(w, r)
	})
}

// hostName is what a host may be called: it goes into binding:host_id, certificates and files.
var hostName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func checkName(name string) error {
	if !hostName.MatchString(name) {
		return api.Errorf(http.StatusBadRequest, "Host name %q: want letters, digits, dots, dashes and underscores, at most 63, and not a mark first.", name)
	}
	return nil
}

func (s *service) createToken(w http.ResponseWriter, r *http.Request) error {
	var ask struct {
		Name      string `json:"name"`
		ExpiresIn int64  `json:"expires_in"` // seconds
	}
	if r.ContentLength != 0 {
		if err := api.ReadJSON(r, &ask); err != nil {
			return err
		}
	}
	if ask.Name != "" {
		if err := checkName(ask.Name); err != nil {
			return err
		}
	}
	life := defaultLife
	if ask.ExpiresIn != 0 {
		if ask.ExpiresIn < 0 || ask.ExpiresIn > int64(maxLife/time.Second) {
			return api.Errorf(http.StatusBadRequest, "expires_in: want 1 to %d seconds.", maxLife/time.Second)
		}
		life = time.Duration(ask.ExpiresIn) * time.Second
	}
	shown, t, err := s.invite(r.Context(), ask.Name, api.Who(r.Context()).UserID, life, s.servers(r))
	if err != nil {
		return err
	}
	answer := viewToken(t)
	answer.Token = shown
	api.WriteJSON(w, http.StatusCreated, answer)
	return nil
}

// Invite makes a token with which the host of that name may join, once and within the hour; by says who wants it. It needs
// Servers, and a name as hosts may have it.
func (o Options) Invite(ctx context.Context, name, by string) (token string, err error) {
	o = o.withDefaults()
	if err := checkName(name); err != nil {
		return "", err
	}
	if len(o.Servers) == 0 {
		return "", errors.New("no host can join: this server does not know by which URL hosts reach it")
	}
	token, _, err = o.invite(ctx, name, by, defaultLife, o.Servers)
	return token, err
}

// invite makes a token that names servers, and returns it as it is shown once.
func (o Options) invite(ctx context.Context, name, by string, life time.Duration, servers []string) (string, *JoinToken, error) {
	if len(o.CA) == 0 {
		return "", nil, api.Errorf(http.StatusConflict, "No host can join: this server's store does not serve agents of other hosts.")
	}
	secret, hash := newSecret()
	now := o.Now().UTC()
	t := &JoinToken{Hash: hash, Name: name, CreatedBy: by, CreatedAt: now, ExpiresAt: now.Add(life)}
	lease, err := o.DB.Store().Grant(ctx, life)
	if err != nil {
		return "", nil, err
	}
	if _, err := o.DB.Update(ctx, func(tx *records.Tx) error { return tokens.PutLeased(tx, t, lease) }); err != nil {
		return "", nil, err
	}
	o.Log.Info("join token made", "id", t.id(), "host", t.Name, "by", t.CreatedBy, "expires", t.ExpiresAt)
	shown := joinToken{Servers: servers, Secret: secret}
	if o.Pin != nil {
		shown.Pin = o.Pin()
	}
	return shown.String(), t, nil
}

func (s *service) servers(r *http.Request) []string {
	if len(s.Servers) > 0 {
		return s.Servers
	}
	return []string{api.BaseURL(r)}
}

type tokenView struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Token     string    `json:"token,omitempty"` // once, when it is made
	CreatedBy string    `json:"created_by"`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

func viewToken(t *JoinToken) tokenView {
	return tokenView{ID: t.id(), Name: t.Name, CreatedBy: t.CreatedBy, CreatedAt: t.CreatedAt, ExpiresAt: t.ExpiresAt}
}

func (s *service) listTokens(w http.ResponseWriter, r *http.Request) error {
	snap, err := s.DB.View(r.Context())
	if err != nil {
		return err
	}
	list := []tokenView{}
	for t := range tokens.All(snap) {
		if s.Now().Before(t.ExpiresAt) {
			list = append(list, viewToken(t))
		}
	}
	api.WriteJSON(w, http.StatusOK, map[string]any{"join_tokens": list})
	return nil
}

func (s *service) deleteToken(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	_, err := s.DB.Update(r.Context(), func(tx *records.Tx) error {
		for t := range tokens.By(tx, "id", id) {
			return tokens.Delete(tx, t.Hash)
		}
		return api.Errorf(http.StatusNotFound, "Join token %s could not be found: it is used, expired or never was.", id)
	})
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

type joinRequest struct {
	Token string `json:"token"` // the secret
	Name  string `json:"name"`
	CSR   string `json:"csr"` // PEM
}

type joinAnswer struct {
	HostID      string   `json:"host_id"`
	Name        string   `json:"name"`
	Certificate string   `json:"certificate"` // PEM
	CA          string   `json:"ca"`          // PEM
	Endpoints   []string `json:"endpoints"`
}

// join makes a host of whoever has a good token. Rights and certificate are made first, and are nothing without each
// other: what uses the token up is the last step, and only after it does the certificate leave the server.
func (s *service) join(w http.ResponseWriter, r *http.Request) error {
	var ask joinRequest
	if err := api.ReadJSON(r, &ask); err != nil {
		return err
	}
	ctx, hash := r.Context(), hashSecret(ask.Token)
	snap, err := s.DB.View(ctx)
	if err != nil {
		return err
	}
	host, known, err := s.admit(snap, hash, ask.Name)
	if err != nil {
		return err
	}
	certificate, err := s.Admission.Issue(host.ID, []byte(ask.CSR))
	if err != nil {
		return api.Errorf(http.StatusBadRequest, "The certificate request cannot be signed: %v.", err)
	}
	if err := s.Admission.AllowHost(ctx, host.ID, host.Name); err != nil {
		return err
	}
	if _, err := s.DB.Update(ctx, func(tx *records.Tx) error { return s.useUp(tx, hash, ask.Name, host, known) }); err != nil {
		if !known {
			err = errors.Join(err, s.Admission.RemoveHost(context.WithoutCancel(ctx), host.ID))
		}
		return err
	}
	s.Log.Info("host joined", "host", host.Name, "id", host.ID, "again", known, "from", api.ClientAddr(ctx))
	api.WriteJSON(w, http.StatusCreated, joinAnswer{HostID: host.ID, Name: host.Name, Certificate: string(certificate),
		CA: string(s.CA), Endpoints: s.endpoints(r)})
	return nil
}

// admit says which host a token admits: a new one, or, when the token was made for its name, one that joins again.
func (s *service) admit(r records.Reader, hash, name string) (host *topology.Host, known bool, err error) {
	t, err := tokens.Get(r, hash)
	if err != nil || !s.Now().Before(t.ExpiresAt) {
		return nil, false, api.Errorf(http.StatusForbidden, "The join token is used, expired or unknown; make another with `heddle host token`.")
	}
	if name == "" {
		name = t.Name
	}
	if err := checkName(name); err != nil {
		return nil, false, err
	}
	if t.Name != "" && t.Name != name {
		return nil, false, api.Errorf(http.StatusForbidden, "The join token is for host %s, not %s.", t.Name, name)
	}
	for there := range schema.Hosts.By(r, "name", name) {
		if t.Name == "" {
			return nil, false, api.Errorf(http.StatusConflict, "A host named %s has joined already. To let it join again make a token for its name: "+
				"`heddle host token %s`; to replace it remove it first.", name, name)
		}
		return there, true, nil
	}
	return &topology.Host{ID: newHostID(), Name: name}, false, nil
}

// useUp takes the token and makes the host, if things are still as they were when the certificate was made.
func (s *service) useUp(tx *records.Tx, hash, name string, host *topology.Host, known bool) error {
	now, knownNow, err := s.admit(tx, hash, name)
	if err != nil {
		return err
	}
	if knownNow != known || known && now.ID != host.ID {
		return api.Errorf(http.StatusConflict, "Host %s joined or was removed at the same moment; try again.", host.Name)
	}
	if err := tokens.Delete(tx, hash); err != nil {
		return err
	}
	if known {
		_, err = schema.Hosts.Need(tx, host.ID)
	} else {
		err = schema.Hosts.Put(tx, host)
	}
	if err != nil {
		return err
	}
	return joined.Put(tx, &Joined{HostID: host.ID, At: s.Now().UTC()})
}

// endpoints are where the host that asks finds the store.
func (s *service) endpoints(r *http.Request) []string {
	if len(s.Endpoints) > 0 {
		return s.Endpoints
	}
	base, err := url.Parse(api.BaseURL(r))
	if err != nil {
		return nil // a Host header that is none
	}
	return []string{"https://" + net.JoinHostPort(base.Hostname(), strconv.Itoa(s.StorePort))}
}
