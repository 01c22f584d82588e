// Package sourceline finds the lines of values in YAML and JSON texts, for errors about values that
// were decoded without their positions.
package sourceline

import (
	"fmt"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml/goyaml.v3"
)

// Find returns the line, from 1 on, of the value at a place such as steps[2].data.cidr in the first
// document of a text. Of a place that the text ends before it returns the line of the last value on
// the way, and 0 if there is none, or if the text is not well formed.
func Find(text []byte, place string) int {
	var document yaml.Node
	if yaml.Unmarshal(text, &document) != nil || len(document.Content) == 0 {
		return 0
	}
	line, _ := find(document.Content[0], place)
	return line
}

// Prefix returns the beginning of an error about a place in a file: the file's name, with the line
// if there is one.
func Prefix(file string, text []byte, place string) string {
	if line := Find(text, place); line > 0 {
		return fmt.Sprintf("%s:%d", file, line)
	}
	return file
}

// find returns the line of the last value on the way to a place below n, and how much of the place
// the way has covered. Names of members may have dots in them, so the longest way counts.
func find(n *yaml.Node, place string) (line, covered int) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	consider := func(child *yaml.Node, at int, step string) {
		rest, found := cutStep(place, step)
		if !found {
			return
		}
		below, more := find(child, rest)
		if more += len(step); more > covered {
			line, covered = at, more
			if below > 0 {
				line = below
			}
		}
	}
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			consider(n.Content[i+1], n.Content[i].Line, n.Content[i].Value)
		}
	case yaml.SequenceNode:
		for i, item := range n.Content {
			consider(item, item.Line, "["+strconv.Itoa(i)+"]")
		}
	}
	return line, covered
}

// cutStep cuts a member's name or an index off the beginning of a place.
func cutStep(place, step string) (rest string, found bool) {
	rest, found = strings.CutPrefix(place, step)
	switch {
	case !found || step == "":
		return place, false
	case rest == "" || rest[0] == '[':
		return rest, true
	case rest[0] == '.':
		return rest[1:], true
	}
	return place, false
}
