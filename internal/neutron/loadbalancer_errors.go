package neutron

import "fmt"

// LBRefusal is a refusal of a request about load balancers, in the words of each of their APIs.
type LBRefusal struct {
	LBaaS   *Error // on Neutron's port
	Octavia *Error // its type is not answered
}

func (e *LBRefusal) Error() string { return e.LBaaS.Message }

// Unwrap returns the error as Neutron's API answers it.
func (e *LBRefusal) Unwrap() error { return e.LBaaS }

func lbError(lbaas, octavia *Error) error { return &LBRefusal{lbaas, octavia} }

// lbPlain returns a refusal of what is wrong in itself, which both APIs say alike.
func lbPlain(format string, args ...any) error {
	return lbError(Errorf(Invalid, "BadRequest", format, args...), Errorf(Invalid, "", format, args...))
}

func validation(format string, args ...any) *Error {
	return Errorf(Invalid, "", "Validation failure: %s", fmt.Sprintf(format, args...))
}

func lbValidation(format string, args ...any) error {
	return lbError(Errorf(Invalid, "BadRequest", format, args...), validation(format, args...))
}

// LBInvalid returns the refusal of values that do not go with other objects.
func LBInvalid(format string, args ...any) error { return lbValidation(format, args...) }

func invalidOption(value, option string) error {
	return lbPlain("%s is not a valid option for %s", value, option)
}

func persistence(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	return lbError(Errorf(Invalid, "SessionPersistenceConfigurationInvalid", "Session Persistence Invalid: %s", text), validation("%s", text))
}

// LBProvider is the name by which the APIs know who balances.
const LBProvider = "heddle"

// LBUnsupported returns the refusal of something that is known and not balanced.
func LBUnsupported(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	return lbError(Errorf(Unsupported, "NotImplemented", "Not supported: %s.", text),
		Errorf(Unsupported, "", "Provider '%s' does not support a requested option: %s.", LBProvider, text))
}

// Names of the objects in texts.
const (
	NameLoadBalancer  = "Load Balancer"
	NameListener      = "Listener"
	NamePool          = "Pool"
	NameMember        = "Member"
	NameHealthMonitor = "Health Monitor"
)

// LBNotFound returns the refusal of an object that is not there.
func LBNotFound(name, id string) error {
	return lbError(entityNotFound(name, id), Errorf(NotFound, "", "%s %s not found.", name, id))
}

func entityNotFound(name, id string) *Error {
	return Errorf(NotFound, "EntityNotFound", "%s %s could not be found", lowerFirst(name), id)
}

// LBHidden returns the refusal of an object of another project.
func LBHidden(name, id string) error { return lbError(entityNotFound(name, id), octaviaForbidden()) }

// LBForbidden returns the refusal of what the caller may not do; action is its policy's name.
func LBForbidden(action string) error {
	return lbError(Errorf(Forbidden, "PolicyNotAuthorized", "rule:%s is disallowed by policy", action), octaviaForbidden())
}

func octaviaForbidden() *Error {
	return Errorf(Forbidden, "", "Policy does not allow this request to be performed.")
}

// LBMissing returns the refusal of a network's object that a request names and that the caller
// cannot use: a Subnet, Network, Port or qos_policy.
func LBMissing(r Resource, kind, id string) error {
	return lbError(r.NotFound(id), Errorf(Invalid, "", "%s %s not found.", kind, id))
}

// LBQuotaMet returns the refusal of objects beyond a project's limit.
func LBQuotaMet(name string) error {
	return lbError(Errorf(Conflict, "OverQuota", "Quota exceeded for resources: ['%s'].", lowerFirst(name)),
		Errorf(Forbidden, "", "Quota has been met for resources: %s", name))
}

// ListenerPortTaken returns the refusal of a second listener at a port; protocol is the first
// one's.
func ListenerPortTaken(loadBalancer, protocol string, port int) error {
	return lbError(Errorf(Conflict, "LoadBalancerListenerProtocolPortExists", "Load Balancer %s already has a listener with protocol_port of %d", loadBalancer, port),
		Errorf(Conflict, "", "Another Listener on this Load Balancer is already using protocol %s and protocol_port %d", protocol, port))
}

// ListenerHasPool returns the refusal of a second default pool.
func ListenerHasPool(listener, pool string) error {
	return lbError(Errorf(Conflict, "OnePoolPerListener", "Listener %s is already using default_pool %s", listener, pool),
		Errorf(Conflict, "", "This listener already has a default pool"))
}

// PoolHasMonitor returns the refusal of a second health monitor.
func PoolHasMonitor(pool, monitor string) error {
	return lbError(Errorf(Conflict, "OneHealthMonitorPerPool", "Pool %s already has a healthmonitor. Its id is %s", pool, monitor),
		Errorf(Conflict, "", "This pool already has a health monitor"))
}

// MemberTaken returns the refusal of a second member with an address and port.
func MemberTaken(pool, address string, port int) error {
	return lbError(Errorf(Conflict, "MemberExists", "Member with address %s and protocol_port %d already present in pool %s", address, port, pool),
		Errorf(Conflict, "", "Another member on this pool is already using ip %s on protocol_port %d", address, port))
}

// LoadBalancerHasChildren returns the refusal to delete a load balancer with listeners or pools.
func LoadBalancerHasChildren(id, child, childID string) error {
	return lbError(LBInUse(child, childID, NameLoadBalancer, id), validation("Cannot delete Load Balancer %s - it has children", id))
}

// LBInUse returns the refusal to delete an object of LBaaS that another one uses.
func LBInUse(using, usingID, used, usedID string) *Error {
	return Errorf(Conflict, "EntityInUse", "%s %s is using this %s %s", lowerFirst(using), usingID, lowerFirst(used), usedID)
}

// LBProviderUnknown returns the refusal of a provider that is not served.
func LBProviderUnknown(name string) error {
	return lbError(Errorf(Invalid, "ProviderNotFound", "Provider '%s' could not be found.", name), Errorf(Invalid, "", "Provider '%s' is not enabled.", name))
}
