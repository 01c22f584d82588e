package jointoken

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"heddle/internal/api"
)

const (
	answerTimeout = 30 * time.Second // of one server
	maxAnswer     = 1 << 20          // bytes
)

// refusal is an answer of the server that another server would give too.
type refusal struct{ message string }

func (r *refusal) Error() string { return r.message }

// Refusal returns an error that is final: see [Refused].
func Refusal(message string) error { return &refusal{message} }

// Refused reports whether an error is final: a server was asked and said no, or cannot be one to
// ask.
func Refused(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}

// Post asks a server and decodes its answer, which must have the status want. allowPlain lets the
// secret travel over plain HTTP to other than loopback addresses.
func Post(ctx context.Context, target string, trust *tls.Config, allowPlain bool, want int, ask, answer any) error {
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
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
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
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
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

// Pinned trusts only servers whose chain holds a certificate with one of the fingerprints. When
// that is an authority, the server's own certificate must also follow from it and be for the host;
// when it is the server's own, that is enough. Servers whose certificate follows from roots, if not
// nil, are trusted as well.
func Pinned(server string, roots *x509.CertPool, pins ...string) *tls.Config {
	host := ""
	if u, err := url.Parse(server); err == nil {
		host = u.Hostname()
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // in favour of VerifyConnection: the authority need not be one this machine trusts
		VerifyConnection: func(cs tls.ConnectionState) error {
			o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool(), DNSName: host}
			for _, c := range cs.PeerCertificates[1:] {
				o.Intermediates.AddCert(c)
			}
			for i, cert := range cs.PeerCertificates {
				if !slices.Contains(pins, api.Fingerprint(cert.Raw)) {
					continue
				}
				o.Roots = x509.NewCertPool()
				o.Roots.AddCert(cert)
				if i == 0 {
					o.DNSName = ""
				}
				break
			}
			if o.Roots == nil {
				return &refusal{"its certificate does not have the fingerprint in the token: it is not the server that made it"}
			}
			_, err := cs.PeerCertificates[0].Verify(o)
			return err
		},
	}
}
