// Package servers lets machines become servers of a cluster of embedded stores, and removes them.
//
//	operator ─ POST /v1/cluster/tokens ─▶ token: URLs and fingerprint of the servers, a secret
//	machine  ─ POST /v1/cluster/join ───▶ the authority with its key, and the members' URLs
//	its etcd ─ peers ───────────────────▶ learner, catches up; then the leader gives it a vote
//
// [Join] is the machine's side. Whoever has the secret gets the key of the authority, and so all
// rights. The store has only its hash; it is good once and expires. It stays good for the machine
// that used it, which proves itself by a nonce, in case the answer was lost.
package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"heddle/internal/api"
	"heddle/internal/api/jointoken"
	"heddle/internal/api/operator"
	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/telemetry"
)

const (
	// tokenLife is the life of a token.
	tokenLife = time.Hour
	// mostSkew bounds how far apart the clocks of two servers may be: leases, tokens and
	// certificates go by them.
	mostSkew = time.Minute
	// leastNonce is the least length of what identifies a machine's attempts to join.
	leastNonce = 16
)

// Cluster is the store's membership; [backend.Etcd] has it.
type Cluster interface {
	Members(ctx context.Context) ([]backend.Member, error)
	AddMember(ctx context.Context, name, peerURL string) (join []string, err error)
	RemoveMember(ctx context.Context, id uint64) error
	Leader() (leader, own uint64)
	AuthorityFiles(ctx context.Context) (backend.AuthorityFiles, error)
}

// Options of the API.
type Options struct {
	DB *records.DB // over a replica that holds schema's tables and [Tables]
	// Cluster is nil for a server without --cluster: its calls are refused.
	Cluster Cluster
	// Servers returns the base URLs of this API for tokens, and Pin the fingerprint of a
	// certificate in the chain that all servers present.
	Servers func() []string
	Pin     func() string
	// Files returns files for the data directory of a server that joins, by name.
	Files func() map[string]string
	Log   *slog.Logger     // nil: nothing is logged
	Now   func() time.Time // nil = time.Now
}

// Token is the store's record of a token: everything but its secret.
type Token struct {
	Hash      string    `json:"hash"`           // SHA-256 of the secret, hex; the key
	Name      string    `json:"name,omitempty"` // of the only server that may use it; "" = any that is new
	CreatedBy string    `json:"created_by"`     // user id
	ExpiresAt time.Time `json:"expires_at"`
	UsedBy    *use      `json:"used_by,omitempty"`
}

// use is the record of who has used a token.
type use struct {
	Name    string `json:"name"`
	PeerURL string `json:"peer_url"`
	Nonce   string `json:"nonce"` // SHA-256, hex
}

var tokens = records.NewTable("server-token", schema.JoinPrefix+"servers/", func(t *Token) string { return t.Hash })

// Tables returns the tables that the replica of the API's DB must have, in addition to schema's.
func Tables() []snapshot.Table { return []snapshot.Table{tokens} }

type service struct {
	Options
	refusals jointoken.Refusals
}

// Register adds the API's routes: those of operators to guarded, which must be behind
// api.RequireToken, and the one by which servers join to open. It returns a source of metrics.
func Register(open, guarded *http.ServeMux, o Options) func() []telemetry.Value {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &service{o, jointoken.NewRefusals("server", o.Log, o.Now)}
	open.HandleFunc("POST /v1/cluster/join", api.Answering(s.clustered(s.join)))
	guarded.HandleFunc("POST /v1/cluster/tokens", api.Admin(s.clustered(s.createToken)))
	guarded.HandleFunc("GET /v1/cluster/members", api.Admin(s.clustered(s.list)))
	guarded.HandleFunc("DELETE /v1/cluster/members/{name}", api.Admin(s.clustered(s.remove)))
	return s.refusals.Metrics
}

// clustered refuses calls of a server that is in no cluster.
func (s *service) clustered(h func(http.ResponseWriter, *http.Request) error) func(http.ResponseWriter, *http.Request) error {
	return func(w http.ResponseWriter, r *http.Request) error {
		if s.Cluster == nil {
			return api.Errorf(http.StatusConflict, "This server forms no cluster: start it with --cluster, or, over an etcd cluster of your own, manage the members there.")
		}
		return h(w, r)
	}
}

func checkName(name string) error {
	if err := (&backend.Peer{Name: name}).CheckName(); err != nil {
		return api.Errorf(http.StatusBadRequest, "Server name refused: %v.", err)
	}
	return nil
}

func (s *service) createToken(w http.ResponseWriter, r *http.Request) error {
	var ask struct {
		Name string `json:"name"`
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
	ctx := r.Context()
	secret, hash := jointoken.NewSecret()
	t := &Token{Hash: hash, Name: ask.Name, CreatedBy: api.Who(ctx).UserID, ExpiresAt: s.Now().UTC().Add(tokenLife)}
	lease, err := s.DB.Store().Grant(ctx, tokenLife)
	if err != nil {
		return err
	}
	if _, err := s.DB.Update(ctx, func(tx *records.Tx) error { return tokens.PutLeased(tx, t, lease) }); err != nil {
		return err
	}
	shown := jointoken.Token{Servers: s.Servers(), Pin: s.Pin(), Secret: secret, Expires: t.ExpiresAt.Unix()}
	s.Log.Info("token for a server made", "server", t.Name, "by", t.CreatedBy, "expires", t.ExpiresAt)
	api.WriteJSON(w, http.StatusCreated, map[string]any{"token": shown.Encode(jointoken.ForServer), "expires_at": t.ExpiresAt})
	return nil
}

type joinRequest struct {
	Token   string    `json:"token"` // the secret
	Name    string    `json:"name"`
	PeerURL string    `json:"peer_url"`
	Nonce   string    `json:"nonce"` // the same for each attempt of a machine to join
	Now     time.Time `json:"now"`   // by the machine's clock
}

type joinAnswer struct {
	backend.AuthorityFiles
	Members []string          `json:"members"` // NAME=URL
	Files   map[string]string `json:"files"`   // for the data directory
}

// join admits a server. The member is added after the token is used up, by the same token again if
// that fails: a member that never runs would weaken the majority.
func (s *service) join(w http.ResponseWriter, r *http.Request) (err error) {
	var ask joinRequest
	if err := api.ReadJSON(r, &ask); err != nil {
		return err
	}
	defer func() { s.refusals.Note(r.Context(), ask.Name, err) }()
	if err := s.check(&ask); err != nil {
		return err
	}
	ctx := r.Context()
	if err := s.useUp(ctx, &ask); err != nil {
		return err
	}
	members, err := s.Cluster.AddMember(ctx, ask.Name, ask.PeerURL)
	if errors.Is(err, backend.ErrJoining) {
		return s.explainJoining(ctx)
	} else if err != nil {
		return explain(err)
	}
	authority, err := s.Cluster.AuthorityFiles(ctx)
	if err != nil {
		return err
	}
	s.Log.Info("admitted a server to the cluster", "server", ask.Name, "url", ask.PeerURL, "from", api.ClientAddr(ctx))
	api.WriteJSON(w, http.StatusCreated, joinAnswer{authority, members, s.Files()})
	return nil
}

// broadcast is IPv4's limited broadcast address.
var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// check refuses what no server may say of itself.
func (s *service) check(ask *joinRequest) error {
	if err := checkName(ask.Name); err != nil {
		return err
	}
	u, err := url.Parse(ask.PeerURL)
	if err != nil {
		return api.Errorf(http.StatusBadRequest, "peer_url %q: want https://ADDRESS:PORT.", ask.PeerURL)
	}
	at, err := netip.ParseAddrPort(u.Host)
	if err != nil || ask.PeerURL != "https://"+at.String() || at.Addr().IsUnspecified() {
		return api.Errorf(http.StatusBadRequest, "peer_url %q: want https://ADDRESS:PORT.", ask.PeerURL)
	}
	if at.Addr().IsMulticast() || at.Addr() == broadcast {
		return api.Errorf(http.StatusBadRequest, "peer_url %q: want the address of one machine: correct --peer-listen, or --agents-listen. The token is not used up.", ask.PeerURL)
	}
	if len(ask.Nonce) < leastNonce {
		return api.Errorf(http.StatusBadRequest, "nonce: want at least %d random characters, the same for each attempt of this machine. The token is not used up.", leastNonce)
	}
	return nil
}

// checkClock refuses a server whose clock is wrong.
func (s *service) checkClock(ask *joinRequest) error {
	if skew := ask.Now.Sub(s.Now()); skew.Abs() > mostSkew {
		ahead := "ahead of"
		if skew < 0 {
			ahead = "behind"
		}
		return api.Errorf(http.StatusConflict, "The clock of %s is %s %s this server's: set both by NTP, such as chrony, and try again. The token is not used up.",
			ask.Name, skew.Abs().Round(time.Second), ahead)
	}
	return nil
}

// checkMembers refuses a second server of one name or address, and one on loopback unless all are.
func (s *service) checkMembers(ctx context.Context, ask *joinRequest) error {
	members, err := s.Cluster.Members(ctx)
	if err != nil {
		return err
	}
	for _, m := range members {
		switch {
		case m.Name == ask.Name:
			return api.Errorf(http.StatusConflict, "The cluster has a server named %s, at %s. To replace it, remove it first: `heddle cluster remove %s`. "+
				"To add this one as well, give it another --name. The token is not used up.", m.Name, m.PeerURL, m.Name)
		case m.PeerURL == ask.PeerURL && m.Name != "":
			return api.Errorf(http.StatusConflict, "The cluster has server %s at %s. To replace it, remove it first: `heddle cluster remove %s`. The token is not used up.",
				m.Name, m.PeerURL, m.Name)
		case onLoopback(ask.PeerURL) && !onLoopback(m.PeerURL):
			return api.Errorf(http.StatusBadRequest, "peer_url %q: the cluster's other servers cannot reach a loopback address: correct --peer-listen, or --agents-listen. "+
				"The token is not used up.", ask.PeerURL)
		}
	}
	return nil
}

// onLoopback reports whether a peer URL has a loopback address.
func onLoopback(peerURL string) bool {
	u, err := url.Parse(peerURL)
	if err != nil {
		return false
	}
	at, err := netip.ParseAddrPort(u.Host)
	return err == nil && at.Addr().IsLoopback()
}

// useUp takes the token for the machine that asks, or finds that this machine has taken it already.
func (s *service) useUp(ctx context.Context, ask *joinRequest) error {
	mine := &use{Name: ask.Name, PeerURL: ask.PeerURL, Nonce: jointoken.Hash(ask.Nonce)}
	hash := jointoken.Hash(ask.Token)
	refusal := api.Errorf(http.StatusForbidden, "The token is used, expired or unknown; make another with `heddle cluster token`.")
	kv, err := s.DB.Store().Get(ctx, tokens.Key(hash)) // for its lease
	if errors.Is(err, store.ErrNotFound) {
		return refusal
	} else if err != nil {
		return err
	}
	if err := s.checkClock(ask); err != nil {
		return err
	}
	_, err = s.DB.Update(ctx, func(tx *records.Tx) error {
		t, err := tokens.Get(tx, hash)
		switch {
		case err != nil || !s.Now().Before(t.ExpiresAt) || t.UsedBy != nil && *t.UsedBy != *mine:
			return refusal
		case t.UsedBy != nil:
			return nil
		case t.Name != "" && t.Name != ask.Name:
			return api.Errorf(http.StatusForbidden, "The token is for server %s, not %s: make one with `heddle cluster token %s`, or start the server with --name %s.", t.Name, ask.Name, ask.Name, t.Name)
		}
		if err := s.checkMembers(ctx, ask); err != nil {
			return err
		}
		used := *t
		used.UsedBy = mine
		return tokens.PutLeased(tx, &used, kv.Lease)
	})
	return err
}

// explain returns what operators can do about a refused change of the members.
func explain(err error) error {
	switch {
	case errors.Is(err, backend.ErrQuorum):
		return api.Errorf(http.StatusConflict, "Not enough servers of the cluster are up for that: a change must leave a majority of members that are up and have been connected for five seconds. "+
			"See `heddle cluster list`: start those that are down, or remove the dead ones first, one at a time.")
	}
	return err
}

// explainJoining returns the refusal of a server while another one joins, and which one that is.
func (s *service) explainJoining(ctx context.Context) error {
	members, err := s.Cluster.Members(ctx)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(members, func(m backend.Member) bool { return m.Learner })
	if i < 0 { // it has just got its vote
		return api.Errorf(http.StatusServiceUnavailable, "Another server was joining the cluster; try again.")
	}
	return api.Errorf(http.StatusServiceUnavailable, "Another server is joining the cluster, at %[1]s; try again when `heddle cluster list` shows it up. "+
		"If it never will be, remove it: `heddle cluster remove %[1]s`.", members[i].PeerURL)
}

func (s *service) list(w http.ResponseWriter, r *http.Request) error {
	members, err := s.Cluster.Members(r.Context())
	if err != nil {
		return err
	}
	snap, err := s.DB.View(r.Context())
	if err != nil {
		return err
	}
	servers := map[string]*schema.Server{}
	for server := range schema.Servers.All(snap) {
		servers[server.Name] = server
	}
	leader, _ := s.Cluster.Leader()
	list := []operator.Server{}
	for _, m := range members {
		v := operator.Server{Name: m.Name, Role: "member", PeerURL: m.PeerURL, StoreURL: m.StoreURL}
		switch {
		case m.Name == "":
			v.Role = "added" // and has never run
		case m.Learner:
			v.Role = "learner"
		case m.ID == leader:
			v.Role = "leader"
		}
		if server := servers[m.Name]; server != nil && m.Name != "" {
			v.Alive, v.Version = true, server.Version
		}
		list = append(list, v)
	}
	api.WriteJSON(w, http.StatusOK, map[string]any{"members": list})
	return nil
}

// remove removes a member by its name or its URL, and answers with both.
func (s *service) remove(w http.ResponseWriter, r *http.Request) error {
	name, ctx := r.PathValue("name"), r.Context()
	members, err := s.Cluster.Members(ctx)
	if err != nil {
		return err
	}
	m, err := s.find(ctx, members, name)
	if err != nil {
		return err
	}
	if len(members) == 1 {
		return api.Errorf(http.StatusConflict, "Server %s is the only member of the cluster and has all the data; to go on without a cluster, start it without --cluster.", name)
	}
	if err := s.Cluster.RemoveMember(ctx, m.ID); err != nil {
		return explain(err)
	}
	s.Log.Info("removed a server from the cluster", "server", m.Name, "url", m.PeerURL, "by", api.Who(ctx).UserID)
	api.WriteJSON(w, http.StatusOK, map[string]string{"name": m.Name, "peer_url": m.PeerURL})
	return nil
}

// find returns the only member with a name, or the one with a URL. One that was added and has never
// run is also found by the name with which it used its token, while the store has that.
func (s *service) find(ctx context.Context, members []backend.Member, nameOrURL string) (backend.Member, error) {
	snap, err := s.DB.View(ctx)
	if err != nil {
		return backend.Member{}, err
	}
	joined := map[string]string{} // names by URL
	for t := range tokens.All(snap) {
		if t.UsedBy != nil {
			joined[t.UsedBy.PeerURL] = t.UsedBy.Name
		}
	}
	var found []backend.Member
	var urls []string
	neverRan := ""
	for _, m := range members {
		if m.PeerURL == nameOrURL {
			return m, nil
		}
		if m.Name == "" {
			neverRan = fmt.Sprintf(" The one at %[1]s has never run and so has no name: `heddle cluster remove %[1]s`.", m.PeerURL)
		}
		if cmp.Or(m.Name, joined[m.PeerURL]) == nameOrURL && nameOrURL != "" {
			found, urls = append(found, m), append(urls, m.PeerURL)
		}
	}
	switch len(found) {
	case 0:
		return backend.Member{}, api.Errorf(http.StatusNotFound, "The cluster has no server named %s; see `heddle cluster list`.%s", nameOrURL, neverRan)
	case 1:
		return found[0], nil
	}
	return backend.Member{}, api.Errorf(http.StatusConflict, "The cluster has %d servers named %s: remove one by its URL, `heddle cluster remove URL`, with URL one of %s.",
		len(found), nameOrURL, strings.Join(urls, ", "))
}
