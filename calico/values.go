package calico

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"heddle/calico/selector"
)

// What names may be.
const (
	wantInterface = "want the name of an interface: 1 to 15 of [A-Za-z0-9_.-], not . or .."
	wantProfile   = "want a profile's name: 1 to 128 of [A-Za-z0-9_./-]"
	wantTag       = "want a tag: one or more of [A-Za-z0-9_.-]"
	wantLabel     = "want a label's name: 1 to 512 of [A-Za-z0-9_./-]"
	wantMAC       = "want a MAC address like 02:00:00:00:00:01"
	wantAddress   = "want an IP address"
	wantCIDR      = "want a CIDR like 192.0.2.0/24 or 2001:db8::/32"
	wantPlain     = "want an IPv4 address in its own form, not in that of IPv6"
	wantUTF8      = "want UTF-8 text"
)

const (
	maxInterface = 15
	maxProfile   = 128
)

func isName(name string, slash bool, longest int) bool {
	for _, c := range []byte(name) {
		if !isLetter(c) && !isDigit(c) && c != '_' && c != '.' && c != '-' && (c != '/' || !slash) {
			return false
		}
	}
	return name != "" && len(name) <= longest
}

// isInterface also refuses . and .. because names become parts of paths below /proc/sys.
func isInterface(name string) bool {
	return isName(name, false, maxInterface) && name != "." && name != ".."
}

func isProfile(name string) bool { return isName(name, true, maxProfile) }

func isTag(name string) bool { return isName(name, false, len(name)) }

// String returns the address in lower case with colons.
func (m MAC) String() string { return string(m.appendTo(nil)) }

func (m MAC) appendTo(text []byte) []byte {
	for i, b := range m {
		if i > 0 {
			text = append(text, ':')
		}
		text = append(text, hexDigits[b>>4], hexDigits[b&15])
	}
	return text
}

// ParseMAC reads six octets of two hex digits each, separated by colons or hyphens.
func ParseMAC(text string) (m MAC, err error) {
	bad := len(text) != 17 || text[2] != ':' && text[2] != '-'
	for i := 0; i < len(m) && !bad; i++ {
		octet, err := strconv.ParseUint(text[3*i:3*i+2], 16, 8)
		m[i] = byte(octet)
		bad = err != nil || i < 5 && text[3*i+2] != text[2]
	}
	if bad {
		return MAC{}, fmt.Errorf("MAC address %q: %s", text, wantMAC)
	}
	return m, nil
}

// address reads a bare address.
func (r *reader) address() netip.Addr {
	if r.peek() == 'n' { // an entry of a list
		r.wrong(wantAddress)
		return netip.Addr{}
	}
	start := r.next()
	a, err := netip.ParseAddr(r.text())
	switch {
	case err != nil || a.Zone() != "":
		r.fail(start, wantAddress)
	case familyOf(a) == 0:
		r.fail(start, wantPlain)
	}
	return a
}

// next returns the start of the next token.
func (r *reader) next() int {
	r.space()
	return r.pos
}

// prefix reads a CIDR. A bare address means the prefix of its host.
func (r *reader) prefix() netip.Prefix {
	start := r.next()
	p, ok := parsePrefix(r.text())
	switch {
	case !ok:
		r.fail(start, wantCIDR)
	case familyOf(p.Addr()) == 0:
		r.fail(start, wantPlain)
	}
	return p
}

func parsePrefix(text string) (netip.Prefix, bool) {
	if strings.Contains(text, "/") {
		p, err := netip.ParsePrefix(text)
		return p, err == nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a, a.BitLen()), true
}

// maskedPrefix reads a CIDR with its length, without bits beyond it.
func (r *reader) maskedPrefix() netip.Prefix {
	start := r.next()
	text := r.text()
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		r.fail(start, wantCIDR)
	case familyOf(p.Addr()) == 0:
		r.fail(start, wantPlain)
	case p != p.Masked():
		r.fail(start, "has bits beyond its length; want "+p.Masked().String())
	}
	return p
}

// checkPrefix refuses a CIDR that is missing or not masked.
func checkPrefix(field string, p netip.Prefix) *Error {
	switch {
	case !p.IsValid():
		return refuse(field, nil, "is missing")
	case familyOf(p.Addr()) == 0:
		return refuse(field, p, wantPlain)
	case p != p.Masked():
		return refuse(field, p, "has bits beyond its length; want %s", p.Masked())
	}
	return nil
}

// stringMap reads an object of strings; nil for an empty one.
func (r *reader) stringMap() (m map[string]string) {
	r.stringMapInto(&m)
	return m
}

// stringMapInto reads an object of strings into a map, making it if there is any member.
func (r *reader) stringMapInto(m *map[string]string) {
	r.object(func(name string) {
		value := strings.Clone(r.text())
		if *m == nil {
			*m = map[string]string{}
		}
		(*m)[strings.Clone(name)] = value
	})
}

// selector reads a selector into its canonical form.
func (r *reader) selector() string {
	start := r.next()
	text := r.text()
	if r.failed != nil {
		return ""
	}
	s, err := selector.Parse(text, r.options...)
	if err != nil {
		r.fail(start, err.Error())
		return ""
	}
	return s.String()
}

// order reads a number; "default" is an infinite one.
func (r *reader) order() *float64 {
	start := r.next()
	if r.peek() == '"' {
		if r.quoted() != "default" {
			r.fail(start, `want a number, "default" or null`)
		}
		return nil
	}
	f := r.number()
	if r.failed != nil {
		return nil
	}
	return &f
}

// decimal reads an unsigned number that has digits alone.
func decimal(text string, bits int) (uint64, bool) {
	for _, c := range []byte(text) {
		if !isDigit(c) {
			return 0, false
		}
	}
	n, err := strconv.ParseUint(text, 10, bits)
	return n, err == nil
}

// familyOf returns 4 or 6, or 0 for an IPv4-mapped address (::ffff:192.0.2.1): the kernel would
// treat it as the IPv4 address.
func familyOf(a netip.Addr) int {
	switch {
	case a.Is4():
		return 4
	case a.Is4In6():
		return 0
	}
	return 6
}

// checkFamily refuses an address that is missing, has a zone or is of the other family.
func checkFamily(field string, a netip.Addr, family int) *Error {
	switch {
	case !a.IsValid():
		return refuse(field, nil, "is missing")
	case familyOf(a) != family || a.Zone() != "":
		return refuse(field, a, "want an IPv%d address", family)
	}
	return nil
}

func checkFamilies(field string, list []netip.Addr, family int) *Error {
	for i, a := range list {
		if err := checkFamily(index(field, i), a, family); err != nil {
			return err
		}
	}
	return nil
}

func checkProfiles(list []string) *Error {
	for i, id := range list {
		if !isProfile(id) {
			return refuse(index("profile_ids", i), id, wantProfile)
		}
	}
	return nil
}

func checkLabels(field string, labels map[string]string) *Error {
	var err *Error
	for name, value := range labels {
		switch {
		case !selector.ValidLabel(name):
			err = lesser(err, refuse(entry(field, name), nil, wantLabel))
		case !utf8.ValidString(value):
			err = lesser(err, refuse(entry(field, name), value, wantUTF8))
		}
	}
	return err
}

// checkMap refuses text that is none.
func checkMap(field string, m map[string]string) *Error {
	var err *Error
	for name, value := range m {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			err = lesser(err, refuse(entry(field, name), value, wantUTF8))
		}
	}
	return err
}

// lesser returns the error of the lesser field, which makes errors deterministic.
func lesser(a, b *Error) *Error {
	if a == nil || b.Field < a.Field {
		return b
	}
	return a
}

func checkTexts(field string, list []string) *Error {
	for i, s := range list {
		if !utf8.ValidString(s) {
			return refuse(index(field, i), s, wantUTF8)
		}
	}
	return nil
}

func checkText(field, text string) *Error {
	if !utf8.ValidString(text) {
		return refuse(field, text, wantUTF8)
	}
	return nil
}

// first returns the first of some errors.
func first(errs ...*Error) *Error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// sortedPrefixes returns the keys of a map in order of address and length.
func sortedPrefixes[V any](m map[netip.Prefix]V) []netip.Prefix {
	return slices.SortedFunc(maps.Keys(m), netip.Prefix.Compare)
}
