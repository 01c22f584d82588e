package octaviav2

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"heddle/internal/neutron"
)

// maxText255 is the length of most texts, characters.
const maxText255 = 255

// text takes a string of at most max characters.
func text(most int) parser {
	return func(_ *body, raw json.RawMessage) (any, error) {
		s, err := str(raw)
		if err != nil {
			return nil, err
		}
		if utf8.RuneCountInString(s) > most {
			return nil, complaint(fmt.Sprintf("Value should have a maximum character requirement of %d", most))
		}
		return s, nil
	}
}

func str(raw json.RawMessage) (string, error) {
	var s *string
	if json.Unmarshal(raw, &s) != nil || s == nil { // null: an element of a list
		return "", complaint("Value should be string")
	}
	return *s, nil
}

// id takes a UUID.
func id(_ *body, raw json.RawMessage) (any, error) {
	s, err := str(raw)
	if err != nil {
		return nil, complaint("Value should be UUID format")
	}
	u, err := uuid.Parse(s)
	if err != nil {
		return nil, complaint("Value should be UUID format")
	}
	return u.String(), nil
}

// flag takes true and false, and the words for them.
func flag(_ *body, raw json.RawMessage) (any, error) {
	b, ok := truth(pyText(raw))
	if !ok {
		return nil, outrage("Value not an unambiguous boolean: " + pyText(raw))
	}
	return b, nil
}

// truth reads a word for true or false.
func truth(s string) (value, ok bool) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "true", "t", "yes", "y", "on", "1":
		return true, true
	case "false", "f", "no", "n", "off", "0":
		return false, true
	}
	return false, false
}

// integer takes a whole number within bounds.
func integer(least, most int) parser {
	return func(_ *body, raw json.RawMessage) (any, error) {
		s := strings.TrimSpace(pyText(raw))
		n, err := strconv.Atoi(s)
		if err != nil {
			f, ferr := strconv.ParseFloat(s, 64)
			if ferr != nil || raw[0] == '"' || math.Abs(f) > 1<<53 {
				return nil, outrage("invalid literal for int() with base 10: " + neutron.PythonString(pyText(raw)))
			}
			if n = int(f); f != math.Trunc(f) {
				return nil, complaint("Value should be integer")
			}
		}
		switch {
		case n < least:
			return nil, complaint(fmt.Sprintf("Value should be greater or equal to %d", least))
		case n > most:
			return nil, complaint(fmt.Sprintf("Value should be lower or equal to %d", most))
		}
		return n, nil
	}
}

// oneOf takes some words.
func oneOf(words ...string) parser {
	return func(_ *body, raw json.RawMessage) (any, error) {
		s, err := str(raw)
		if err != nil || !slices.Contains(words, s) {
			return nil, complaint("Value should be one of: " + strings.Join(words, ", "))
		}
		return s, nil
	}
}

// address takes an IP address.
func address(_ *body, raw json.RawMessage) (any, error) {
	s, err := str(raw)
	if err != nil {
		return nil, complaint("Value should be IPv4 or IPv6 format")
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return nil, complaint("Value should be IPv4 or IPv6 format")
	}
	return a.Unmap(), nil
}

// prefixes takes a list of prefixes, and clears their host bits.
func prefixes(_ *body, raw json.RawMessage) (any, error) {
	items, err := texts(raw)
	if err != nil {
		return nil, err
	}
	all := []netip.Prefix{}
	for _, s := range items {
		p, err := netip.ParsePrefix(s)
		if a, aerr := netip.ParseAddr(s); err != nil && aerr == nil && a.Zone() == "" {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return nil, complaint("Value should be IPv4 or IPv6 CIDR format")
		}
		all = append(all, p.Masked())
	}
	if len(all) > neutron.MaxList {
		return nil, complaint(fmt.Sprintf("Value should have at most %d entries", neutron.MaxList))
	}
	return all, nil
}

// elements splits a list.
func elements(raw json.RawMessage) ([]json.RawMessage, error) {
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		return nil, outrage("Value not a valid list: " + pyText(raw))
	}
	return items, nil
}

func texts(raw json.RawMessage) ([]string, error) {
	items, err := elements(raw)
	if err != nil {
		return nil, err
	}
	all := make([]string, len(items))
	for i, item := range items {
		if all[i], err = str(item); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// tags takes a list of different texts.
func tags(_ *body, raw json.RawMessage) (any, error) {
	all, err := texts(raw)
	if err != nil {
		return nil, err
	}
	for i, s := range all {
		if utf8.RuneCountInString(s) > maxText255 {
			return nil, complaint(fmt.Sprintf("Value should have a maximum character requirement of %d", maxText255))
		}
		if slices.Contains(all[:i], s) {
			return nil, complaint("Value should have no tag twice")
		}
	}
	if len(all) > neutron.MaxList {
		return nil, complaint(fmt.Sprintf("Value should have at most %d tags", neutron.MaxList))
	}
	return all, nil
}

// textList takes a list of texts.
func textList(_ *body, raw json.RawMessage) (any, error) { return texts(raw) }

// anyList takes a list.
func anyList(_ *body, raw json.RawMessage) (any, error) {
	items, err := elements(raw)
	if err != nil {
		return nil, err
	}
	return make([]any, len(items)), nil
}

// dict takes an object of anything.
func dict(_ *body, raw json.RawMessage) (any, error) {
	var m map[string]any
	if json.Unmarshal(raw, &m) != nil {
		return nil, outrage("Value not a valid dict: " + pyText(raw))
	}
	return m, nil
}

// pattern takes texts that match an expression; shown is Octavia's.
func pattern(expression, shown string) parser {
	re := regexp.MustCompile(expression)
	return func(_ *body, raw json.RawMessage) (any, error) {
		s, err := str(raw)
		if err != nil {
			return nil, err
		}
		if !re.MatchString(s) {
			return nil, complaint("Value should match the pattern " + shown)
		}
		return s, nil
	}
}

// expectedCodes takes codes of HTTP: 200, 200,202 or 200-204.
func expectedCodes(b *body, raw json.RawMessage) (any, error) {
	const expression = `^(\d{3}(\s*,\s*\d{3})*)$|^(\d{3}-\d{3})$`
	codes, err := pattern(expression, expression)(b, raw)
	if err == nil && neutron.FallingCodes(codes.(string)) {
		return nil, complaint("Value should be a range that does not end below its first code")
	}
	return codes, err
}

// urlPath takes the path of a URL.
func urlPath(_ *body, raw json.RawMessage) (any, error) {
	s, err := str(raw)
	if err != nil {
		return nil, err
	}
	control := func(r rune) bool { return r <= ' ' || r == 0x7f || r == '"' || r == '\\' }
	if !strings.HasPrefix(s, "/") || strings.ContainsFunc(s, control) || utf8.RuneCountInString(s) > maxText255 {
		return nil, complaint("Value must be a valid URL Path string")
	}
	return s, nil
}

// httpVersion takes 1.0 and 1.1, as numbers or texts.
func httpVersion(_ *body, raw json.RawMessage) (any, error) {
	switch f, err := strconv.ParseFloat(pyText(raw), 64); {
	case err == nil && f == 1.0:
		return "1.0", nil
	case err == nil && f == 1.1:
		return "1.1", nil
	}
	return nil, complaint("Value should be one of: 1.0, 1.1")
}

// persistenceTable has the attributes of session persistence.
var persistenceTable = []*attribute{
	{name: "type", create: true, update: true, mandatory: true, def: none{}, parse: oneOf(neutron.PersistSourceIP, neutron.PersistAppCookie, neutron.PersistHTTPCookie)},
	{name: "cookie_name", create: true, update: true, def: none{}, parse: text(maxText255)},
	{name: "persistence_timeout", create: true, update: true, def: none{}, parse: integer(0, math.MaxInt32)},
	{name: "persistence_granularity", create: true, update: true, def: none{}, parse: granularity},
}

// persistence takes a pool's session persistence.
func persistence(b *body, raw json.RawMessage) (any, error) {
	if m, ok := members(raw); ok && len(m) == 0 && b.op == update {
		return nil, neutron.LBInvalid("Invalid session_persistence provided.")
	}
	v, err := (&body{op: create, arg: b.arg, raw: b.raw, c: b.c}).object(persistenceTable, "session_persistence", raw)
	if err != nil {
		return nil, err
	}
	s := &neutron.SessionPersistence{Type: v.Text("type"), CookieName: v.Text("cookie_name"), Timeout: v.Number("persistence_timeout")}
	s.Granularity, _ = v["persistence_granularity"].(netip.Addr)
	return s, nil
}

// granularity takes a netmask.
func granularity(b *body, raw json.RawMessage) (any, error) {
	a, err := address(b, raw)
	if err != nil {
		return nil, err
	}
	if _, ok := neutron.GranularityBits(a.(netip.Addr)); !ok {
		return nil, complaint("Value should be a netmask of IPv4")
	}
	return a, nil
}
