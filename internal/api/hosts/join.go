package hosts

import (
	"bytes"
	"context"
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
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"heddle/internal/api"
)

// Files in a host's state directory. The last is written last: with it, the host has joined.
const (
	keyFile  = "host.key"
	certFile = "host.crt"
	caFile   = "ca.crt"
	hostFile = "host.json"
)

const (
	joinTimeout   = 30 * time.Second // of one server's answer
	maxJoinAnswer = 1 << 20          // bytes
)

// ErrNotJoined: the state directory holds no credentials.
var ErrNotJoined = errors.New("this host has not joined")

// Credentials are what a joined host reaches the store with.
type Credentials struct {
	HostID    string   `json:"host_id"`
	Name      string   `json:"name"`
	Endpoints []string `json:"endpoints"` // of etcd, as URLs
	Servers   []string `json:"servers"`   // base URLs of the API
	// PEM files in the state directory, readable by their owner alone.
	CertFile string `json:"-"`
	KeyFile  string `json:"-"`
	CAFile   string `json:"-"`
}

// JoinOptions are what the host adds to its token.
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
		return Credentials{}, fmt.Errorf("%s: %w", filepath.Join(stateDir, hostFile), err)
	}
	return c, nil
}

// Join turns a join token into credentials, stored in the state directory: it makes a key that never leaves this host,
// checks by the fingerprint in the token that the server is the one that made it, and has the server sign the key. A
// token is good once. Asked to join again, a host needs a token made for its name.
func Join(ctx context.Context, token string, o JoinOptions) (Credentials, error) {
	t, err := parseToken(token)
	if err != nil {
		return Credentials{}, err
	}
	if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
		return Credentials{}, fmt.Errorf("state directory: %w", err)
	}
	key, csr, err := newKey()
	if err != nil {
		return Credentials{}, err
	}
	var joined joinAnswer
	var failures []error
	for _, server := range t.Servers {
		joined, err = askJoin(ctx, server, t.Pin, o.AllowPlain, joinRequest{Token: t.Secret, Name: o.Name, CSR: string(csr)})
		if err == nil {
			return save(o.StateDir, key, joined, t.Servers)
		}
		failures = append(failures, fmt.Errorf("join at %s: %w", server, err))
		var refused *refusal
		if errors.As(err, &refused) {
			break // the others read the same store
		}
	}
	return Credentials{}, errors.Join(failures...)
}

// newKey makes a P-256 key and a request to sign it, both as PEM. The server decides the names in the certificate.
func newKey() (key, csr []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "heddle host"}}, private)
	if err != nil {
		return nil, nil, fmt.Errorf("make certificate request: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request}), nil
}

// refusal is an answer of the server that another server would give too.
type refusal struct{ message string }

func (r *refusal) Error() string { return r.message }

func askJoin(ctx context.Context, server, pin string, allowPlain bool, ask joinRequest) (joinAnswer, error) {
	var answer joinAnswer
	u, err := url.Parse(server)
	if err != nil {
		return answer, err
	}
	if u.Scheme == "http" && !allowPlain && !api.Loopback(u.Hostname()) {
		return answer, &refusal{"the server speaks plain HTTP, which would show the token to the network: give the server a TLS certificate"}
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return answer, err
	}
	ctx, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server+"/v1/join", bytes.NewReader(body))
	if err != nil {
		return answer, err
	}
	req.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{TLSClientConfig: pinned(pin, u.Hostname()), DisableKeepAlives: true}
	res, err := (&http.Client{Transport: transport, CheckRedirect: noRedirect}).Do(req)
	if err != nil {
		return answer, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxJoinAnswer))
	if err != nil {
		return answer, err
	}
	if res.StatusCode != http.StatusCreated {
		return answer, readRefusal(res.StatusCode, text)
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return answer, fmt.Errorf("answer is not that of a join: %w", err)
	}
	if answer.HostID == "" || answer.Certificate == "" || answer.CA == "" || len(answer.Endpoints) == 0 {
		return answer, errors.New("answer is not that of a join: it lacks host_id, certificate, ca or endpoints")
	}
	return answer, nil
}

// noRedirect keeps the token from going where a redirect would send it.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func readRefusal(status int, text []byte) error {
	var doc struct{ Error struct{ Message string } }
	if json.Unmarshal(text, &doc) != nil || doc.Error.Message == "" {
		return fmt.Errorf("status %d: %.200s", status, text)
	}
	if status >= 500 {
		return fmt.Errorf("status %d: %s", status, doc.Error.Message)
	}
	return &refusal{doc.Error.Message}
}

// pinned trusts only servers whose chain holds the certificate with the fingerprint. When that is an authority, the
// server's own certificate must also follow from it and be for the host; when it is the server's own, that is enough.
func pinned(pin, host string) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // in favour of VerifyConnection: the authority need not be one this machine knows
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
			return errors.New("its certificate does not have the fingerprint in the token: it is not the server that made it")
		},
	}
}

// save writes the credentials, each file whole or not at all.
func save(dir string, key []byte, j joinAnswer, servers []string) (Credentials, error) {
	about, err := json.MarshalIndent(Credentials{HostID: j.HostID, Name: j.Name, Endpoints: j.Endpoints, Servers: servers}, "", "  ")
	if err != nil {
		return Credentials{}, err
	}
	for _, f := range []struct {
		name    string
		content []byte
	}{{keyFile, key}, {certFile, []byte(j.Certificate)}, {caFile, []byte(j.CA)}, {hostFile, about}} {
		if err := api.WriteFile(filepath.Join(dir, f.name), f.content); err != nil {
			return Credentials{}, fmt.Errorf("joined as %s, but its credentials cannot be kept (make another token for this name): %w", j.Name, err)
		}
	}
	return Load(dir)
}
