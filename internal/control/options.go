package control

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"heddle/internal/neutron"
	"heddle/internal/sealing"
)

// Options configure control. Fields left zero have the default in their comment.
type Options struct {
	// UnderlayMTU bounds packets between hosts, in bytes; vxlan networks get 50 less. Default 1500.
	UnderlayMTU int
	// PhysicalNetworks are available to vlan and flat networks while hosts carry them. Default: all
	// that hosts carry, to vlan networks with ids that are asked for.
	PhysicalNetworks map[string]PhysicalNetwork
	// VXLANs is the range of segmentation ids for tenant networks. Default 1 to 16777215.
	VXLANs IDRange
	// Quotas replace limits of DefaultQuotas; -1 is no limit.
	Quotas map[string]int
	// MaxNameservers and MaxHostRoutes bound the lists of a subnet. Defaults 5 and 20.
	MaxNameservers, MaxHostRoutes int
	// DNSDomain completes machine names and dns_assignment. Default openstacklocal.
	DNSDomain string
	// Statuses reports the status of routed networks' ports. Default: all are DOWN.
	Statuses *Statuses
	// AnyUnderlay accepts every MTU and physical network, and leaves an MTU that is not given 0,
	// for callers without an underlay. UnderlayMTU and PhysicalNetworks are ignored.
	AnyUnderlay bool
	// ServiceMACs lets requests change the MAC addresses of services' ports and the addresses of
	// routers' interfaces, which Neutron refuses.
	ServiceMACs bool
	// NoDefaultGroups makes no default security groups.
	NoDefaultGroups bool
	// Ordered chooses the lowest free address, and tunnel keys ascending from 1, so that equal
	// operations choose the same. Default: random, so that concurrent operations rarely do.
	Ordered bool
	// SecretsKey seals what users give to their machines, and all servers have the same. Default:
	// none, and machines are given nothing.
	SecretsKey *sealing.ServerKey
	// Now returns the time of changes. Default time.Now.
	Now func() time.Time
	// Seed seeds the choices of one operation. It must be safe for concurrent use. Default random.
	Seed func() [32]byte

	asCarried bool            // PhysicalNetworks are all that hosts carry
	uncarried map[string]bool // physical networks that no host carries now

	// Ranges that admins have made: for the project of an operation, for all, and those whose ids
	// are for one project alone.
	ownRanges, sharedRanges, reservedRanges []*neutron.SegmentRange
}

// PhysicalNetwork is a network of the underlay that provider networks map to.
type PhysicalNetwork struct {
	Flat  bool      // may carry one flat network
	VLANs []IDRange // ids that are chosen when a vlan network names none; nil = vlan networks are refused
	MTU   int       // bytes; 0 = Options.UnderlayMTU
}

// physicalNetwork returns the physical network with this name; false if there is none.
func (o *Options) physicalNetwork(name string) (PhysicalNetwork, bool) {
	if o.AnyUnderlay {
		return PhysicalNetwork{Flat: true, VLANs: []IDRange{{1, maxVLAN}}}, name != ""
	}
	p, ok := o.PhysicalNetworks[name]
	return p, ok
}

// IDRange is an inclusive range of segmentation ids.
type IDRange struct{ Min, Max int }

const (
	vxlanOverhead = 50 // bytes: outer IPv4 20, UDP 8, VXLAN 8, inner Ethernet 14
	maxVNI        = 1<<24 - 1
	maxVLAN       = 4094
)

// DefaultQuotas returns the limits of a project that has none of its own (neutron-api §2): those of
// what this version serves, then those of resources to come, which clients expect to find.
func DefaultQuotas() map[string]int {
	return map[string]int{
		quotaNetwork: 100, quotaSubnet: 100, quotaPort: 500, quotaGroup: 10, quotaRule: 100, quotaRouter: 10,
		quotaFloatingIP: 50, quotaFirewall: 10, quotaFirewallGroup: 10, quotaFirewallPolicy: 10, quotaFirewallRule: 100, quotaFirewallLog: 10,
		quotaAddressGroup: 10, quotaAddressScope: 10, quotaSubnetPool: -1, "rbac_policy": 10, "trunk": -1, quotaL2GatewayConnection: -1,
	}
}

// complete fills in defaults and checks the rest; its errors name the field.
func (o Options) complete() (Options, error) {
	o.UnderlayMTU = cmp.Or(o.UnderlayMTU, 1500)
	o.VXLANs = cmp.Or(o.VXLANs, IDRange{1, maxVNI})
	o.MaxNameservers = cmp.Or(o.MaxNameservers, 5)
	o.MaxHostRoutes = cmp.Or(o.MaxHostRoutes, 20)
	o.DNSDomain = cmp.Or(o.DNSDomain, "openstacklocal")
	o.DNSDomain = neutron.CanonicalDomain(o.DNSDomain)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Seed == nil {
		o.Seed = func() (seed [32]byte) {
			_, _ = rand.Read(seed[:]) // never fails
			return seed
		}
	}
	quotas := DefaultQuotas()
	for _, name := range slices.Sorted(maps.Keys(o.Quotas)) {
		if _, known := quotas[name]; !known {
			return o, fmt.Errorf("control: quota %q is unknown; known are %v", name, slices.Sorted(maps.Keys(quotas)))
		}
		if o.Quotas[name] < -1 {
			return o, fmt.Errorf("control: quota %s is %d; set a number, or -1 for no limit", name, o.Quotas[name])
		}
		quotas[name] = o.Quotas[name]
	}
	o.Quotas = quotas
	return o, o.check()
}

func (o Options) check() error {
	if o.UnderlayMTU < vxlanOverhead+minMTUv4 {
		return fmt.Errorf("control: underlay MTU %d is too small; at least %d", o.UnderlayMTU, vxlanOverhead+minMTUv4)
	}
	if err := o.VXLANs.check(maxVNI); err != nil {
		return fmt.Errorf("control: vxlan range: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(o.PhysicalNetworks)) {
		if name == "" {
			return errors.New("control: a physical network needs a name")
		}
		for _, r := range o.PhysicalNetworks[name].VLANs {
			if err := r.check(maxVLAN); err != nil {
				return fmt.Errorf("control: physical network %s: vlan range: %w", name, err)
			}
		}
	}
	return nil
}

func (r IDRange) check(most int) error {
	if r.Min < 1 || r.Max > most || r.Min > r.Max {
		return fmt.Errorf("%d:%d does not lie within 1:%d", r.Min, r.Max, most)
	}
	return nil
}
