package datapath

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"sync"
)

// maxTunnels is the number of remote hosts, as in bpf/maps.h. Index 0 is unused.
const maxTunnels = 4096

// tunnelSet holds the other hosts: the tunnels to them, the secrets they are accepted with, and the
// ports they may send to. Its lock is taken before that of the ports.
type tunnelSet struct {
	*kernel
	portSet *portSet

	mu      sync.Mutex
	tunnels map[netip.Addr]Tunnel
	paths   map[Tunnel]TunnelPath
	peers   map[netip.Addr]*peerState
}

// SetTunnel makes or changes the path to p.Remote, from the next packet on.
func (s *tunnelSet) SetTunnel(p TunnelPath) (Tunnel, error) {
	for _, a := range []netip.Addr{p.Local, p.Remote} {
		if err := checkUnderlayAddress(a); err != nil {
			return 0, fmt.Errorf("tunnel to %s: %w", p.Remote, err)
		}
	}
	if p.MTU <= Overhead || p.MTU > 0xffff {
		return 0, fmt.Errorf("tunnel to %s: underlay MTU %d: want more than %d", p.Remote, p.MTU, Overhead)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tunnels[p.Remote]
	if t == 0 {
		var err error
		if t, err = nextNumber("tunnels", s.paths, maxTunnels, func(i uint32) (uint32, error) {
			var last bpfTunnel
			err := s.maps.Tunnels.Lookup(i, &last)
			return last.Number, err
		}); err != nil {
			return 0, fmt.Errorf("tunnel to %s: %w", p.Remote, err)
		}
	}
	if err := s.maps.Tunnels.Put(index(uint32(t)), s.tunnelEntry(t, p)); err != nil {
		return 0, fmt.Errorf("tunnel to %s: %w", p.Remote, err)
	}
	s.tunnels[p.Remote], s.paths[t] = t, p
	return t, nil
}

// tunnelEntry writes the outer headers, with 0 where the program fills in.
func (s *tunnelSet) tunnelEntry(t Tunnel, p TunnelPath) bpfTunnel {
	e := bpfTunnel{Number: uint32(t), Ifindex: uint32(p.Interface), Mtu: uint32(p.MTU - Overhead)}
	b := outerHeaders(e.Outer[:0], outerHeader{dstMAC: p.DstMAC, srcMAC: p.SrcMAC, src: p.Local, dst: p.Remote, dontFragment: true, ttl: 64, port: TunnelPort})
	e.IpSum = foldedSum(b[ethHeaderLen : ethHeaderLen+ipv4HeaderLen])
	if peer := s.peers[p.Remote]; peer != nil {
		e.Secret = peer.Send
	}
	return e
}

// RemoveTunnel forgets the path to a host: frames of flows through it go up again (Stale).
func (s *tunnelSet) RemoveTunnel(remote netip.Addr) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.tunnels[remote]
	if !ok {
		return nil
	}
	if err := s.maps.Tunnels.Put(index(uint32(t)), bpfTunnel{Number: uint32(t)}); err != nil {
		return fmt.Errorf("remove tunnel to %s: %w", remote, err)
	}
	delete(s.tunnels, remote)
	delete(s.paths, t)
	return nil
}

// Tunnels lists the paths to remote hosts.
func (s *tunnelSet) Tunnels() map[Tunnel]TunnelPath {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.paths)
}

// mtu returns the largest IP packet of a workload that a tunnel carries.
func (s *tunnelSet) mtu(t Tunnel) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.paths[t]
	if !ok {
		return 0, fmt.Errorf("tunnel %#x has gone", uint32(t))
	}
	return p.MTU - Overhead, nil
}

func (s *tunnelSet) adoptTunnels() error {
	return eachEntry(s.maps.Tunnels, func(_ []uint32, entries []bpfTunnel) bool {
		for i := range entries {
			e := &entries[i]
			if e.Ifindex == 0 {
				continue
			}
			t, o := Tunnel(e.Number), e.Outer[:]
			p := TunnelPath{Interface: int(e.Ifindex), MTU: int(e.Mtu) + Overhead,
				DstMAC: [6]byte(o), SrcMAC: [6]byte(o[6:]),
				Local: netip.AddrFrom4([4]byte(o[26:])), Remote: netip.AddrFrom4([4]byte(o[30:]))}
			s.tunnels[p.Remote], s.paths[t] = t, p
		}
		return true
	})
}

func word4(a netip.Addr) uint32 {
	b := a.As4()
	return binary.NativeEndian.Uint32(b[:])
}
