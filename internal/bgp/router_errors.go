package bgp

import (
	"bufio"
	"bytes"
	"context"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"

	api "github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// attemptLog is the log handler of a router's gobgp, which reports failed connections, and what is
// wrong with a neighbour's OPEN message, to its log alone. It notes the last of each neighbour, and
// passes on warnings.
type attemptLog struct {
	slog.Handler
	neighbour netip.Addr // whose log it is, if known
	attempts  *attempts
}

// attempts are the errors of the last connections that failed, by neighbour. The log of gobgp's
// goroutines writes, the loop of the speaker and gobgp's events read.
type attempts struct {
	mu   sync.Mutex
	last map[netip.Addr]string
	same map[netip.Addr]bool // neighbours that were refused for their BGP identifier
}

func newAttempts() *attempts {
	return &attempts{last: map[netip.Addr]string{}, same: map[netip.Addr]bool{}}
}

// gobgp's messages of a connection that could not be opened, and of a session that it ends.
const failedConnection, sentNotification = "failed to connect", "sent notification"

// Enabled implements slog.Handler.
func (l *attemptLog) Enabled(_ context.Context, level slog.Level) bool {
	return l.neighbour.IsValid() || level >= slog.LevelWarn
}

// Handle implements slog.Handler.
func (l *attemptLog) Handle(ctx context.Context, r slog.Record) error {
	if l.neighbour.IsValid() {
		attrs := map[string]slog.Value{}
		r.Attrs(func(a slog.Attr) bool { attrs[a.Key] = a.Value; return true })
		switch {
		case r.Message == failedConnection:
			l.attempts.note(l.neighbour, attrs["Error"].String())
		case r.Message == sentNotification && isNumber(attrs["Code"], bgp.BGP_ERROR_OPEN_MESSAGE_ERROR) && isNumber(attrs["Subcode"], bgp.BGP_ERROR_SUB_BAD_BGP_IDENTIFIER):
			l.attempts.noteSame(l.neighbour)
		}
	}
	if r.Level < slog.LevelWarn || !l.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}

func isNumber(v slog.Value, n int64) bool { return v.Kind() == slog.KindInt64 && v.Int64() == n }

// WithAttrs implements slog.Handler.
func (l *attemptLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	with := &attemptLog{l.Handler.WithAttrs(attrs), l.neighbour, l.attempts}
	for _, a := range attrs {
		if a.Key == "Key" {
			if neighbour, err := netip.ParseAddr(a.Value.String()); err == nil {
				with.neighbour = neighbour
			}
		}
	}
	return with
}

// WithGroup implements slog.Handler.
func (l *attemptLog) WithGroup(name string) slog.Handler {
	return &attemptLog{l.Handler.WithGroup(name), l.neighbour, l.attempts}
}

func (a *attempts) note(neighbour netip.Addr, text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last[neighbour] = attemptText(text)
}

// take returns the error of the last attempt since the last call, "" for none.
func (a *attempts) take(neighbour netip.Addr) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	text := a.last[neighbour]
	delete(a.last, neighbour)
	return text
}

func (a *attempts) noteSame(neighbour netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.same[neighbour] = true
}

// takeSame reports whether a neighbour was refused for its BGP identifier since the last call.
func (a *attempts) takeSame(neighbour netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	same := a.same[neighbour]
	delete(a.same, neighbour)
	return same
}

// attemptText returns what is of interest in an error of a connection.
func attemptText(err string) string {
	text := " " + strings.TrimPrefix(err[strings.LastIndex(err, ": ")+1:], " ")
	if strings.Contains(err, "timeout") {
		text = " no answer from TCP port 179: the neighbour is not reached, or has another MD5 password"
	}
	return "cannot connect:" + strings.TrimSuffix(text, "\n")
}

// Texts about the signatures of TCP segments.
const (
	errOtherPassword = "the neighbour signs with another MD5 password, or does not listen for this router: set the same password on both"
	errNoPassword    = "the neighbour does not sign its TCP segments: set the MD5 password on it too"
	errNotExpected   = "the neighbour signs its TCP segments: set its MD5 password here too (auth_type md5)"
)

// signatures are the kernel's counters of refused TCP segments in a network namespace.
type signatures struct{ wrong, missing, unexpected uint64 }

// readSignatures reads the counters of this process's namespace.
func readSignatures() (signatures, error) {
	text, err := os.ReadFile("/proc/self/net/netstat")
	if err != nil {
		return signatures{}, err
	}
	return parseSignatures(text), nil
}

// parseSignatures finds the counters in a /proc/net/netstat: pairs of lines, of names and of
// values.
func parseSignatures(text []byte) (s signatures) {
	var names []string
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || len(names) == 0 || fields[0] != names[0] {
			names = fields
			continue
		}
		for i := 1; i < min(len(fields), len(names)); i++ {
			n, err := strconv.ParseUint(fields[i], 10, 64)
			if err != nil {
				continue
			}
			switch names[i] {
			case "TCPMD5Failure":
				s.wrong = n
			case "TCPMD5NotFound":
				s.missing = n
			case "TCPMD5Unexpected":
				s.unexpected = n
			}
		}
		names = nil
	}
	return s
}

// errSameIdentifier is the error of a session between neighbours in one AS that have the same BGP
// identifier (RFC 6286 §2.3).
const errSameIdentifier = "the neighbour has the same BGP identifier as the router: give it another router id"

// badIdentifier is gobgp's text of the notification for that.
const badIdentifier = "bad bgp identifier"

// endOfSession returns why a session has ended; "" for what ends none. same: the neighbour was
// refused for its BGP identifier.
func endOfSession(reason api.PeerState_DisconnectReason, message string, same bool) string {
	if same || strings.Contains(message, badIdentifier) {
		return errSameIdentifier
	}
	switch reason {
	case api.PeerState_DISCONNECT_REASON_BAD_PEER_AS:
		return "the neighbour is in another AS than it is configured with"
	case api.PeerState_DISCONNECT_REASON_HOLD_TIMER_EXPIRED:
		return "the neighbour has sent nothing in the hold time"
	case api.PeerState_DISCONNECT_REASON_NOTIFICATION_RECEIVED:
		return "the neighbour has ended the session: " + message
	case api.PeerState_DISCONNECT_REASON_NOTIFICATION_SENT, api.PeerState_DISCONNECT_REASON_INVALID_MSG:
		return "the session was ended: " + message
	case api.PeerState_DISCONNECT_REASON_READ_FAILED, api.PeerState_DISCONNECT_REASON_WRITE_FAILED, api.PeerState_DISCONNECT_REASON_GRACEFUL_RESTART:
		return "the connection has ended"
	case api.PeerState_DISCONNECT_REASON_RESTART_TIMER_EXPIRED:
		return "the neighbour did not come back in its restart time"
	case api.PeerState_DISCONNECT_REASON_HARD_RESET, api.PeerState_DISCONNECT_REASON_ADMIN_DOWN:
		return "the session was reset"
	}
	return ""
}
