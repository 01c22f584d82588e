package console

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"heddle/internal/topology/flow"
)

// Limits of what is no problem.
const (
	mostAhead      = 2 * time.Second // of a host's clock
	tableFull      = 80              // percent
	renewedEarlier = 14 * 24 * time.Hour
	// exchangedEarlier is the time before its end at which an authority should be exchanged.
	exchangedEarlier = 365 * 24 * time.Hour
	// hostRenewal is the time before the end of a host's certificate, of seven days unless
	// configured, at which it has not been renewed when it should have been: at half of its life.
	hostRenewal = 6 * time.Hour
	mostNamed   = 10 // ports or networks of one problem
	// longestCatchUp is the time in which a server that joins copies the largest store over a slow
	// network, or is started by its operator.
	longestCatchUp = 10 * time.Minute
)

// findProblems returns what is wrong, the parts that others rest on first.
func (v *statusView) findProblems(now time.Time) []problem {
	found := []problem{}
	add := func(fix, format string, args ...any) {
		found = append(found, problem{fmt.Sprintf(format, args...), fix})
	}
	v.findClusterProblems(now, add)
	for _, s := range v.Servers {
		s.findProblems(add)
	}
	for _, m := range v.Store.Members {
		if m.Problem != "" {
			add(m.Fix, "store: %s: %s", m.Name, m.Problem)
		}
	}
	if v.Store.Written < v.Store.Newest {
		add("once all members are upgraded: heddle upgrade commit; heddle upgrade status names those that are behind",
			"store: written in format %d, though members know format %d", v.Store.Written, v.Store.Newest)
	}
	for _, c := range v.Certificates {
		switch left := c.End.Sub(now); {
		case left <= 0:
			add("replace it: docs/guides/tls.md", "certificate: %s ended on %s", c.Name, c.End.Format(time.DateOnly))
		case c.Authority && left < exchangedEarlier:
			add("heddle ca rotate: docs/guides/authority.md", "certificate: %s ends on %s, and what it has signed with it", c.Name, c.End.Format(time.DateOnly))
		case left < renewedEarlier:
			add("replace it: docs/guides/tls.md; of Heddle's own the server's log says why they are not renewed", "certificate: %s ends on %s", c.Name, c.End.Format(time.DateOnly))
		}
	}
	if v.Journal != "" {
		add("make it writable, or make room on its disk: docs/guides/operating.md#the-journal; changes are recorded again by themselves then", "this server records no history: %s", v.Journal)
	}
	if i := slices.IndexFunc(v.Hosts, func(h hostStatus) bool { return h.Unasked != "" }); i >= 0 {
		add("heddle doctor and this server's log say why: journalctl -u heddle here; heddle status on another server asks them", "this server cannot ask hosts for their reports: %s", v.Hosts[i].Unasked)
	}
	for i := range v.Hosts {
		v.Hosts[i].findProblems(now, v.nameOrID(&v.Hosts[i]), add)
	}
	for _, f := range v.faults() {
		add("the log of the agent there has more: journalctl -u heddle-agent; a host whose record has what is not its own is misconfigured or was broken into: mend it, or heddle host remove; docs/security.md",
			"%s: %s", f.hosts, f.text)
	}
	for _, p := range v.PhysicalNetworks {
		if p.Carriers == 0 {
			add(fmt.Sprintf("give a host an interface there, --physical %s=INTERFACE of heddle agent; on a host that has one, heddle doctor says what it lacks; docs/runbooks/HeddlePhysicalNetworkAway.md", p.Name),
				"physical network %s: no live host carries it; what is on these networks reaches nothing outside: %s", p.Name, firstOf(p.Networks))
		}
	}
	for _, way := range v.deadWays() {
		add("look for what filters UDP port 6677 between their tunnel addresses, in this direction; docs/runbooks/HeddleTunnelDead.md", "tunnel: what host %s sends does not arrive at host %s", way.from, way.to)
	}
	if n := len(v.Ports.BindingFailed); n > 0 {
		add("name a host that heddle host list shows: heddle port set PORT --host HOST; or have the host join: a port is bound when its host does",
			"ports that name a host that has not joined, and so carry nothing: %d: %s", n, named(v.Ports.BindingFailed))
	}
	if n := len(v.Ports.Failing); n > 0 {
		add("the log of the agent there has more: journalctl -u heddle-agent", "ports that fail: %d: %s", n, named(v.Ports.Failing))
	}
	return found
}

// findProblems adds what is wrong with a server.
func (s *serverView) findProblems(add func(fix, format string, args ...any)) {
	if d := s.FullDisk; d != nil {
		add(fmt.Sprintf("make room there; it accepts writes again by itself once %d MiB are free", d.NeededMiB),
			"server %s: the disk of its data directory, %s, is full: %d MiB are free, and it accepts no writes", s.Name, d.Dir, d.FreeMiB)
	}
	switch k := s.MissingKey; {
	case k == nil:
	case k.LostStore != "":
		add(fmt.Sprintf("of a cluster: heddle cluster remove %[1]s and heddle cluster token %[1]s on another server, then have its machine join anew: docs/guides/cluster.md; "+
			"a server alone: stop it and restore the newest backup: docs/guides/backup.md", s.Name),
			"server %s: its store, %s, was deleted while it runs: it ends with what the server holds", s.Name, k.LostStore)
	case k.Loaded:
		add("copy the file there from another server, or from a backup, and chown it to the server's user, before this one is started again; docs/metadata.md",
			"server %s: %s, the key of machines' metadata, is missing: the server works with what it has read at its start", s.Name, k.File)
	default:
		add("copy the file there from another server, or from a backup, chown it to the server's user, then: systemctl restart heddle; docs/metadata.md has more",
			"server %s works without the key of machines' metadata, %s: it can neither show nor set any", s.Name, k.File)
	}
}

// findClusterProblems adds what is wrong with the cluster's members, and whether the cluster could
// lose another.
func (v *statusView) findClusterProblems(now time.Time, add func(fix, format string, args ...any)) {
	voters, up := 0, 0
	for _, m := range v.Cluster {
		if !m.Learner {
			voters++
		}
		switch {
		case m.catchingUp(now):
		case m.Name == "":
			add("start it: it joins with its token; or give it up: heddle cluster remove "+m.PeerURL,
				"cluster: a server at %s was added and has never run; no other can join meanwhile", m.PeerURL)
		case m.Learner:
			add("start it, or look why it does not catch up: journalctl -u heddle there; or give it up: heddle cluster remove "+m.Name,
				"cluster: server %s has been copying the store for %s and has no vote; no other can join meanwhile", m.Name, now.Sub(m.Since).Round(time.Second))
		case !m.Alive:
			add(fmt.Sprintf("start it, or look why it cannot reach the others: journalctl -u heddle there; if it is lost for good: heddle cluster remove %s, "+
				"then let its machine or another one join with a new token: heddle cluster token", m.Name), "cluster: server %s is down", m.Name)
		default:
			up++
		}
	}
	if up < voters && up <= voters/2+1 {
		add("bring back or replace the servers that are down, as above; docs/guides/cluster.md",
			"cluster: one more failure stops the cloud: %d of %d servers are up", up, voters)
	}
}

// nameOrID returns the name of a host, or its id if another host has the same name.
func (v *statusView) nameOrID(h *hostStatus) string {
	if slices.ContainsFunc(v.Hosts, func(o hostStatus) bool { return o.Name == h.Name && o.ID != h.ID }) {
		return h.ID
	}
	return h.Name
}

// findProblems adds what is wrong with a host, which commands find by what it is called.
func (h *hostStatus) findProblems(now time.Time, called string, add func(fix, format string, args ...any)) {
	if len(h.Displaced) > 0 {
		add("stop the agent that is not the host, empty its state directory, and let it join under another name; docs/guides/hosts.md, \"Two agents, one host\"",
			"host %s: two agents have its identity, as after a copy of its state directory; that at %s yields, and its machine's ports may reach nothing", h.Name, h.Displaced[0])
	}
	switch {
	case h.CutOff != "":
		add(fmt.Sprintf("examine the machine: it is faulty or was broken into; then let it join again with a token of `heddle host token %s`, or heddle host remove %s; docs/runbooks/HeddleHostCutOff.md", h.Name, h.ID),
			"host %s was cut off from the store: %s; other hosts accept no frame from it: ports bound there: %d", h.Name, h.CutOff, h.Ports)
		return
	case !h.Alive:
		ports := ""
		if h.Ports > 0 {
			ports = fmt.Sprintf(", and with it its ports: %d", h.Ports)
		}
		add("start its agent, or look why it cannot reach the store: journalctl -u heddle-agent there; a host that is gone for good: heddle host remove "+called,
			"host %s is down%s", h.Name, ports)
		return
	case !h.Overlay, h.Unasked != "":
		return
	case !h.Answered:
		add("look at its log: journalctl -u heddle-agent there; agents of earlier versions do not report", "host %s is up, but its agent does not report", h.Name)
		return
	}
	if h.Unreachable != "" {
		text := ""
		if len(h.Uncarried) > 0 {
			text = "; so it does not carry its physical networks: " + firstOf(h.Uncarried)
		}
		add("give an interface there this address, or set tunnel-ip of its agent to one that an interface has: docs/guides/hosts.md",
			"host %s: no other host reaches it by a tunnel: %s%s", h.Name, h.Unreachable, text)
	}
	if h.Ahead != nil && time.Duration(abs(*h.Ahead))*time.Millisecond > mostAhead {
		add("set the clocks by NTP: timedatectl set-ntp true", "host %s: its clock is %s from this server's", h.Name, time.Duration(*h.Ahead)*time.Millisecond)
	}
	for _, t := range h.Tables {
		if t.Max > 0 && t.Used*100 >= t.Max*tableFull {
			add("find the ports that open so many: heddle status --host "+h.ID+"; for flows, raise --max-flows of the agent", "host %s: its table of %s is %d%% full", h.Name, t.Name, t.Used*100/t.Max)
		}
	}
	if end := h.CertificateEnd; !end.IsZero() && end.Sub(now) < hostRenewal {
		add("its agent renews it by itself: look why it cannot, in its log", "host %s: its certificate ends on %s", h.Name, end.Format(time.DateOnly))
	}
}

// hostsFault is a fault that hosts report, with their names.
type hostsFault struct{ text, hosts string }

// faults returns the faults that hosts report, each once.
func (v *statusView) faults() (all []hostsFault) {
	reporters := map[string][]string{}
	for _, h := range v.Hosts {
		if h.HostReport == nil {
			continue
		}
		for _, text := range h.Faults {
			reporters[text] = append(reporters[text], h.Name)
		}
	}
	for _, text := range slices.Sorted(maps.Keys(reporters)) {
		names := reporters[text]
		hosts := "host " + names[0]
		if more := len(names) - 1; more > 0 {
			hosts += fmt.Sprintf(" and %d more", more)
		}
		all = append(all, hostsFault{text, hosts})
	}
	return all
}

// deadWay is one direction of a tunnel, by names of hosts.
type deadWay struct{ from, to string }

// deadWays returns the directions of tunnels that are dead, of which one end or both report.
func (v *statusView) deadWays() (ways []deadWay) {
	add := func(d flow.TunnelDirection, way deadWay) {
		if d.State == flow.TunnelDead && !slices.Contains(ways, way) {
			ways = append(ways, way)
		}
	}
	for _, h := range v.Hosts {
		if h.HostReport == nil {
			continue
		}
		for _, t := range h.DeadTunnels {
			add(t.In, deadWay{t.Name, h.Name})
			add(t.Out, deadWay{h.Name, t.Name})
		}
	}
	return ways
}

// named names some ports, with the reason for each.
func named(ports []portView) string {
	var words []string
	for _, p := range ports {
		word := p.Name + " on " + p.Host
		if p.Reason != "" {
			word += " (" + p.Reason + ")"
		}
		words = append(words, word)
	}
	return firstOf(words)
}

// firstOf joins the first of some words, and says how many more there are.
func firstOf(words []string) string {
	if more := len(words) - mostNamed; more > 0 {
		words = append(words[:mostNamed:mostNamed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, ", ")
}

func abs(n int64) int64 { return max(n, -n) }
