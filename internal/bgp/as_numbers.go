package bgp

import (
	"maps"
	"strings"

	"heddle/calico"
	"heddle/internal/bgp/plan"
)

// asNumbers holds the last readable value of each key with an AS number. It stays in use while the
// key has another: without one, the host would leave its AS and tear down all sessions.
type asNumbers map[string][]byte

// settle replaces the AS numbers in entries that are unreadable, and returns them as problems. One
// that was never readable stays as it is.
func (n asNumbers) settle(entries []plan.Entry) (problems []plan.Problem) {
	seen := map[string]bool{}
	for i, e := range entries {
		key, ok := calico.ParseKey(e.Path)
		if !ok || !strings.HasSuffix(e.Path, "/as_num") {
			continue
		}
		seen[e.Path] = true
		_, err := calico.Decode(key, e.Value)
		last, known := n[e.Path]
		switch {
		case err == nil:
			n[e.Path] = e.Value
		case known:
			entries[i].Value = last
			problems = append(problems, plan.Problem{Key: e.Path, Reason: err.Error() + "; " + string(last) + " stays in use"})
		}
	}
	maps.DeleteFunc(n, func(path string, _ []byte) bool { return !seen[path] })
	return problems
}
