package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"heddle/internal/netlab"
)

// BenchmarkLiveMigration moves a machine between two hosts as Nova does, while machines on both of
// them and on a third one ask it something every millisecond. Reported is the longest time without
// an answer.
func BenchmarkLiveMigration(b *testing.B) {
	s := newSite(b)
	s.serve(b)
	c := login(b, s.ctl, "127.0.0.1", s.data)
	network := c.mustCreate(b, "network", map[string]any{"name": "blue"})
	c.mustCreate(b, "subnet", map[string]any{"network_id": network.ID, "ip_version": 4, "cidr": "10.0.0.0/24", "enable_dhcp": false})
	var hosts []*host
	var peers []*netlab.Namespace
	for i := range 3 {
		h := s.addHost(b, fmt.Sprint("h", i), fmt.Sprintf("192.0.2.1%d", i))
		start(b, h.ns, h.agent("--join", s.token(b, h.name))...)
		vm := s.lab.MustNamespace(b, fmt.Sprint("vm", i))
		port, mac := c.bindPort(b, network.ID, h, 10+i)
		plug(b, vm, "eth0", mac, h, port)
		vm.MustIP(b, "link set eth0 up", fmt.Sprintf("addr add 10.0.0.%d/24 dev eth0", 10+i))
		hosts, peers = append(hosts, h), append(peers, vm)
	}
	m := newMigrant(b, s, c, network.ID, hosts[0])
	gaps := map[string][]time.Duration{}
	for b.Loop() {
		to := hosts[0]
		if m.on == to {
			to = hosts[1]
		}
		probes := map[string]*probe{}
		for i, h := range hosts {
			switch h {
			case m.on:
				probes["host-before"] = probing(b, peers[i])
			case to:
				probes["next-host"] = probing(b, peers[i])
			default:
				probes["third-host"] = probing(b, peers[i])
			}
		}
		m.migrate(b, to, probes)
		for name, p := range probes {
			gaps[name] = append(gaps[name], p.end())
		}
	}
	for what, all := range gaps {
		reportGaps(b, what, all)
	}
	reportLoad(b)
}

// migrant is a machine that moves between hosts. Its address is on a bridge, so that it keeps its
// neighbours: which of its two interfaces is in the bridge is where it runs. A third one keeps the
// bridge's carrier: for one that comes back the kernel takes up to a second.
type migrant struct {
	ns   *netlab.Namespace
	c    *client
	port object
	mac  string
	on   *host
	nic  int
}

const migrantNumber = 33

func newMigrant(b *testing.B, s *site, c *client, networkID string, on *host) *migrant {
	b.Helper()
	m := &migrant{ns: s.lab.MustNamespace(b, "migrant"), c: c, on: on}
	m.port, m.mac = c.bindPort(b, networkID, on, migrantNumber)
	m.ns.MustIP(b, "link add br0 address "+m.mac+" type bridge forward_delay 0", "link set br0 up",
		"link add eth2 type veth peer name eth3", "link set eth3 up", "link set eth2 master br0 up", fmt.Sprintf("addr add 10.0.0.%d/24 dev br0", migrantNumber))
	m.plug(b, "eth0", on)
	m.ns.MustIP(b, "link set eth0 master br0")
	m.await(b)
	var l net.PacketConn
	if err := m.ns.Do(func() (err error) {
		l, err = net.ListenPacket("udp4", fmt.Sprintf("10.0.0.%d:7", migrantNumber))
		return err
	}); err != nil {
		b.Fatal(err)
	}
	var serving sync.WaitGroup
	b.Cleanup(func() { l.Close(); serving.Wait() })
	serving.Go(func() {
		for buffer := make([]byte, 64); ; {
			n, from, err := l.ReadFrom(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = l.WriteTo(buffer[:n], from) // a lost answer is a gap
			}
		}
	})
	return m
}

// plug gives the machine an interface, up, that drops what comes by it while it is in no bridge:
// the way back is by another (RFC 3704 §2.2).
func (m *migrant) plug(b *testing.B, name string, h *host) {
	b.Helper()
	plug(b, m.ns, name, m.mac, h, m.port)
	if err := m.ns.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/conf/"+name+"/rp_filter", []byte("1"), 0) }); err != nil {
		b.Fatal(err)
	}
	m.ns.MustIP(b, "link set "+name+" up")
}

// await waits until the port is served where it is bound.
func (m *migrant) await(b *testing.B) {
	b.Helper()
	within(b, "the port to be served on "+m.on.name, func() bool {
		var answer struct {
			Port struct {
				Status string
				Host   string `json:"binding:host_id"`
			}
		}
		m.call(b, http.MethodGet, "", nil, &answer)
		return answer.Port.Status == "ACTIVE" && answer.Port.Host == m.on.name
	})
}

func (m *migrant) call(b *testing.B, method, path string, body, out any) {
	b.Helper()
	if err := m.c.call(b.Context(), method, "/v2.0/ports/"+m.port.ID+path, body, out); err != nil {
		b.Fatal(err)
	}
}

// migrate moves the machine: it runs on the next host when its binding there is activated.
func (m *migrant) migrate(b *testing.B, to *host, probes map[string]*probe) {
	b.Helper()
	answered := func(when string) {
		b.Helper()
		since := time.Now()
		for name, p := range probes {
			within(b, name+" to be answered "+when, func() bool { return p.answeredSince(since) })
		}
	}
	from, old, next := m.on, fmt.Sprint("eth", m.nic), fmt.Sprint("eth", 1-m.nic)
	m.call(b, http.MethodPost, "/bindings", map[string]any{"binding": map[string]any{"host": to.name}}, nil)
	m.plug(b, next, to)
	answered("before")
	m.ns.MustIP(b, "link set "+old+" nomaster", "link set "+next+" master br0")
	m.call(b, http.MethodPut, "/bindings/"+to.name+"/activate", nil, nil)
	answered("on the next host")
	m.on, m.nic = to, 1-m.nic
	m.await(b)
	m.call(b, http.MethodDelete, "/bindings/"+from.name, nil, nil)
	m.ns.MustIP(b, "link del "+old)
	answered("on the next host alone")
}

// probe asks the migrant something every millisecond.
type probe struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	answers []time.Time
}

func probing(b *testing.B, from *netlab.Namespace) *probe {
	b.Helper()
	var c net.Conn
	if err := from.Do(func() (err error) {
		c, err = net.Dial("udp4", fmt.Sprintf("10.0.0.%d:7", migrantNumber))
		return err
	}); err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	p := &probe{stop: stop}
	p.done.Go(func() {
		defer c.Close()
		for tick := time.Tick(time.Millisecond); ctx.Err() == nil; {
			_, _ = c.Write([]byte{0}) // a lost question is a gap
			<-tick
		}
	})
	p.done.Go(func() {
		for buffer := make([]byte, 64); ; {
			_, err := c.Read(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				p.mu.Lock()
				p.answers = append(p.answers, time.Now())
				p.mu.Unlock()
			}
		}
	})
	return p
}

func (p *probe) answeredSince(t time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.answers) > 0 && p.answers[len(p.answers)-1].After(t)
}

// end stops asking, and returns the longest time between answers.
func (p *probe) end() (longest time.Duration) {
	p.stop()
	p.done.Wait()
	for i := 1; i < len(p.answers); i++ {
		longest = max(longest, p.answers[i].Sub(p.answers[i-1]))
	}
	return longest
}
