// Package client speaks the XenAPI to a pool: Heddle's own, or that of an XCP-ng or XenServer host.
// Calls go out as XML-RPC or JSON-RPC and answer in the model's Go types ([model]); a failure that
// the server reports is a *model.Error.
//
// A session stays usable: it follows HOST_IS_SLAVE to the pool's coordinator, and logs in again
// when the server no longer knows it. Servers that know more or less than the model are fine:
// fields that the model lacks are left out, those that the server lacks have their default, values
// that an enum lacks stay as they are.
package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"heddle/internal/xen/model"
)

// Options are the options of Dial.
type Options struct {
	// URL is that of any host of the pool, such as https://192.0.2.7:8443, or those of several with
	// commas between, of which the first is used that answers. A path is ignored.
	URL      string
	User     string
	Password string
	TLS      *tls.Config // of https; nil: the system's certificate authorities
	// Fingerprint makes known what TLS' authorities do not vouch for: the SHA-256, in hex, with or
	// without colons, of a certificate in the chain that the server presents. When that is an
	// authority, the server's own must follow from it and be for its address.
	Fingerprint string
	JSON        bool          // JSON-RPC instead of XML-RPC
	Timeout     time.Duration // of a call whose context has no deadline; 0: one minute
	// Originator is the name of this program in the server's session; "" for none.
	Originator string
}

// defaultTimeout bounds calls without a deadline.
const defaultTimeout = time.Minute

// maxHops bounds how often a login is sent on to another host.
const maxHops = 3

// Session is a login to a pool. Its methods may be called from several goroutines at once.
type Session struct {
	options Options
	http    *http.Client
	codec   codec

	login chan struct{} // held by who logs in

	mu  sync.Mutex // guards what follows
	at  *url.URL   // the coordinator
	ref string
	nth int // which login this is
}

// Check refuses options with which no pool can be reached.
func (o Options) Check() error {
	_, err := parseURLs(o.URL)
	if err == nil && o.Fingerprint != "" {
		_, err = parseFingerprint(o.Fingerprint)
	}
	return err
}

// Dial logs in. The session lasts until Close.
func Dial(ctx context.Context, o Options) (*Session, error) {
	hosts, err := parseURLs(o.URL)
	if err != nil {
		return nil, err
	}
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	transport, err := newHTTP(o)
	if err != nil {
		return nil, err
	}
	s := &Session{options: o, http: transport, codec: codecFor(o.JSON), login: make(chan struct{}, 1)}
	var unanswered error
	for _, s.at = range hosts {
		err := s.renew(ctx, "")
		if err == nil {
			return s, nil
		}
		if unanswered == nil {
			unanswered = err
		} else {
			unanswered = fmt.Errorf("%w; %w", unanswered, err)
		}
		if Code(err) != "" || ctx.Err() != nil {
			break // another host would say the same
		}
	}
	s.http.CloseIdleConnections()
	return nil, unanswered
}

// parseURLs reads the URLs of hosts.
func parseURLs(text string) ([]*url.URL, error) {
	var hosts []*url.URL
	for part := range strings.SplitSeq(text, ",") {
		at, err := url.Parse(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("address of the pool: %w", err)
		}
		if (at.Scheme != "http" && at.Scheme != "https") || at.Host == "" {
			return nil, fmt.Errorf("address of the pool %q: want http://HOST[:PORT] or https://HOST[:PORT]", part)
		}
		hosts = append(hosts, at)
	}
	return hosts, nil
}

// Close ends the session at the server too, as far as it can be reached.
func (s *Session) Close(ctx context.Context) error {
	defer s.http.CloseIdleConnections()
	at, ref, _ := s.now()
	_, err := s.send(ctx, at, "session.logout", []any{ref})
	if Code(err) == sessionInvalid {
		return nil
	}
	return err
}

// URL returns the URL of the pool's coordinator.
func (s *Session) URL() string {
	at, _, _ := s.now()
	return at.String()
}

const (
	sessionInvalid = "SESSION_INVALID"
	hostIsSlave    = "HOST_IS_SLAVE"
)

// Code is the code of a failure that the server reported; "" of any other error, and of none.
func Code(err error) string {
	var failure *model.Error
	if errors.As(err, &failure) {
		return failure.Code
	}
	return ""
}

// Call makes a call, such as "tunnel.create" or "Async.tunnel.create", the session's reference
// being put before args. Its result is of the Go type for the model's; that of a call that the
// model lacks is as it came: string, int64, float64, bool, []any or map[string]any.
func (s *Session) Call(ctx context.Context, method string, args ...any) (any, error) {
	raw, _, err := s.call(ctx, method, args)
	if err != nil {
		return nil, err
	}
	v, err := typed(s.result(method), raw)
	if err != nil {
		return nil, fmt.Errorf("%s: the server's answer: %w", method, err)
	}
	return v, nil
}

// call makes a call, and gives its result as it came and which login it was made with. When the
// session has ended it logs in once more.
func (s *Session) call(ctx context.Context, method string, args []any) (any, int, error) {
	for again := false; ; again = true {
		at, ref, nth := s.now()
		raw, err := s.send(ctx, at, method, append([]any{ref}, args...))
		if Code(err) == sessionInvalid && !again {
			if err := s.renew(ctx, ref); err != nil {
				return nil, nth, err
			}
			continue
		}
		if err != nil {
			return nil, nth, fmt.Errorf("%s: %w", method, err)
		}
		return raw, nth, nil
	}
}

// result is the type of a call's result, nil when the model lacks it.
func (s *Session) result(method string) *model.Type {
	if strings.HasPrefix(method, "Async.") {
		return &model.Type{Kind: model.Ref, Class: "task"}
	}
	if c := model.Calls()[method]; c != nil {
		return &c.Result
	}
	return nil
}

// Records are all objects of a class, by reference.
func (s *Session) Records(ctx context.Context, class string) (map[string]model.Record, error) {
	method := class + ".get_all_records"
	v, err := s.Call(ctx, method)
	if err != nil {
		return nil, err
	}
	records, ok := v.(map[string]model.Record)
	if !ok {
		return nil, fmt.Errorf("%s: no class of the model", method)
	}
	return records, nil
}

// now returns the URL that calls go to, and the session.
func (s *Session) now() (at *url.URL, ref string, nth int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at, s.ref, s.nth
}

// renew logs in, unless another has done so since the session was old.
func (s *Session) renew(ctx context.Context, old string) error {
	select {
	case s.login <- struct{}{}:
		defer func() { <-s.login }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	at, ref, _ := s.now()
	if ref != old {
		return nil
	}
	at, ref, err := s.logIn(ctx, at)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.ref = at, ref
	s.nth++
	return nil
}

// logIn logs in at a host, or at the coordinator that it names.
func (s *Session) logIn(ctx context.Context, at *url.URL) (*url.URL, string, error) {
	args := []any{s.options.User, s.options.Password}
	if s.options.Originator != "" {
		args = append(args, "1.1", s.options.Originator)
	}
	for range maxHops {
		v, err := s.send(ctx, at, "session.login_with_password", args)
		var failure *model.Error
		if errors.As(err, &failure) && failure.Code == hostIsSlave && len(failure.Params) > 0 {
			if at, err = elsewhere(at, failure.Params[0]); err == nil {
				continue
			}
		}
		if err != nil {
			return at, "", fmt.Errorf("log in at %s as %s: %w", at.Host, s.options.User, err)
		}
		ref, ok := v.(string)
		if !ok {
			return at, "", fmt.Errorf("log in at %s as %s: the answer is no session", at.Host, s.options.User)
		}
		return at, ref, nil
	}
	return at, "", fmt.Errorf("log in at %s: hosts name each other as the pool's coordinator", at.Host)
}

// elsewhere is a host's URL at another address, which is bare. A password that was meant for this
// machine does not leave it in the clear.
func elsewhere(at *url.URL, address string) (*url.URL, error) {
	host := strings.Trim(address, "[]")
	if at.Scheme == "http" && Loopback(at.Hostname()) && !Loopback(host) {
		return at, fmt.Errorf("the pool's coordinator is %s: connect to it by https", host)
	}
	to := *at
	to.Host = host
	if port := at.Port(); port != "" {
		to.Host = net.JoinHostPort(host, port)
	} else if strings.Contains(host, ":") {
		to.Host = "[" + host + "]"
	}
	return &to, nil
}

// Loopback reports whether a host is this machine by its loopback interface.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// integer makes a number of what a server may send as one.
func integer(raw any) (int64, error) {
	switch v := raw.(type) {
	case int64:
		return v, nil
	case float64:
		return int64(v), nil
	case string:
		return strconv.ParseInt(v, 10, 64)
	}
	return 0, fmt.Errorf("%T is no number", raw)
}
