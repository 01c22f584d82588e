package judge

import (
	"fmt"
	"net/netip"

	"heddle/calico"
	"heddle/internal/policy/calc"
	"heddle/internal/topology/flow"
)

// workloadPolicy applies a workload's own policy in a direction (spec §6.1).
func (j *judgement) workloadPolicy(s side, dir calc.Direction) decision {
	if d := j.connection(); d.final {
		return d
	}
	return j.policy(s, s.workload.Tiers, s.workload.Profiles, dir)
}

// hostPolicy applies a host endpoint's policy in a direction. Fail-safe ports are those of the host
// itself, and do not open what is only forwarded.
func (j *judgement) hostPolicy(s side, dir calc.Direction, ofHost bool) decision {
	if d := j.connection(); d.final {
		return d
	}
	if ofHost {
		if f := j.failsafe(dir); f != "" {
			j.note(hostName(s), "%s: allow", f)
			return allow(f)
		}
	}
	if s.host.Invalid != "" {
		j.note(hostName(s), "is invalid: %s", s.host.Invalid)
	}
	return j.policy(s, s.host.Tiers, s.host.Profiles, dir)
}

func (j *judgement) connection() decision {
	switch {
	case j.p.State == Established:
		j.note("connection", "is established: allow")
		return allow("established")
	case j.p.State == Invalid && !j.config.AcceptInvalid:
		j.note("connection", "the packet fits none: deny")
		return j.drop(flow.CodeInvalid, "invalid: fits no connection")
	}
	return decision{}
}

// failsafe names the fail-safe that lets the packet pass, or returns "": inbound by ports of this
// host, outbound by those of another. Neighbour discovery is one, as nothing is reachable by IPv6
// without it.
func (j *judgement) failsafe(dir calc.Direction) string {
	list, other := j.config.FailsafeInbound, j.p.Src
	if dir == calc.Outbound {
		list, other = j.config.FailsafeOutbound, j.p.Dst
	}
	if len(list) > 0 && j.icmpv6(133, 134, 135, 136) {
		return "fail-safe: neighbour discovery"
	}
	return findFailsafe(list, j.p.Protocol, j.p.DstPort, other)
}

// failsafeEitherWay is failsafe for a request in this direction or a reply to one in the other.
func (j *judgement) failsafeEitherWay(dir calc.Direction) string {
	if f := j.failsafe(dir); f != "" {
		return f
	}
	list, other := j.config.FailsafeOutbound, j.p.Src
	if dir == calc.Outbound {
		list, other = j.config.FailsafeInbound, j.p.Dst
	}
	return findFailsafe(list, j.p.Protocol, j.p.SrcPort, other)
}

func findFailsafe(list []Failsafe, protocol calico.Protocol, port uint16, other netip.Addr) string {
	for _, f := range list {
		if f.Protocol == protocol && f.Port == port && (!f.Net.IsValid() || f.Net.Contains(other)) {
			return "fail-safe port " + f.String()
		}
	}
	return ""
}

func (j *judgement) policy(s side, tiers []calc.Tier, profiles []string, dir calc.Direction) decision {
	for _, t := range tiers {
		if d := j.tier(s, t, dir, true); d.final {
			return d
		}
	}
	for _, p := range profiles {
		if d, _ := j.list(s, calc.ListID{Name: p, Direction: dir}); d.final {
			return d
		}
	}
	who, decider := s.String(), Decider{Endpoint: s.place, Direction: dir}
	if len(profiles) == 0 {
		j.note(who, "no tier has decided and there is no profile: deny")
		return j.drop(flow.CodeNoPolicyNoProfile, "default deny: "+who+" has no profile").of(decider)
	}
	j.note(who, "no rule of a profile matches: deny")
	return j.drop(flow.CodeDefaultDeny, "default deny: no profile of "+who+" matches").of(decider)
}

// of returns the decision with what decided.
func (d decision) of(decider Decider) decision {
	d.decider = decider
	return d
}

// tier applies the policies of a tier. Where none matches, the packet is denied if denies is set
// and there is a policy in this direction (spec §6.2), else passed on.
func (j *judgement) tier(s side, t calc.Tier, dir calc.Direction, denies bool) decision {
	all := t.Lists(dir)
	for _, id := range all {
		if d, passed := j.list(s, id); d.final || passed {
			return d
		}
	}
	if len(all) == 0 || !denies {
		return decision{}
	}
	j.note("tier "+t.Name+" "+dir.String(), "no policy matches: deny")
	return j.drop(flow.CodeDefaultDeny, "default deny of tier "+t.Name).of(Decider{Endpoint: s.place, Direction: dir, Tier: t.Name})
}

// list applies one list of rules. passed reports that a rule sent the packet to the next tier.
func (j *judgement) list(s side, id calc.ListID) (d decision, passed bool) {
	where, decider := listName(id), Decider{Endpoint: s.place, Direction: id.Direction, List: id}
	l := j.rules.lists[id]
	missing := ""
	switch {
	case l == nil:
		missing = "is not there"
	case l.Missing != "":
		missing = l.Missing
	}
	if missing != "" {
		j.note(where, "%s: deny", missing)
		code := flow.CodeMissingProfile
		if id.Tier != "" {
			code = flow.CodeBadObject
		}
		return j.drop(code, where+": "+missing).of(decider), false
	}
	for i := range l.Rules {
		r := &l.Rules[i]
		if !j.matches(r) {
			continue
		}
		j.walk = append(j.walk, Step{where, fmt.Sprintf("rule %d matches: %s", r.Index, r.Action), id, r.Index})
		decider.Rule = r.Index
		by := fmt.Sprintf("%s rule %d", where, r.Index)
		switch {
		case r.Action == calico.Log:
			continue
		case r.Action == calico.Deny:
			return j.drop(flow.CodePolicy, by).of(decider), false
		case r.Action == calico.NextTier && id.Tier != "":
			return decision{}, true
		}
		return allow(by).of(decider), false
	}
	j.walk = append(j.walk, Step{Where: where, What: "no rule matches", List: id})
	return decision{}, false
}

// drop denies by policy, which a setting can reverse.
func (j *judgement) drop(code flow.Code, by string) decision {
	if j.config.DropsAccepted {
		j.note("DropActionOverride", "accepts what is dropped")
		return allow(by + ", overridden by DropActionOverride")
	}
	return deny(code, by)
}

func listName(id calc.ListID) string {
	if id.Tier == "" {
		return "profile " + id.Name + " " + id.Direction.String()
	}
	return "policy " + id.Tier + "/" + id.Name + " " + id.Direction.String()
}
