package explain

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"heddle/internal/neutron"
	"heddle/internal/reach"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology/packet"
)

// changedRules are rules of security groups with memory of connections, that one snapshot has and
// another lacks, where nothing else differs. What they do not match fares as before, so that only
// some services in some directions are to be compared: an answer within a connection passes
// whatever the rules are.
type changedRules struct {
	rules    []neutron.SecurityGroupRule
	services [2]map[reach.Service]bool // that they may match, by version of IP; of protocol 0: all
}

// mostServices bounds the services that are asked about one by one.
const mostServices = 4

// rulesBetween returns the rules that differ between two snapshots; false if more than rules does,
// or it is not known what.
func rulesBetween(before, after *records.Snap) (c changedRules, only bool) {
	ids, known := after.ChangedSince(before)
	if !known {
		return c, false
	}
	for table, changed := range ids {
		for _, id := range changed {
			ofGroup := table == schema.Bundles.Name() && strings.HasPrefix(id, groupOwner("").Kind+"/")
			if !ofGroup && table != schema.SecurityGroups.Name() && table != schema.PendingWorks.Name() {
				return c, false
			}
		}
	}
	changed := slices.Compact(slices.Sorted(slices.Values(ids[schema.SecurityGroups.Name()])))
	for _, id := range changed {
		old, was := schema.SecurityGroups.Peek(before, id)
		now, is := schema.SecurityGroups.Peek(after, id)
		if !was || !is || !old.Stateful || !now.Stateful {
			return c, false
		}
		c.rules = append(append(c.rules, rulesOnlyIn(old, now)...), rulesOnlyIn(now, old)...)
	}
	for i := range c.rules {
		c.addService(&c.rules[i])
	}
	for v := range c.services {
		if len(c.services[v]) > mostServices {
			c.services[v] = map[reach.Service]bool{{}: true}
		}
	}
	return c, true
}

// rulesOnlyIn returns the rules of a group that it does not have in another form.
func rulesOnlyIn(g, other *neutron.SecurityGroup) (rules []neutron.SecurityGroupRule) {
	for i := range g.Rules {
		if !slices.ContainsFunc(other.Rules, func(r neutron.SecurityGroupRule) bool { return reflect.DeepEqual(r, g.Rules[i]) }) {
			rules = append(rules, g.Rules[i])
		}
	}
	return rules
}

// addService adds the services that a rule may match.
func (c *changedRules) addService(r *neutron.SecurityGroupRule) {
	v := 0
	if r.Ethertype == "IPv6" {
		v = 1
	}
	if c.services[v] == nil {
		c.services[v] = map[reach.Service]bool{}
	}
	var s reach.Service
	if n, ok := neutron.ProtocolNumber(r.Protocol); ok && n > 0 {
		s.Protocol = service{proto: uint8(n)}.ofFamily(v == 0).proto
		if low, high := r.PortRangeMin, r.PortRangeMax; packet.HasPorts(s.Protocol) && low != nil && high != nil && *low == *high {
			s.Port = uint16(*low)
		}
	}
	c.services[v][s] = true
}

// directed reports whether any of the rules is for a direction.
func (c *changedRules) directed(direction string) bool {
	return slices.ContainsFunc(c.rules, func(r neutron.SecurityGroupRule) bool { return r.Direction == direction })
}

// servicesOf returns the services to compare by a version of IP. Where destination ports are
// translated on the way, all ports of a protocol are.
func (c *changedRules) servicesOf(v int, translated bool) []reach.Service {
	some := map[reach.Service]bool{}
	for s := range c.services[v] {
		if translated {
			s.Port = 0
		}
		some[s] = true
	}
	return slices.Collect(maps.Keys(some))
}

// refine returns the classes of machines of which the rules too treat all alike, by version of IP.
func (c *changedRules) refine(snap *records.Snap, r *roster, classes [2]map[string]int) (refined [2]map[string]int) {
	x := &inquiry{snap: snap}
	members := map[string]map[netip.Addr]bool{} // of the groups that rules name
	isMember := func(group string, a netip.Addr) bool {
		if members[group] == nil {
			members[group] = map[netip.Addr]bool{}
			for p := range schema.Ports.By(snap, "security_group", group) {
				for _, f := range p.FixedIPs {
					members[group][f.IPAddress] = true
				}
			}
		}
		return members[group][a]
	}
	type key struct {
		class int
		met   string // of each rule whether the address is one of its remote side
	}
	for v := range classes {
		numbers := map[key]int{}
		refined[v] = make(map[string]int, len(classes[v]))
		for id, class := range classes[v] {
			a := r.end(id).Address(v == 0)
			met := make([]byte, len(c.rules))
			for i := range c.rules {
				rule := &c.rules[i]
				prefix, err := netip.ParsePrefix(rule.RemoteIPPrefix)
				if err == nil && prefix.Contains(a) || rule.RemoteGroupID != "" && isMember(rule.RemoteGroupID, a) ||
					rule.RemoteAddressGroupID != "" && x.isListed(rule.RemoteAddressGroupID, a) {
					met[i] = 1
				}
			}
			k := key{class, string(met)}
			if numbers[k] == 0 {
				numbers[k] = len(numbers) + 1
			}
			refined[v][id] = numbers[k]
		}
	}
	return refined
}
