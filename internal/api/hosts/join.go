package hosts

import (
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
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"heddle/internal/api"
	"heddle/internal/api/jointoken"
	"heddle/internal/task"
	"heddle/internal/telemetry"
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
	// Pauses between attempts to join or to renew.
	leastPause, mostPause = time.Second, 30 * time.Second
	// mostJoinPause is spread by a half, to at most 30 seconds.
	mostJoinPause = 20 * time.Second
)

// ErrNotJoined: the state directory holds no credentials.
var ErrNotJoined = errors.New("this host has not joined")

// Credentials give a joined host access to the store.
type Credentials struct {
	HostID    string   `json:"host_id"`
	Name      string   `json:"name"`
	Endpoints []string `json:"endpoints"`        // of etcd, as URLs
	Servers   []string `json:"servers"`          // base URLs of the API
	Pin       string   `json:"pin,omitempty"`    // fingerprint by which the API's servers were known to the join; "" = joined under an earlier version, or by plain HTTP
	Pins      []string `json:"pins,omitempty"`   // fingerprints that they have presented since
	Plain     bool     `json:"plain,omitempty"`  // the API may be asked by plain HTTP
	Signer    string   `json:"signer,omitempty"` // key identifier (hex) of the authority that signs hosts' certificates
	// PEM files in the state directory, readable by their owner alone.
	CertFile string `json:"-"`
	KeyFile  string `json:"-"`
	CAFile   string `json:"-"`
}

// JoinOptions adds to the token what the host decides.
type JoinOptions struct {
	Name     string // of the host, as Neutron's binding:host_id will have it; "" = what the token was made for
	StateDir string // made with mode 0700 if it does not exist
	// Secrets are files in StateDir that a join removes, since they have keys of the host that this
	// machine was before.
	Secrets []string
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

// encode returns the content of the file that Load reads.
func (c Credentials) encode() ([]byte, error) { return json.MarshalIndent(c, "", "  ") }

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
	t, err := jointoken.Parse(token, jointoken.ForHost)
	if err != nil {
		return Credentials{}, jointoken.Refusal(err.Error())
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
		err = jointoken.Post(ctx, server+"/v1/join", jointoken.Pinned(server, nil, t.Pin), o.AllowPlain, http.StatusCreated, ask, &joined)
		if err == nil && (joined.HostID == "" || joined.Certificate == "" || joined.CA == "" || len(joined.Endpoints) == 0) {
			err = errors.New("answer is not that of a join: it lacks host_id, certificate, ca or endpoints")
		}
		if err == nil {
			return o.save(key, joined, Credentials{Servers: appendNew(t.Servers, joined.Servers...), Pin: t.Pin, Pins: joined.Pins, Plain: o.AllowPlain, Signer: joined.Signer})
		}
		failures = append(failures, fmt.Errorf("join at %s: %w", server, err))
		if Refused(err) {
			break // the others read the same store
		}
	}
	if t.Expires != 0 && time.Now().After(time.Unix(t.Expires, 0)) && ctx.Err() == nil {
		failures = append(failures, jointoken.Refusal("the join token expired at "+time.Unix(t.Expires, 0).Format(time.RFC3339)+" by this host's clock: make another with `heddle host token`"))
	}
	return Credentials{}, errors.Join(failures...)
}

// JoinRetrying joins as [Join] does with the token that the function returns, and tries again with
// growing pauses until it succeeds or ctx ends, with a line in the log each time. token is called
// for each attempt, since a refused token can be replaced; an error of its own counts as one of
// joining. giveUp, if not nil, reports whether trying again does not help.
func JoinRetrying(ctx context.Context, token func() (string, error), o JoinOptions, giveUp func(error) bool, log *slog.Logger) (c Credentials, err error) {
	for backoff := (task.Backoff{Least: leastPause, Most: mostJoinPause, Spread: true}); ; {
		text, err := token()
		if err == nil {
			c, err = Join(ctx, text, o)
		}
		if err == nil || ctx.Err() != nil || giveUp != nil && giveUp(err) {
			return c, err
		}
		pause := backoff.Next()
		log.Warn("cannot join yet; will try again", "after", pause.Round(time.Second), "err", err)
		telemetry.TellWaiting("a server to join: " + err.Error())
		if !task.Pause(ctx, pause) {
			return c, err
		}
	}
}

// Refused reports whether an error of [Join] or of a renewal is final: the server was asked and
// said no, or cannot be one to ask.
func Refused(err error) bool { return jointoken.Refused(err) }

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

// save removes the secrets of an earlier join and writes the credentials, each file whole or not at
// all.
func (o JoinOptions) save(key []byte, j joinAnswer, c Credentials) (Credentials, error) {
	for _, name := range o.Secrets {
		if err := os.Remove(filepath.Join(o.StateDir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return Credentials{}, fmt.Errorf("joined as %s, but the keys of an earlier join cannot be removed (the same token is good for another attempt): %w", j.Name, err)
		}
	}
	c.HostID, c.Name, c.Endpoints = j.HostID, j.Name, j.Endpoints
	about, err := c.encode()
	if err != nil {
		return Credentials{}, err
	}
	for _, f := range []struct {
		name    string
		content []byte
	}{{certFile, []byte(j.Certificate)}, {keyFile, key}, {caFile, []byte(j.CA)}, {hostFile, about}} {
		if err := api.WriteFile(filepath.Join(o.StateDir, f.name), f.content); err != nil {
			return Credentials{}, fmt.Errorf("joined as %s, but its credentials cannot be kept (the same token is good for another attempt): %w", j.Name, err)
		}
	}
	if err := os.Remove(filepath.Join(o.StateDir, pendingKeyFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return Credentials{}, err
	}
	return Load(o.StateDir)
}
