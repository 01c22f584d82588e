package bgp

import (
	"fmt"

	api "github.com/osrg/gobgp/v4/api"

	"heddle/internal/bgp/plan"
)

// exportPolicy names the one policy of the speaker, which carries out the plan's export filters.
const exportPolicy = "export"

// passedOn is added to the MED of a route that this host passes on. Peers in one AS would else see
// every host of the mesh as an equally good way to each block, and spread traffic over all of them.
const passedOn = 100

// globalTable is gobgp's name of its main table in an assignment of policies.
const globalTable = "global"

// policies translates the export filters for gobgp: a statement for each rule, in order. All
// exported routes have this host as next hop. The default is to reject, see assignment.
func policies(export map[plan.Family]plan.Filter) *api.SetPoliciesRequest {
	policy := &api.Policy{Name: exportPolicy}
	for _, learned := range []api.Conditions_RouteType{api.Conditions_ROUTE_TYPE_INTERNAL, api.Conditions_ROUTE_TYPE_EXTERNAL} {
		policy.Statements = append(policy.Statements, &api.Statement{Name: learned.String(), Conditions: &api.Conditions{RouteType: learned},
			Actions: &api.Actions{Med: &api.MedAction{Type: api.MedAction_TYPE_MOD, Value: passedOn}}})
	}
	request := &api.SetPoliciesRequest{Policies: []*api.Policy{policy}}
	for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
		for i, r := range export[f] {
			if len(r.Set) == 0 {
				continue // gobgp has no empty sets, and this would decide on nothing
			}
			name := fmt.Sprintf("v%d-%d", f, i)
			set := &api.DefinedSet{DefinedType: api.DefinedType_DEFINED_TYPE_PREFIX, Name: name}
			for _, x := range r.Set {
				set.Prefixes = append(set.Prefixes, &api.Prefix{IpPrefix: x.Prefix.String(), MaskLengthMin: uint32(x.Min), MaskLengthMax: uint32(x.Max)})
			}
			actions := &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_REJECT}
			if r.Accept {
				actions = &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT, Nexthop: &api.NexthopAction{Self: true}}
			}
			request.DefinedSets = append(request.DefinedSets, set)
			policy.Statements = append(policy.Statements, &api.Statement{Name: name, Actions: actions,
				Conditions: &api.Conditions{PrefixSet: &api.MatchSet{Type: api.MatchSet_TYPE_ANY, Name: name}}})
		}
	}
	return request
}

// assignment has the export policy decide on all that leaves.
func assignment() *api.SetPolicyAssignmentRequest {
	return &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{Name: globalTable,
		Direction: api.PolicyDirection_POLICY_DIRECTION_EXPORT, DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT,
		Policies: []*api.Policy{{Name: exportPolicy}}}}
}
