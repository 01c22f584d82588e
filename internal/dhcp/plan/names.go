package plan

import (
	"net/netip"
	"strings"
)

// badName says why a text cannot be the name of a machine; "" when it can. What is no host name (RFC 1123, with the
// underscore that names of machines often have) never reaches a file, so none can bring a line or a field of its own.
func badName(name string) string {
	if len(name) > 253 {
		return "is longer than 253 characters"
	}
	labels := strings.Split(name, ".")
	for _, label := range labels {
		if reason := badLabel(label); reason != "" {
			return reason
		}
	}
	if _, err := netip.ParseAddr(name); err == nil || len(labels) == 1 && isKeyword(name) {
		return "means something else to dnsmasq"
	}
	return ""
}

func badLabel(label string) string {
	if label == "" || len(label) > 63 {
		return "has a part that is not 1 to 63 characters long"
	}
	for i, c := range []byte(label) {
		inner := i > 0 && i < len(label)-1
		if !isLetter(c) && !isDigit(c) && (c != '-' && c != '_' || !inner) {
			return "is no host name"
		}
	}
	return ""
}

// isKeyword tells words that stand for themselves in a host's line: two words, and durations of a lease, a number with or
// without a unit.
func isKeyword(word string) bool {
	if word == "ignore" || word == "infinite" {
		return true
	}
	digits := strings.TrimRight(word, "wWdDhHmMsS")
	return len(digits) > 0 && len(digits) >= len(word)-1 && strings.Trim(digits, "0123456789") == ""
}
