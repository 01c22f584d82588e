package control

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"

	"heddle/internal/control/addresses"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// create makes networks, all or none. The first of a project brings its default security group.
func (s networks) create(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.NetworkView, error) {
	made, err := s.resource.create(ctx, c, vs)
	if slices.ContainsFunc(made, func(n *neutron.NetworkView) bool { return n.Routed() }) {
		s.service.carryOut(ctx, workDeriveProfiles, allGroups)
	}
	return made, err
}

func (o *operation) createNetwork(ctx context.Context, v neutron.Values) (*neutron.Network, error) {
	if _, err := o.defaultGroup(v.Text("project_id")); err != nil {
		return nil, err
	}
	n := &neutron.Network{
		Standard:            o.standard(v, 1),
		AdminStateUp:        v.Flag("admin_state_up"),
		PortSecurityEnabled: v.Flag("port_security_enabled"),
		External:            v.Flag("router:external"),
		DNSDomain:           v.Text("dns_domain"),
		ZoneHints:           list[string](v, "availability_zone_hints"),
	}
	if err := checkZones(o.tx, n.ZoneHints); err != nil {
		return nil, err
	}
	if err := o.applyDefault(n, v); err != nil {
		return nil, err
	}
	seg, err := o.newSegment(v)
	if err != nil {
		return nil, err
	}
	n.NetworkType, n.PhysicalNetwork, n.SegmentationID = seg.typ, seg.physical, seg.number()
	if err := o.chooseQoSPolicy(n, v); err != nil {
		return nil, err
	}
	if n.MTU, err = o.opts.networkMTU(seg, number(v, "mtu"), nil); err != nil {
		return nil, err
	}
	if n.Routed() {
		if err := o.calico().open(ctx); err != nil {
			return nil, err
		}
	}
	if err := o.putNetwork(n); err != nil {
		return nil, err
	}
	if n.External {
		if _, err := o.grantAll(neutron.Networks, n.ID, neutron.AccessExternal, true); err != nil {
			return nil, err
		}
	}
	return n, o.share(neutron.Networks, n.ID, v)
}

// update changes a network. DHCP hands out a new MTU.
func (s networks) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.NetworkView, error) {
	var later networkWork
	view, err := transact(ctx, s.service, c, func(o *operation) (*neutron.NetworkView, error) {
		old, err := s.toChange(o, id, neutron.Update, v, ifMatch)
		if err != nil {
			return nil, err
		}
		if err := o.refuseChange(id); err != nil {
			return nil, err
		}
		n := *old
		subnets := slices.Collect(schema.Subnets.By(o.tx, "network", id))
		changed, err := o.applySharing(&n, v, subnets)
		if err != nil {
			return nil, err
		}
		if err := o.applyNetwork(&n, v, subnets); err != nil {
			return nil, err
		}
		if n.External && !old.External {
			if err := o.checkNotJoined(id); err != nil {
				return nil, err
			}
		}
		if !changed && reflect.DeepEqual(&n, old) {
			return s.answerTo(o.tx, c, old, neutron.Query{}), nil
		}
		o.bump(&n.Standard)
		if err := o.putNetwork(&n); err != nil {
			return nil, err
		}
		if later, err = o.deriveFromNetwork(old, &n, subnets); err != nil {
			return nil, err
		}
		return s.answerTo(o.tx, c, &n, neutron.Query{}), nil
	})
	if err != nil {
		return nil, err
	}
	if later.endpoints {
		s.service.carryOut(ctx, workDeriveEndpoints, id)
	}
	if later.ports {
		s.service.carryOut(ctx, workDerivePorts, id)
	}
	for _, subnet := range slices.Concat(later.uplinks, later.gateways) {
		s.service.carryOut(ctx, workDeriveRouterPorts, subnet)
	}
	return view, nil
}

// networkWork lists what an update of a network leaves to steps: its ports or their endpoints, and
// the routers on some of its subnets.
type networkWork struct {
	ports, endpoints  bool
	uplinks, gateways []string
}

// deriveFromNetwork rewrites what is derived from a network beside its own bundle.
func (o *operation) deriveFromNetwork(old, n *neutron.Network, subnets []*neutron.Subnet) (later networkWork, err error) {
	if n.MTU != old.MTU {
		for _, sub := range subnets {
			if err := o.deriveSubnet(sub, n); err != nil {
				return later, err
			}
		}
	}
	if n.QoSPolicyID != old.QoSPolicyID {
		if later.ports, later.gateways, err = o.deriveQoSPolicyOf(n, subnets); err != nil {
			return later, err
		}
	}
	if n.External != old.External {
		if err := o.followBGPOn(subnets); err != nil {
			return later, err
		}
	}
	switch {
	case n.AdminStateUp == old.AdminStateUp:
	case n.Routed():
		later.endpoints, err = o.calico().deriveEndpoints(schema.Ports.Referrers(o.tx, "network", n.ID), n)
	case translate.Uplink(n):
		later.uplinks, err = o.deriveRouterPortsOn(subnets)
	}
	return later, err
}

// applyNetwork sets what an update names, and checks it against the rest.
func (o *operation) applyNetwork(n *neutron.Network, v neutron.Values, subnets []*neutron.Subnet) error {
	applyStandard(&n.Standard, v)
	setFlag(&n.AdminStateUp, v, "admin_state_up")
	setFlag(&n.PortSecurityEnabled, v, "port_security_enabled")
	setText(&n.DNSDomain, v, "dns_domain")
	if v.Has(attrQoSPolicy) {
		if err := o.setNetworkQoSPolicy(n, v.Text(attrQoSPolicy)); err != nil {
			return err
		}
	}
	if err := o.applySegment(n, v); err != nil {
		return err
	}
	if err := o.applyDefault(n, v); err != nil {
		return err
	}
	if !v.Has("mtu") {
		return nil
	}
	var err error
	n.MTU, err = o.opts.networkMTU(segmentOf(n), number(v, "mtu"), subnets)
	return err
}

// applyDefault makes an external network the default one, or takes that back. The wish for another
// network to be it means nothing, but is refused while there is one, as by the reference.
func (o *operation) applyDefault(n *neutron.Network, v neutron.Values) error {
	if v.Flag("is_default") {
		for other := range schema.Networks.By(o.tx, "default", "true") {
			if other.ID != n.ID {
				return conflict("DefaultExternalNetworkExists", "A default external network already exists: %s.", other.ID)
			}
		}
	}
	setFlag(&n.Default, v, "is_default")
	n.Default = n.Default && n.External
	return nil
}

// applySegment moves a vlan network to another id. Nothing else of a segment can change.
func (o *operation) applySegment(n *neutron.Network, v neutron.Values) error {
	v, err := providerValues(v)
	if err != nil {
		return err
	}
	for name, now := range map[string]string{attrNetworkType: n.NetworkType, attrPhysicalNetwork: n.PhysicalNetwork} {
		if want := v.Text(name); want != "" && want != now {
			return invalid("Plugin does not support updating the following provider network attributes: %s, %s", attrNetworkType, attrPhysicalNetwork)
		}
	}
	id := number(v, attrSegmentationID)
	had := segmentOf(n)
	switch {
	case id == 0 || id == had.id:
		return nil
	case had.typ != typeVLAN:
		return invalid("Only VLAN type networks can be updated.")
	}
	want := segment{had.typ, had.physical, id}
	if err := o.underlay().checkSegment(want, true); err != nil {
		return err
	}
	if o.segmentTaken(want) {
		return want.inUse()
	}
	n.SegmentationID = want.number()
	return nil
}

// delete deletes a network with its subnets, the server's own ports and floating IPs that have no
// port; other ports refuse. One of many ports is deleted in steps.
func (s networks) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	pending, err := transact(ctx, s.service, c, func(o *operation) (pending bool, err error) {
		return s.remove(o, id, ifMatch)
	})
	if pending && err == nil {
		s.service.carryOut(ctx, workDeleteNetwork, id)
	}
	return err
}

// remove deletes a network as part of an operation, or reports that steps are to delete it.
func (s networks) remove(o *operation, id string, ifMatch *int64) (pending bool, err error) {
	if _, err := s.toChange(o, id, neutron.Delete, nil, ifMatch); err != nil {
		return false, err
	}
	if o.pending(workDeleteNetwork, id) {
		return true, nil
	}
	var using []string
	for _, p := range o.portsOf(id) {
		if !goesWithNetwork(p.DeviceOwner) && !o.holdsUnused(p) {
			using = append(using, p.ID)
		}
	}
	if using != nil {
		return false, conflict("NetworkInUse", "Unable to complete operation on network %s. There are one or more ports still in use "+
			"on the network, id for these ports is: %s.", id, strings.Join(using, ","))
	}
	if err := cmp.Or(o.checkNoDevice(neutron.Networks.Name(), id), o.checkNotJoined(id)); err != nil {
		return false, err
	}
	schema.Subnets.Referrers(o.tx, "network", id) // guards that no new ones have come
	if schema.Ports.CountBy(o.tx, "network", id)+schema.Subnets.CountBy(o.tx, "network", id)+policiesOf(o.tx, id) > stepObjects {
		return true, o.begin(workDeleteNetwork, id)
	}
	_, err = steps{o}.deleteNetwork(id)
	return false, err
}

// newSegment gives a new network its place in the underlay.
func (o *operation) newSegment(v neutron.Values) (segment, error) {
	v, err := providerValues(v)
	if err != nil {
		return segment{}, err
	}
	u, typ, external := &o.opts, v.Text(attrNetworkType), v.Flag("router:external")
	if typ == typeVLAN || typ == typeFlat || typ == "" && external {
		u = o.underlay()
	}
	if typ == typeFlat && external && v.Text(attrPhysicalNetwork) == "" {
		v = maps.Clone(v)
		if v[attrPhysicalNetwork], err = u.onlyFlat(); err != nil {
			return segment{}, err
		}
	}
	u = o.withRanges(u, v.Text("project_id"))
	want, err := u.requestedSegment(v)
	if err != nil {
		return want, err
	}
	if typ == "" && external {
		if want, err = u.wayOut(want, o.segmentTaken); err != nil {
			return want, err
		}
	}
	return u.chooseSegment(want, o.segmentTaken, o.random)
}

// putNetwork stores a network with what is derived from it.
func (o *operation) putNetwork(n *neutron.Network) error {
	if err := o.giveLocalnetKey(n); err != nil {
		return err
	}
	if err := schema.Networks.Put(o.tx, n); err != nil {
		return err
	}
	return o.putBundle(kindNetwork, n.ID, translate.Network(n))
}

// giveLocalnetKey gives a network the tunnel key of its localnet port, if it needs one.
func (o *operation) giveLocalnetKey(n *neutron.Network) error {
	if n.PhysicalNetwork == "" || n.TunnelKey != 0 {
		return nil
	}
	taken := func(key uint32) (bool, error) {
		return schema.Networks.CountBy(o.tx, "tunnel_key", schema.TunnelKey(addresses.LocalnetKeys+key)) > 0, nil
	}
	key, err := o.freeTunnelKey(0, taken)
	n.TunnelKey = addresses.LocalnetKeys + key
	return err
}

// networkFor finds the network for a new object. It guards only its existence, for concurrency.
func (o *operation) networkFor(id string) (*neutron.Network, error) {
	n, err := schema.Networks.Need(o.tx, id)
	if err != nil || !o.networks.sees(o.tx, o.caller, n) {
		return nil, neutron.Networks.NotFound(id)
	}
	return n, o.refuseChange(id)
}

// bumpNetwork notes that a subnet of a network has changed.
func (o *operation) bumpNetwork(id string) error {
	old, err := schema.Networks.Get(o.tx, id)
	if err != nil {
		return err
	}
	n := *old
	o.bump(&n.Standard)
	return schema.Networks.Put(o.tx, &n)
}

// portsOf returns the ports of a network. New ones, or changes to those written, fail the commit.
func (o *operation) portsOf(networkID string) []*neutron.Port {
	schema.Ports.Referrers(o.tx, "network", networkID)
	return slices.Collect(schema.Ports.By(o.tx, "network", networkID))
}

func (o *operation) segmentTaken(s segment) bool {
	return schema.Networks.CountBy(o.tx, "segment", schema.Segment(s.typ, s.physical, s.id)) > 0
}

// What status says.
const (
	statusActive = "ACTIVE"
	statusDown   = "DOWN"
	statusError  = "ERROR"
	statusNone   = "N/A"
)

func networkView(r records.Reader, n *neutron.Network, subnets []*neutron.Subnet) *neutron.NetworkView {
	return &neutron.NetworkView{
		Network: n, Status: statusActive, Subnets: subnetIDs(subnets), AddressScopes: addressScopesOf(r, subnets),
	}
}

func subnetIDs(subnets []*neutron.Subnet) []string {
	ids := make([]string, len(subnets))
	for i, s := range subnets {
		ids[i] = s.ID
	}
	return ids
}

// number returns an integer attribute, 0 where absent or null.
func number(v neutron.Values, name string) int {
	if n := v.Number(name); n != nil {
		return *n
	}
	return 0
}
