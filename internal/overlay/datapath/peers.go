package datapath

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
)

const (
	// maxPeers is the number of tunnel addresses of other hosts, as in bpf/maps.h.
	maxPeers = 4096
	// MaxSecrets is the number of secrets of a peer accepted at once.
	MaxSecrets = 4
	// senderWords is the number of words in one port's row of bits.
	senderWords = maxPeers / 32
)

// Peer is another host, by its tunnel address. Frames from it are accepted only in the ways of Ways
// and with a secret of Accept; frames to it carry Send. A secret is the 32 reserved bits of a VXLAN
// header; 0 for hosts that have none.
type Peer struct {
	Send   uint32
	Accept []uint32 // 1 to MaxSecrets
	Ways   Ways     // 0: none of its frames is accepted
	// Wireguard is the index of the device by which the kernel's vxlan device sends to the peer, 0
	// for in the clear. The programs send by the peer's tunnel; see SetTunnel.
	Wireguard uint32
}

// Ways are those by which frames may come from a peer, as enum way in bpf/maps.h.
type Ways uint32

const (
	Plain     Ways = 1 << iota // in the clear, by the underlay's interfaces
	Encrypted                  // by the WireGuard device; see AttachWireguard
)

func (p Peer) equal(q Peer) bool {
	return p.Send == q.Send && p.Ways == q.Ways && p.Wireguard == q.Wireguard && slices.Equal(p.Accept, q.Accept)
}

// peerState is a peer and its bit among the senders of a port.
type peerState struct {
	Peer
	index uint32
}

// SetPeer accepts tunnelled frames from the address, or changes how. Frames to it carry the new
// secret from the next one on. A new peer may send to no port; see AllowSender.
func (s *tunnelSet) SetPeer(remote netip.Addr, p Peer) error {
	if err := checkUnderlayAddress(remote); err != nil {
		return fmt.Errorf("peer %s: %w", remote, err)
	}
	if len(p.Accept) == 0 || len(p.Accept) > MaxSecrets {
		return fmt.Errorf("peer %s: %d secrets: want 1 to %d", remote, len(p.Accept), MaxSecrets)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.peers[remote]
	if state != nil && state.equal(p) {
		return nil
	}
	if state == nil {
		i, err := s.newPeerIndex()
		if err != nil {
			return fmt.Errorf("peer %s: %w", remote, err)
		}
		state = &peerState{index: i}
	}
	p.Accept = slices.Clone(p.Accept)
	entry := bpfPeer{Index: state.index, Secret: p.Send, Ways: uint32(p.Ways), Wireguard: p.Wireguard}
	for i := range entry.Accept {
		entry.Accept[i] = p.Accept[min(i, len(p.Accept)-1)]
	}
	if err := s.maps.Peers.Put(word4(remote), entry); err != nil {
		return fmt.Errorf("peer %s: %w", remote, err)
	}
	state.Peer = p
	s.peers[remote] = state
	if t := s.tunnels[remote]; t != 0 {
		if err := s.maps.Tunnels.Put(index(uint32(t)), s.tunnelEntry(t, s.paths[t])); err != nil {
			return fmt.Errorf("peer %s: tunnel: %w", remote, err)
		}
	}
	return nil
}

// newPeerIndex finds a bit that no peer has and clears it in all ports.
func (s *tunnelSet) newPeerIndex() (uint32, error) {
	taken := make([]bool, maxPeers)
	for _, p := range s.peers {
		taken[p.index] = true
	}
	i := slices.Index(taken, false)
	if i < 0 {
		return 0, fmt.Errorf("there are %d peers: no more fit on one host", maxPeers)
	}
	s.portSet.senders.clearPeer(uint32(i))
	return uint32(i), nil
}

// RemovePeer accepts nothing from the address from now on. It may be no peer's.
func (s *tunnelSet) RemovePeer(remote netip.Addr) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.peers[remote] == nil {
		return nil
	}
	if err := ignoreMissing(s.maps.Peers.Delete(word4(remote))); err != nil {
		return fmt.Errorf("remove peer %s: %w", remote, err)
	}
	delete(s.peers, remote)
	return nil
}

// Peers lists the peers: after Open those that an earlier agent left. Remove the ones not wanted.
func (s *tunnelSet) Peers() map[netip.Addr]Peer {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[netip.Addr]Peer, len(s.peers))
	for a, p := range s.peers {
		all[a] = p.Peer
	}
	return all
}

// Peer returns the peer at an address.
func (s *tunnelSet) Peer(remote netip.Addr) (p Peer, there bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if state := s.peers[remote]; state != nil {
		return state.Peer, true
	}
	return p, false
}

func (s *tunnelSet) adoptPeers() error {
	return eachEntry(s.maps.Peers, func(keys []uint32, entries []bpfPeer) bool {
		for i, e := range entries {
			var b [4]byte
			binary.NativeEndian.PutUint32(b[:], keys[i])
			accept := slices.Compact(slices.Clone(e.Accept[:]))
			s.peers[netip.AddrFrom4(b)] = &peerState{index: e.Index,
				Peer: Peer{Send: e.Secret, Accept: accept, Ways: Ways(e.Ways), Wireguard: e.Wireguard}}
		}
		return true
	})
}

// AllowSender lets the peer at the address send to a port, or no longer. It does nothing while
// either is missing: the caller repeats the call when it makes the port or the peer.
func (s *tunnelSet) AllowSender(port Port, remote netip.Addr, allowed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if peer := s.peers[remote]; peer != nil {
		s.portSet.whileAttached(port, func(i uint32) { s.portSet.senders.set(i, peer.index, allowed) })
	}
}

// SetSenders lets the peers at these addresses, and no others, send to a port.
func (s *tunnelSet) SetSenders(port Port, remotes map[netip.Addr]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var row [senderWords]uint32
	for remote := range remotes {
		if p := s.peers[remote]; p != nil {
			row[p.index/32] |= 1 << (p.index % 32)
		}
	}
	s.portSet.whileAttached(port, func(i uint32) { s.portSet.senders.setPort(i, row) })
}

// senderBits holds a row of bits for each port index: the indexes of the peers that may send to it.
type senderBits struct{ memory *sharedWords }

func (b *senderBits) set(port, peer uint32, allowed bool) {
	word, bit := &b.memory.words[port*senderWords+peer/32], uint32(1)<<(peer%32)
	if allowed {
		atomic.OrUint32(word, bit)
	} else {
		atomic.AndUint32(word, ^bit)
	}
}

func (b *senderBits) setPort(port uint32, row [senderWords]uint32) {
	for i, word := range row {
		b.memory.store(int(port)*senderWords+i, word)
	}
}

func (b *senderBits) clearPort(port uint32) { b.setPort(port, [senderWords]uint32{}) }

func (b *senderBits) clearPeer(peer uint32) {
	for port := range uint32(maxPorts) {
		b.set(port, peer, false)
	}
}
