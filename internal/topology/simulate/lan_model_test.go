package simulate

import (
	"bytes"
	"fmt"
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"

	"pgregory.net/rapid"
)

// modelLAN has a network with its localnet port, and a LAN that copies every frame that a host
// sends out on its interface to the interfaces of all other hosts, and to a machine outside.
type modelLAN struct {
	*lab
	carriers []string
	seen     uint64 // versions of what was learned
}

// modelMachine is a machine of a model; their MAC addresses are mac(1), mac(2)…
type modelMachine struct {
	portSpec
	seeded bool // else its address has to be learned
}

const outside = "outside"

func (m *modelLAN) setHost(id string, carries, alive bool) {
	h := &topology.Host{ID: id, Tunnels: []topology.HostTunnel{{ZoneID: "z", IP: addr(1000 + int(id[1]))}}}
	if carries {
		h.PhysicalNetworks = []string{"physnet1"}
	}
	m.ApplyHost(id, h)
	m.ApplyHostState(id, nil)
	if alive {
		m.ApplyHostState(id, &topology.HostState{HostID: id})
	}
}

// run sends a frame from a port (or in from the LAN at each host: outside) and returns who got a
// copy of it, and how often. Others' answers are in the same count, as "answer to PORT".
func (m *modelLAN) run(t *rapid.T, from string, frame []byte) map[string]int {
	got := map[string]int{}
	type entry struct {
		port, host string
		frame      []byte
	}
	var queue []entry
	if from == outside {
		for _, h := range m.carriers {
			queue = append(queue, entry{"lan-net", h, frame})
		}
	} else {
		queue = []entry{{port: from, frame: frame}}
	}
	out := func(o flow.Output, f []byte, answer string) {
		if o.PortID != "lan-net" {
			got[answer+o.PortID]++
			return
		}
		got[answer+outside]++
		for _, h := range m.carriers {
			if h != o.HostID {
				queue = append(queue, entry{"lan-net", h, f})
			}
		}
	}
	for step := 0; len(queue) > 0; step++ {
		if step > 100 {
			t.Fatalf("a frame from %s goes round without end", from)
		}
		e := queue[0]
		queue = queue[1:]
		d := m.sim.Run(Input{PortID: e.port, HostID: e.host, Frame: e.frame})
		for _, o := range d.Outputs {
			f := bytes.Clone(e.frame)
			if d.Rewrite != nil {
				if err := d.Rewrite.Apply(f, false); err != nil {
					t.Fatal(err)
				}
			}
			out(o, f, "")
		}
		for _, o := range d.Emit {
			out(o.Output, bytes.Clone(o.Frame), "answer to ")
		}
		m.learn(e.host, d)
	}
	return got
}

func (m *modelLAN) learn(host string, d *flow.Decision) {
	m.seen++
	if l := d.Learn; l != nil {
		if host == "" {
			host = m.ports[l.PortID].def.HostID
		}
		m.LearnMAC(topology.LearnedMAC{HostID: host, NetworkID: l.NetworkID, MAC: l.MAC, PortID: l.PortID}, m.seen)
	}
}

// Whatever hosts carry the LAN and wherever machines and routers are: a broadcast gets to everyone
// once, a frame to one address to that machine, nothing comes back to its sender or goes round, and
// a question is answered once.
func TestLANCarriesEveryFrameOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &modelLAN{lab: newLab()}
		m.network("net")
		m.localnet("net")
		m.network("inner")
		hosts := []string{"h1", "h2", "h3", "h4"}[:rapid.IntRange(1, 4).Draw(t, "hosts")]
		carries := map[string]bool{}
		for _, h := range hosts {
			carries[h] = rapid.Bool().Draw(t, h+" carries")
			m.setHost(h, carries[h], true)
		}
		var machines []modelMachine
		for i := range rapid.IntRange(1, 5).Draw(t, "machines") {
			c := modelMachine{on(rapid.SampledFrom(hosts).Draw(t, "host"), open(i+1)), rapid.IntRange(0, 3).Draw(t, "seeded") > 0}
			b := c.bundle()
			if !c.seeded {
				b.MACs, b.Neighbours = nil, nil
			}
			m.Apply(c.owner(), b)
			machines = append(machines, c)
		}
		routers := rapid.IntRange(0, 2).Draw(t, "routers")
		for i := range routers {
			r := fmt.Sprint("r", i)
			m.router(r)
			m.link(link{id: r, router: r, network: "net", n: 20 + i, at: prefix(fmt.Sprintf("10.0.0.%d/16", 250+i))})
			m.link(link{id: r + "-inner", router: r, network: "inner", n: 30 + i, at: prefix(fmt.Sprintf("10.9.0.%d/16", 250+i))})
		}
		inner := on(rapid.SampledFrom(hosts).Draw(t, "inner host"), open(8))
		inner.network, inner.ips = "inner", nil
		m.port(inner)
		for range rapid.IntRange(1, 6).Draw(t, "sends") {
			if rapid.IntRange(0, 3).Draw(t, "changes") == 0 {
				h := rapid.SampledFrom(hosts).Draw(t, "changed")
				carries[h] = rapid.Bool().Draw(t, "carries now")
				m.setHost(h, carries[h], carries[h] || rapid.Bool().Draw(t, "alive"))
			}
			m.carriers = nil
			for _, h := range hosts {
				if carries[h] {
					m.carriers = append(m.carriers, h)
				}
			}
			m.tryFrame(t, machines, routers)
		}
	})
}

// tryFrame sends one frame of some kind and checks who gets it.
func (m *modelLAN) tryFrame(t *rapid.T, machines []modelMachine, routers int) {
	from := rapid.IntRange(0, len(machines)).Draw(t, "from") - 1 // -1: the machine outside
	to := rapid.IntRange(0, len(machines)).Draw(t, "to") - 1
	src, dst, port := mac(outsider), mac(outsider), outside
	if from >= 0 {
		src, port = machines[from].mac, machines[from].id
	}
	if to >= 0 {
		dst = machines[to].mac
	}
	everyone := map[string]int{}
	for _, c := range machines {
		everyone[c.id] = 1
	}
	if len(m.carriers) > 0 {
		everyone[outside] = 1
	}
	delete(everyone, port)
	if from < 0 && len(m.carriers) == 0 {
		return // nobody hears it
	}
	what, want := "", map[string]int{}
	var frame []byte
	switch kind := rapid.IntRange(0, 3).Draw(t, "kind"); {
	case kind == 0:
		what, frame, want = "broadcast", fromMAC(toMAC(tcp(1, 2, 1, 2), packet.Broadcast), src), everyone
	case kind == 1 && from < 0 && to >= 0 && machines[to].seeded:
		what, frame, want = "question", request(outsider, addr(to+1)), map[string]int{"answer to " + outside: 1}
	case kind == 2 && routers > 0:
		what, port = "a router's question", "p8"
		r := rapid.IntRange(0, routers-1).Draw(t, "router")
		frame = frameSpec{n: 8, to: 30 + r, src: ip("10.9.0.8"), dst: ip("10.0.77.77")}.tcp(1, 2)
		for id := range everyone {
			want["answer to "+id] = 1
		}
		if from >= 0 {
			want["answer to "+machines[from].id] = 1
		} else {
			want["answer to "+outside] = 1
		}
	case from == to:
		return
	default:
		what, frame = "unicast", fromMAC(toMAC(tcp(1, 2, 1, 2), dst), src)
		target := outside
		if to >= 0 {
			target = machines[to].id
		}
		got := m.run(t, port, frame)
		for id, n := range got {
			if n > 1 || id == port {
				t.Fatalf("%s from %s to %s: got %v", what, port, target, got)
			}
		}
		if (got[target] == 1) != (everyone[target] == 1) {
			t.Fatalf("%s from %s to %s: got %v", what, port, target, got)
		}
		delete(got, outside) // it hears what machines say over the LAN
		delete(got, target)
		if to >= 0 && machines[to].seeded && len(got) > 0 {
			t.Fatalf("%s from %s to %s: others heard it: %v", what, port, target, got)
		}
		return
	}
	got := m.run(t, port, frame)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%s from %s: got %v, want %v", what, port, got, want)
	}
}
