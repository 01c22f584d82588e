package bgp

import (
	"context"
	"log/slog"
	"net/netip"

	"heddle/internal/bgp/plan"
	"heddle/internal/telemetry"
)

// status is what the agent tells of itself.
type status struct {
	failure  string // of the speaker, "" for none
	sessions map[netip.Addr]sessionStatus
	imported int // destinations learned
	exported int // destinations announced
	problems int
}

type sessionStatus struct {
	peerStatus
	origin plan.Origin
}

// report notes where things stand, for Metrics.
func (a *Agent) report() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status.imported, a.status.exported = len(a.learned), len(a.speaker.announced)
	if a.plan != nil {
		a.status.problems = len(a.plan.Problems)
	}
}

// reportSessions notes which sessions there shall be.
func (a *Agent) reportSessions() {
	a.mu.Lock()
	defer a.mu.Unlock()
	sessions := make(map[netip.Addr]sessionStatus, len(a.speaker.sessions))
	for peer, s := range a.speaker.sessions {
		sessions[peer] = sessionStatus{a.status.sessions[peer].peerStatus, s.Origin}
	}
	a.status.sessions = sessions
}

// reportNewLife notes that no session is up: the speaker begins anew.
func (a *Agent) reportNewLife() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status.sessions = map[netip.Addr]sessionStatus{}
}

// notePeer keeps and logs the state of a session.
func (a *Agent) notePeer(peer netip.Addr, s peerStatus) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, there := a.status.sessions[peer]
	if !there {
		return // what is left to tell of a session that was removed
	}
	switch {
	case s.up && !now.up:
		a.log.Info("session up", "peer", peer)
	case !s.up && now.up:
		a.log.Warn("session down", "peer", peer, "reason", s.reason)
	}
	now.peerStatus = s
	a.status.sessions[peer] = now
}

// Metrics are the agent's figures now, for telemetry.
func (a *Agent) Metrics() []telemetry.Value {
	a.mu.Lock()
	defer a.mu.Unlock()
	failing := 0
	if a.status.failure != "" {
		failing = 1
	}
	all := []telemetry.Value{
		gauge("heddle_bgp_routes_imported", "Destinations learned from peers.", a.status.imported),
		gauge("heddle_bgp_routes_exported", "Destinations of this host told to peers.", a.status.exported),
		gauge("heddle_bgp_problems", "Objects in etcd that could not be honoured; the log names them.", a.status.problems),
		gauge("heddle_bgp_failing", "1 while the speaker cannot do what it should; the log says why.", failing),
	}
	if a.routes != nil {
		s := a.routes.Status()
		all = append(all, gauge("heddle_bgp_routes_in_kernel", "Routes of the speaker in the kernel: learned ones and blackholes.", s.InPlace),
			gauge("heddle_bgp_routes_failing", "Routes that the kernel does not take, say because a tunnel device is missing; the log says why.", s.Failing))
	}
	for peer, s := range a.status.sessions {
		v := gauge("heddle_bgp_session_up", "1 while a session is established, by peer and by who defined it: mesh, global or host.", 0)
		if s.up {
			v.Value = 1
		}
		v.Labels = map[string]string{"peer": peer.String(), "origin": s.origin.String()}
		all = append(all, v)
	}
	return all
}

func gauge(name, help string, value int) telemetry.Value {
	return telemetry.Value{Name: name, Help: help, Kind: telemetry.Gauge, Value: float64(value)}
}

// quiet is a log for gobgp: it tells much that the agent tells in its own words, so its warnings are enough unless the
// operator wants more.
type quiet struct {
	slog.Handler
	least *slog.LevelVar
}

func newQuiet(log *slog.Logger) *quiet {
	q := &quiet{log.Handler(), new(slog.LevelVar)}
	q.least.Set(slog.LevelWarn)
	return q
}

// show sets what is told beside warnings.
func (q *quiet) show(debug, verbose bool) {
	switch {
	case debug:
		q.least.Set(slog.LevelDebug)
	case verbose:
		q.least.Set(slog.LevelInfo)
	default:
		q.least.Set(slog.LevelWarn)
	}
}

// mute ends the log.
func (q *quiet) mute() { q.least.Set(slog.LevelError + 1) }

// Enabled implements slog.Handler. What the operator has asked for is told whatever the level of the agent's log.
func (q *quiet) Enabled(_ context.Context, l slog.Level) bool { return l >= q.least.Level() }

// WithAttrs implements slog.Handler.
func (q *quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &quiet{q.Handler.WithAttrs(attrs), q.least}
}

// WithGroup implements slog.Handler.
func (q *quiet) WithGroup(name string) slog.Handler {
	return &quiet{q.Handler.WithGroup(name), q.least}
}
