package identity

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"heddle/internal/api"
	"heddle/internal/api/credentials"
)

// How long answers of Keystone are believed: a token revoked there dies here within this time.
const (
	keystoneBelieved    = time.Minute
	keystoneRefusal     = 5 * time.Second // a token unknown to Keystone
	keystoneTimeout     = 10 * time.Second
	maxKeystoneAnswer   = 4 << 20 // bytes
	maxRemembered       = 10_000  // answers
	subjectTokenHeader  = "X-Subject-Token"
	jsonContentType     = "application/json"
	keystoneNoCatalogue = "/auth/tokens?nocatalog"
	defaultDomain       = "Default" // name of the domain of users and projects without one
)

// KeystoneOptions say where an existing Keystone is and who asks it about tokens.
type KeystoneOptions struct {
	URL           string // such as https://keystone.example:5000/v3; /v3 is added when missing
	Username      string // of a service user that may validate tokens (role admin or service)
	Password      string
	ProjectName   string
	UserDomain    string         // name; "" = Default
	ProjectDomain string         // name; "" = Default
	RootCAs       *x509.CertPool // nil = the system's
	Now           func() time.Time
}

// Keystone validates tokens by asking an existing Keystone, in place of Heddle's own identity
// service.
type Keystone struct {
	opts   KeystoneOptions
	url    string // ends in /v3
	client *http.Client
	asking singleflight.Group // one question per token at a time
	// throttle slows down clients that guess: Keystone sees the server's address, not theirs.
	throttle *credentials.Throttle

	mu      sync.Mutex
	own     string // the service user's own token
	answers map[[sha256.Size]byte]answer
}

// answer is Keystone's answer about a token; a nil identity is a refusal.
type answer struct {
	identity *api.Identity
	until    time.Time
}

// NewKeystone checks the options; Keystone is asked at the first token.
func NewKeystone(o KeystoneOptions) (*Keystone, error) {
	u, err := url.Parse(strings.TrimRight(o.URL, "/"))
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("keystone URL %q: want one like https://keystone.example:5000/v3", o.URL)
	}
	if o.Username == "" || o.Password == "" || o.ProjectName == "" {
		return nil, fmt.Errorf("keystone at %s: a service user, its password and its project are needed to validate tokens", o.URL)
	}
	if !strings.HasSuffix(u.Path, "/v3") {
		u.Path += "/v3"
	}
	o.UserDomain = cmp.Or(o.UserDomain, defaultDomain)
	o.ProjectDomain = cmp.Or(o.ProjectDomain, defaultDomain)
	if o.Now == nil {
		o.Now = time.Now
	}
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute,
		TLSClientConfig: &tls.Config{RootCAs: o.RootCAs, MinVersion: tls.VersionTLS12}}
	return &Keystone{opts: o, url: u.String(), client: &http.Client{Transport: transport, Timeout: keystoneTimeout}, throttle: credentials.NewThrottle(o.Now),
		answers: map[[sha256.Size]byte]answer{}}, nil
}

// Validate implements api.Validator. Keystone's answer is believed for a minute at most, and never
// beyond the token's end.
func (k *Keystone) Validate(ctx context.Context, token string) (*api.Identity, error) {
	hash := sha256.Sum256([]byte(token))
	if a, ok := k.remembered(hash); ok {
		return a.result()
	}
	// The question outlives a caller who goes away: others may wait for the same answer.
	ch := k.asking.DoChan(string(hash[:]), func() (any, error) {
		return k.ask(context.WithoutCancel(ctx), hash, token)
	})
	select {
	case r := <-ch:
		if r.Err != nil {
			return nil, r.Err
		}
		return r.Val.(answer).result()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (a answer) result() (*api.Identity, error) {
	if a.identity == nil {
		return nil, api.ErrUnauthorized
	}
	return a.identity, nil
}

func (k *Keystone) remembered(hash [sha256.Size]byte) (answer, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	a, ok := k.answers[hash]
	return a, ok && k.opts.Now().Before(a.until)
}

// forget makes the next question about a token go to Keystone.
func (k *Keystone) forget(token string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.answers, sha256.Sum256([]byte(token)))
}

// ask asks Keystone about a token, logging in first when our own token is missing or no longer
// taken.
func (k *Keystone) ask(ctx context.Context, hash [sha256.Size]byte, token string) (answer, error) {
	id, err := k.askWith(ctx, k.ownToken(), token)
	if errors.Is(err, errOwnToken) {
		own, loginErr := k.login(ctx)
		if loginErr != nil {
			return answer{}, fmt.Errorf("log in to Keystone at %s as %s: %w: %w", k.url, k.opts.Username, api.ErrUnavailable, loginErr)
		}
		id, err = k.askWith(ctx, own, token)
	}
	now := k.opts.Now()
	a := answer{identity: id, until: now.Add(keystoneBelieved)}
	switch {
	case errors.Is(err, api.ErrUnauthorized) || err == nil && !now.Before(id.Expires):
		a = answer{until: now.Add(keystoneRefusal)}
	case err != nil:
		return answer{}, fmt.Errorf("ask Keystone at %s about a token: %w: %w", k.url, api.ErrUnavailable, err)
	case id.Expires.Before(a.until):
		a.until = id.Expires
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	remember(k.answers, hash, a, func(a answer) bool { return !now.Before(a.until) })
	return a, nil
}

var (
	errOwnToken     = errors.New("our own token is not taken")
	errLoginRefused = errors.New("log-in refused")
)

func (k *Keystone) ownToken() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.own
}

func (k *Keystone) askWith(ctx context.Context, own, token string) (*api.Identity, error) {
	if own == "" {
		return nil, errOwnToken
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url+keystoneNoCatalogue, nil)
	if err != nil {
		return nil, err
	}
	req.Header[api.TokenHeader] = []string{own}
	req.Header[subjectTokenHeader] = []string{token}
	status, _, body, err := k.do(req)
	switch {
	case err != nil:
		return nil, err
	case status == http.StatusNotFound:
		return nil, api.ErrUnauthorized
	case status == http.StatusUnauthorized:
		return nil, errOwnToken
	case status != http.StatusOK:
		return nil, fmt.Errorf("status %d: %.200s", status, body)
	}
	return parseKeystone(body)
}

// parseKeystone reads Keystone's description of a token.
func parseKeystone(body []byte) (*api.Identity, error) {
	type named struct {
		ID, Name string
		Domain   struct{ ID, Name string }
	}
	var doc struct {
		Token struct {
			ExpiresAt time.Time `json:"expires_at"`
			User      named
			Project   named
			Domain    named
			Roles     []named

			ApplicationCredential struct{ ID string } `json:"application_credential"`
		}
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("answer is not a token: %w", err)
	}
	t := doc.Token
	if t.User.ID == "" || t.ExpiresAt.IsZero() {
		return nil, errors.New("answer is not a token: it lacks user or expires_at")
	}
	id := &api.Identity{UserID: t.User.ID, UserName: t.User.Name, UserDomainID: t.User.Domain.ID, UserDomainName: t.User.Domain.Name,
		ProjectID: t.Project.ID, ProjectName: t.Project.Name, ProjectDomainID: t.Project.Domain.ID, ProjectDomainName: t.Project.Domain.Name,
		DomainID: t.Domain.ID, DomainName: t.Domain.Name, ApplicationCredentialID: t.ApplicationCredential.ID, Expires: t.ExpiresAt}
	for _, r := range t.Roles {
		id.Roles = append(id.Roles, r.Name)
	}
	return id, nil
}

// login gets the service user a token and keeps it for all questions.
func (k *Keystone) login(ctx context.Context) (string, error) {
	own, err := k.newToken(ctx, &api.Login{User: k.opts.Username, Password: k.opts.Password, UserDomain: k.opts.UserDomain,
		Project: k.opts.ProjectName, ProjectDomain: k.opts.ProjectDomain})
	if err != nil {
		return "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.own = own
	return own, nil
}

// newToken asks Keystone for a token.
func (k *Keystone) newToken(ctx context.Context, l *api.Login) (string, error) {
	type m = map[string]any
	auth := m{"identity": m{"methods": []string{"password"}, "password": m{"user": m{
		"name": l.User, "password": l.Password, "domain": m{"name": cmp.Or(l.UserDomain, defaultDomain)}}}}}
	if l.Project != "" {
		auth["scope"] = m{"project": m{"name": l.Project, "domain": m{"name": cmp.Or(l.ProjectDomain, defaultDomain)}}}
	}
	body, err := json.Marshal(m{"auth": auth})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, k.url+keystoneNoCatalogue, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", jsonContentType)
	status, header, answer, err := k.do(req)
	token := header.Get(subjectTokenHeader)
	switch {
	case err != nil:
		return "", err
	case status == http.StatusUnauthorized:
		return "", fmt.Errorf("%w: %.200s", errLoginRefused, answer)
	case status != http.StatusCreated || token == "":
		return "", fmt.Errorf("status %d: %.200s", status, answer)
	}
	return token, nil
}

func (k *Keystone) do(req *http.Request) (status int, header http.Header, body []byte, err error) {
	res, err := k.client.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer res.Body.Close()
	body, err = io.ReadAll(io.LimitReader(res.Body, maxKeystoneAnswer))
	return res.StatusCode, res.Header, body, err
}

// remember sets m[k], making room in a map of size most among what is past, and if need be among
// the rest.
func remember[K comparable, V any](m map[K]V, k K, v V, past func(V) bool) {
	if _, ok := m[k]; !ok && len(m) >= maxRemembered {
		maps.DeleteFunc(m, func(_ K, v V) bool { return past(v) })
		for old := range m {
			if len(m) < maxRemembered {
				break
			}
			delete(m, old)
		}
	}
	m[k] = v
}
