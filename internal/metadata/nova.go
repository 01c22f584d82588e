package metadata

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"time"
)

const (
	// novaDial and novaAnswer bound the time until Nova is connected, and until it has answered.
	novaDial   = 5 * time.Second
	novaAnswer = 30 * time.Second
	// novaConnections bounds the connections to Nova that are kept between requests.
	novaConnections = 16
)

// Nova forwards requests to Nova's metadata service, which answers for the machine that the headers
// name and sign: X-Instance-ID is the port's device_id.
type Nova struct {
	find   Finder
	base   *url.URL
	secret []byte
	answer time.Duration // novaAnswer
	proxy  *httputil.ReverseProxy
	log    *slog.Logger
}

// NewNova returns the source that asks Nova at base, an HTTP URL. secret is Nova's
// metadata_proxy_shared_secret.
func NewNova(find Finder, base *url.URL, secret string, log *slog.Logger) *Nova {
	n := &Nova{find: find, base: base, secret: []byte(secret), answer: novaAnswer, log: log}
	n.proxy = &httputil.ReverseProxy{
		Rewrite: n.rewrite,
		Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: novaDial}).DialContext, MaxIdleConnsPerHost: novaConnections, IdleConnTimeout: time.Minute,
			DisableCompression: true, // answers go on as they are
		},
		ErrorHandler: n.failed,
		ErrorLog:     slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return n
}

// identityKey is the key of a request's identity in its context.
type identityKey struct{}

// identity holds the facts about the sender of a request that Nova gets.
type identity struct {
	client    Client
	machine   *Machine
	forwarded netip.Addr // fixed address
}

// ServeMetadata forwards a request, and the answer back.
func (n *Nova) ServeMetadata(w http.ResponseWriter, r *http.Request, c Client) {
	who, err := n.identify(r, c)
	if err != nil {
		writeError(w, n.log, c, err)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), identityKey{}, who), n.answer)
	defer cancel()
	r = r.WithContext(ctx)
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	n.proxy.ServeHTTP(w, r)
}

// identify returns who sent a request, or why Nova is not asked.
func (n *Nova) identify(r *http.Request, c Client) (*identity, error) {
	if r.Host != "" && !isServiceHost(r.Host) {
		return nil, refuseHost(r.Host)
	}
	m, err := n.find(c.Port)
	if err != nil {
		return nil, err
	}
	if m.DeviceID == "" {
		return nil, refuse(http.StatusNotFound, "port %s belongs to no machine of Nova: it has no device_id", m.PortID)
	}
	return &identity{c, m, m.fixedAddress(c.Addr)}, nil
}

// fixedAddress returns the port's address that a request came from or, when that is one that the
// machine made itself, the port's first of the same IP version, else its first.
func (m *Machine) fixedAddress(from netip.Addr) (same netip.Addr) {
	for _, s := range m.ownLink().Subnets {
		switch a := s.Address.Addr(); {
		case a == from:
			return a
		case a.Is4() == from.Is4() && !same.IsValid():
			same = a
		}
	}
	if !same.IsValid() {
		return m.firstAddress()
	}
	return same
}

// rewrite makes the request to Nova. Of the workload's headers it has those that the metadata
// service heeds and no other: Nova's server reads X_Instance_ID as X-Instance-ID.
func (n *Nova) rewrite(p *httputil.ProxyRequest) {
	who, _ := p.In.Context().Value(identityKey{}).(*identity)
	at := path.Clean("/" + p.In.URL.Path)
	if strings.HasSuffix(p.In.URL.Path, "/") && at != "/" {
		at += "/"
	}
	to := *n.base
	to.Path, to.RawPath = strings.TrimSuffix(to.Path, "/")+at, ""
	p.Out.URL = &to
	p.Out.Host = n.base.Host
	p.Out.Header = http.Header{}
	for _, name := range []string{"Accept", "Content-Type", "User-Agent", tokenHeader, lifeHeader} {
		if v, ok := p.In.Header[name]; ok {
			p.Out.Header[name] = v
		}
	}
	p.Out.Header.Set("X-Instance-ID", who.machine.DeviceID)
	p.Out.Header.Set("X-Tenant-ID", who.machine.ProjectID)
	p.Out.Header.Set("X-Project-ID", who.machine.ProjectID)
	p.Out.Header.Set("X-Instance-ID-Signature", n.sign(who.machine.DeviceID))
	if who.forwarded.IsValid() {
		p.Out.Header.Set("X-Forwarded-For", who.forwarded.String())
	}
}

// sign returns the proof that this proxy names the machine.
func (n *Nova) sign(instance string) string {
	h := hmac.New(sha256.New, n.secret)
	h.Write([]byte(instance))
	return hex.EncodeToString(h.Sum(nil))
}

// failed answers a workload when Nova has not.
func (n *Nova) failed(w http.ResponseWriter, r *http.Request, err error) {
	who, _ := r.Context().Value(identityKey{}).(*identity)
	tooLarge := new(http.MaxBytesError)
	switch {
	case errors.As(err, &tooLarge):
		err = refuse(http.StatusRequestEntityTooLarge, "the request has more than %d bytes", maxBody)
	case errors.Is(err, context.Canceled): // the workload has gone
		return
	case errors.Is(err, context.DeadlineExceeded):
		n.log.Warn("Nova's metadata service does not answer", "url", n.base.String(), "port", who.client.Port, "err", err)
		err = refuse(http.StatusGatewayTimeout, "Nova's metadata service has not answered within %v", n.answer)
	default:
		n.log.Warn("cannot reach Nova's metadata service", "url", n.base.String(), "port", who.client.Port, "err", err)
		err = refuse(http.StatusBadGateway, "Nova's metadata service cannot be reached from the host")
	}
	writeError(w, n.log, who.client, err)
}

// ParseNovaURL reads the URL of Nova's metadata service.
func ParseNovaURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, err
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.User != nil, u.RawQuery != "", u.Fragment != "":
		return nil, fmt.Errorf("%q: want http://HOST:PORT or https://HOST:PORT", text)
	}
	return u, nil
}
