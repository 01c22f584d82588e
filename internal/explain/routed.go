package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"

	"heddle/calico"
	"heddle/internal/api/operator"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/policy"
	"heddle/internal/policy/judge"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// Sources are those of an answer beside the records of a snapshot.
type Sources struct {
	Ask Ask // agents; nil: none answers
	// Calico returns the snapshot that has Calico's objects. Without it, or with nil from it, there
	// are no routed hosts.
	Calico func(context.Context) (*snapshot.Snapshot, error)
}

// site is an end of a question that may be on a routed host.
type site struct {
	end                       // of a virtual network, or outside, without an endpoint
	endpoint *policy.Endpoint // on a routed host
}

func (s *site) routed() bool { return s.endpoint != nil }

// isHost reports whether the end is a host itself.
func (s *site) isHost() bool { return s.routed() && s.endpoint.Own != nil }

// routing is a question of which an end at least is on a routed host.
type routing struct {
	*inquiry
	fleet    *policy.Fleet
	from, to site
}

// crosses reports whether one end is a port of a virtual network.
func (r *routing) crosses() bool {
	return r.from.routed() != r.to.routed() && (r.from.routed() || r.from.port != nil) && (r.to.routed() || r.to.port != nil)
}

// findSites finds the ends of a question; nil if neither is on a routed host.
func (w *World) findSites(ctx context.Context, snap *records.Snap, caller neutron.Caller, q *operator.WhyRequest, src Sources) (*routing, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &routing{inquiry: &inquiry{world: w.world, snap: snap, caller: caller, reply: q.Reply}}
	find := siteFinder{finder: finder{snap, caller}, fleet: func() (*policy.Fleet, error) { return w.syncFleet(ctx, snap, src) }}
	var err error
	if r.from, err = find.find("from", q.From); err != nil {
		return nil, err
	}
	if r.to, err = find.find("to", q.To); err != nil {
		return nil, err
	}
	if !r.from.routed() && !r.to.routed() {
		return nil, nil
	}
	r.fleet = w.fleet
	return r, r.prepare(q)
}

// prepare reads the service of a question, and chooses the ends' addresses.
func (r *routing) prepare(q *operator.WhyRequest) error {
	if q.Live || q.Dropped {
		return fault("live", Unfit, "routed hosts wait for no packets: ask without live and dropped, or look at heddle drops")
	}
	s, err := readService(q)
	if err != nil {
		return err
	}
	if err := r.settleSites(); err != nil {
		return err
	}
	r.service = s.ofVersion(r.to.address)
	for field, site := range map[string]*site{"from": &r.from, "to": &r.to} {
		if err := checkEnd(r.snap, field, site.end); !site.routed() && err != nil {
			return err
		}
	}
	return nil
}

// syncFleet brings what routed hosts decide to a snapshot; nil if there are none.
func (w *World) syncFleet(ctx context.Context, snap *records.Snap, src Sources) (*policy.Fleet, error) {
	if src.Calico == nil {
		return nil, nil
	}
	objects, err := src.Calico(ctx)
	if err != nil || objects == nil {
		return nil, err
	}
	if w.fleet == nil {
		w.fleet = policy.NewFleet()
	}
	if w.fleetAt != objects {
		w.fleet.Sync(calicoObjects(objects))
		w.fleetAt = objects
	}
	if w.exemptAt == nil || !w.exemptAt.Same(snap) {
		w.fleet.SetExempt(exemptIn(snap))
		w.exemptAt = snap
	}
	return w.fleet, nil
}

func calicoObjects(snap *snapshot.Snapshot) iter.Seq[*schema.CalicoObject] {
	return func(yield func(*schema.CalicoObject) bool) {
		for e := range snap.All(schema.CalicoTable) {
			if !yield(e.Record.(*schema.CalicoObject)) {
				return
			}
		}
	}
}

// siteFinder finds ends for a caller, on routed hosts also.
type siteFinder struct {
	finder
	fleet func() (*policy.Fleet, error)
}

// find finds an end. What is no port of Neutron's is looked for among the endpoints on routed
// hosts, for administrators alone.
func (x siteFinder) find(field, text string) (site, error) {
	e, err := x.findEnd(field, text)
	var wrong *Fault
	missing := errors.As(err, &wrong) && wrong.Kind == Missing
	switch {
	case err != nil && !missing:
		return site{}, err
	case e.port != nil && !isRouted(x.snap, e.port), (missing || e.port == nil) && !x.caller.Admin():
		return site{end: e}, err
	}
	fleet, ferr := x.fleet()
	switch {
	case ferr != nil:
		return site{}, ferr
	case e.port != nil:
		return x.ofPort(field, fleet, e)
	case fleet == nil:
		return site{end: e}, err
	case missing:
		return only(field, text, fleet.Named(text), nil, site{}, err)
	}
	own, floating := fleet.At(e.address)
	return only(field, text, own, floating, site{end: e}, nil)
}

// only returns the only endpoint of those that are called what a question names, or else what is
// given.
func only(field, text string, own, floating []policy.Endpoint, none site, err error) (site, error) {
	if len(own) == 0 {
		own = floating
	}
	switch len(own) {
	case 0:
		return none, err
	case 1:
		return site{end: none.end, endpoint: &own[0]}, nil
	}
	var keys []string
	for _, e := range own[:min(len(own), 5)] {
		keys = append(keys, e.Name())
	}
	return site{}, fault(field, Ambiguous, "%d endpoints are called %s: give one with more of its key, such as %s", len(own), text, strings.Join(keys, ", "))
}

// isRouted reports whether a port is on a routed network.
func isRouted(snap *records.Snap, p *neutron.Port) bool {
	n, ok := schema.Networks.Peek(snap, p.NetworkID)
	return ok && n.Routed()
}

// ofPort returns the endpoint of a port on a routed network.
func (x siteFinder) ofPort(field string, fleet *policy.Fleet, e end) (site, error) {
	n, _ := schema.Networks.Peek(x.snap, e.port.NetworkID)
	if !translate.HasEndpoint(e.port, n) {
		return site{}, fault(field, Unfit, "port %s is not bound to a host, or is no machine's: set its binding:host_id", e.port.ID)
	}
	if fleet != nil {
		if endpoint, ok := fleet.Workload(translate.EndpointKey(e.port)); ok {
			return site{end: e, endpoint: &endpoint}, nil
		}
	}
	return site{}, fault(field, Unfit, "port %s has no valid endpoint in the store yet: ask again, then look at the server's log", e.port.ID)
}

// settleSites gives both ends addresses of one version: IPv4 if both have it and none was asked
// for.
func (r *routing) settleSites() error {
	want := cmp.Or(r.from.address, r.to.address)
	for _, is4 := range []bool{true, false} {
		if want.IsValid() && want.Is4() != is4 {
			continue
		}
		a, b := r.from.addressIn(is4), r.to.addressIn(is4)
		if !a.IsValid() || !b.IsValid() {
			continue
		}
		for s, address := range map[*site]netip.Addr{&r.from: a, &r.to: b} {
			s.address = address
			if own, _ := s.addresses(is4); len(own) > 0 && !slices.Contains(own, address) {
				s.fixed = own[0] // the address is a floating one
			} else if !s.fixed.IsValid() {
				s.fixed = address
			}
		}
		if r.from.routed() {
			r.from.address = r.from.fixed // hosts translate no sources to floating addresses
		}
		return nil
	}
	return fault("to", Unfit, "the two have no addresses of one version of IP; of a host endpoint those count that it expects")
}

// addresses returns the addresses of an endpoint of a version of IP.
func (s *site) addresses(is4 bool) (own, floating []netip.Addr) {
	if !s.routed() {
		return nil, nil
	}
	of := func(all []netip.Addr) (some []netip.Addr) {
		for _, a := range all {
			if a.Is4() == is4 {
				some = append(some, a)
			}
		}
		return some
	}
	own, floating = s.endpoint.Addresses()
	return of(own), of(floating)
}

// addressIn returns the end's address of a version of IP, invalid if it has none.
func (s *site) addressIn(is4 bool) netip.Addr {
	if !s.routed() || s.address.IsValid() {
		return s.addressOf(is4)
	}
	if own, _ := s.addresses(is4); len(own) > 0 {
		return own[0]
	}
	return netip.Addr{}
}

// exemptIn reports whether an interface of a host is that of a port of a virtual network.
func exemptIn(snap *records.Snap) func(host, name string) bool {
	return func(host, name string) bool {
		h, err := schema.HostByName(snap, host)
		if err != nil {
			return false
		}
		for p := range schema.Ports.By(snap, "interface", schema.PortInterface(h.ID, name)) {
			if !isRouted(snap, p) {
				return true
			}
		}
		return false
	}
}

// hop is a packet on one host, and the host.
type hop struct {
	host   string
	packet judge.Packet
}

// hops returns the packet on each host that it passes, the first one first. The source that other
// hosts see may be another than the first one's.
func (r *routing) hops(from, to *site, p judge.Packet) (all []hop) {
	on := func(host string, from, to judge.Place) {
		p.From, p.To = from, to
		all = append(all, hop{host, p})
	}
	switch {
	case from.routed() && to.routed() && from.endpoint.Host == to.endpoint.Host:
		on(from.endpoint.Host, inside(from), inside(to))
		return all
	case from.routed():
		host := from.endpoint.Host
		on(host, inside(from), r.uplink(host, from))
		p.Src = r.fleet.Masqueraded(host, p.Src, p.Dst)
	}
	if to.routed() {
		on(to.endpoint.Host, r.uplink(to.endpoint.Host, to), inside(to))
	}
	return all
}

// inside returns the place of an end on its host.
func inside(s *site) judge.Place {
	if s.isHost() {
		return judge.LocalHost()
	}
	return judge.AtWorkload(s.endpoint.Workload.Key)
}

// uplink returns the place by which a host reaches others. Of a host endpoint it is its interface.
func (r *routing) uplink(host string, s *site) judge.Place {
	if s.isHost() {
		return judge.AtHost(s.endpoint.Own.Key)
	}
	place, _ := r.fleet.Uplink(host)
	return place
}

// template returns the first packet of the question, or the one that answers it.
func (r *routing) template(from, to *site, reply bool) judge.Packet {
	s := r.service
	p := judge.Packet{Src: from.source(), Dst: to.address, Protocol: calico.Protocol(s.proto), SrcPort: s.from, DstPort: s.port}
	if reply {
		p.Src, p.SrcPort, p.DstPort, p.State = from.fixed, s.port, s.from, judge.Established
	}
	if s.isEcho() {
		p.SrcPort, p.DstPort, p.ICMPType = 0, 0, echoType(s.proto, reply)
	}
	if from.routed() && from.endpoint.Workload != nil {
		p.SrcMAC = from.endpoint.Workload.Endpoint.MAC
	}
	return p
}

func echoType(proto uint8, reply bool) uint8 {
	switch {
	case proto == packet.ProtoICMP && reply:
		return 0
	case proto == packet.ProtoICMP:
		return 8
	case reply:
		return 129
	}
	return 128
}

// source returns the address with which the end's own packets begin their way.
func (s *site) source() netip.Addr {
	if s.routed() {
		return s.fixed
	}
	return s.end.source()
}

// routedLeg is one direction on routed hosts, as their agents decide.
type routedLeg struct {
	operator.WhyLeg
	failed    *hop // that denies; nil: none
	verdict   judge.Verdict
	untracked bool // no host has made a connection of the packet
}

// walk follows a packet over the hosts that it passes.
func (r *routing) walk(from, to *site, p judge.Packet) *routedLeg {
	l := &routedLeg{WhyLeg: operator.WhyLeg{Allowed: true, Trace: flow.TraceAnswer{Verdict: flow.Forward.String(), Walk: []flow.Step{}}}}
	for _, h := range r.hops(from, to, p) {
		v := r.fleet.Judge(h.host, h.packet)
		if why := r.unserved(&h, from, to); v.Allowed && why != "" || v.Code == flow.CodeBadObject && why != "" && v.Decider == (judge.Decider{}) {
			v.Allowed, v.Code, v.By = false, flow.CodeBadObject, why
		}
		l.verdict = v
		l.untracked = l.untracked || v.Untracked
		l.add(r.snap, &h, &v)
		if !v.Allowed {
			l.failed, l.Allowed = &h, false
			l.Reason = "on host " + h.host + ": " + v.By
			l.Trace.Verdict, l.Trace.Device, l.Trace.Code, l.Trace.Reason = flow.Drop.String(), h.host, v.Code, v.By
			return l
		}
		if _, known := r.fleet.Uplink(h.host); !known {
			l.Trace.Walk = append(l.Trace.Walk, flow.Step{Device: h.host, Kind: flow.StepRoute,
				Text: "several host endpoints are here, and none expects the host's address in the store: taken for an interface that none of them governs"})
		}
	}
	l.Reason = "arrives at " + r.nameOf(to)
	if to.port != nil {
		l.Port = to.port.ID
	}
	if !to.routed() {
		l.Reason = "leaves the routed hosts for " + to.address.String()
	}
	return l
}

// unserved returns why a host has no interface, or no route, for an end that is on it; "": it has.
func (r *routing) unserved(h *hop, from, to *site) string {
	for _, s := range []*site{from, to} {
		if !s.routed() || s.isHost() || s.endpoint.Host != h.host {
			continue
		}
		if why := r.fleet.Refused(s.endpoint.Workload.Key, s.address); why != "" {
			return "endpoint " + s.endpoint.Name() + ": " + why
		}
	}
	return ""
}

// add adds what a host has held a packet against.
func (l *routedLeg) add(snap *records.Snap, h *hop, v *judge.Verdict) {
	t := &l.Trace
	for _, s := range v.Walk {
		step := flow.Step{Device: h.host, Kind: flow.StepFilter, Text: s.Where + ": " + s.What}
		if s.Rule != 0 {
			step.Object = ruleObject(snap, judge.Decider{List: s.List, Rule: s.Rule})
		}
		t.Walk = append(t.Walk, step)
	}
	if o := ruleObject(snap, v.Decider); o != nil {
		l.By = append(l.By, *o)
	}
	if !v.Allowed {
		t.Walk = append(t.Walk, flow.Step{Device: h.host, Kind: flow.StepDrop, Code: v.Code, Text: v.By, Object: ruleObject(snap, v.Decider)})
	}
}

// ruleObject returns what has decided as a user's object: the rule of a policy or of a profile, a
// tier, or the list that is missing; nil: none of these. A profile of Neutron's is the security
// group that it was made of.
func ruleObject(snap *records.Snap, d judge.Decider) *flow.Object {
	var whole flow.Object
	switch {
	case d.Tier != "":
		return &flow.Object{Kind: "tier", ID: d.Tier}
	case d.List.Name == "":
		return nil
	case d.List.Tier != "":
		whole = flow.Object{Kind: "policy", ID: d.List.Tier + "/" + d.List.Name}
	default:
		whole = flow.Object{Kind: "profile", ID: d.List.Name}
		if id, of := strings.CutPrefix(d.List.Name, translate.ProfilePrefix); of {
			if g, ok := schema.SecurityGroups.Peek(snap, id); ok {
				whole = flow.Object{Kind: "security-group", ID: id, Name: g.Name}
			}
		}
	}
	if d.Rule == 0 {
		return &whole
	}
	return &flow.Object{Kind: whole.Kind + "-rule", ID: fmt.Sprintf("%s/%d", d.List.Direction, d.Rule), Group: &whole}
}

// nameOf names an end for people.
func (r *routing) nameOf(s *site) string {
	switch {
	case s.port != nil:
		return "port " + s.port.ID
	case s.isHost():
		return "host " + s.endpoint.Host
	case s.routed():
		return "endpoint " + s.endpoint.Name()
	}
	return s.address.String()
}

// describe describes an end.
func (r *routing) describe(s *site) operator.WhyEnd {
	d := describeEnd(r.snap, s.end)
	if s.routed() {
		d.Endpoint, d.Host = s.endpoint.Path(), s.endpoint.Host
		if s.port == nil {
			d.Name = s.endpoint.Name()
		}
	}
	return d
}

// whyRouted answers a question between routed hosts, or between one and what is outside.
func (w *World) whyRouted(r *routing) *operator.WhyAnswer {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := r.blank()
	there, back := r.legs()
	a.There = there.WhyLeg
	if back != nil {
		a.Back = &back.WhyLeg
	}
	if failed := firstRefused(there, back); failed != nil && !r.reply {
		a.Remedies = append(a.Remedies, r.remedies(failed)...)
	}
	r.conclude(a)
	return a
}

// blank returns an answer without what becomes of the packets.
func (r *routing) blank() *operator.WhyAnswer {
	return &operator.WhyAnswer{Verdict: operator.Denied, Revision: r.snap.Revision(), From: r.describe(&r.from), To: r.describe(&r.to),
		Service: r.service.String(), Remedies: []operator.Remedy{}}
}

// conclude gives an answer its verdict, and conceals what its caller may not know.
func (r *routing) conclude(a *operator.WhyAnswer) {
	passes := func(l *operator.WhyLeg) bool { return l.Allowed && (l.Rest == nil || l.Rest.Allowed) }
	switch {
	case !passes(&a.There):
	case a.Back == nil || passes(a.Back):
		a.Verdict = operator.Allowed
	default:
		a.Verdict = operator.OneWay
	}
	if !r.caller.Admin() {
		r.conceal(a)
	}
}

// legs follows the first packet, and the one that answers it.
func (r *routing) legs() (there, back *routedLeg) {
	first := r.template(&r.from, &r.to, false)
	if r.reply {
		first.State = judge.Established
	}
	there = r.walk(&r.from, &r.to, first)
	if !there.Allowed {
		return there, nil
	}
	answer := r.template(&r.to, &r.from, true)
	if there.untracked {
		answer.State = judge.New // of a packet that is not tracked there is no connection
	}
	return there, r.walk(&r.to, &r.from, answer)
}

// firstRefused returns the direction that does not pass; nil if both do.
func firstRefused(there, back *routedLeg) *routedLeg {
	switch {
	case !there.Allowed:
		return there
	case back != nil && !back.Allowed:
		return back
	}
	return nil
}
