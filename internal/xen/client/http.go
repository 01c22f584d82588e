package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// maxReply bounds a reply in bytes. All records of a class of a large pool are far smaller.
const maxReply = 256 << 20

// dialTimeout bounds connecting, and the handshake after.
const dialTimeout = 10 * time.Second

// newHTTP returns an HTTP client that notices a dead server within half a minute.
func newHTTP(o Options) (*http.Client, error) {
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}}
	transport := &http.Transport{
		DialContext: dialer.DialContext, TLSClientConfig: o.TLS, TLSHandshakeTimeout: dialTimeout,
		MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute, Proxy: nil, // pools are reached directly, as their hosts' switches are
	}
	if o.Fingerprint != "" {
		pin, err := parseFingerprint(o.Fingerprint)
		if err != nil {
			return nil, err
		}
		transport.DialTLSContext = dialPinned(dialer, o.TLS, pin)
	}
	// A redirect would turn the call into a GET, elsewhere.
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// send makes a call at a host; params hold the session's reference. The result is as it came.
func (s *Session) send(ctx context.Context, at *url.URL, method string, params []any) (any, error) {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.options.Timeout, fmt.Errorf("no answer from %s in %s", at.Host, s.options.Timeout))
		defer cancel()
	}
	reply, err := s.post(ctx, at, method, s.codec.encode(method, params...))
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	v, err := s.codec.decode(reply)
	if err != nil && Code(err) == "" {
		return nil, fmt.Errorf("the answer of %s: %w", at.Host, err)
	}
	return v, err
}

// post sends a request's body, and gives the reply's.
func (s *Session) post(ctx context.Context, at *url.URL, method string, body []byte) ([]byte, error) {
	to := *at
	to.Path = s.codec.path
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", s.codec.contentType)
	if reads(method) {
		// Being empty it is not sent, but net/http repeats the request if the connection was
		// closed.
		req.Header["Idempotency-Key"] = nil
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(resp.Body, maxReply+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the answer of %s: %w", at.Host, err)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answers %s", to.String(), resp.Status)
	case len(reply) > maxReply:
		return nil, fmt.Errorf("the answer of %s is longer than %d bytes", at.Host, maxReply)
	}
	return reply, nil
}

// reads reports whether a call changes nothing.
func reads(method string) bool {
	_, verb, _ := strings.Cut(method, ".")
	return strings.HasPrefix(verb, "get_") || method == "event.from"
}
