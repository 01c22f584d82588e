package console

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"

	"heddle/internal/api"
	"heddle/internal/api/operator"
	"heddle/internal/explain"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// drops answers with the packets that decisions dropped, of all hosts or one, at all ports or one.
func (c *console) drops(r *http.Request) (operator.Drops, error) {
	query := r.URL.Query()
	snap, err := c.DB.View(r.Context())
	if err != nil {
		return operator.Drops{}, err
	}
	var ask flow.CountersRequest
	if text := query.Get("port"); text != "" {
		port, err := explain.FindPort(snap, api.Caller(r.Context()), text)
		if err != nil {
			return operator.Drops{}, faultError(err)
		}
		if n, ok := schema.Networks.Peek(snap, port.NetworkID); ok && n.Routed() {
			return operator.Drops{}, api.Errorf(http.StatusConflict, "port %s is on a routed network, whose hosts count by rule and code: ask without a port", port.ID)
		}
		ask.PortID = port.ID
	}
	if text := query.Get("code"); text != "" {
		if ask.Code.UnmarshalText([]byte(text)) != nil || ask.Code == 0 {
			return operator.Drops{}, api.Errorf(http.StatusUnprocessableEntity, "code %q: want one of docs/codes.md, such as no-rule", text)
		}
	}
	agents, err := c.countingAgents(snap, query.Get("host"))
	if err != nil {
		return operator.Drops{}, err
	}
	if ask.PortID != "" { // routed hosts do not count by port
		agents = slices.DeleteFunc(agents, func(a countingAgent) bool { return a.plane == planePolicy })
	}
	counted := c.askCounters(r.Context(), snap, agents, ask)
	return operator.Drops{Drops: sumDrops(snap, counted), Hosts: asked(counted)}, nil
}

// countedHost is a host that was asked for its counters, and its answer.
type countedHost struct {
	operator.CountedHost
	answer flow.CountersAnswer
}

func asked(counted []countedHost) []operator.CountedHost {
	all := make([]operator.CountedHost, len(counted))
	for i := range counted {
		all[i] = counted[i].CountedHost
	}
	return all
}

// Planes of counters.
const (
	planeOverlay = "overlay"
	planePolicy  = "policy"
)

// countingAgent is an agent that counts packets.
type countingAgent struct {
	host  *topology.Host
	plane string
}

// countingAgents returns the live agents that count packets, or those of one host, in the order of
// the hosts' names.
func (c *console) countingAgents(snap *records.Snap, name string) ([]countingAgent, error) {
	var only *topology.Host
	var all []countingAgent
	if name != "" {
		var err error
		if only, err = findHost(snap, name); err != nil {
			return nil, err
		}
	}
	for h := range schema.Hosts.All(snap) {
		if only != nil && h.ID != only.ID {
			continue
		}
		if hasOverlay(snap, h) {
			all = append(all, countingAgent{h, planeOverlay})
		}
		if c.PolicyAgentAlive != nil && c.PolicyAgentAlive(h.Name) {
			all = append(all, countingAgent{h, planePolicy})
		}
	}
	if only != nil && len(all) == 0 {
		return nil, api.Errorf(http.StatusConflict, "host %s has no overlay or policy agent that is alive, which alone has its counters: start it there", only.Name)
	}
	slices.SortFunc(all, func(a, b countingAgent) int {
		return cmp.Or(strings.Compare(a.host.Name, b.host.Name), strings.Compare(a.host.ID, b.host.ID), strings.Compare(a.plane, b.plane))
	})
	return all, nil
}

// hasOverlay reports whether a host has an overlay agent that is alive.
func hasOverlay(snap *records.Snap, h *topology.Host) bool {
	state, alive := schema.HostStates.Peek(snap, h.ID)
	return alive && slices.Contains(state.Roles, "overlay")
}

// overlayHosts returns the live hosts with virtual networks, or the one with a name or id, in the
// order of their names.
func overlayHosts(snap *records.Snap, name string) ([]*topology.Host, error) {
	if name != "" {
		h, err := findHost(snap, name)
		if err != nil {
			return nil, err
		}
		if !hasOverlay(snap, h) {
			return nil, api.Errorf(http.StatusConflict, "host %s has no overlay agent that is alive, which alone has its counters: start it there", h.Name)
		}
		return []*topology.Host{h}, nil
	}
	var all []*topology.Host
	for h := range schema.Hosts.All(snap) {
		if hasOverlay(snap, h) {
			all = append(all, h)
		}
	}
	slices.SortFunc(all, func(a, b *topology.Host) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	return all, nil
}

// askCounters asks agents for counters, in their order.
func (c *console) askCounters(ctx context.Context, snap *records.Snap, agents []countingAgent, ask flow.CountersRequest) []countedHost {
	requests := make([]flow.TraceRequest, len(agents))
	for i, a := range agents {
		requests[i] = flow.TraceRequest{HostID: a.host.ID, Counters: &ask}
		if a.plane == planePolicy {
			requests[i].Counters, requests[i].Policy = nil, &ask
		}
	}
	counted := make([]countedHost, len(agents))
	for i, a := range c.askEach(ctx, requests) {
		counted[i].Name, counted[i].Plane = agents[i].host.Name, agents[i].plane
		switch {
		case a.why != "":
			counted[i].Error = a.why
		case a.answer.Counters == nil:
			counted[i].Error = agentEarlier
		default:
			counted[i].accept(a.answer.Counters)
		}
	}
	for i := range counted {
		for j := range counted[i].answer.Counters {
			x := &counted[i].answer.Counters[j]
			explain.NameObject(snap, x.Object, x.Rule)
		}
	}
	return counted
}

// agentEarlier is the reason for which an agent answers no request that it does not know.
const agentEarlier = "its agent is of an earlier version: upgrade it"

// hostAnswer is the answer of one host, or why there is none.
type hostAnswer struct {
	answer *flow.TraceAnswer
	why    string
}

// askEach asks the agents of hosts, and returns their answers in the order of the requests.
func (c *console) askEach(ctx context.Context, requests []flow.TraceRequest) []hostAnswer {
	all := make([]hostAnswer, len(requests))
	free := make(chan struct{}, mostAsked)
	var asking sync.WaitGroup
	for i, r := range requests {
		free <- struct{}{}
		asking.Go(func() {
			defer func() { <-free }()
			a, err := c.ask(ctx, r, c.TraceWait)
			switch {
			case err != nil:
				all[i].why = err.Error()
			case a == nil:
				all[i].why = "its agent has not answered: look at its log"
			case a.Error != "":
				all[i].why = a.Error
			}
			all[i].answer = a
		})
	}
	asking.Wait()
	return all
}

func (h *countedHost) accept(a *flow.CountersAnswer) {
	h.answer = *a
	h.Since, h.Left, h.Unsettled = a.Since, a.Left, a.Unsettled
}

// sumDrops adds up the counters of hosts.
func sumDrops(snap *records.Snap, counted []countedHost) []operator.Drop {
	type reason struct{ plane, port, direction, device, code, chain, rule string }
	sums := map[reason]*operator.Drop{}
	for _, h := range counted {
		for _, x := range h.answer.Counters {
			by := reason{h.Plane, x.PortID, x.Direction, x.Device, x.Code.String(), x.Chain, x.Rule}
			d := sums[by]
			if d == nil {
				d = &operator.Drop{Counter: x, Plane: h.Plane}
				d.Packets, d.Bytes = 0, 0
				if x.PortID != "" {
					d.Port = &flow.Object{Kind: "port", ID: x.PortID}
					explain.NameObject(snap, d.Port, "")
				}
				sums[by] = d
			}
			d.Packets, d.Bytes, d.Hosts = d.Packets+x.Packets, d.Bytes+x.Bytes, append(d.Hosts, h.Name)
		}
	}
	all := make([]operator.Drop, 0, len(sums))
	for _, d := range sums {
		all = append(all, *d)
	}
	slices.SortFunc(all, func(a, b operator.Drop) int {
		return cmp.Or(-cmp.Compare(a.Packets, b.Packets), cmp.Compare(a.PortID, b.PortID), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Device, b.Device),
			cmp.Compare(a.Chain, b.Chain), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Direction, b.Direction))
	})
	return all
}

// unusedRules answers with the rules of security groups by which no packet was let pass.
func (c *console) unusedRules(r *http.Request) (operator.UnusedRules, error) {
	snap, err := c.DB.View(r.Context())
	if err != nil {
		return operator.UnusedRules{}, err
	}
	agents, err := c.countingAgents(snap, "")
	if err != nil {
		return operator.UnusedRules{}, err
	}
	counted := c.askCounters(r.Context(), snap, agents, flow.CountersRequest{Rules: true})
	used, busy := map[string]bool{}, map[flow.PortAsked]bool{}
	for _, h := range counted {
		for _, x := range h.answer.Counters {
			if x.Object != nil && x.Object.Kind == "security-group-rule" {
				used[x.Object.ID] = true
			}
		}
		for _, p := range h.answer.Asked {
			busy[p] = true
		}
	}
	return operator.UnusedRules{Rules: append(unused(snap, used, busy), unmatched(counted)...), Hosts: asked(counted)}, nil
}

// unmatched returns the rules of policies and profiles that no packet has matched on any host, by
// the names of these. Those of security groups' profiles are none: a group has its own rules.
func unmatched(counted []countedHost) (all []operator.UnusedRule) {
	type list struct{ kind, id, direction string }
	type rule struct {
		list
		id string
	}
	matched, sums := map[list]bool{}, map[rule]uint64{}
	for _, h := range counted {
		for _, x := range h.answer.Counters {
			if o := x.Object; h.Plane == planePolicy && o != nil && o.Group != nil && !explain.OfSecurityGroup(o.Group) {
				of := list{o.Group.Kind, o.Group.ID, x.Direction}
				sums[rule{of, o.ID}] += x.Packets
				matched[of] = matched[of] || x.Packets > 0
			}
		}
	}
	for r, packets := range sums {
		if packets == 0 {
			all = append(all, operator.UnusedRule{Group: flow.Object{Kind: r.kind, ID: r.list.id}, Rule: r.id, Text: r.kind + " " + r.list.id, Asked: matched[r.list]})
		}
	}
	slices.SortFunc(all, func(a, b operator.UnusedRule) int {
		return cmp.Or(cmp.Compare(a.Text, b.Text), cmp.Compare(a.Rule, b.Rule))
	})
	return all
}

// unused returns the rules of security groups but for those that were used, by the names of groups.
// busy has the ports to whose rules packets have come.
func unused(snap *records.Snap, used map[string]bool, busy map[flow.PortAsked]bool) []operator.UnusedRule {
	all := []operator.UnusedRule{}
	for g := range schema.SecurityGroups.All(snap) {
		ports, directions := 0, map[string]bool{}
		for p := range schema.Ports.By(snap, "security_group", g.ID) {
			ports++
			for _, d := range []string{flow.Egress, flow.Ingress} {
				directions[d] = directions[d] || busy[flow.PortAsked{PortID: p.ID, Direction: d}]
			}
		}
		for i := range g.Rules {
			if x := &g.Rules[i]; !used[x.ID] {
				all = append(all, operator.UnusedRule{Group: flow.Object{Kind: "security-group", ID: g.ID, Name: g.Name}, Rule: x.ID,
					Text: explain.RuleText(x), Asked: directions[x.Direction], Ports: ports})
			}
		}
	}
	slices.SortFunc(all, func(a, b operator.UnusedRule) int {
		return cmp.Or(cmp.Compare(a.Group.Name, b.Group.Name), cmp.Compare(a.Group.ID, b.Group.ID), cmp.Compare(a.Text, b.Text), cmp.Compare(a.Rule, b.Rule))
	})
	return all
}
