package neutron

import (
	"net/netip"
	"slices"
)

// Caller holds the user, project and roles of a request's token.
type Caller struct {
	UserID    string
	ProjectID string // "" for a token without a project
	Roles     []string
}

// Admin reports whether the caller may do everything (role admin).
func (c Caller) Admin() bool { return slices.Contains(c.Roles, "admin") }

// AdvancedService reports whether the caller is a service that has ports on all networks, such as
// a load balancer's (role advsvc).
func (c Caller) AdvancedService() bool { return slices.Contains(c.Roles, "advsvc") }

// ReadOnly reports whether the caller may only look: a reader who is neither member nor admin.
func (c Caller) ReadOnly() bool { return !c.Admin() && !slices.Contains(c.Roles, "member") }

// Owns reports whether the caller is admin or of the project.
func (c Caller) Owns(projectID string) bool {
	return c.Admin() || projectID != "" && c.ProjectID == projectID
}

// Values are the attributes of one create or update as Parse leaves them: normalised, and at create
// with the defaults filled in. An absent key was not specified. The value of each attribute has the
// type that its entry in the attribute table names:
//
//	text, ids          string; nil where the attribute may be null
//	flags              bool
//	numbers            int; nil where the attribute may be null
//	project_id         string, always there at create (tenant_id never is)
//	tags               []string
//	cidr               netip.Prefix, masked
//	gateway_ip         netip.Addr; nil = no gateway
//	allocation_pools   []Pool
//	host_routes        []HostRoute
//	dns_nameservers    []netip.Addr
//	service_types      []string
//	mac_address        packet.MAC; nil = choose one, at update another
//	fixed_ips          []FixedIPRequest
//	security_groups    []string
//	allowed_address_pairs  []AddressPair, where a zero MAC stands for the port's own
//	extra_dhcp_opts    []DHCPOptChange
//	binding:profile    map[string]any; nil = not to be bound
//	floating_ip_address, fixed_ip_address  netip.Addr
//	firewall_rules, router_ids, ports  []string
//	external_gateway_info  *GatewayRequest; nil = no gateway
//	routes             []HostRoute
//	sub_ports          []SubportRequest
//	segments           Values, of a network's one segment; nil = none
//
// Parse refuses three attributes that callers in this process may add: at create id, a string that
// no object of the resource has, in place of a random one; at create of a security group
// security_group_rules, a []Values, in place of the rules that the server makes; and beside
// external_gateway_info gw_port_id, a port that becomes the gateway, in place of a new one.
type Values map[string]any

// FixedIPRequest asks for an address: any of a subnet, a certain one, or both.
type FixedIPRequest struct {
	SubnetID  string     // "" = the subnet that holds IPAddress
	IPAddress netip.Addr // invalid = any of the subnet
}

// GatewayRequest asks for a gateway of a router.
type GatewayRequest struct {
	NetworkID  string
	EnableSNAT *bool            // nil = true
	FixedIPs   []FixedIPRequest // nil = any, or those that the gateway has
	// QoSPolicyID is "" for no policy; nil = as it is.
	QoSPolicyID *string
	// PortID is a port that becomes the gateway, in place of a new one. Clients cannot name it.
	PortID string
}

// DHCPOptChange sets an extra DHCP option or, with a nil value, removes it.
type DHCPOptChange struct {
	OptName   string
	OptValue  *string
	IPVersion int // 4 or 6
}

// Has reports whether the attribute was specified (null counts).
func (v Values) Has(name string) bool { _, ok := v[name]; return ok }

// Text returns a text attribute; absent and null are "".
func (v Values) Text(name string) string { s, _ := v[name].(string); return s }

// Flag is a boolean attribute; absent and null are false.
func (v Values) Flag(name string) bool { b, _ := v[name].(bool); return b }

// Number returns an integer attribute; nil when absent or null.
func (v Values) Number(name string) *int {
	if n, ok := v[name].(int); ok {
		return &n
	}
	return nil
}
