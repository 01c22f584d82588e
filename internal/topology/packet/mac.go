package packet

import (
	"fmt"
	"strconv"
)

// MAC is an Ethernet address. Its text is six lower-case hex pairs joined by colons.
type MAC [6]byte

// Broadcast is ff:ff:ff:ff:ff:ff.
var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// ParseMAC reads six hex pairs joined by colons or dashes, in either case.
func ParseMAC(s string) (m MAC, err error) {
	ok := len(s) == 17
	for i := 0; ok && i < len(m); i++ {
		n, err := strconv.ParseUint(s[3*i:3*i+2], 16, 8)
		ok = err == nil && (i == 0 || s[3*i-1] == ':' || s[3*i-1] == '-')
		m[i] = byte(n)
	}
	if !ok {
		return MAC{}, fmt.Errorf("%q is not a MAC address: want six hex pairs like fa:16:3e:00:00:01", s)
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

// IsMulticast reports whether the group bit is set, as in the broadcast address.
func (m MAC) IsMulticast() bool { return m[0]&1 == 1 }

// IsZero reports whether all bits are zero.
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
