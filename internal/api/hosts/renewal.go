package hosts

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"heddle/internal/api"
	"heddle/internal/api/jointoken"
	"heddle/internal/store/backend"
	"heddle/internal/task"
)

const (
	// longLife is a life that no certificate has which is renewed: earlier versions gave out such
	// for twenty years.
	longLife = 2 * 365 * 24 * time.Hour
	// longestWait bounds the time between looks at the certificate: clocks are set, machines sleep.
	longestWait = time.Hour
	// refusedPause is the time after which a refused renewal is tried again: an operator may have
	// let the host join again.
	refusedPause = 10 * time.Minute
	// lookSpread is the time over which hosts renew their certificates when another authority
	// signs.
	lookSpread = 2 * time.Second
)

// Renewal keeps the certificate of a host that has joined good: it is renewed at half of its life
// over the API, with the key it is for. Programs that have the files open find the new certificate
// there. It is a task, ready when it runs: an agent can work with the certificate that it has.
type Renewal struct {
	task.Part
	dir     string
	log     *slog.Logger
	refused atomic.Pointer[string]
	soon    task.Notice
}

// Refused returns why the servers refuse to renew the certificate, or "".
func (r *Renewal) Refused() string {
	if why := r.refused.Load(); why != nil {
		return *why
	}
	return ""
}

// NewRenewal returns the task for the credentials in a state directory.
func NewRenewal(stateDir string, log *slog.Logger) *Renewal {
	return &Renewal{Part: task.NewPart("renewal of the certificate"), dir: stateDir, log: log, soon: task.NewNotice()}
}

// Look has the certificate looked at soon: another authority may sign certificates now.
func (r *Renewal) Look() { r.soon.Give() }

// Run renews until ctx ends.
func (r *Renewal) Run(ctx context.Context) error {
	r.BeReady()
	backoff, said := task.Backoff{Least: leastPause, Most: mostPause}, ""
	for {
		next, err := r.pass(ctx, time.Now())
		if ctx.Err() != nil {
			return nil
		}
		switch {
		case err == nil:
			said = ""
			r.refused.Store(nil)
			backoff.Reset()
		case Refused(err):
			why := err.Error()
			r.refused.Store(&why)
			next = refusedPause
			backoff.Reset()
		default:
			next = backoff.Next()
		}
		if err != nil && err.Error() != said {
			r.log.Error("cannot renew the certificate of this host, will try again", "err", err)
			said = err.Error()
		}
		if !r.pause(ctx, next/2+rand.N(next/2+1)) { // hosts that started together do not ask together
			return nil
		}
	}
}

// pause waits until the next look, or until [Renewal.Look] and a moment that differs from host to
// host. It reports whether ctx goes on.
func (r *Renewal) pause(ctx context.Context, next time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(next):
		return true
	case <-r.soon:
		return task.Pause(ctx, rand.N(lookSpread))
	}
}

// pass renews the certificate if it is time, and returns when to look again.
func (r *Renewal) pass(ctx context.Context, now time.Time) (next time.Duration, err error) {
	cert, err := readLeaf(filepath.Join(r.dir, certFile))
	if err != nil {
		return 0, err
	}
	c, err := Load(r.dir)
	if err != nil {
		return 0, err
	}
	if due := renewalDue(cert); now.Before(due) && c.signed(cert) {
		return min(due.Sub(now), longestWait), nil
	}
	until, err := Renew(ctx, r.dir)
	if err != nil {
		return 0, err
	}
	r.log.Info("renewed the certificate of this host", "until", until)
	if cert, err = readLeaf(c.CertFile); err != nil || !c.signed(cert) {
		return locateEvery, err // the server that answered does not know the authority yet
	}
	// A clock that is ahead of the server's by more than the certificate's life must not make this
	// a busy loop.
	return max(leastPause, min(until.Sub(now)/4, longestWait)), nil
}

// signed reports whether the authority that signs now has signed a certificate.
func (c Credentials) signed(cert *x509.Certificate) bool {
	return c.Signer == "" || hex.EncodeToString(cert.AuthorityKeyId) == c.Signer
}

// renewalDue returns when a certificate is to be renewed.
func renewalDue(cert *x509.Certificate) time.Time {
	made := cert.NotBefore.Add(backend.ClockSkew)
	life := cert.NotAfter.Sub(made)
	if life > longLife {
		return made
	}
	return made.Add(life / 2)
}

func readLeaf(file string) (*x509.Certificate, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseLeaf(text)
}

func parseLeaf(text []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no certificate in PEM found")
	}
	return x509.ParseCertificate(block.Bytes)
}

// Renew has a server sign the host's key again, and puts the certificate in the place of the old
// one.
func Renew(ctx context.Context, stateDir string) (until time.Time, err error) {
	answer, err := askRenewal(ctx, stateDir)
	return answer.until, err
}

// renewed is a server's answer, whose certificate is in its place.
type renewed struct {
	renewAnswer
	until time.Time // end of the certificate
}

// askRenewal is Renew, and returns all of the answer.
func askRenewal(ctx context.Context, stateDir string) (renewed, error) {
	c, err := Load(stateDir)
	if err != nil {
		return renewed{}, err
	}
	key, err := os.ReadFile(c.KeyFile)
	if err != nil {
		return renewed{}, err
	}
	old, err := os.ReadFile(c.CertFile)
	if err != nil {
		return renewed{}, err
	}
	csr, err := newRequest(key)
	if err != nil {
		return renewed{}, err
	}
	var failures []error
	for _, server := range c.Servers {
		trust, err := c.trust(server)
		if err != nil {
			return renewed{}, err
		}
		var answer renewed
		err = jointoken.Post(ctx, server+"/v1/renew", trust, c.Plain, http.StatusOK, renewRequest{c.HostID, string(old), string(csr)}, &answer.renewAnswer)
		if err == nil {
			if answer.until, err = checkRenewed(c.HostID, old, []byte(answer.Certificate)); err == nil {
				return answer, replaceCertificate(c, []byte(answer.Certificate), key)
			}
		}
		if errors.As(err, new(x509.UnknownAuthorityError)) {
			err = fmt.Errorf("%w: this host has joined under another authority, as when a backup was restored that is older than the authority; "+
				"if this is the host's cloud, let it join again with a token for its name: `heddle host token %s`; docs/guides/hosts.md, \"Down, removed, back\"", err, c.Name)
		}
		failures = append(failures, fmt.Errorf("renew at %s: %w", server, err))
		if Refused(err) {
			break
		}
	}
	return renewed{}, errors.Join(failures...)
}

// replaceCertificate writes the certificate first and the key, which stays the same, again after
// it: ovsdb-server reads neither before both files have changed, and looks at the key first.
func replaceCertificate(c Credentials, certificate, key []byte) error {
	return errors.Join(api.WriteFile(c.CertFile, certificate), api.WriteFile(c.KeyFile, key))
}

// checkRenewed refuses a certificate that would not do in the place of the old one. Its etcd user
// may differ: servers of earlier versions sign that of all joins of the host.
func checkRenewed(hostID string, oldPEM, renewedPEM []byte) (until time.Time, err error) {
	old, err := parseLeaf(oldPEM)
	if err != nil {
		return until, err
	}
	renewed, err := parseLeaf(renewedPEM)
	if err != nil {
		return until, fmt.Errorf("the server's answer: %w", err)
	}
	if err := renewed.VerifyHostname(backend.CertificateName(hostID)); err != nil {
		return until, fmt.Errorf("the server's answer is a certificate for another host: %w", err)
	}
	if string(renewed.RawSubjectPublicKeyInfo) != string(old.RawSubjectPublicKeyInfo) {
		return until, errors.New("the server's answer is a certificate for another key")
	}
	return renewed.NotAfter, nil
}

// trust returns the configuration by which the host recognizes a server of the API: by the
// fingerprints in its join token and in the store, or by the authority of the store's servers. A
// host that knows no fingerprint also trusts the authorities of this machine.
func (c Credentials) trust(server string) (*tls.Config, error) {
	own, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if len(c.pins()) == 0 {
		if system, err := x509.SystemCertPool(); err == nil {
			roots = system
		}
	}
	roots.AppendCertsFromPEM(own)
	return jointoken.Pinned(server, roots, c.pins()...), nil
}
