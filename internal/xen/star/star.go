// Package star thinks out the legs of a pool's tunnel networks: which host of a network is its
// center, which ports the others and the center have, in which order these are made, and what there
// is to say of each tunnel. It does no I/O: what is known goes in, what to do next comes out, and
// whoever does it asks again with what is known then.
//
//	spoke ───leg─── center ───leg─── spoke      a leg is a port on each of two hosts' bridges
//	                  │
//	                 leg
//	                spoke
//
// A frame passes a leg only while both of its ends are there: a host takes what comes from an
// address and key that it has a port for, and nothing else. What holds at every moment, whatever
// fails in between (§10.5 of the XenAPI's tunnels):
//
//   - a host's ports of a network change in one transaction, all of them;
//   - only a center has more than one, and it gets a port to a host only when that one is known to
//     have no more than one itself; one exception is the center before it, while the network moves
//     from there to here.
//
// So the legs of a network never form a ring. For each host of a ring would have two ports, and so
// have been center; the one that became it last got both its ports when no more than one of its two
// neighbors had two of its own.
package star

import (
	"crypto/sha256"
	"encoding/hex"
)

// Network is a tunnel network and all that its plan follows from.
type Network struct {
	UUID       string
	MTU        int    // bytes, of what its machines send; 0 = unknown
	Preferred  string // UUID of the host that shall be center, "" for none
	AutoRevert bool   // move to Preferred also when it merely comes back
	// Steady: the center was moved a moment ago because no host reached the one before; reports
	// about the new one are not yet a reason to move again.
	Steady  bool
	Members []Member
}

// Member is a host that has a tunnel on the network, or ports that were made for it.
type Member struct {
	Host     string // UUID
	Tunnel   bool   // it has a tunnel on the network
	Attached bool   // the tunnel's access PIF is
	Live     bool   // host_metrics.live: its agent reports
	// Passing: frames pass between it and the rest of the star now, as BFD says. Such a host is
	// well, whatever the pool says of it: its agent may be dead, or the network between agent and
	// pool cut.
	Passing      bool
	Enabled      bool
	OpenVSwitch  bool   // its network backend
	Address      string // of the transport PIF; "" when it is not configured
	TransportMTU int    // bytes; 0 = unknown
	Protocol     string // gre or vxlan
	New          bool   // it has joined the network since the center was chosen, see Considered

	Known  bool   // its OVSDB answers and its ovs-vswitchd follows; else the rest is what was last known
	Seen   bool   // it was known before; else the rest says nothing
	Reason string // why it is not known; text for people
	Lost   bool   // not known for so long that it is not waited for where it is in the way
	Busy   bool   // a transaction is under way there: none may be planned
	Hub    bool   // that transaction, or one whose outcome is not known, gives it more than one leg
	Bridge string // that has the network; "" when none does
	// Refused is the error of the last step, if that was refused; text for people.
	Refused string
	// Unwilling: it has refused more than once, so that it is no center if there is another.
	Unwilling bool
	Legs      []Found // the network's ports there that bear our mark, on whatever bridge
}

// Leg is one end of a leg: a port with its only interface.
type Leg struct {
	Name              string
	Peer              string // UUID of the host at the other end
	Type              string // gre or vxlan
	LocalIP, RemoteIP string
	Key               uint32
	Epoch             uint64 // of the intent that it was made for
	BFD               bool   // this leg shows whether the two hosts reach each other
}

// Found is an end of a leg as an OVSDB has it.
type Found struct {
	Leg
	Bridge string
	OfPort int    // > 0 once ovs-vswitchd has made it
	Error  string // why it could not
}

// Intent is the decision about a network, which outlives the leader that made it. It is stored
// before anything is done.
type Intent struct {
	Key    uint32 `json:"key"`
	Center string `json:"center"` // UUID of a host; "" while none was needed
	// Epoch grows with each new center.
	Epoch uint64 `json:"epoch"`
	// Previous is the center before, until all follow this epoch; then Settled is Epoch.
	Previous string `json:"previous,omitempty"`
	Settled  uint64 `json:"settled"`
	// Preferred is the preferred center that was last heeded.
	Preferred string `json:"preferred,omitempty"`
}

// Moving reports whether the center was changed and not everything has followed yet.
func (in Intent) Moving() bool { return in.Settled != in.Epoch }

// Health is the state of the path between two hosts, by BFD.
type Health uint8

// Healths.
const (
	Unprobed Health = iota // no leg between them is probed, or not long enough
	Up
	Down
)

// View gives a plan the state of other networks.
type View interface {
	// Load returns how many networks the host is center of.
	Load(host string) int
	// Carries reports whether the network's leg between two hosts probes the path between them.
	Carries(network, a, b string) bool
	// Health returns the state of the path between two hosts.
	Health(a, b string) Health
}

// nameDigits is the length of a hash in a port's name, which has at most 15 characters.
const nameDigits = 12

// PortName is the name of the port to a peer on a network's bridge: always the same, so that a
// second attempt finds what the first has made.
func PortName(network, peer string) string {
	sum := sha256.Sum256([]byte(network + " " + peer))
	return "tun" + hex.EncodeToString(sum[:nameDigits/2])
}

// usable reports whether the host can have legs, as far as the XenAPI reports. A host that is
// disabled can: its machines are still there until they are moved away. So can one whose agent is
// not heard of while frames pass: whether a host is alive the data plane decides.
func (m *Member) usable() bool {
	return m.Tunnel && m.Attached && (m.Live || m.Passing) && m.OpenVSwitch && m.Address != ""
}

// Passing reports whether frames pass between the host and the rest of the star that there is: by a
// leg that is in place at the ends that are known, and whose path BFD says is up. While the center
// moves, the one before it counts too.
func Passing(n *Network, in Intent, host string, v View) bool {
	return n.passing(in, in.Center, host, v) || in.Moving() && n.passing(in, in.Previous, host, v)
}

func (n *Network) passing(in Intent, hub, host string, v View) bool {
	center := member(n, hub)
	if center == nil {
		return false
	}
	passes := func(x *Member) bool {
		return x != center && v.Health(x.Host, hub) == Up && (x.Known || center.Known) && (carries(x.leg(hub), in) || !x.Known) && (carries(center.leg(x.Host), in) || !center.Known)
	}
	for i := range n.Members {
		if x := &n.Members[i]; (host == hub || host == x.Host) && passes(x) {
			return true
		}
	}
	return false
}

// carries reports whether the end of a leg works, be it of the epoch before.
func carries(f *Found, in Intent) bool {
	return f != nil && f.Key == in.Key && f.OfPort > 0 && f.Error == ""
}

// CutOff reports whether BFD says that frames do not pass between the host and the center, or, of
// the center, between it and any other.
func CutOff(n *Network, in Intent, host string, v View) bool {
	if host != in.Center {
		return v.Health(host, in.Center) == Down
	}
	down := false
	for i := range n.Members {
		switch x := n.Members[i].Host; {
		case x == host:
		case v.Health(x, host) == Up:
			return false
		case v.Health(x, host) == Down:
			down = true
		}
	}
	return down
}

// hub reports whether the host has, or may come to have, more than one leg.
func (m *Member) hub() bool { return m.Hub || len(m.Legs) > 1 }

// leg is the member's leg to a peer, nil when there is none.
func (m *Member) leg(peer string) *Found {
	for i := range m.Legs {
		if m.Legs[i].Peer == peer {
			return &m.Legs[i]
		}
	}
	return nil
}

// shape is a network's star: who is in it.
type shape struct {
	center *Member // nil: there are fewer than two members, and no legs
	spokes []*Member
}

// members are the center, if it can be it, and the others that can have a leg to it.
func members(n *Network, in Intent) (center *Member, others []*Member) {
	if c := member(n, in.Center); c != nil && c.usable() && (c.Known && c.Bridge != "" || !c.Known && n.attachedTo(c)) {
		center = c
	}
	for i := range n.Members {
		if m := &n.Members[i]; m.Host != in.Center && m.usable() && (m.Known && m.Bridge != "" || !m.Known && m.keeps(in, center)) {
			others = append(others, m)
		}
	}
	return center, others
}

// attachedTo reports whether a known host has a leg to an unknown center: then the star stays.
func (n *Network) attachedTo(center *Member) bool {
	for i := range n.Members {
		if m := &n.Members[i]; m.Known && m.leg(center.Host) != nil {
			return true
		}
	}
	return false
}

// keeps reports whether a spoke that is not known has its leg, and cannot have others. If it was
// never seen, this follows from the center's end, which it was given once the spoke was known to
// have no other.
func (m *Member) keeps(in Intent, center *Member) bool {
	switch {
	case center == nil:
		return false
	case m.Seen:
		return !m.hub() && m.leg(in.Center) != nil
	}
	end := center.leg(m.Host)
	return end != nil && end.Epoch == in.Epoch
}

func shapeOf(n *Network, in Intent) shape {
	center, spokes := members(n, in)
	if center == nil || len(spokes) == 0 {
		return shape{}
	}
	return shape{center, spokes}
}

// Pairs are the pairs of hosts that have a leg between them in the star that the intent wants and
// could probe it, with those that do already.
func Pairs(n *Network, in Intent) (pairs []Pair, probing map[Pair]bool) {
	s := shapeOf(n, in)
	for _, x := range s.spokes {
		a, b := x.leg(in.Center), s.center.leg(x.Host)
		if a != nil && a.Error != "" || b != nil && b.Error != "" {
			continue
		}
		pair := PairOf(x.Host, in.Center)
		pairs = append(pairs, pair)
		if a != nil && a.BFD || b != nil && b.BFD {
			if probing == nil {
				probing = map[Pair]bool{}
			}
			probing[pair] = true
		}
	}
	return pairs, probing
}

// Spokes are the hosts that have a leg to the center in the star that the intent wants.
func Spokes(n *Network, in Intent) []string {
	var hosts []string
	for _, m := range shapeOf(n, in).spokes {
		hosts = append(hosts, m.Host)
	}
	return hosts
}

// Hosts are those that have a leg in the star that the intent wants, the center first.
func Hosts(n *Network, in Intent) []string {
	spokes := Spokes(n, in)
	if len(spokes) == 0 {
		return nil
	}
	return append([]string{in.Center}, spokes...)
}
