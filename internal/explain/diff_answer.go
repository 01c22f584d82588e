package explain

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/reach"
)

// fates are those of services, the best one last.
var fates = [...]operator.Fate{operator.FateNever, operator.FateOneWay, operator.FateMay, operator.FateAlways}

// fateSets has services by their fates. Those of the first, of which nothing arrives, are what is
// in none of the others: its set stays empty.
type fateSets [len(fates)]reach.Services

// fatesOf returns the services of some answers by the best of their fates.
func fatesOf(answers ...*reach.Answer) (f fateSets) {
	for _, a := range answers {
		for i, s := range []*reach.Services{&a.OneWay, &a.May, &a.Always} {
			f[i+1] = f[i+1].And(s)
		}
	}
	for i := range f {
		for _, better := range f[i+1:] {
			f[i] = f[i].Minus(&better)
		}
	}
	return f
}

// arriving returns the services of which anything arrives.
func (f *fateSets) arriving() (all reach.Services) {
	for i := range f {
		all = all.And(&f[i])
	}
	return all
}

// fateChange is some services whose fate differs; both fates are numbers in fates.
type fateChange struct {
	before, after int
	services      reach.Services
}

// changesOf returns the services that have another fate afterwards.
func changesOf(before, after fateSets) (all []fateChange) {
	arrived, arrives := before.arriving(), after.arriving()
	for i := range before {
		for j := range after {
			var s reach.Services
			switch {
			case i == j:
				continue
			case i == 0:
				s = after[j].Minus(&arrived)
			case j == 0:
				s = before[i].Minus(&arrives)
			default:
				others := before[i].Minus(&after[j])
				s = before[i].Minus(&others)
			}
			if !s.IsEmpty() {
				all = append(all, fateChange{i, j, s})
			}
		}
	}
	return all
}

// changedEnds is one end of connections whose fate differs: some machines, or addresses outside.
type changedEnds struct {
	ids     []string // in order
	outside []operator.AddressRange
}

// key returns a text that is the same for the same ends alone.
func (e *changedEnds) key() string {
	text := strings.Join(e.ids, " ")
	for _, r := range e.outside {
		text += "\n" + r.First.String() + "-" + r.Last.String()
	}
	return text
}

// finding is some services whose connections between two ends have another fate.
type finding struct {
	version int // 0: IPv4
	fateChange
	from, to changedEnds
	pairs    int
	example  [2]operator.WhyEnd // the first pair
}

// key returns a text that is the same for findings of the same services.
func (f *finding) key() string {
	return string(rune('0'+f.version)) + string(fates[f.before]+fates[f.after]) + f.services.Key()
}

// findings compares the answers of both sides.
func (c *comparison) findings() (all []finding) {
	for i := range c.pairs {
		q := &c.pairs[i]
		if sameAnswer(&q.answers[0], &q.answers[1]) {
			continue
		}
		one, other := q.ends()
		for _, change := range changesOf(fatesOf(&q.answers[0]), fatesOf(&q.answers[1])) {
			all = append(all, finding{version: q.version, fateChange: change, from: changedEnds{ids: q.from.ids}, to: changedEnds{ids: q.to.ids}, pairs: q.size(),
				example: [2]operator.WhyEnd{c.end(one, q.version), c.end(other, q.version)}})
		}
	}
	for i := range c.outsides {
		all = append(all, c.outsideFindings(&c.outsides[i])...)
	}
	return all
}

func sameAnswer(a, b *reach.Answer) bool {
	return a.Always.Equal(&b.Always) && a.May.Equal(&b.May) && a.OneWay.Equal(&b.OneWay)
}

// end describes a machine by its first address of a version of IP, as it is afterwards if it still
// is there.
func (c *comparison) end(id string, version int) operator.WhyEnd {
	p := c.port(id)
	e := operator.WhyEnd{Port: id, Name: p.Name}
	for _, f := range p.FixedIPs {
		if f.IPAddress.Is4() == (version == 0) {
			e.Address = f.IPAddress
			break
		}
	}
	return e
}

// port returns a machine's port, as it is afterwards if it still is there.
func (c *comparison) port(id string) *neutron.Port {
	if p := c.sides[1].roster.machines[id]; p != nil {
		return p
	}
	return c.sides[0].roster.machines[id]
}

// outsideFindings compares the answers of a question about outside, for each range of addresses for
// which both stand.
func (c *comparison) outsideFindings(q *outsideQuestion) (all []finding) {
	var owns []netip.Addr
	for _, answers := range q.answers {
		for own := range answers {
			if !slices.Contains(owns, own) {
				owns = append(owns, own)
			}
		}
	}
	slices.SortFunc(owns, netip.Addr.Compare)
	for _, own := range owns {
		found := map[string]int{}
		for _, r := range rangesWithin(q.answers[0][own], q.answers[1][own]) {
			before, after := fatesAt(q.answers[0][own], r.First), fatesAt(q.answers[1][own], r.First)
			for _, change := range changesOf(before, after) {
				f := c.outsideFinding(q, own, r, change)
				if i, known := found[f.key()]; known {
					all[i].addOutside(q.inbound, r)
					continue
				}
				found[f.key()] = len(all)
				all = append(all, f)
			}
		}
	}
	return all
}

// outsideFinding is a change between machines and a range of addresses outside.
func (c *comparison) outsideFinding(q *outsideQuestion, own netip.Addr, r operator.AddressRange, change fateChange) finding {
	f := finding{fateChange: change, from: changedEnds{ids: q.ids}, to: changedEnds{outside: []operator.AddressRange{r}}, pairs: len(q.ids)}
	if own.Is6() {
		f.version = 1
	}
	machine := c.end(q.ids[0], f.version)
	machine.Address = own
	outside := operator.WhyEnd{Address: r.First}
	if r.First.Compare(someOutside) <= 0 && someOutside.Compare(r.Last) <= 0 {
		outside.Address = someOutside
	}
	f.example = [2]operator.WhyEnd{machine, outside}
	if q.inbound {
		f.from, f.to = f.to, f.from
		f.example[0], f.example[1] = f.example[1], f.example[0]
	}
	return f
}

// addOutside adds a range of addresses outside.
func (f *finding) addOutside(inbound bool, r operator.AddressRange) {
	e := &f.to
	if inbound {
		e = &f.from
	}
	e.outside = joinRanges(append(e.outside, r))
}

// rangesWithin returns the ranges of addresses for which no answer of two lists begins or ends.
func rangesWithin(lists ...[]reach.OutsideAnswer) (all []operator.AddressRange) {
	var bounds []netip.Addr // the first addresses of ranges
	var last netip.Addr
	for _, list := range lists {
		for i := range list {
			bounds = append(bounds, list[i].First)
			if next := list[i].Last.Next(); next.IsValid() {
				bounds = append(bounds, next)
			}
			if !last.IsValid() || last.Less(list[i].Last) {
				last = list[i].Last
			}
		}
	}
	slices.SortFunc(bounds, netip.Addr.Compare)
	bounds = slices.Compact(bounds)
	for i, first := range bounds {
		r := operator.AddressRange{First: first, Last: last}
		if i+1 < len(bounds) {
			r.Last = bounds[i+1].Prev()
		}
		if first.Compare(last) <= 0 {
			all = append(all, r)
		}
	}
	return all
}

// fatesAt returns what answers say of an address outside. Several say something of it if packets
// come in by several LANs.
func fatesAt(list []reach.OutsideAnswer, a netip.Addr) fateSets {
	var of []*reach.Answer
	for i := range list {
		if list[i].First.Compare(a) <= 0 && a.Compare(list[i].Last) <= 0 {
			of = append(of, &list[i].Answer)
		}
	}
	return fatesOf(of...)
}

// answer puts what was found into words.
func (c *comparison) answer(asker netip.Addr) *operator.DiffAnswer {
	a := &operator.DiffAnswer{PairsOmitted: c.omitted, Lost: []operator.ReachChange{}, Gained: []operator.ReachChange{}, Warnings: []operator.DiffWarning{}}
	found := merged(c.findings())
	a.Cuts = c.cuts(found)
	for _, f := range found {
		row := c.row(&f)
		if f.after > f.before {
			a.Gained = append(a.Gained, row)
		} else {
			a.Lost = append(a.Lost, row)
		}
	}
	for _, rows := range [][]operator.ReachChange{a.Gained, a.Lost} {
		slices.SortStableFunc(rows, compareRows)
	}
	c.warn(a, asker)
	return a
}

// compareRows orders changes: those about outside first, then those of most pairs.
func compareRows(a, b operator.ReachChange) int {
	inside := func(r *operator.ReachChange) int { return min(len(r.From.Ports), len(r.To.Ports), 1) }
	first := func(e *operator.ChangeEnds) string {
		if len(e.Ports) > 0 {
			return e.Ports[0].Name
		}
		return e.Text
	}
	return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(inside(&a), inside(&b)), cmp.Compare(b.Pairs, a.Pairs),
		cmp.Compare(first(&a.From), first(&b.From)), cmp.Compare(first(&a.To), first(&b.To)))
}

// merged makes one of findings about the same services: first of those with one and the same
// opener, then of those with the same other ends.
func merged(all []finding) []finding {
	byFrom := mergedBy(all, func(f *finding) (same, other *changedEnds) { return &f.from, &f.to })
	return mergedBy(byFrom, func(f *finding) (same, other *changedEnds) { return &f.to, &f.from })
}

func mergedBy(all []finding, sides func(*finding) (same, other *changedEnds)) (joined []finding) {
	at := map[string]int{}
	for _, f := range all {
		same, other := sides(&f)
		key := fmt.Sprint(f.key(), "|", same.key(), "|", len(other.outside) > 0)
		i, known := at[key]
		if !known {
			other.ids, other.outside = slices.Clone(other.ids), slices.Clone(other.outside)
			at[key] = len(joined)
			joined = append(joined, f)
			continue
		}
		_, had := sides(&joined[i])
		had.ids, had.outside = append(had.ids, other.ids...), append(had.outside, other.outside...)
		joined[i].pairs += f.pairs
	}
	for i := range joined {
		_, other := sides(&joined[i])
		slices.Sort(other.ids)
		other.ids, other.outside = slices.Compact(other.ids), joinRanges(other.outside)
	}
	return joined
}

// row puts a finding into words.
func (c *comparison) row(f *finding) operator.ReachChange {
	is4 := f.version == 0
	r := operator.ReachChange{Version: 6, Before: fates[f.before], After: fates[f.after], Services: rangesOf(&f.services, is4), From: c.ends(&f.from, f.version), To: c.ends(&f.to, f.version), Pairs: f.pairs}
	if is4 {
		r.Version = 4
	}
	e := faults{f.example[0], f.example[1], f.services}
	r.Example = operator.ChangeExample{From: e.from, To: e.to, Service: r.Services[0].Text, Why: traceFault(c.world.world, c.sides[1].snap, &e)}
	if r.Example.Why != nil {
		r.Example.Service = r.Example.Why.Service
	}
	return r
}

func (c *comparison) ends(e *changedEnds, version int) (all operator.ChangeEnds) {
	if len(e.outside) > 0 {
		return operator.ChangeEnds{Outside: e.outside, Text: addressesText(e.outside)}
	}
	for _, id := range e.ids {
		all.Ports = append(all.Ports, operator.ReachPort{Port: id, Name: c.port(id).Name, Address: c.end(id, version).Address, Groups: c.port(id).SecurityGroups})
	}
	slices.SortFunc(all.Ports, func(a, b operator.ReachPort) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Port, b.Port))
	})
	return all
}
