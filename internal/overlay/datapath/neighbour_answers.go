package datapath

import (
	"fmt"
	"hash/fnv"
	"net/netip"

	"heddle/internal/topology/packet"
)

// Asker is a sender behind a port whose questions about neighbours the programs answer.
type Asker struct {
	Port Port
	MAC  packet.MAC
	IP   netip.Addr
}

// Network names a virtual network in the tables of answers. It is the same in every process.
type Network uint64

// NetworkOf is the name of the network with that id.
func NetworkOf(id string) Network {
	h := fnv.New64a()
	h.Write([]byte(id))
	return Network(h.Sum64())
}

// Neighbour is an address in a network and its owner's MAC address.
type Neighbour struct {
	IP     netip.Addr
	MAC    packet.MAC
	Router bool // the owner is a router, which answers about IPv6 addresses say
}

// answerTables holds what the programs answer questions about neighbours from.
type answerTables struct{ *kernel }

// SetAsker lets the programs answer a sender about every neighbour in its network until tag moves.
// It fails with ErrTableFull when there is no room.
func (t *answerTables) SetAsker(a Asker, n Network, tag Tag) error {
	value := bpfAsker{Network: uint64(n)}
	value.Tag.Slot, value.Tag.Epoch = uint32(tag.Slot), tag.Epoch
	if err := orTableFull(t.maps.Askers.Put(askerKey(a), value)); err != nil {
		return fmt.Errorf("asker %s at port %d: %w", a.IP, a.Port, err)
	}
	return nil
}

// DeleteAsker leaves a sender's questions to the agent again. One that is not there is no error.
func (t *answerTables) DeleteAsker(a Asker) error {
	if err := ignoreMissing(t.maps.Askers.Delete(askerKey(a))); err != nil {
		return fmt.Errorf("delete asker %s at port %d: %w", a.IP, a.Port, err)
	}
	return nil
}

// Askers lists the senders whose questions the programs answer.
func (t *answerTables) Askers() ([]Asker, error) {
	var all []Asker
	err := eachEntry(t.maps.Askers, func(keys []bpfAskerKey, _ []bpfAsker) bool {
		for i := range keys {
			k := &keys[i]
			all = append(all, Asker{Port: Port(k.Port), MAC: packet.MAC(k.Mac), IP: address(k.Ip).Unmap()})
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("list askers: %w", err)
	}
	return all, nil
}

// SetNeighbours enters addresses of a network; on ErrTableFull maybe only some.
func (t *answerTables) SetNeighbours(n Network, ns ...Neighbour) error {
	keys, values := make([]bpfNeighbourKey, len(ns)), make([]bpfNeighbour, len(ns))
	for i := range ns {
		keys[i], values[i] = neighbourKey(n, ns[i].IP), bpfNeighbour{Mac: ns[i].MAC}
		if ns[i].Router {
			values[i].Router = 1
		}
	}
	var err error
	switch len(ns) {
	case 0:
	case 1:
		err = t.maps.Neighbours.Put(keys[0], values[0])
	default:
		_, err = t.maps.Neighbours.BatchUpdate(keys, values, nil)
	}
	if err != nil {
		return fmt.Errorf("enter %d neighbours: %w", len(ns), orTableFull(err))
	}
	return nil
}

// DeleteNeighbours takes addresses of a network out. Those that are not there are no error.
func (t *answerTables) DeleteNeighbours(n Network, ips ...netip.Addr) error {
	for _, ip := range ips {
		if err := ignoreMissing(t.maps.Neighbours.Delete(neighbourKey(n, ip))); err != nil {
			return fmt.Errorf("delete neighbour %s: %w", ip, err)
		}
	}
	return nil
}

// EachNeighbours calls f with the addresses that are entered, many at a time.
func (t *answerTables) EachNeighbours(f func(networks []Network, ns []Neighbour)) error {
	var networks []Network
	var ns []Neighbour
	err := eachEntry(t.maps.Neighbours, func(keys []bpfNeighbourKey, values []bpfNeighbour) bool {
		networks, ns = networks[:0], ns[:0]
		for i := range keys {
			networks = append(networks, Network(keys[i].Network))
			ns = append(ns, Neighbour{IP: address(keys[i].Ip).Unmap(), MAC: packet.MAC(values[i].Mac), Router: values[i].Router != 0})
		}
		f(networks, ns)
		return true
	})
	if err != nil {
		return fmt.Errorf("list neighbours: %w", err)
	}
	return nil
}

func askerKey(a Asker) bpfAskerKey {
	return bpfAskerKey{Port: uint32(a.Port), Mac: a.MAC, Ip: words(a.IP)}
}

func neighbourKey(n Network, ip netip.Addr) bpfNeighbourKey {
	return bpfNeighbourKey{Network: uint64(n), Ip: words(ip)}
}
