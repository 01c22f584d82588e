package services

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"heddle/internal/bgp"
	"heddle/internal/hostnet"
	"heddle/internal/netlab"
	"heddle/internal/neutron"
	"heddle/internal/services/plan"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// TestMain makes this test binary the speaker that agents start.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == SpeakerCommand {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		l, err := net.FileListener(os.NewFile(3, "agents"))
		if err == nil {
			err = bgp.ServeRouter(ctx, bgp.RouterOptions{Listener: l, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// speakerAddress is the address of a lab's router for sessions. It is on no network: peers reach it
// by the router.
const speakerAddress = "192.0.2.200"

// secondSpeakerAddress is another one.
const secondSpeakerAddress = "192.0.2.201"

// speakingRouter is a router on the network of a lab, which speaks BGP with machines of it.
type speakingRouter struct {
	lab                          *lab
	id, container, network, port string
	speaker                      topology.BgpSpeaker
	peers                        []topology.BgpPeer
}

// routerMAC is the MAC address of a lab's router on the network.
var routerMAC = packet.MAC{0xfa, 0x16, 0x3e, 0, 3, 1}

func (l *lab) speakingRouter() *speakingRouter {
	l.t.Helper()
	r := &speakingRouter{lab: l, id: uuid.NewString(), container: uuid.NewString(), network: uuid.NewString(), port: uuid.NewString()}
	own := netip.MustParsePrefix("10.0.0.1/24")
	inner := uuid.NewString()
	l.put("router", r.id, &topology.Bundle{
		Routers: []topology.Router{{ID: r.id, AdminStateUp: true}},
		Ports: []topology.Port{{ID: inner, NetworkID: l.net.ID, AdminStateUp: true},
			{ID: r.network, RouterID: r.id, AdminStateUp: true, PeerID: inner, PortMAC: routerMAC, PortAddress: own.Addr(), PortSubnet: []netip.Prefix{own}}},
		Routes: []topology.Route{
			{ID: uuid.NewString(), SrcSubnet: anywhere, DstSubnet: l.subnet.CIDR, NextHop: topology.HopPort, NextHopPortID: r.network, Weight: 100}},
	})
	c := &topology.Bundle{
		ServiceContainers: []topology.ServiceContainer{{ID: r.container, ServiceType: topology.ContainerBGP, PortID: r.port, ConfigurationID: r.id}},
		Ports: []topology.Port{{ID: r.port, RouterID: r.id, AdminStateUp: true, TunnelKey: 3<<20 + 2, PortMAC: packet.MAC{0xfa, 0x16, 0x3e, 0, 3, 2},
			PortAddress: netip.MustParseAddr("169.254.0.5"), PortSubnet: []netip.Prefix{netip.MustParsePrefix("169.254.0.5/30")}}},
		Routes: []topology.Route{
			{ID: uuid.NewString(), SrcSubnet: anywhere, DstSubnet: netip.MustParsePrefix("169.254.0.4/30"), NextHop: topology.HopPort, NextHopPortID: r.port, Weight: 100},
			{ID: uuid.NewString(), SrcSubnet: anywhere, DstSubnet: netip.MustParsePrefix(speakerAddress + "/31"), NextHop: topology.HopPort, NextHopPortID: r.port, Weight: 100}},
	}
	schema.BindContainer(c, nil, nil)
	l.put(topology.ContainerOwner, r.container, c)
	r.speaker = topology.BgpSpeaker{RouterID: r.id, ContainerID: r.container, ASNumber: 64512, Identifier: netip.MustParseAddr(speakerAddress),
		Announced: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")},
		Links:     []topology.BgpLink{{PortID: r.network, Subnets: []netip.Prefix{l.subnet.CIDR}}}}
	l.t.Cleanup(r.logSpeakers)
	return r
}

// logSpeakers logs what the router's speakers have logged, if the test has failed.
func (r *speakingRouter) logSpeakers() {
	for _, h := range r.lab.hosts {
		if text, err := os.ReadFile(filepath.Join(r.dir(h), speakerOutput)); err == nil && r.lab.t.Failed() {
			r.lab.t.Logf("log of the speaker on %s:\n%s", h.name, text)
		}
	}
}

// dir returns the directory of the router's container on a host.
func (r *speakingRouter) dir(h *testHost) string {
	return filepath.Join(h.dir, "services", plan.NamespacePrefix(topology.ContainerBGP)+r.container[:11])
}

// peer adds a peer.
func (r *speakingRouter) peer(at netip.Addr, as uint32, password string) (id string) {
	r.lab.t.Helper()
	id = uuid.NewString()
	r.peers = append(r.peers, topology.BgpPeer{ID: id, RouterID: r.id, Address: at, ASNumber: as, Password: password, ConnectRetry: 2, HoldTime: 9, KeepAlive: 3})
	r.speaker.Sessions = append(r.speaker.Sessions, topology.BgpSession{PeerID: id, LocalAddress: netip.MustParseAddr(speakerAddress), PortID: r.network})
	r.write()
	return id
}

// write stores what the router's speaker has to do, and the passwords of its peers for the host
// that runs it.
func (r *speakingRouter) write() {
	r.lab.t.Helper()
	peers, speaker := slices.Clone(r.peers), &neutron.BGPSpeaker{Standard: neutron.Standard{ID: r.id}, RouterID: r.id}
	for i := range peers {
		peers[i].Password = ""
		speaker.PeerIDs = append(speaker.PeerIDs, peers[i].ID)
	}
	r.lab.put(topology.RouterBGPOwner, r.id, &topology.Bundle{BgpSpeakers: []topology.BgpSpeaker{r.speaker}, BgpPeers: peers})
	_, err := r.lab.db.Update(r.lab.t.Context(), func(tx *records.Tx) error {
		err := schema.Routers.Put(tx, &neutron.Router{Standard: neutron.Standard{ID: r.id}})
		for i := range r.peers {
			p := &neutron.BGPPeer{Standard: neutron.Standard{ID: r.peers[i].ID}, Password: r.peers[i].Password}
			err = errors.Join(err, schema.BGPPeers.Put(tx, p))
		}
		err = errors.Join(err, schema.BGPSpeakers.Put(tx, speaker))
		if b, bound := schema.ContainerBindings.Peek(tx, r.container); bound {
			err = errors.Join(err, schema.GiveBGPPasswords(tx, r.id, b.HostID))
		}
		return err
	})
	if err != nil {
		r.lab.t.Fatal(err)
	}
}

// remove removes all the router has of BGP.
func (r *speakingRouter) remove() {
	r.lab.put(topology.RouterBGPOwner, r.id, nil)
	r.lab.put(topology.ContainerOwner, r.container, nil)
}

// place returns the host of the router's container, nil for none.
func (r *speakingRouter) place() *testHost {
	c, ok := schema.ContainerBindings.Peek(r.lab.now(), r.container)
	for _, h := range r.lab.hosts {
		if ok && h.id == c.HostID {
			return h
		}
	}
	return nil
}

// session returns the state of a session as the hosts report it.
func (r *speakingRouter) session(peer string) topology.BgpPeerState {
	for s := range schema.BGPStates.By(r.lab.now(), "router", r.id) {
		for _, p := range s.Peers {
			if p.PeerID == peer {
				return p
			}
		}
	}
	return topology.BgpPeerState{}
}

func (r *speakingRouter) waitUp(peer string) {
	r.lab.t.Helper()
	r.lab.wait("the session with "+peer, func() bool { return r.session(peer).State == topology.BgpEstablished })
}

// learned returns the routes by the router's port on the network, as the hosts report them.
func (r *speakingRouter) learned() (routes map[netip.Prefix]netip.Addr) {
	routes = map[netip.Prefix]netip.Addr{}
	for l := range schema.LearnedRoutes.By(r.lab.now(), "port", r.network) {
		for _, x := range l.Routes {
			routes[x.Dst] = x.Gateway
		}
	}
	return routes
}

// speakerPID returns the process id of the router's speaker on a host, or 0.
func (r *speakingRouter) speakerPID(h *testHost) (pid int) {
	raw, _ := os.ReadFile(filepath.Join(r.dir(h), speakerPID))
	pid, _ = strconv.Atoi(string(raw))
	if pid == 0 || syscall.Kill(pid, 0) != nil {
		return 0
	}
	return pid
}

// testBird is BIRD in a namespace.
type testBird struct {
	t       testing.TB
	ns      *netlab.Namespace
	control string
	config  string
}

// bird starts BIRD on a machine of the lab's network, with the router as its gateway.
func (l *lab) bird(ns *netlab.Namespace, config string) *testBird {
	t := l.t
	t.Helper()
	if _, err := exec.LookPath("bird"); err != nil {
		t.Skip("needs bird: apt-get install bird2")
	}
	ns.MustIP(t, "route add default via 10.0.0.1")
	dir, err := os.MkdirTemp("", "hbird") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &testBird{t, ns, filepath.Join(dir, "ctl"), filepath.Join(dir, "conf")}
	b.write(config)
	log := &netlab.Log{}
	cmd := exec.Command("bird", "-f", "-c", b.config, "-s", b.control)
	cmd.Stdout, cmd.Stderr = log, log
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("log of bird\n%s", log)
		}
	})
	l.wait("bird to answer", func() bool { return strings.Contains(b.ask("show status"), "Daemon is up") })
	return b
}

func (b *testBird) write(config string) {
	b.t.Helper()
	const head = "log stderr all;\nrouter id 192.0.2.1;\nprotocol device {}\nprotocol kernel { ipv4 { export none; }; learn; }\n"
	if err := os.WriteFile(b.config, []byte(head+config), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// ask puts a question to BIRD. While it does not listen yet the answer is the failure.
func (b *testBird) ask(question string) string {
	out, err := b.ns.Output(b.t.Context(), "birdc", append([]string{"-s", b.control}, strings.Fields(question)...)...)
	if err != nil {
		return err.Error()
	}
	return out
}

// has reports whether BIRD has a route by BGP.
func (b *testBird) has(dst string) bool {
	return strings.Contains(b.ask("show route protocol heddle for "+strings.Split(dst, "/")[0]), dst)
}

// settled reports whether BIRD has a session, and in it all that it had in an earlier one.
func (b *testBird) settled() bool {
	state := b.ask("show protocols all heddle")
	return strings.Contains(state, "Established") && !strings.Contains(state, "graceful restart active")
}

const birdSession = `protocol bgp heddle { local as 65001; neighbor ` + speakerAddress + ` as 64512; multihop; %s
	connect delay time 1; connect retry time 1; error wait time 1, 2; hold time 9; graceful restart; ipv4 { import all; export where source = RTS_STATIC; }; }
protocol static { ipv4; route 198.51.100.0/25 blackhole; route 10.0.0.128/25 blackhole; route 198.51.100.128/25 blackhole; }
`

// TestRouting: a container speaks BGP for a router with BIRD, behind the virtual network. What it
// learns and the states of its sessions are reported; the process outlives the agent, what it has
// learned the process, and another host takes over from one that is lost.
func TestRouting(t *testing.T) {
	l := newLabOf(t, 2, 15*time.Second) // in which an agent starts again
	at, ns := l.machine(l.hosts[0])
	r := l.speakingRouter()
	b := l.bird(ns, fmt.Sprintf(birdSession, `password "right";`))
	id := r.peer(at, 65001, "wrong")
	l.wait("the wrong password to be said", func() bool { return strings.Contains(r.session(id).LastError, "another MD5 password") })
	r.peers[0].Password = "right"
	r.write()
	r.waitUp(id)
	l.wait("the router's network", func() bool { return b.has("203.0.113.0/24") })
	want := func() bool {
		all := r.learned()
		return len(all) == 2 && all[netip.MustParsePrefix("198.51.100.0/25")] == at && all[netip.MustParsePrefix("198.51.100.128/25")] == at
	}
	// The third is in a subnet of the router itself, once that is a tenant's.
	l.wait("three routes", func() bool { return len(r.learned()) == 3 })
	r.speaker.Links[0].Tenant = true
	r.write()
	l.wait("the router's own to be refused", want)
	l.wait("the count of the refused", func() bool {
		s := r.session(id)
		return s.Received == 2 && s.Refused == 1 && s.Advertised == 1 && strings.Contains(s.LastError, "1 in a subnet of the router itself")
	})

	host := r.place()
	pid := r.speakerPID(host)
	t.Log("its rights")
	wantUnprivileged(t, pid)
	t.Log("another agent")
	host.stop()
	host.start()
	l.wait("the container to run", func() bool {
		s, ok := schema.ContainerStates.Peek(l.now(), host.id+"/"+r.container)
		return ok && s.Status == topology.ContainerRunning
	})
	if now := r.speakerPID(host); now != pid {
		t.Errorf("after a restart of the agent the speaker is process %d, want %d as before", now, pid)
	}
	if !want() {
		t.Errorf("after a restart of the agent the routes are %v", r.learned())
	}

	t.Log("another speaker")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	l.wait("another speaker", func() bool {
		if !want() {
			t.Fatalf("after the end of the speaker the routes are %v", r.learned())
		}
		if !b.has("203.0.113.0/24") {
			t.Fatal("after the end of the speaker BIRD has dropped its route")
		}
		now := r.speakerPID(host)
		return now != 0 && now != pid
	})
	r.waitUp(id)

	t.Log("a speaker that cannot be adopted")
	pid = r.speakerPID(host)
	host.stop()
	if err := os.Remove(filepath.Join(r.dir(host), speakerSocket)); err != nil {
		t.Fatal(err)
	}
	host.start()
	l.wait("the speaker to be replaced", func() bool { now := r.speakerPID(host); return now != 0 && now != pid })
	r.waitUp(id)

	t.Log("a host is lost")
	other := l.hosts[0]
	if host == other {
		other = l.hosts[1]
	}
	host.stop()
	l.wait("another host to take over", func() bool { return r.place() == other })
	if host == l.hosts[1] { // else the peer is gone with the host
		r.waitUp(id)
		l.wait("the router's routes", want)
		l.wait("the router's network", func() bool { return b.has("203.0.113.0/24") })
	}
	host.start()
	l.wait("the former host to end its speaker", func() bool { return r.speakerPID(host) == 0 })

	t.Log("no peer")
	r.remove()
	l.wait("the speaker to end", func() bool { return r.speakerPID(other) == 0 })
	l.wait("the reports to end", func() bool { return len(r.learned()) == 0 && r.session(id).State == "" })
	l.wait("the namespace to go", func() bool {
		names, err := hostnet.NamedNamespaces(plan.NamespacePrefix(topology.ContainerBGP) + r.container[:11])
		return err == nil && len(names) == 0
	})
}

// wantUnprivileged checks that a process may listen on port 179 and can gain no other right.
func wantUnprivileged(t *testing.T, pid int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		got[name] = strings.Join(strings.Fields(value), " ")
	}
	const bindService = "0000000000000400" // CAP_NET_BIND_SERVICE alone
	for name, want := range map[string]string{"Uid": "65533 65533 65533 65533", "Gid": "65533 65533 65533 65533", "Groups": "", "NoNewPrivs": "1",
		"CapPrm": bindService, "CapEff": bindService, "CapAmb": bindService} {
		if value, there := got[name]; !there || value != want {
			t.Errorf("%s of the speaker is %q, want %q", name, value, want)
		}
	}
}

// TestRoutingPeerRemoved: a peer withdraws at once what it has learned when it is removed with the
// only session from an address of the router. Another peer keeps its session.
func TestRoutingPeerRemoved(t *testing.T) {
	l := newLab(t, 1)
	r := l.speakingRouter()
	stays, staysNS := l.machine(l.hosts[0])
	goes, goesNS := l.machine(l.hosts[0])
	// Hold timers do not expire in the test.
	config := strings.Replace(fmt.Sprintf(birdSession, `password "right";`), "hold time 9", "hold time 240", 1)
	one, two := l.bird(staysNS, config), l.bird(goesNS, strings.Replace(config, speakerAddress, secondSpeakerAddress, 1))
	kept := r.peer(stays, 65001, "right")
	removed := r.peer(goes, 65001, "right")
	for i := range r.peers {
		r.peers[i].HoldTime, r.peers[i].KeepAlive = 240, 80
	}
	r.speaker.Sessions[1].LocalAddress = netip.MustParseAddr(secondSpeakerAddress)
	r.write()
	r.waitUp(kept)
	r.waitUp(removed)
	l.wait("the router's network", func() bool { return one.has("203.0.113.0/24") && two.has("203.0.113.0/24") })
	since := r.session(kept).Since
	// What is unread when gobgp closes the connection turns the end into a reset, and BIRD does not
	// read the NOTIFICATION then. After these withdrawals it has nothing more to send.
	l.wait("the peer's routes", func() bool { return r.session(removed).Received == 3 })
	two.ask("disable static1")
	l.wait("their withdrawal", func() bool { return r.session(removed).Received == 0 })

	r.peers, r.speaker.Sessions = r.peers[:1], r.speaker.Sessions[:1]
	r.write()
	l.wait("the withdrawal by the removed peer", func() bool { return !two.has("203.0.113.0/24") })
	if s := r.session(kept); s.State != topology.BgpEstablished || !s.Since.Equal(since) {
		t.Errorf("the other session is %s since %s; want it established since %s", s.State, s.Since, since)
	}
	l.wait("the address of the removed session to go", func() bool {
		return !slices.Contains(r.loopback(), netip.MustParsePrefix(secondSpeakerAddress+"/32"))
	})

	// A session that the agent has begin anew is down without an error.
	r.peers[0].KeepAlive = 70
	r.write()
	l.wait("the session to begin anew", func() bool { return strings.Contains(l.hosts[0].log.String(), "BGP session down") })
	if strings.Contains(l.hosts[0].log.String(), `reason=""`) {
		t.Error("the agent has logged an empty reason; want none")
	}
}

// TestRoutingLastPeerRemoved: peers withdraw at once what they have learned also when all are
// removed. The container goes after that, unless a peer is added first.
func TestRoutingLastPeerRemoved(t *testing.T) {
	l := newLab(t, 1)
	r := l.speakingRouter()
	at, ns := l.machine(l.hosts[0])
	b := l.bird(ns, strings.Replace(fmt.Sprintf(birdSession, `password "right";`), "hold time 9", "hold time 240", 1))
	for _, last := range []bool{false, true} {
		id := r.peer(at, 65001, "right")
		r.peers[0].HoldTime, r.peers[0].KeepAlive = 240, 80
		r.write()
		r.waitUp(id)
		l.wait("the router's network", func() bool { return b.has("203.0.113.0/24") })
		pid := r.speakerPID(l.hosts[0])
		r.peers, r.speaker.Sessions = nil, nil
		r.write()
		l.wait("the withdrawal", func() bool { return !b.has("203.0.113.0/24") })
		if now := r.speakerPID(l.hosts[0]); !last && now != pid {
			t.Errorf("the speaker is process %d, want %d until its sessions have ended", now, pid)
		}
	}
	l.wait("the container to go", func() bool {
		_, container := schema.Bundles.Peek(l.now(), schema.ContainerBundleID(r.container))
		_, router := schema.Bundles.Peek(l.now(), schema.RouterBGPBundleID(r.id))
		return !container && !router && r.place() == nil && r.speakerPID(l.hosts[0]) == 0
	})
}

// TestRoutingSpeakerHangs: a speaker that is stopped is replaced, by the agent that has started it
// and by one that has adopted it. What both ends have learned stays in use, and peers do not wait
// for the hold time.
func TestRoutingSpeakerHangs(t *testing.T) {
	l := newLabOf(t, 1, 15*time.Second) // in which an agent starts again
	r := l.speakingRouter()
	at, ns := l.machine(l.hosts[0])
	b := l.bird(ns, strings.Replace(fmt.Sprintf(birdSession, ""), "hold time 9", "hold time 600", 1))
	id := r.peer(at, 65001, "")
	r.peers[0].HoldTime, r.peers[0].KeepAlive = 600, 200
	r.write()
	r.waitUp(id)
	l.wait("the routes of both ends", func() bool { return b.has("203.0.113.0/24") && len(r.learned()) == 3 })

	host := l.hosts[0]
	for _, who := range []string{"the agent that has started it", "an agent that has adopted it"} {
		t.Log(who)
		pid := r.speakerPID(host)
		if who == "an agent that has adopted it" {
			host.stop()
		}
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if who == "an agent that has adopted it" {
			host.start()
		}
		l.wait("the state of the session to say so", func() bool { return strings.Contains(r.session(id).LastError, "hangs") })
		l.wait("another speaker", func() bool {
			if n := len(r.learned()); n != 3 {
				t.Fatalf("%d routes are learned; want 3", n)
			}
			if !b.has("203.0.113.0/24") {
				t.Fatal("BIRD has dropped its route")
			}
			now := r.speakerPID(host)
			return now != 0 && now != pid
		})
		r.waitUp(id)
		l.wait("BIRD to settle", b.settled)
	}
}

// loopback returns the addresses of the loopback interface in the container.
func (r *speakingRouter) loopback() []netip.Prefix {
	t := r.lab.t
	t.Helper()
	names, err := hostnet.NamedNamespaces(plan.NamespacePrefix(topology.ContainerBGP) + r.container[:11])
	if err != nil || len(names) != 1 {
		t.Fatalf("namespaces of the container: %v, %v; want one", names, err)
	}
	ns, err := hostnet.OpenNamespace(names[0])
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	net, err := hostnet.NewLinux(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer net.Close()
	addresses, err := net.Addresses("lo")
	if err != nil {
		t.Fatal(err)
	}
	return addresses
}
