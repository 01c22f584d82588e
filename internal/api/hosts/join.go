package hosts

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"heddle/internal/api"
	"heddle/internal/task"
)

// Files in a host's state directory. The last is written last: with it, the host has joined.
const (
	keyFile  = "host.key"
	certFile = "host.crt"
	caFile   = "ca.crt"
	hostFile = "host.json"
	// pendingKeyFile holds the key of a join that is not finished: asked again with the same key,
	// the server answers again.
	pendingKeyFile = "join.key"
)

const (
	joinTimeout   = 30 * time.Second // of one server's answer
	maxJoinAnswer = 1 << 20          // bytes
	// Pauses between attempts to join or to renew.
	leastPause, mostPause = time.Second, 30 * time.Second
)

// ErrNotJoined: the state directory holds no credentials.
var ErrNotJoined = errors.New("this host has not joined")

// Credentials give a joined host access to the store.
type Credentials struct {
	HostID    string   `json:"host_id"`
	Name      string   `json:"name"`
	Endpoints []string `json:"endpoints"`       // of etcd, as URLs
	Servers   []string `json:"servers"`         // base URLs of the API
	Pin       string   `json:"pin,omitempty"`   // fingerprint by which the API's servers are known; "" = joined under an earlier version, or by plain HTTP
	Plain     bool     `json:"plain,omitempty"` // the API may be asked by plain HTTP
	// PEM files in the state directory, readable by their owner alone.
	CertFile string `json:"-"`
	KeyFile  string `json:"-"`
	CAFile   string `json:"-"`
}

// JoinOptions adds to the token what the host decides.
type JoinOptions struct {
	Name     string // of the host, as Neutron's binding:host_id will have it; "" = what the token was made for
	StateDir string // made with mode 0700 if it does not exist
	// AllowPlain lets the token's secret travel over plain HTTP to other than loopback addresses.
	AllowPlain bool
}

// Load returns the credentials of a host that has joined before, or ErrNotJoined.
func Load(stateDir string) (Credentials, error) {
	c := Credentials{CertFile: filepath.Join(stateDir, certFile), KeyFile: filepath.Join(stateDir, keyFile), CAFile: filepath.Join(stateDir, caFile)}
	b, err := os.ReadFile(filepath.Join(stateDir, hostFile))
	if errors.Is(err, os.ErrNotExist) {
		return Credentials{}, fmt.Errorf("%s: %w", stateDir, ErrNotJoined)
	} else if err != nil {
		return Credentials{}, err
	}
	if err := json.Unmarshal(b, &c); err != nil {
		return Credentials{}, damaged(filepath.Join(stateDir, hostFile), err, stateDir, "NAME")
	}
	return c, nil
}

// damaged returns the error of a file without which a host has to join again.
func damaged(file string, err error, stateDir, name string) error {
	return fmt.Errorf("%s: missing or damaged (%w): remove %s and join again, with a token of `heddle host token %s`", file, err, filepath.Join(stateDir, hostFile), name)
}

// Check returns an error that names the file unless the files hold a certificate, the key it is for
// and an authority. key is the fingerprint of the public key, as the host's record in the store has
// it.
func (c Credentials) Check() (key string, err error) {
	dir := filepath.Dir(c.CertFile)
	cert, err := readLeaf(c.CertFile)
	if err != nil {
		return "", damaged(c.CertFile, err, dir, c.Name)
	}
	if _, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile); err != nil {
		return "", damaged(c.KeyFile, err, dir, c.Name)
	}
	if _, err := readLeaf(c.CAFile); err != nil {
		return "", damaged(c.CAFile, err, dir, c.Name)
	}
	return api.Fingerprint(cert.RawSubjectPublicKeyInfo), nil
}

// Join turns a join token into credentials, stored in the state directory: it makes a key that
// never leaves this host, checks by the fingerprint in the token that the server is the one that
// made it, and has the server sign the key. A token is good once. To join again, a host needs a
// token made for its name.
//
// A join that failed halfway can be repeated with the same token: the key is kept until it has
// succeeded.
func Join(ctx context.Context, token string, o JoinOptions) (Credentials, error) {
	t, err := parseToken(token)
	if err != nil {
		return Credentials{}, &refusal{err.Error()}
	}
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return Credentials{}, fmt.Errorf("state directory: %w", err)
	}
	key, err := pendingKey(o.StateDir)
	if err != nil {
		return Credentials{}, err
	}
	csr, err := newRequest(key)
	if err != nil {
		return Credentials{}, err
	}
	ask := joinRequest{Token: t.Secret, Name: o.Name, CSR: string(csr), Previous: previousRequest(o.StateDir)}
	var joined joinAnswer
	var failures []error
	for _, server := range t.Servers {
		err = post(ctx, server+"/v1/join", pinned(t.Pin, server), o.AllowPlain, http.StatusCreated, ask, &joined)
		if err == nil && (joined.HostID == "" || joined.Certificate == "" || joined.CA == "" || len(joined.Endpoints) == 0) {
			err = errors.New("answer is not that of a join: it lacks host_id, certificate, ca or endpoints")
		}
		if err == nil {
			return save(o.StateDir, key, joined, Credentials{Servers: t.Servers, Pin: t.Pin, Plain: o.AllowPlain})
		}
		failures = append(failures, fmt.Errorf("join at %s: %w", server, err))
		if Refused(err) {
			break // the others read the same store
		}
	}
	if t.Expires != 0 && time.Now().After(time.Unix(t.Expires, 0)) && ctx.Err() == nil {
		failures = append(failures, &refusal{"the join token expired at " + time.Unix(t.Expires, 0).Format(time.RFC3339) + " by this host's clock: make another with `heddle host token`"})
	}
	return Credentials{}, errors.Join(failures...)
}

// JoinRetrying joins as [Join] does, and tries again with growing pauses while the server cannot be
// reached, for as long as the token is good. An error for which [Refused] is true is final: trying
// again does not help.
func JoinRetrying(ctx context.Context, token string, o JoinOptions, log *slog.Logger) (Credentials, error) {
	said := ""
	for backoff := (task.Backoff{Least: leastPause, Most: mostPause, Spread: true}); ; {
		c, err := Join(ctx, token, o)
		if err == nil || Refused(err) || ctx.Err() != nil {
			return c, err
		}
		if text := err.Error(); text != said {
			log.Warn("cannot join yet; will try again until the token expires", "err", err)
			said = text
		}
		if !backoff.Pause(ctx) {
			return c, err
		}
	}
}

// Refused reports whether an error of [Join] or of a renewal is final: the server was asked and
// said no, or cannot be one to ask.
func Refused(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}

// pendingKey returns the key to join with, as PEM: that of an unfinished join, else a new one, kept
// before it is used.
func pendingKey(dir string) ([]byte, error) {
	file := filepath.Join(dir, pendingKeyFile)
	key, err := os.ReadFile(file)
	if err == nil {
		if _, err := parseKey(key); err == nil {
			return key, nil
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return key, api.WriteFile(file, key)
}

// previousRequest returns a request signed by the key of an earlier join, or "": a missing or
// damaged key proves nothing.
func previousRequest(dir string) string {
	key, err := os.ReadFile(filepath.Join(dir, keyFile))
	if err != nil {
		return ""
	}
	request, err := newRequest(key)
	if err != nil {
		return ""
	}
	return string(request)
}

func parseKey(keyPEM []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(keyPEM)
	if block == nil {
		return nil, errors.New("no key in PEM found")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	private, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("a key that cannot sign")
	}
	return private, nil
}

// newRequest returns a request to sign the key, as PEM. The server decides the names in the
// certificate.
func newRequest(keyPEM []byte) ([]byte, error) {
	private, err := parseKey(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("key of this host: %w", err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "heddle host"}}, private)
	if err != nil {
		return nil, fmt.Errorf("make certificate request: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}), nil
}

// refusal is an answer of the server that another server would give too.
type refusal struct{ message string }

func (r *refusal) Error() string { return r.message }

// post asks a server and decodes its answer, which must have the status want.
func post(ctx context.Context, target string, trust *tls.Config, allowPlain bool, want int, ask, answer any) error {
	u, err := url.Parse(target)
	if err != nil {
		return err
	}
	if u.Scheme == "http" && !allowPlain && !api.Loopback(u.Hostname()) {
		return &refusal{"the server speaks plain HTTP, which would show the token to the network: give the server a TLS certificate"}
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{TLSClientConfig: trust, DisableKeepAlives: true}
	res, err := (&http.Client{Transport: transport, CheckRedirect: noRedirect}).Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxJoinAnswer))
	if err != nil {
		return err
	}
	if res.StatusCode != want {
		return readRefusal(res.StatusCode, text)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("answer of %s: %w", target, err)
	}
	return nil
}

// noRedirect keeps the token from going where a redirect would send it.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func readRefusal(status int, text []byte) error {
	var doc struct{ Error struct{ Message string } }
	if json.Unmarshal(text, &doc) != nil || doc.Error.Message == "" {
		return fmt.Errorf("status %d: %.200s", status, text)
	}
	if status >= 500 || status == http.StatusTooManyRequests || status == http.StatusRequestTimeout {
		return fmt.Errorf("status %d: %s", status, doc.Error.Message)
	}
	return &refusal{doc.Error.Message}
}

// pinned trusts only servers whose chain holds the certificate with the fingerprint. When that is
// an authority, the server's own certificate must also follow from it and be for the host; when it
// is the server's own, that is enough.
func pinned(pin, server string) *tls.Config {
	host := ""
	if u, err := url.Parse(server); err == nil {
		host = u.Hostname()
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // in favour of VerifyConnection: the authority need not be one this machine trusts
		VerifyConnection: func(cs tls.ConnectionState) error {
			for i, cert := range cs.PeerCertificates {
				if api.Fingerprint(cert.Raw) != pin {
					continue
				}
				o := x509.VerifyOptions{Roots: x509.NewCertPool(), Intermediates: x509.NewCertPool()}
				o.Roots.AddCert(cert)
				for _, c := range cs.PeerCertificates[1:] {
					o.Intermediates.AddCert(c)
				}
				if i > 0 {
					o.DNSName = host
				}
				_, err := cs.PeerCertificates[0].Verify(o)
				return err
			}
			return &refusal{"its certificate does not have the fingerprint in the token: it is not the server that made it"}
		},
	}
}

// save writes the credentials, each file whole or not at all.
func save(dir string, key []byte, j joinAnswer, c Credentials) (Credentials, error) {
	c.HostID, c.Name, c.Endpoints = j.HostID, j.Name, j.Endpoints
	about, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return Credentials{}, err
	}
	for _, f := range []struct {
		name    string
		content []byte
	}{{certFile, []byte(j.Certificate)}, {keyFile, key}, {caFile, []byte(j.CA)}, {hostFile, about}} {
		if err := api.WriteFile(filepath.Join(dir, f.name), f.content); err != nil {
			return Credentials{}, fmt.Errorf("joined as %s, but its credentials cannot be kept (the same token is good for another attempt): %w", j.Name, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, pendingKeyFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return Credentials{}, err
	}
	return Load(dir)
}
