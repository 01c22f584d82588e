package simulate

import (
	"cmp"
	"fmt"
	"slices"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// mirror sends copies of packets out of a port (midonet-simulation §12).
type mirror struct {
	object
	claims claims[topology.Mirror]
	def    *topology.Mirror // nil while it is only referred to
	to     *port
	// match has its conditions as rules, and as its ports those that the mirror is attached to.
	match chain
}

// attachment is one entry of a mirror at a port.
type attachment struct {
	mirror *mirror
	owner  topology.Owner
	entry  *topology.MirrorEntry
}

// attachments are the mirrors at a port by their position, ordered by mirror and owner.
type attachments struct{ postIn, preOut []attachment }

func (a *attachments) at(position topology.MirrorPosition) *[]attachment {
	if position == topology.PostInFilter {
		return &a.postIn
	}
	return &a.preOut
}

type mirrorEntryKey struct {
	port, mirror string
	position     topology.MirrorPosition
}

func entryOfMirror(e *topology.MirrorEntry) mirrorEntryKey {
	return mirrorEntryKey{e.PortID, e.MirrorID, e.Position}
}

// linkMirror follows a mirror's definition.
func (w *World) linkMirror(m *mirror) {
	def := m.claims.top()
	if def == m.def {
		return
	}
	w.touchChain(&m.match)
	gone, to := m.match.rules, m.to
	m.def, m.to, m.match.rules = def, nil, nil
	if def != nil {
		m.to = hold(w.ports, def.ToPortID)
		for i := range def.Conditions {
			r := &rule{order: order{index: i}}
			w.compileRule(&m.match, &topology.Rule{Type: topology.Literal, Action: topology.Accept, Condition: &def.Conditions[i]}, r)
			m.match.rules = append(m.match.rules, r)
		}
	}
	for _, r := range gone {
		w.releaseRule(&m.match, r)
	}
	if to != nil {
		release(w.ports, to)
	}
}

// setMirrorEntry replaces one owner's entry of a mirror at a port; either may be nil.
func (w *World) setMirrorEntry(owner topology.Owner, before, after *topology.MirrorEntry) {
	if before != nil {
		w.detach(owner, before)
	}
	if after != nil {
		w.attach(owner, after)
	}
}

func (w *World) attach(owner topology.Owner, e *topology.MirrorEntry) {
	p, m := hold(w.ports, e.PortID), hold(w.mirrors, e.MirrorID)
	if p.mirrors == nil {
		p.mirrors = &attachments{}
	}
	all, x := p.mirrors.at(e.Position), attachment{m, owner, e}
	i, _ := slices.BinarySearchFunc(*all, x, compareAttachments)
	*all = slices.Insert(*all, i, x)
	m.match.ports.add(p)
	w.touch(p)
}

func (w *World) detach(owner topology.Owner, e *topology.MirrorEntry) {
	p, m := w.ports[e.PortID], w.mirrors[e.MirrorID]
	all := p.mirrors.at(e.Position)
	i, _ := slices.BinarySearchFunc(*all, attachment{m, owner, e}, compareAttachments)
	*all = slices.Delete(*all, i, i+1)
	if len(p.mirrors.postIn)+len(p.mirrors.preOut) == 0 {
		p.mirrors = nil
	}
	m.match.ports.remove(p)
	w.touch(p)
	release(w.mirrors, m)
	release(w.ports, p)
}

func compareAttachments(a, b attachment) int {
	return cmp.Or(cmp.Compare(a.mirror.id, b.mirror.id), compareOwners(a.owner, b.owner))
}

// maxRecopies bounds the copies of copies of one packet: mirrors that feed each other would make
// very many before each has passed maxDevices.
const maxRecopies = 64

// copyAt copies the packet for the mirrors at a position of port p, each once however often it is
// attached there. What becomes of a copy is no part of what becomes of the packet.
func (s *Simulator) copyAt(p *port, position topology.MirrorPosition) {
	if p.mirrors == nil {
		return
	}
	var last *mirror
	for _, a := range *p.mirrors.at(position) {
		if a.mirror != last && a.mirror.def != nil && a.entry.CopiesVLAN(outermostVLAN(s.filters.now)) && s.isMirrored(a.mirror) {
			last = a.mirror
			s.copyTo(last)
		}
	}
}

func outermostVLAN(f *packet.Frame) uint16 {
	if f.VLANs == 0 {
		return 0
	}
	return f.VLAN
}

// isMirrored reports whether the packet meets one of a mirror's conditions.
func (s *Simulator) isMirrored(m *mirror) bool {
	was := s.tracker.mark()
	defer s.tracker.restore(was)
	return slices.ContainsFunc(m.match.rules, func(r *rule) bool { return s.filters.matches(&r.condition) })
}

// fork is the state of the packet while a copy of it is on its way.
type fork struct {
	way             way
	inPort, outPort *port
	rewritten       bool
	tracker         trackerMark
	verdict         flow.Verdict
	device          string
	code            flow.Code
	reason          string
	drops           int
	copying         bool
}

// copyTo sends a copy of the packet out of a mirror's port. The copy leaves no state behind and
// teaches nobody an address.
func (s *Simulator) copyTo(m *mirror) {
	f, d := &s.filters, &s.dec
	before := fork{s.way, f.inPort, f.outPort, f.dstRewritten, s.tracker.mark(), d.Verdict, d.Device, d.Code, d.Reason, len(d.Drops), d.copying}
	if d.copying {
		if d.recopies++; d.recopies > maxRecopies {
			d.warn(fmt.Sprintf("mirror %s: more than %d copies of copies of one packet, the rest are not made: mirrors feed each other", m.id, maxRecopies))
			return
		}
	}
	d.copying, d.copied = true, true
	d.touch(m.to.id, nil)
	f.outPort, f.dstRewritten = m.to, false
	if d.explain {
		d.say(m.to.id, flow.StepCopy, "copied by mirror "+m.id)
	}
	s.sendCopy(m)
	s.way, f.inPort, f.outPort, f.dstRewritten, d.copying = before.way, before.inPort, before.outPort, before.rewritten, before.copying
	s.tracker.restore(before.tracker)
	d.Verdict, d.Device, d.Code, d.Reason, d.Drops = before.verdict, before.device, before.code, before.reason, d.Drops[:before.drops]
}

// sendCopy is the egress of a copy.
func (s *Simulator) sendCopy(m *mirror) {
	p := m.to
	if s.way.devices++; s.way.devices >= maxDevices {
		s.dec.errorDrop(p.id, flow.CodeLoop, fmt.Sprintf("the copy has passed %d devices: mirrors send it round in circles", maxDevices-1))
		return
	}
	switch {
	case p.def == nil:
		s.dec.errorDrop(p.id, flow.CodeBadObject, "the mirror's port is not known")
		return
	case p.network == nil || !p.def.Exterior():
		s.dec.errorDrop(p.id, flow.CodeNotBound, "the mirror's port is not bound to an interface of a host")
		return
	}
	s.copyAt(p, topology.PreOutFilter)
	switch {
	case !p.def.AdminStateUp:
		s.dec.drop(p.id, flow.CodePortDown, "the mirror's port is administratively down")
	case s.mistagged(p):
	case s.filters.pass(p.id, "out", p.out):
		s.emit(p)
	}
}

// copyState is the state of the copies of a packet.
type copyState struct {
	copying  bool // the packet is a copy
	copied   bool // copies were made, or tried
	recopies int  // copies of copies
}

// addCopy adds a copy of the packet, with the headers that it has here.
func (d *record) addCopy(out flow.Output, headers *flow.Rewrite) {
	d.Copies = append(d.Copies, flow.Copy{Output: out, Rewrite: headers})
}

// ownHeaders returns the headers that the packet has now if they may differ from those with which
// it came in, else nil. The result stays as it is.
func (s *Simulator) ownHeaders() *flow.Rewrite {
	if !s.way.routed {
		return nil
	}
	w := s.headers()
	if w.Quote != nil {
		quote := *w.Quote
		w.Quote = &quote
	}
	return &w
}

// trackerMark is the part of a tracker's state that is not in the decision.
type trackerMark struct{ answered, register bool }

func (t *tracker) mark() trackerMark { return trackerMark{t.answered, t.register} }

// restore forgets that a copy asked for the connection: it opens none. The decision rests on the
// answer all the same.
func (t *tracker) restore(m trackerMark) { t.answered, t.register = m.answered, m.register }
