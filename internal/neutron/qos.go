package neutron

import (
	"cmp"
	"math"
	"slices"
)

// QoSPolicy is a set of rules about the rate and the marks of packets (neutron-api §8). Ports,
// networks, floating IPs and gateways of routers refer to it.
type QoSPolicy struct {
	Standard
	Default bool      `json:"is_default"` // new networks of its project get it: a project has one at most
	Rules   []QoSRule `json:"rules"`      // in the order of QoSRuleTypes, of one type the oldest first
}

// QoSRule is one rule of a policy. Its type says what the numbers are.
type QoSRule struct {
	ID        string `json:"id"`
	Type      string `json:"type"`
	Direction string `json:"direction,omitempty"` // egress, ingress or any; "" where the type has none
	Value     int    `json:"value"`               // the type's Value attribute
	Burst     int    `json:"burst,omitempty"`     // the type's Burst attribute
}

// The types of QoS rules.
const (
	QoSBandwidthLimit    = "bandwidth_limit"
	QoSDSCPMarking       = "dscp_marking"
	QoSMinimumBandwidth  = "minimum_bandwidth"
	QoSMinimumPacketRate = "minimum_packet_rate"
	QoSPacketRateLimit   = "packet_rate_limit"
)

// Directions of rules: of QoS as seen from the machine, of metering at the router's gateway.
const (
	DirectionEgress  = "egress"
	DirectionIngress = "ingress"
	DirectionAny     = "any" // both together, of minimum packet rates
)

// QoSRuleType describes the rules of one type.
type QoSRuleType struct {
	Name       string
	Resource   Resource // below a policy
	Alias      Resource // of its own; 0 where the reference has none
	Value      string   // the attribute with what the rule is about
	Unit       string   // of Value, for readers of the documentation
	Values     []int    // those that Value may have; nil = 0 to 2147483647
	Burst      string   // the attribute with the burst of a limit; "" = none
	Directions []string // nil = none
	// Reserves is set for rules that ask for a share of what a host has. Policies may have them,
	// but this server reserves nothing: such a policy is applied to nothing (decision 0020).
	Reserves bool
}

// QoSRuleTypes returns the types of rules in the reference's order.
func QoSRuleTypes() []QoSRuleType {
	directions := []string{DirectionEgress, DirectionIngress}
	return []QoSRuleType{
		{Name: QoSBandwidthLimit, Resource: QoSBandwidthLimitRules, Alias: QoSBandwidthLimitAliases,
			Value: "max_kbps", Unit: "kbit/s", Burst: "max_burst_kbps", Directions: directions},
		{Name: QoSDSCPMarking, Resource: QoSDSCPMarkingRules, Alias: QoSDSCPMarkingAliases,
			Value: "dscp_mark", Unit: "even, 0 to 56 without 2, 4, 6, 42, 44 and 50 to 54", Values: dscpMarks()},
		{Name: QoSMinimumBandwidth, Resource: QoSMinimumBandwidthRules, Alias: QoSMinimumBandwidthAliases,
			Value: "min_kbps", Unit: "kbit/s", Directions: directions, Reserves: true},
		{Name: QoSMinimumPacketRate, Resource: QoSMinimumPacketRateRules, Alias: QoSMinimumPacketRateAliases,
			Value: "min_kpps", Unit: "1000 packets/s", Directions: append([]string{DirectionAny}, directions...), Reserves: true},
		{Name: QoSPacketRateLimit, Resource: QoSPacketRateLimitRules,
			Value: "max_kpps", Unit: "1000 packets/s", Burst: "max_burst_kpps", Directions: directions},
	}
}

// dscpMarks returns the code points that the reference lets packets be marked with.
func dscpMarks() []int {
	return []int{0, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 46, 48, 56}
}

// QoSRuleTypeNamed returns the type with this name; nil if there is none.
func QoSRuleTypeNamed(name string) *QoSRuleType {
	types := QoSRuleTypes()
	i := slices.IndexFunc(types, func(t QoSRuleType) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return &types[i]
}

// maxQoSValue is the largest number that the reference's database keeps.
const maxQoSValue = math.MaxInt32

// Apply sets what a request names.
func (t *QoSRuleType) Apply(r *QoSRule, v Values) {
	r.Type = t.Name
	if n := v.Number(t.Value); n != nil {
		r.Value = *n
	}
	if n := v.Number(t.Burst); n != nil {
		r.Burst = *n
	}
	if v.Has("direction") {
		r.Direction = v.Text("direction")
	}
}

// Reserving returns the first rule of the policy that asks for a share of what a host has, or nil.
func (p *QoSPolicy) Reserving() *QoSRule {
	for i := range p.Rules {
		if t := QoSRuleTypeNamed(p.Rules[i].Type); t != nil && t.Reserves {
			return &p.Rules[i]
		}
	}
	return nil
}

// Rule returns the policy's rule of a type with this id, or nil.
func (p *QoSPolicy) Rule(typ, id string) *QoSRule {
	i := slices.IndexFunc(p.Rules, func(r QoSRule) bool { return r.ID == id && r.Type == typ })
	if i < 0 {
		return nil
	}
	return &p.Rules[i]
}

// WithRule returns the rules with r among them, in place of the one with its id. v are the values
// that the request names. Rules that contradict each other are refused, as by the reference.
func (p *QoSPolicy) WithRule(r QoSRule, v Values) ([]QoSRule, error) {
	for _, check := range []func() error{
		func() error { return p.checkBandwidths(v) },
		func() error { return p.checkDirections(r) },
		func() error { return p.checkSingle(r) },
	} {
		if err := check(); err != nil {
			return nil, err
		}
	}
	rules := slices.Clone(p.Rules)
	if i := slices.IndexFunc(rules, func(o QoSRule) bool { return o.ID == r.ID }); i >= 0 {
		rules[i] = r
		return rules, nil
	}
	rules = append(rules, r)
	types := QoSRuleTypes()
	place := func(r QoSRule) int {
		return slices.IndexFunc(types, func(t QoSRuleType) bool { return t.Name == r.Type })
	}
	slices.SortStableFunc(rules, func(a, b QoSRule) int { return cmp.Compare(place(a), place(b)) })
	return rules, nil
}

// checkBandwidths refuses a limit below a minimum, whatever the direction.
func (p *QoSPolicy) checkBandwidths(v Values) error {
	limit, least := v.Number("max_kbps"), v.Number("min_kbps")
	for _, r := range p.Rules {
		switch {
		case r.Type == QoSMinimumBandwidth && limit != nil && r.Value > *limit:
			return p.parameterConflict(pyText(*limit), r.Type, pyText(r.Value))
		case r.Type == QoSBandwidthLimit && least != nil && r.Value < *least:
			return p.parameterConflict(pyText(*least), r.Type, pyText(r.Value))
		}
	}
	return nil
}

// checkDirections refuses minimum packet rates of a direction beside one of both together.
func (p *QoSPolicy) checkDirections(r QoSRule) error {
	for _, o := range p.Rules {
		if r.Type == QoSMinimumPacketRate && o.Type == r.Type && o.ID != r.ID && (o.Direction == DirectionAny) != (r.Direction == DirectionAny) {
			return p.parameterConflict(r.Direction, o.Type, o.Direction)
		}
	}
	return nil
}

// checkSingle refuses a second rule of a type and direction.
func (p *QoSPolicy) checkSingle(r QoSRule) error {
	for _, o := range p.Rules {
		if o.ID != r.ID && o.Type == r.Type && o.Direction == r.Direction {
			return Errorf(Conflict, "QoSRulesConflict", "Rule %s conflicts with rule %s which already exists in QoS Policy %s.", r.Type, o.ID, p.ID)
		}
	}
	return nil
}

func (p *QoSPolicy) parameterConflict(value, existing, existingValue string) error {
	return Errorf(Conflict, "QoSRuleParameterConflict", "Unable to add the rule with value %s to the policy %s as the existing rule of type "+
		"%s has value %s.", value, p.ID, existing, existingValue)
}

// QoSRuleNotFound is the error for a rule that is not there; policy is "" where the request names
// none.
func QoSRuleNotFound(policy, id string) *Error {
	return Errorf(NotFound, "QosRuleNotFound", "QoS rule %s for policy %s could not be found.", id, policy)
}
