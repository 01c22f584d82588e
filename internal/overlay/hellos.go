package overlay

import (
	"context"
	"log/slog"
	mathbits "math/bits"
	"math/rand/v2"
	"sync"
	"time"

	"heddle/internal/overlay/flowstate"
	"heddle/internal/topology/flow"
)

// Rates of hellos.
const (
	helloTick = time.Second
	// helloShare is the least time for each host: a host sends at most 100 hellos a second to all
	// others, and one a second to each.
	helloShare = 10 * time.Millisecond
	// helloMisses is the number of hellos in a row that may be lost on the way.
	helloMisses = 5
	helloWindow = 32 // hellos of which losses are counted
)

// hellos finds out which tunnels carry frames. Each agent sends numbered messages to the others by
// the tunnels, which are sealed like all state messages, and says in each which of theirs have
// arrived, so both ends know of both directions (as in RFC 5880; decision 0051).
type hellos struct {
	// hosts returns the ids of those that take hellos, each with whether the store has it as alive.
	hosts func() map[string]bool
	send  func(host string, h flowstate.Hello)
	sent  func(host string) flow.Usage
	// grace is for how long a host may be silent, besides hellos that are lost, before its tunnel
	// counts as dead: until then the store says whether its agent has died.
	grace time.Duration
	name  func(host string) string
	log   *slog.Logger

	mu       sync.Mutex
	sessions map[string]*helloSession // by id of the other host
}

func newHellos(e *engine, grace time.Duration) *hellos {
	return &hellos{hosts: e.keys.helloHosts, grace: grace, name: e.keys.hostName, log: e.log, sessions: map[string]*helloSession{},
		sent: func(host string) flow.Usage {
			t, _ := e.tunnelTo(host)
			return e.sent.of(t)
		},
		send: func(host string, h flowstate.Hello) {
			if t, ok := e.tunnelTo(host); ok {
				e.sendState(t, host, flowstate.State{Hello: &h})
			}
		}}
}

// Run sends hellos until ctx ends.
func (x *hellos) Run(ctx context.Context) error {
	tick := time.NewTicker(helloTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			x.tick(now)
		}
	}
}

// tick sends the hellos that are due, and logs which tunnels have died or recovered.
func (x *hellos) tick(now time.Time) {
	hosts := x.hosts()
	due := map[string]flowstate.Hello{}
	x.mu.Lock()
	x.keepSessions(hosts, now)
	every := helloInterval(len(x.sessions))
	for host, s := range x.sessions {
		if !now.Before(s.next) {
			s.next = now.Add(every - helloTick/2) // the next tick but a part of one
			due[host] = s.hello(every)
		}
		x.logChange(host, s, now)
	}
	x.mu.Unlock()
	for host, h := range due {
		usage := x.sent(host)
		h.Packets, h.Bytes = usage.Packets, usage.Bytes
		x.send(host, h)
	}
}

// helloInterval returns the time between two hellos to each of so many hosts.
func helloInterval(hosts int) time.Duration {
	return max(helloTick, time.Duration(hosts)*helloShare)
}

// keepSessions begins sessions with hosts that are new, and ends those with hosts that are gone. A
// host that the store no longer has as alive may have lost only the store: it is greeted as long as
// its own hellos arrive. It needs the lock.
func (x *hellos) keepSessions(hosts map[string]bool, now time.Time) {
	for host, s := range x.sessions {
		alive, known := hosts[host]
		if in, _ := s.states(now, x.grace); !known || !alive && in != flow.TunnelAlive {
			delete(x.sessions, host)
		}
	}
	for host, alive := range hosts {
		if alive && x.sessions[host] == nil {
			x.sessions[host] = newHelloSession(now, now.Add(rand.N(helloInterval(len(hosts)))))
		}
	}
}

// logChange needs the lock.
func (x *hellos) logChange(host string, s *helloSession, now time.Time) {
	in, out := s.states(now, x.grace)
	was := [2]flow.TunnelState{s.loggedIn, s.loggedOut}
	s.loggedIn, s.loggedOut = in, out
	for i, d := range []struct {
		state     flow.TunnelState
		died, was string
	}{{in, "nothing arrives from a host by its tunnel, though its agent is alive", "frames arrive from a host again"},
		{out, "nothing arrives at a host by the tunnel to it, though its agent is alive", "frames arrive at a host again"}} {
		switch {
		case d.state == flow.TunnelDead && was[i] != flow.TunnelDead:
			x.log.Warn(d.died, "host", x.name(host), "id", host)
		case d.state == flow.TunnelAlive && was[i] == flow.TunnelDead:
			x.log.Info(d.was, "host", x.name(host), "id", host)
		}
	}
}

// received enters a hello of a host.
func (x *hellos) received(host string, h *flowstate.Hello, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.sessions[host]; s != nil {
		s.receive(h, now)
	}
}

// directions returns the state of the tunnel to a host; both unknown without hellos.
func (x *hellos) directions(host string, now time.Time) (in, out flow.TunnelDirection) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.sessions[host]
	if s == nil {
		return flow.TunnelDirection{State: flow.TunnelUnknown}, flow.TunnelDirection{State: flow.TunnelUnknown}
	}
	in.State, out.State = s.states(now, x.grace)
	in.Lost = lost(in.State, s.first, s.heard, s.arrived)
	in.Usage = s.usage
	out.Lost = lost(out.State, s.echoFirst, s.echo, s.echoArrived)
	return in, out
}

// lost returns how many are missing of the last hellos, from the first to the newest, 0 if there is
// none; bit i of arrived stands for the one i before the newest.
func lost(state flow.TunnelState, first, newest, arrived uint32) int {
	if state == flow.TunnelUnknown || newest == 0 {
		return 0
	}
	n := min(newest-first+1, helloWindow)
	if state == flow.TunnelDead {
		return int(n)
	}
	return int(n) - mathbits.OnesCount32(arrived&(1<<n-1))
}

// helloSession holds what this host has exchanged with another one.
type helloSession struct {
	since time.Time // silence counts from then
	next  time.Time // when a hello is due
	run   uint32    // of this host's hellos, which are numbered anew with each session
	sent  uint32    // number of the last hello sent
	every time.Duration

	// Of the other's hellos: its run, the numbers of the first and the newest that arrived, and
	// those that arrived before the newest; see flowstate.Hello.
	theirRun, first, heard, arrived uint32
	heardAt                         time.Time
	theirEvery                      time.Duration // between two of them
	usage                           flow.Usage

	// Of this host's hellos, as the other one says: the first and the newest that arrived in its
	// run, and those before the newest.
	echoFirst, echo, echoArrived uint32
	echoAt                       time.Time // when a new one had arrived

	loggedIn, loggedOut flow.TunnelState
}

func newHelloSession(now, next time.Time) *helloSession {
	return &helloSession{since: now, next: next, run: rand.Uint32()}
}

// hello returns the next hello to send.
func (s *helloSession) hello(every time.Duration) flowstate.Hello {
	s.sent++
	s.every = every
	return flowstate.Hello{Run: s.run, Number: s.sent, Every: every, EchoRun: s.theirRun, Echo: s.heard, Arrived: s.arrived}
}

// receive enters a hello of the other host.
func (s *helloSession) receive(h *flowstate.Hello, now time.Time) {
	ahead := int32(h.Number - s.heard)
	switch {
	case h.Run != s.theirRun || s.heard == 0:
		s.theirRun, s.first, s.heard, s.arrived = h.Run, h.Number, h.Number, 1
		s.since, s.echo = now, 0
	case ahead > 0:
		s.heard, s.arrived = h.Number, s.arrived<<ahead|1
	default: // overtaken by a later one, which says more
		s.arrived |= 1 << (s.heard - h.Number)
		return
	}
	s.heardAt, s.theirEvery, s.usage = now, h.Every, flow.Usage{Packets: h.Packets, Bytes: h.Bytes}
	if h.EchoRun != s.run || h.Echo < s.echo {
		return
	}
	if s.echo == 0 {
		s.echoFirst = h.Echo
	}
	if h.Echo > s.echo {
		s.echo, s.echoAt = h.Echo, now
	}
	s.echoArrived = h.Arrived
}

// states returns whether frames from and to the other host arrive.
func (s *helloSession) states(now time.Time, grace time.Duration) (in, out flow.TunnelState) {
	limit := grace + helloMisses*max(s.every, s.theirEvery, helloTick)
	in = aliveness(s.heard != 0, s.since, s.heardAt, now, limit)
	if in != flow.TunnelAlive {
		return in, flow.TunnelUnknown // what it says does not arrive
	}
	return in, aliveness(s.echo != 0, s.since, s.echoAt, now, limit)
}

// aliveness returns the state of a direction in which the last sign was seen at a time, if any was.
func aliveness(seen bool, since, at, now time.Time, limit time.Duration) flow.TunnelState {
	if at.Before(since) {
		at = since
	}
	switch {
	case now.Sub(at) > limit:
		return flow.TunnelDead
	case seen:
		return flow.TunnelAlive
	}
	return flow.TunnelUnknown
}
