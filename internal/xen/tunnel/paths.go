package tunnel

import (
	"time"

	"heddle/internal/xen/star"
)

// path is what BFD says of the path between two hosts.
type path struct {
	health  star.Health
	carrier string    // the network whose leg it is heard on
	ever    bool      // that leg's session was up once
	since   time.Time // when the session began, as far as we know
}

// settleIn is how long a session may take to come up before the path counts as down: BFD begins with a packet a second.
const settleIn = 4 * time.Second

// probe looks at the path between two hosts, and says whether its health has changed and when to look again (zero: when
// something changes).
func (e *engine) probe(pair star.Pair, now time.Time) (changed bool, again time.Time) {
	carrier := e.probes.Carrier(pair[0], pair[1])
	p := e.paths[pair]
	switch {
	case carrier == "":
		delete(e.paths, pair)
		return false, time.Time{} // nobody asks any more
	case p == nil:
		p = &path{}
		e.paths[pair] = p
	}
	if p.carrier != carrier {
		p.carrier, p.ever, p.since = carrier, false, now
	}
	before := p.health
	up, down := e.hear(pair, carrier)
	young := now.Before(p.since.Add(settleIn))
	switch {
	case up && !down:
		p.health, p.ever = star.Up, true
	case down && (p.ever || !young):
		p.health = star.Down
	case !down && !young: // nobody says anything
		p.health, p.ever = star.Unprobed, false
	default:
		again = p.since.Add(settleIn)
	}
	return p.health != before, again
}

// hear is what the two ends of a probing leg say.
func (e *engine) hear(pair star.Pair, carrier string) (up, down bool) {
	for i, uuid := range pair {
		h := e.hosts[uuid]
		f, ok := h.end(carrier, pair[1-i])
		if !ok || !h.known || !f.BFD || f.OfPort <= 0 {
			continue
		}
		switch f.bfd {
		case "up":
			up = true
		case "":
		default:
			down = true
		}
	}
	return up, down
}
