package datapath

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"heddle/internal/hostnet"
	"heddle/internal/topology"
)

// maxPorts is the number of ports of one datapath, as in bpf/maps.h. Index 0 is unused.
const maxPorts = 4096

// Kinds of ports, as enum port_kind in bpf/maps.h.
const (
	portPlain = iota
	portVeth
	portMoved
	portVTEP
)

// nearInterfaces as in bpf/maps.h.
const nearInterfaces = 65536

// portSet holds the ports and their entries in the programs' maps.
type portSet struct {
	*kernel
	registry *Table // the ports, for the next agent
	senders  *senderBits
	limits   *limitSet
	limiting limitPrograms

	physical *physicalSet

	mu       sync.Mutex
	ports    map[string]*portState
	byNumber map[Port]*portState
}

// portState is a port and the program on its interface.
type portState struct {
	PortInfo
	link        link.Link // nil of a localnet port (see physicalSet) and of a subport
	limitsIndex int       // index of the interface whose programs may limit it; 0: none
}

// AttachPort makes the interface a port called name, or changes the port's options. A port keeps
// its number when its interface is replaced, and over restarts. Call it again whenever the
// interface appears or its other end moves to another namespace.
func (s *portSet) AttachPort(name, ifname string, opts PortOptions) (Port, error) {
	if err := checkName(name); err != nil {
		return 0, fmt.Errorf("attach port: %w", err)
	}
	if opts.TunnelKey >= StateKey {
		return 0, fmt.Errorf("attach port %s: tunnel key %#x: want less than %#x", name, opts.TunnelKey, uint32(StateKey))
	}
	if opts.VLAN > maxVLAN || opts.Trunk && opts.VLAN != 0 {
		return 0, fmt.Errorf("attach port %s: VLAN id %d: want 1 to %d, of a localnet port or a subport", name, opts.VLAN, maxVLAN)
	}
	if opts.Localnet && opts.Limits != (PortLimits{}) {
		return 0, fmt.Errorf("attach port %s: a localnet port has no limits", name)
	}
	l, err := s.net.Link(ifname)
	if err != nil {
		return 0, fmt.Errorf("attach port %s: %w", name, err)
	}
	p, err := s.enterPort(name, l, opts)
	if err != nil {
		return 0, fmt.Errorf("attach port %s: %w", name, err)
	}
	// Attaching waits for the kernel, so other ports go on meanwhile.
	if opts.Localnet {
		if err := s.physical.attach(l.Index); err != nil {
			return 0, fmt.Errorf("attach port %s: interface %s: %w", name, ifname, err)
		}
		return p.Port, s.detachUnusedPhysical()
	}
	if opts.subport() { // by the program of its trunk
		if err := s.limit(p); err != nil {
			return 0, fmt.Errorf("attach port %s: %w", name, err)
		}
		return p.Port, nil
	}
	var attached link.Link
	if l.Kind != hostnet.Veth && l.Kind != hostnet.Tap { // a card: whose MAC address is not the port's
		if err := s.pins.setPromiscuous(s.net, l.Index); err != nil {
			return 0, fmt.Errorf("attach port %s: interface %s: %w", name, ifname, err)
		}
	}
	err = s.inNamespace(func() (err error) {
		attached, err = s.pins.attach(portLinkPrefix+name, s.programs.FromWorkload, l.Index)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("attach port %s: interface %s: %w", name, ifname, err)
	}
	if err := s.limit(p); err != nil {
		return 0, fmt.Errorf("attach port %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = closeLinks(p.link)
	p.link = attached
	return p.Port, nil
}

// ForwardPort makes frames that other hosts send to the port called name go on through a tunnel to
// the host to which it has moved. The port needs a tunnel key, and has no interface here any more;
// it keeps its number, and its senders.
func (s *portSet) ForwardPort(name string, to Tunnel, opts PortOptions) (Port, error) {
	if err := checkName(name); err != nil {
		return 0, fmt.Errorf("forward port: %w", err)
	}
	if opts.TunnelKey == 0 || opts.TunnelKey >= StateKey {
		return 0, fmt.Errorf("forward port %s: tunnel key %#x: want 1 to %#x", name, opts.TunnelKey, uint32(StateKey)-1)
	}
	p, err := s.enterMoved(name, to, opts)
	if err == nil { // slow, so without the lock
		err = errors.Join(s.unlimit(p), s.pins.detach(p.link, portLinkPrefix+name))
	}
	if err != nil {
		return 0, fmt.Errorf("forward port %s: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p.link = nil
	return p.Port, nil
}

// AttachVTEP makes the port called name that at which what is inside VXLAN packets for a VTEP comes
// in, by flows with an Output that is Inside. It has no interface, and nothing leaves by it.
func (s *portSet) AttachVTEP(name string, v VTEP) (Port, error) {
	if err := checkName(name); err != nil {
		return 0, fmt.Errorf("attach VTEP: %w", err)
	}
	if !v.IP.Is4() || v.VNI > 0xffffff {
		return 0, fmt.Errorf("attach VTEP %s: %s, VNI %d: want an IPv4 address and up to %d", name, v.IP, v.VNI, 0xffffff)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	opts := PortOptions{VTEP: v}
	p, err := s.portFor(name, 0, opts)
	if err != nil {
		return 0, fmt.Errorf("attach VTEP %s: %w", name, err)
	}
	p.Interface, p.Index, p.PortOptions = "", 0, opts
	err = s.writePort(p, bpfPort{Number: uint32(p.Port), Kind: portVTEP})
	if err == nil {
		err = s.maps.Vteps.Put(v.key(), uint32(p.Port))
	}
	if err != nil {
		return 0, fmt.Errorf("attach VTEP %s: %w", name, err)
	}
	s.ports[name], s.byNumber[p.Port] = p, p
	return p.Port, nil
}

func (v VTEP) key() bpfVtepKey { return bpfVtepKey{Ip: word4(v.IP), Vni: swap32(v.VNI << 8)} }

func (s *portSet) enterMoved(name string, to Tunnel, opts PortOptions) (*portState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.portFor(name, 0, opts)
	if err != nil {
		return nil, err
	}
	p.Interface, p.Index, p.PortOptions = "", 0, opts
	entry := bpfPort{Number: uint32(p.Port), Out: uint32(to), Kind: portMoved}
	if err := s.writePort(p, entry); err != nil {
		return nil, err
	}
	s.ports[name], s.byNumber[p.Port] = p, p
	return p, nil
}

// portFor returns the port called name, a new one if there is none, without what the maps have of
// it that another interface, 0 for none, and options make wrong.
func (s *portSet) portFor(name string, newIndex int, opts PortOptions) (*portState, error) {
	for _, other := range s.ports {
		if other.Name == name {
			continue
		}
		if newIndex != 0 && other.Index == newIndex && !(opts.Localnet == other.Localnet && opts.VLAN != other.VLAN) {
			return nil, fmt.Errorf("interface %s is port %s already: detach that first", other.Interface, other.Name)
		}
		if opts.VTEP.IP.IsValid() && other.VTEP == opts.VTEP {
			return nil, fmt.Errorf("VNI %d at %s is that of port %s already: detach that first", opts.VTEP.VNI, opts.VTEP.IP, other.Name)
		}
		if opts.TunnelKey != 0 && other.TunnelKey == opts.TunnelKey {
			return nil, fmt.Errorf("tunnel key %d is that of port %s already: detach that first", opts.TunnelKey, other.Name)
		}
	}
	p := s.ports[name]
	if opts.subport() && newIndex != 0 && !s.hasTrunk(newIndex) {
		return nil, fmt.Errorf("VLAN id %d: its interface is not that of a trunk yet", opts.VLAN)
	}
	if p != nil && p.Port != 0 && (p.Localnet != opts.Localnet || p.VTEP.IP.IsValid() != opts.VTEP.IP.IsValid() || p.link != nil && opts.subport()) {
		return nil, errors.New("it is a port of another kind already: detach it first")
	}
	if p == nil {
		number, err := s.newNumber()
		if err != nil {
			return nil, err
		}
		s.senders.clearPort(index(uint32(number)))
		p = &portState{PortInfo: PortInfo{Name: name, Port: number}}
	}
	return p, s.forgetEntries(p, newIndex, opts)
}

// HasTrunk reports whether an interface is that of a port with Trunk, so that subports can be
// attached to it.
func (s *portSet) HasTrunk(ifindex int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hasTrunk(ifindex)
}

// hasTrunk reports whether the interface is that of a port with Trunk.
func (s *portSet) hasTrunk(ifindex int) bool {
	for _, p := range s.ports {
		if p.Index == ifindex && p.Trunk {
			return true
		}
	}
	return false
}

func (s *portSet) enterPort(name string, l hostnet.Link, opts PortOptions) (*portState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.portFor(name, l.Index, opts)
	if err != nil {
		return nil, err
	}
	p.Interface, p.Index, p.PortOptions = l.Name, l.Index, opts
	entry := bpfPort{Number: uint32(p.Port), Out: uint32(l.Index), Mtu: uint32(opts.MTU)}
	// Only across namespaces may a frame be handed straight to the other end, none with a tag, and
	// if nothing on the host's end has to see it.
	if l.Elsewhere && opts.VLAN == 0 && !opts.Localnet && opts.Limits.Ingress == (topology.Limit{}) {
		entry.Kind = portVeth
	}
	entry.Vlan = tagOf(opts.VLAN)
	if opts.Trunk {
		entry.Trunk = 1
	}
	if err := s.writePort(p, entry); err != nil {
		return nil, err
	}
	s.ports[name], s.byNumber[p.Port] = p, p
	return p, nil
}

func (s *portSet) writePort(p *portState, entry bpfPort) error {
	if err := s.registry.Put(portKey(p.Port), portRecord(p.PortInfo)); err != nil {
		return err
	}
	if err := s.maps.Ports.Put(index(uint32(p.Port)), entry); err != nil {
		return fmt.Errorf("write port: %w", err)
	}
	if err := s.writeInterface(p); err != nil {
		return fmt.Errorf("write interface: %w", err)
	}
	if p.TunnelKey == 0 {
		return nil
	}
	if err := s.maps.Deliveries.Put(p.TunnelKey, uint32(p.Port)); err != nil {
		return fmt.Errorf("write tunnel key: %w", err)
	}
	return nil
}

// writeInterface enters by which frames the port is found; none if it has no interface.
func (s *portSet) writeInterface(p *portState) error {
	if p.Index == 0 {
		return nil
	}
	switch {
	case p.subport():
		return s.maps.Subports.Put(lanKey(p.Index, p.VLAN), uint32(p.Port))
	case !p.Localnet:
		return s.portsByInterface(p.Index).Put(uint32(p.Index), uint32(p.Port))
	}
	key := lanKey(p.Index, p.VLAN)
	var found bpfLan
	if err := s.maps.Lans.Lookup(key, &found); err == nil && found.Port == uint32(p.Port) {
		return nil // with what it has admitted
	}
	return s.maps.Lans.Put(key, bpfLan{Port: uint32(p.Port)})
}

// forgetEntries removes the maps' entries for a port that its new index and options make wrong.
func (s *portSet) forgetEntries(p *portState, newIndex int, opts PortOptions) error {
	var errs []error
	if p.Index != 0 && (p.Index != newIndex || p.VLAN != opts.VLAN) {
		errs = append(errs, s.forgetInterface(p))
		if p.Limits != (PortLimits{}) {
			errs = append(errs, s.forgetLimits(p))
		}
	}
	if p.VTEP.IP.IsValid() && p.VTEP != opts.VTEP {
		errs = append(errs, ignoreMissing(s.maps.Vteps.Delete(p.VTEP.key())))
	}
	if p.TunnelKey != 0 && p.TunnelKey != opts.TunnelKey {
		errs = append(errs, ignoreMissing(s.maps.Deliveries.Delete(p.TunnelKey)))
	}
	return errors.Join(errs...)
}

// forgetInterface removes the entry of the port's interface, unless that is another port's by now.
func (s *portSet) forgetInterface(p *portState) error {
	var found uint32
	switch {
	case p.Localnet:
		return s.forgetLan(p)
	case p.subport():
		key := lanKey(p.Index, p.VLAN)
		if err := s.maps.Subports.Lookup(key, &found); err != nil || found != uint32(p.Port) {
			return ignoreMissing(err)
		}
		return ignoreMissing(s.maps.Subports.Delete(key))
	}
	m := s.portsByInterface(p.Index)
	if err := m.Lookup(uint32(p.Index), &found); err != nil || found != uint32(p.Port) {
		return ignoreMissing(err)
	}
	if m == s.maps.NearPorts {
		return m.Put(uint32(p.Index), uint32(0))
	}
	return ignoreMissing(m.Delete(uint32(p.Index)))
}

func (s *portSet) portsByInterface(ifindex int) *ebpf.Map {
	if ifindex < nearInterfaces {
		return s.maps.NearPorts
	}
	return s.maps.FarPorts
}

func (s *portSet) newNumber() (Port, error) {
	return nextNumber("ports", s.byNumber, maxPorts, func(i uint32) (uint32, error) {
		var last bpfPort
		err := s.maps.Ports.Lookup(i, &last)
		return last.Number, err
	})
}

// nextNumber returns a number with a free index, and a generation above the last one there.
func nextNumber[N ~uint32, T any](what string, owners map[N]T, limit uint32, last func(i uint32) (uint32, error)) (N, error) {
	taken := make([]bool, limit)
	for number := range owners {
		taken[index(uint32(number))] = true
	}
	for i := uint32(1); i < limit; i++ {
		if taken[i] {
			continue
		}
		number, err := last(i)
		if err != nil {
			return 0, fmt.Errorf("read the last of %s %d: %w", what, i, err)
		}
		return N(number&^0xffff + 1<<16 | i), nil
	}
	return 0, fmt.Errorf("there are %d %s: no more fit on one host", limit-1, what)
}

// index is the part of a number that says where its owner's entry is; the rest is the generation.
func index(number uint32) uint32 { return number & 0xffff }

// DetachPort removes the program from the port's interface and forgets its number. Flows from and
// to it no longer act. A port that is not there is no error.
func (s *portSet) DetachPort(name string) error {
	p, err := s.forgetPort(name)
	if p == nil && err == nil {
		return nil
	}
	if err == nil && p.Localnet {
		err = errors.Join(s.deleteHomesOf(p.Port), s.detachUnusedPhysical())
	} else if err == nil && !p.VTEP.IP.IsValid() { // slow, so without the lock
		err = s.unlimit(p)
		if !p.subport() {
			err = errors.Join(err, s.pins.detach(p.link, portLinkPrefix+name), s.pins.resetPromiscuous(s.net, p.Index))
		}
	}
	if err != nil {
		return fmt.Errorf("detach port %s: %w", name, err)
	}
	return nil
}

// forgetPort removes a port from the maps: its program, still there, then drops what comes in.
func (s *portSet) forgetPort(name string) (*portState, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.ports[name]
	if p == nil {
		return nil, nil
	}
	if p.Port != 0 {
		if err := errors.Join(s.forgetEntries(p, 0, PortOptions{}),
			s.maps.Ports.Put(index(uint32(p.Port)), bpfPort{Number: uint32(p.Port)}),
			s.registry.Delete(portKey(p.Port))); err != nil {
			return p, err
		}
	}
	delete(s.ports, name)
	delete(s.byNumber, p.Port)
	return p, nil
}

// Ports lists the attached ports by name. A port left by a version with another layout has no
// number until it is attached again.
func (s *portSet) Ports() []PortInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]PortInfo, 0, len(s.ports))
	for _, p := range s.ports {
		all = append(all, p.PortInfo)
	}
	slices.SortFunc(all, func(a, b PortInfo) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func (s *portSet) adoptPorts() (err error) {
	if s.registry, err = s.Table("ports", portKeySize, portRecordSize, maxPorts); err != nil {
		return err
	}
	return s.registry.Each(func(key, value []byte) bool {
		p := &portState{PortInfo: parsePortRecord(Port(binary.NativeEndian.Uint32(key)), value)}
		if p.Localnet || p.subport() {
			p.Interface = s.interfaceThere(p.Index)
		}
		if p.Limits = s.limitsFound(p); p.Limits != (PortLimits{}) {
			p.limitsIndex = p.Index
		}
		s.ports[p.Name], s.byNumber[p.Port] = p, p
		return true
	})
}

func (s *portSet) adoptPort(l link.Link, name string, ifindex int) error {
	p := s.ports[name]
	if p == nil { // of another layout: its old program goes on until the port is attached again
		s.ports[name] = &portState{PortInfo: PortInfo{Name: name, Index: ifindex, Interface: interfaceName(ifindex)}, link: l}
		return nil
	}
	p.link = l
	if p.Index == ifindex {
		p.Interface = interfaceName(ifindex)
	}
	return adoptInto(l, ifindex, s.programs.FromWorkload)
}

// whileAttached calls f with the index of a port, unless the port has gone.
func (s *portSet) whileAttached(number Port, f func(i uint32)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byNumber[number] != nil {
		f(index(uint32(number)))
	}
}

// mtu returns the largest IP packet that a port takes, 0 for any.
func (s *portSet) mtu(number Port) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.byNumber[number]
	if !ok {
		return 0, fmt.Errorf("port %#x has gone", uint32(number))
	}
	return p.MTU, nil
}

func (s *portSet) closePorts() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, p := range s.ports {
		errs = append(errs, closeLinks(p.link))
	}
	return errors.Join(append(errs, s.limiting.close())...)
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

// interfaceThere is interfaceName for callers outside the namespace.
func (s *portSet) interfaceThere(ifindex int) (name string) {
	_ = s.inNamespace(func() error {
		name = interfaceName(ifindex)
		return nil
	})
	return name
}

func interfaceName(ifindex int) string {
	i, err := net.InterfaceByIndex(ifindex)
	if err != nil {
		return ""
	}
	return i.Name
}

// A port's record in the registry: name, interface index, tunnel key, MTU in the lower half of a
// word and in the upper flags and the VLAN. A VTEP has its address and VNI in the places of index
// and key.
const (
	portKeySize    = 4
	portRecordSize = maxName + 12
	localnetFlag   = 0x8000
	trunkFlag      = 0x4000
	vtepFlag       = 0x2000
	vlanBits       = 0x0fff
)

func portKey(p Port) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(p)) }

func portRecord(p PortInfo) []byte {
	b := make([]byte, maxName, portRecordSize)
	copy(b, p.Name)
	upper, first, second := p.VLAN, uint32(p.Index), p.TunnelKey
	if p.VTEP.IP.IsValid() {
		upper, first, second = vtepFlag, word4(p.VTEP.IP), p.VTEP.VNI
	}
	b = binary.NativeEndian.AppendUint32(b, first)
	b = binary.NativeEndian.AppendUint32(b, second)
	if p.Localnet {
		upper |= localnetFlag
	}
	if p.Trunk {
		upper |= trunkFlag
	}
	return binary.NativeEndian.AppendUint32(b, uint32(min(p.MTU, 0xffff))|uint32(upper)<<16)
}

func parsePortRecord(number Port, b []byte) PortInfo {
	name, _, _ := bytes.Cut(b[:maxName], []byte{0})
	word := func(i int) uint32 { return binary.NativeEndian.Uint32(b[maxName+4*i:]) }
	if word(2)>>16&vtepFlag != 0 {
		var ip [4]byte
		binary.NativeEndian.PutUint32(ip[:], word(0))
		return PortInfo{Name: string(name), Port: number, PortOptions: PortOptions{VTEP: VTEP{netip.AddrFrom4(ip), word(1)}}}
	}
	return PortInfo{Name: string(name), Port: number, Index: int(word(0)),
		PortOptions: PortOptions{TunnelKey: word(1), MTU: int(word(2) & 0xffff),
			Localnet: word(2)>>16&localnetFlag != 0, Trunk: word(2)>>16&trunkFlag != 0, VLAN: uint16(word(2)>>16) & vlanBits}}
}

func ignoreMissing(err error) error {
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}
