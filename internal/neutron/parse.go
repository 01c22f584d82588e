package neutron

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"heddle/internal/topology/packet"
)

// A parser turns a decoded JSON value (nil, bool, string, json.Number, []any, map[string]any) into
// the attribute's normalised value. Its error is a reason, for which the caller names the
// attribute, or an *Error: Neutron's validators give the first, its converters the second.
type parser func(v any) (any, error)

// reason refuses a value: "Invalid input for <attribute>. Reason: <reason>.".
type reason string

func (r reason) Error() string { return string(r) }

func reasonf(format string, args ...any) error { return reason(fmt.Sprintf(format, args...)) }

// invalidInput returns the error of Neutron's class of that name.
func invalidInput(format string, args ...any) *Error {
	return Errorf(Invalid, "InvalidInput", "Invalid input for operation: %s.", fmt.Sprintf(format, args...))
}

// badRequest returns the error of a request that cannot be read.
func badRequest(format string, args ...any) *Error {
	return Errorf(Invalid, "HTTPBadRequest", format, args...)
}

// text takes a string of at most max characters; max 0 is no limit.
func text(max int) parser {
	return func(v any) (any, error) {
		s, ok := v.(string)
		if !ok {
			return nil, reasonf("'%s' is not a valid string", pyText(v))
		}
		if max > 0 && utf8.RuneCountInString(s) > max {
			return nil, reasonf("'%s' exceeds maximum length of %d", s, max)
		}
		return s, nil
	}
}

// fewer takes a list of at most MaxList entries, and looks at none of a longer one.
func fewer(p parser) parser {
	return func(v any) (any, error) {
		if list, ok := v.([]any); ok && len(list) > MaxList {
			return nil, tooMany(len(list))
		}
		return p(v)
	}
}

// orNull lets null through.
func orNull(p parser) parser {
	return func(v any) (any, error) {
		if v == nil {
			return nil, nil
		}
		return p(v)
	}
}

// nullAs reads null as another value.
func nullAs(instead any, p parser) parser {
	return func(v any) (any, error) {
		if v == nil {
			v = instead
		}
		return p(v)
	}
}

// flag takes what Neutron's converter does: true, false, 0, 1 and their names in any case.
func flag(v any) (any, error) {
	b, ok := parseBool(pyText(v))
	if !ok {
		return nil, invalidInput("'%s' cannot be converted to boolean", pyText(v))
	}
	return b, nil
}

func parseBool(s string) (value, ok bool) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "1", "t", "true", "on", "y", "yes":
		return true, true
	case "0", "f", "false", "off", "n", "no":
		return false, true
	}
	return false, false
}

// toInt reads whole numbers, strings of digits, and cuts fractions off, as Python's int().
func toInt(v any) (int, bool) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case string:
		n, err := strconv.Atoi(strings.TrimSpace(v))
		return n, err == nil
	case json.Number:
		if n, err := strconv.Atoi(v.String()); err == nil {
			return n, true
		}
		f, err := v.Float64()
		if err != nil || math.Abs(f) > 1<<53 {
			return 0, false
		}
		return int(f), true
	}
	return 0, false
}

// wholeNumber reads whole numbers and strings of digits. Unlike toInt it takes no fractions and no
// booleans.
func wholeNumber(v any) (int, bool) {
	switch v := v.(type) {
	case string:
		return toInt(v)
	case json.Number:
		return toInt(v.String())
	}
	return 0, false
}

// integer takes whole numbers and strings of digits.
func integer(v any) (any, error) {
	n, ok := toInt(v)
	if !ok {
		return nil, invalidInput("'%s' is not an integer", pyText(v))
	}
	return n, nil
}

// nonNegative takes whole numbers from 0.
func nonNegative(v any) (any, error) {
	n, err := integer(v)
	if err != nil {
		return nil, err
	}
	if n.(int) < 0 {
		return nil, reasonf("'%d' should be non-negative", n)
	}
	return n, nil
}

// between takes whole numbers from min to max.
func between(min, max int) parser {
	return func(v any) (any, error) {
		n, err := integer(v)
		if err != nil {
			return nil, err
		}
		return bounded(n.(int), min, max)
	}
}

// wholeBetween is between without fractions and booleans, which Neutron takes for numbers.
func wholeBetween(min, max int) parser {
	return func(v any) (any, error) {
		n, ok := wholeNumber(v)
		if !ok {
			return nil, reasonf("'%s' is not an integer", pyText(v))
		}
		return bounded(n, min, max)
	}
}

func bounded(n, min, max int) (any, error) {
	switch {
	case n < min:
		return nil, reasonf("'%d' is too small - must be at least '%d'", n, min)
	case n > max:
		return nil, reasonf("'%d' is too large - must be no larger than '%d'", n, max)
	}
	return n, nil
}

// oneOf takes one of the strings.
func oneOf(values ...string) parser {
	return func(v any) (any, error) {
		if s, ok := v.(string); ok && slices.Contains(values, s) {
			return s, nil
		}
		return nil, reasonf("%s is not in valid_values", pyText(v))
	}
}

// oneOfNumbers takes one of the whole numbers.
func oneOfNumbers(values []int) parser {
	return func(v any) (any, error) {
		n, err := integer(v)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(values, n.(int)) {
			return nil, reasonf("%d is not in valid_values", n)
		}
		return n, nil
	}
}

// ipVersion takes 4 and 6.
func ipVersion(v any) (any, error) { return oneOfNumbers([]int{4, 6})(v) }

// uuid takes what Python's uuid.UUID does and gives the canonical form.
func uuid(v any) (any, error) {
	s, _ := v.(string)
	id, ok := parseUUID(s)
	if !ok {
		return nil, reasonf("'%s' is not a valid UUID", pyText(v))
	}
	return id, nil
}

func parseUUID(s string) (string, bool) {
	s = strings.TrimPrefix(strings.TrimPrefix(s, "urn:"), "uuid:")
	s = strings.ToLower(strings.ReplaceAll(strings.Trim(s, "{}"), "-", ""))
	if len(s) != 32 {
		return "", false
	}
	for i := range len(s) {
		if !isHex(s[i]) {
			return "", false
		}
	}
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:], true
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F' }

// uuids takes a list of different UUIDs.
func uuids(v any) (any, error) { return differentTexts(v, uuid) }

// texts takes a list of different strings of at most max characters.
func texts(max int) parser {
	return func(v any) (any, error) { return differentTexts(v, text(max)) }
}

// differentTexts reads a list of different strings, each with p.
func differentTexts(v any, p parser) (any, error) {
	list, err := uniqueList(v)
	if err != nil {
		return nil, err
	}
	out := make([]string, 0, len(list))
	for _, x := range list {
		s, err := p(x)
		if err != nil {
			return nil, err
		}
		out = append(out, s.(string))
	}
	return out, nil
}

// entries reads a list with one for each entry, and refuses equal ones unless kind is "".
func entries[T comparable](v any, notList, kind string, one func(x any) (T, error)) ([]T, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, reasonf(notList, pyText(v))
	}
	out := make([]T, 0, len(list))
	seen := make(map[T]bool, len(list))
	for _, x := range list {
		entry, err := one(x)
		if err != nil {
			return nil, err
		}
		if kind != "" && seen[entry] {
			return nil, reasonf("Duplicate %s '%s'", kind, pyText(x))
		}
		seen[entry] = true
		out = append(out, entry)
	}
	return out, nil
}

// uniqueList returns a list without an item twice.
func uniqueList(v any) ([]any, error) {
	list, ok := v.([]any)
	if !ok {
		return nil, reasonf("'%s' is not a list", pyText(v))
	}
	seen := make(map[string]int, len(list))
	var twice []string
	for _, x := range list {
		k := pyRepr(x)
		if seen[k]++; seen[k] == 2 {
			twice = append(twice, pyText(x))
		}
	}
	if len(twice) > 0 {
		return nil, reasonf("Duplicate items in the list: '%s'", strings.Join(twice, ", "))
	}
	return list, nil
}

// object takes a JSON object with any contents.
func object(v any) (any, error) {
	m, ok := v.(map[string]any)
	if !ok {
		return nil, reasonf("'%s' is not a dictionary", pyText(v))
	}
	return m, nil
}

// maxProfile bounds a binding:profile, in bytes of JSON, as the reference's database does.
const maxProfile = 4095

// bindingProfile takes an object of a bounded size.
func bindingProfile(v any) (any, error) {
	m, err := object(v)
	if err != nil {
		return nil, err
	}
	if text, err := json.Marshal(m); err != nil || len(text) > maxProfile {
		return nil, invalidInput("binding:profile value too large: it may have %d bytes", maxProfile)
	}
	return m, nil
}

// exactKeys returns the reason why v is not an object with just these keys, or nil.
func exactKeys(v any, keys ...string) error {
	m, ok := v.(map[string]any)
	if !ok {
		return reasonf("Invalid input. '%s' must be a dictionary with keys: %s", pyText(v), "["+join(keys, pyQuote)+"]")
	}
	given := make([]string, 0, len(m))
	for k := range m {
		given = append(given, k)
	}
	if len(given) == len(keys) && !slices.ContainsFunc(keys, func(k string) bool { _, ok := m[k]; return !ok }) {
		return nil
	}
	return reasonf("Validation of dictionary's keys failed. Expected keys: %s Provided keys: %s", pySet(keys), pySet(given))
}

// mac takes the usual ways to write a MAC address; neither all zero nor broadcast.
func mac(v any) (any, error) {
	s, _ := v.(string)
	m, ok := parseMAC(s)
	if !ok || m.IsZero() || m == packet.Broadcast {
		return nil, reasonf("'%s' is not a valid MAC address", pyText(v))
	}
	return m, nil
}

// parseMAC reads aa:bb:cc:dd:ee:ff, also with dashes or single digits, aabb.ccdd.eeff,
// aabbccddeeff.
func parseMAC(s string) (packet.MAC, bool) {
	var groups []string
	digits := 2 // of each group, at most; exactly where there are no six groups
	switch {
	case strings.Count(s, ":") == 5:
		groups = strings.Split(s, ":")
	case strings.Count(s, "-") == 5:
		groups = strings.Split(s, "-")
	case len(s) == 14 && strings.Count(s, ".") == 2:
		groups, digits = strings.Split(s, "."), 4
	case len(s) == 12:
		groups, digits = []string{s}, 12
	}
	var hex strings.Builder
	for _, g := range groups {
		if g == "" || len(g) > digits || digits > 2 && len(g) != digits {
			return packet.MAC{}, false
		}
		if len(g) == 1 {
			hex.WriteByte('0')
		}
		hex.WriteString(g)
	}
	n, err := strconv.ParseUint(hex.String(), 16, 48)
	if err != nil || hex.Len() != 12 {
		return packet.MAC{}, false
	}
	return packet.MAC{byte(n >> 40), byte(n >> 32), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, true
}

// address takes an IP address.
func address(v any) (any, error) {
	s, _ := v.(string)
	if a, err := netip.ParseAddr(s); err == nil && a.Zone() == "" {
		return a, mappedReason(netip.PrefixFrom(a, a.BitLen()))
	}
	if a, ok := withoutLeadingZeros(s); ok {
		return nil, reasonf("'%s' is not an accepted IP address, '%s' is recommended", s, a)
	}
	return nil, reasonf("'%s' is not a valid IP address", pyText(v))
}

// mappedReason returns the reason to refuse a prefix of IPv4-mapped IPv6 addresses, which no packet
// has, or nil.
func mappedReason(p netip.Prefix) error {
	if p.Masked().Addr().Is4In6() {
		return reasonf("'%s' is IPv4-mapped IPv6, which no packet has: write it as IPv4", strings.TrimSuffix(p.String(), "/128"))
	}
	return nil
}

// withoutLeadingZeros reads an IPv4 address with leading zeros, which might mean octal.
func withoutLeadingZeros(s string) (netip.Addr, bool) {
	parts := strings.Split(s, ".")
	for i, p := range parts {
		if t := strings.TrimLeft(p, "0"); t != "" {
			parts[i] = t
		} else if p != "" {
			parts[i] = "0"
		}
	}
	a, err := netip.ParseAddr(strings.Join(parts, "."))
	return a, err == nil && a.Is4()
}

// parseCIDR reads an address with a prefix length, a netmask or neither. Host bits stay.
func parseCIDR(s string) (netip.Prefix, bool) {
	addr, bits, slash := strings.Cut(s, "/")
	a, err := netip.ParseAddr(addr)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, false
	}
	if !slash {
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	if mask, err := netip.ParseAddr(bits); err == nil && mask.Is4() && a.Is4() {
		return maskedBy(a, mask)
	}
	p, err := netip.ParsePrefix(s)
	return p, err == nil
}

func maskedBy(a, mask netip.Addr) (netip.Prefix, bool) {
	m := mask.As4()
	n := uint32(m[0])<<24 | uint32(m[1])<<16 | uint32(m[2])<<8 | uint32(m[3])
	ones := 0
	for n&(1<<31) != 0 {
		n <<= 1
		ones++
	}
	return netip.PrefixFrom(a, ones), n == 0
}

// cidr takes a network in CIDR form and clears its host bits.
func cidr(v any) (any, error) {
	p, ok := netip.Prefix{}, false
	if s, isText := v.(string); isText {
		p, ok = parseCIDR(s)
	}
	if !ok {
		return nil, invalidInput("%s is not in a CIDR format", pyText(v))
	}
	return p.Masked(), mappedReason(p)
}

// subnetReason returns the reason why s is not an IP prefix, or nil.
func subnetReason(s string) error {
	p, ok := parseCIDR(s)
	if !ok || strings.ContainsFunc(s, unicode.IsSpace) {
		return reasonf("'%s' is not a valid IP subnet", s)
	}
	return mappedReason(p)
}
