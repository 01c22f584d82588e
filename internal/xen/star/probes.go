package star

import "slices"

// Pair is two hosts, in the order of their UUIDs.
type Pair [2]string

// PairOf is the pair of two hosts.
func PairOf(a, b string) Pair {
	if b < a {
		a, b = b, a
	}
	return Pair{a, b}
}

// Probes assigns the probe of the path between two hosts to one of the networks with a leg between
// them. It stays the same for as long as it has its leg, so that other networks' changes leave the
// probe alone.
type Probes struct {
	users   map[Pair][]string // networks; the first one probes
	sure    map[Pair]bool     // the first one's leg was found probing
	network map[string][]Pair
}

// NewProbes knows of no legs.
func NewProbes() *Probes {
	return &Probes{users: map[Pair][]string{}, sure: map[Pair]bool{}, network: map[string][]Pair{}}
}

// Set sets the pairs that a network has legs between, and those of them that probe as found. It
// returns the networks other than it whose probing changes.
func (p *Probes) Set(network string, pairs []Pair, probing map[Pair]bool) []string {
	var changed []string
	old := p.network[network]
	if p.network[network] = slices.Clone(pairs); len(pairs) == 0 {
		delete(p.network, network)
	}
	for _, pair := range old {
		if !slices.Contains(pairs, pair) {
			changed = append(changed, p.remove(pair, network)...)
		}
	}
	for _, pair := range pairs {
		if !slices.Contains(old, pair) {
			changed = append(changed, p.add(pair, network, probing[pair])...)
		}
	}
	return changed
}

func (p *Probes) remove(pair Pair, network string) []string {
	users := p.users[pair]
	i := slices.Index(users, network)
	users = slices.Delete(users, i, i+1)
	p.users[pair] = users
	if i > 0 {
		return nil
	}
	delete(p.sure, pair)
	if len(users) == 0 {
		delete(p.users, pair)
		return nil
	}
	return users[:1:1]
}

func (p *Probes) add(pair Pair, network string, probing bool) []string {
	users := p.users[pair]
	if !probing || p.sure[pair] {
		p.users[pair] = append(users, network)
		return nil
	}
	p.sure[pair] = true
	p.users[pair] = slices.Insert(users, 0, network)
	return slices.Clone(p.users[pair][1:min(2, len(users)+1)])
}

// Carries reports whether the network probes the path between two hosts.
func (p *Probes) Carries(network, a, b string) bool { return p.Carrier(a, b) == network }

// Carrier is the network that probes the path between two hosts, "" when none has a leg there.
func (p *Probes) Carrier(a, b string) string {
	if users := p.users[PairOf(a, b)]; len(users) > 0 {
		return users[0]
	}
	return ""
}

// Networks are those that have a leg between two hosts. The slice must not be changed.
func (p *Probes) Networks(a, b string) []string { return p.users[PairOf(a, b)] }

// Pairs are those that a network has legs between.
func (p *Probes) Pairs(network string) []Pair { return slices.Clone(p.network[network]) }
