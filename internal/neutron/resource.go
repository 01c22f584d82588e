package neutron

// Resource names a kind of object of the API.
type Resource uint8

// The resources of the API.
const (
	Networks Resource = iota + 1
	Subnets
	Ports
	SecurityGroups
	SecurityGroupRules
	Quotas
	Agents
	Routers
)

// names are singular, collection, and the word that Neutron's not-found errors use.
var names = [...]struct{ name, collection, class string }{
	Networks:           {"network", "networks", "Network"},
	Subnets:            {"subnet", "subnets", "Subnet"},
	Ports:              {"port", "ports", "Port"},
	SecurityGroups:     {"security_group", "security_groups", "SecurityGroup"},
	SecurityGroupRules: {"security_group_rule", "security_group_rules", "SecurityGroupRule"},
	Quotas:             {"quota", "quotas", "Quota"},
	Agents:             {"agent", "agents", "Agent"},
	Routers:            {"router", "routers", "Router"},
}

// Name returns the key of one object in a body, such as security_group.
func (r Resource) Name() string { return names[r].name }

// Collection returns the key of a list in a body, such as security_groups.
func (r Resource) Collection() string { return names[r].collection }

func (r Resource) String() string { return r.Name() }

// NotFound is Neutron's error for an object that is not there, or that the caller may not see.
func (r Resource) NotFound(id string) *Error {
	typ := names[r].class + "NotFound"
	switch r {
	case SecurityGroups:
		return Errorf(NotFound, typ, "Security group %s does not exist", id)
	case SecurityGroupRules:
		return Errorf(NotFound, typ, "Security group rule %s does not exist", id)
	}
	return Errorf(NotFound, typ, "%s %s could not be found.", names[r].class, id)
}

// owned reports whether objects belong to a project that create names.
func (r Resource) owned() bool { return r != Quotas && r != Agents }
