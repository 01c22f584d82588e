package cli

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"heddle/internal/admin"
	"heddle/internal/topology/flow"
)

// undecided is the error of a check that cannot find out.
type undecided struct{ reason string }

func (u undecided) Error() string { return u.reason }

// Undecided returns the error of a check that cannot find out, for this reason.
func Undecided(format string, args ...any) error { return undecided{fmt.Sprintf(format, args...)} }

// tunnelSeries finds the agent's metrics of its tunnels, and label the labels of one.
var (
	tunnelSeries = regexp.MustCompile(`(?m)^heddle_overlay_tunnel_(up|in_alive|out_alive)\{(.*)\} ([01])$`)
	label        = regexp.MustCompile(`(\w+)=("(?:[^"\\]|\\.)*")`)
)

// tunnels returns the state of the tunnels to other hosts, as the agent of this host has found out
// by the hellos that agents send each other. Those beyond the first of many are one, without an
// address. The error is [admin.ErrNotRunning] on a machine without an agent.
func (s *sockets) tunnels(ctx context.Context) ([]flow.TunnelReport, error) {
	metrics, err := admin.Dial(s.dir, "agent").Get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	return parseTunnels(string(metrics)), nil
}

// parseTunnels returns the tunnels in an agent's metrics, in the order of their names.
func parseTunnels(metrics string) (all []flow.TunnelReport) {
	known := map[string]*flow.TunnelReport{}
	for _, m := range tunnelSeries.FindAllStringSubmatch(metrics, -1) {
		labels := map[string]string{}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			labels[l[1]], _ = strconv.Unquote(l[2]) // the expression matches what is quoted
		}
		t := known[labels["host"]]
		if t == nil {
			unknown := flow.TunnelDirection{State: flow.TunnelUnknown}
			t = &flow.TunnelReport{Name: labels["host"], In: unknown, Out: unknown}
			t.Address, _ = netip.ParseAddr(labels["address"]) // "": of several tunnels
			known[t.Name] = t
		}
		state := flow.TunnelDead
		if m[3] == "1" {
			state = flow.TunnelAlive
		}
		switch m[1] {
		case "in_alive":
			t.In.State = state
		case "out_alive":
			t.Out.State = state
		}
	}
	for _, t := range known {
		all = append(all, *t)
	}
	slices.SortFunc(all, func(a, b flow.TunnelReport) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// mostDeadNamed bounds the dead directions of tunnels that are named.
const mostDeadNamed = 10

// tunnelsCheck finds tunnels by which nothing arrives, if this machine has an agent.
func tunnelsCheck(s *sockets) Check {
	return Check{
		Name: "tunnels to other hosts", For: "overlay: tunnels", Optional: true,
		Fix: "let UDP " + strconv.Itoa(tunnelPort) + " pass between the two hosts in both directions; heddle doctor --peer ADDRESS on both, and heddle status --host",
		Run: func(ctx context.Context) error {
			all, err := s.tunnels(ctx)
			if errors.Is(err, admin.ErrNotRunning) {
				return nil
			} else if err != nil {
				return undecided{err.Error()}
			}
			return refuseDead(all)
		},
	}
}

// refuseDead returns an error with the directions of tunnels that are dead, if there are any.
func refuseDead(all []flow.TunnelReport) error {
	var dead []string
	for _, t := range all {
		name := t.Name
		if t.Address.IsValid() {
			name += " (" + t.Address.String() + ")"
		}
		if t.In.State == flow.TunnelDead {
			dead = append(dead, "nothing arrives from "+name)
		}
		if t.Out.State == flow.TunnelDead {
			dead = append(dead, "nothing arrives at "+name)
		}
	}
	if len(dead) == 0 {
		return nil
	}
	more := ""
	if n := len(dead) - mostDeadNamed; n > 0 {
		dead, more = dead[:mostDeadNamed], fmt.Sprintf(", and %d more", n)
	}
	return fmt.Errorf("%s%s, though their agents are alive", strings.Join(dead, ", "), more)
}

// tunnelTo returns the state of the tunnel to an address; the error is undecided if this host's
// agent does not know it.
func (s *sockets) tunnelTo(ctx context.Context, address netip.Addr) (flow.TunnelReport, error) {
	all, err := s.tunnels(ctx)
	switch {
	case errors.Is(err, admin.ErrNotRunning):
		return flow.TunnelReport{}, undecided{"no agent runs here, which alone finds it out"}
	case err != nil:
		return flow.TunnelReport{}, undecided{err.Error()}
	}
	at := slices.IndexFunc(all, func(t flow.TunnelReport) bool { return t.Address == address })
	if at < 0 {
		return flow.TunnelReport{}, undecided{"this host's agent has no figures of a tunnel to " + address.String()}
	}
	return all[at], nil
}

// decide returns nil for a direction of a tunnel that is alive, and an error with the reason for
// one that is dead.
func decide(d flow.TunnelDirection, dead string) error {
	switch d.State {
	case flow.TunnelAlive:
		return nil
	case flow.TunnelDead:
		return errors.New(dead)
	}
	return undecided{"not known: the agent there is not alive or has just started, or nothing arrives from there"}
}
