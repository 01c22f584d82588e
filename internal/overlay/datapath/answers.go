package datapath

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"

	"github.com/cilium/ebpf"

	"heddle/internal/topology/packet"
)

// Asker is a sender behind a port whose questions about neighbours, ARP requests and neighbour solicitations, the programs
// answer: its MAC address, and the IP address that it asks from.
type Asker struct {
	Port Port
	MAC  packet.MAC
	IP   netip.Addr
}

// Network names the addresses by which the askers of one virtual network are answered. It is the same in every process.
type Network uint64

// NetworkOf is the name of the network with that id.
func NetworkOf(id string) Network {
	h := fnv.New64a()
	h.Write([]byte(id))
	return Network(h.Sum64())
}

// Neighbour is an address in a network and its owner's MAC address.
type Neighbour struct {
	IP  netip.Addr
	MAC packet.MAC
}

// SetAsker lets the programs answer a sender about every neighbour in its network, as long as tag has not moved. It fails
// with ErrTableFull when there is no room for another.
func (d *Datapath) SetAsker(a Asker, n Network, tag Tag) error {
	value := bpfAsker{Network: uint64(n)}
	value.Tag.Slot, value.Tag.Epoch = uint32(tag.Slot), tag.Epoch
	if err := d.maps.Askers.Put(askerKey(a), value); isFull(err) {
		return fmt.Errorf("asker %s at port %d: %w", a.IP, a.Port, ErrTableFull)
	} else if err != nil {
		return fmt.Errorf("asker %s at port %d: %w", a.IP, a.Port, err)
	}
	return nil
}

// DeleteAsker leaves a sender's questions to the agent again. One that is not there is no error.
func (d *Datapath) DeleteAsker(a Asker) error {
	if err := ignoreMissing(d.maps.Askers.Delete(askerKey(a))); err != nil {
		return fmt.Errorf("delete asker %s at port %d: %w", a.IP, a.Port, err)
	}
	return nil
}

// Askers lists the senders whose questions the programs answer: after Open those that an earlier agent left.
func (d *Datapath) Askers() ([]Asker, error) {
	var all []Asker
	err := eachEntry(d.maps.Askers, func(keys []bpfAskerKey, _ []bpfAsker) {
		for i := range keys {
			k := &keys[i]
			all = append(all, Asker{Port: Port(k.Port), MAC: packet.MAC(k.Mac), IP: address(k.Ip).Unmap()})
		}
	})
	if err != nil {
		return nil, fmt.Errorf("list askers: %w", err)
	}
	return all, nil
}

// SetNeighbours enters addresses of a network. It fails with ErrTableFull when not all fit; some may be entered then.
func (d *Datapath) SetNeighbours(n Network, ns ...Neighbour) error {
	keys, values := make([]bpfNeighbourKey, len(ns)), make([]bpfNeighbour, len(ns))
	for i := range ns {
		keys[i], values[i] = neighbourKey(n, ns[i].IP), bpfNeighbour{Mac: ns[i].MAC}
	}
	var err error
	switch len(ns) {
	case 0:
	case 1:
		err = d.maps.Neighbours.Put(keys[0], values[0])
	default:
		_, err = d.maps.Neighbours.BatchUpdate(keys, values, nil)
	}
	if isFull(err) {
		err = ErrTableFull
	}
	if err != nil {
		return fmt.Errorf("enter %d neighbours: %w", len(ns), err)
	}
	return nil
}

// DeleteNeighbours takes addresses of a network out. Those that are not there are no error.
func (d *Datapath) DeleteNeighbours(n Network, ips ...netip.Addr) error {
	for _, ip := range ips {
		if err := ignoreMissing(d.maps.Neighbours.Delete(neighbourKey(n, ip))); err != nil {
			return fmt.Errorf("delete neighbour %s: %w", ip, err)
		}
	}
	return nil
}

// EachNeighbours calls f with the addresses that are entered, many at a time: after Open those that an earlier agent left.
// Entries that come or go meanwhile may or may not be seen.
func (d *Datapath) EachNeighbours(f func(networks []Network, ns []Neighbour)) error {
	var networks []Network
	var ns []Neighbour
	err := eachEntry(d.maps.Neighbours, func(keys []bpfNeighbourKey, values []bpfNeighbour) {
		networks, ns = networks[:0], ns[:0]
		for i := range keys {
			networks = append(networks, Network(keys[i].Network))
			ns = append(ns, Neighbour{IP: address(keys[i].Ip).Unmap(), MAC: packet.MAC(values[i].Mac)})
		}
		f(networks, ns)
	})
	if err != nil {
		return fmt.Errorf("list neighbours: %w", err)
	}
	return nil
}

// eachEntry reads a map, many entries at a time.
func eachEntry[K, V any](m *ebpf.Map, f func([]K, []V)) error {
	n := min(batchSize, int(m.MaxEntries()))
	keys, values := make([]K, n), make([]V, n)
	var cursor ebpf.MapBatchCursor
	for {
		got, err := m.BatchLookup(&cursor, keys, values, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return err
		}
		f(keys[:got], values[:got])
		if err != nil {
			return nil
		}
	}
}

func askerKey(a Asker) bpfAskerKey {
	return bpfAskerKey{Port: uint32(a.Port), Mac: a.MAC, Ip: words(a.IP)}
}

func neighbourKey(n Network, ip netip.Addr) bpfNeighbourKey {
	return bpfNeighbourKey{Network: uint64(n), Ip: words(ip)}
}
