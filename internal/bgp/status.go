package bgp

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"

	"heddle/internal/bgp/plan"
	"heddle/internal/reconcile"
	"heddle/internal/task"
	"heddle/internal/telemetry"
)

// status is the agent's published state. Its methods may be called from any goroutine.
type status struct {
	log  *slog.Logger
	lack task.Lack // of the agent: what the speaker cannot do

	mu                           sync.Mutex
	failure                      string // of the speaker, "" for none
	sessions                     map[netip.Addr]sessionStatus
	imported, exported, problems int
	inKernel                     func() reconcile.Status // nil before Run
}

type sessionStatus struct {
	peerStatus
	origin plan.Origin
}

// follow has the metrics include routes in the kernel.
func (s *status) follow(inKernel func() reconcile.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inKernel = inKernel
}

// fail notes what the speaker could not do, or "" when it could all, and logs changes.
func (s *status) fail(what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := ""
	if err != nil {
		text = what + ": " + err.Error()
	}
	switch {
	case text == s.failure:
		return
	case text != "":
		s.log.Error("cannot do what the plan says, will try again", "err", err)
		s.lack.Set("cannot " + text)
	default:
		s.log.Info("recovered", "from", s.failure)
		s.lack.Set("")
	}
	s.failure = text
}

// count notes destinations learned and announced, and the problems of the plan, which may be nil.
func (s *status) count(imported, exported int, p *plan.Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.imported, s.exported = imported, exported
	if p != nil {
		s.problems = len(p.Problems)
	}
}

// setSessions notes which sessions there should be.
func (s *status) setSessions(desired map[netip.Addr]plan.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sessions := make(map[netip.Addr]sessionStatus, len(desired))
	for peer, d := range desired {
		sessions[peer] = sessionStatus{s.sessions[peer].peerStatus, d.Origin}
	}
	s.sessions = sessions
}

// setPeer notes and logs the state of a session, unless it was removed.
func (s *status) setPeer(peer netip.Addr, to peerStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, there := s.sessions[peer]
	if !there {
		return
	}
	switch {
	case to.up && !now.up:
		s.log.Info("session up", "peer", peer)
	case !to.up && now.up:
		s.log.Warn("session down", "peer", peer, "reason", to.reason)
	}
	s.sessions[peer] = sessionStatus{to, now.origin}
}

func (s *status) metrics() []telemetry.Value {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := []telemetry.Value{
		telemetry.Gauge.Of("heddle_bgp_routes_imported", "Destinations learned from peers.", s.imported),
		telemetry.Gauge.Of("heddle_bgp_routes_exported", "Destinations of this host announced to peers.", s.exported),
		telemetry.Gauge.Of("heddle_bgp_problems", "Objects in etcd that could not be honoured; the log names them.", s.problems),
		telemetry.Flag("heddle_bgp_failing", "1 while the speaker cannot do what it should; the log says why.", s.failure != ""),
	}
	if s.inKernel != nil {
		routes := s.inKernel()
		all = append(all, telemetry.Gauge.Of("heddle_bgp_routes_in_kernel", "Routes of the speaker in the kernel: learned ones and blackholes.", routes.InPlace),
			telemetry.Gauge.Of("heddle_bgp_routes_failing", "Routes that the kernel does not take, say because a tunnel device is missing; the log says why.", routes.Failing))
	}
	for peer, session := range s.sessions {
		all = append(all, telemetry.Flag("heddle_bgp_session_up", "1 while a session is established, by peer and by who defined it: mesh, global or host.", session.up).
			With("peer", peer.String()).With("origin", session.origin.String()))
	}
	return all
}

// quiet is a log handler for gobgp, which repeats much that the agent logs. It passes warnings,
// unless the operator asks for more.
type quiet struct {
	slog.Handler
	least *slog.LevelVar
}

func newQuiet(log *slog.Logger) *quiet {
	q := &quiet{log.Handler(), new(slog.LevelVar)}
	q.least.Set(slog.LevelWarn)
	return q
}

// show sets the least level.
func (q *quiet) show(debug, verbose bool) {
	level := slog.LevelWarn
	if debug {
		level = slog.LevelDebug
	} else if verbose {
		level = slog.LevelInfo
	}
	q.least.Set(level)
}

// mute ends the log.
func (q *quiet) mute() { q.least.Set(slog.LevelError + 1) }

// Enabled implements slog.Handler. The operator's choice counts, not the level of the agent's log.
func (q *quiet) Enabled(_ context.Context, l slog.Level) bool { return l >= q.least.Level() }

// WithAttrs implements slog.Handler.
func (q *quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &quiet{q.Handler.WithAttrs(attrs), q.least}
}

// WithGroup implements slog.Handler.
func (q *quiet) WithGroup(name string) slog.Handler {
	return &quiet{q.Handler.WithGroup(name), q.least}
}
