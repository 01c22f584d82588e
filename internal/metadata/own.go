package metadata

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"path"
	"strings"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// Machine is the workload behind a port.
type Machine struct {
	*topology.Instance
	topology.InstanceSecrets
}

// Finder returns the machine behind a port. The error is [ErrUnknown] while this host has not read
// of it.
type Finder func(port string) (*Machine, error)

// ErrUnknown reports that this host has not read of a machine yet.
var ErrUnknown = errors.New("what this port's machine is has not reached its host yet; try again")

// Own answers as OpenStack's and EC2's metadata services do, of what Heddle knows.
type Own struct {
	find   Finder
	tokens *tokens
	log    *slog.Logger
}

// NewOwn returns the source of machines that find knows.
func NewOwn(find Finder, log *slog.Logger) *Own {
	return &Own{find: find, tokens: newTokens(), log: log}
}

// refusal is an error that a workload is told.
type refusal struct {
	status int
	text   string
}

func (e *refusal) Error() string { return e.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// ServeMetadata answers a request.
func (o *Own) ServeMetadata(w http.ResponseWriter, r *http.Request, c Client) {
	if err := o.answer(w, r, c); err != nil {
		writeError(w, o.log, c, err)
	}
}

func (o *Own) answer(w http.ResponseWriter, r *http.Request, c Client) error {
	if err := checkRequest(r); err != nil {
		return err
	}
	at := path.Clean("/" + r.URL.Path)
	switch r.Method {
	case http.MethodPut:
		return o.tokens.put(w, r, c, at)
	case http.MethodGet, http.MethodHead:
	default:
		w.Header().Set("Allow", "GET, HEAD, PUT")
		return refuse(http.StatusMethodNotAllowed, "the metadata service knows GET and HEAD, and PUT of a token")
	}
	if err := o.tokens.check(r, c); err != nil {
		return err
	}
	m, err := o.find(c.Port)
	if err != nil {
		return err
	}
	found, ok := m.lookup(at)
	if !ok {
		return refuse(http.StatusNotFound, "there is no %s in the metadata", at)
	}
	w.Header().Set("Content-Type", found.contentType)
	w.Header().Set("Content-Length", fmt.Sprint(len(found.body)))
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(found.body) // a client that has gone needs no answer
	return nil
}

// checkRequest rejects what no client of a metadata service sends: requests by another name than
// the address, with which a web page could read the metadata of the machine that shows it, and
// bodies.
func checkRequest(r *http.Request) error {
	if r.Host != "" && !isServiceHost(r.Host) {
		return refuseHost(r.Host)
	}
	if r.ContentLength != 0 {
		return refuse(http.StatusBadRequest, "the metadata service takes no body")
	}
	return nil
}

func refuseHost(host string) error {
	return refuse(http.StatusForbidden, "Host %q: ask for metadata by its address, 169.254.169.254 or [fe80::a9fe:a9fe]", host)
}

// isServiceHost reports whether a Host header names the metadata service by its address.
func isServiceHost(host string) bool {
	host = strings.TrimSuffix(host, ":80")
	if inner, ok := strings.CutPrefix(host, "["); ok {
		host, ok = strings.CutSuffix(inner, "]")
		if !ok {
			return false
		}
	}
	a, err := netip.ParseAddr(host)
	return err == nil && (a == flow.MetadataIPv4 || a.WithZone("") == flow.MetadataIPv6)
}

// writeError answers with an error. What is not meant for workloads goes to the log alone.
func writeError(w http.ResponseWriter, log *slog.Logger, c Client, err error) {
	told := new(refusal)
	switch {
	case errors.As(err, &told):
	case errors.Is(err, ErrUnknown):
		w.Header().Set("Retry-After", "1")
		told = &refusal{http.StatusServiceUnavailable, ErrUnknown.Error()}
	default:
		log.Error("cannot answer a request for metadata", "port", c.Port, "err", err)
		told = &refusal{http.StatusInternalServerError, "the host cannot answer: see the log of its agent"}
	}
	http.Error(w, fmt.Sprintf("%d %s: %s", told.status, http.StatusText(told.status), told.text), told.status)
}
