// Package hosts lets machines become hosts of the virtual network, and shuts them out again.
//
//	operator ─ POST /v1/join-tokens ─▶ token: URLs and fingerprint of the servers, a secret
//	host     ─ POST /v1/join ────────▶ certificate for a key made on the host, URLs of the store
//	host     ─ POST /v1/renew ───────▶ another certificate for that key, until the host is removed
//	agent    ─ etcd, as the user that reads the virtual network and writes about its host alone
//
// [Join] and [Renewal] are the host's side. Whoever has the secret becomes a host, so the store has
// only its hash, it expires, and it is used up in the transaction that makes the host: from then on
// it is good only for the key it was used with, so that a host that lost the answer can ask again.
package hosts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"heddle/internal/api"
	"heddle/internal/api/jointoken"
	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/telemetry"
	"heddle/internal/topology"
)

// defaultLife is the life of a join token unless the operator chooses another, up to maxLife.
const (
	defaultLife = time.Hour
	maxLife     = 30 * 24 * time.Hour
)

// DefaultCertificateLife is the life of a host's certificate. The host renews it at half of that.
const DefaultCertificateLife = 7 * 24 * time.Hour

// renewalGrace is the time after its certificate's end in which a host can still renew it with its
// key. Later it has to join again.
const renewalGrace = 30 * 24 * time.Hour

// Admission lets hosts into the store; [backend.Etcd] does.
type Admission interface {
	// AllowHost gives a key of a host the host's rights in the store; doing it again is fine. The
	// key is its fingerprint, or "": see [Joined].
	AllowHost(ctx context.Context, hostID, name, key string) error
	// EndOtherKeys takes them away at once from all other keys of the host.
	EndOtherKeys(ctx context.Context, hostID, key string) error
	// RemoveHost takes them away at once, and what the host reported.
	RemoveHost(ctx context.Context, hostID string) error
	// Issue signs a host's certificate request, for the rights of a key; request and certificate
	// are PEM.
	Issue(hostID, key string, csr []byte, life time.Duration) ([]byte, error)
	// PublishAuthorities lets hosts and tunnel controllers verify each other; hosts is the
	// authority of hosts.
	PublishAuthorities(ctx context.Context, hosts []byte) error
}

// Options of the API.
type Options struct {
	DB        *records.DB // over a replica that holds schema's tables and [Tables]
	Admission Admission
	// CA returns the authorities (PEM) by which hosts verify the store's servers; nil: no host can
	// join.
	CA func() []byte
	// HostsCA returns the authorities (PEM) of hosts' certificates. nil = CA.
	HostsCA func() []byte
	// Signer returns the authority that signs hosts' certificates; nil: they follow no rotation.
	Signer func() *backend.Authority
	// CertificateLife is the life of hosts' certificates. 0 = DefaultCertificateLife.
	CertificateLife time.Duration
	// Endpoints are the URLs by which hosts reach the store. Without any it is on StorePort of
	// whatever host they reached this API by.
	Endpoints []string
	StorePort int
	// Servers are the base URLs of this API that tokens carry; without any, the one the operator
	// reached it by.
	Servers []string
	// Pin is the fingerprint of a certificate in the chain that the servers present, as api.Server
	// returns it; "" without TLS.
	Pin func() string
	Log *slog.Logger     // nil: nothing is logged
	Now func() time.Time // nil = time.Now
}

// JoinToken is the store's record of a join token: everything but its secret.
type JoinToken struct {
	Hash      string    `json:"hash"`           // SHA-256 of the secret, hex; the key
	Name      string    `json:"name,omitempty"` // of the only host that may use it; "" = any that is new
	CreatedBy string    `json:"created_by"`     // user id
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

// id names a token to operators without giving its hash away.
func (t *JoinToken) id() string { return t.Hash[:min(16, len(t.Hash))] }

// Joined says when a host was last let in, and by which key it is known.
type Joined struct {
	HostID string    `json:"host_id"`
	At     time.Time `json:"at"`
	Key    string    `json:"key,omitempty"`    // fingerprint of its public key; "" = joined under an earlier version
	Until  time.Time `json:"until,omitzero"`   // end of its last certificate
	Signer string    `json:"signer,omitempty"` // fingerprint of the authority that signed it; "" = an earlier version did not record it
	// KeyRights: the host's rights are those of Key. Under earlier versions all joins of a host
	// shared its rights, and it goes on so until it joins again.
	KeyRights bool `json:"key_rights,omitempty"`
}

// rightsOf returns the key that the host's rights are those of, or "".
func (j *Joined) rightsOf() string {
	if j.KeyRights {
		return j.Key
	}
	return ""
}

// spentToken is a join token that was used. It is good for one thing: to give the host that used
// it, which has the same key, the answer again. It vanishes when the token would have expired.
type spentToken struct {
	Hash   string `json:"hash"`
	HostID string `json:"host_id"`
	Key    string `json:"key"` // fingerprint of the public key
}

// The tables of this package; no other reads their records.
var (
	tokens = records.NewTable("join-token", schema.JoinPrefix+"tokens/", func(t *JoinToken) string { return t.Hash },
		records.Index("id", func(t *JoinToken) []string { return []string{t.id()} }))
	spent = records.NewTable("spent-join-token", schema.JoinPrefix+"spent/", func(t *spentToken) string { return t.Hash },
		records.Index("host", func(t *spentToken) []string { return []string{t.HostID} }))
	cutOffs = records.NewTable("cut-off", backend.CutOffPrefix, func(c *backend.CutOff) string { return c.HostID })
	joined  = records.NewTable("joined", schema.JoinPrefix+"hosts/", func(j *Joined) string { return j.HostID })
)

// Certificates returns the hosts that have joined, with what is known of their certificates.
func Certificates(r records.Reader) iter.Seq[*Joined] { return joined.All(r) }

// Tables returns the tables that the replica of the API's DB must have, in addition to schema's.
func Tables() []snapshot.Table { return []snapshot.Table{tokens, spent, joined, cutOffs} }

// CutOffs returns the hosts that were cut off from the store since they exceeded their limits
// there.
func CutOffs(r records.Reader) iter.Seq[*backend.CutOff] { return cutOffs.All(r) }

type service struct {
	Options
	refusals jointoken.Refusals
}

func (o Options) withDefaults() Options {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Signer == nil {
		o.Signer = func() *backend.Authority { return nil }
	}
	if o.HostsCA == nil {
		o.HostsCA = o.CA
	}
	o.CertificateLife = cmp.Or(o.CertificateLife, DefaultCertificateLife)
	return o
}

// Register adds the API's routes: those of operators to guarded, which must be behind
// api.RequireToken, and the one by which hosts join to open, which needs no token but its own. It
// returns a source of metrics.
func Register(open, guarded *http.ServeMux, o Options) func() []telemetry.Value {
	o = o.withDefaults()
	s := &service{o, jointoken.NewRefusals("host", o.Log, o.Now)}
	open.HandleFunc("POST /v1/join", api.Answering(s.join))
	open.HandleFunc("POST /v1/renew", api.Answering(s.renew))
	guarded.HandleFunc("POST /v1/join-tokens", api.Admin(s.createToken))
	guarded.HandleFunc("GET /v1/join-tokens", api.Admin(s.listTokens))
	guarded.HandleFunc("DELETE /v1/join-tokens/{id}", api.Admin(s.deleteToken))
	guarded.HandleFunc("GET /v1/hosts", api.Admin(s.list))
	guarded.HandleFunc("GET /v1/hosts/{id}", api.Admin(s.show))
	guarded.HandleFunc("DELETE /v1/hosts/{id}", api.Admin(s.remove))
	return s.refusals.Metrics
}

// hostName matches the names that hosts can have, which go into binding:host_id, certificates and
// files.
var hostName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func checkName(name string) error {
	if !hostName.MatchString(name) {
		return api.Errorf(http.StatusBadRequest, "Host name %q: want letters, digits, dots, dashes and underscores, at most 63, and not a mark first.", name)
	}
	if uuid.Validate(name) == nil {
		return api.Errorf(http.StatusBadRequest, "Host name %q: a UUID could be mistaken for the id of another host; choose another name.", name)
	}
	return nil
}

func (s *service) createToken(w http.ResponseWriter, r *http.Request) error {
	var ask struct {
		Name      string `json:"name"`
		ExpiresIn int64  `json:"expires_in"` // seconds
	}
	if r.ContentLength != 0 {
		if err := api.ReadStrictJSON(r, &ask); err != nil {
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

// Invite makes a token with which the host of that name may join, once and within the hour; by says
// who wants it. It needs Servers, and a name as hosts may have it.
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
	if o.CA == nil {
		return "", nil, api.Errorf(http.StatusConflict, "No host can join: this server's store does not serve agents of other hosts: "+
			"set agents-listen, such as 192.0.2.1:2379, in the section serve of heddle.yaml, and restart the server.")
	}
	secret, hash := jointoken.NewSecret()
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
	shown := jointoken.Token{Servers: servers, Secret: secret, Expires: t.ExpiresAt.Unix()}
	if o.Pin != nil {
		shown.Pin = o.Pin()
	}
	return shown.Encode(jointoken.ForHost), t, nil
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
	// Previous is a request signed by the key with which this machine joined before, as PEM; ""
	// = it has none. It proves that the machine is the one that reports as the host.
	Previous string `json:"previous,omitempty"`
}

type joinAnswer struct {
	HostID      string `json:"host_id"`
	Name        string `json:"name"`
	Certificate string `json:"certificate"` // PEM
	locations
}

// join makes the sender of a good token a host. The certificate is made first, and leaves the
// server last: it is nothing without the rights, which go to the key of whichever join was the last
// to be committed. A host that gets no answer asks again with the same token.
func (s *service) join(w http.ResponseWriter, r *http.Request) (err error) {
	var ask joinRequest
	if err := api.ReadJSON(r, &ask); err != nil {
		return err
	}
	defer func() { s.refusals.Note(r.Context(), ask.Name, err) }()
	ctx, hash := r.Context(), jointoken.Hash(ask.Token)
	snap, err := s.DB.View(ctx)
	if err != nil {
		return err
	}
	a, err := s.admit(snap, hash, &ask)
	if err != nil {
		return err
	}
	certificate, made, err := s.issue(a.host.ID, a.key, ask.CSR)
	if err != nil {
		return err
	}
	if a.lease, err = s.DB.Store().Grant(ctx, max(time.Second, a.expires.Sub(s.Now()))); err != nil {
		return err
	}
	if _, err := s.DB.Update(ctx, func(tx *records.Tx) error { return s.useUp(tx, hash, &ask, a, made) }); err != nil {
		return err
	}
	if err := s.allowLastJoin(ctx, a.host.ID, a.host.Name); err != nil {
		return err
	}
	s.Log.Info("host joined", "host", a.host.Name, "id", a.host.ID, "again", a.known, "from", api.ClientAddr(ctx))
	api.WriteJSON(w, http.StatusCreated, joinAnswer{a.host.ID, a.host.Name, string(certificate), s.locations(snap, r)})
	return nil
}

// allowLastJoin gives a host's rights to the key of its last join alone. An earlier key, which may
// have been stolen, loses them. A join, renewal or removal at the same moment, on another server
// perhaps, is taken into account afterwards.
func (s *service) allowLastJoin(ctx context.Context, id, name string) error {
	last, err := s.lastJoin(ctx, id)
	for err == nil {
		key := last.rightsOf()
		if err := s.Admission.AllowHost(ctx, id, name, key); err != nil {
			return err
		}
		if err := s.Admission.EndOtherKeys(ctx, id, key); err != nil {
			return err
		}
		if last, err = s.lastJoin(ctx, id); err == nil && last.rightsOf() == key {
			return nil
		}
	}
	var absent *records.NotFoundError
	if !errors.As(err, &absent) {
		return err
	}
	return errors.Join(api.Errorf(http.StatusServiceUnavailable, "Host %s was removed at the same moment; try again.", name), s.Admission.RemoveHost(ctx, id))
}

func (s *service) lastJoin(ctx context.Context, id string) (*Joined, error) {
	snap, err := s.DB.View(ctx)
	if err != nil {
		return nil, err
	}
	return joined.Get(snap, id)
}

// keyOf returns the fingerprint of the public key in a certificate request, whose sender must have
// the private one.
func keyOf(csr string) (string, error) {
	request, err := backend.ReadRequest([]byte(csr))
	if err != nil {
		return "", api.Errorf(http.StatusBadRequest, "The certificate request cannot be signed: %v.", err)
	}
	return api.Fingerprint(request.RawSubjectPublicKeyInfo), nil
}

// issued holds the properties of a certificate that the store records.
type issued struct {
	until  time.Time
	signer string // fingerprint of the authority
}

// issue signs a host's request, for the rights of a key.
func (s *service) issue(hostID, key, csr string) (certificate []byte, made issued, err error) {
	if certificate, err = s.Admission.Issue(hostID, key, []byte(csr), s.CertificateLife); err != nil {
		return nil, made, api.Errorf(http.StatusBadRequest, "The certificate request cannot be signed: %v.", err)
	}
	leaf, err := parseLeaf(certificate)
	if err != nil {
		return nil, made, fmt.Errorf("issued certificate: %w", err)
	}
	made.until = leaf.NotAfter.UTC()
	if a := s.Signer(); a != nil && a.Signed(leaf) {
		made.signer = a.Fingerprint()
	}
	return certificate, made, nil
}

// admission is the result of using a token.
type admission struct {
	host    *topology.Host
	known   bool   // it has a record already
	again   bool   // it used this token before
	key     string // fingerprint of its public key
	expires time.Time
	lease   store.Lease // for the note that the token was used
}

// admit returns the host that a token admits: a new one, one that joins again if the token was made
// for its name, or the one that used the token before with the same key.
func (s *service) admit(r records.Reader, hash string, ask *joinRequest) (a admission, err error) {
	t, err := tokens.Get(r, hash)
	if used, getErr := spent.Get(r, hash); err != nil && getErr == nil {
		return s.admitAgain(r, used, ask)
	}
	if err != nil || !s.Now().Before(t.ExpiresAt) {
		return a, errSpent()
	}
	name := cmp.Or(ask.Name, t.Name)
	if err := checkName(name); err != nil {
		return a, err
	}
	if t.Name != "" && t.Name != name {
		return a, api.Errorf(http.StatusForbidden, "The join token is for host %s, not %s: make one for this host by `heddle host token %s`, or start the agent with --name %s.", t.Name, name, name, t.Name)
	}
	if a.key, err = keyOf(ask.CSR); err != nil {
		return a, err
	}
	a.expires = t.ExpiresAt
	there, err := schema.HostByName(r, name)
	if ambiguous := (*schema.AmbiguousHostError)(nil); errors.As(err, &ambiguous) {
		return a, api.Errorf(http.StatusConflict, "%s is the name of several hosts, with the ids %s: remove all but one.", name, strings.Join(ambiguous.IDs, ", "))
	}
	if err != nil {
		a.host = &topology.Host{ID: newHostID(), Name: name}
		return a, nil
	}
	if t.Name == "" {
		return a, api.Errorf(http.StatusConflict, "A host named %s has joined already. To let it join again make a token for its name: "+
			"`heddle host token %s`; to replace it remove it first.", name, name)
	}
	a.host, a.known = there, true
	return a, checkReplaceable(r, there, a.key, ask.Previous)
}

// checkReplaceable refuses to give the place of a host that is alive to another machine: the one
// that has it would be cut off. The machine itself has the key with which it joined.
func checkReplaceable(r records.Reader, h *topology.Host, key, previous string) error {
	_, overlayErr := schema.HostStates.Get(r, h.ID) // a transaction guards what Get reads
	_, poolErr := schema.PoolHosts.Get(r, schema.XenRef(h.ID))
	if overlayErr != nil && poolErr != nil {
		return nil
	}
	if j, err := joined.Get(r, h.ID); err == nil && j.Key != "" {
		if key == j.Key {
			return nil
		}
		if old, err := keyOf(previous); err == nil && old == j.Key {
			return nil
		}
	}
	v, from := view(r, h), ""
	if v.TunnelIP != "" {
		from = " at " + v.TunnelIP
	}
	return api.Errorf(http.StatusConflict, "Host %s is alive: its agent%s has been reporting since %s, and this machine does not have the key with which that one joined. "+
		"To replace that machine, stop its agent, wait %d seconds until its lease has ended, and try again; or remove the host: `heddle host remove %s`. "+
		"To add this machine as well, give it another name. The join token is not used up.",
		h.Name, from, v.StartedAt.UTC().Format(time.RFC3339), int(schema.HostLease.Seconds()), h.Name)
}

func errSpent() error {
	return api.Errorf(http.StatusForbidden, "The join token is used, expired or unknown; make another with `heddle host token`.")
}

func (s *service) admitAgain(r records.Reader, used *spentToken, ask *joinRequest) (a admission, err error) {
	if a.key, err = keyOf(ask.CSR); err != nil {
		return a, err
	}
	host, err := schema.Hosts.Get(r, used.HostID)
	j, joinedErr := joined.Get(r, used.HostID)
	if err != nil || joinedErr != nil || a.key != used.Key || a.key != j.Key {
		return a, errSpent()
	}
	a.host, a.known, a.again, a.expires = host, true, true, s.Now()
	return a, nil
}

// useUp takes the token and makes the host, if things are still as they were when the certificate
// was made.
func (s *service) useUp(tx *records.Tx, hash string, ask *joinRequest, a admission, made issued) error {
	now, err := s.admit(tx, hash, ask)
	if err != nil {
		return err
	}
	if now.known != a.known || now.again != a.again || a.known && now.host.ID != a.host.ID {
		return api.Errorf(http.StatusServiceUnavailable, "Host %s joined or was removed at the same moment; try again.", a.host.Name)
	}
	record := *now.host
	record.ID, record.Key = a.host.ID, a.key
	if err := schema.Hosts.Put(tx, &record); err != nil {
		return err
	}
	if !a.again {
		if err := tokens.Delete(tx, hash); err != nil {
			return err
		}
		if err := spent.PutLeased(tx, &spentToken{Hash: hash, HostID: a.host.ID, Key: a.key}, a.lease); err != nil {
			return err
		}
	}
	return joined.Put(tx, &Joined{HostID: a.host.ID, At: s.Now().UTC(), Key: a.key, Until: made.until, Signer: made.signer, KeyRights: true})
}

// endpoints returns the URLs of the store for the host that asks.
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
