package flowstate

import (
	"strings"
	"unique"
)

// hostSet is the ids of hosts, which have no spaces. Many records go to few sets: each of these is
// in memory once.
type hostSet struct{ joined unique.Handle[string] }

const betweenHosts = " "

var noHosts = newHostSet(nil)

func newHostSet(ids []string) hostSet {
	return hostSet{unique.Make(strings.Join(ids, betweenHosts))}
}

func (s hostSet) ids() []string {
	if s == noHosts {
		return nil
	}
	return strings.Split(s.joined.Value(), betweenHosts)
}
