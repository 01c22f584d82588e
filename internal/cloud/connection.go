package cloud

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// dialTimeout bounds the opening of a connection.
	dialTimeout = 5 * time.Second
	// answerTimeout bounds the wait for the beginning of an answer: a server that works gives one
	// within its own limit, 10 s, after a turn of at most as long among large requests.
	answerTimeout = 30 * time.Second
)

// boundedTransport returns a transport that gives up on servers which do not answer.
func boundedTransport(dial, answer time.Duration) *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = (&net.Dialer{Timeout: dial}).DialContext
	t.ResponseHeaderTimeout = answer
	return t
}

// origin returns what names the server, for people.
func (c Config) origin() string {
	switch {
	case c.File != "":
		return c.File
	case os.Getenv("OS_CLOUD") != "":
		return "OS_CLOUD"
	case os.Getenv("OS_AUTH_URL") != "":
		return "OS_AUTH_URL"
	}
	return filepath.Join(c.DataDir, "clouds.yaml")
}

// connectionHint adds to the error of a connection that fails what to do.
type connectionHint struct {
	http.RoundTripper
	origin string // of the server's address
}

// RoundTrip implements [http.RoundTripper].
func (h connectionHint) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := h.RoundTripper.RoundTrip(r)
	if hint := h.hint(err); hint != "" {
		err = fmt.Errorf("%w: %s", err, hint)
	}
	return answer, err
}

// hint returns what to do about an error, or "".
func (h connectionHint) hint(err error) string {
	var ended x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	var network net.Error
	switch {
	case err == nil || errors.Is(err, context.Canceled):
		return ""
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("does the server run? on its machine, `systemctl status heddle`; %s names the server", h.origin)
	case errors.As(err, &ended) && ended.Reason == x509.Expired:
		return "renew the certificate in the server's --tls-cert, which `heddle doctor` there names, or set the clock of this machine"
	case errors.As(err, &unknown):
		return fmt.Sprintf("name the authority's certificate: OS_CACERT=FILE, or cacert in the clouds.yaml; %s names the server", h.origin)
	case errors.As(err, &network) && network.Timeout():
		return fmt.Sprintf("does the server work, and does no firewall drop what is sent to it? on its machine, `systemctl status heddle` and `heddle doctor`; %s names the server", h.origin)
	}
	return ""
}

// plainHint returns what to do about an answer to an HTTP request that an HTTPS server gave, or "".
func plainHint(body []byte, origin string) string {
	if !bytes.Contains(body, []byte("HTTP request to an HTTPS server")) {
		return ""
	}
	return fmt.Sprintf(": write https:// where %s names the server", origin)
}
