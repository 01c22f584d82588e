package tunnel

import (
	"cmp"
	"time"

	"heddle/internal/xen/star"
)

// settleIn is the time for a BFD session to come up before the path counts as down: BFD begins
// with a packet a second.
const settleIn = 4 * time.Second

// paths holds the health of the paths between hosts, as BFD reports it.
type paths struct {
	*star.Probes
	hosts  map[string]*host
	all    map[star.Pair]*pathState
	agenda agenda[star.Pair]
}

// pathState is the state of the path between two hosts.
type pathState struct {
	health  star.Health
	carrier string    // the network whose leg has the BFD session
	ever    bool      // that session was up once
	since   time.Time // when the session began, as far as we know
}

func newPaths(hosts map[string]*host) *paths {
	return &paths{Probes: star.NewProbes(), hosts: hosts, all: map[star.Pair]*pathState{}, agenda: newAgenda[star.Pair]()}
}

// Health returns what BFD says of the path between two hosts, for star.View.
func (p *paths) Health(a, b string) star.Health {
	if path := p.all[star.PairOf(a, b)]; path != nil {
		return path.health
	}
	return star.Unprobed
}

// addAll has all paths of a host considered.
func (p *paths) addAll(host string) {
	for pair := range p.all {
		if pair[0] == host || pair[1] == host {
			p.agenda.add(pair)
		}
	}
}

// update considers the paths that are due, and returns those whose health has changed.
func (p *paths) update(now time.Time) []star.Pair {
	var changed []star.Pair
	for _, pair := range p.agenda.take(now, comparePairs) {
		if p.consider(pair, now) {
			changed = append(changed, pair)
		}
	}
	return changed
}

func comparePairs(a, b star.Pair) int {
	return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1]))
}

// consider brings a path's health up to date, and reports whether it has changed.
func (p *paths) consider(pair star.Pair, now time.Time) (changed bool) {
	carrier := p.Carrier(pair[0], pair[1])
	if carrier == "" { // no leg needs the path any more
		delete(p.all, pair)
		return false
	}
	path := p.all[pair]
	if path == nil {
		path = &pathState{}
		p.all[pair] = path
	}
	if path.carrier != carrier {
		path.carrier, path.ever, path.since = carrier, false, now
	}
	before := path.health
	up, down := p.sessions(pair, carrier)
	young := now.Before(path.since.Add(settleIn))
	switch {
	case up && !down:
		path.health, path.ever = star.Up, true
	case down && (path.ever || !young):
		path.health = star.Down
	case !down && !young: // neither end has a session
		path.health, path.ever = star.Unprobed, false
	default:
		p.agenda.addAt(pair, path.since.Add(settleIn))
	}
	return path.health != before
}

// sessions reports whether an end of the carrier's leg has a session that is up, or one that is
// not.
func (p *paths) sessions(pair star.Pair, carrier string) (up, down bool) {
	for i, uuid := range pair {
		h := p.hosts[uuid]
		f, ok := h.end(carrier, pair[1-i])
		if !ok || !h.known || !f.BFD || f.OfPort <= 0 {
			continue
		}
		up = up || f.bfd == "up"
		down = down || f.bfd != "up" && f.bfd != ""
	}
	return up, down
}
