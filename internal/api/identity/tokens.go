package identity

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"heddle/internal/api"
	"heddle/internal/store"
	"heddle/internal/store/records"
)

// live is a valid token with what the API shows of it.
type live struct {
	token    *Token
	identity *api.Identity
	roles    []object // id and name
}

// checked holds tokens found valid on one state of the tables. When the tables change, a new, empty
// one replaces it, so that a result found on the old state is never used.
type checked struct {
	mu     sync.RWMutex
	byHash map[[sha256.Size]byte]*live
}

func (c *checked) get(hash [sha256.Size]byte) *live {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byHash[hash]
}

func (c *checked) put(hash [sha256.Size]byte, l *live) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byHash[hash] = l
}

// tokenStore issues, checks and revokes tokens.
type tokenStore struct {
	*directory
	now     func() time.Time
	leases  leases
	lookups chan struct{} // slots for looking up unknown tokens in the store
	checked atomic.Pointer[checked]
}

func newTokenStore(d *directory, o Options) *tokenStore {
	t := &tokenStore{directory: d, now: o.Now, leases: leases{store: o.Store, life: o.TokenLife, now: o.Now}, lookups: make(chan struct{}, maxLookups)}
	t.forget()
	return t
}

const (
	// leaseWindow is the time during which new tokens share one lease.
	leaseWindow = 5 * time.Minute
	// maxLookups bounds how many unknown tokens are looked up in the store at once.
	maxLookups = 16
)

// forget makes the next check of each token start from the tables.
func (x *tokenStore) forget() { x.checked.Store(&checked{byHash: map[[sha256.Size]byte]*live{}}) }

// check returns a valid token, or api.ErrUnauthorized.
func (x *tokenStore) check(ctx context.Context, token string) (*live, error) {
	if len(token) != tokenSize {
		return nil, api.ErrUnauthorized // not one of ours
	}
	hash := sha256.Sum256([]byte(token))
	known := x.checked.Load() // before the snapshot, see checked
	if l := known.get(hash); l != nil {
		return x.unexpired(l)
	}
	key, snap := hex.EncodeToString(hash[:]), records.Over(x.replica.Snapshot())
	t, ok := x.tokens.Peek(snap, key)
	if !ok {
		var err error
		if snap, err = x.fresh(ctx); err != nil {
			return nil, err
		}
		if t, ok = x.tokens.Peek(snap, key); !ok {
			return nil, api.ErrUnauthorized
		}
	}
	l := x.resolve(snap, t)
	if l == nil {
		return nil, api.ErrUnauthorized
	}
	known.put(hash, l)
	return x.unexpired(l)
}

func (x *tokenStore) unexpired(l *live) (*live, error) {
	if !x.now().Before(l.token.ExpiresAt) {
		return nil, api.ErrUnauthorized
	}
	return l, nil
}

// fresh returns the newest view, for a token that another server may have issued a moment ago. Only
// a few requests look at once, so that clients that invent tokens keep only each other waiting.
func (x *tokenStore) fresh(ctx context.Context) (*records.Snap, error) {
	select {
	case x.lookups <- struct{}{}:
		defer func() { <-x.lookups }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return x.view(ctx)
}

// resolve returns a token as it is valid on a state of the tables; nil when anything it rests on
// has changed.
func (x *tokenStore) resolve(r records.Reader, t *Token) *live {
	on, ok := x.standing(r, t.UserID, t.target())
	if !ok || on.serials() != t.Serials {
		return nil
	}
	if t.AppCredentialID != "" {
		if _, ok := x.credentials.Peek(r, t.AppCredentialID); !ok {
			return nil
		}
	}
	l := &live{token: t, identity: on.identity()}
	l.identity.Expires, l.identity.ApplicationCredentialID = t.ExpiresAt, t.AppCredentialID
	for _, g := range t.Roles {
		a, ok := x.assignments.Peek(r, assignmentKey(t.UserID, t.target(), g.RoleID))
		if !ok || a.Grant != g.Grant {
			return nil
		}
		role, ok := x.roles.Peek(r, g.RoleID)
		if !ok {
			return nil
		}
		l.identity.Roles = append(l.identity.Roles, role.Name)
		l.roles = append(l.roles, object{"id": role.ID, "name": role.Name})
	}
	return l
}

// standing is a user and the scope of a token, with their domains.
type standing struct {
	user       *User
	userDomain *Domain
	project    *Project // nil without a project
	domain     *Domain  // of the project, or the scope itself
}

// standing reads a user and a scope; false when one of them is gone or disabled.
func (d *directory) standing(r records.Reader, userID string, on target) (st standing, ok bool) {
	if st.user, ok = d.users.Peek(r, userID); !ok || !st.user.Enabled {
		return st, false
	}
	if st.userDomain, ok = d.domains.Peek(r, st.user.DomainID); !ok || !st.userDomain.Enabled {
		return st, false
	}
	domainID := on.domainID
	if on.projectID != "" {
		if st.project, ok = d.projects.Peek(r, on.projectID); !ok || !st.project.Enabled {
			return st, false
		}
		domainID = st.project.DomainID
	}
	if domainID != "" {
		if st.domain, ok = d.domains.Peek(r, domainID); !ok || !st.domain.Enabled {
			return st, false
		}
	}
	return st, true
}

func (st *standing) serials() Serials {
	n := Serials{User: st.user.Serial, UserDomain: st.userDomain.Serial}
	switch {
	case st.project != nil:
		n.Scope, n.ScopeDomain = st.project.Serial, st.domain.Serial
	case st.domain != nil:
		n.Scope = st.domain.Serial
	}
	return n
}

func (st *standing) identity() *api.Identity {
	id := &api.Identity{UserID: st.user.ID, UserName: st.user.Name, UserDomainID: st.userDomain.ID, UserDomainName: st.userDomain.Name}
	switch {
	case st.project != nil:
		id.ProjectID, id.ProjectName = st.project.ID, st.project.Name
		id.ProjectDomainID, id.ProjectDomainName = st.domain.ID, st.domain.Name
	case st.domain != nil:
		id.DomainID, id.DomainName = st.domain.ID, st.domain.Name
	}
	return id
}

// tokenSize is the length of a token: 32 random bytes in base64.
var tokenSize = base64.RawURLEncoding.EncodedLen(32)

func newToken() (token, hash string) {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	token = base64.RawURLEncoding.EncodeToString(b[:])
	return token, hashToken(token)
}

func hashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// issue stores a token and returns it. Its user and scope are as read from r; if they change
// meanwhile, the token is never valid.
func (x *tokenStore) issue(ctx context.Context, r records.Reader, t *Token) (token string, l *live, err error) {
	on, ok := x.standing(r, t.UserID, t.target())
	if !ok {
		return "", nil, api.ErrUnauthorized
	}
	t.Serials = on.serials()
	t.AuditIDs = append([]string{rand.Text()[:22]}, t.AuditIDs...)
	token, t.Hash = newToken()
	if err := x.keep(ctx, t); err != nil {
		return "", nil, err
	}
	if l = x.resolve(r, t); l == nil {
		return "", nil, api.ErrUnauthorized
	}
	return token, l, nil
}

// keep stores a token under a lease, so that it vanishes soon after it has expired, and waits until
// this server's replica has it: the client's next request may come at once.
func (x *tokenStore) keep(ctx context.Context, t *Token) error {
	for attempt := 0; ; attempt++ {
		lease, err := x.leases.current(ctx)
		if err != nil {
			return explain(err)
		}
		rev, err := x.db.Update(ctx, func(tx *records.Tx) error { return x.tokens.PutLeased(tx, t, lease) })
		if errors.Is(err, store.ErrLeaseGone) && attempt == 0 {
			x.leases.drop(lease)
			continue
		}
		if err == nil {
			_, err = x.replica.At(ctx, rev)
		}
		return explain(err)
	}
}

// revoke ends a token, on this server before it returns and on the others as soon as their replicas
// have the change.
func (x *tokenStore) revoke(ctx context.Context, t *Token) error {
	return x.update(ctx, func(tx *records.Tx) error {
		var absent *records.NotFoundError
		if err := x.tokens.Delete(tx, t.Hash); !errors.As(err, &absent) { // else it expired or was revoked meanwhile
			return err
		}
		return nil
	})
}

// revokeChain ends all tokens of the log-in that a token goes back to.
func (x *tokenStore) revokeChain(ctx context.Context, t *Token) error {
	return x.update(ctx, func(tx *records.Tx) error {
		var ended []string
		for other := range x.tokens.All(tx) {
			if other.UserID == t.UserID && other.chain() == t.chain() {
				ended = append(ended, other.Hash)
			}
		}
		for _, hash := range ended {
			if err := x.tokens.Delete(tx, hash); err != nil {
				return err
			}
		}
		return nil
	})
}

// leases gives tokens issued within a few minutes the same lease: a lease for each would double the
// cost of a login.
type leases struct {
	store store.Store
	life  time.Duration // of a token
	now   func() time.Time

	mu    sync.Mutex
	lease store.Lease
	until time.Time // tokens issued before may use it
}

func (l *leases) current(ctx context.Context) (store.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if l.lease != 0 && now.Before(l.until) {
		return l.lease, nil
	}
	lease, err := l.store.Grant(ctx, l.life+leaseWindow)
	if err != nil {
		return 0, err
	}
	l.lease, l.until = lease, now.Add(leaseWindow)
	return lease, nil
}

// drop forgets a lease that turned out to have ended.
func (l *leases) drop(lease store.Lease) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == lease {
		l.lease = 0
	}
}
