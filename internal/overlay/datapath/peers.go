package datapath

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/cilium/ebpf"
)

const (
	// maxPeers is how many tunnel addresses of other hosts there can be, as bpf/maps.h.
	maxPeers = 4096
	// MaxSecrets is how many secrets of a peer are accepted at once.
	MaxSecrets = 4
	// senderWords is how many words of bits one port has in the map of senders.
	senderWords = maxPeers / 32
)

// Peer is another host as the datapath knows it: tunnelled frames from its address are accepted only in the ways of Ways
// and with one of the secrets in Accept, and frames to it carry Send. A secret is the 32 reserved bits of a VXLAN header;
// 0 is what programs and kernels write that know no secrets.
type Peer struct {
	Send   uint32
	Accept []uint32 // 1 to MaxSecrets
	Ways   Ways     // 0: none of its frames is accepted
	// Wireguard is the index of the device by which the kernel's vxlan device sends to the peer, 0 for in the clear. What
	// the programs send goes where the tunnel to the peer leads; see SetTunnel.
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

// SetPeer accepts tunnelled frames from the address, or changes the secrets of the host there. Frames to it carry the
// new secret from the next one on. A new peer may send to no port; see AllowSender.
func (d *Datapath) SetPeer(remote netip.Addr, p Peer) error {
	if err := checkUnderlayAddress(remote); err != nil {
		return fmt.Errorf("peer %s: %w", remote, err)
	}
	if len(p.Accept) == 0 || len(p.Accept) > MaxSecrets {
		return fmt.Errorf("peer %s: %d secrets: want 1 to %d", remote, len(p.Accept), MaxSecrets)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	state := d.peers[remote]
	if state != nil && state.equal(p) {
		return nil
	}
	if state == nil {
		i, err := d.newPeerIndex()
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
	if err := d.maps.Peers.Put(word4(remote), entry); err != nil {
		return fmt.Errorf("peer %s: %w", remote, err)
	}
	state.Peer = p
	d.peers[remote] = state
	if t := d.tunnels[remote]; t != 0 {
		if err := d.maps.Tunnels.Put(index(uint32(t)), d.tunnelEntry(t, d.paths[t])); err != nil {
			return fmt.Errorf("peer %s: tunnel: %w", remote, err)
		}
	}
	return nil
}

// newPeerIndex finds a bit that no peer has and clears it in all ports.
func (d *Datapath) newPeerIndex() (uint32, error) {
	taken := make([]bool, maxPeers)
	for _, p := range d.peers {
		taken[p.index] = true
	}
	i := slices.Index(taken, false)
	if i < 0 {
		return 0, fmt.Errorf("there are %d peers: no more fit on one host", maxPeers)
	}
	for port := range maxPorts {
		d.senders.clearBit(port*senderWords+i/32, i%32)
	}
	return uint32(i), nil
}

// RemovePeer accepts nothing from the address from now on. An address that is no peer's is no error.
func (d *Datapath) RemovePeer(remote netip.Addr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.peers[remote] == nil {
		return nil
	}
	if err := ignoreMissing(d.maps.Peers.Delete(word4(remote))); err != nil {
		return fmt.Errorf("remove peer %s: %w", remote, err)
	}
	delete(d.peers, remote)
	return nil
}

// Peers lists the peers: after Open those that an earlier agent left. Remove the ones not wanted.
func (d *Datapath) Peers() map[netip.Addr]Peer {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make(map[netip.Addr]Peer, len(d.peers))
	for a, p := range d.peers {
		all[a] = p.Peer
	}
	return all
}

// Peer returns the peer at an address.
func (d *Datapath) Peer(remote netip.Addr) (p Peer, there bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if state := d.peers[remote]; state != nil {
		return state.Peer, true
	}
	return p, false
}

// adoptPeers reads the peers back from the map.
func (d *Datapath) adoptPeers() error {
	var key uint32
	var e bpfPeer
	each := d.maps.Peers.Iterate()
	for each.Next(&key, &e) {
		var b [4]byte
		binary.NativeEndian.PutUint32(b[:], key)
		accept := slices.Compact(slices.Clone(e.Accept[:]))
		d.peers[netip.AddrFrom4(b)] = &peerState{Peer: Peer{Send: e.Secret, Accept: accept, Ways: Ways(e.Ways), Wireguard: e.Wireguard}, index: e.Index}
	}
	if err := each.Err(); err != nil && !errors.Is(err, ebpf.ErrIterationAborted) {
		return fmt.Errorf("read peers: %w", err)
	}
	return nil
}

// AllowSender lets the peer at the address send to a port, or no longer. Neither need be there: then there is nothing to
// do, and whoever makes the port or the peer says so again.
func (d *Datapath) AllowSender(port Port, remote netip.Addr, allowed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	peer := d.peers[remote]
	if peer == nil || d.byNumber[port] == nil {
		return
	}
	word, bit := int(index(uint32(port)))*senderWords+int(peer.index/32), int(peer.index%32)
	if allowed {
		d.senders.setBit(word, bit)
	} else {
		d.senders.clearBit(word, bit)
	}
}

// SetSenders lets the peers at these addresses, and no others, send to a port.
func (d *Datapath) SetSenders(port Port, remotes map[netip.Addr]bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byNumber[port] == nil {
		return
	}
	var bits [senderWords]uint32
	for remote := range remotes {
		if p := d.peers[remote]; p != nil {
			bits[p.index/32] |= 1 << (p.index % 32)
		}
	}
	at := int(index(uint32(port))) * senderWords
	for i, word := range bits {
		d.senders.store(at+i, word)
	}
}

// clearSenders forgets who may send to the port that had this index.
func (d *Datapath) clearSenders(i uint32) {
	for word := range senderWords {
		d.senders.store(int(i)*senderWords+word, 0)
	}
}

// Guard accepts tunnelled frames from peers alone from now on, also over restarts. A datapath that has never had a port
// is guarded from the start; one whose earlier agent knew no peers takes what comes until this is called, so that an
// upgrade loses nothing.
func (d *Datapath) Guard() error {
	if err := d.configure(func(c *bpfConfig) { c.Guarded = 1 }); err != nil {
		return fmt.Errorf("guard tunnels: %w", err)
	}
	return nil
}

func (s *sharedWords) setBit(word, bit int)   { atomic.OrUint32(&s.words[word], 1<<bit) }
func (s *sharedWords) clearBit(word, bit int) { atomic.AndUint32(&s.words[word], ^uint32(1<<bit)) }
