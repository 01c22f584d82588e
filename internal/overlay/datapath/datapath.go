package datapath

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"heddle/internal/hostnet"
)

// Options configure a Datapath. Only Name is required.
type Options struct {
	// Name separates the pinned maps of agents on one machine: letters, digits, - and _.
	Name string
	// BPFFS is the mount point of the BPF file system, mounted if need be. Default /sys/fs/bpf.
	BPFFS string
	// Namespace is that of the workloads' and the underlay's interfaces. Default: this process's.
	// It must stay open as long as the datapath is.
	Namespace *hostnet.Namespace
	// MaxFlows bounds the flows of each IP version. Default 262144.
	MaxFlows int
	// UpcallsPerPort and UpcallsTotal bound the frames that wait for the handler; more are dropped
	// and counted. Defaults 512 and 2048.
	UpcallsPerPort, UpcallsTotal int
	// Poll is the time for which Run busily polls for frames before it sleeps, since waking up
	// takes longer than a simulation. Default 100 µs; negative: none.
	Poll time.Duration
	Log  *slog.Logger // default: none
}

// defaultBPFFS is the usual mount point of the BPF file system.
const defaultBPFFS = "/sys/fs/bpf"

func (o Options) withDefaults() (Options, error) {
	if err := checkName(o.Name); err != nil {
		return o, fmt.Errorf("datapath: %w", err)
	}
	o.BPFFS = cmp.Or(o.BPFFS, defaultBPFFS)
	o.MaxFlows = cmp.Or(o.MaxFlows, 262144)
	o.UpcallsPerPort = cmp.Or(o.UpcallsPerPort, 512)
	o.UpcallsTotal = cmp.Or(o.UpcallsTotal, 2048)
	o.Poll = cmp.Or(o.Poll, 100*time.Microsecond)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return o, nil
}

// Datapath is the kernel's part of one agent. Its methods may be called from several goroutines,
// but Run only once, and AttachPort and DetachPort not at once for the same name. Its parts own
// what they are named after; each has its own lock.
type Datapath struct {
	opts Options
	*kernel
	*epochs
	*flowCache
	*answerTables
	*limitSet
	*portSet
	*tunnelSet
	*underlaySet
	credits   *credits
	malformed atomic.Uint64 // state messages that another host wrote wrongly
}

// Open loads the programs and adopts what an earlier agent of the same name left: flows, ports,
// tunnels and tables stay, and its programs are replaced without losing a packet. The caller must
// Bump flows that rest on a configuration that has changed meanwhile. Open fails when another
// process has the same datapath open.
func Open(opts Options) (*Datapath, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	k := &kernel{log: opts.Log}
	limits := &limitSet{kernel: k, byName: map[string]*limitEntry{}}
	ports := &portSet{kernel: k, limits: limits, senders: &senderBits{}, physical: &physicalSet{kernel: k, links: map[int]link.Link{}}, ports: map[string]*portState{}, byNumber: map[Port]*portState{}}
	d := &Datapath{opts: opts, kernel: k, portSet: ports, epochs: &epochs{}, credits: &credits{},
		answerTables: &answerTables{k}, limitSet: limits,
		tunnelSet: &tunnelSet{kernel: k, portSet: ports, tunnels: map[netip.Addr]Tunnel{},
			paths: map[Tunnel]TunnelPath{}, peers: map[netip.Addr]*peerState{}},
		underlaySet: &underlaySet{kernel: k, underlays: map[int]*underlayLinks{}}}
	d.flowCache = &flowCache{kernel: k, epochs: d.epochs}
	if err := d.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("datapath %s: %w", opts.Name, err), d.Close())
	}
	return d, nil
}

func (d *Datapath) open() (err error) {
	if err := Probe(); err != nil {
		return err
	}
	if err := d.kernel.open(d.opts); err != nil {
		return err
	}
	if d.epochs.memory, err = mapWords(d.maps.Epochs, 1); err != nil {
		return err
	}
	if d.credits.memory, err = mapWords(d.maps.Credits, creditWords); err != nil {
		return err
	}
	if d.senders.memory, err = mapWords(d.maps.Senders, senderWords); err != nil {
		return err
	}
	if err := d.configure(func(c *bpfConfig) {
		c.Tap, c.Vxlan = uint32(d.tap.ifindex), uint32(d.vxlan)
		c.PortCredits, c.TotalCredits = uint32(d.opts.UpcallsPerPort), uint32(d.opts.UpcallsTotal)
		c.TunnelPort = swap16(TunnelPort)
	}); err != nil {
		return err
	}
	if err := errors.Join(d.copySets.open(d.maps.Copies), d.framings.open(d.maps.Framings)); err != nil {
		return fmt.Errorf("read what flows have: %w", err)
	}
	if err := d.attachDevices(); err != nil {
		return err
	}
	return d.adopt()
}

// adopt reads what an earlier agent left and puts this one's programs in place of its.
func (d *Datapath) adopt() error {
	if err := errors.Join(d.openLimits(), d.adoptPorts(), d.adoptPeers(), d.adoptTunnels()); err != nil {
		return err
	}
	names, err := d.pins.linkNames()
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := d.inNamespace(func() error { return d.adoptLink(name) }); err != nil {
			return err
		}
	}
	if len(d.ports) == 0 { // there is nothing that an earlier agent served without guarding it
		return d.Guard()
	}
	return nil
}

func (d *Datapath) adoptLink(name string) error {
	if name == vxlanLink {
		return nil // attached already
	}
	l, err := d.pins.openLink(name)
	if err != nil || l == nil {
		return err
	}
	ifindex := linkInterface(l)
	for _, prefix := range []string{underlayLink, stampLinkPrefix, wireguardLink} {
		if strings.HasPrefix(name, prefix) {
			return d.adoptUnderlay(l, name, ifindex)
		}
	}
	for direction := range limitDirections {
		if id, is := strings.CutPrefix(name, limitLinkPrefix(direction)); is {
			return d.adoptLimit(l, direction, id, ifindex)
		}
	}
	if strings.HasPrefix(name, physicalLinkPrefix) {
		return d.physical.adopt(l, name, ifindex, d.physicalInterfaces()[ifindex])
	}
	return d.adoptPort(l, strings.TrimPrefix(name, portLinkPrefix), ifindex)
}

// Close lets the datapath go. Programs, flows and tables stay and forward; frames that no flow
// decides are dropped until the next Open.
func (d *Datapath) Close() error {
	return errors.Join(d.closePorts(), d.closeLimits(), d.physical.close(), d.closeUnderlays(), d.epochs.memory.Close(), d.credits.memory.Close(),
		d.senders.memory.Close(), d.kernel.close())
}

// Cleanup removes the programs, maps and devices of a datapath, which must be closed.
func Cleanup(opts Options) error {
	opts, err := opts.withDefaults()
	if err != nil {
		return err
	}
	root := filepath.Join(opts.BPFFS, "heddle", opts.Name)
	p := pins{root: root}
	if err := p.hold(opts.Name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("clean up datapath: %w", err)
	}
	errs := []error{restoreLinks(opts.Namespace, p), p.release()}
	if mounted, err := isBPFFS(opts.BPFFS); err != nil || !mounted {
		return errors.Join(append(errs, err)...)
	}
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

// restoreLinks removes the vxlan device, and restores interfaces that were not promiscuous.
func restoreLinks(ns *hostnet.Namespace, p pins) error {
	l, err := hostnet.NewLinux(ns)
	if err != nil {
		return err
	}
	defer l.Close()
	return errors.Join(l.DeleteLink(vxlanName), p.resetAllPromiscuous(l))
}
