package packet

import (
	"encoding/hex"
	"fmt"
	"strings"
)

// MAC is a 48-bit Ethernet address. Its text form is six lower-case hex pairs
// joined by colons (midonet-topology §8).
type MAC [6]byte

// Broadcast is ff:ff:ff:ff:ff:ff.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// ParseMAC reads six hex pairs joined by colons or dashes, in either case.
func ParseMAC(s string) (MAC, error) {
	var m MAC
	if len(s) != 17 {
		return m, fmt.Errorf("%q is not a MAC address: want six hex pairs like fa:16:3e:00:00:01", s)
	}
	for i := range m {
		if i > 0 && s[i*3-1] != ':' && s[i*3-1] != '-' {
			return MAC{}, fmt.Errorf("%q is not a MAC address: want six hex pairs like fa:16:3e:00:00:01", s)
		}
		if _, err := hex.Decode(m[i:i+1], []byte(strings.ToLower(s[i*3:i*3+2]))); err != nil {
			return MAC{}, fmt.Errorf("%q is not a MAC address: want six hex pairs like fa:16:3e:00:00:01", s)
		}
	}
	return m, nil
}

// String is the canonical text form.
func (m MAC) String() string {
	const digits = "0123456789abcdef"
	b := make([]byte, 0, 17)
	for i, x := range m {
		if i > 0 {
			b = append(b, ':')
		}
		b = append(b, digits[x>>4], digits[x&15])
	}
	return string(b)
}

// IsMulticast says whether the group bit is set; the broadcast address is multicast too.
func (m MAC) IsMulticast() bool { return m[0]&1 == 1 }

// IsZero says whether all bits are zero.
func (m MAC) IsZero() bool { return m == MAC{} }

// MarshalText implements encoding.TextMarshaler.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (m *MAC) UnmarshalText(b []byte) error {
	v, err := ParseMAC(string(b))
	if err == nil {
		*m = v
	}
	return err
}
