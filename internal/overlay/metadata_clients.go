package overlay

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"sync"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

const (
	// maxMetadataSources is the number of sources of one port that reach the metadata service. A
	// port has more than its own addresses only without port security or with wide address pairs.
	maxMetadataSources = 16
	// maxMetadataClients is that of a host with as many ports as the datapath has.
	maxMetadataClients = 4096 * maxMetadataSources
)

// metadataClients holds the clients of this host's metadata service, and the number of the address
// that stands for each. A table of the kernel keeps them while agents come and go. Numbers are
// given in order, so that one that was given back is not used again for a long time.
type metadataClients struct {
	table *datapath.Table

	mu       sync.Mutex
	byNumber map[uint32]flow.MetadataClient
	numbers  map[flow.MetadataClient]uint32
	sources  map[string]int // by port: its clients
	last     uint32         // number given
}

// openMetadataClients opens the table with the clients of an earlier agent.
func openMetadataClients(dp *datapath.Datapath) (*metadataClients, error) {
	table, err := dp.Table("metadata", metadataKeySize, metadataRecordSize, maxMetadataClients)
	if err != nil {
		return nil, err
	}
	m := &metadataClients{table: table, byNumber: map[uint32]flow.MetadataClient{}, numbers: map[flow.MetadataClient]uint32{}, sources: map[string]int{}}
	return m, table.Each(func(key, value []byte) bool {
		n := binary.NativeEndian.Uint32(key)
		m.enter(n, parseMetadataRecord(value))
		m.last = max(m.last, n)
		return true
	})
}

// enter needs the lock.
func (m *metadataClients) enter(n uint32, c flow.MetadataClient) {
	m.byNumber[n], m.numbers[c] = c, n
	m.sources[c.PortID]++
}

// source returns the address that stands for a client, and gives it one if it has none; or why it
// cannot.
func (m *metadataClients) source(c flow.MetadataClient) (a netip.Addr, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, known := m.numbers[c]
	if !known {
		if n, why = m.free(c.PortID); why != "" {
			return a, why
		}
		if err := m.table.Put(metadataKey(n), metadataRecord(c)); err != nil {
			return a, err.Error()
		}
		m.enter(n, c)
		m.last = n
	}
	return flow.MetadataSourceAddr(n, c.IP.Is6()), ""
}

// peek is source, and gives no address for good.
func (m *metadataClients) peek(c flow.MetadataClient) (a netip.Addr, why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, known := m.numbers[c]
	if !known {
		if n, why = m.free(c.PortID); why != "" {
			return a, why
		}
	}
	return flow.MetadataSourceAddr(n, c.IP.Is6()), ""
}

// free returns the next number, or why a port gets no more. It needs the lock.
func (m *metadataClients) free(port string) (n uint32, why string) {
	if m.sources[port] >= maxMetadataSources {
		return 0, fmt.Sprintf("port %s has used the service from %d addresses, and no port may from more", port, maxMetadataSources)
	}
	for n = m.last + 1; ; n++ {
		if n > flow.MaxMetadataSource {
			n = 1
		}
		if _, used := m.byNumber[n]; !used {
			return n, ""
		}
	}
}

// find returns the client that an address stands for.
func (m *metadataClients) find(a netip.Addr) (flow.MetadataClient, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.byNumber[flow.MetadataSourceNumber(a)]
	return c, ok && c.IP.Is6() == a.Is6()
}

// release gives back the addresses of a port's clients.
func (m *metadataClients) release(port string) error {
	return m.keep(func(id string) bool { return id != port })
}

// keep gives back the addresses of the clients of all ports but those to keep.
func (m *metadataClients) keep(kept func(port string) bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var gone [][]byte
	maps.DeleteFunc(m.byNumber, func(n uint32, c flow.MetadataClient) bool {
		if kept(c.PortID) {
			return false
		}
		delete(m.numbers, c)
		delete(m.sources, c.PortID)
		gone = append(gone, metadataKey(n))
		return true
	})
	return m.table.Delete(gone...)
}

// keepAttachedClients gives back the addresses of clients whose ports have left while no agent ran.
func (e *engine) keepAttachedClients() error {
	e.net.mu.RLock()
	attached := maps.Clone(e.net.portByID) // no lock of clients is held while this one is taken
	e.net.mu.RUnlock()
	return e.clients.keep(func(port string) bool { return attached[port] != nil })
}

// The record of a client: its port's id, its MAC address, the one that it sends to, its IP address
// in 16 bytes, and whether that is of IPv6.
const (
	metadataKeySize    = 4
	metadataPortSize   = 64 // as long as the name of a port of the datapath
	metadataRecordSize = metadataPortSize + 6 + 6 + 16 + 1
)

func metadataKey(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

func metadataRecord(c flow.MetadataClient) []byte {
	b := make([]byte, metadataPortSize, metadataRecordSize)
	copy(b, c.PortID)
	b = append(append(b, c.MAC[:]...), c.Via[:]...)
	ip := c.IP.As16()
	b = append(b, ip[:]...)
	if c.IP.Is6() {
		return append(b, 1)
	}
	return append(b, 0)
}

func parseMetadataRecord(b []byte) flow.MetadataClient {
	port, _, _ := bytes.Cut(b[:metadataPortSize], []byte{0})
	b = b[metadataPortSize:]
	c := flow.MetadataClient{PortID: string(port), MAC: packet.MAC(b[:6]), Via: packet.MAC(b[6:12]), IP: netip.AddrFrom16([16]byte(b[12:28]))}
	if b[28] == 0 {
		c.IP = c.IP.Unmap()
	}
	return c
}

// MetadataSource implements simulate.State.
func (s liveState) MetadataSource(c flow.MetadataClient) (source netip.Addr, why string) {
	switch {
	case s.e.net.portByID[flow.MetadataPort] == nil:
		return source, "the service does not run on this host"
	case s.trial || s.e.net.portByID[c.PortID] == nil:
		return s.e.clients.peek(c)
	}
	return s.e.clients.source(c)
}

// MetadataClient implements simulate.State.
func (s liveState) MetadataClient(source netip.Addr) (flow.MetadataClient, bool) {
	return s.e.clients.find(source)
}
