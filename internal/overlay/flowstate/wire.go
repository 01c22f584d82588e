package flowstate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/uuid"

	"heddle/internal/topology/flow"
)

// A message sends connections to the agent of another host. It is the payload of a frame with the
// tunnel key of state messages. All numbers are big endian. It is sealed (AES-256-GCM, package
// hostkey):
//
//	 0  version, 2
//	 1  0
//	 2  key of the sender, of the receiver: 4 bytes each of the SHA-256 of the public key
//	10  session of the sender: rises with each start of its agent
//	18  counter: rises with each message in the session
//	26  sealed: number of connections, 1 to MaxKeys; connections, KeySize bytes each
//
// Hosts of earlier versions, without keys, send and receive this one:
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
	wireVersion   = 1
	sealedVersion = 2
	headerSize    = 18
	// EnvelopeSize is the size in bytes of the unsealed head of a message.
	EnvelopeSize = 26
	// KeySize is the size of one encoded connection, bytes.
	KeySize = 54
	// MaxKeys is the number of connections in one message, which fits a tunnel over 1280 bytes.
	MaxKeys = 20

	flagIPv6    = 1
	flagIngress = 2
)

// Message is a decoded state message.
type Message struct {
	Sender string // id of the host
	Keys   []flow.ConnKey
}

// AppendMessages appends as many messages as the keys need. All ids must be UUIDs.
func AppendMessages(messages [][]byte, sender string, keys []flow.ConnKey) ([][]byte, error) {
	id, err := uuid.Parse(sender)
	if err != nil {
		return messages, fmt.Errorf("state message of host %q: the id is not a UUID", sender)
	}
	for part := range slices.Chunk(keys, MaxKeys) {
		b := make([]byte, 0, headerSize+len(part)*KeySize)
		b = append(b, wireVersion, byte(len(part)))
		b = append(b, id[:]...)
		if b, err = appendKeys(b, part); err != nil {
			return messages, err
		}
		messages = append(messages, b)
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
	keys, err := parseKeys(int(b[1]), b[headerSize:])
	if err != nil {
		return Message{}, err
	}
	return Message{Sender: uuid.UUID(b[2:headerSize]).String(), Keys: keys}, nil
}

// Envelope is the head of a sealed message.
type Envelope struct {
	SenderKey, ReceiverKey uint32
	Session, Counter       uint64
}

// Append appends the EnvelopeSize bytes of e to b.
func (e Envelope) Append(b []byte) []byte {
	b = append(b, sealedVersion, 0)
	b = binary.BigEndian.AppendUint32(b, e.SenderKey)
	b = binary.BigEndian.AppendUint32(b, e.ReceiverKey)
	b = binary.BigEndian.AppendUint64(b, e.Session)
	return binary.BigEndian.AppendUint64(b, e.Counter)
}

// IsPlain reports whether a message is of the version that is not sealed.
func IsPlain(b []byte) bool { return len(b) > 0 && b[0] == wireVersion }

// ParseEnvelope splits a sealed message into its envelope, as written too, and its sealed part.
func ParseEnvelope(b []byte) (e Envelope, written, sealed []byte, err error) {
	if len(b) < EnvelopeSize {
		return e, nil, nil, fmt.Errorf("state message of %d bytes: want at least %d", len(b), EnvelopeSize)
	}
	if b[0] != sealedVersion || b[1] != 0 {
		return e, nil, nil, fmt.Errorf("state message of version %d.%d: this agent knows version %d.0; upgrade it", b[0], b[1], sealedVersion)
	}
	e = Envelope{SenderKey: binary.BigEndian.Uint32(b[2:]), ReceiverKey: binary.BigEndian.Uint32(b[6:]),
		Session: binary.BigEndian.Uint64(b[10:]), Counter: binary.BigEndian.Uint64(b[18:])}
	return e, b[:EnvelopeSize], b[EnvelopeSize:], nil
}

// AppendBody appends what is sealed: 1 to MaxKeys connections.
func AppendBody(b []byte, keys []flow.ConnKey) ([]byte, error) {
	if len(keys) == 0 || len(keys) > MaxKeys {
		return b, fmt.Errorf("state message of %d connections: want 1 to %d", len(keys), MaxKeys)
	}
	b = append(slices.Grow(b, 1+len(keys)*KeySize), byte(len(keys)))
	return appendKeys(b, keys)
}

// ParseBody reads what AppendBody wrote. It takes nothing from b.
func ParseBody(b []byte) ([]flow.ConnKey, error) {
	if len(b) == 0 {
		return nil, errors.New("state message without connections")
	}
	return parseKeys(int(b[0]), b[1:])
}

func appendKeys(b []byte, keys []flow.ConnKey) (_ []byte, err error) {
	for _, k := range keys {
		if b, err = AppendKey(b, k); err != nil {
			return b, err
		}
	}
	return b, nil
}

// parseKeys reads n connections, which are all of b.
func parseKeys(n int, b []byte) ([]flow.ConnKey, error) {
	if n == 0 || n > MaxKeys || len(b) != n*KeySize {
		return nil, fmt.Errorf("state message with %d bytes of connections says it holds %d of %d bytes", len(b), n, KeySize)
	}
	keys := make([]flow.ConnKey, 0, n)
	for ; len(b) > 0; b = b[KeySize:] {
		k, err := ParseKey(b[:KeySize])
		if err != nil {
			return nil, err
		}
		if len(keys) > 0 && keys[len(keys)-1].Device == k.Device {
			k.Device = keys[len(keys)-1].Device // one string for the keys of one packet
		}
		keys = append(keys, k)
	}
	return keys, nil
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
