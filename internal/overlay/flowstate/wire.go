package flowstate

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/uuid"

	"heddle/internal/topology/flow"
)

// A message tells connections to the agent of another host. It is the payload of a frame with the tunnel key of state
// messages. All numbers are big endian.
//
//	 0  version, 1
//	 1  number of connections, 1 to MaxKeys
//	 2  id of the sending host, 16 bytes
//	18  connections, KeySize bytes each
//
// A connection, here and where it is kept over a restart of the agent:
//
//	 0  flags: 1 = IPv6, 2 = the ingress key of the forward direction
//	 1  protocol
//	 2  source port, destination port
//	 6  source, destination: 16 bytes each; IPv4 as its first 4, the rest 0
//	38  id of the device, 16 bytes
const (
	wireVersion = 1
	headerSize  = 18
	// KeySize is the size of one encoded connection, bytes.
	KeySize = 54
	// MaxKeys is how many connections one message holds; it then fits a tunnel over an underlay of 1280 bytes.
	MaxKeys = 20

	flagIPv6    = 1
	flagIngress = 2
)

// Message is a decoded state message.
type Message struct {
	Sender string // id of the host
	Keys   []flow.ConnKey
}

// AppendMessages appends as many messages as the keys need. Ids that are not UUIDs cannot be told and are an error.
func AppendMessages(messages [][]byte, sender string, keys []flow.ConnKey) ([][]byte, error) {
	id, err := uuid.Parse(sender)
	if err != nil {
		return messages, fmt.Errorf("state message of host %q: the id is not a UUID", sender)
	}
	for len(keys) > 0 {
		n := min(len(keys), MaxKeys)
		b := make([]byte, 0, headerSize+n*KeySize)
		b = append(b, wireVersion, byte(n))
		b = append(b, id[:]...)
		for _, k := range keys[:n] {
			if b, err = AppendKey(b, k); err != nil {
				return messages, err
			}
		}
		messages = append(messages, b)
		keys = keys[n:]
	}
	return messages, nil
}

// ParseMessage reads a message. It takes nothing from b.
func ParseMessage(b []byte) (Message, error) {
	if len(b) < headerSize {
		return Message{}, fmt.Errorf("state message of %d bytes: want at least %d", len(b), headerSize)
	}
	if b[0] != wireVersion {
		return Message{}, fmt.Errorf("state message of version %d: this agent knows version %d; upgrade it", b[0], wireVersion)
	}
	n := int(b[1])
	if n == 0 || n > MaxKeys || len(b) != headerSize+n*KeySize {
		return Message{}, fmt.Errorf("state message of %d bytes says it holds %d connections of %d bytes", len(b), n, KeySize)
	}
	m := Message{Sender: uuid.UUID(b[2:headerSize]).String(), Keys: make([]flow.ConnKey, 0, n)}
	for b = b[headerSize:]; len(b) > 0; b = b[KeySize:] {
		k, err := ParseKey(b[:KeySize])
		if err != nil {
			return Message{}, err
		}
		if len(m.Keys) > 0 && m.Keys[len(m.Keys)-1].Device == k.Device {
			k.Device = m.Keys[len(m.Keys)-1].Device // one string for the keys of one packet
		}
		m.Keys = append(m.Keys, k)
	}
	return m, nil
}

// AppendKey appends the KeySize bytes of a key.
func AppendKey(b []byte, k flow.ConnKey) ([]byte, error) {
	device, err := uuid.Parse(k.Device)
	if err != nil {
		return b, fmt.Errorf("connection of device %q: the id is not a UUID", k.Device)
	}
	if k.Src.Is4() != k.Dst.Is4() || !k.Src.IsValid() || !k.Dst.IsValid() {
		return b, fmt.Errorf("connection from %s to %s: not of one family", k.Src, k.Dst)
	}
	var flags byte
	if k.Ingress {
		flags |= flagIngress
	}
	if !k.Src.Is4() {
		flags |= flagIPv6
	}
	b = append(b, flags, k.Proto)
	b = binary.BigEndian.AppendUint16(b, k.SrcPort)
	b = binary.BigEndian.AppendUint16(b, k.DstPort)
	b = appendAddr(b, k.Src)
	b = appendAddr(b, k.Dst)
	return append(b, device[:]...), nil
}

func appendAddr(b []byte, a netip.Addr) []byte {
	if a.Is4() {
		x := a.As4()
		return append(append(b, x[:]...), make([]byte, 12)...)
	}
	x := a.As16()
	return append(b, x[:]...)
}

// ParseKey reads the KeySize bytes of a key.
func ParseKey(b []byte) (flow.ConnKey, error) {
	if len(b) != KeySize {
		return flow.ConnKey{}, fmt.Errorf("connection of %d bytes: want %d", len(b), KeySize)
	}
	if b[0]&^(flagIPv6|flagIngress) != 0 {
		return flow.ConnKey{}, fmt.Errorf("connection with unknown flags %#x", b[0])
	}
	k := flow.ConnKey{Ingress: b[0]&flagIngress != 0, Proto: b[1], SrcPort: binary.BigEndian.Uint16(b[2:]), DstPort: binary.BigEndian.Uint16(b[4:]),
		Device: uuid.UUID(b[38:54]).String()}
	if b[0]&flagIPv6 != 0 {
		k.Src, k.Dst = netip.AddrFrom16([16]byte(b[6:22])), netip.AddrFrom16([16]byte(b[22:38]))
	} else {
		k.Src, k.Dst = netip.AddrFrom4([4]byte(b[6:10])), netip.AddrFrom4([4]byte(b[22:26]))
		if [12]byte(b[10:22]) != [12]byte{} || [12]byte(b[26:38]) != [12]byte{} {
			return flow.ConnKey{}, fmt.Errorf("connection from %s to %s: something behind the addresses", k.Src, k.Dst)
		}
	}
	return k, nil
}
