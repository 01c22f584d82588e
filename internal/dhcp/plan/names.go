package plan

import (
	"net/netip"
	"strings"
)

// badName returns why a text cannot be the name of a machine, "" if it can. Only host names (RFC
// 1123, and underscores, which names of machines often have) reach a file, so that none can add a
// line or a field.
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

// isKeyword reports whether a word has a meaning of its own in a host's line: two words, and lease
// times, a number with or without a unit.
func isKeyword(word string) bool {
	if word == "ignore" || word == "infinite" {
		return true
	}
	digits := strings.TrimRight(word, "wWdDhHmMsS")
	return len(digits) > 0 && len(digits) >= len(word)-1 && strings.Trim(digits, "0123456789") == ""
}
