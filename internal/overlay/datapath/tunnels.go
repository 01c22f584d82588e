package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// maxTunnels is how many remote hosts there can be, as bpf/maps.h. Index 0 is nobody's.
const maxTunnels = 4096

// maxLocals is how many tunnel addresses one host can have, as bpf/maps.h.
const maxLocals = 4

// underlayLinks are the programs on one interface of the underlay.
type underlayLinks struct {
	name    string // of the pin of in
	in, out link.Link
}

// AttachUnderlay takes in tunnelled frames that reach this host's tunnel addresses by the interface; everything else
// there passes untouched. It may be called for several interfaces, with the same addresses, but not twice at once.
func (d *Datapath) AttachUnderlay(ifname string, locals ...netip.Addr) error {
	if len(locals) == 0 || len(locals) > maxLocals {
		return fmt.Errorf("underlay %s: %d tunnel addresses: want 1 to %d", ifname, len(locals), maxLocals)
	}
	var words [maxLocals]uint32
	for i, a := range locals {
		if err := checkUnderlayAddress(a); err != nil {
			return fmt.Errorf("underlay %s: %w", ifname, err)
		}
		words[i] = word4(a)
	}
	l, err := d.net.Link(ifname)
	if err != nil {
		return fmt.Errorf("underlay: %w", err)
	}
	if err := d.configure(func(c *bpfConfig) { c.Local = words }); err != nil {
		return fmt.Errorf("underlay %s: %w", ifname, err)
	}
	d.mu.Lock()
	u := &underlayLinks{name: underlayLink + "-" + strconv.Itoa(l.Index)}
	old := d.underlays[l.Index]
	if old != nil {
		u.name = old.name
	}
	d.mu.Unlock()
	err = d.inNamespace(func() (err error) {
		if u.in, err = d.pins.attach(u.name, d.programs.FromUnderlay, l.Index); err != nil {
			return err
		}
		u.out, err = d.pins.attachAt(stampLinkPrefix+strconv.Itoa(l.Index), d.programs.ToUnderlay, l.Index, ebpf.AttachTCXEgress)
		return err
	})
	if err != nil {
		return errors.Join(fmt.Errorf("underlay %s: %w", ifname, err), u.close())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.underlays[l.Index] = u
	return old.close()
}

// DetachUnderlay lets go of an interface, by its index: tunnelled frames that come in by it are not accepted any more.
func (d *Datapath) DetachUnderlay(ifindex int) error {
	d.mu.Lock()
	u := d.underlays[ifindex]
	delete(d.underlays, ifindex)
	d.mu.Unlock()
	if u == nil {
		return nil
	}
	if err := errors.Join(d.pins.detach(u.in, u.name), d.pins.detach(u.out, stampLinkPrefix+strconv.Itoa(ifindex))); err != nil {
		return fmt.Errorf("let go of underlay interface %d: %w", ifindex, err)
	}
	return nil
}

// AttachWireguard takes in tunnelled frames that come decrypted from the device, of peers whose frames may come Encrypted.
// There is one such device; another one takes its place.
func (d *Datapath) AttachWireguard(ifname string) error {
	l, err := d.net.Link(ifname)
	if err != nil {
		return fmt.Errorf("WireGuard device: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.wireguard != nil && linkInterface(d.wireguard) == l.Index {
		return nil
	}
	var attached link.Link
	if err := d.inNamespace(func() (err error) {
		attached, err = d.pins.attach(wireguardLink, d.programs.FromWireguard, l.Index)
		return err
	}); err != nil {
		return fmt.Errorf("WireGuard device %s: %w", ifname, err)
	}
	old := d.wireguard
	d.wireguard = attached
	if old != nil {
		return old.Close()
	}
	return nil
}

// adoptWireguard takes over the program on the WireGuard device; one whose device has gone goes too.
func (d *Datapath) adoptWireguard(l link.Link, ifindex int) error {
	if ifindex == 0 {
		return d.pins.detach(l, wireguardLink)
	}
	d.wireguard = l
	return adoptInto(l, ifindex, d.programs.FromWireguard)
}

// Underlays lists the indexes of the underlay's interfaces: after Open those that an earlier agent left.
func (d *Datapath) Underlays() []int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.underlays))
}

// close lets go of the links; their pins keep the programs in place.
func (u *underlayLinks) close() error {
	if u == nil {
		return nil
	}
	var errs []error
	for _, l := range []link.Link{u.in, u.out} {
		if l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}

func checkUnderlayAddress(a netip.Addr) error {
	if a.Is4() {
		return nil
	}
	if !a.IsValid() {
		return errors.New("no tunnel address")
	}
	return fmt.Errorf("tunnel address %s is not IPv4: tunnels over IPv6 are not supported, give the host an IPv4 tunnel address", a)
}

// SetTunnel makes or changes the path to p.Remote. Flows that name its tunnel use the new path from the next packet on.
func (d *Datapath) SetTunnel(p TunnelPath) (Tunnel, error) {
	for _, a := range []netip.Addr{p.Local, p.Remote} {
		if err := checkUnderlayAddress(a); err != nil {
			return 0, fmt.Errorf("tunnel to %s: %w", p.Remote, err)
		}
	}
	if p.MTU <= Overhead || p.MTU > 0xffff {
		return 0, fmt.Errorf("tunnel to %s: underlay MTU %d: want more than %d", p.Remote, p.MTU, Overhead)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tunnels[p.Remote]
	if t == 0 {
		var err error
		if t, err = d.newTunnel(); err != nil {
			return 0, fmt.Errorf("tunnel to %s: %w", p.Remote, err)
		}
	}
	if err := d.maps.Tunnels.Put(index(uint32(t)), d.tunnelEntry(t, p)); err != nil {
		return 0, fmt.Errorf("tunnel to %s: %w", p.Remote, err)
	}
	d.tunnels[p.Remote], d.paths[t] = t, p
	return t, nil
}

// tunnelEntry writes the outer headers, with 0 where the program fills in: lengths, IP checksum, UDP source, key, secret.
func (d *Datapath) tunnelEntry(t Tunnel, p TunnelPath) bpfTunnel {
	e := bpfTunnel{Number: uint32(t), Ifindex: uint32(p.Interface), Mtu: uint32(p.MTU - Overhead)}
	b := e.Outer[:0]
	b = append(b, p.DstMAC[:]...)
	b = append(b, p.SrcMAC[:]...)
	b = binary.BigEndian.AppendUint16(b, etherIPv4)
	src, dst := p.Local.As4(), p.Remote.As4()
	// Version 4, 5 words; TOS; length; id; don't fragment; TTL 64; UDP; checksum.
	b = append(b, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protoUDP, 0, 0)
	b = append(b, src[:]...)
	b = append(b, dst[:]...)
	e.IpSum = foldedSum(b[ethHeaderLen:])
	b = binary.BigEndian.AppendUint16(b, 0)
	b = binary.BigEndian.AppendUint16(b, TunnelPort)
	b = append(b, 0, 0, 0, 0) // length; no checksum, as RFC 7348 §5 prefers
	_ = append(b, 0x08)       // the key is valid (RFC 7348 §5)
	if peer := d.peers[p.Remote]; peer != nil {
		e.Secret = peer.Send
	}
	return e
}

func (d *Datapath) newTunnel() (Tunnel, error) {
	taken := make([]bool, maxTunnels)
	for t := range d.paths {
		taken[index(uint32(t))] = true
	}
	for i := uint32(1); i < maxTunnels; i++ {
		if taken[i] {
			continue
		}
		var last bpfTunnel
		if err := d.maps.Tunnels.Lookup(i, &last); err != nil {
			return 0, fmt.Errorf("read tunnel %d: %w", i, err)
		}
		return Tunnel(nextGeneration(last.Number, i)), nil
	}
	return 0, fmt.Errorf("there are %d tunnels: no more fit on one host", maxTunnels-1)
}

// RemoveTunnel forgets the path to a host: frames of flows through it go up again (Stale).
func (d *Datapath) RemoveTunnel(remote netip.Addr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	t, ok := d.tunnels[remote]
	if !ok {
		return nil
	}
	if err := d.maps.Tunnels.Put(index(uint32(t)), bpfTunnel{Number: uint32(t)}); err != nil {
		return fmt.Errorf("remove tunnel to %s: %w", remote, err)
	}
	delete(d.tunnels, remote)
	delete(d.paths, t)
	return nil
}

// Tunnels lists the paths to remote hosts: after Open those that an earlier agent left. Remove the ones not wanted.
func (d *Datapath) Tunnels() map[Tunnel]TunnelPath {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make(map[Tunnel]TunnelPath, len(d.paths))
	for t, p := range d.paths {
		all[t] = p
	}
	return all
}

// adoptTunnels reads the tunnels back from the map.
func (d *Datapath) adoptTunnels() error {
	entries := make([]bpfTunnel, maxTunnels)
	if err := readArray(d.maps.Tunnels, entries); err != nil {
		return fmt.Errorf("read tunnels: %w", err)
	}
	for _, e := range entries {
		if e.Ifindex == 0 {
			continue
		}
		t := Tunnel(e.Number)
		o := e.Outer[:]
		p := TunnelPath{Interface: int(e.Ifindex), MTU: int(e.Mtu) + Overhead,
			DstMAC: [6]byte(o), SrcMAC: [6]byte(o[6:]),
			Local: netip.AddrFrom4([4]byte(o[26:])), Remote: netip.AddrFrom4([4]byte(o[30:]))}
		d.tunnels[p.Remote], d.paths[t] = t, p
	}
	return nil
}

// word4 is an IPv4 address as it lies in memory.
func word4(a netip.Addr) uint32 {
	b := a.As4()
	return binary.NativeEndian.Uint32(b[:])
}
