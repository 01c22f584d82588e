package metadata

import (
	"maps"
	"slices"
	"strings"
)

// content is the answer to a request.
type content struct {
	contentType string
	body        []byte
}

func text(s string) content { return content{"text/plain; charset=utf-8", []byte(s)} }

// entry is a file or a directory of a metadata tree.
type entry struct {
	content
	sub    map[string]entry // of a directory; nil: a file
	listed string           // in its directory; "" = by its name, and a slash after a directory's
}

func file(s string) entry { return entry{content: text(s)} }

func lines(all []string) entry { return file(strings.Join(all, "\n")) }

func directory(sub map[string]entry) entry { return entry{sub: sub} }

// at returns what a path without slashes at its ends leads to. A directory is the list of its
// entries.
func (e entry) at(rest string) (content, bool) {
	for rest != "" {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		next, ok := e.sub[name]
		if !ok {
			return content{}, false
		}
		e = next
	}
	if e.sub == nil {
		return e.content, true
	}
	return e.list(), true
}

// list returns a directory's entries, one a line and sorted by name.
func (e entry) list() content {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(e.sub)) {
		switch sub := e.sub[name]; {
		case sub.listed != "":
			name = sub.listed
		case sub.sub != nil:
			name += "/"
		}
		names = append(names, name)
	}
	return text(strings.Join(names, "\n"))
}

// lookup returns what a clean absolute path leads to in the machine's metadata.
func (m *Machine) lookup(at string) (content, bool) {
	first, rest, _ := strings.Cut(strings.TrimPrefix(at, "/"), "/")
	switch {
	case first == "":
		return text(strings.Join(append(ec2Versions(), latest), "\n")), true
	case first == "openstack":
		return m.openStack(rest)
	case first == latest || slices.Contains(ec2Versions(), first):
		return m.ec2().at(rest)
	}
	return content{}, false
}

// latest names the newest version of a tree.
const latest = "latest"
