package bgp

import (
	"context"
	"log/slog"
	"net/netip"
	"sync/atomic"

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

// quiet is a log for gobgp: it tells much that the agent tells in its own words, so its warnings are enough.
type quiet struct {
	slog.Handler
	muted *atomic.Bool
}

func newQuiet(log *slog.Logger) *quiet { return &quiet{log.Handler(), new(atomic.Bool)} }

// mute ends the log.
func (q *quiet) mute() { q.muted.Store(true) }

// Enabled implements slog.Handler.
func (q *quiet) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && !q.muted.Load() && q.Handler.Enabled(ctx, l)
}

// WithAttrs implements slog.Handler.
func (q *quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &quiet{q.Handler.WithAttrs(attrs), q.muted}
}

// WithGroup implements slog.Handler.
func (q *quiet) WithGroup(name string) slog.Handler {
	return &quiet{q.Handler.WithGroup(name), q.muted}
}
