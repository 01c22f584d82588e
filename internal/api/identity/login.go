package identity

import (
	"context"
	"net/http"

	"heddle/internal/api"
	"heddle/internal/store/records"
)

// login answers POST /v3/auth/tokens.
func (s *Service) login(c *call) error {
	ask, err := readAuth(c.r)
	if err != nil {
		return err
	}
	snap, err := s.view(c.ctx())
	if err != nil {
		return err
	}
	t, err := s.authenticate(c.ctx(), snap, ask)
	if err != nil {
		return err
	}
	t.IssuedAt = s.opts.Now().UTC()
	if t.ExpiresAt.IsZero() {
		t.ExpiresAt = t.IssuedAt.Add(s.opts.TokenLife)
	}
	token, l, err := s.issue(c.ctx(), snap, t)
	if err != nil {
		return err
	}
	c.w.Header().Set(subjectTokenHeader, token)
	return c.one(http.StatusCreated, "token", s.tokenView(c.r, l))
}

// authenticate finds out who asks, and what for: a token without its secret, not yet stored.
func (s *Service) authenticate(ctx context.Context, snap *records.Snap, ask *authRequest) (*Token, error) {
	switch method := ask.Identity.Methods[0]; method {
	case "password":
		user, err := s.byPassword(ctx, snap, &ask.Identity.Password.User)
		if err != nil {
			return nil, err
		}
		return s.scoped(snap, &Token{UserID: user.ID, Methods: []string{method}}, user, ask.Scope)
	case "token":
		l, err := s.check(ctx, ask.Identity.Token.ID)
		if err != nil {
			return nil, err
		}
		return s.rescoped(snap, l.token, ask.Scope)
	default:
		return s.byAppCredential(ctx, snap, ask)
	}
}

// byPassword is the user with this name and password. Whether name, password or both are wrong, or the user is
// disabled, is told neither by the answer nor by its time.
func (s *Service) byPassword(ctx context.Context, snap *records.Snap, named *userRef) (*User, error) {
	user := s.findUser(snap, &named.ref)
	key, stored := named.key(), ""
	if user != nil {
		key, stored = user.ID, user.PasswordHash
	}
	if err := s.guess(ctx, key, stored, named.Password); err != nil {
		return nil, err
	}
	return user, nil
}

// guess checks a secret against its stored hash, counting failures.
func (s *Service) guess(ctx context.Context, key, stored, secret string) error {
	from := api.ClientAddr(ctx)
	if wait := s.throttle.Wait(key, from); wait > 0 {
		return &api.Error{Status: http.StatusTooManyRequests, RetryAfter: wait, Message: "Too many failed logins. Try again later."}
	}
	right, err := s.passwords.check(ctx, stored, secret)
	if err != nil {
		return err
	}
	if !right {
		s.throttle.Failed(key, from)
		return api.ErrUnauthorized
	}
	s.throttle.Succeeded(key, from)
	return nil
}

func (s *Service) findUser(r records.Reader, n *ref) *User { return byRef(s, s.users, r, n) }

func (s *Service) findProject(r records.Reader, n *ref) *Project { return byRef(s, s.projects, r, n) }

// byRef finds a user or project by its id, or by its name in a domain; nil if there is none.
func byRef[T any](s *Service, t *records.Table[T], r records.Reader, n *ref) *T {
	if n.ID != "" {
		o, _ := t.Peek(r, n.ID)
		return o
	}
	d := s.findDomain(r, n.Domain.ID, n.Domain.Name)
	if d == nil {
		return nil
	}
	return first(t, r, "name", inDomain(d.ID, n.Name))
}

func (s *Service) findDomain(r records.Reader, id, name string) *Domain {
	if id != "" {
		d, _ := s.domains.Peek(r, id)
		return d
	}
	return first(s.domains, r, "name", name)
}

// scoped gives the token the scope asked for and the user's roles there. Asking for what one has no role on is answered
// like asking for what does not exist.
func (s *Service) scoped(r records.Reader, t *Token, user *User, ask scope) (*Token, error) {
	switch {
	case ask.Project != nil:
		p := s.findProject(r, ask.Project)
		if p == nil {
			return nil, api.ErrUnauthorized
		}
		t.ProjectID = p.ID
	case ask.Domain != nil:
		d := s.findDomain(r, ask.Domain.ID, ask.Domain.Name)
		if d == nil {
			return nil, api.ErrUnauthorized
		}
		t.DomainID = d.ID
	case ask.System:
		return nil, api.ErrUnauthorized // nobody has a role on the system as a whole
	case ask.Unscoped:
		return t, nil
	default:
		return s.byDefault(r, t, user), nil
	}
	if t.Roles = s.grants(r, user.ID, t.target()); len(t.Roles) == 0 {
		return nil, api.ErrUnauthorized
	}
	return t, nil
}

// byDefault scopes a token to the user's default project, if he has one he can use.
func (s *Service) byDefault(r records.Reader, t *Token, user *User) *Token {
	on := target{projectID: user.DefaultProjectID}
	if on.zero() {
		return t
	}
	roles := s.grants(r, user.ID, on)
	if _, ok := s.standing(r, user.ID, on); !ok || len(roles) == 0 {
		return t
	}
	t.ProjectID, t.Roles = on.projectID, roles
	return t
}

// rescoped makes a token from another: same user, never longer life.
func (s *Service) rescoped(r records.Reader, old *Token, ask scope) (*Token, error) {
	if old.AppCredentialID != "" {
		return nil, api.Errorf(http.StatusForbidden, "A token of an application credential keeps its scope.")
	}
	user, ok := s.users.Peek(r, old.UserID)
	if !ok {
		return nil, api.ErrUnauthorized
	}
	t := &Token{UserID: user.ID, Methods: methodsAfter(old.Methods, "token"), ExpiresAt: old.ExpiresAt,
		AuditIDs: old.AuditIDs[len(old.AuditIDs)-1:]} // the first of the chain, as Keystone has it
	return s.scoped(r, t, user, ask)
}

// tokenView is a token as it is shown; never the token itself.
func (s *Service) tokenView(r *http.Request, l *live) object {
	t, id := l.token, l.identity
	o := object{
		"methods": t.Methods, "audit_ids": t.AuditIDs,
		"issued_at": keystoneTime(t.IssuedAt), "expires_at": keystoneTime(t.ExpiresAt),
		"user": object{"id": id.UserID, "name": id.UserName, "domain": object{"id": id.UserDomainID, "name": id.UserDomainName},
			"password_expires_at": nil},
	}
	switch {
	case id.ProjectID != "":
		o["project"] = object{"id": id.ProjectID, "name": id.ProjectName, "domain": object{"id": id.ProjectDomainID, "name": id.ProjectDomainName}}
		o["is_domain"] = false
	case id.DomainID != "":
		o["domain"] = object{"id": id.DomainID, "name": id.DomainName}
	default:
		return o // unscoped: no roles, nothing to reach
	}
	o["roles"] = l.roles
	if !r.URL.Query().Has("nocatalog") {
		o["catalog"] = s.catalog.view(r)
	}
	return o
}
