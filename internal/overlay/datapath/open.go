package datapath

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"heddle/internal/hostnet"
)

// Options say what a Datapath is and how much it holds. Name alone is required.
type Options struct {
	// Name tells this agent's pinned maps from another's on the same machine: letters, digits, - and _.
	Name string
	// BPFFS is where the BPF file system is, or will be, mounted. Default /sys/fs/bpf.
	BPFFS string
	// Namespace is the network namespace of the workloads' and the underlay's interfaces. Default: this process's. It
	// must stay open as long as the datapath is.
	Namespace *hostnet.Namespace
	// MaxFlows bounds the cached flows of each IP version. Default 262144. A change empties the cache.
	MaxFlows int
	// UpcallsPerPort and UpcallsTotal bound how many frames may wait for the handler. Defaults 512 and 2048. More are
	// dropped and counted.
	UpcallsPerPort, UpcallsTotal int
	// Poll is how long Run looks for more frames, keeping a core busy, before it sleeps: waking up takes longer than a
	// simulation. Default 100 µs; negative: not at all.
	Poll time.Duration
	Log  *slog.Logger // default: none
}

func (o Options) withDefaults() (Options, error) {
	if err := checkName(o.Name); err != nil {
		return o, fmt.Errorf("datapath: %w", err)
	}
	if o.BPFFS == "" {
		o.BPFFS = "/sys/fs/bpf"
	}
	if o.MaxFlows == 0 {
		o.MaxFlows = 262144
	}
	if o.UpcallsPerPort == 0 {
		o.UpcallsPerPort = 512
	}
	if o.UpcallsTotal == 0 {
		o.UpcallsTotal = 2048
	}
	if o.Poll == 0 {
		o.Poll = 100 * time.Microsecond
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// Names of the devices that a datapath makes in its namespace.
const (
	tapName   = "heddle-tap"
	vxlanName = "heddle-vxlan"
)

// Datapath is the kernel's part of one agent. Its methods may be called from several goroutines, but Run only once, and
// AttachPort and DetachPort not at once for the same name.
type Datapath struct {
	opts      Options
	namespace *hostnet.Namespace
	ownNS     bool
	net       *hostnet.Linux
	pins      pins
	maps      bpfMaps
	programs  bpfPrograms
	registry  *Table
	epochs    *sharedWords
	credits   *sharedWords
	senders   *sharedWords
	tap       *tap
	tapLink   link.Link
	vxlan     int // index of the device
	vxlanLink link.Link
	wireguard link.Link // nil: no such device is attached
	evict     evictor
	malformed atomic.Uint64 // state messages that another host wrote wrongly

	mu        sync.Mutex
	ports     map[string]*portState
	byNumber  map[Port]*portState
	tunnels   map[netip.Addr]Tunnel
	paths     map[Tunnel]TunnelPath
	peers     map[netip.Addr]*peerState
	underlays map[int]*underlayLinks // by interface index
	tables    []*ebpf.Map
}

// Open loads the programs and adopts what an earlier agent of the same name left: flows, ports, tunnels and tables stay,
// and its programs are replaced without losing a packet. Flows that rest on a configuration which has changed in the
// meantime are the caller's to Bump. It fails when another process has the same datapath open.
func Open(opts Options) (*Datapath, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &Datapath{opts: opts, ports: map[string]*portState{}, byNumber: map[Port]*portState{},
		tunnels: map[netip.Addr]Tunnel{}, paths: map[Tunnel]TunnelPath{}, peers: map[netip.Addr]*peerState{}, underlays: map[int]*underlayLinks{}}
	if err := d.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("datapath %s: %w", opts.Name, err), d.Close())
	}
	return d, nil
}

func (d *Datapath) open() error {
	if err := Probe(); err != nil {
		return err
	}
	if err := d.openDevices(); err != nil {
		return err
	}
	var err error
	if d.pins, err = openPins(d.opts.BPFFS, d.opts.Name, d.opts.Log); err != nil {
		return err
	}
	if err := d.load(); err != nil {
		return err
	}
	if d.epochs, err = mapWords(d.maps.Epochs, 1); err != nil {
		return err
	}
	if d.credits, err = mapWords(d.maps.Credits, 2); err != nil {
		return err
	}
	if d.senders, err = mapWords(d.maps.Senders, senderWords); err != nil {
		return err
	}
	if err := d.configure(func(c *bpfConfig) {
		c.Tap, c.Vxlan = uint32(d.tap.ifindex), uint32(d.vxlan)
		c.PortCredits, c.TotalCredits = uint32(d.opts.UpcallsPerPort), uint32(d.opts.UpcallsTotal)
		c.TunnelPort = swap16(TunnelPort)
	}); err != nil {
		return err
	}
	if err := d.inNamespace(func() (err error) {
		d.tapLink, err = link.AttachTCX(link.TCXOptions{
			Interface: d.tap.ifindex, Program: d.programs.FromAgent, Attach: ebpf.AttachTCXIngress})
		if err != nil {
			return fmt.Errorf("attach program to %s: %w", tapName, err)
		}
		d.vxlanLink, err = d.pins.attach(vxlanLink, d.programs.FromVxlan, d.vxlan)
		return err
	}); err != nil {
		return err
	}
	return d.adopt()
}

// openDevices opens the namespace and makes the tap and the vxlan device. While that is there the kernel merges the TCP
// segments that come in through tunnels, which halves the cost of bulk traffic (dataplane-lab §1.6); and it packs
// and unpacks the few frames that the programs may not.
func (d *Datapath) openDevices() error {
	d.namespace = d.opts.Namespace
	var err error
	if d.namespace == nil {
		if d.namespace, err = hostnet.CurrentNamespace(); err != nil {
			return err
		}
		d.ownNS = true
	}
	if d.net, err = hostnet.NewLinux(d.namespace); err != nil {
		return err
	}
	if err := d.inNamespace(func() (err error) {
		d.tap, err = openTap(tapName, d.opts.UpcallsTotal)
		return err
	}); err != nil {
		return err
	}
	l, err := d.net.AddLink(hostnet.LinkSpec{Name: vxlanName, Kind: hostnet.VXLAN, Port: TunnelPort})
	if errors.Is(err, hostnet.ErrExists) {
		l, err = d.net.Link(vxlanName)
	}
	if err != nil {
		return fmt.Errorf("make device %s: %w", vxlanName, err)
	}
	d.vxlan = l.Index
	for _, name := range []string{tapName, vxlanName} {
		if err := d.net.Silence(name); err != nil { // what the kernel itself sends there is only noise
			d.opts.Log.Warn("the kernel may send IPv6 of its own on a device of the overlay", "device", name, "err", err)
		}
	}
	if err := d.net.SetUp(vxlanName, true); err != nil {
		return fmt.Errorf("%w (does another device use UDP port %d?)", err, TunnelPort)
	}
	return d.net.SetUp(tapName, true)
}

func (d *Datapath) inNamespace(f func() error) error { return d.namespace.Do(f) }

// load loads the programs over the pinned maps.
func (d *Datapath) load() error {
	spec, err := loadBpf()
	if err != nil {
		return fmt.Errorf("read the programs: %w", err)
	}
	spec.Maps[bpfMapFlows4].MaxEntries = uint32(d.opts.MaxFlows)
	spec.Maps[bpfMapFlows6].MaxEntries = uint32(d.opts.MaxFlows)
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
		if pinned[name], err = d.pins.openMap(name, ms); err != nil {
			return err
		}
	}
	var objects bpfObjects
	if err := spec.LoadAndAssign(&objects, &ebpf.CollectionOptions{MapReplacements: pinned}); err != nil {
		return fmt.Errorf("load the programs: %w", err)
	}
	d.maps, d.programs = objects.bpfMaps, objects.bpfPrograms
	return nil
}

// configure changes the programs' configuration.
func (d *Datapath) configure(change func(*bpfConfig)) error {
	var c bpfConfig
	if err := d.maps.Config.Lookup(uint32(0), &c); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	change(&c)
	if err := d.maps.Config.Put(uint32(0), c); err != nil {
		return fmt.Errorf("write the configuration: %w", err)
	}
	return nil
}

// Close lets the datapath go. Programs, flows and tables stay and forward; frames that no flow decides are dropped until
// the next Open.
func (d *Datapath) Close() error {
	var errs []error
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.ports {
		if p.link != nil {
			errs = append(errs, p.link.Close())
		}
	}
	for _, u := range d.underlays {
		errs = append(errs, u.close())
	}
	if d.vxlanLink != nil {
		errs = append(errs, d.vxlanLink.Close())
	}
	if d.wireguard != nil {
		errs = append(errs, d.wireguard.Close())
	}
	for _, m := range d.tables {
		errs = append(errs, m.Close())
	}
	if d.tapLink != nil {
		errs = append(errs, d.tapLink.Close())
	}
	if d.tap != nil {
		errs = append(errs, d.tap.Close())
	}
	errs = append(errs, d.epochs.Close(), d.credits.Close(), d.senders.Close(), d.maps.Close(), d.programs.Close())
	if d.net != nil {
		errs = append(errs, d.net.Close())
	}
	if d.ownNS {
		errs = append(errs, d.namespace.Close())
	}
	return errors.Join(errs...)
}

// Cleanup takes away all that a datapath with these options has made: programs, maps, devices. What is not there is no
// error; a datapath that is open must be closed first.
func Cleanup(opts Options) error {
	opts, err := opts.withDefaults()
	if err != nil {
		return err
	}
	errs := []error{deleteVXLAN(opts.Namespace)}
	if mounted, err := isBPFFS(opts.BPFFS); err != nil || !mounted {
		return errors.Join(append(errs, err)...)
	}
	root := filepath.Join(opts.BPFFS, "heddle", opts.Name)
	errs = append(errs, os.RemoveAll(root)) // the last reference of a link detaches its program
	// The directory of all agents goes with the last of them.
	if err := os.Remove(filepath.Dir(root)); err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean up datapath %s: %w", opts.Name, err)
	}
	return nil
}

func deleteVXLAN(ns *hostnet.Namespace) error {
	if ns == nil {
		own, err := hostnet.CurrentNamespace()
		if err != nil {
			return err
		}
		defer own.Close()
		ns = own
	}
	l, err := hostnet.NewLinux(ns)
	if err != nil {
		return err
	}
	defer l.Close()
	return l.DeleteLink(vxlanName)
}
