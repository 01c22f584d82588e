package datapath

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"heddle/internal/hostnet"
)

// maxPorts is how many ports one datapath has, as bpf/maps.h. Index 0 is nobody's.
const maxPorts = 4096

// nearInterfaces as in bpf/maps.h.
const nearInterfaces = 65536

// portState is a port and the program on its interface.
type portState struct {
	PortInfo
	link link.Link
}

// AttachPort makes the interface a port called name, or changes the options of the port that it is. A port keeps its
// number when its interface is replaced by another and over restarts. Call it again whenever the interface appears or
// its other end moves to another namespace.
func (d *Datapath) AttachPort(name, ifname string, opts PortOptions) (Port, error) {
	if err := checkName(name); err != nil {
		return 0, fmt.Errorf("attach port: %w", err)
	}
	if opts.TunnelKey >= StateKey {
		return 0, fmt.Errorf("attach port %s: tunnel key %#x: want less than %#x", name, opts.TunnelKey, uint32(StateKey))
	}
	l, err := d.net.Link(ifname)
	if err != nil {
		return 0, fmt.Errorf("attach port %s: %w", name, err)
	}
	p, err := d.enterPort(name, l, opts)
	if err != nil {
		return 0, fmt.Errorf("attach port %s: %w", name, err)
	}
	// Attaching waits for the kernel, so other ports go on meanwhile.
	var attached link.Link
	err = d.inNamespace(func() (err error) {
		attached, err = d.pins.attach(portLinkPrefix+name, d.programs.FromWorkload, l.Index)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("attach port %s: interface %s: %w", name, ifname, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.link != nil {
		p.link.Close()
	}
	p.link = attached
	return p.Port, nil
}

// enterPort writes the port's number and properties into the maps.
func (d *Datapath) enterPort(name string, l hostnet.Link, opts PortOptions) (*portState, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, other := range d.ports {
		if other.Name == name {
			continue
		}
		if other.Index == l.Index {
			return nil, fmt.Errorf("interface %s is port %s already: detach that first", l.Name, other.Name)
		}
		if opts.TunnelKey != 0 && other.TunnelKey == opts.TunnelKey {
			return nil, fmt.Errorf("tunnel key %d is that of port %s already: detach that first", opts.TunnelKey, other.Name)
		}
	}
	p := d.ports[name]
	if p == nil {
		number, err := d.newNumber()
		if err != nil {
			return nil, err
		}
		d.clearSenders(index(uint32(number)))
		p = &portState{PortInfo: PortInfo{Name: name, Port: number}}
	}
	if err := d.forgetEntries(p, l.Index, opts); err != nil {
		return nil, err
	}
	p.Interface, p.Index, p.PortOptions = l.Name, l.Index, opts
	entry := bpfPort{Number: uint32(p.Port), Ifindex: uint32(l.Index), Mtu: uint32(opts.MTU)}
	// Only across namespaces may a frame be handed straight to the other end.
	if l.Elsewhere {
		entry.Peer = 1
	}
	if err := d.writePort(p, entry); err != nil {
		return nil, err
	}
	d.ports[name], d.byNumber[p.Port] = p, p
	return p, nil
}

func (d *Datapath) writePort(p *portState, entry bpfPort) error {
	if err := d.registry.Put(portKey(p.Port), portRecord(p.PortInfo)); err != nil {
		return err
	}
	if err := d.maps.Ports.Put(index(uint32(p.Port)), entry); err != nil {
		return fmt.Errorf("write port: %w", err)
	}
	if err := d.portsByInterface(p.Index).Put(uint32(p.Index), uint32(p.Port)); err != nil {
		return fmt.Errorf("write interface: %w", err)
	}
	if p.TunnelKey == 0 {
		return nil
	}
	if err := d.maps.Deliveries.Put(p.TunnelKey, uint32(p.Port)); err != nil {
		return fmt.Errorf("write tunnel key: %w", err)
	}
	return nil
}

// forgetEntries removes what the maps hold for a port that will not hold any more at its new index and options.
func (d *Datapath) forgetEntries(p *portState, newIndex int, opts PortOptions) error {
	var errs []error
	if p.Index != 0 && p.Index != newIndex {
		errs = append(errs, d.forgetInterface(p))
	}
	if p.TunnelKey != 0 && p.TunnelKey != opts.TunnelKey {
		errs = append(errs, ignoreMissing(d.maps.Deliveries.Delete(p.TunnelKey)))
	}
	return errors.Join(errs...)
}

// forgetInterface removes the number of the port's interface, unless the interface has become another port's.
func (d *Datapath) forgetInterface(p *portState) error {
	m := d.portsByInterface(p.Index)
	var found uint32
	if err := m.Lookup(uint32(p.Index), &found); err != nil || found != uint32(p.Port) {
		return ignoreMissing(err)
	}
	if m == d.maps.NearPorts {
		return m.Put(uint32(p.Index), uint32(0))
	}
	return ignoreMissing(m.Delete(uint32(p.Index)))
}

func (d *Datapath) portsByInterface(ifindex int) *ebpf.Map {
	if ifindex < nearInterfaces {
		return d.maps.NearPorts
	}
	return d.maps.FarPorts
}

// newNumber finds an index nobody has and gives it a new generation.
func (d *Datapath) newNumber() (Port, error) {
	taken := make([]bool, maxPorts)
	for number := range d.byNumber {
		taken[index(uint32(number))] = true
	}
	for i := uint32(1); i < maxPorts; i++ {
		if taken[i] {
			continue
		}
		var last bpfPort
		if err := d.maps.Ports.Lookup(i, &last); err != nil {
			return 0, fmt.Errorf("read port %d: %w", i, err)
		}
		return Port(nextGeneration(last.Number, i)), nil
	}
	return 0, fmt.Errorf("%d ports are attached: no more fit on one host", maxPorts-1)
}

// index is the part of a number that says where its owner's entry is; the rest is the generation.
func index(number uint32) uint32 { return number & 0xffff }

// nextGeneration is the number after last at index i.
func nextGeneration(last, i uint32) uint32 { return last&^0xffff + 1<<16 | i }

// DetachPort takes the program off the port's interface and forgets its number. Flows from and to it no longer act. A
// port that is not there is no error.
func (d *Datapath) DetachPort(name string) error {
	p, err := d.forgetPort(name)
	if p == nil && err == nil {
		return nil
	}
	if err == nil { // taking a program off waits for the kernel, so frames go on being sent meanwhile
		err = d.pins.detach(p.link, portLinkPrefix+name)
	}
	if err != nil {
		return fmt.Errorf("detach port %s: %w", name, err)
	}
	return nil
}

// forgetPort removes a port from the maps: its program, still there, then drops what comes in.
func (d *Datapath) forgetPort(name string) (*portState, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.ports[name]
	if p == nil {
		return nil, nil
	}
	if p.Port != 0 {
		if err := errors.Join(d.forgetEntries(p, 0, PortOptions{}),
			d.maps.Ports.Put(index(uint32(p.Port)), bpfPort{Number: uint32(p.Port)}),
			d.registry.Delete(portKey(p.Port))); err != nil {
			return p, err
		}
	}
	delete(d.ports, name)
	delete(d.byNumber, p.Port)
	return p, nil
}

// Ports lists the attached ports by name: after Open those that an earlier agent left. Detach the ones not wanted. A
// port left by a version with another layout has no number until it is attached again.
func (d *Datapath) Ports() []PortInfo {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]PortInfo, 0, len(d.ports))
	for _, p := range d.ports {
		all = append(all, p.PortInfo)
	}
	slices.SortFunc(all, func(a, b PortInfo) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// adopt reads what an earlier agent left and puts this one's programs in place of its.
func (d *Datapath) adopt() error {
	var err error
	if d.registry, err = d.Table("ports", portKeySize, portRecordSize, maxPorts); err != nil {
		return err
	}
	err = d.registry.Each(func(key, value []byte) bool {
		p := &portState{PortInfo: parsePortRecord(Port(binary.NativeEndian.Uint32(key)), value)}
		d.ports[p.Name], d.byNumber[p.Port] = p, p
		return true
	})
	if err != nil {
		return err
	}
	if err := errors.Join(d.adoptPeers(), d.adoptTunnels()); err != nil {
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
	if name == wireguardLink {
		return d.adoptWireguard(l, ifindex)
	}
	if name == underlayLink || strings.HasPrefix(name, underlayLink+"-") || strings.HasPrefix(name, stampLinkPrefix) {
		return d.adoptUnderlay(l, name, ifindex)
	}
	portName := strings.TrimPrefix(name, portLinkPrefix)
	p := d.ports[portName]
	if p == nil { // of another layout: its old program goes on until the port is attached again
		d.ports[portName] = &portState{PortInfo: PortInfo{Name: portName, Index: ifindex, Interface: interfaceName(ifindex)}, link: l}
		return nil
	}
	p.link = l
	if p.Index == ifindex {
		p.Interface = interfaceName(ifindex)
	}
	return adoptInto(l, ifindex, d.programs.FromWorkload)
}

// adoptUnderlay takes over a program of the underlay; one whose interface has gone goes too.
func (d *Datapath) adoptUnderlay(l link.Link, name string, ifindex int) error {
	if ifindex == 0 {
		return d.pins.detach(l, name)
	}
	u := d.underlays[ifindex]
	if u == nil {
		u = &underlayLinks{name: underlayLink + "-" + strconv.Itoa(ifindex)}
		d.underlays[ifindex] = u
	}
	if strings.HasPrefix(name, stampLinkPrefix) {
		u.out = l
		return adoptInto(l, ifindex, d.programs.ToUnderlay)
	}
	u.name, u.in = name, l
	return adoptInto(l, ifindex, d.programs.FromUnderlay)
}

// adoptInto replaces a link's program; a link whose interface has gone has none.
func adoptInto(l link.Link, ifindex int, program *ebpf.Program) error {
	if ifindex == 0 {
		return nil
	}
	if err := l.Update(program); err != nil && linkInterface(l) != 0 {
		return fmt.Errorf("replace the program on interface %d: %w", ifindex, err)
	}
	return nil
}

// interfaceName is "" when the interface has gone.
func interfaceName(ifindex int) string {
	i, err := net.InterfaceByIndex(ifindex)
	if err != nil {
		return ""
	}
	return i.Name
}

// A port's record in the registry: name, interface index, tunnel key, MTU.
const (
	portKeySize    = 4
	portRecordSize = maxName + 12
)

func portKey(p Port) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(p)) }

func portRecord(p PortInfo) []byte {
	b := make([]byte, maxName, portRecordSize)
	copy(b, p.Name)
	b = binary.NativeEndian.AppendUint32(b, uint32(p.Index))
	b = binary.NativeEndian.AppendUint32(b, p.TunnelKey)
	return binary.NativeEndian.AppendUint32(b, uint32(p.MTU))
}

func parsePortRecord(number Port, b []byte) PortInfo {
	name, _, _ := bytes.Cut(b[:maxName], []byte{0})
	word := func(i int) uint32 { return binary.NativeEndian.Uint32(b[maxName+4*i:]) }
	return PortInfo{Name: string(name), Port: number, Index: int(word(0)),
		PortOptions: PortOptions{TunnelKey: word(1), MTU: int(word(2))}}
}

func ignoreMissing(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}
