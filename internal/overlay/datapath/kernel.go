package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"heddle/internal/hostnet"
)

// Names of the devices that a datapath makes in its namespace.
const (
	tapName   = "heddle-tap"
	vxlanName = "heddle-vxlan"
)

// kernel holds what a datapath has open in the kernel: its namespace, devices, programs and maps.
type kernel struct {
	net       *hostnet.Linux
	log       *slog.Logger
	tap       *tap
	tapLink   link.Link
	vxlan     int // index of the device
	vxlanLink link.Link
	pins      pins
	maps      bpfMaps
	programs  bpfPrograms

	mu     sync.Mutex
	tables []*ebpf.Map
}

func (k *kernel) open(opts Options) (err error) {
	if k.pins, err = openPins(opts.BPFFS, opts.Name, opts.Log); err != nil {
		return err
	}
	if err := k.openDevices(opts); err != nil {
		return err
	}
	return k.load(opts.MaxFlows)
}

// openDevices opens the namespace and makes the tap and the vxlan device. While the latter exists
// the kernel merges the TCP segments that come in through tunnels, which halves the cost of bulk
// traffic (dataplane-lab §1.6). It also packs and unpacks the few frames that the programs cannot.
func (k *kernel) openDevices(opts Options) (err error) {
	if k.net, err = hostnet.NewLinux(opts.Namespace); err != nil {
		return err
	}
	if err := k.inNamespace(func() (err error) {
		k.tap, err = openTap(tapName, opts.UpcallsTotal)
		return err
	}); err != nil {
		return err
	}
	l, err := k.net.AddLink(hostnet.LinkSpec{Name: vxlanName, Kind: hostnet.VXLAN, Port: TunnelPort})
	if errors.Is(err, hostnet.ErrExists) {
		l, err = k.net.Link(vxlanName)
	}
	if err != nil {
		return fmt.Errorf("make device %s: %w", vxlanName, err)
	}
	k.vxlan = l.Index
	for _, name := range []string{tapName, vxlanName} {
		if err := k.net.Silence(name); err != nil { // the kernel's own frames
			k.log.Warn("the kernel may send IPv6 of its own on a device of the overlay", "device", name, "err", err)
		}
	}
	if err := k.net.SetUp(vxlanName, true); err != nil {
		return fmt.Errorf("%w (does another device use UDP port %d?)", err, TunnelPort)
	}
	return k.net.SetUp(tapName, true)
}

func (k *kernel) inNamespace(f func() error) error { return k.net.Namespace().Do(f) }

func (k *kernel) load(maxFlows int) error {
	spec, err := loadBpf()
	if err != nil {
		return fmt.Errorf("read the programs: %w", err)
	}
	spec.Maps[bpfMapFlows4].MaxEntries = uint32(maxFlows)
	spec.Maps[bpfMapFlows6].MaxEntries = uint32(maxFlows)
	pinned := map[string]*ebpf.Map{}
	defer func() {
		for _, m := range pinned {
			m.Close()
		}
	}()
	for name, ms := range spec.Maps {
		if ms.Type == ebpf.Array && len(name) > 0 && name[0] == '.' {
			continue // the programs' own data
		}
		if pinned[name], err = k.pins.openMap(name, ms); err != nil {
			return err
		}
	}
	var objects bpfObjects
	if err := spec.LoadAndAssign(&objects, &ebpf.CollectionOptions{MapReplacements: pinned}); err != nil {
		return fmt.Errorf("load the programs: %w", err)
	}
	k.maps, k.programs = objects.bpfMaps, objects.bpfPrograms
	return nil
}

func (k *kernel) configure(change func(*bpfConfig)) error {
	var c bpfConfig
	if err := k.maps.Config.Lookup(uint32(0), &c); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	change(&c)
	if err := k.maps.Config.Put(uint32(0), c); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

func (k *kernel) attachDevices() error {
	return k.inNamespace(func() (err error) {
		k.tapLink, err = link.AttachTCX(link.TCXOptions{
			Interface: k.tap.ifindex, Program: k.programs.FromAgent, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return fmt.Errorf("attach program to %s: %w", tapName, err)
		}
		k.vxlanLink, err = k.pins.attach(vxlanLink, k.programs.FromVxlan, k.vxlan)
		return err
	})
}

// Guard accepts tunnelled frames from peers alone from now on, also over restarts. A datapath that
// has never had a port is guarded from the start; one whose earlier agent had no peers accepts all
// frames until Guard is called, so that an upgrade loses nothing.
func (k *kernel) Guard() error {
	if err := k.configure(func(c *bpfConfig) { c.Guarded = 1 }); err != nil {
		return fmt.Errorf("guard tunnels: %w", err)
	}
	return nil
}

func (k *kernel) close() error {
	errs := []error{closeLinks(k.vxlanLink, k.tapLink)}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, m := range k.tables {
		errs = append(errs, m.Close())
	}
	if k.tap != nil {
		errs = append(errs, k.tap.Close())
	}
	errs = append(errs, k.maps.Close(), k.programs.Close(), k.pins.release())
	if k.net != nil {
		errs = append(errs, k.net.Close())
	}
	return errors.Join(errs...)
}

// closeLinks closes those of the links that are open; their pins keep the programs in place.
func closeLinks(links ...link.Link) error {
	var errs []error
	for _, l := range links {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}
