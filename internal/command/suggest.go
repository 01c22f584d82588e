package command

import (
	"slices"
	"strings"
)

// farthest is the number of typing mistakes up to which a word is suggested for another one.
const farthest = 2

// meanings lists words of OpenStack's clients, and common ones, with those that Heddle has instead.
var meanings = map[string][]string{
	"ls": {"list"}, "rm": {"delete", "remove"}, "remove": {"delete"}, "delete": {"remove"}, "create": {"add"}, "add": {"create"}, "update": {"set"}, "get": {"show"},
	"floatingip": {"fip"}, "namespace": {"netns"}, "cidr": {"range"}, "subnet-range": {"range"}, "allocation-pool": {"pool"}, "dns-nameserver": {"dns"},
	"fixed-ip": {"ip"}, "mac-address": {"mac"}, "security-group": {"sg"}, "remote-ip": {"remote"}, "dst-port": {"port"},
	"provider-network-type": {"type"}, "provider-physical-network": {"physical-network"}, "provider-segment": {"segment"},
}

// DidYouMean returns the end of an error about an unknown word: the known words that are spelled
// alike, begin with it or stand for it, after a prefix; "" if there are none.
func DidYouMean(prefix, word string, known []string) string {
	var alike []string
	for _, k := range known {
		if distance(word, k) <= min(farthest, len(word)/2) || strings.HasPrefix(k, word) && word != "" || slices.Contains(meanings[word], k) {
			alike = append(alike, prefix+k)
		}
	}
	if len(alike) == 0 {
		return ""
	}
	slices.Sort(alike)
	return ": did you mean " + strings.Join(alike, " or ") + "?"
}

// distance returns the least number of letters to insert, delete, replace or swap with the next one
// that turns a into b (optimal string alignment).
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
