package overlay

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"heddle/internal/hostnet"
	"heddle/internal/metadata"
	"heddle/internal/store"
	"heddle/internal/store/schema"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// namesPort answers every request with the port that it came from, and the workload's own address.
type namesPort struct{}

func (namesPort) ServeMetadata(w http.ResponseWriter, _ *http.Request, c metadata.Client) {
	fmt.Fprintf(w, "%s %s", c.Port, c.Addr)
}

// servesMetadata has the host's agent serve metadata that names the port of each request.
func (h *testHost) servesMetadata() {
	h.options.Metadata = metadata.NewProxy(namesPort{}, slog.New(slog.DiscardHandler))
}

// reachesMetadata gives the machine a route to the metadata service on its link.
func (m *machine) reachesMetadata() {
	m.MustIP(m.lab.t, "route replace "+flow.MetadataIPv4.String()+" dev eth0")
}

// metadataClient is an HTTP client in the machine's namespace that connects from an address, if
// valid.
func (m *machine) metadataClient(from netip.Addr) *http.Client {
	d := net.Dialer{}
	if from.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(m.onLink(from), 0))
	}
	return &http.Client{Timeout: waitLimit, Transport: &http.Transport{DialContext: func(ctx context.Context, network, _ string) (c net.Conn, err error) {
		at := flow.MetadataIPv4
		if from.Is6() {
			at = m.onLink(flow.MetadataIPv6)
		}
		err = m.Do(func() error {
			c, err = d.DialContext(ctx, network, netip.AddrPortFrom(at, flow.MetadataTCPPort).String())
			return err
		})
		return c, err
	}}}
}

// onLink returns an address as the machine's programs name it: if it is link-local, by its link.
func (m *machine) onLink(a netip.Addr) netip.Addr {
	if !a.Is6() {
		return a
	}
	inside, err := hostnet.OpenNamespace(m.Name)
	if err != nil {
		m.lab.t.Fatal(err)
	}
	defer inside.Close()
	net, err := hostnet.NewLinux(inside)
	if err != nil {
		m.lab.t.Fatal(err)
	}
	defer net.Close()
	link, err := net.Link("eth0")
	if err != nil {
		m.lab.t.Fatal(err)
	}
	return a.WithZone(strconv.Itoa(link.Index))
}

// askMetadata returns what the service answers.
func askMetadata(client *http.Client) (string, error) {
	resp, err := client.Get("http://" + flow.MetadataIPv4.String() + "/")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", resp.Status, body)
	}
	return string(body), err
}

// expectMetadata checks that the machine is taken for itself when it asks from an address.
func (m *machine) expectMetadata(own netip.Addr) {
	m.lab.t.Helper()
	client := m.metadataClient(own)
	defer client.CloseIdleConnections()
	var got string
	m.lab.wait("metadata for "+own.String(), func() (ok bool) { // an address is not usable at once, nor is the service
		var err error
		got, err = askMetadata(client)
		return err == nil
	})
	if want := m.port.ID + " " + own.String(); got != want {
		m.lab.t.Errorf("answer to port %s at %s: %q, want %q", m.port.ID, own, got, want)
	}
}

// TestMetadata: machines on isolated networks with the same addresses, with security groups that
// let nothing out, by IPv4 and by IPv6, reach the service of their host and are told apart; nothing
// else of that host is reached.
func TestMetadata(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	h.servesMetadata()
	red, blue := l.network("red"), l.network("blue")
	l.start()
	closed := l.group()
	a, b, open := red.machine(h, closed), blue.machine(h, closed), blue.machine(h)
	if a.v4 != b.v4 {
		t.Fatalf("addresses %s and %s: want one on two networks", a.v4, b.v4)
	}
	for _, m := range []*machine{a, b, open} {
		m.reachesMetadata()
		m.expectMetadata(m.v4)
		m.expectMetadata(packet.LinkLocal(m.port.MACAddress))
	}

	for name, version := range map[string]int{"an IPv4 address alone": 0, "an IPv6 address alone": 1} {
		t.Run(name, func(t *testing.T) {
			m := blue.port(h, closed)
			m.port.FixedIPs = m.port.FixedIPs[version:][:1]
			m.plug()
			m.bind()
			m.served()
			m.expectMetadata(packet.LinkLocal(m.port.MACAddress))
		})
	}
	t.Run("by a router's MAC address", func(t *testing.T) {
		a.MustIP(t, "route replace "+flow.MetadataIPv4.String()+" via 10.0.0.1 dev eth0", "neigh replace 10.0.0.1 lladdr 02:00:00:00:00:01 dev eth0")
		a.expectMetadata(a.v4)
	})
	t.Run("spoofed", func(t *testing.T) {
		other := netip.MustParseAddr("10.0.0.99")
		for _, m := range []*machine{b, open} {
			m.MustIP(t, "addr add "+other.String()+"/24 dev eth0")
		}
		client := open.metadataClient(other)
		defer client.CloseIdleConnections()
		if got, err := askMetadata(client); err != nil || got != open.port.ID+" "+other.String() {
			t.Errorf("without port security: %q, %v", got, err)
		}
		refused := b.metadataClient(other)
		refused.Timeout = short
		if got, err := askMetadata(refused); err == nil {
			t.Errorf("another's address: answered %q", got)
		}
	})
	t.Run("other ports", func(t *testing.T) {
		if c, err := open.dial(flow.MetadataIPv4, 22, short); err == nil {
			c.Close()
			t.Error("TCP port 22 answers")
		}
		if open.answers(flow.MetadataIPv4) {
			t.Error("it answers pings")
		}
	})
	t.Run("flows", func(t *testing.T) {
		before := h.agent.engine.count.upcalls[1].Load()
		client := open.metadataClient(netip.Addr{})
		defer client.CloseIdleConnections()
		for range 100 { // over one connection
			if _, err := askMetadata(client); err != nil {
				t.Fatal(err)
			}
		}
		if n := h.agent.engine.count.upcalls[1].Load() - before; n > 20 {
			t.Errorf("%d packets of 100 requests went up to the agent", n)
		}
	})
}

// TestMetadataRestart: clients keep their addresses while agents come and go, and those of ports
// that have left meanwhile are given back; a link that an operator removes comes back.
func TestMetadataRestart(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	h.servesMetadata()
	n := l.network("red")
	l.start()
	stays, leaves := n.machine(h, l.group()), n.machine(h, l.group())
	client := func(m *machine) (flow.MetadataClient, netip.Addr) {
		c := flow.MetadataClient{PortID: m.port.ID, MAC: m.port.MACAddress, IP: m.v4, Via: flow.MetadataMAC}
		a, why := h.agent.engine.clients.peek(c)
		if why != "" {
			t.Fatal(why)
		}
		return c, a
	}
	for _, m := range []*machine{stays, leaves} {
		m.reachesMetadata()
		m.expectMetadata(m.v4)
	}
	_, before := client(stays)
	gone, reused := client(leaves)
	h.stop()
	l.put(leaves.owner(), nil)
	published := schema.StatePrefix + h.id + schema.MetadataKeyTail // by the service, not by the agent
	l.commit(store.Op{Key: published, Value: []byte("{}")})
	h.start()
	select {
	case <-h.agent.presence.Reported():
	case <-time.After(waitLimit):
		t.Fatal("the agent has not reported")
	}
	if _, err := l.st.Get(t.Context(), published); err != nil {
		t.Errorf("the service's key after a restart: %v", err)
	}
	stays.expectMetadata(stays.v4)
	if c, after := client(stays); after != before {
		t.Errorf("client %v has %s after a restart, and had %s", c, after, before)
	}
	l.wait("the address of a port that has left to be given back", func() bool {
		_, there := h.agent.engine.clients.find(reused)
		return !there
	})
	if next, why := h.agent.engine.clients.peek(gone); next == before || why != "" {
		t.Errorf("a new client would get %s, %s", next, why)
	}
	h.ns.MustIP(t, "link del "+metadataLink)
	l.wait("the link to come back", func() bool {
		c := stays.metadataClient(netip.Addr{})
		defer c.CloseIdleConnections()
		c.Timeout = short
		got, err := askMetadata(c)
		return err == nil && strings.HasPrefix(got, stays.port.ID)
	})
}

// TestMetadataOfMany: a hundred machines on networks with the same addresses that ask at once, each
// over two connections, are all answered, each as itself: many on a network, and one on each.
func TestMetadataOfMany(t *testing.T) {
	t.Parallel()
	const machines = 100
	for _, networks := range []int{2, machines} {
		t.Run(fmt.Sprintf("%d networks", networks), func(t *testing.T) {
			t.Parallel()
			askAtOnce(t, machines, networks)
		})
	}
}

func askAtOnce(t *testing.T, machines, networks int) {
	l := newLab(t, 1)
	h := l.hosts[0]
	h.servesMetadata()
	l.start()
	var all []*machine
	closed := l.group()
	for i := range networks {
		n := l.network(fmt.Sprint("n", i))
		for range machines / networks {
			m := n.port(h, closed)
			m.plug()
			m.bind()
			m.reachesMetadata()
			all = append(all, m)
		}
	}
	for _, m := range all {
		m.served()
	}
	all[0].expectMetadata(all[0].v4) // the service has begun
	var g errgroup.Group
	begun := time.Now()
	for _, m := range slices.Concat(all, all) {
		g.Go(func() error {
			client := m.metadataClient(netip.Addr{})
			defer client.CloseIdleConnections()
			got, err := askMetadata(client)
			if want := m.port.ID + " " + m.v4.String(); err == nil && got != want {
				err = fmt.Errorf("answer to port %s at %s: %q, want %q", m.port.ID, m.v4, got, want)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("%d requests of %d machines at once took %s", 2*machines, machines, time.Since(begun))
}
