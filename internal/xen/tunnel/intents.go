package tunnel

import "heddle/internal/xen/star"

// intent is a decision about a network.
type intent struct {
	star.Intent
	// Hosts may have a leg with the key, which is not free before they are known to have none.
	Hosts []string `json:"hosts"`
	// Newcomers are those of Hosts that have joined since the center was chosen, until they are
	// considered as center too.
	Newcomers []string `json:"newcomers,omitempty"`
}

// intents holds what is decided about all networks, by UUID. It does no I/O: see intentStore.
type intents struct {
	last   uint32            // key given last
	all    map[string]intent // as in the store
	used   map[uint32]string // network by key
	writes map[string]intent // not yet in the store
}

// get returns what is decided about a network.
func (s *intents) get(network string) (intent, bool) {
	if in, ok := s.writes[network]; ok {
		return in, true
	}
	in, ok := s.all[network]
	return in, ok
}

// key reserves a key for a network, 0 when none is free. The next write stores it.
func (s *intents) key(network string) uint32 {
	key, ok := star.NextKey(s.last, func(k uint32) bool { return s.used[k] != "" })
	if !ok {
		return 0
	}
	s.last, s.used[key] = key, network
	return key
}

// set decides; intentStore.flush stores it.
func (s *intents) set(network string, in intent) { s.writes[network] = in }

// pending reports whether a decision is not in the store yet.
func (s *intents) pending(network string) bool { _, is := s.writes[network]; return is }

// takeBack drops decisions that could not be stored: once they can be, the state at that time
// decides. But something is written then in any case, since the store may have taken them.
func (s *intents) takeBack() {
	for network, in := range s.writes {
		back := s.all[network]
		back.Key, back.Hosts, back.Newcomers = in.Key, in.Hosts, in.Newcomers // a key is given once, and who may have a leg is never forgotten
		s.writes[network] = back
	}
}
