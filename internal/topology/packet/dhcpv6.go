package packet

import (
	"encoding/binary"
	"encoding/hex"
	"iter"
	"net/netip"
	"slices"
	"strconv"
)

// Ports of DHCPv6 (RFC 8415 §7.2).
const (
	DHCPv6ClientPort uint16 = 546
	DHCPv6ServerPort uint16 = 547
)

// DHCPv6 message types (RFC 8415 §7.3).
const (
	DHCPv6Solicit uint8 = iota + 1
	DHCPv6Advertise
	DHCPv6Request
	DHCPv6Confirm
	DHCPv6Renew
	DHCPv6Rebind
	DHCPv6Reply
	DHCPv6Release
	DHCPv6Decline
	DHCPv6Reconfigure
	DHCPv6InformationRequest
	DHCPv6RelayForward
	DHCPv6RelayReply
)

// DHCPv6TypeName returns the name of a message type, its number for one that has none.
func DHCPv6TypeName(typ uint8) string {
	names := [...]string{"none", "solicit", "advertise", "request", "confirm", "renew", "rebind", "reply", "release", "decline",
		"reconfigure", "information-request", "relay-forward", "relay-reply"}
	if int(typ) < len(names) {
		return names[typ]
	}
	return strconv.Itoa(int(typ))
}

// DHCPv6 options that Heddle reads or writes by itself (RFC 8415 §21, RFC 3646, RFC 5908).
const (
	Opt6ClientID     uint16 = 1
	Opt6ServerID     uint16 = 2
	Opt6IANA         uint16 = 3
	Opt6IATA         uint16 = 4
	Opt6IAAddr       uint16 = 5
	Opt6OptionList   uint16 = 6
	Opt6Preference   uint16 = 7
	Opt6ElapsedTime  uint16 = 8
	Opt6RelayMessage uint16 = 9
	Opt6Auth         uint16 = 11
	Opt6StatusCode   uint16 = 13
	Opt6RapidCommit  uint16 = 14
	Opt6InterfaceID  uint16 = 18
	Opt6ReconfMsg    uint16 = 19
	Opt6ReconfAccept uint16 = 20
	Opt6DNSServer    uint16 = 23
	Opt6DomainSearch uint16 = 24
	Opt6IAPD         uint16 = 25
	Opt6IAPrefix     uint16 = 26
	Opt6NTPServer    uint16 = 56
)

// DHCPv6 status codes (RFC 8415 §21.13).
const (
	Status6Success       uint16 = 0
	Status6NoAddrsAvail  uint16 = 2
	Status6NotOnLink     uint16 = 4
	Status6NoPrefixAvail uint16 = 6
)

// DHCPv6Option is one option of a DHCPv6 message.
type DHCPv6Option struct {
	Code  uint16
	Value []byte // at most 65,535 bytes
}

// DHCPv6 is a message between a DHCPv6 client and a server (RFC 8415 §8).
type DHCPv6 struct {
	Type    uint8
	XID     uint32 // 24 bits
	Options []DHCPv6Option
}

// ParseDHCPv6 reads a message from a UDP payload. Those between relays and servers are an error.
func ParseDHCPv6(b []byte) (*DHCPv6, error) {
	if len(b) < 4 {
		return nil, &Malformed{"DHCPv6", "shorter than its header"}
	}
	if b[0] == DHCPv6RelayForward || b[0] == DHCPv6RelayReply {
		return nil, &Malformed{"DHCPv6", "a relay's message"}
	}
	options, err := parseOptions6(b[4:])
	if err != nil {
		return nil, err
	}
	return &DHCPv6{Type: b[0], XID: binary.BigEndian.Uint32(b) & 0xffffff, Options: options}, nil
}

func parseOptions6(b []byte) (options []DHCPv6Option, err error) {
	for len(b) > 0 {
		if len(b) < 4 || len(b) < 4+int(binary.BigEndian.Uint16(b[2:])) {
			return nil, &Malformed{"DHCPv6", "option cut short"}
		}
		end := 4 + int(binary.BigEndian.Uint16(b[2:]))
		options = append(options, DHCPv6Option{binary.BigEndian.Uint16(b), b[4:end:end]})
		b = b[end:]
	}
	return options, nil
}

// Append adds the message to b.
func (d *DHCPv6) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(d.Type)<<24|d.XID&0xffffff)
	for _, o := range d.Options {
		b = o.append(b)
	}
	return b
}

func (o DHCPv6Option) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, o.Code)
	b = binary.BigEndian.AppendUint16(b, uint16(len(o.Value)))
	return append(b, o.Value...)
}

// Len returns the length of the message in bytes.
func (d *DHCPv6) Len() int {
	n := 4
	for _, o := range d.Options {
		n += 4 + len(o.Value)
	}
	return n
}

// Option returns the value of the first option with that code.
func (d *DHCPv6) Option(code uint16) ([]byte, bool) {
	for v := range d.All(code) {
		return v, true
	}
	return nil, false
}

// All iterates over the values of the options with that code.
func (d *DHCPv6) All(code uint16) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, o := range d.Options {
			if o.Code == code && !yield(o.Value) {
				return
			}
		}
	}
}

// Add appends an option.
func (d *DHCPv6) Add(code uint16, value []byte) {
	d.Options = append(d.Options, DHCPv6Option{code, value})
}

// Set gives the option its value, in the place of an earlier one or else at the end.
func (d *DHCPv6) Set(code uint16, value []byte) {
	i := slices.IndexFunc(d.Options, func(o DHCPv6Option) bool { return o.Code == code })
	if i < 0 {
		d.Add(code, value)
		return
	}
	d.Options[i].Value = value
}

// IANA is an identity association for addresses (RFC 8415 §21.4). Times are in seconds.
type IANA struct {
	IAID, T1, T2 uint32
	Addrs        []IAAddr
	Status       []byte // value of its status code option, as by [StatusValue]; nil for none
}

// IAAddr is an address of an identity association (RFC 8415 §21.6).
type IAAddr struct {
	Addr             netip.Addr
	Preferred, Valid uint32
}

// ParseIANA reads the value of an option [Opt6IANA]. Options inside other than addresses do not
// count, but for the status.
func ParseIANA(v []byte) (*IANA, error) {
	if len(v) < 12 {
		return nil, &Malformed{"DHCPv6", "identity association shorter than its header"}
	}
	ia := &IANA{IAID: binary.BigEndian.Uint32(v), T1: binary.BigEndian.Uint32(v[4:]), T2: binary.BigEndian.Uint32(v[8:])}
	options, err := parseOptions6(v[12:])
	if err != nil {
		return nil, err
	}
	for _, o := range options {
		switch {
		case o.Code == Opt6StatusCode:
			ia.Status = o.Value
		case o.Code != Opt6IAAddr:
		case len(o.Value) < 24:
			return nil, &Malformed{"DHCPv6", "address option cut short"}
		default:
			ia.Addrs = append(ia.Addrs, IAAddr{Addr: netip.AddrFrom16([16]byte(o.Value)),
				Preferred: binary.BigEndian.Uint32(o.Value[16:]), Valid: binary.BigEndian.Uint32(o.Value[20:])})
		}
	}
	return ia, nil
}

// Value returns the value of an option [Opt6IANA].
func (ia *IANA) Value() []byte {
	b := make([]byte, 0, 12+28*len(ia.Addrs)+4+len(ia.Status))
	for _, n := range []uint32{ia.IAID, ia.T1, ia.T2} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	for _, a := range ia.Addrs {
		ip := a.Addr.As16()
		v := append(make([]byte, 0, 24), ip[:]...)
		v = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(v, a.Preferred), a.Valid)
		b = DHCPv6Option{Opt6IAAddr, v}.append(b)
	}
	if ia.Status != nil {
		b = DHCPv6Option{Opt6StatusCode, ia.Status}.append(b)
	}
	return b
}

// StatusValue returns the value of an option [Opt6StatusCode].
func StatusValue(code uint16, message string) []byte {
	return append(binary.BigEndian.AppendUint16(nil, code), message...)
}

// DUIDUUID returns the DHCP unique identifier that is a UUID (RFC 6355), nil if id is none.
func DUIDUUID(id string) []byte {
	if len(id) != 36 || id[8] != '-' || id[13] != '-' || id[18] != '-' || id[23] != '-' {
		return nil
	}
	b, err := hex.DecodeString(id[:8] + id[9:13] + id[14:18] + id[19:23] + id[24:])
	if err != nil {
		return nil
	}
	return append([]byte{0, 4}, b...)
}
