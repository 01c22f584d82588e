package xapi

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"heddle/internal/api/credentials"
	"heddle/internal/store/snapshot"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

const (
	sessionIdle = 24 * time.Hour // an unused session ends after so long
	maxSessions = 500            // of one account; the one unused for the longest gives way
)

// session is one log-in. Sessions are this server's alone, and end with it: clients log in again.
type session struct {
	ref, uuid  string
	server     *Server
	account    string // its name
	serial     int    // of the account's password
	user       string // ref
	originator string
	began      time.Time
	ended      chan struct{} // closed when the session is over

	mu          sync.Mutex
	lastUsed    time.Time
	otherConfig map[string]string
	watched     *subscription // by event.register; nil: by none
}

// sessions are all of a server.
type sessions struct {
	now func() time.Time

	mu        sync.Mutex
	byRef     map[string]*session
	byAccount map[string]map[*session]bool
}

func newSessions(now func() time.Time) *sessions {
	return &sessions{now: now, byRef: map[string]*session{}, byAccount: map[string]map[*session]bool{}}
}

// begin makes a session.
func (l *sessions) begin(s *Server, a *account, originator string) *session {
	id := newUUID()
	one := &session{ref: refPrefix + id, uuid: id, server: s, account: a.Name, serial: a.Serial, user: a.User, originator: originator,
		began: l.now(), lastUsed: l.now(), ended: make(chan struct{}), otherConfig: map[string]string{}}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expire()
	if l.byAccount[a.Name] == nil {
		l.byAccount[a.Name] = map[*session]bool{}
	}
	if own := l.byAccount[a.Name]; len(own) >= maxSessions {
		l.drop(slices.MinFunc(slices.Collect(maps.Keys(own)), func(a, b *session) int { return a.used().Compare(b.used()) }))
	}
	l.byRef[one.ref] = one
	l.byAccount[a.Name][one] = true
	return one
}

// expire ends the sessions that are idle for too long. It is called with the lock held.
func (l *sessions) expire() {
	for _, one := range l.byRef {
		if l.now().Sub(one.used()) > sessionIdle {
			l.drop(one)
		}
	}
}

// drop ends a session. It is called with the lock held.
func (l *sessions) drop(one *session) {
	if l.byRef[one.ref] == nil {
		return
	}
	delete(l.byRef, one.ref)
	delete(l.byAccount[one.account], one)
	if len(l.byAccount[one.account]) == 0 {
		delete(l.byAccount, one.account)
	}
	close(one.ended)
}

func (l *sessions) end(one *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(one)
}

// note ends all sessions once this pool's host has joined another: clients are sent there.
func (l *sessions) note(u snapshot.Update) {
	for _, c := range u.Changed {
		if c.Source == objects.Memberships.Name() && c.New != nil {
			l.mu.Lock()
			for _, one := range l.byRef {
				l.drop(one)
			}
			l.mu.Unlock()
		}
	}
}

// use finds a session that a call names, and notes that it is used.
func (l *sessions) use(ref string) (*session, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.byRef[ref]
	if one == nil {
		return nil, false
	}
	now := l.now()
	if now.Sub(one.used()) > sessionIdle || !one.valid() {
		l.drop(one)
		return nil, false
	}
	one.mu.Lock()
	one.lastUsed = now
	one.mu.Unlock()
	return one, true
}

func (o *session) used() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.lastUsed
}

// valid reports whether the account still is as it was at log-in.
func (o *session) valid() bool {
	a, ok := accounts.Peek(o.server.now(), o.account)
	return ok && a.Serial == o.serial && a.User == o.user
}

// role returns the account's present role; "" permits nothing.
func (o *session) role() model.Role {
	a, ok := accounts.Peek(o.server.now(), o.account)
	if !ok {
		return ""
	}
	return a.Role
}

// sessionOf is the session that the first parameter names.
func (s *Server) sessionOf(params []any) (*session, *model.Error) {
	if len(params) == 0 {
		return nil, model.SessionInvalid("")
	}
	ref, ok := params[0].(string)
	if !ok {
		return nil, model.SessionInvalid(fmt.Sprint(params[0]))
	}
	one, ok := s.sessions.use(ref)
	if !ok {
		return nil, model.SessionInvalid(ref)
	}
	return one, nil
}

// sessionMessages are those of the class session and of no object.
func sessionMessages() map[string]handler {
	return map[string]handler{
		"session.login_with_password": login,
		"session.logout":              logout,
		"session.get_by_uuid":         sessionByUUID,
		"system.listMethods":          func(*call) (any, error) { return model.CallNames(), nil },
		aliveCall:                     func(*call) (any, error) { return true, nil },
	}
}

func login(c *call) (any, error) {
	s := c.server
	view, err := c.view() // an account made a moment ago, at another server too, can be used
	if err != nil {
		return nil, err
	}
	if address, elsewhere := objects.Coordinator(view); elsewhere {
		return nil, model.HostIsSlave(address)
	}
	name := c.text("uname")
	if wait := s.throttle.Wait(name, c.from); wait > 0 {
		s.refusals.Note(name, c.from, credentials.TooManyAttempts)
		return nil, model.SessionAuthenticationFailed(name, fmt.Sprintf("too many wrong passwords from %v, or for this account: try again in %v", c.from, wait.Round(time.Second)))
	}
	a, there := accounts.Peek(view, name)
	hash, reason := "", credentials.UnknownAccount
	if there {
		hash, reason = a.Hash, credentials.WrongPassword
	}
	right, err := s.passwords.Check(c.ctx, c.from, hash, c.text("pwd"))
	if err != nil {
		return nil, fmt.Errorf("log in as %s: %w", name, err)
	}
	if !right {
		s.throttle.Failed(name, c.from)
		s.refusals.Note(name, c.from, reason)
		return nil, model.SessionAuthenticationFailed(name, "Authentication failure")
	}
	s.throttle.Succeeded(name, c.from)
	return s.sessions.begin(s, a, c.text("originator")).ref, nil
}

func logout(c *call) (any, error) {
	c.server.sessions.end(c.session)
	return nil, nil
}

// ownSession is the session that self names: one's own, or for a pool-admin any.
func (c *call) ownSession() (*session, error) {
	ref := c.text("self")
	if ref == c.session.ref {
		return c.session, nil
	}
	l := c.server.sessions
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.byRef[ref]
	if one == nil || c.session.role() != model.PoolAdmin {
		return nil, model.HandleInvalid("session", ref)
	}
	return one, nil
}

func sessionByUUID(c *call) (any, error) {
	c.args["self"] = refPrefix + c.text("uuid")
	one, err := c.ownSession()
	if err != nil {
		return nil, model.UUIDInvalid("session", c.text("uuid"))
	}
	return one.ref, nil
}

// record is the session as clients see it.
func (o *session) record() model.Record {
	r := model.New("session")
	role := o.role()
	now := o.server.now()
	for pool := range objects.Table("pool").All(now) {
		r["this_host"] = pool.Text("master")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.Copy(r, model.Record{
		"uuid": o.uuid, "this_user": o.user, "last_active": o.lastUsed.UTC().Truncate(time.Second), "validation_time": o.began.UTC().Truncate(time.Second),
		"other_config": maps.Clone(o.otherConfig), "is_local_superuser": role == model.PoolAdmin, "auth_user_name": o.account,
		"originator": o.originator, "rbac_permissions": []string{string(role)},
	})
	return r
}

// change changes the field that the call names; other_config is the only one that clients write.
func (o *session) change(c *call) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	v, err := c.changed(o.ref, o.otherConfig)
	if err == nil {
		o.otherConfig = v.(map[string]string)
	}
	return err
}
