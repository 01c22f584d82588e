package control

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"heddle/internal/neutron"
)

// Options are what control must know beside the store. A field left zero has the default that its comment names.
type Options struct {
	// UnderlayMTU is the greatest packet in bytes that travels between hosts; a vxlan network gets 50 less. Default 1500.
	UnderlayMTU int
	// PhysicalNetworks are the provider networks that vlan and flat networks may name. Default none.
	PhysicalNetworks map[string]PhysicalNetwork
	// VXLANs is the range of segmentation ids that are chosen for tenant networks. Default 1 to 16777215.
	VXLANs IDRange
	// Quotas replace limits of DefaultQuotas; -1 is no limit.
	Quotas map[string]int
	// MaxNameservers and MaxHostRoutes bound the lists of a subnet. Defaults 5 and 20.
	MaxNameservers, MaxHostRoutes int
	// DNSDomain completes the names of machines on routed networks, as the API does in dns_assignment. Default openstacklocal.
	DNSDomain string
	// Statuses tells how the ports of routed networks fare. Default: all are DOWN.
	Statuses *Statuses
	// AnyUnderlay accepts every MTU and physical network, and leaves the MTU of a network that asks for none 0: for callers
	// that know no underlay. UnderlayMTU and PhysicalNetworks are then not used.
	AnyUnderlay bool
	// NoDefaultGroups makes no default security groups.
	NoDefaultGroups bool
	// Ordered chooses the lowest free address, and tunnel keys in ascending order from 1, so that equal operations in
	// equal order choose the same. Default: they are spread at random, so that concurrent operations rarely choose the same.
	Ordered bool
	// Now tells the time of changes. Default time.Now.
	Now func() time.Time
	// Seed seeds what chooses ids, addresses and keys for one operation. It must be safe for concurrent use. Default chance.
	Seed func() [32]byte
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

// DefaultQuotas are the limits of a project that has none of its own (neutron-api §2): those of what this version
// serves, then those of resources to come, which clients expect to find.
func DefaultQuotas() map[string]int {
	return map[string]int{
		quotaNetwork: 100, quotaSubnet: 100, quotaPort: 500, quotaGroup: 10, quotaRule: 100,
		"router": 10, "floatingip": 50, "subnetpool": -1, "rbac_policy": 10, "trunk": -1, "l2-gateway-connection": -1,
	}
}

// complete fills in defaults and checks the rest; its errors name the field.
func (o Options) complete() (Options, error) {
	if o.UnderlayMTU == 0 {
		o.UnderlayMTU = 1500
	}
	if o.VXLANs == (IDRange{}) {
		o.VXLANs = IDRange{1, maxVNI}
	}
	if o.MaxNameservers == 0 {
		o.MaxNameservers = 5
	}
	if o.MaxHostRoutes == 0 {
		o.MaxHostRoutes = 20
	}
	if o.DNSDomain == "" {
		o.DNSDomain = "openstacklocal"
	}
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
