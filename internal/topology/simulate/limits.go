package simulate

import (
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// limits holds what a policy limits. Decisions rest on which translations have them, not on the
// figures, which are for explanations.
type limits struct {
	object
	claims claims[topology.Limits]
	def    *topology.Limits
}

func (w *World) linkLimits(l *limits) { l.def = l.claims.top() }

// Limits returns the limits with that id, or nil.
func (w *World) Limits(id string) *topology.Limits {
	if l := w.limits[id]; l != nil {
		return l.def
	}
	return nil
}

// limit adds the limits of a translation to the decision. Those of one direction of a floating IP
// or a gateway count once, however many rules have them.
func (n *translator) limit(t *translation) {
	l := flow.Limited{ID: t.limits.LimitedID, LimitsID: t.limits.LimitsID, Ingress: t.dnat != t.reverse}
	for _, other := range n.dec.Limits {
		if other == l {
			return
		}
	}
	n.dec.Limits = append(n.dec.Limits, l)
	if n.dec.explain {
		n.dec.say(n.device, flow.StepLimit, directed(l.Ingress, "of "+l.ID+": ", n.world.Limits(l.LimitsID)))
	}
}

// explainLimits adds to the walk what holds for what the machine of a port sends, or receives.
func (s *Simulator) explainLimits(p *port, ingress bool) {
	if !s.dec.explain || p.def.LimitsID == "" {
		return
	}
	l := s.world.Limits(p.def.LimitsID)
	s.dec.say(p.id, flow.StepLimit, directed(ingress, "", l))
	if !ingress && l != nil && l.DSCP != nil {
		s.dec.say(p.id, flow.StepLimit, (&topology.Limits{DSCP: l.DSCP}).String()+": the mark that IP packets from here get")
	}
}

// directed returns words for one direction of limits.
func directed(ingress bool, of string, l *topology.Limits) string {
	direction := "egress"
	if ingress {
		direction = "ingress"
	}
	return "limit " + of + direction + " " + l.In(ingress).String()
}
