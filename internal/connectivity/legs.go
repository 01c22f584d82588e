package connectivity

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"heddle/internal/cloud"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// Results of a leg.
const (
	Passed  = "ok"
	Failed  = "failed"
	Untried = "untried" // since another leg that it needs has failed
)

// Leg is one thing that was tried: of one workload, or from one to another.
type Leg struct {
	Name   string        `json:"leg"`
	From   string        `json:"from"`         // host
	To     string        `json:"to,omitempty"` // host
	Result string        `json:"result"`
	Found  string        `json:"found,omitempty"`
	Next   string        `json:"next,omitempty"` // where to look, of a leg that failed
	Took   time.Duration `json:"took"`
}

// Names of legs that are no probes.
const (
	legAgent = "agent" // the host's agent makes the workload
	legPort  = "port"  // the port is attached
)

const (
	// activeTime bounds the time until ports are attached; activePause is between two looks.
	activeTime  = 20 * time.Second
	activePause = 100 * time.Millisecond
)

// Try tries all legs, and returns them in order: those of each workload, then those between
// workloads.
func (t *Test) Try(ctx context.Context) ([]Leg, error) {
	var legs []Leg
	for _, step := range []func(context.Context) ([]Leg, error){t.start, t.awaitPorts, t.tryOwn, t.tryPairs} {
		more, err := step(ctx)
		if err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		legs = append(legs, more...)
	}
	return legs, nil
}

// each runs f for each workload, all at once, and returns all legs.
func (t *Test) each(f func(*end) []Leg) []Leg {
	found := make([][]Leg, len(t.ends))
	var trying sync.WaitGroup
	for i, e := range t.ends {
		trying.Go(func() { found[i] = f(e) })
	}
	trying.Wait()
	var legs []Leg
	for _, f := range found {
		legs = append(legs, f...)
	}
	return legs
}

// start has the agents make the workloads.
func (t *Test) start(ctx context.Context) ([]Leg, error) {
	return t.each(func(e *end) []Leg {
		leg := Leg{Name: legAgent, From: e.host.Name, Result: Passed, Found: "made a workload"}
		began := time.Now()
		answer, err := ask(ctx, t.session, work{Port: e.port})
		if leg.Took = time.Since(began); err == nil {
			e.hasIPv6 = answer.IPv6
		} else {
			e.down = true
			leg.Result, leg.Found = Failed, err.Error()
			leg.Next = fmt.Sprintf("heddle host list; on %s: systemctl status heddle-agent, and its log", e.host.Name)
		}
		return []Leg{leg}
	}), nil
}

// awaitPorts waits until the ports of all workloads are attached.
func (t *Test) awaitPorts(ctx context.Context) ([]Leg, error) {
	began := time.Now()
	active := map[string]time.Duration{}
	for time.Since(began) < activeTime && ctx.Err() == nil {
		var ports []struct{ ID, Status string }
		if err := t.api.List(ctx, cloud.Port, url.Values{"network_id": {t.network}, "fields": {"id", "status"}}, &ports); err != nil {
			return nil, err
		}
		for _, p := range ports {
			if _, known := active[p.ID]; p.Status == "ACTIVE" && !known {
				active[p.ID] = time.Since(began)
			}
		}
		if t.allActive(active) {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(activePause):
		}
	}
	var legs []Leg
	for _, e := range t.ends {
		if e.down {
			continue
		}
		leg := Leg{Name: legPort, From: e.host.Name, Result: Passed, Found: "ACTIVE"}
		took, ok := active[e.port]
		if leg.Took = took; !ok {
			e.down = true
			leg.Result, leg.Found = Failed, fmt.Sprintf("not ACTIVE after %s", activeTime)
			leg.Next = fmt.Sprintf("heddle status names ports that cannot be attached; the log of the agent on %s", e.host.Name)
		}
		legs = append(legs, leg)
	}
	return legs, nil
}

func (t *Test) allActive(active map[string]time.Duration) bool {
	for _, e := range t.ends {
		if _, ok := active[e.port]; !ok && !e.down {
			return false
		}
	}
	return true
}

// tryOwn tries what each workload needs of its own host.
func (t *Test) tryOwn(ctx context.Context) ([]Leg, error) {
	return t.each(func(e *end) []Leg {
		return t.probe(ctx, e, nil, []topology.Probe{{Kind: topology.ProbeDHCP}, {Kind: topology.ProbeMetadata}})
	}), nil
}

// pairProbe is a probe from one workload to another.
type pairProbe struct {
	kind topology.ProbeKind
	ipv6 bool
}

// name returns the name of the probe's leg.
func (p pairProbe) name() string {
	if p.ipv6 && p.kind != topology.ProbeNDP { // there is no other one
		return string(p.kind) + "6"
	}
	return string(p.kind)
}

// pairProbes are the probes from one workload to another. The way between hosts is the same for
// both versions of IP, so that its MTU is tried once.
var pairProbes = []pairProbe{
	{topology.ProbeARP, false}, {topology.ProbeICMP, false}, {topology.ProbeTCP, false}, {topology.ProbeUDP, false}, {topology.ProbeMTU, false}, {topology.ProbeBlocked, false},
	{topology.ProbeNDP, true}, {topology.ProbeICMP, true}, {topology.ProbeTCP, true}, {topology.ProbeUDP, true}, {topology.ProbeBlocked, true},
}

// addressBy returns the workload's address of a version of IP.
func (e *end) addressBy(ipv6 bool) netip.Addr {
	if ipv6 {
		return e.address6
	}
	return e.address
}

// tryPairs tries to reach workloads from others, and finds out where what fails is lost.
func (t *Test) tryPairs(ctx context.Context) ([]Leg, error) {
	legs := t.each(func(e *end) (legs []Leg) {
		for _, to := range e.targets {
			legs = append(legs, t.tryPair(ctx, e, to)...)
		}
		return legs
	})
	t.each(func(e *end) []Leg {
		if answer, err := ask(ctx, t.session, work{Port: e.port}); err == nil && !e.down {
			e.received = answer.Received
		}
		return nil
	})
	return t.explain(ctx, legs), nil
}

// tryPair tries to reach a workload from another one, in the order of pairProbes.
func (t *Test) tryPair(ctx context.Context, from, to *end) []Leg {
	probes, untried := probesBetween(from, to)
	legs := t.probe(ctx, from, to, probes)
	for i := range legs {
		legs[i].Name = pairProbes[i].name()
	}
	return append(legs, untried...)
}

// probesBetween returns the probes from a workload to another one, and the legs that are not tried:
// those by IPv6, which are the last of pairProbes, where one of the two has none.
func probesBetween(from, to *end) (probes []topology.Probe, untried []Leg) {
	without := ""
	for _, e := range []*end{to, from} {
		if !e.hasIPv6 && !e.down {
			without = fmt.Sprintf("%s has no IPv6: its kernel has none, or its agent or the server is of an earlier version", e.host.Name)
		}
	}
	for _, p := range pairProbes {
		if p.ipv6 && without != "" {
			untried = append(untried, Leg{Name: p.name(), From: from.host.Name, To: to.host.Name, Result: Untried, Found: without})
			continue
		}
		probes = append(probes, topology.Probe{Kind: p.kind, Target: to.addressBy(p.ipv6), MAC: to.mac})
	}
	return probes, untried
}

// probe has a workload probe, alone or towards another one.
func (t *Test) probe(ctx context.Context, from, to *end, probes []topology.Probe) []Leg {
	var legs []Leg
	for _, p := range probes {
		leg := Leg{Name: string(p.Kind), From: from.host.Name, Result: Untried}
		if to != nil {
			leg.To = to.host.Name
		}
		legs = append(legs, leg)
	}
	if from.down || to != nil && to.down {
		return legs
	}
	answer, err := ask(ctx, t.session, work{Port: from.port, Probes: probes})
	if err != nil {
		answer = &flow.WorkloadAnswer{Results: make([]flow.ProbeResult, len(probes))}
		for i := range answer.Results {
			answer.Results[i].Detail = err.Error()
		}
	}
	for i, r := range answer.Results {
		legs[i].Result, legs[i].Found, legs[i].Took = Passed, r.Detail, r.Took
		if !r.Passed {
			legs[i].Result = Failed
		}
	}
	return legs
}
