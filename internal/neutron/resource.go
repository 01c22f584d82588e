package neutron

import "strings"

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
	FloatingIPs
	FloatingIPPools
	PortForwardings
	NDPProxies
	MeteringLabels
	MeteringLabelRules
	Logs
	LoggableResources
	LoggingResources
	FirewallLogs
	IPAvailabilities
	PortBindings
	Trunks
	FirewallRules
	FirewallPolicies
	Firewalls
	FirewallGroups
	FirewallGroupPolicies
	FirewallGroupRules
	RBACPolicies
	AvailabilityZones
	Flavors
	ServiceProfiles
	ServiceProvidersResource
	SegmentRanges
	Segments
	QoSPolicies
	QoSBandwidthLimitRules
	QoSDSCPMarkingRules
	QoSMinimumBandwidthRules
	QoSMinimumPacketRateRules
	QoSPacketRateLimitRules
	QoSBandwidthLimitAliases
	QoSDSCPMarkingAliases
	QoSMinimumBandwidthAliases
	QoSMinimumPacketRateAliases
	QoSRuleTypeNames
	AddressGroups

	SubnetPools
	AddressScopes

	LocalIPs
	LocalIPAssociations

	BGPSpeakers
	BGPPeers

	TapServices
	TapFlows

	GatewayDevices
	RemoteMACEntries
	L2Gateways
	L2GatewayConnections

	DefaultRules

	// Of LBaaS v2.
	LoadBalancers
	Listeners
	LBPools
	LBMembers
	HealthMonitors
	// Of LBaaS v1.
	VIPs
	V1Pools
	V1Members
	V1HealthMonitors
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
	FloatingIPs:        {"floatingip", "floatingips", "FloatingIP"},
	FloatingIPPools:    {"floatingip_pool", "floatingip_pools", "FloatingIPPool"},
	NDPProxies:         {"ndp_proxy", "ndp_proxies", "NDPProxy"},
	MeteringLabels:     {"metering_label", "metering_labels", "MeteringLabel"},
	MeteringLabelRules: {"metering_label_rule", "metering_label_rules", "MeteringLabelRule"},
	Logs:               {"log", "logs", "LogResource"},
	LoggingResources:   {"logging_resource", "logging_resources", "LoggingResource"},
	FirewallLogs:       {"firewall_log", "firewall_logs", "FirewallLog"},
	LoggableResources:  {"loggable_resource", "loggable_resources", "LoggableResource"},
	IPAvailabilities:   {"network_ip_availability", "network_ip_availabilities", "Network"},
	PortBindings:       {"binding", "bindings", "PortBinding"},
	Trunks:             {"trunk", "trunks", "Trunk"},
	FirewallRules:      {"firewall_rule", "firewall_rules", "FirewallRule"},
	FirewallPolicies:   {"firewall_policy", "firewall_policies", "FirewallPolicy"},
	Firewalls:          {"firewall", "firewalls", "Firewall"},

	PortForwardings: {"port_forwarding", "port_forwardings", "PortForwarding"},

	FirewallGroups:        {"firewall_group", "firewall_groups", "FirewallGroup"},
	FirewallGroupPolicies: {"firewall_policy", "firewall_policies", "FirewallPolicy"},
	FirewallGroupRules:    {"firewall_rule", "firewall_rules", "FirewallRule"},

	RBACPolicies:                {"rbac_policy", "rbac_policies", "RbacPolicy"},
	AvailabilityZones:           {"availability_zone", "availability_zones", "AvailabilityZone"},
	Flavors:                     {"flavor", "flavors", "Flavor"},
	ServiceProfiles:             {"service_profile", "service_profiles", "ServiceProfile"},
	SegmentRanges:               {"network_segment_range", "network_segment_ranges", "NetworkSegmentRange"},
	Segments:                    {"segment", "segments", "Segment"},
	ServiceProvidersResource:    {"service_provider", "service_providers", "ServiceProvider"},
	QoSPolicies:                 {"policy", "policies", "QosPolicy"},
	QoSBandwidthLimitRules:      {"bandwidth_limit_rule", "bandwidth_limit_rules", "QosRule"},
	QoSDSCPMarkingRules:         {"dscp_marking_rule", "dscp_marking_rules", "QosRule"},
	QoSMinimumBandwidthRules:    {"minimum_bandwidth_rule", "minimum_bandwidth_rules", "QosRule"},
	QoSMinimumPacketRateRules:   {"minimum_packet_rate_rule", "minimum_packet_rate_rules", "QosRule"},
	QoSPacketRateLimitRules:     {"packet_rate_limit_rule", "packet_rate_limit_rules", "QosRule"},
	QoSBandwidthLimitAliases:    {"alias_bandwidth_limit_rule", "alias_bandwidth_limit_rules", "QosRule"},
	QoSDSCPMarkingAliases:       {"alias_dscp_marking_rule", "alias_dscp_marking_rules", "QosRule"},
	QoSMinimumBandwidthAliases:  {"alias_minimum_bandwidth_rule", "alias_minimum_bandwidth_rules", "QosRule"},
	QoSMinimumPacketRateAliases: {"alias_minimum_packet_rate_rule", "alias_minimum_packet_rate_rules", "QosRule"},
	QoSRuleTypeNames:            {"rule_type", "rule_types", "QosRuleType"},

	AddressGroups: {"address_group", "address_groups", "AddressGroup"},
	SubnetPools:   {"subnetpool", "subnetpools", "SubnetPool"},
	AddressScopes: {"address_scope", "address_scopes", "AddressScope"},

	LocalIPs:            {"local_ip", "local_ips", "LocalIP"},
	LocalIPAssociations: {"port_association", "port_associations", "LocalIPAssociation"},

	BGPSpeakers: {"bgp_speaker", "bgp_speakers", "BgpSpeaker"},
	BGPPeers:    {"bgp_peer", "bgp_peers", "BgpPeer"},

	TapServices: {"tap_service", "tap_services", "TapService"},
	TapFlows:    {"tap_flow", "tap_flows", "TapFlow"},

	GatewayDevices:       {"gateway_device", "gateway_devices", "GatewayDevice"},
	RemoteMACEntries:     {"remote_mac_entry", "remote_mac_entries", "RemoteMacEntry"},
	L2Gateways:           {"l2_gateway", "l2_gateways", "L2Gateway"},
	L2GatewayConnections: {"l2_gateway_connection", "l2_gateway_connections", "L2GatewayConnection"},

	DefaultRules: {"default_security_group_rule", "default_security_group_rules", "DefaultSecurityGroupRule"},

	LoadBalancers:    {"loadbalancer", "loadbalancers", "Entity"},
	Listeners:        {"listener", "listeners", "Entity"},
	LBPools:          {"pool", "pools", "Entity"},
	LBMembers:        {"member", "members", "Entity"},
	HealthMonitors:   {"healthmonitor", "healthmonitors", "Entity"},
	VIPs:             {"vip", "vips", "Vip"},
	V1Pools:          {"pool", "pools", "Pool"},
	V1Members:        {"member", "members", "Member"},
	V1HealthMonitors: {"health_monitor", "health_monitors", "HealthMonitor"},
}

// Resources returns the resources of the API.
func Resources() []Resource {
	var all []Resource
	for r := Networks; int(r) < len(names); r++ {
		all = append(all, r)
	}
	return all
}

// Name returns the key of one object in a body, such as security_group.
func (r Resource) Name() string { return names[r].name }

// ObjectType returns the name that RBAC policies have for the resource.
func (r Resource) ObjectType() string {
	if r == QoSPolicies {
		return "qos_policy"
	}
	return r.Name()
}

// Collection returns the key of a list in a body, such as security_groups.
func (r Resource) Collection() string { return names[r].collection }

// isQoSRule reports whether the objects are rules of QoS policies.
func (r Resource) isQoSRule() bool {
	return r >= QoSBandwidthLimitRules && r <= QoSMinimumPacketRateAliases
}

// isQoSAlias reports whether the objects are rules of QoS policies that are named without their
// policy.
func (r Resource) isQoSAlias() bool { return r.isQoSRule() && r >= QoSBandwidthLimitAliases }

// Path returns where the API has the collection, below /v2.0; of bindings, below their port, of
// port forwardings below their floating IP, of associations of local IPs below the local IP, of
// rules of QoS policies below the policy, of firewall logs below their logging resource, of remote
// MAC entries below their gateway device, and of members of LBaaS v2 below their pool.
func (r Resource) Path() string {
	switch r {
	case FloatingIPPools, NDPProxies, AvailabilityZones, ServiceProfiles, SegmentRanges:
		return "/" + r.Collection()
	case MeteringLabels, MeteringLabelRules:
		return "/metering/" + strings.ReplaceAll(r.Collection(), "_", "-")
	case Logs, LoggableResources:
		return "/log/" + strings.ReplaceAll(r.Collection(), "_", "-")
	case LoggingResources:
		return "/logging/" + r.Collection()
	case FirewallLogs, RemoteMACEntries:
		return "/" + r.Collection()
	case GatewayDevices:
		return "/gw/" + r.Collection()
	case FirewallRules, FirewallPolicies, Firewalls:
		return "/fw/" + r.Collection()
	case FirewallGroups, FirewallGroupPolicies, FirewallGroupRules:
		return "/fwaas/" + r.Collection()
	case TapServices, TapFlows:
		return "/taas/" + r.Collection()
	case QoSRuleTypeNames:
		return "/qos/rule-types"
	case LoadBalancers, Listeners, LBPools, HealthMonitors:
		return "/lbaas/" + r.Collection()
	case VIPs, V1Pools, V1Members, V1HealthMonitors:
		return "/lb/" + r.Collection()
	}
	switch {
	case r == QoSPolicies, r.isQoSAlias():
		return "/qos/" + r.Collection()
	case r.isQoSRule():
		return "/" + r.Collection()
	}
	return "/" + strings.ReplaceAll(r.Collection(), "_", "-")
}

func (r Resource) String() string { return r.Name() }

// NotFound is Neutron's error for an object that is not there, or that the caller may not see.
func (r Resource) NotFound(id string) *Error {
	typ := names[r].class + "NotFound"
	switch r {
	case SecurityGroups:
		return Errorf(NotFound, typ, "Security group %s does not exist", id)
	case SecurityGroupRules:
		return Errorf(NotFound, typ, "Security group rule %s does not exist", id)
	case DefaultRules:
		return Errorf(NotFound, typ, "Default Security Group rule %s does not exist.", id)
	case Routers:
		return Errorf(NotFound, typ, "Router %s could not be found", id)
	case FloatingIPs:
		return Errorf(NotFound, typ, "Floating IP %s could not be found", id)
	case RBACPolicies:
		return Errorf(NotFound, typ, "RBAC policy of type unknown with ID %s not found", id)
	case PortForwardings:
		return Errorf(NotFound, typ, "Port Forwarding %s could not be found.", id)
	case NDPProxies:
		return Errorf(NotFound, typ, "Ndp proxy %s could not be found.", id)
	case SegmentRanges:
		return Errorf(NotFound, typ, "Network Segment Range %s could not be found.", id)
	case ServiceProfiles:
		return Errorf(NotFound, typ, "Service Profile %s could not be found.", id)
	case AddressGroups:
		return Errorf(NotFound, typ, "Address group %s could not be found.", id)
	case SubnetPools:
		return Errorf(NotFound, typ, "Subnet pool %s could not be found.", id)
	case LocalIPs:
		return Errorf(NotFound, typ, "Local IP %s could not be found.", id)
	case AddressScopes:
		return Errorf(NotFound, typ, "Address scope %s could not be found.", id)
	case MeteringLabels:
		return Errorf(NotFound, typ, "Metering label '%s' does not exist.", id)
	case MeteringLabelRules:
		return Errorf(NotFound, typ, "Metering label rule '%s' does not exist.", id)
	case LoggingResources:
		return Errorf(NotFound, typ, "Logging resource %s does not exist", id)
	case FirewallLogs:
		return Errorf(NotFound, typ, "Firewall log %s does not exist", id)
	case Logs:
		return Errorf(NotFound, typ, "Log resource %s could not be found.", id)
	case FirewallRules:
		return Errorf(NotFound, typ, "Firewall Rule %s could not be found.", id)
	case FirewallPolicies:
		return Errorf(NotFound, typ, "Firewall Policy %s could not be found.", id)
	case FirewallGroups, FirewallGroupPolicies, FirewallGroupRules:
		return Errorf(NotFound, typ, "Firewall %s %s could not be found.", strings.TrimPrefix(r.Name(), "firewall_"), id)
	case BGPSpeakers:
		return Errorf(NotFound, typ, "BGP speaker %s could not be found.", id)
	case BGPPeers:
		return Errorf(NotFound, typ, "BGP peer %s could not be found.", id)
	case TapServices:
		return Errorf(NotFound, typ, "Tap Service  %s does not exist", id)
	case TapFlows:
		return Errorf(NotFound, typ, "Tap Flow  %s does not exist", id)
	case GatewayDevices:
		return Errorf(NotFound, typ, "Gateway device %s does not exist", id)
	case RemoteMACEntries:
		return Errorf(NotFound, typ, "Remote MAC entry %s does not exist", id)
	case L2Gateways:
		return Errorf(NotFound, typ, "L2 Gateway %s could not be found", id)
	case L2GatewayConnections:
		return Errorf(NotFound, typ, "The connection %s not found on the l2 gateway", id)
	case QoSPolicies:
		return Errorf(NotFound, typ, "QoS policy %s could not be found.", id)
	case V1HealthMonitors:
		return Errorf(NotFound, typ, "Health_monitor %s could not be found", id)
	case VIPs, V1Pools, V1Members:
		return Errorf(NotFound, typ, "%s %s could not be found", names[r].class, id)
	}
	return Errorf(NotFound, typ, "%s %s could not be found.", names[r].class, id)
}

// owned reports whether objects belong to a project that create names.
func (r Resource) owned() bool {
	switch r {
	case Quotas, Agents, FloatingIPPools, IPAvailabilities, PortBindings, AvailabilityZones, Flavors, ServiceProfiles,
		ServiceProvidersResource, Segments, LoggableResources, DefaultRules:
		return false
	}
	return !r.isQoSAlias() && r != QoSRuleTypeNames
}
