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
	"heddle/internal/neutron"
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
		port, err := findPort(snap, text)
		if err != nil {
			return operator.Drops{}, err
		}
		ask.PortID = port.ID
	}
	if text := query.Get("code"); text != "" {
		if ask.Code.UnmarshalText([]byte(text)) != nil || ask.Code == 0 {
			return operator.Drops{}, api.Errorf(http.StatusUnprocessableEntity, "code %q: want one of docs/codes.md, such as no-rule", text)
		}
	}
	hosts, err := overlayHosts(snap, query.Get("host"))
	if err != nil {
		return operator.Drops{}, err
	}
	counted := c.askCounters(r.Context(), snap, hosts, ask)
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

// findPort returns the port with an id, a name or an address.
func findPort(snap *records.Snap, text string) (*neutron.Port, error) {
	if p, ok := schema.Ports.Peek(snap, text); ok {
		return p, nil
	}
	var found []*neutron.Port
	for _, index := range []string{"name", "ip_address"} {
		if found = slices.Collect(schema.Ports.By(snap, index, text)); len(found) > 0 {
			break
		}
	}
	switch len(found) {
	case 0:
		return nil, api.Errorf(http.StatusNotFound, "port %s could not be found: give its id, its name or its address", text)
	case 1:
		return found[0], nil
	}
	return nil, api.Errorf(http.StatusConflict, "%d ports are called %s: give the id of one", len(found), text)
}

// overlayHosts returns the live hosts with virtual networks, or the one with a name or id, in the
// order of their names.
func overlayHosts(snap *records.Snap, name string) ([]*topology.Host, error) {
	isLive := func(h *topology.Host) bool {
		state, alive := schema.HostStates.Peek(snap, h.ID)
		return alive && slices.Contains(state.Roles, "overlay")
	}
	if name != "" {
		h, err := findHost(snap, name)
		if err != nil {
			return nil, err
		}
		if !isLive(h) {
			return nil, api.Errorf(http.StatusConflict, "host %s has no overlay agent that is alive, which alone has its counters: start it there", h.Name)
		}
		return []*topology.Host{h}, nil
	}
	var all []*topology.Host
	for h := range schema.Hosts.All(snap) {
		if isLive(h) {
			all = append(all, h)
		}
	}
	slices.SortFunc(all, func(a, b *topology.Host) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	return all, nil
}

// askCounters asks the agents of hosts for counters, in the order of the hosts.
func (c *console) askCounters(ctx context.Context, snap *records.Snap, hosts []*topology.Host, ask flow.CountersRequest) []countedHost {
	counted := make([]countedHost, len(hosts))
	free := make(chan struct{}, mostAsked)
	var asking sync.WaitGroup
	for i, h := range hosts {
		counted[i].Name = h.Name
		free <- struct{}{}
		asking.Go(func() {
			defer func() { <-free }()
			answer, err := c.ask(ctx, flow.TraceRequest{HostID: h.ID, Counters: &ask}, c.TraceWait)
			switch {
			case err != nil:
				counted[i].Error = err.Error()
			case answer == nil:
				counted[i].Error = "its agent has not answered: look at its log"
			case answer.Error != "":
				counted[i].Error = answer.Error
			case answer.Counters == nil:
				counted[i].Error = "its agent is of an earlier version: upgrade it"
			default:
				counted[i].accept(answer.Counters)
			}
		})
	}
	asking.Wait()
	for i := range counted {
		for j := range counted[i].answer.Counters {
			x := &counted[i].answer.Counters[j]
			explain.NameObject(snap, x.Object, x.Rule)
		}
	}
	return counted
}

func (h *countedHost) accept(a *flow.CountersAnswer) {
	h.answer = *a
	h.Since, h.Left, h.Unsettled = a.Since, a.Left, a.Unsettled
}

// sumDrops adds up the counters of hosts.
func sumDrops(snap *records.Snap, counted []countedHost) []operator.Drop {
	type reason struct{ port, direction, device, code, chain, rule string }
	sums := map[reason]*operator.Drop{}
	for _, h := range counted {
		for _, x := range h.answer.Counters {
			by := reason{x.PortID, x.Direction, x.Device, x.Code.String(), x.Chain, x.Rule}
			d := sums[by]
			if d == nil {
				d = &operator.Drop{Counter: x}
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
			cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Direction, b.Direction))
	})
	return all
}

// unusedRules answers with the rules of security groups by which no packet was let pass.
func (c *console) unusedRules(r *http.Request) (operator.UnusedRules, error) {
	snap, err := c.DB.View(r.Context())
	if err != nil {
		return operator.UnusedRules{}, err
	}
	hosts, err := overlayHosts(snap, "")
	if err != nil {
		return operator.UnusedRules{}, err
	}
	counted := c.askCounters(r.Context(), snap, hosts, flow.CountersRequest{Rules: true})
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
	return operator.UnusedRules{Rules: unused(snap, used, busy), Hosts: asked(counted)}, nil
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
