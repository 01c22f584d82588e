package credentials

import (
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"heddle/internal/telemetry"
	"heddle/internal/terminal"
)

// Reason is a cause for which a log-in or a join is refused. Logs and metrics have it; clients are
// told less.
type Reason string

// The reasons, a closed set for metrics.
const (
	UnknownAccount  Reason = "unknown account" // or one without a password
	WrongPassword   Reason = "wrong password"
	TooManyAttempts Reason = "too many attempts"
	NoAccess        Reason = "no access"    // of an account that is disabled or expired, or has no role there
	BadToken        Reason = "bad token"    // of a join: used, expired, unknown, or for another name
	NotAdmitted     Reason = "not admitted" // of a join, for another cause, which the machine is told
)

// LoginReasons returns the reasons for which a log-in is refused.
func LoginReasons() []Reason { return []Reason{UnknownAccount, WrongPassword, TooManyAttempts} }

const (
	// A refusal is logged once within logInterval for each account, address and reason.
	logInterval = time.Minute
	// mostLogged is the number of bytes of an account's name that are logged.
	mostLogged = 100
)

// Refusals logs and counts the log-ins or joins that an API refuses. It is safe for concurrent use.
type Refusals struct {
	opts RefusalOptions

	mu     sync.Mutex
	counts map[Reason]int
	lines  map[refusal]logged
}

// RefusalOptions describe an API that refuses log-ins or joins.
type RefusalOptions struct {
	API     string // in metrics
	Message string // of the log, such as "log-in refused"
	Subject string // key of the log for whose log-in or join it is, such as "account"
	Reasons []Reason
	Log     *slog.Logger
	Now     func() time.Time
}

// refusal is a subject of lines in the log.
type refusal struct {
	pair
	reason Reason
}

// logged is the state of a refusal's lines.
type logged struct {
	at      time.Time // of the last one
	leftOut int       // refusals since then
}

// NewRefusals returns a Refusals that has counted nothing yet.
func NewRefusals(o RefusalOptions) *Refusals {
	return &Refusals{opts: o, counts: map[Reason]int{}, lines: map[refusal]logged{}}
}

// Note counts a refusal, and logs it unless the same one was logged within a minute.
func (r *Refusals) Note(subject string, from netip.Addr, reason Reason) {
	leftOut, due := r.count(refusal{newPair(subject, from), reason})
	if !due {
		return
	}
	args := []any{r.opts.Subject, terminal.Excerpt(subject, mostLogged), "from", from, "reason", string(reason)}
	if leftOut > 0 {
		args = append(args, "left_out", leftOut)
	}
	r.opts.Log.Warn(r.opts.Message, args...)
}

// count counts a refusal, and reports whether a line is due and how many had none since the last.
func (r *Refusals) count(of refusal) (leftOut int, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[of.reason]++
	now, last := r.opts.Now(), r.lines[of]
	past := func(l logged) bool { return now.Sub(l.at) >= logInterval }
	if !past(last) {
		last.leftOut++
		r.lines[of] = last
		return 0, false
	}
	remember(r.lines, of, logged{at: now}, past)
	return last.leftOut, true
}

// Metrics returns the number of refusals by reason.
func (r *Refusals) Metrics() (f []telemetry.Value) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, reason := range r.opts.Reasons {
		f = append(f, telemetry.Counter.Of("heddle_logins_refused_total", "Log-ins, and joins of hosts and servers, that were refused.", r.counts[reason]).
			With("api", r.opts.API).With("reason", string(reason)))
	}
	return f
}
