package reach

import (
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
	a.translated = false
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
	d := a.sim.Run(simulate.Input{PortID: q.From.PortID, HostID: q.From.HostID, Frame: a.frame, State: a.state, Reads: &a.there})
	to := arrival(d, q.To)
	if to == "" {
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
	end := a.ends(to)
	if end == nil {
		return halfway
	}
	hop, ok := end.nextHop(answer.dst)
	if ok {
		answer.dstMAC, _, ok = a.world.Neighbour(end.NetworkID, hop)
	}
	if !ok {
		return halfway
	}
	answer.srcMAC = end.MAC
	a.state.Commit(d)
	return a.answer(q, &simulate.Input{PortID: end.PortID, HostID: end.HostID, Frame: answer.append(nil), State: a.state, Reads: &a.back}, tried)
}

// answer sends the answer on each of its ways.
func (a *Asker) answer(q *Question, in *simulate.Input, tried *int) (all outcome) {
	a.back.Choices = a.back.Choices[:0]
	for more := true; more; more = next(&a.back) {
		if *tried++; *tried > mostWays {
			return all | lost
		}
		a.back.Options = a.back.Options[:0]
		if arrival(a.sim.Run(*in), q.From.PortID) != "" {
			all |= complete
		} else {
			all |= halfway
		}
	}
	return all
}

// arrival returns the port to which a packet was delivered if that is the wanted one, any for "".
func arrival(d *flow.Decision, wanted string) string {
	for i := range d.Outputs {
		if p := d.Outputs[i].PortID; wanted == "" || p == wanted {
			return p
		}
	}
	return ""
}

// rewrite gives the headers what routers and translations have made of them.
func (h *headers) rewrite(r *flow.Rewrite) {
	if r == nil {
		return
	}
	if r.Src.IsValid() {
		h.src = r.Src
	}
	if r.Dst.IsValid() {
		h.dst = r.Dst
	}
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
	r = headers{src: h.dst, dst: h.src, proto: h.proto, echoID: h.echoID, reply: true}
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
