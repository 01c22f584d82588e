package control

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// Network types (neutron-api §3, midonet-translations §4 H1).
const (
	typeVXLAN  = "vxlan"
	typeVLAN   = "vlan"
	typeFlat   = "flat"
	typeUplink = "uplink"
	typeRouted = neutron.TypeRouted
)

// Attribute names of a provider network.
const (
	attrNetworkType     = "provider:network_type"
	attrPhysicalNetwork = "provider:physical_network"
	attrSegmentationID  = "provider:segmentation_id"
	attrSegments        = "segments"
)

// segment is a network's place in the underlay. id is 0 if none is chosen, or the type has none.
type segment struct {
	typ, physical string
	id            int
}

func segmentOf(n *neutron.Network) segment {
	s := segment{typ: n.NetworkType, physical: n.PhysicalNetwork}
	if n.SegmentationID != nil {
		s.id = *n.SegmentationID
	}
	return s
}

// providerValues returns v with the segment that it lists as its provider attributes.
func providerValues(v neutron.Values) (neutron.Values, error) {
	listed, ok := v[attrSegments].(neutron.Values)
	if !ok {
		return v, nil
	}
	for _, name := range []string{attrNetworkType, attrPhysicalNetwork, attrSegmentationID} {
		if v.Has(name) {
			return nil, neutron.Errorf(neutron.Invalid, "SegmentsSetInConjunctionWithProviders", "Segments and provider values cannot both be set.")
		}
	}
	if listed.Text(attrNetworkType) == "" {
		return nil, invalid("network_type required")
	}
	v = maps.Clone(v)
	maps.Copy(v, listed)
	return v, nil
}

// number returns the id as a network carries it.
func (s segment) number() *int {
	if s.id == 0 {
		return nil
	}
	return &s.id
}

// requestedSegment checks the provider attributes of a create (neutron-api §3). Default: vxlan.
func (o *Options) requestedSegment(v neutron.Values) (segment, error) {
	s := segment{typ: v.Text(attrNetworkType), physical: v.Text(attrPhysicalNetwork)}
	id := v.Number(attrSegmentationID)
	if s.typ == "" {
		if s.physical != "" || id != nil {
			return s, invalid("network_type required")
		}
		s.typ = typeVXLAN
	}
	if id != nil {
		s.id = *id
	}
	return s, o.checkSegment(s, id != nil)
}

// checkSegment holds a segment against the configuration; hasID says that an id was asked for.
func (o *Options) checkSegment(s segment, hasID bool) error {
	switch s.typ {
	case typeVXLAN:
		if s.physical != "" {
			return invalid("provider:physical_network specified for vxlan network")
		}
		if hasID && (s.id < 1 || s.id > maxVNI) {
			return invalid("segmentation_id out of range (1 through %d)", maxVNI)
		}
	case typeVLAN:
		return o.checkVLAN(s, hasID)
	case typeFlat:
		return o.checkFlat(s, hasID)
	case typeUplink, typeRouted:
		if s.physical != "" || hasID {
			return invalid("physical_network and segmentation_id are not for networks of type %s", s.typ)
		}
	default:
		return invalid("network_type value '%s' not supported", s.typ)
	}
	return nil
}

func (o *Options) checkVLAN(s segment, hasID bool) error {
	if s.physical == "" {
		if hasID {
			return invalid("segmentation_id requires physical_network for VLAN provider network")
		}
		if len(o.ranges(s)) == 0 {
			return invalid("provider:physical_network and provider:segmentation_id are required for a VLAN provider network: " +
				"no physical network that hosts carry has VLAN ids to choose from; start the servers with --physical-network NAME:MIN-MAX")
		}
		return nil
	}
	if p, ok := o.physicalNetwork(s.physical); !ok || p.VLANs == nil {
		return o.unknownPhysical(s.physical, "VLAN")
	}
	switch {
	case hasID && (s.id < 1 || s.id > maxVLAN):
		return invalid("segmentation_id out of range (1 through %d)", maxVLAN)
	case !hasID && len(o.ranges(s)) == 0:
		return invalid("Physical network %[1]s requires segmentation_id to be specified when creating a provider network: "+
			"it has no VLAN ids to choose from; start the servers with --physical-network %[1]s:MIN-MAX", s.physical)
	}
	return nil
}

func (o *Options) checkFlat(s segment, hasID bool) error {
	p, _ := o.physicalNetwork(s.physical)
	switch {
	case s.physical == "":
		return invalid("physical_network required for flat provider network")
	case !p.Flat:
		return o.unknownPhysical(s.physical, "flat")
	case hasID:
		return invalid("segmentation_id prohibited for flat provider network")
	}
	return nil
}

// unknownPhysical refuses a network on a physical network. If an agent can help, it says so.
func (o *Options) unknownPhysical(name, kind string) error {
	text := fmt.Sprintf("physical_network '%s' unknown for %s provider network", name, kind)
	if o.asCarried || o.uncarried[name] {
		text += fmt.Sprintf(": no host carries it; start an agent with --physical %s=INTERFACE", name)
	}
	return invalid("%s", text)
}

// underlay returns the options with the physical networks that hosts carry, of those configured or,
// if none are, all of them, for flat networks and any VLAN id that is asked for. Its cost follows
// the number of hosts.
func (o *operation) underlay() *Options {
	u := o.opts
	if u.AnyUnderlay {
		return &u
	}
	u.PhysicalNetworks, u.uncarried = map[string]PhysicalNetwork{}, map[string]bool{}
	u.asCarried = len(o.opts.PhysicalNetworks) == 0
	for name := range o.opts.PhysicalNetworks {
		u.uncarried[name] = true
	}
	for _, name := range schema.CarriedNetworks(o.tx) {
		delete(u.uncarried, name)
		if p, ok := o.opts.PhysicalNetworks[name]; ok {
			u.PhysicalNetworks[name] = p
		} else if u.asCarried {
			u.PhysicalNetworks[name] = PhysicalNetwork{Flat: true, VLANs: []IDRange{}}
		}
	}
	return &u
}

// flatNetworks returns the physical networks for flat networks, in order.
func (o *Options) flatNetworks() (names []string) {
	for name, p := range o.PhysicalNetworks {
		if p.Flat {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// onlyFlat returns the physical network of a flat external network that names none. Which of
// several is meant must be said.
func (o *Options) onlyFlat() (string, error) {
	switch names := o.flatNetworks(); len(names) {
	case 0:
		return "", invalid("physical_network required for flat provider network, and no host carries one that an external network could be on: " +
			"start an agent with --physical NETWORK=INTERFACE and try again, or ask for provider:network_type vxlan, which leads nowhere outside")
	case 1:
		return names[0], nil
	default:
		return "", invalid("hosts carry the physical networks %s: say which the external network is on with provider:network_type flat and provider:physical_network, or provider:network_type vxlan for none of them",
			strings.Join(names, ", "))
	}
}

// wayOut returns the segment of an external network that is to be made without a type: the flat
// network that hosts carry, or want if there is none or a network is on it.
func (o *Options) wayOut(want segment, taken func(segment) bool) (segment, error) {
	if len(o.flatNetworks()) == 0 {
		return want, nil
	}
	name, err := o.onlyFlat()
	if err != nil {
		return want, err
	}
	if out := (segment{typ: typeFlat, physical: name}); !taken(out) {
		return out, nil
	}
	return want, nil
}

// inUse returns the error for a segment that another network has.
func (s segment) inUse() *neutron.Error {
	switch s.typ {
	case typeVLAN:
		return conflict("VlanIdInUse", "Unable to create the network. The VLAN %d on physical network %s is in use.", s.id, s.physical)
	case typeFlat:
		return conflict("FlatNetworkInUse", "Unable to create the flat network. Physical network %s is in use.", s.physical)
	}
	return conflict("TunnelIdInUse", "Unable to create the network. The tunnel ID %d is in use.", s.id)
}

// segmentRange are ids to choose from on one physical network ("" for vxlan).
type segmentRange struct {
	physical string
	IDRange
	except []IDRange // ids that are not chosen
}

func (r segmentRange) excludes(id int) bool {
	return slices.ContainsFunc(r.except, func(e IDRange) bool { return e.Min <= id && id <= e.Max })
}

// ranges returns the ranges for the missing id of want, in the order in which they are tried.
func (o *Options) ranges(want segment) []segmentRange {
	fits := func(r *neutron.SegmentRange) bool {
		return r.NetworkType == want.typ && (want.physical == "" || r.PhysicalNetwork == want.physical) && o.usable(r)
	}
	var own, ranges []segmentRange
	for _, r := range o.ownRanges {
		if fits(r) {
			own = append(own, segmentRange{physical: r.PhysicalNetwork, IDRange: IDRange{r.Minimum, r.Maximum}})
		}
	}
	for _, r := range o.sharedRanges {
		if fits(r) {
			ranges = append(ranges, segmentRange{physical: r.PhysicalNetwork, IDRange: IDRange{r.Minimum, r.Maximum}})
		}
	}
	ranges = append(ranges, o.configuredRanges(want)...)
	for i := range ranges {
		for _, r := range o.reservedRanges {
			if r.NetworkType == want.typ && r.PhysicalNetwork == ranges[i].physical {
				ranges[i].except = append(ranges[i].except, IDRange{r.Minimum, r.Maximum})
			}
		}
	}
	return append(own, ranges...)
}

// usable reports whether networks can be on the physical network of a range.
func (o *Options) usable(r *neutron.SegmentRange) bool {
	_, known := o.PhysicalNetworks[r.PhysicalNetwork]
	return r.PhysicalNetwork == "" || known || o.AnyUnderlay
}

// configuredRanges returns the ranges of the configuration for the missing id of want.
func (o *Options) configuredRanges(want segment) []segmentRange {
	if want.typ == typeVXLAN {
		return []segmentRange{{IDRange: o.VXLANs}}
	}
	names := []string{want.physical}
	if want.physical == "" {
		names = slices.Sorted(maps.Keys(o.PhysicalNetworks))
	}
	var ranges []segmentRange
	for _, name := range names {
		p, _ := o.physicalNetwork(name)
		for _, r := range p.VLANs {
			ranges = append(ranges, segmentRange{physical: name, IDRange: r})
		}
	}
	return ranges
}

// chooseSegment gives a segment that taken does not refuse: want itself if it is complete. It
// starts at a random place, so that networks made at once rarely choose the same.
func (o *Options) chooseSegment(want segment, taken func(segment) bool, random *rand.Rand) (segment, error) {
	switch {
	case want.typ == typeUplink, want.typ == typeRouted:
		return want, nil
	case want.id != 0 || want.typ == typeFlat:
		if taken(want) {
			return want, want.inUse()
		}
		return want, nil
	}
	for _, r := range o.ranges(want) {
		n := r.Max - r.Min + 1
		start := random.IntN(n)
		for i := range n {
			got := segment{want.typ, r.physical, r.Min + (start+i)%n}
			if !r.excludes(got.id) && !taken(got) {
				return got, nil
			}
		}
	}
	return want, neutron.Errorf(neutron.Unavailable, "NoNetworkAvailable",
		"Unable to create the network. No tenant network is available for allocation.")
}

// maxMTU returns the greatest MTU in bytes that a network of the segment can have.
func (o *Options) maxMTU(s segment) int {
	switch s.typ {
	case typeVXLAN:
		return o.UnderlayMTU - vxlanOverhead
	case typeVLAN, typeFlat:
		if m := o.PhysicalNetworks[s.physical].MTU; m > 0 {
			return m
		}
	}
	return o.UnderlayMTU
}

// Least MTUs that IPv4 (RFC 791) and IPv6 (RFC 8200) need, bytes.
const (
	minMTUv4 = 68
	minMTUv6 = 1280
)

// networkMTU returns the MTU of a network with these subnets; mtu is that requested, or 0.
func (o *Options) networkMTU(s segment, mtu int, subnets []*neutron.Subnet) (int, error) {
	most := o.maxMTU(s)
	switch {
	case mtu == 0 && o.AnyUnderlay:
		return 0, nil
	case mtu == 0:
		return most, nil
	case mtu > most && !o.AnyUnderlay:
		return 0, invalid("Requested MTU is too big, maximum is %d", most)
	}
	for _, sub := range subnets {
		least := minMTUv4
		if sub.IPVersion == 6 {
			least = minMTUv6
		}
		if mtu < least {
			return 0, invalid("Requested MTU is too small for subnet %s of IP version %d, minimum is %d", sub.ID, sub.IPVersion, least)
		}
	}
	return mtu, nil
}
