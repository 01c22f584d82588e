package explain

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/reach"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

// mostExamples bounds the breaches of a rule that are named.
const mostExamples = 5

// Assert holds the virtual network to rules about who reaches whom. An error is a [Fault].
func (w *World) Assert(ctx context.Context, snap *records.Snap, q *operator.AssertRequest) (*operator.AssertAnswer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.apply(snap)
	a := &operator.AssertAnswer{Revision: snap.Revision(), Results: []operator.AssertResult{}}
	var rules []*assertion
	for i := range q.Rules {
		x, err := w.newAssertion(ctx, snap, fmt.Sprintf("rules[%d]", i), &q.Rules[i])
		if err != nil {
			return nil, err
		}
		rules = append(rules, x)
	}
	for _, x := range rules {
		a.Results = append(a.Results, *x.check())
	}
	return a, late(ctx)
}

// assertion is one rule with what it is about.
type assertion struct {
	*survey
	never    bool // none reaches another but by services; else each does by all of them
	from, to selected
	services []operator.AssertService
	result   operator.AssertResult
}

// selected is the machines of a selection, or all addresses outside.
type selected struct {
	outside bool
	ports   []*neutron.Port
}

func (w *World) newAssertion(ctx context.Context, snap *records.Snap, field string, a *operator.Assertion) (*assertion, error) {
	x := &assertion{survey: &survey{world: w, snap: snap, roster: w.rosterOf(snap)}, never: a.Never != nil, result: operator.AssertResult{Examples: []operator.Breach{}}}
	x.asker = reach.NewAsker(ctx, w.world, x.roster.end)
	ends, way, list := a.Always, ".always", ".by"
	if x.never {
		ends, way, list = a.Never, ".never", ".but"
	}
	switch {
	case (a.Never == nil) == (a.Always == nil):
		return nil, fault(field, Invalid, "want either never or always, with from and to")
	case x.never && len(a.By) > 0:
		return nil, fault(field+".by", Invalid, "a rule with never has but, the services that may pass")
	case !x.never && len(a.But) > 0:
		return nil, fault(field+".but", Invalid, "a rule with always has by, the services that have to pass")
	case !x.never && len(a.By) == 0:
		return nil, fault(field+".by", Invalid, "want the services that have to pass")
	}
	x.services = slices.Concat(a.But, a.By)
	for i, s := range x.services {
		if err := checkService(fmt.Sprintf("%s%s[%d]", field, list, i), &s); err != nil {
			return nil, err
		}
	}
	var err error
	if x.from, err = x.choose(field+way+".from", ends.From); err != nil {
		return nil, err
	}
	if x.to, err = x.choose(field+way+".to", ends.To); err != nil {
		return nil, err
	}
	if x.from.outside && x.to.outside {
		return nil, fault(field+way, Invalid, "at least one end has to be in the virtual network")
	}
	return x, nil
}

func checkService(field string, s *operator.AssertService) error {
	n, ok := neutron.ProtocolNumber(s.Protocol)
	switch {
	case !ok || n == 0:
		return fault(field+".proto", Invalid, "%q is no protocol: want tcp, udp, icmp, another name that rules may have, or a number from 1 to 255", s.Protocol)
	case s.Port != 0 && !packet.HasPorts(uint8(n)):
		return fault(field+".port", Invalid, "%s has no ports", s.Protocol)
	case s.LastPort != 0 && (s.Port == 0 || s.LastPort < s.Port):
		return fault(field+".to_port", Invalid, "want a port from port on")
	}
	return nil
}

// choose finds the machines of a selection. One that names something without machines is empty.
func (x *assertion) choose(field string, s operator.Selection) (selected, error) {
	named := 0
	for _, text := range []string{s.Port, s.Group, s.Network, s.Project, s.Tag} {
		if text != "" {
			named++
		}
	}
	if s.Outside {
		named++
	}
	if named != 1 {
		return selected{}, fault(field, Invalid, `want "outside", or one of port, group, network, project and tag`)
	}
	var has func(p *neutron.Port) bool
	switch {
	case s.Outside:
		return selected{outside: true}, nil
	case s.Port != "":
		e, err := finder{x.snap, operators}.findEnd(field+".port", s.Port)
		if err != nil {
			return selected{}, err
		}
		if e.port == nil || x.roster.machines[e.port.ID] == nil {
			return selected{}, fault(field+".port", Unfit, "%s is no machine's port that is bound to a host, on a network with a virtual topology", s.Port)
		}
		return selected{ports: []*neutron.Port{e.port}}, nil
	case s.Group != "":
		id, err := oneNamed(field+".group", "security group", s.Group, schema.SecurityGroups, x.snap, func(g *neutron.SecurityGroup) string { return g.ID })
		if err != nil {
			return selected{}, err
		}
		has = func(p *neutron.Port) bool { return slices.Contains(p.SecurityGroups, id) }
	case s.Network != "":
		id, err := oneNamed(field+".network", "network", s.Network, schema.Networks, x.snap, func(n *neutron.Network) string { return n.ID })
		if err != nil {
			return selected{}, err
		}
		has = func(p *neutron.Port) bool { return p.NetworkID == id }
	case s.Project != "":
		has = func(p *neutron.Port) bool { return p.ProjectID == s.Project }
	default:
		has = func(p *neutron.Port) bool { return slices.Contains(p.Tags, s.Tag) }
	}
	var chosen selected
	for _, p := range x.roster.machines {
		if has(p) {
			chosen.ports = append(chosen.ports, p)
		}
	}
	slices.SortFunc(chosen.ports, func(a, b *neutron.Port) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return chosen, nil
}

// oneNamed returns the id of the object with an id or name.
func oneNamed[T any](field, kind, text string, table *records.Table[T], snap *records.Snap, id func(*T) string) (string, error) {
	if _, ok := table.Peek(snap, text); ok {
		return text, nil
	}
	named := slices.Collect(table.By(snap, "name", text))
	switch len(named) {
	case 0:
		return "", fault(field, Missing, "no %s has the id or name %q", kind, text)
	case 1:
		return id(named[0]), nil
	}
	return "", fault(field, Ambiguous, "%d %ss have the name %q: give an id", len(named), kind, text)
}

// check asks about all pairs that the rule is about.
func (x *assertion) check() *operator.AssertResult {
	switch {
	case x.from.outside:
		for _, p := range x.to.ports {
			x.checkOutside(p, func(s *survey) {
				s.to = &end{port: p}
				s.fromOutside()
			})
		}
	case x.to.outside:
		for _, p := range x.from.ports {
			x.checkOutside(p, func(s *survey) {
				s.from = &end{port: p}
				s.toOutside(x.roster.end(p.ID))
			})
		}
	default:
		x.checkPairs()
	}
	return &x.result
}

// checkPairs checks the pairs of machines, by each version of IP that both have. One by which the
// services have to pass is enough.
func (x *assertion) checkPairs() {
	ask := [2]func(from, to *neutron.Port) (faults, bool){x.asking(true), x.asking(false)}
	for _, p := range x.from.ports {
		for _, q := range x.to.ports {
			var wrong []faults
			versions := 0
			for _, a := range ask {
				if found, both := a(p, q); both {
					versions++
					if !found.services.IsEmpty() {
						wrong = append(wrong, found)
					}
				}
			}
			if versions == 0 || p.ID == q.ID {
				continue
			}
			x.result.Pairs++
			if len(wrong) == versions || x.never && len(wrong) > 0 {
				x.breach(&wrong[0])
			}
		}
	}
}

// faults is a pair of ends with the services that break the rule between them.
type faults struct {
	from, to operator.WhyEnd
	services reach.Services
}

// asking returns a function that asks about pairs of machines by a version of IP, once for each
// pair of classes. It reports whether both have that version.
func (x *assertion) asking(is4 bool) func(p, q *neutron.Port) (faults, bool) {
	class := map[string]int{}
	for i, ends := range x.roster.classes(is4) {
		for _, e := range ends {
			class[e.PortID] = i
		}
	}
	type pair struct{ from, to int }
	answers := map[pair]reach.Services{}
	return func(p, q *neutron.Port) (faults, bool) {
		i, has := class[p.ID]
		j, also := class[q.ID]
		if !has || !also || p.ID == q.ID {
			return faults{}, false
		}
		from, to := x.roster.end(p.ID), x.roster.end(q.ID)
		source, target := from.Address(is4), to.Address(is4)
		wrong, known := answers[pair{i, j}]
		if !known {
			a := x.asker.Ask(&reach.Question{From: from, Source: source, Target: target, To: to})
			wrong = x.wrong(&a, is4)
			answers[pair{i, j}] = wrong
		}
		return faults{operator.WhyEnd{Port: p.ID, Name: p.Name, Address: source}, operator.WhyEnd{Port: q.ID, Name: q.Name, Address: target}, wrong}, true
	}
}

// someOutside is an address outside to trace what reaches none (RFC 5737).
var someOutside = netip.AddrFrom4([4]byte{198, 51, 100, 1})

// checkOutside checks a port with all addresses outside: never means with any of them, always with
// some.
func (x *assertion) checkOutside(p *neutron.Port, ask func(s *survey)) {
	var wrong []faults
	fulfilled := false
	s := &survey{world: x.world, snap: x.snap, roster: x.roster, asker: x.asker, rows: map[string]*operator.Reach{}}
	pair := func(outside, own netip.Addr, services reach.Services) faults {
		f := faults{operator.WhyEnd{Port: p.ID, Name: p.Name, Address: own}, operator.WhyEnd{Address: outside}, services}
		if x.from.outside {
			f.from, f.to = f.to, f.from
		}
		return f
	}
	s.heard = func(a *reach.OutsideAnswer, own netip.Addr) {
		if services := x.wrong(&a.Answer, a.First.Is4()); services.IsEmpty() {
			fulfilled = true
		} else {
			wrong = append(wrong, pair(a.First, own, services))
		}
	}
	ask(s)
	x.result.Pairs++
	switch {
	case x.never && len(wrong) > 0:
		x.breach(&wrong[0])
	case !x.never && !fulfilled:
		if len(wrong) == 0 {
			wrong = append(wrong, pair(someOutside, x.roster.end(p.ID).Address(true), x.named(true)))
		}
		x.breach(&wrong[0])
	}
}

// wrong returns the services that break the rule.
func (x *assertion) wrong(a *reach.Answer, is4 bool) reach.Services {
	named := x.named(is4)
	if !x.never {
		return named.Minus(&a.Always)
	}
	arrives := a.Always.And(&a.May)
	arrives = arrives.And(&a.OneWay)
	return arrives.Minus(&named)
}

// breach counts a pair that breaks the rule, and traces the first.
func (x *assertion) breach(f *faults) {
	x.result.Breaches++
	if len(x.result.Examples) == mostExamples {
		return
	}
	b := operator.Breach{From: f.from, To: f.to, Services: rangesOf(&f.services, f.from.Address.Is4())}
	if len(x.result.Examples) == 0 {
		b.Why = traceFault(x.world.world, x.snap, f)
	}
	x.result.Examples = append(x.result.Examples, b)
}

// named returns the services of the rule for a version of IP.
func (x *assertion) named(is4 bool) reach.Services {
	var ranges []reach.Range
	for _, s := range x.services {
		n, _ := neutron.ProtocolNumber(s.Protocol)
		r := reach.Range{Proto: service{proto: uint8(n)}.ofFamily(is4).proto, High: 0xffff}
		if s.Port != 0 {
			r.Low, r.High = s.Port, max(s.Port, s.LastPort)
		}
		ranges = append(ranges, r)
	}
	return reach.Of(ranges...)
}

// traceFault explains one of the services between two ends, nil if no question can be asked about
// any.
func traceFault(world *simulate.World, snap *records.Snap, f *faults) *operator.WhyAnswer {
	q := operator.WhyRequest{From: f.from.Address.String(), To: f.to.Address.String()}
	if f.from.Port != "" {
		q.From = f.from.Port
	}
	if f.from.Port != "" && f.to.Port != "" {
		q.To = f.to.Port
	}
	for _, s := range []struct {
		protocol string
		proto    uint8
	}{{"tcp", packet.ProtoTCP}, {"udp", packet.ProtoUDP}} {
		if port, ok := f.services.First(s.proto); ok {
			q.Protocol, q.Port = s.protocol, max(port, 1)
			break
		}
	}
	i, err := newInquiry(world, snap, operators, &q)
	if err != nil {
		return nil
	}
	return i.answer(i.legs())
}
