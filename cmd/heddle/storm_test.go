//go:build storm

package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/netlab"
	"heddle/internal/store/storetest"
)

var (
	stormTime = flag.Duration("storm", 10*time.Minute, "how long faults are made")
	stormSeed = flag.Uint64("storm-seed", uint64(time.Now().UnixNano()), "what the choice of faults rests on")
)

const (
	// mostSilence bounds the silence of an established flow whose hosts are connected.
	mostSilence = 500 * time.Millisecond
	// cutGrace bounds the silence of flows after a cut link is restored: TCP's retransmission
	// timeout has doubled meanwhile.
	cutGrace   = 6 * time.Second
	stormHosts = 3
)

// TestStorm makes faults at random, one after the other, under load: servers, agents and members of
// a cluster of three are killed and frozen, hosts are cut off, disks run full. In the end nothing
// that was acknowledged is lost, nothing is half-made or stale, no forbidden packet arrived, and no
// established flow was silent but where a link was cut.
//
//	scripts/storm [-storm 10m] [-storm-seed N]
func TestStorm(t *testing.T) {
	t.Logf("seed %d", *stormSeed)
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("storm", disk, "tmpfs", 0, "size=4g"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	t.Setenv("TMPDIR", disk) // where the members keep their data
	s := newStorm(t, disk)
	s.run(t)
	s.settle(t)
}

// storm is the site with its processes, and what was observed.
type storm struct {
	*site
	disk    string
	random  *rand.Rand
	etcd    *storetest.Cluster
	down    [storetest.Members]bool
	servers []*member
	agents  []*member
	hosts   []*host
	vms     []*netlab.Namespace // by host
	admin   *client
	book    *ledger
	flows   []*flowWatch

	forbidden atomic.Int64

	mu   sync.Mutex
	cuts []cut
	log  []string // of faults
}

// member is a heddle process that is killed and started again.
type member struct {
	*running
	ns    *netlab.Namespace
	args  []string
	alive bool
}

// cut is a time in which a host was cut off.
type cut struct {
	host       int
	begin, end time.Time
}

func newStorm(t *testing.T, disk string) *storm {
	s := &storm{site: newSite(t), disk: disk, random: rand.New(rand.NewPCG(*stormSeed, 1)), book: newLedger()}
	addresses := [storetest.Members]string{"192.0.2.2", "192.0.2.3", "192.0.2.4"}
	for _, a := range addresses {
		s.ctl.MustIP(t, "addr add "+a+"/32 dev underlay")
	}
	s.etcd = storetest.Start(t, storetest.Options{Addresses: addresses, Start: func(cmd *exec.Cmd) error { return s.ctl.Start(cmd) }})
	s.etcd.Protect(t)
	for i, address := range []string{"127.0.0.1", "127.0.0.2"} {
		data := s.data
		if i > 0 {
			data = t.TempDir()
		}
		args := serveAt(address, data, append(flags(s.etcd), "--operator-listen", fmt.Sprintf("192.0.2.%d:9698", 5+i), "--allow-plain-http",
			"--hosts-ca-cert", filepath.Join(s.etcd.Dir, "ca.crt"), "--hosts-ca-key", filepath.Join(s.etcd.Dir, "ca.key"))...)
		s.ctl.MustIP(t, fmt.Sprintf("addr add 192.0.2.%d/32 dev underlay", 5+i))
		s.servers = append(s.servers, &member{running: start(t, s.ctl, args...), ns: s.ctl, args: args, alive: true})
	}
	s.admin = login(t, s.ctl, "127.0.0.1", s.data)
	s.admin.unlimited(t)
	for i := range stormHosts {
		h := s.addHost(t, fmt.Sprintf("h%d", i), fmt.Sprintf("192.0.2.1%d", i))
		args := h.agent("--join-plain-http")
		s.agents = append(s.agents, &member{running: start(t, h.ns, append(args, "--join", s.token(t))...), ns: h.ns, args: args, alive: true})
		s.hosts = append(s.hosts, h)
	}
	s.plug(t)
	return s
}

// plug makes two workloads a host that may talk to each other, flows between all hosts, and one
// that may reach no other.
func (s *storm) plug(t *testing.T) {
	network := s.admin.mustCreate(t, "network", map[string]any{"name": "storm"})
	s.admin.mustCreate(t, "subnet", map[string]any{"network_id": network.ID, "ip_version": 4, "cidr": "10.0.0.0/24"})
	friends := s.admin.mustCreate(t, "security_group", map[string]any{"name": "friends"})
	for _, protocol := range []string{"tcp", "udp"} {
		s.admin.mustCreate(t, "security_group_rule", map[string]any{"security_group_id": friends.ID, "direction": "ingress",
			"protocol": protocol, "port_range_min": 7000, "port_range_max": 7000, "remote_group_id": friends.ID})
	}
	strangers := s.admin.mustCreate(t, "security_group", map[string]any{"name": "strangers"})
	plugIn := func(name string, host int, last int, group string) *netlab.Namespace {
		port := s.admin.mustCreate(t, "port", map[string]any{"network_id": network.ID, "binding:host_id": s.hosts[host].name, "device_owner": "compute:me",
			"mac_address": fmt.Sprintf("02:00:00:00:01:%02x", last), "fixed_ips": []map[string]any{{"ip_address": fmt.Sprintf("10.0.0.%d", last)}},
			"security_groups": []string{group}})
		vm := s.lab.MustNamespace(t, name)
		vm.MustIP(t, fmt.Sprintf("link add eth0 address 02:00:00:00:01:%02x type veth peer name tap%s netns %s", last, port.ID[:11], s.hosts[host].ns.Name),
			"link set eth0 up", fmt.Sprintf("addr add 10.0.0.%d/24 dev eth0", last))
		s.hosts[host].ns.MustIP(t, "link set tap"+port.ID[:11]+" up")
		return vm
	}
	for i := range stormHosts {
		vm := plugIn(fmt.Sprintf("vm%d", i), i, 10+i, friends.ID)
		s.vms = append(s.vms, vm)
		s.echo(t, vm, fmt.Sprintf("10.0.0.%d:7000", 10+i))
	}
	for i := range stormHosts {
		to := (i + 1) % stormHosts
		for _, network := range []string{"udp4", "tcp4"} {
			s.flows = append(s.flows, s.watch(t, s.vms[i], network, i, to, fmt.Sprintf("10.0.0.%d:7000", 10+to)))
		}
	}
	stranger := plugIn("stranger", 0, 99, strangers.ID)
	s.trespass(t, stranger)
}

// strangerIP is the address of the workload that may reach no other.
const strangerIP = "10.0.0.99"

// echo answers what comes, by UDP and TCP, and counts what came from the stranger.
func (s *storm) echo(t *testing.T, vm *netlab.Namespace, at string) {
	err := vm.Do(func() error {
		udp, err := net.ListenPacket("udp4", at)
		if err != nil {
			return err
		}
		tcp, err := net.Listen("tcp4", at)
		if err != nil {
			return err
		}
		t.Cleanup(func() {
			udp.Close()
			tcp.Close()
		})
		go func() {
			buf := make([]byte, 2048)
			for {
				n, from, err := udp.ReadFrom(buf)
				if err != nil {
					return
				}
				s.count(from)
				_, _ = udp.WriteTo(buf[:n], from) // a lost answer is what the flow notes
			}
		}()
		go func() {
			for {
				c, err := tcp.Accept()
				if err != nil {
					return
				}
				s.count(c.RemoteAddr())
				t.Cleanup(func() { c.Close() })
				go func() {
					buf := make([]byte, 2048)
					for {
						n, err := c.Read(buf)
						if err != nil {
							return
						}
						if _, err := c.Write(buf[:n]); err != nil {
							return
						}
					}
				}()
			}
		}()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (s *storm) count(from net.Addr) {
	if strings.HasPrefix(from.String(), strangerIP+":") {
		s.forbidden.Add(1)
	}
}

// trespass has the stranger send to all workloads for as long as the test runs.
func (s *storm) trespass(t *testing.T, stranger *netlab.Namespace) {
	for i := range stormHosts {
		var c net.Conn
		err := stranger.Do(func() (err error) {
			c, err = net.Dial("udp4", fmt.Sprintf("10.0.0.%d:7000", 10+i))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		go func() {
			for {
				if _, err := c.Write([]byte("forbidden")); err != nil && strings.Contains(err.Error(), "closed") {
					return
				}
				time.Sleep(10 * time.Millisecond) // the rate of the load, not a wait
			}
		}()
	}
}

// flowWatch is an established flow that sends every 10 ms, and notes its silences.
type flowWatch struct {
	what     string
	from, to int // hosts
	conn     net.Conn

	mu       sync.Mutex
	last     time.Time
	silences []cut // longer than mostSilence
	longest  time.Duration
	answers  int
}

func (s *storm) watch(t *testing.T, vm *netlab.Namespace, network string, from, to int, at string) *flowWatch {
	f := &flowWatch{what: fmt.Sprintf("%s h%d-h%d", network, from, to), from: from, to: to}
	within(t, f.what+" to be established", func() bool {
		return vm.Do(func() error {
			c, err := net.DialTimeout(network, at, time.Second)
			if err != nil {
				return err
			}
			buf := make([]byte, 64)
			_, err1 := c.Write([]byte("first"))
			err2 := c.SetReadDeadline(time.Now().Add(time.Second))
			_, err3 := c.Read(buf)
			if err1 != nil || err2 != nil || err3 != nil {
				c.Close()
				return fmt.Errorf("%v %v %v", err1, err2, err3)
			}
			f.conn = c
			return c.SetReadDeadline(time.Time{})
		}) == nil
	})
	t.Cleanup(func() { f.conn.Close() })
	f.last = time.Now()
	go func() {
		for {
			if _, err := f.conn.Write([]byte("datagram")); err != nil && strings.Contains(err.Error(), "closed") {
				return
			}
			time.Sleep(10 * time.Millisecond) // the rate of the load, not a wait
		}
	}()
	go func() {
		buf := make([]byte, 4096)
		for {
			if _, err := f.conn.Read(buf); err != nil {
				if strings.Contains(err.Error(), "closed") || network == "tcp4" {
					return
				}
				continue
			}
			f.answered(time.Now())
		}
	}()
	return f
}

func (f *flowWatch) answered(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	silence := now.Sub(f.last)
	if silence > mostSilence {
		f.silences = append(f.silences, cut{begin: f.last, end: now})
	}
	f.longest, f.last, f.answers = max(f.longest, silence), now, f.answers+1
}

// fault notes what is done.
func (s *storm) fault(t *testing.T, format string, args ...any) {
	line := time.Now().Format("15:04:05.000 ") + fmt.Sprintf(format, args...)
	s.mu.Lock()
	s.log = append(s.log, line)
	s.mu.Unlock()
	t.Log(line)
}

// run makes faults under load until the time is over.
func (s *storm) run(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), *stormTime)
	defer stop()
	servers := []*client{s.admin, newClient(s.ctl, "127.0.0.2", s.admin.token)}
	var load sync.WaitGroup
	for w := range 2 {
		load.Go(func() { s.book.load(ctx, t, w, servers...) })
	}
	faults := []func(context.Context, *testing.T){s.killServer, s.killAgent, s.killAgent, s.killMember, s.freeze, s.freezeMember, s.cutHost, s.fillDisk}
	for ctx.Err() == nil {
		faults[s.random.IntN(len(faults))](ctx, t)
		pauseFor(ctx, time.Duration(500+s.random.IntN(2500))*time.Millisecond)
	}
	load.Wait()
}

// pauseFor waits between faults.
func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (s *storm) killServer(ctx context.Context, t *testing.T) {
	i := s.random.IntN(len(s.servers))
	s.fault(t, "server %d killed", i)
	s.servers[i].kill()
	pauseFor(ctx, time.Duration(s.random.IntN(2000))*time.Millisecond)
	s.servers[i].running = launch(t, s.servers[i].ns, s.servers[i].args...)
}

func (s *storm) killAgent(ctx context.Context, t *testing.T) {
	i := s.random.IntN(len(s.agents))
	s.fault(t, "agent of h%d killed", i)
	s.agents[i].kill()
	// Neighbours are forgotten, so that somebody has to answer for them.
	if err := s.vms[i].IP("neigh flush dev eth0"); err != nil {
		t.Error(err)
	}
	pauseFor(ctx, time.Duration(s.random.IntN(8000))*time.Millisecond)
	s.agents[i].running = launch(t, s.agents[i].ns, s.agents[i].args...)
}

func (s *storm) killMember(ctx context.Context, t *testing.T) {
	i := s.random.IntN(storetest.Members)
	s.fault(t, "member %d killed", i)
	s.etcd.Kill(i)
	pauseFor(ctx, time.Duration(s.random.IntN(5000))*time.Millisecond)
	s.etcd.Restart(t)
}

func (s *storm) freeze(ctx context.Context, t *testing.T) {
	all := append(append([]*member{}, s.servers...), s.agents...)
	i := s.random.IntN(len(all))
	s.fault(t, "%s %d frozen", all[i].args[0], i)
	s.signal(all[i].cmd.Process, syscall.SIGSTOP)
	pauseFor(ctx, time.Duration(500+s.random.IntN(6000))*time.Millisecond)
	s.signal(all[i].cmd.Process, syscall.SIGCONT)
}

func (s *storm) freezeMember(ctx context.Context, t *testing.T) {
	i := s.random.IntN(storetest.Members)
	s.fault(t, "member %d frozen", i)
	s.etcd.Signal(i, syscall.SIGSTOP)
	pauseFor(ctx, time.Duration(500+s.random.IntN(6000))*time.Millisecond)
	s.etcd.Signal(i, syscall.SIGCONT)
}

func (s *storm) signal(p *os.Process, sig syscall.Signal) {
	_ = p.Signal(sig) // it may have ended
}

func (s *storm) cutHost(ctx context.Context, t *testing.T) {
	i := s.random.IntN(len(s.hosts))
	s.fault(t, "h%d cut off", i)
	c := cut{host: i, begin: time.Now()}
	s.ctl.MustIP(t, fmt.Sprintf("link set h%d down", i))
	pauseFor(ctx, time.Duration(200+s.random.IntN(5000))*time.Millisecond)
	s.ctl.MustIP(t, fmt.Sprintf("link set h%d up", i))
	c.end = time.Now()
	s.mu.Lock()
	s.cuts = append(s.cuts, c)
	s.mu.Unlock()
}

// fillDisk fills the members' disk to the last byte. Members that end are started again when there
// is space.
func (s *storm) fillDisk(ctx context.Context, t *testing.T) {
	s.fault(t, "the members' disk is full")
	file := filepath.Join(s.disk, "ballast")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	chunk := make([]byte, 1<<20)
	for err == nil {
		_, err = f.Write(chunk)
	}
	f.Close()
	pauseFor(ctx, time.Duration(1000+s.random.IntN(5000))*time.Millisecond)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	for i := range storetest.Members {
		if !s.etcd.Runs(i) {
			t.Logf("member %d ended while the disk was full", i)
			s.etcd.Kill(i)
		}
	}
	s.etcd.Restart(t)
}

// settle waits until all is up again and compares what is there with what should be.
func (s *storm) settle(t *testing.T) {
	s.etcd.Restart(t)
	for _, m := range append(append([]*member{}, s.servers...), s.agents...) {
		s.signal(m.cmd.Process, syscall.SIGCONT)
		m.waitReady(t)
	}
	before := make([]int, len(s.flows))
	for i, f := range s.flows {
		f.mu.Lock()
		before[i] = f.answers
		f.mu.Unlock()
	}
	for i, f := range s.flows {
		within(t, f.what+" to go on", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.answers > before[i]
		})
	}
	again := login(t, s.ctl, "127.0.0.1", s.data)
	s.book.check(t, again)
	verify(t, openCluster(t, s.etcd))
	s.checkFlows(t)
	if n := s.forbidden.Load(); n > 0 {
		t.Errorf("%d forbidden packets arrived", n)
	}
	for i, a := range s.agents {
		within(t, "the agent to have looked at its flows", func() bool { return s.figure(t, a, "heddle_overlay_flows_verified_total") > 0 })
		if n := s.figure(t, a, "heddle_overlay_flows_different_total"); n > 0 {
			t.Errorf("h%d: %v flows were stale", i, n)
		}
	}
	t.Logf("%d calls acknowledged, %d faults", s.book.calls.Load(), len(s.log))
}

// checkFlows reports silences that no cut explains.
func (s *storm) checkFlows(t *testing.T) {
	for _, f := range s.flows {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, silence := range f.silences {
			if !s.excused(f, silence) {
				t.Errorf("%s was silent for %s at %s", f.what, silence.end.Sub(silence.begin).Round(time.Millisecond), silence.begin.Format("15:04:05.000"))
			}
		}
		t.Logf("%s: %d answers, longest silence %s", f.what, f.answers, f.longest.Round(time.Millisecond))
	}
}

// excused reports whether one of the flow's hosts was cut off shortly before or during the silence.
func (s *storm) excused(f *flowWatch, silence cut) bool {
	for _, c := range s.cuts {
		if (c.host == f.from || c.host == f.to) && silence.begin.Before(c.end.Add(cutGrace)) && silence.end.After(c.begin) {
			return true
		}
	}
	return false
}

// figure reads a number from a process's metrics; with labels, their sum.
func (s *storm) figure(t *testing.T, m *member, name string) (sum float64) {
	t.Helper()
	_, text, err := m.page(t.Context(), "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`(?m)^`+name+`(?:\{[^}]*\})? (\S+)$`).FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}
