package client

import (
	"cmp"
	"slices"
	"strings"

	"heddle/calico"
)

// prefixesOf returns the prefixes of all keys that match filters, without nested ones.
func prefixesOf(filters []calico.Key) ([]string, error) {
	var all []string
	for _, f := range filters {
		prefixes, err := calico.Prefixes(f)
		if err != nil {
			return nil, err
		}
		all = append(all, prefixes...)
	}
	slices.Sort(all)
	var out []string
	for _, p := range all {
		if len(out) == 0 || !strings.HasPrefix(p, out[len(out)-1]) {
			out = append(out, p)
		}
	}
	return out, nil
}

// commonPrefix returns the longest common prefix.
func commonPrefix(prefixes []string) string {
	common := prefixes[0]
	for _, p := range prefixes[1:] {
		for !strings.HasPrefix(p, common) {
			common = common[:len(common)-1]
		}
	}
	return common
}

// pick returns the key at a path, if it matches one of the filters.
func pick(filters []calico.Key, path string) (calico.Key, bool) {
	key, ok := calico.ParseKey(path)
	if !ok {
		return nil, false
	}
	for _, f := range filters {
		if calico.Matches(f, key) {
			return key, true
		}
	}
	return nil, false
}

func byPath(a, b Entry) int { return cmp.Compare(a.Path, b.Path) }
