package identity

import (
	"context"
	"net/http"
	"time"

	"heddle/internal/api"
	"heddle/internal/store/records"
)

// tokenCalls serves logins, and clients' calls about tokens.
type tokenCalls struct {
	*directory
	issued    *tokenStore
	passwords *passwords
	catalog   *catalog
	life      time.Duration // of a token
}

func (x *tokenCalls) routes() []route {
	return []route{
		{"POST /v3/auth/tokens", "authenticate", anyone, x.reading(x.login)},
		{"GET /v3/auth/tokens", "validate_token", user, x.showToken}, // and HEAD
		{"DELETE /v3/auth/tokens", "revoke_token", user, x.revokeToken},
	}
}

func (x *tokenCalls) login(c *call, snap *records.Snap) error {
	ask, err := readAuth(c.r)
	if err != nil {
		return err
	}
	token, l, err := x.admitNoted(c.ctx(), snap, ask)
	if err != nil {
		return err
	}
	c.w.Header().Set(subjectTokenHeader, token)
	return c.one(http.StatusCreated, "token", x.render(c.r, l))
}

// admitNoted is admit that logs and counts a refusal.
func (x *tokenCalls) admitNoted(ctx context.Context, snap *records.Snap, ask *authRequest) (string, *live, error) {
	token, l, err := x.admit(ctx, snap, ask)
	if account := ask.account(); err != nil && account != "" {
		x.passwords.note(ctx, account, err)
	}
	return token, l, err
}

// admit issues the token that a client may have, and returns its secret.
func (x *tokenCalls) admit(ctx context.Context, snap *records.Snap, ask *authRequest) (string, *live, error) {
	t, err := x.authenticate(ctx, snap, ask)
	if err != nil {
		return "", nil, err
	}
	t.IssuedAt = x.issued.now().UTC()
	if t.ExpiresAt.IsZero() {
		t.ExpiresAt = t.IssuedAt.Add(x.life)
	}
	return x.issued.issue(ctx, snap, t)
}

// authenticate returns the token that a client may have: without its secret, and not stored yet.
func (x *tokenCalls) authenticate(ctx context.Context, snap *records.Snap, ask *authRequest) (*Token, error) {
	switch method := ask.Identity.Methods[0]; method {
	case "password":
		user, err := x.byPassword(ctx, snap, &ask.Identity.Password.User)
		if err != nil {
			return nil, err
		}
		return x.scoped(snap, &Token{UserID: user.ID, Methods: []string{method}}, user, ask.Scope)
	case "token":
		l, err := x.issued.check(ctx, ask.Identity.Token.ID)
		if err != nil {
			return nil, err
		}
		return x.rescoped(snap, l.token, ask.Scope)
	default:
		return x.byAppCredential(ctx, snap, ask)
	}
}

// byPassword returns the user with this name and password. Neither the answer nor its time reveals
// whether name, password or both are wrong, or the user is disabled.
func (x *tokenCalls) byPassword(ctx context.Context, snap *records.Snap, named *userRef) (*User, error) {
	user := find(x.directory, x.users, snap, &named.ref)
	account, stored := named.key(), ""
	if user != nil {
		account, stored = user.ID, user.PasswordHash
	}
	if err := x.passwords.login(ctx, account, stored, named.Password); err != nil {
		return nil, err
	}
	return user, nil
}

// byAppCredential logs in with an application credential: as its user, on its project, with its
// roles.
func (x *tokenCalls) byAppCredential(ctx context.Context, snap *records.Snap, ask *authRequest) (*Token, error) {
	named := ask.Identity.AppCredential
	var cred *AppCredential
	account, stored := "credential/"+named.ID, ""
	if named.ID != "" {
		cred, _ = x.credentials.Peek(snap, named.ID)
	} else {
		account = "credential/" + named.User.key() + "/" + named.Name
		if u := find(x.directory, x.users, snap, &named.User.ref); u != nil {
			cred = first(x.credentials, snap, "name", inDomain(u.ID, named.Name))
		}
	}
	if cred != nil {
		stored = cred.SecretHash
	}
	if err := x.passwords.login(ctx, account, stored, named.Secret); err != nil {
		return nil, err
	}
	now := x.issued.now()
	t := &Token{UserID: cred.UserID, ProjectID: cred.ProjectID, Methods: []string{"application_credential"}, Roles: cred.Roles, AppCredentialID: cred.ID}
	if end := cred.ExpiresAt; end != nil {
		if !now.Before(*end) {
			return nil, api.ErrUnauthorized
		}
		t.ExpiresAt = now.Add(x.life)
		if end.Before(t.ExpiresAt) {
			t.ExpiresAt = *end
		}
	}
	return t, nil
}

// scoped gives the token the requested scope and the user's roles there. A scope on which the user
// has no role is answered like one that does not exist.
func (x *tokenCalls) scoped(r records.Reader, t *Token, user *User, ask scope) (*Token, error) {
	switch {
	case ask.Project != nil:
		p := find(x.directory, x.projects, r, ask.Project)
		if p == nil {
			return nil, api.ErrUnauthorized
		}
		t.ProjectID = p.ID
	case ask.Domain != nil:
		d := x.domain(r, ask.Domain.ID, ask.Domain.Name)
		if d == nil {
			return nil, api.ErrUnauthorized
		}
		t.DomainID = d.ID
	case ask.System:
		return nil, api.ErrUnauthorized // there are no roles on the system as a whole
	case ask.Unscoped:
		return t, nil
	default:
		return x.byDefault(r, t, user), nil
	}
	if t.Roles = x.grants(r, user.ID, t.target()); len(t.Roles) == 0 {
		return nil, api.ErrUnauthorized
	}
	return t, nil
}

// byDefault scopes a token to the user's default project, if the user has one and may use it.
func (x *tokenCalls) byDefault(r records.Reader, t *Token, user *User) *Token {
	on := target{projectID: user.DefaultProjectID}
	if on.zero() {
		return t
	}
	roles := x.grants(r, user.ID, on)
	if _, ok := x.standing(r, user.ID, on); !ok || len(roles) == 0 {
		return t
	}
	t.ProjectID, t.Roles = on.projectID, roles
	return t
}

// rescoped makes a token from another, for the same user and with no longer life.
func (x *tokenCalls) rescoped(r records.Reader, old *Token, ask scope) (*Token, error) {
	if old.AppCredentialID != "" {
		return nil, api.Errorf(http.StatusForbidden, "A token of an application credential keeps its scope.")
	}
	user, ok := x.users.Peek(r, old.UserID)
	if !ok {
		return nil, api.ErrUnauthorized
	}
	t := &Token{UserID: user.ID, Methods: methodsAfter(old.Methods, "token"), ExpiresAt: old.ExpiresAt,
		AuditIDs: []string{old.chain()}} // the first of the chain, as in Keystone
	return x.scoped(r, t, user, ask)
}

// subject returns the token that a call is about, which a header names in addition to the caller's
// own. Users may ask about their own tokens, and services and admins about any.
func (x *tokenCalls) subject(c *call) (*live, error) {
	token := c.r.Header.Get(subjectTokenHeader)
	if token == "" {
		return nil, missing(subjectTokenHeader, "the request's headers")
	}
	l, err := x.issued.check(c.ctx(), token)
	if err == api.ErrUnauthorized {
		return nil, notFound("token", "it is unknown, expired or revoked")
	} else if err != nil {
		return nil, err
	}
	return l, c.self(l.identity.UserID)
}

func (x *tokenCalls) showToken(c *call) error {
	l, err := x.subject(c)
	if err != nil {
		return err
	}
	c.w.Header().Set(subjectTokenHeader, c.r.Header.Get(subjectTokenHeader))
	return c.one(http.StatusOK, "token", x.render(c.r, l))
}

func (x *tokenCalls) revokeToken(c *call) error {
	l, err := x.subject(c)
	if err != nil {
		return err
	}
	return c.done(x.issued.revoke(c.ctx(), l.token))
}

// render returns a token as the API shows it, without its secret.
func (x *tokenCalls) render(r *http.Request, l *live) object {
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
		return o // unscoped: no roles, and nothing it gives access to
	}
	o["roles"] = l.roles
	if !r.URL.Query().Has("nocatalog") {
		o["catalog"] = x.catalog.view(r)
	}
	return o
}
