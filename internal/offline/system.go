package offline

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

// system is a scenario come to life: the simulator over its topology, and what is remembered of the
// packets before. Connections are those of a network, not of a host (midonet-simulation §5), so all
// hosts share one memory: where the ports are bound does not change what becomes of a frame
// (file-formats §2).
type system struct {
	*scenario
	topology  *simulate.World
	simulator *simulate.Simulator
	memory    *simulate.Memory
	sightings uint64            // of learned addresses, in order
	readable  *strings.Replacer // ids in texts → names
	macs      map[string]string // MAC addresses of the ports by name
	chains    map[string]string // chain id → name
	rules     map[string]string // rule id → place and words
	owners    map[topology.Owner]bool
	postponed []postponed
	localnets map[string]string // localnet port ids by network id
}

// postponed is a frame that waits until its next hop answers.
type postponed struct {
	port  string
	frame []byte
}

func (s *scenario) start() (*system, error) {
	y := &system{scenario: s, topology: simulate.NewWorld(simulate.Options{}), memory: simulate.NewMemory()}
	y.simulator = simulate.NewSimulator(y.topology)
	hosts, err := s.world.hosts()
	if err != nil {
		return nil, err
	}
	for _, h := range hosts {
		y.topology.ApplyHost(h.ID, &h)
	}
	return y, y.apply()
}

// apply gives the simulator the present objects.
func (y *system) apply() (err error) {
	y.chains, y.rules = map[string]string{}, map[string]string{}
	bundles, err := y.world.bundles()
	if err != nil {
		return err
	}
	y.findLANs(bundles)
	y.readable = y.names()
	if y.macs, err = y.macAddresses(); err != nil {
		return err
	}
	gone := y.owners
	y.owners = map[topology.Owner]bool{}
	for _, b := range bundles {
		y.topology.Apply(b.Owner, &b.Bundle)
		y.owners[b.Owner] = true
		delete(gone, b.Owner)
		for i := range b.Bundle.Rules {
			e := &b.Bundle.Rules[i]
			y.rules[e.Rule.ID] = y.readable.Replace(e.Rule.String())
		}
		for _, c := range b.Bundle.Chains {
			y.chains[c.ID] = y.readable.Replace(c.Name)
			for i := range c.Rules {
				y.rules[c.Rules[i].ID] = y.readable.Replace(fmt.Sprintf("%d: %s", i+1, &c.Rules[i]))
			}
		}
	}
	for owner := range gone {
		y.topology.Apply(owner, nil)
	}
	y.hostStates()
	return y.applyHealth()
}

// references are those of the topology, and what was captured.
func (y *system) references(captured map[string]any) references {
	r := references{macs: maps.Clone(y.macs), captured: captured}
	r.macs["bcast"] = packet.Broadcast.String()
	return r
}

// delivery is a frame that reached a port.
type delivery struct {
	Port  string `json:"port"`
	Frame fields `json:"frame"`
	raw   []byte
}

func (d delivery) String() string { return fmt.Sprintf("%s %v", d.Port, d.Frame) }

func newDelivery(port string, frame []byte) delivery { return delivery{port, showFrame(frame), frame} }

type dropped struct {
	Device string `json:"device"`
	Reason string `json:"reason"`
}

// passage is the fate of one frame.
type passage struct {
	deliveries []delivery
	drops      []dropped
	ends       []flow.Dropped // drops, as the simulator names them
	walk       []flow.Step
	logs       []logged
}

// carry puts a frame on a port as its machine does, and lets frames go on that have waited for it.
func (y *system) carry(port string, frame []byte) (passage, error) {
	p, waits := y.pass(port, frame)
	earlier := y.postponed
	y.postponed = nil
	for _, e := range earlier {
		again, stillWaits := y.pass(e.port, e.frame)
		if stillWaits {
			y.postponed = append(y.postponed, e)
			continue
		}
		p.add(again)
	}
	if waits {
		y.postponed = append(y.postponed, postponed{port, frame})
	}
	slices.SortStableFunc(p.deliveries, func(a, b delivery) int { return strings.Compare(a.Port, b.Port) })
	return p, nil
}

func (p *passage) add(other passage) {
	p.deliveries = append(p.deliveries, other.deliveries...)
	p.drops = append(p.drops, other.drops...)
	p.ends = append(p.ends, other.ends...)
	p.walk = append(p.walk, other.walk...)
	p.logs = append(p.logs, other.logs...)
}

// leaving returns the frame that leaves by an output of the decision about another, rewritten by w
// unless that is nil.
func leaving(frame []byte, d *flow.Decision, o *flow.Output, w *flow.Rewrite) ([]byte, error) {
	out := slices.Clone(frame)
	if o.Inner && d.Decap != nil {
		out = out[d.Decap.Offset:]
	}
	if w != nil {
		if err := w.Apply(out, false); err != nil {
			return nil, err
		}
	}
	return o.Wrap(out), nil
}

// pass walks a frame through the network, and reports whether it waits for its next hop. What it
// puts on a LAN comes in at the other hosts there.
func (y *system) pass(port string, frame []byte) (p passage, waits bool) {
	port, frame = y.entry(port, frame)
	in := simulate.Input{PortID: y.ports.ids[port], Frame: frame, State: y.memory, Explain: true}
	host := y.hostAt(port)
	if in.PortID == "" {
		in.PortID, in.HostID, _ = y.lanPlace(port)
	}
	d := y.simulator.Run(in)
	var onLAN []postponed
	deliver := func(o *flow.Output, out []byte) {
		place := y.placeOf(o)
		p.deliveries = append(p.deliveries, newDelivery(place, y.exit(place, out)))
		for _, other := range y.otherPlaces(o) {
			onLAN = append(onLAN, postponed{other, out})
		}
	}
	rewrite := func(o *flow.Output, w *flow.Rewrite) {
		out, err := leaving(frame, d, o, w)
		if err != nil {
			p.drops = append(p.drops, dropped{y.words(o.PortID), err.Error()})
			return
		}
		deliver(o, out)
	}
	for _, c := range d.Copies {
		if d.Verdict != flow.Postponed {
			rewrite(&c.Output, c.Rewrite)
		}
	}
	for _, o := range d.Outputs {
		rewrite(&o, d.Rewrite)
	}
	for _, e := range d.Emit {
		deliver(&e.Output, slices.Clone(e.Frame))
	}
	y.memory.Commit(d)
	y.learn(host, d)
	p.ends = slices.Clone(d.Drops)
	for _, end := range d.Drops {
		p.drops = append(p.drops, dropped{y.words(end.Device), y.words(end.Reason)})
	}
	for _, step := range d.Walk {
		p.walk = append(p.walk, flow.Step{
			Device: y.words(step.Device), Chain: y.chains[step.Chain], Rule: y.rules[step.Rule], Text: y.words(step.Text),
		})
	}
	if waits = d.Verdict == flow.Postponed; !waits {
		for i := range d.Logged {
			p.logs = append(p.logs, y.newLogged(&d.Logged[i]))
		}
	}
	for _, copied := range onLAN {
		there, waitsThere := y.pass(copied.port, copied.frame)
		p.add(there)
		if waitsThere {
			y.postponed = append(y.postponed, copied)
		}
	}
	return p, waits
}

func (y *system) words(text string) string { return y.readable.Replace(text) }

// learn enters the addresses that the host saw; through the store every host gets them.
func (y *system) learn(host string, d *flow.Decision) {
	y.sightings++
	if l := d.Learn; l != nil {
		y.topology.LearnMAC(topology.LearnedMAC{
			HostID: host, NetworkID: l.NetworkID, VLAN: l.VLAN, MAC: l.MAC, PortID: l.PortID,
		}, y.sightings)
	}
	if l := d.LearnNeighbour; l != nil {
		y.topology.LearnNeighbour(topology.LearnedNeighbour{HostID: host, NetworkID: l.NetworkID, IP: l.IP, MAC: l.MAC}, y.sightings)
	}
}
