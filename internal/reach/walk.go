package reach

import (
	"slices"

	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

// mostWays bounds the ways that are tried among equals for one packet. A packet with more is said
// to arrive by some.
const mostWays = 4096

// decide sends the first packet of a connection by each of the ways that it may take, and the
// answers, and returns what may become of them.
func (a *Asker) decide(q *Question, h *headers) (all outcome) {
	a.there.Reset()
	a.back.Reset()
	a.translated, a.met = false, a.met[:0]
	a.frame = h.append(a.frame[:0])
	tried := 0
	a.there.Choices = a.there.Choices[:0]
	for more := true; more; more = next(&a.there) {
		if tried++; tried > mostWays {
			return all | lost
		}
		a.there.Options = a.there.Options[:0]
		all |= a.send(q, h, &tried)
	}
	return all
}

// next turns to the next combination of ways, and reports whether there is one.
func next(r *simulate.Reads) bool {
	for i := len(r.Options) - 1; i >= 0; i-- {
		taken := 0
		if i < len(r.Choices) {
			taken = r.Choices[i]
		}
		if taken+1 < r.Options[i] {
			for len(r.Choices) <= i {
				r.Choices = append(r.Choices, 0)
			}
			r.Choices = r.Choices[:i+1]
			r.Choices[i] = taken + 1
			return true
		}
	}
	return false
}

// send sends the first packet on one way, and the answer to it on all of its own.
func (a *Asker) send(q *Question, h *headers, tried *int) outcome {
	a.state.Reset()
	in := simulate.Input{PortID: q.Door.PortID, HostID: q.Door.HostID, Frame: a.frame, State: a.state, Reads: &a.there, LANMAC: OutsideMAC}
	if q.From != nil {
		in.PortID, in.HostID = q.From.PortID, q.From.HostID
	}
	d := a.sim.Run(in)
	out := a.arrival(d, q.To, q.Any)
	if out == nil {
		return lost
	}
	arrived := *h
	arrived.rewrite(d.Rewrite)
	if packet.HasPorts(h.proto) && arrived.dstPort != h.dstPort {
		a.translated = true
	}
	answer, needed := arrived.answer()
	if !needed {
		return complete
	}
	in.PortID, in.HostID, in.Reads = out.PortID, out.HostID, &a.back
	if end := a.ends(out.PortID); end != nil {
		if !slices.Contains(a.met, end) {
			a.met = append(a.met, end)
		}
		mac, ok := a.neighbour(end, answer.src, answer.dst)
		if !ok {
			return halfway
		}
		answer.srcMAC, answer.dstMAC = end.MAC, mac
	}
	a.state.Commit(d)
	a.reply = answer.append(a.reply[:0])
	in.Frame = a.reply
	return a.answer(q, &in, tried)
}

// answer sends the answer on each of its ways.
func (a *Asker) answer(q *Question, in *simulate.Input, tried *int) (all outcome) {
	a.back.Choices = a.back.Choices[:0]
	for more := true; more; more = next(&a.back) {
		if *tried++; *tried > mostWays {
			return all | lost
		}
		a.back.Options = a.back.Options[:0]
		if a.arrival(a.sim.Run(*in), q.From, false) != nil {
			all |= complete
		} else {
			all |= halfway
		}
	}
	return all
}

// arrival returns the delivery of a packet to an end, nil for outside; to any port if any is set.
func (a *Asker) arrival(d *flow.Decision, to *End, any bool) *flow.Output {
	for i := range d.Outputs {
		out := &d.Outputs[i]
		if any || to != nil && out.PortID == to.PortID || to == nil && a.world.LeadsOutside(out.PortID) {
			return out
		}
	}
	return nil
}

// rewrite gives the headers what routers and translations have made of them.
func (h *headers) rewrite(r *flow.Rewrite) {
	if r == nil {
		return
	}
	h.srcMAC, h.dstMAC, h.src, h.dst = r.SrcMAC, r.DstMAC, r.Src, r.Dst
	switch {
	case h.isEcho():
		h.echoID = r.DstPort
	case packet.HasPorts(h.proto):
		h.srcPort, h.dstPort = r.SrcPort, r.DstPort
	}
}

// answer returns the answer to a packet, not needed to one that expects none: ICMP but for echo
// requests.
func (h *headers) answer() (r headers, needed bool) {
	r = headers{srcMAC: h.dstMAC, dstMAC: h.srcMAC, src: h.dst, dst: h.src, proto: h.proto, echoID: h.echoID, reply: true}
	switch {
	case h.isEcho() && h.src.Is4():
		r.srcPort = uint16(packet.ICMPEchoReply)
	case h.isEcho():
		r.srcPort = uint16(packet.ICMPv6EchoReply)
	case packet.HasPorts(h.proto):
		r.srcPort, r.dstPort = h.dstPort, h.srcPort
	case h.isICMP():
		return r, false
	}
	return r, true
}
