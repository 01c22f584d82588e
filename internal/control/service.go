// Package control holds the operations on Neutron resources: each is one transaction that checks
// rights, references and quotas, chooses addresses, MACs, segments and keys, translates and
// commits, so that an object and everything derived from it change together (midonet-translations
// §1).
//
//	request ──▶ operation ──▶ check ──▶ choose ──▶ translate ──▶ commit ──▶ view
//	                ▲                                              │
//	                └────────── something read has changed ────────┘
//
// Uniqueness (a MAC of a network, an address of a subnet, a segment, a default group) is a unique
// key of its table; what must continue to exist is a guarded read. Two requests conflict only if
// they want the same thing.
package control

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// Service implements the operations over one store. It is safe for concurrent use.
type Service struct {
	db           *records.DB
	opts         Options
	reservations *reservations

	resources

	// Values of ports' binding:vif_details, bound and not. Views share them.
	vifOverlay, vifRouted, vifNone map[string]any
	// working holds a token while pending work is carried out.
	working chan struct{}
}

// resources are the operations on each resource.
type resources struct {
	networks networks
	subnets  subnets
	ports    ports
	groups   groups
	routers  routers
	rules    *finder[neutron.SecurityGroup] // groups with the rules that a query asks for

	floatingIPs      floatingIPs
	portForwardings  *resource[neutron.PortForwarding, neutron.PortForwarding]
	ndpProxies       ndpProxies
	meteringLabels   *resource[neutron.MeteringLabel, neutron.MeteringLabel]
	meteringRules    *resource[neutron.MeteringLabelRule, neutron.MeteringLabelRule]
	logs             logs
	firewallRules    firewallRules
	firewallPolicies firewallPolicies
	firewalls        firewalls
	loggingResources loggingResources

	subnetPools   subnetPools
	addressScopes addressScopes

	firewallGroups firewallGroups
	groupPolicies  groupPolicies
	groupRules     groupRules

	rbacPolicies    rbacPolicies
	flavors         flavors
	serviceProfiles serviceProfiles
	segmentRanges   segmentRanges
	qosPolicies     qosPolicies

	addressGroups addressGroups
	localIPs      localIPs

	bgpSpeakers bgpSpeakers
	bgpPeers    bgpPeers

	tapServices tapServices
	tapFlows    tapFlows

	gatewayDevices       gatewayDevices
	l2Gateways           l2Gateways
	l2GatewayConnections l2GatewayConnections
}

// New returns the operations over db. It checks the options and starts nothing.
func New(db *records.DB, opts Options) (*Service, error) {
	complete, err := opts.complete()
	if err != nil {
		return nil, err
	}
	s := &Service{
		db:           db,
		opts:         complete,
		vifOverlay:   map[string]any{"connectivity": "l2", "port_filter": true},
		vifRouted:    map[string]any{"connectivity": "l3", "port_filter": true},
		vifNone:      map[string]any{},
		working:      make(chan struct{}, 1),
		reservations: newReservations(),
	}
	s.networks, s.subnets = networks{newNetworks(s)}, subnets{newSubnets(s)}
	s.ports, s.groups, s.routers = ports{newPorts(s)}, groups{newGroups(s)}, routers{newRouters(s)}
	s.rules = groupsOfRules()
	s.floatingIPs = floatingIPs{newFloatingIPs(s)}
	s.portForwardings = newPortForwardings(s)
	s.ndpProxies = ndpProxies{newNDPProxies(s)}
	s.meteringLabels, s.meteringRules = newMeteringLabels(s), newMeteringRules(s)
	s.logs = logs{newLogs(s)}
	s.firewallRules, s.firewallPolicies = firewallRules{newFirewallRules(s)}, firewallPolicies{newFirewallPolicies(s)}
	s.firewalls = firewalls{newFirewalls(s)}
	s.loggingResources = loggingResources{newLoggingResources(s)}
	s.subnetPools, s.addressScopes = subnetPools{newSubnetPools(s)}, addressScopes{newAddressScopes(s)}
	s.firewallGroups = firewallGroups{newFirewallGroups(s)}
	s.addressGroups = addressGroups{newAddressGroups(s)}
	s.localIPs = localIPs{newLocalIPs(s)}
	s.groupPolicies, s.groupRules = groupPolicies{newGroupPolicies(s)}, groupRules{newGroupRules(s)}
	s.rbacPolicies = rbacPolicies{newRBACPolicies(s)}
	s.flavors, s.serviceProfiles = flavors{newFlavors(s)}, serviceProfiles{newServiceProfiles(s)}
	s.segmentRanges = segmentRanges{newSegmentRanges(s)}
	s.qosPolicies = qosPolicies{newQoSPolicies(s)}
	s.bgpSpeakers, s.bgpPeers = bgpSpeakers{newBGPSpeakers(s)}, bgpPeers{newBGPPeers(s)}
	s.tapServices, s.tapFlows = tapServices{newTapServices(s)}, tapFlows{newTapFlows(s)}
	s.gatewayDevices, s.l2Gateways = gatewayDevices{newGatewayDevices(s)}, l2Gateways{newL2Gateways(s)}
	s.l2GatewayConnections = l2GatewayConnections{newL2GatewayConnections(s)}
	return s, nil
}

// operation is one run of one transaction for one caller.
type operation struct {
	*Service
	tx       *records.Tx
	caller   neutron.Caller
	now      time.Time // whole seconds, UTC
	random   *rand.Rand
	reserved *reservation
	charged  map[string]int // what the transaction makes, by key of the quota
}

// transact runs f as a transaction, repeats it on conflicts, and returns its last result.
func transact[R any](ctx context.Context, s *Service, c neutron.Caller, f func(*operation) (R, error)) (R, error) {
	result, err := attempt(ctx, s, c, f)
	if err != nil {
		var none R
		return none, forClient(err)
	}
	return result, nil
}

// createAll is transact for creates: an error with unknown outcome names the objects' ids.
func createAll[V any](ctx context.Context, s *Service, c neutron.Caller, id func(*V) string, f func(*operation) ([]*V, error)) ([]*V, error) {
	made, err := attempt(ctx, s, c, f)
	if err == nil {
		return made, nil
	}
	ids := make([]string, len(made))
	for i, o := range made {
		ids[i] = id(o)
	}
	return nil, forClient(err, ids...)
}

// attempt runs f as a transaction and returns its last result, even if it was not committed.
func attempt[R any](ctx context.Context, s *Service, c neutron.Caller, f func(*operation) (R, error)) (result R, err error) {
	reserved := s.reservations.begin()
	defer reserved.end()
	_, err = s.db.Update(ctx, func(tx *records.Tx) (err error) {
		reserved.end() // by the run before
		result, err = f(&operation{
			Service:  s,
			tx:       tx,
			caller:   c,
			now:      s.opts.Now().UTC().Truncate(time.Second),
			random:   rand.New(rand.NewChaCha8(s.opts.Seed())),
			reserved: reserved,
			charged:  map[string]int{},
		})
		return err
	})
	return result, err
}

// view returns a snapshot with everything committed so far, by whichever server.
func (s *Service) view(ctx context.Context) (*records.Snap, error) {
	snap, err := s.db.View(ctx)
	return snap, forClient(err)
}

// perform is transact for operations without an answer.
func perform(ctx context.Context, s *Service, c neutron.Caller, f func(*operation) error) error {
	_, err := transact(ctx, s, c, func(o *operation) (struct{}, error) { return struct{}{}, f(o) })
	return err
}

// newID makes a random UUID.
func (o *operation) newID() string {
	var id uuid.UUID
	for i := range id {
		id[i] = byte(o.random.Uint32())
	}
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // version 4, RFC 9562
	return id.String()
}

// standard returns the standard attributes of a new object, with the id that v gives it or a random
// one; revision is the number the reference gives it (neutron-api §2).
func (o *operation) standard(v neutron.Values, revision int64) neutron.Standard {
	id := v.Text("id")
	if id == "" {
		id = o.newID()
	}
	return neutron.Standard{
		ID:             id,
		ProjectID:      v.Text("project_id"),
		Name:           v.Text("name"),
		Description:    v.Text("description"),
		CreatedAt:      o.now,
		UpdatedAt:      o.now,
		RevisionNumber: revision,
	}
}

// bump notes a change of an object or of what hangs on it.
func (o *operation) bump(s *neutron.Standard) {
	s.RevisionNumber++
	s.UpdatedAt = o.now
}

// applyStandard sets the standard attributes that an update names.
func applyStandard(s *neutron.Standard, v neutron.Values) {
	setText(&s.Name, v, "name")
	setText(&s.Description, v, "description")
}

func setText(to *string, v neutron.Values, name string) {
	if v.Has(name) {
		*to = v.Text(name)
	}
}

func setFlag(to *bool, v neutron.Values, name string) {
	if v.Has(name) {
		*to = v.Flag(name)
	}
}

func setList[T any](to *[]T, v neutron.Values, name string) {
	if v.Has(name) {
		*to = list[T](v, name)
	}
}
