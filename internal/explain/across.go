package explain

import (
	"context"
	"fmt"
	"net/netip"

	"heddle/internal/api/operator"
)

// whyAcross answers a question between a port of a virtual network and a routed host: the packet
// passes the one and then the other, and its answer likewise.
func (w *World) whyAcross(ctx context.Context, r *routing, ask Ask) (*operator.WhyAnswer, error) {
	a := r.blank()
	var err error
	if r.to.routed() {
		err = w.outOfOverlay(ctx, r, a, ask)
	} else {
		err = w.intoOverlay(ctx, r, a, ask)
	}
	if err != nil {
		return nil, err
	}
	r.conclude(a)
	return a, nil
}

// outOfOverlay answers for a packet from a port of a virtual network.
func (w *World) outOfOverlay(ctx context.Context, r *routing, a *operator.WhyAnswer, ask Ask) error {
	x := *r.inquiry
	x.from, x.to = r.from.end, end{address: r.to.address}
	there, back, err := w.consulted(ctx, &x, ask)
	if err != nil {
		return err
	}
	a.There = there.WhyLeg
	if !there.Allowed {
		a.Remedies = append(a.Remedies, w.remedies(&x, there)...)
		return nil
	}
	src := there.last().src // after the last router, whether its neighbour is known or not
	a.There.Reason += fmt.Sprintf(", from %s for a routed host", src)
	beyond := w.onHosts(r, outsideSite(src), r.to, a)
	a.There.Rest = &beyond.there.WhyLeg
	if beyond.back == nil {
		return nil
	}
	a.Back = &beyond.back.WhyLeg
	if back != nil && beyond.back.Allowed {
		a.Back.Rest = &back.WhyLeg
	}
	return nil
}

// intoOverlay answers for a packet from a routed host.
func (w *World) intoOverlay(ctx context.Context, r *routing, a *operator.WhyAnswer, ask Ask) error {
	out := w.onHosts(r, r.from, outsideSite(r.to.address), a)
	a.There = out.there.WhyLeg
	if !out.there.Allowed {
		return nil
	}
	x := *r.inquiry
	x.from, x.to = end{address: r.fleet.Masqueraded(r.from.endpoint.Host, r.from.address, r.to.address)}, r.to.end
	there, back, err := w.consulted(ctx, &x, ask)
	if err != nil {
		return err
	}
	a.There.Rest = &there.WhyLeg
	if failed := firstDenied(there, back); failed != nil && !x.reply {
		a.Remedies = append(a.Remedies, w.remedies(&x, failed)...)
	}
	if back != nil {
		a.Back = &back.WhyLeg
		if back.Allowed && out.back != nil {
			a.Back.Rest = &out.back.WhyLeg
		}
	}
	return nil
}

// consulted simulates both directions of a question, and consults agents.
func (w *World) consulted(ctx context.Context, x *inquiry, ask Ask) (there, back *leg, err error) {
	there = w.thereOf(x)
	if err := x.consult(ctx, ask, there); err != nil {
		return nil, nil, err
	}
	if back = w.answerTo(x, there); back != nil {
		if err := x.consult(ctx, ask, back); err != nil {
			return nil, nil, err
		}
	}
	nameLegs(x.snap, there, back)
	return there, back, nil
}

// thereOf simulates the first packet of a question.
func (w *World) thereOf(x *inquiry) *leg {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.apply(x.snap)
	return x.there()
}

func outsideSite(a netip.Addr) site { return site{end: end{address: a, fixed: a}} }

// bothWays are the directions of a question on routed hosts.
type bothWays struct{ there, back *routedLeg }

// onHosts follows a question between two ends over routed hosts, and adds what would let it pass.
func (w *World) onHosts(r *routing, from, to site, a *operator.WhyAnswer) (b bothWays) {
	w.mu.Lock()
	defer w.mu.Unlock()
	part := &routing{inquiry: r.inquiry, fleet: r.fleet, from: from, to: to}
	b.there, b.back = part.legs()
	if failed := firstRefused(b.there, b.back); failed != nil && !r.reply {
		a.Remedies = append(a.Remedies, part.remedies(failed)...)
	}
	return b
}
