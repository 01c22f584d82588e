package neutron

import (
	"slices"
	"strings"
	"time"
)

// Lengths of texts in the reference's database, characters.
const (
	maxName        = 255
	maxDescription = 255
	maxProject     = 255
	maxTag         = 255
)

// CanonicalDomain returns a domain without its final dot, which dns_assignment adds.
func CanonicalDomain(domain string) string { return strings.TrimSuffix(domain, ".") }

// MaxList bounds the entries of an object's list, unless it has a limit of its own.
const MaxList = 100

// CheckList refuses a list with too many entries.
func CheckList(name string, entries int) error {
	if entries > MaxList {
		return badRequest("Invalid input for %s. Reason: %s.", name, tooMany(entries))
	}
	return nil
}

func tooMany(entries int) error {
	return reasonf("'%d' entries are too many - there may be no more than '%d'", entries, MaxList)
}

// Tables are the attribute tables of the resources that are answered object by object.
type Tables struct {
	Networks           *Table[*NetworkView]
	Subnets            *Table[*SubnetView]
	Ports              *Table[*PortView]
	SecurityGroups     *Table[*SecurityGroupView]
	SecurityGroupRules *Table[*SecurityGroupRule]
	DefaultRules       *Table[*DefaultSecurityGroupRule]
	Agents             *Table[*AgentView]
	Routers            *Table[*RouterView]
	FloatingIPs        *Table[*FloatingIPView]
	FloatingIPPools    *Table[*FloatingIPPool]
	PortForwardings    *Table[*PortForwarding]
	NDPProxies         *Table[*NDPProxy]
	MeteringLabels     *Table[*MeteringLabel]
	MeteringLabelRules *Table[*MeteringLabelRule]
	Logs               *Table[*Log]
	LoggingResources   *Table[*LoggingResourceView]
	FirewallLogs       *Table[*FirewallLog]
	LoggableResources  *Table[*LoggableResource]
	IPAvailabilities   *Table[*IPAvailability]
	PortBindings       *Table[*PortBindingView]
	Trunks             *Table[*TrunkView]
	FirewallRules      *Table[*FirewallRuleView]
	FirewallPolicies   *Table[*FirewallPolicyView]
	Firewalls          *Table[*FirewallView]

	FirewallGroups        *Table[*FirewallGroupView]
	FirewallGroupPolicies *Table[*FirewallPolicyView]
	FirewallGroupRules    *Table[*FirewallGroupRuleView]

	RBACPolicies      *Table[*RBACPolicy]
	AvailabilityZones *Table[*AvailabilityZone]
	Flavors           *Table[*Flavor]
	ServiceProfiles   *Table[*ServiceProfile]
	ServiceProviders  *Table[*ServiceProvider]
	SegmentRanges     *Table[*SegmentRangeView]
	Segments          *Table[*SegmentView]
	QoSPolicies       *Table[*QoSPolicyView]
	QoSRules          map[Resource]*Table[*QoSRuleView] // by type, and again without their policies
	QoSRuleTypes      *Table[*QoSRuleTypeView]

	AddressGroups *Table[*AddressGroupView]
	SubnetPools   *Table[*SubnetPoolView]
	AddressScopes *Table[*AddressScopeView]

	LocalIPs            *Table[*LocalIP]
	LocalIPAssociations *Table[*LocalIPAssociationView]

	BGPSpeakers *Table[*BGPSpeaker]
	BGPPeers    *Table[*BGPPeer]

	TapServices *Table[*TapServiceView]
	TapFlows    *Table[*TapFlowView]

	GatewayDevices       *Table[*GatewayDeviceView]
	RemoteMACEntries     *Table[*RemoteMACEntry]
	L2Gateways           *Table[*L2Gateway]
	L2GatewayConnections *Table[*L2GatewayConnection]

	LoadBalancers  *Table[*LoadBalancerView]
	Listeners      *Table[*ListenerView]
	LBPools        *Table[*LBPoolView]
	LBMembers      *Table[*LBMemberView]
	HealthMonitors *Table[*HealthMonitorView]

	VIPs             *Table[*VIPView]
	V1Pools          *Table[*LBPoolView]
	V1Members        *Table[*LBMemberView]
	V1HealthMonitors *Table[*HealthMonitorView]
}

// NewTables makes the tables. dnsDomain completes the names in a port's dns_assignment; it may be
// written with a dot at its end.
func NewTables(dnsDomain string) *Tables {
	dnsDomain = CanonicalDomain(dnsDomain)
	return &Tables{
		Networks:           networkTable(),
		Subnets:            subnetTable(),
		Ports:              portTable(dnsDomain),
		SecurityGroups:     securityGroupTable(),
		SecurityGroupRules: securityGroupRuleTable(),
		DefaultRules:       defaultRuleTable(),
		Agents:             agentTable(),
		Routers:            routerTable(),
		FloatingIPs:        floatingIPTable(),
		FloatingIPPools:    floatingIPPoolTable(),
		PortForwardings:    portForwardingTable(),
		NDPProxies:         ndpProxyTable(),
		MeteringLabels:     meteringLabelTable(),
		MeteringLabelRules: meteringLabelRuleTable(),
		Logs:               logTable(),
		LoggingResources:   loggingResourceTable(),
		FirewallLogs:       firewallLogTable(),
		LoggableResources:  loggableResourceTable(),
		IPAvailabilities:   ipAvailabilityTable(),
		PortBindings:       portBindingTable(),
		Trunks:             trunkTable(),
		FirewallRules:      firewallRuleTable(),
		FirewallPolicies:   firewallPolicyTable(),
		Firewalls:          firewallTable(),

		FirewallGroups:        firewallGroupTable(),
		FirewallGroupPolicies: firewallGroupPolicyTable(),
		FirewallGroupRules:    firewallGroupRuleTable(),

		RBACPolicies:      rbacPolicyTable(),
		AvailabilityZones: availabilityZoneTable(),
		Flavors:           flavorTable(),
		ServiceProfiles:   serviceProfileTable(),
		ServiceProviders:  serviceProviderTable(),
		SegmentRanges:     segmentRangeTable(),
		Segments:          segmentTable(),
		QoSPolicies:       qosPolicyTable(),
		QoSRules:          qosRuleTables(),
		QoSRuleTypes:      qosRuleTypeTable(),

		AddressGroups: addressGroupTable(),
		SubnetPools:   subnetPoolTable(),
		AddressScopes: addressScopeTable(),

		LocalIPs:            localIPTable(),
		LocalIPAssociations: localIPAssociationTable(),

		BGPSpeakers: bgpSpeakerTable(),
		BGPPeers:    bgpPeerTable(),

		TapServices: tapServiceTable(),
		TapFlows:    tapFlowTable(),

		GatewayDevices:       gatewayDeviceTable(),
		RemoteMACEntries:     remoteMACEntryTable(),
		L2Gateways:           l2GatewayTable(),
		L2GatewayConnections: l2GatewayConnectionTable(),

		LoadBalancers:  loadBalancerTable(),
		Listeners:      listenerTable(),
		LBPools:        lbPoolTable(),
		LBMembers:      lbMemberTable(),
		HealthMonitors: healthMonitorTable(),

		VIPs:             vipTable(),
		V1Pools:          v1PoolTable(),
		V1Members:        v1MemberTable(),
		V1HealthMonitors: v1HealthMonitorTable(),
	}
}

// attributeTables are the rows of all tables by resource; they never change.
var attributeTables = func() [len(names)][]*Attribute {
	t := NewTables("")
	all := [...][]*Attribute{
		Networks:           t.Networks.attributes(),
		Subnets:            t.Subnets.attributes(),
		Ports:              t.Ports.attributes(),
		SecurityGroups:     t.SecurityGroups.attributes(),
		SecurityGroupRules: t.SecurityGroupRules.attributes(),
		DefaultRules:       t.DefaultRules.attributes(),
		Quotas:             quotaAttributes(),
		Agents:             t.Agents.attributes(),
		Routers:            t.Routers.attributes(),
		FloatingIPs:        t.FloatingIPs.attributes(),
		FloatingIPPools:    t.FloatingIPPools.attributes(),
		PortForwardings:    t.PortForwardings.attributes(),
		NDPProxies:         t.NDPProxies.attributes(),
		MeteringLabels:     t.MeteringLabels.attributes(),
		MeteringLabelRules: t.MeteringLabelRules.attributes(),
		Logs:               t.Logs.attributes(),
		LoggingResources:   t.LoggingResources.attributes(),
		FirewallLogs:       t.FirewallLogs.attributes(),
		LoggableResources:  t.LoggableResources.attributes(),
		IPAvailabilities:   t.IPAvailabilities.attributes(),
		PortBindings:       t.PortBindings.attributes(),
		Trunks:             t.Trunks.attributes(),
		FirewallRules:      t.FirewallRules.attributes(),
		FirewallPolicies:   t.FirewallPolicies.attributes(),
		Firewalls:          t.Firewalls.attributes(),

		FirewallGroups:        t.FirewallGroups.attributes(),
		FirewallGroupPolicies: t.FirewallGroupPolicies.attributes(),
		FirewallGroupRules:    t.FirewallGroupRules.attributes(),

		RBACPolicies:             t.RBACPolicies.attributes(),
		AvailabilityZones:        t.AvailabilityZones.attributes(),
		Flavors:                  t.Flavors.attributes(),
		ServiceProfiles:          t.ServiceProfiles.attributes(),
		ServiceProvidersResource: t.ServiceProviders.attributes(),
		SegmentRanges:            t.SegmentRanges.attributes(),
		Segments:                 t.Segments.attributes(),
		QoSPolicies:              t.QoSPolicies.attributes(),
		QoSRuleTypeNames:         t.QoSRuleTypes.attributes(),

		AddressGroups: t.AddressGroups.attributes(),
		SubnetPools:   t.SubnetPools.attributes(),
		AddressScopes: t.AddressScopes.attributes(),

		LocalIPs:            t.LocalIPs.attributes(),
		LocalIPAssociations: t.LocalIPAssociations.attributes(),

		BGPSpeakers: t.BGPSpeakers.attributes(),
		BGPPeers:    t.BGPPeers.attributes(),

		TapServices: t.TapServices.attributes(),
		TapFlows:    t.TapFlows.attributes(),

		GatewayDevices:       t.GatewayDevices.attributes(),
		RemoteMACEntries:     t.RemoteMACEntries.attributes(),
		L2Gateways:           t.L2Gateways.attributes(),
		L2GatewayConnections: t.L2GatewayConnections.attributes(),

		LoadBalancers:  t.LoadBalancers.attributes(),
		Listeners:      t.Listeners.attributes(),
		LBPools:        t.LBPools.attributes(),
		LBMembers:      t.LBMembers.attributes(),
		HealthMonitors: t.HealthMonitors.attributes(),

		VIPs:             t.VIPs.attributes(),
		V1Pools:          t.V1Pools.attributes(),
		V1Members:        t.V1Members.attributes(),
		V1HealthMonitors: t.V1HealthMonitors.attributes(),
	}
	for r, table := range t.QoSRules {
		all[r] = table.attributes()
	}
	return all
}()

// Attributes returns the resource's attribute table; not to be changed.
func (r Resource) Attributes() []*Attribute { return attributeTables[r] }

// row returns one line of a table.
func row[T any](a Attribute, v value[T]) column[T] { return column[T]{&a, v} }

// Columns that resources share. get takes the standard attributes out of an object.

func idColumn[T any](get func(o T) *Standard) column[T] {
	return row(Attribute{Name: "id", Filter: true, Sort: true, Type: "uuid", Doc: "made by the server"},
		textValue(func(o T) string { return get(o).ID }))
}

func nameColumn[T any](get func(o T) *Standard) column[T] {
	return row(Attribute{Name: "name", Create: true, Update: true, Default: "", Filter: true, Sort: true,
		Type: "string", Doc: "need not be unique", parse: text(maxName)},
		textValue(func(o T) string { return get(o).Name }))
}

// projectColumns returns the two names of the owner.
func projectColumns[T any](get func(o T) *Standard) []column[T] {
	v := textValue(func(o T) string { return get(o).ProjectID })
	return []column[T]{
		row(Attribute{Name: "tenant_id", Create: true, Default: unset{}, Filter: true, Sort: true, Type: "string",
			Doc: "the older name of project_id", parse: text(maxProject)}, v),
		row(Attribute{Name: "project_id", Create: true, Default: unset{}, Filter: true, Sort: true, Type: "string",
			Doc: "the owner; the caller's project unless an admin names another", parse: text(maxProject)}, v),
	}
}

// lastColumns end the table of a resource with standard attributes.
func lastColumns[T any](get func(o T) *Standard) []column[T] {
	since := func(o T) time.Time { return get(o).UpdatedAt }
	return []column[T]{
		row(Attribute{Name: "created_at", Filter: true, Sort: true, Type: "time", Doc: "UTC, whole seconds"},
			timeValue(func(o T) time.Time { return get(o).CreatedAt })),
		row(Attribute{Name: "updated_at", Filter: true, Sort: true, Type: "time", Doc: "UTC, whole seconds"}, timeValue(since)),
		row(Attribute{Name: "changed_since", Filter: true, Hidden: true, Type: "time", Doc: "filter: changed at or after this time"},
			value[T]{match: matchSince(since)}),
		row(Attribute{Name: "revision_number", Filter: true, Sort: true, Type: "integer", Doc: "rises with every change; If-Match insists on it"},
			numberValue(func(o T) int64 { return get(o).RevisionNumber })),
	}
}

func descriptionColumn[T any](get func(o T) *Standard) column[T] {
	return row(Attribute{Name: "description", Create: true, Update: true, Default: "", Filter: true, Sort: true,
		Type: "string", parse: text(maxDescription)},
		textValue(func(o T) string { return get(o).Description }))
}

// tagColumns returns the tags and the filters by them; tags is the row of the attribute itself.
func tagColumns[T any](tags Attribute, get func(o T) *Standard) []column[T] {
	tags.Name, tags.Filter, tags.Type = "tags", true, "list of strings"
	v := textsValue(func(o T) []string { return get(o).Tags })
	filter := func(name, doc string, pass func(tags, want []string) bool) column[T] {
		return row(Attribute{Name: name, Filter: true, Hidden: true, Type: "list of strings", Doc: doc},
			value[T]{match: func(values []string) (func(o T) bool, error) {
				want := splitTags(values)
				return func(o T) bool { return pass(get(o).Tags, want) }, nil
			}})
	}
	v.match = filter("", "", hasAll).match
	return []column[T]{
		row(tags, v),
		filter("tags-any", "filter: has one of the tags", hasAny),
		filter("not-tags", "filter: has not all of the tags", func(t, w []string) bool { return !hasAll(t, w) }),
		filter("not-tags-any", "filter: has none of the tags", func(t, w []string) bool { return !hasAny(t, w) }),
	}
}

func splitTags(values []string) []string {
	var tags []string
	for _, v := range values {
		tags = append(tags, strings.Split(v, ",")...)
	}
	return tags
}

func hasAny(tags, want []string) bool {
	return slices.ContainsFunc(want, func(w string) bool { return slices.Contains(tags, w) })
}

func hasAll(tags, want []string) bool {
	return !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(tags, w) })
}

func matchSince[T any](get func(o T) time.Time) func(values []string) (func(o T) bool, error) {
	return func(values []string) (func(o T) bool, error) {
		var since time.Time
		for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05"} {
			if t, err := time.Parse(layout, values[0]); err == nil {
				since = t
			}
		}
		if since.IsZero() {
			return nil, invalidInput("The input changed_since must be in the following format: YYYY-MM-DDTHH:MM:SSZ")
		}
		return func(o T) bool { return !get(o).Truncate(time.Second).Before(since) }, nil
	}
}

// ParseTags reads a list of different tags.
func ParseTags(v any) ([]string, error) {
	tags, err := fewer(texts(maxTag))(v)
	if err != nil {
		return nil, invalidInput("%s", err)
	}
	return tags.([]string), nil
}

// CanonicalMACs returns those of the texts that are MAC addresses, in canonical form.
func CanonicalMACs(texts []string) []string {
	var macs []string
	for _, s := range texts {
		if m, ok := parseMAC(s); ok {
			macs = append(macs, m.String())
		}
	}
	return macs
}
