package calc

import (
	"fmt"
	"math"
	"strconv"

	"heddle/calico"
)

// InForce describes what is in force in the place of a refused object.
func (c *Calc) InForce(key calico.Key) string {
	switch k := key.(type) {
	case calico.PolicyKey:
		return c.policies.inForce(k)
	case calico.ProfileRulesKey:
		return "denied: all traffic that reaches the rules of profile " + k.Profile + ", of every endpoint that names it"
	case calico.ProfileTagsKey:
		return "nothing: endpoints get no tags from the profile"
	case calico.ProfileLabelsKey:
		return "nothing: endpoints get no labels from the profile"
	case calico.TierKey:
		if t := c.policies.tiers[k.Tier]; t != nil && !math.IsInf(t.order, 1) {
			return fmt.Sprintf("its last valid order, %v", t.order)
		}
		return "no order: its policies come after those of other tiers"
	case calico.HostEndpointKey:
		return c.hostInForce(k)
	}
	return "closed: the interface of the endpoint passes nothing, and its addresses belong to no tag or selector"
}

func (pt *policyTable) inForce(key calico.PolicyKey) string {
	p := pt.all[key]
	switch {
	case p == nil || p.inForce() == nil:
		return "nothing: the policy is absent, since its selector cannot be read and no valid version is known"
	case p.denies() && p.partial.Selector == everything:
		return "denied: all traffic of every endpoint, in both directions, at the order of the policy"
	case p.denies():
		return "denied: all traffic of the endpoints selected by " + shown(p.partial.Selector) + ", in both directions, at the order of the policy"
	}
	return "the last valid version of the policy"
}

// everything is the canonical text of the selector that selects every endpoint.
const everything = "all()"

// longestShown bounds how much of a selector a message shows.
const longestShown = 120

func shown(text string) string {
	if len(text) > longestShown {
		return strconv.Quote(text[:longestShown]) + "…"
	}
	return strconv.Quote(text)
}

func (c *Calc) hostInForce(key calico.HostEndpointKey) string {
	switch l := c.locals.hosts[key]; {
	case !c.isLocal(key.Host):
		return "its last valid version, if there is one: the addresses of the other host's endpoint"
	case l == nil || l.host == nil:
		return "nothing: the endpoint is absent"
	case l.of != nil:
		return "its last valid version"
	case l.host.Name == "":
		return "nothing: neither a valid version nor the name of its interface is known"
	default:
		return "closed: only fail-safe ports of interface " + l.host.Name + " are open"
	}
}
