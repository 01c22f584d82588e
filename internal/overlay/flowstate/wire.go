package flowstate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/google/uuid"

	"heddle/internal/topology/flow"
)

// A message sends connections, or translations, to the agent of another host. It is the payload of
// a frame with the tunnel key of state messages. All numbers are big endian. It is sealed
// (AES-256-GCM, package hostkey):
//
//	 0  version, 2
//	 1  0
//	 2  key of the sender, of the receiver: 4 bytes each of the SHA-256 of the public key
//	10  session of the sender: rises with each start of its agent
//	18  counter: rises with each message in the session
//	26  sealed: a body
//
// Hosts of earlier versions, without keys, send and receive this one:
//
//	 0  version, 1
//	 1  the first byte of a body
//	 2  id of the sending host, 16 bytes
//	18  the rest of the body
//
// A body begins with the number of records: 1 to MaxKeys connections of KeySize bytes each, or
// 0x80 and 1 to MaxTranslations translations of TranslationSize bytes each, or 0x40 and 1 to
// MaxPorts ids of ports, 16 bytes each, or 0x20 and 1 to MaxTranslations of those translations that
// are choices of members for clients, or 0xC0 and 1 to MaxEnds ends of EndSize bytes each, or it is
// 0xE1, before one hello. Agents of earlier versions reject the latter five. A connection, here and
// where it is kept over a restart of the agent:
//
//	 0  flags: 1 = IPv6, 2 = the ingress key of the forward direction
//	 1  protocol
//	 2  source port, destination port
//	 6  source, destination: 16 bytes each; IPv4 as its first 4, the rest 0
//	38  id of the device, 16 bytes
//
// A translation is the entry of a Forward kind; its Reverse is implied:
//
//	 0  key: as a connection; flag 2 = of the destination, 4 = the member for a client, with its
//	    life in seconds in place of the source port; else of the source
//	54  translated port
//	56  translated address, 16 bytes; IPv4 as above
//
// An end:
//
//	 0  translation, not of a member for a client
//	72  signs: 1 = FIN, 2 = FIN of the replies, 4 = RST, or 8 alone = the connection begins anew
//	73  seconds since the last packet
const (
	wireVersion   = 1
	sealedVersion = 2
	headerSize    = 18
	// EnvelopeSize is the size in bytes of the unsealed head of a message.
	EnvelopeSize = 26
	// KeySize is the size of one encoded connection, bytes.
	KeySize = 54
	// TranslationSize is the size of one encoded translation, bytes.
	TranslationSize = 72
	// MaxKeys is the number of connections in one message, which fits a tunnel over 1280 bytes.
	MaxKeys = 20
	// MaxTranslations is the number of translations in one message, likewise.
	MaxTranslations = 15
	// EndSize is the size of one encoded end, bytes.
	EndSize = TranslationSize + 2
	// MaxEnds is the number of ends in one message, which fits likewise.
	MaxEnds = 15
	// MaxPorts is the number of ports in one message, likewise.
	MaxPorts = 63

	portIDSize = 16

	areTranslations = 0x80 // in the first byte of a body
	arePorts        = 0x40 // likewise
	areSticky       = 0x20 // likewise
	areEnds         = 0xC0 // both bits

	flagIPv6    = 1
	flagIngress = 2
	flagDNAT    = 2
	flagSticky  = 4
)

// State holds the records that messages carry.
type State struct {
	Conns []flow.ConnKey
	NATs  []flow.NATEntry // of Forward kinds
	Ends  []End           // of connections with such translations
	// Ports lists ports that have moved to the receiver, and of which all state was sent before.
	Ports []string
	Hello *Hello // nil: none
}

// Message is a decoded state message.
type Message struct {
	Sender string // id of the host
	State
}

// Bodies returns the encoded bodies of as many messages as s needs. All ids must be UUIDs.
func (s *State) Bodies() (bodies [][]byte, err error) {
	usual, sticky := splitSticky(s.NATs)
	for i, all := range [][]flow.NATEntry{usual, sticky} {
		for part := range slices.Chunk(all, MaxTranslations) {
			b := append(make([]byte, 0, 1+len(part)*TranslationSize), [2]byte{areTranslations, areSticky}[i]|byte(len(part)))
			for i := range part {
				if b, err = AppendTranslation(b, part[i]); err != nil {
					return bodies, err
				}
			}
			bodies = append(bodies, b)
		}
	}
	for part := range slices.Chunk(s.Ends, MaxEnds) {
		b := append(make([]byte, 0, 1+len(part)*EndSize), areEnds|byte(len(part)))
		for i := range part {
			if b, err = appendEnd(b, &part[i]); err != nil {
				return bodies, err
			}
		}
		bodies = append(bodies, b)
	}
	for part := range slices.Chunk(s.Conns, MaxKeys) {
		b := append(make([]byte, 0, 1+len(part)*KeySize), byte(len(part)))
		for i := range part {
			if b, err = AppendKey(b, part[i]); err != nil {
				return bodies, err
			}
		}
		bodies = append(bodies, b)
	}
	for part := range slices.Chunk(s.Ports, MaxPorts) {
		b := append(make([]byte, 0, 1+len(part)*portIDSize), arePorts|byte(len(part)))
		for _, id := range part {
			u, err := uuid.Parse(id)
			if err != nil {
				return bodies, fmt.Errorf("state of port %q: the id is not a UUID", id)
			}
			b = append(b, u[:]...)
		}
		bodies = append(bodies, b)
	}
	if s.Hello != nil {
		bodies = append(bodies, s.Hello.append([]byte{isHello}))
	}
	return bodies, nil
}

// splitSticky separates the members for clients from other translations.
func splitSticky(all []flow.NATEntry) (usual, sticky []flow.NATEntry) {
	isSticky := func(e flow.NATEntry) bool { return e.Kind == flow.ForwardSticky }
	if !slices.ContainsFunc(all, isSticky) {
		return all, nil
	}
	for _, e := range all {
		if isSticky(e) {
			sticky = append(sticky, e)
		} else {
			usual = append(usual, e)
		}
	}
	return usual, sticky
}

// Messages returns as many messages without a seal as s needs. All ids must be UUIDs.
func (s *State) Messages(sender string) (messages [][]byte, err error) {
	id, err := uuid.Parse(sender)
	if err != nil {
		return nil, fmt.Errorf("state message of host %q: the id is not a UUID", sender)
	}
	bodies, err := s.Bodies()
	for _, body := range bodies {
		messages = append(messages, slices.Concat([]byte{wireVersion, body[0]}, id[:], body[1:]))
	}
	return messages, err
}

// ParseMessage reads a message. It takes nothing from b.
func ParseMessage(b []byte) (Message, error) {
	if len(b) < headerSize {
		return Message{}, fmt.Errorf("state message of %d bytes: want at least %d", len(b), headerSize)
	}
	if b[0] != wireVersion {
		return Message{}, fmt.Errorf("state message of version %d: this agent knows version %d; upgrade it", b[0], wireVersion)
	}
	s, err := parseRecords(b[1], b[headerSize:])
	if err != nil {
		return Message{}, err
	}
	return Message{Sender: uuid.UUID(b[2:headerSize]).String(), State: s}, nil
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

// ParseBody reads one of Bodies. It takes nothing from b.
func ParseBody(b []byte) (State, error) {
	if len(b) == 0 {
		return State{}, errors.New("state message without connections")
	}
	return parseRecords(b[0], b[1:])
}

// parseRecords reads what follows the first byte of a body.
func parseRecords(first byte, b []byte) (s State, err error) {
	switch {
	case first == isHello:
		var hellos []Hello
		if hellos, err = parseAll(1, 1, helloSize, b, parseHello); err == nil {
			s.Hello = &hellos[0]
		}
	case first&areEnds == areEnds:
		s.Ends, err = parseAll(int(first&^areEnds), MaxEnds, EndSize, b, parseEnd)
	case first&areTranslations != 0:
		s.NATs, err = parseAll(int(first&^areTranslations), MaxTranslations, TranslationSize, b, parseUsual)
	case first&arePorts == 0 && first&areSticky != 0:
		s.NATs, err = parseAll(int(first&^areSticky), MaxTranslations, TranslationSize, b, parseSticky)
	case first&arePorts != 0:
		s.Ports, err = parseAll(int(first&^arePorts), MaxPorts, portIDSize, b, parsePortID)
	default:
		s.Conns, err = parseAll(int(first), MaxKeys, KeySize, b, ParseKey)
	}
	if err != nil {
		return State{}, err
	}
	shareDevices(s.Conns, func(k *flow.ConnKey) *string { return &k.Device })
	shareDevices(s.NATs, func(e *flow.NATEntry) *string { return &e.Device })
	shareDevices(s.Ends, func(e *End) *string { return &e.Device })
	return s, nil
}

// shareDevices makes the records of one packet share one string.
func shareDevices[R any](records []R, device func(*R) *string) {
	for i := 1; i < len(records); i++ {
		if this, before := device(&records[i]), device(&records[i-1]); *this == *before {
			*this = *before
		}
	}
}

// parseAll reads n records of size bytes, which are all of b.
func parseAll[R any](n, max, size int, b []byte, parse func([]byte) (R, error)) ([]R, error) {
	if n == 0 || n > max || len(b) != n*size {
		return nil, fmt.Errorf("state message with %d bytes of records says it holds %d of %d bytes", len(b), n, size)
	}
	all := make([]R, 0, n)
	for ; len(b) > 0; b = b[size:] {
		r, err := parse(b[:size])
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

func parseUsual(b []byte) (flow.NATEntry, error) { return parseOf(b, false) }

func parseSticky(b []byte) (flow.NATEntry, error) { return parseOf(b, true) }

// parseOf reads a translation that has to be the member for a client, or else must not be one.
func parseOf(b []byte, sticky bool) (flow.NATEntry, error) {
	e, err := ParseTranslation(b)
	if err == nil && sticky != (e.Kind == flow.ForwardSticky) {
		return e, fmt.Errorf("translation from %s to %s is in a message of others", e.Src, e.Dst)
	}
	return e, err
}

// parseEnd reads the EndSize bytes of an end.
func parseEnd(b []byte) (End, error) {
	n, err := parseUsual(b[:TranslationSize])
	if err != nil {
		return End{}, err
	}
	e := End{n, Ends(b[TranslationSize]), time.Duration(b[TranslationSize+1]) * time.Second}
	if e.Ends > Anew {
		return End{}, fmt.Errorf("end of the connection from %s to %s with unknown signs %#x", n.Src, n.Dst, b[TranslationSize])
	}
	return e, nil
}

func appendEnd(b []byte, e *End) ([]byte, error) {
	if e.Kind == flow.ForwardSticky {
		return b, fmt.Errorf("end of the member for client %s: it has none", e.Src)
	}
	b, err := AppendTranslation(b, e.NATEntry)
	return append(b, byte(e.Ends), byte(min(e.Idle/time.Second, 255))), err
}

func parsePortID(b []byte) (string, error) { return uuid.UUID(b).String(), nil }

// AppendKey appends the KeySize bytes of a key.
func AppendKey(b []byte, k flow.ConnKey) ([]byte, error) {
	if k.Ingress {
		return appendHeaders(b, flagIngress, &k)
	}
	return appendHeaders(b, 0, &k)
}

func appendHeaders(b []byte, flags byte, k *flow.ConnKey) ([]byte, error) {
	device, err := uuid.Parse(k.Device)
	if err != nil {
		return b, fmt.Errorf("connection of device %q: the id is not a UUID", k.Device)
	}
	if k.Src.Is4() != k.Dst.Is4() || !k.Src.IsValid() || !k.Dst.IsValid() {
		return b, fmt.Errorf("connection from %s to %s: not of one family", k.Src, k.Dst)
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

// AppendTranslation appends the TranslationSize bytes of a translation of a Forward kind.
func AppendTranslation(b []byte, e flow.NATEntry) ([]byte, error) {
	if !e.IsForward() {
		return b, fmt.Errorf("translation from %s to %s: it is not of a connection's first direction", e.Src, e.Dst)
	}
	if !e.Addr.IsValid() || e.Addr.Is4() != e.Src.Is4() {
		return b, fmt.Errorf("translation from %s to %s: %s is not of their family", e.Src, e.Dst, e.Addr)
	}
	var flags byte
	switch e.Kind {
	case flow.ForwardDNAT:
		flags = flagDNAT
	case flow.ForwardSticky:
		if e.SrcPort != 0 || e.Life == 0 {
			return b, fmt.Errorf("member for client %s: it has a port, or no life", e.Src)
		}
		flags, e.SrcPort = flagSticky, e.Life
	}
	k := flow.ConnKey{Src: e.Src, Dst: e.Dst, SrcPort: e.SrcPort, DstPort: e.DstPort, Proto: e.Proto, Device: e.Device}
	b, err := appendHeaders(b, flags, &k)
	if err != nil {
		return b, err
	}
	return appendAddr(binary.BigEndian.AppendUint16(b, e.Port), e.Addr), nil
}

// ParseKey reads the KeySize bytes of a key.
func ParseKey(b []byte) (flow.ConnKey, error) {
	if len(b) != KeySize {
		return flow.ConnKey{}, fmt.Errorf("connection of %d bytes: want %d", len(b), KeySize)
	}
	return parseHeaders(b, b[0])
}

// parseHeaders reads a key, of which the flags are given.
func parseHeaders(b []byte, flags byte) (flow.ConnKey, error) {
	if flags&^(flagIPv6|flagIngress) != 0 {
		return flow.ConnKey{}, fmt.Errorf("connection with unknown flags %#x", b[0])
	}
	k := flow.ConnKey{Ingress: flags&flagIngress != 0, Proto: b[1], SrcPort: binary.BigEndian.Uint16(b[2:]), DstPort: binary.BigEndian.Uint16(b[4:]),
		Device: uuid.UUID(b[38:54]).String()}
	var ok [2]bool
	k.Src, ok[0] = parseAddr(b[6:22], b[0]&flagIPv6 != 0)
	k.Dst, ok[1] = parseAddr(b[22:38], b[0]&flagIPv6 != 0)
	if !ok[0] || !ok[1] {
		return flow.ConnKey{}, fmt.Errorf("connection from %s to %s: something behind the addresses", k.Src, k.Dst)
	}
	return k, nil
}

// parseAddr reads the 16 bytes of an address; not ok when there is something behind one of IPv4.
func parseAddr(b []byte, v6 bool) (a netip.Addr, ok bool) {
	if v6 {
		return netip.AddrFrom16([16]byte(b)), true
	}
	return netip.AddrFrom4([4]byte(b)), [12]byte(b[4:]) == [12]byte{}
}

// ParseTranslation reads the TranslationSize bytes of a translation.
func ParseTranslation(b []byte) (e flow.NATEntry, err error) {
	if len(b) != TranslationSize {
		return e, fmt.Errorf("translation of %d bytes: want %d", len(b), TranslationSize)
	}
	isSticky := b[0]&(flagSticky|flagDNAT) == flagSticky
	flags := b[0]
	if isSticky {
		flags &^= flagSticky
	}
	k, err := parseHeaders(b[:KeySize], flags)
	if err != nil {
		return e, fmt.Errorf("translation: %w", err)
	}
	e.NATKey = flow.NATKey{Kind: flow.ForwardSNAT, Src: k.Src, Dst: k.Dst, SrcPort: k.SrcPort, DstPort: k.DstPort, Proto: k.Proto, Device: k.Device}
	if b[0]&flagDNAT != 0 {
		e.Kind = flow.ForwardDNAT
	}
	e.Port = binary.BigEndian.Uint16(b[54:])
	var ok bool
	if e.Addr, ok = parseAddr(b[56:72], b[0]&flagIPv6 != 0); !ok {
		return flow.NATEntry{}, fmt.Errorf("translation from %s to %s: something behind the translated address", k.Src, k.Dst)
	}
	if isSticky {
		e.Kind, e.Life, e.SrcPort = flow.ForwardSticky, e.SrcPort, 0
		if e.Life == 0 {
			return flow.NATEntry{}, fmt.Errorf("member for client %s: it has no life", k.Src)
		}
		return e, nil
	}
	if isICMP(e.Proto) && e.SrcPort != e.DstPort {
		return flow.NATEntry{}, fmt.Errorf("translation from %s to %s: two ids of one echo", k.Src, k.Dst)
	}
	return e, nil
}
