package overlay

import (
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/flow"
)

// plannedCopy is a copy of a packet for a mirror that can be sent now.
type plannedCopy struct {
	out     datapath.Output
	rewrite *flow.Rewrite // nil: the headers that the packet came with
	inner   bool          // of what is inside a packet for a VTEP
}

// Packets of which each has to be copied by the agent, since no flow can: a port has copiesAtOnce
// of them copied, and one more each copyEvery. The rest go on without copies.
const (
	copiesAtOnce = 1000
	copyEvery    = time.Millisecond
)

// addCopies finds where the copies of a decision go. It needs the network's lock.
func (d *decider) addCopies() {
	p := &d.plan
	for i := range p.decision.Copies {
		c := &p.decision.Copies[i]
		if out, ok := d.e.reach(&c.Output); ok {
			p.copies = append(p.copies, plannedCopy{out, c.Rewrite, c.Inner})
		} else {
			p.copiesLost++
		}
	}
}

// headers returns the rewrite that the flow of a plan needs: that of the packet or, if it is not
// sent, that of its copies.
func (p *plan) headers() *flow.Rewrite {
	if len(p.outputs) > 0 {
		return p.decision.Rewrite
	}
	for _, c := range p.copies {
		if c.rewrite != nil {
			return c.rewrite
		}
	}
	return nil
}

// copiesCacheable reports whether a flow can make the copies: they are few, and each has the
// headers with which the packet came or leaves. Those that it has in between two routers, and no
// longer when it leaves, only the agent can give it.
func (p *plan) copiesCacheable() bool {
	if len(p.copies) > datapath.MaxCopies || p.decision.Decap != nil && len(p.copies)+p.copiesLost > 0 {
		return false // those of a packet for a VTEP may be of the packet or of what is inside
	}
	leaves := p.headers()
	for _, c := range p.copies {
		if c.rewrite != nil && !sameRewrite(c.rewrite, leaves) {
			return false
		}
	}
	return true
}

// describeCopies fills in the copies of the plan's flow.
func (p *plan) describeCopies() {
	for _, c := range p.copies {
		p.flow.Copies = append(p.flow.Copies, datapath.Copy{Output: c.out, Rewritten: c.rewrite != nil})
	}
}

// sendCopies sends the copies of a packet.
func (h *handler) sendCopies(port *localPort, p *plan, u *datapath.Upcall) {
	if len(p.copies)+p.copiesLost == 0 {
		return
	}
	if !p.cached && !h.copied.allow(port.id, h.clock()) {
		h.count.copiesLimited.Add(1)
		return
	}
	sent := 0
	for _, c := range p.copies {
		of := u
		if c.inner {
			of = unpacked(p.decision, u)
		}
		frame, err := h.rewritten(c.rewrite, of)
		if err == nil {
			err = h.dp.Send(c.out, frame, of.Offload)
		}
		if err == nil {
			sent++
		}
	}
	h.count.copies.Add(uint64(sent))
	h.count.copiesLost.Add(uint64(p.copiesLost + len(p.copies) - sent))
}
