package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"heddle/internal/hostnet"
	"heddle/internal/netlab"
	"heddle/internal/services/plan"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/topology"
)

// servicesStorm makes faults at random in a cloud with all services, under traffic, and notes what
// they do to it.
type servicesStorm struct {
	*servicesCloud
	servicesStormOptions
	random *rand.Rand
	faults int

	visitors []*visitor
	flows    []*longFlow
	outages  [3]periods // of each host's agent
	cuts     [3]periods // of each host
	verdicts periods    // that say that a member is down
	moves    periods    // of containers, and hosts that were found dead
}

type servicesStormOptions struct {
	seed    uint64
	longest time.Duration // of a fault
	// settle bounds the time after which all is well again: a lease, a restart of a routing
	// session, and what a busy machine needs.
	settle time.Duration
	// timed has it judge the length of interruptions too, which a very busy machine prolongs.
	timed bool
}

func newServicesStorm(t *testing.T, o servicesStormOptions) *servicesStorm {
	t.Helper()
	t.Logf("seed %d", o.seed)
	s := &servicesStorm{servicesCloud: newServicesCloud(t), servicesStormOptions: o, random: rand.New(rand.NewPCG(o.seed, 3))}
	s.objects.OnChange(s.note)
	s.follow()
	if s.checkAll(); t.Failed() {
		t.FailNow()
	}
	return s
}

// note notes members that are found down, hosts that are found dead and containers that move.
func (s *servicesStorm) note(u snapshot.Update) {
	for _, c := range u.Changed {
		if h, ok := c.New.(*topology.MemberHealth); ok && h.Status == topology.MemberInactive {
			s.verdicts.add(span{h.MemberID, h.Since, time.Now()})
		}
		now := time.Now()
		switch c.Source {
		case schema.HostStates.Name():
			if c.Old != nil && c.New == nil {
				s.moves.add(span{"host " + c.ID + " was found dead", now, now})
			}
		case schema.ContainerBindings.Name():
			if c.Old != nil && c.New != nil {
				s.moves.add(span{"container " + c.ID + " was moved", now, now})
			}
		}
	}
}

// run makes so many faults under traffic, and then looks at what they have done.
func (s *servicesStorm) run(faults int) {
	s.visitors, s.flows = nil, nil
	ctx, stop := context.WithCancel(s.t.Context())
	var waits []func()
	for _, at := range s.visited() {
		v, wait := visit(ctx, s.client, at)
		s.visitors, waits = append(s.visitors, v), append(waits, wait)
	}
	for i, network := range []string{"tcp4", "udp4"} {
		s.flows = append(s.flows, openFlow(s.t, s.client, network, fmt.Sprintf("10.0.0.%d:%d", 11+i, longPort)))
	}
	for enough := s.faults + faults; s.faults < enough && !s.t.Failed(); {
		s.round()
	}
	s.until(s.stalled())
	stop()
	for _, wait := range waits {
		wait()
	}
	for _, f := range s.flows {
		f.hear(time.Now())
		f.conn.Close()
	}
	s.checkAll()
	if s.timed {
		s.checkTraffic()
		s.checkVerdicts()
	}
}

// stalled returns a condition: that all traffic goes on.
func (s *servicesStorm) stalled() func() string {
	begin := time.Now()
	served := make([]int64, len(s.visitors))
	for i, v := range s.visitors {
		served[i] = v.served.Load()
	}
	return func() string {
		for i, v := range s.visitors {
			if v.served.Load() == served[i] {
				return "no connection to " + v.at + " since the last fault"
			}
		}
		for _, f := range s.flows {
			if !f.heard().After(begin) {
				return f.what + " has been silent since the last fault"
			}
		}
		return ""
	}
}

// fault is a failure of a part of the cloud. begin begins it and returns what ends it.
type fault struct {
	target string // of which there is one fault at a time
	what   string
	begin  func() (end func())
	alone  bool // no other fault goes with it
}

// round makes one fault, or two at a time.
func (s *servicesStorm) round() {
	all := s.possible()
	var chosen []fault
	for range 1 + s.random.IntN(2) {
		f := all[s.random.IntN(len(all))]
		if !slices.ContainsFunc(chosen, func(o fault) bool { return o.target == f.target }) {
			chosen = append(chosen, f)
		}
	}
	if i := slices.IndexFunc(chosen, func(f fault) bool { return f.alone }); i >= 0 {
		chosen = chosen[i : i+1]
	}
	var ends []func()
	for _, f := range chosen {
		s.t.Logf("%s %s: %s", time.Now().Format("15:04:05.000"), f.target, f.what)
		ends = append(ends, f.begin())
		s.faults++
	}
	s.random.Shuffle(len(ends), func(i, j int) { ends[i], ends[j] = ends[j], ends[i] })
	for _, end := range ends {
		s.pause(s.longest / time.Duration(len(ends)))
		end()
	}
	s.pause(2 * time.Second)
	s.server.waitReady(s.t)
	for i := range s.hosts {
		s.agents[i].waitReady(s.t)
		s.outages[i].finish()
		s.cuts[i].finish()
	}
}

// pause lets a fault last for a while.
func (s *servicesStorm) pause(longest time.Duration) {
	s.sleep(time.Duration(s.random.Int64N(int64(longest))))
}

func (s *servicesStorm) sleep(d time.Duration) {
	select {
	case <-s.t.Context().Done():
	case <-time.After(d):
	}
}

func (s *servicesStorm) possible() (all []fault) {
	for i, h := range s.hosts {
		name := fmt.Sprintf("h%d", i+1)
		all = append(all,
			fault{target: name, what: "agent killed", begin: func() func() { return s.killAgent(i) }},
			fault{target: name, what: "agent frozen", begin: func() func() { s.outages[i].begin(name); return s.freeze(s.agents[i].cmd.Process) }},
			fault{target: name, what: "lost", begin: func() func() { return s.loseHost(i, h) }},
			fault{target: name, what: "cut off briefly", begin: func() func() { return s.cutBriefly(i) }, alone: true})
	}
	for i, b := range s.birds {
		name := fmt.Sprintf("bird %d", i+1)
		all = append(all,
			fault{target: name, what: "killed", begin: func() func() { b.kill(); return b.start }},
			fault{target: name, what: "frozen", begin: func() func() { return s.freeze(b.cmd.Process) }})
	}
	must := func(do func() error) func() {
		return func() {
			if err := do(); err != nil {
				s.t.Error(err)
			}
		}
	}
	after := func(do func() error, end func() error) func() func() {
		return func() func() { must(do)(); return must(end) }
	}
	return append(all,
		fault{target: "server", what: "killed", begin: s.killServer},
		fault{target: "server", what: "frozen", begin: func() func() { return s.freeze(s.server.cmd.Process) }},
		fault{target: "haproxy", what: "killed", begin: func() func() { return s.kill(s.processes(topology.ContainerHAProxy)) }},
		fault{target: "haproxy", what: "frozen", begin: func() func() { return s.freeze(s.processes(topology.ContainerHAProxy)...) }},
		fault{target: "speaker", what: "killed", begin: func() func() { return s.kill(s.processes(topology.ContainerBGP)) }},
		fault{target: "speaker", what: "frozen", begin: func() func() { return s.freeze(s.processes(topology.ContainerBGP)...) }},
		fault{target: "switch", what: "database killed", begin: after(s.sw.KillDatabase, s.sw.StartDatabase)},
		fault{target: "switch", what: "database frozen", begin: after(func() error { return s.sw.FreezeDatabase(true) }, func() error { return s.sw.FreezeDatabase(false) })},
		fault{target: "switch", what: "daemon killed", begin: after(s.sw.KillSwitch, s.restartSwitch)},
		fault{target: "switch", what: "emulator killed", begin: after(s.sw.KillEmulator, s.sw.StartEmulator)})
}

// restartSwitch starts the switch, and its emulator anew: that does not notice that its flows are
// gone.
func (s *servicesStorm) restartSwitch() error {
	return errors.Join(s.sw.StartSwitch(), s.sw.KillEmulator(), s.sw.StartEmulator())
}

func (s *servicesStorm) killServer() func() {
	s.server.kill()
	return func() { s.server = launch(s.t, s.ctl, s.serveArgs()...) }
}

func (s *servicesStorm) killAgent(i int) func() {
	s.outages[i].begin("")
	s.agents[i].kill()
	return func() { s.agents[i] = launch(s.t, s.hosts[i].ns, s.args[i]...) }
}

// loseHost cuts a host off and takes all from its kernel, as a reboot does.
func (s *servicesStorm) loseHost(i int, h *host) func() {
	s.cuts[i].begin("")
	start := s.killAgent(i)
	s.setLink(i, "down")
	succeed(s.t, h.ns, "agent", "--cleanup", "--name", h.name, "--state", h.state)
	return func() {
		s.setLink(i, "up")
		start()
	}
}

func (s *servicesStorm) setLink(i int, to string) {
	s.ctl.MustIP(s.t, fmt.Sprintf("link set h%d %s", i+1, to))
}

// cutBriefly cuts a host off for less than its lease. In the end nothing has moved.
func (s *servicesStorm) cutBriefly(i int) (end func()) {
	if s.timed {
		s.sleep(schema.HostLease / 2) // leases have been renewed since the last fault, or have ended
	}
	s.until(s.wrongContainers)
	begin := time.Now()
	s.cuts[i].begin("")
	s.setLink(i, "down")
	s.pause(schema.HostLease / 3) // the lease may have been renewed a third of its time before
	s.setLink(i, "up")
	s.cuts[i].finish()
	length := time.Since(begin)
	return func() {
		if !s.timed {
			return
		}
		s.sleep(time.Until(begin.Add(schema.HostLease))) // a lease that was not renewed ends now
		for _, m := range s.moves.list() {
			if m.end.After(begin) && length < schema.HostLease/2 {
				s.t.Errorf("%s, though h%d was cut off for %s only", m, i+1, length)
			}
		}
	}
}

// processes returns those of a container of a kind.
func (s *servicesStorm) processes(kind string) (all []*os.Process) {
	var names []string
	for b := range schema.ContainerBindings.All(s.now()) {
		names = append(names, plan.NamespacePrefix(kind)+b.ContainerID[:11])
	}
	slices.Sort(names)
	s.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		ns, err := hostnet.OpenNamespace(name)
		if err != nil {
			continue // of another kind, or lost with its host
		}
		pids, err := ns.Processes()
		ns.Close()
		if err != nil {
			s.t.Error(err)
		}
		for _, pid := range pids {
			if p, err := os.FindProcess(pid); err == nil {
				all = append(all, p)
			}
		}
		if len(all) > 0 {
			return all
		}
	}
	return nil
}

// kill kills processes, or one of them, say haproxy's master or its worker.
func (s *servicesStorm) kill(all []*os.Process) func() {
	if len(all) > 0 && s.random.IntN(2) == 0 {
		all = all[s.random.IntN(len(all)):][:1]
	}
	for _, p := range all {
		_ = p.Kill() // it may have ended
	}
	return func() {}
}

func (s *servicesStorm) freeze(all ...*os.Process) func() {
	for _, p := range all {
		_ = p.Signal(syscall.SIGSTOP) // it may have ended
	}
	return func() {
		for _, p := range all {
			_ = p.Signal(syscall.SIGCONT)
		}
	}
}

// outageGrace is the time after an outage in which its host's checks and connections may fail.
const outageGrace = 15 * time.Second

// until waits until a condition holds that returns "" or what is wrong.
func (s *servicesStorm) until(cond func() string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), s.settle)
	defer cancel()
	wrong := ""
	err := netlab.Until(ctx, "", func() (bool, error) { wrong = cond(); return wrong == "", nil })
	if err != nil {
		s.t.Errorf("after %s: %s", s.settle, wrong)
	}
}

// checkAll waits until all services are as if there had been no fault.
func (s *servicesStorm) checkAll() {
	s.t.Helper()
	begun := time.Now()
	for _, cond := range []func() string{s.wrongContainers, s.wrongMembers, s.wrongStatuses, s.wrongRoutes, s.wrongPeers, s.wrongGateway, s.wrongTap, s.wrongLog} {
		s.until(cond)
	}
	s.until(s.wrongLeftovers)
	s.t.Logf("all services are as they should be after %s", time.Since(begun).Round(time.Millisecond))
}

// wrongContainers compares the containers with their places.
func (s *servicesStorm) wrongContainers() string {
	r, placed := s.now(), map[string]string{}
	for b := range schema.ContainerBindings.All(r) {
		placed[b.ContainerID] = b.HostID
	}
	running := 0
	for state := range schema.ContainerStates.All(r) {
		if placed[state.ContainerID] != state.HostID || state.Status != topology.ContainerRunning {
			return fmt.Sprintf("container %+v, placed on %s", *state, placed[state.ContainerID])
		}
		running++
	}
	if want := len(s.balancers) + 1; running != want || len(placed) != want {
		return fmt.Sprintf("%d containers run, %d are placed, want %d", running, len(placed), want)
	}
	return ""
}

// wrongMembers looks for members that are not found up by one host alone.
func (s *servicesStorm) wrongMembers() string {
	for _, b := range s.balancers {
		for i, m := range b.members {
			var all []string
			for h := range schema.MemberHealths.By(s.now(), "member", m) {
				all = append(all, h.Status)
			}
			if len(all) != 1 || all[0] != topology.MemberActive {
				return fmt.Sprintf("member %d of balancer %s is %v", i+1, b.vip, all)
			}
		}
	}
	return ""
}

// wrongStatuses asks the API.
func (s *servicesStorm) wrongStatuses() string {
	for _, b := range s.balancers {
		var answer struct {
			LoadBalancer struct {
				Status string `json:"operating_status"`
			} `json:"loadbalancer"`
		}
		if err := s.octavia().call(s.t.Context(), "GET", "/v2.0/lbaas/loadbalancers/"+b.id, nil, &answer); err != nil {
			return err.Error()
		}
		if got := answer.LoadBalancer.Status; got != "ONLINE" {
			return "balancer " + b.vip + " is " + got
		}
	}
	return ""
}

// wrongRoutes compares the routes that hosts go by with what the machines outside announce.
func (s *servicesStorm) wrongRoutes() string {
	var want, got []string
	for _, b := range s.birds {
		want = append(want, beyond+"/32 via "+b.address, "0.0.0.0/0 via "+b.address)
	}
	for l := range schema.LearnedRoutes.All(s.now()) {
		for _, r := range l.Routes {
			got = append(got, fmt.Sprintf("%v via %v", r.Dst, r.Gateway))
		}
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		return fmt.Sprintf("learned routes %q, want %q", got, want)
	}
	if !pings(s.t, s.client, beyond) {
		return "what is announced is not reached"
	}
	return ""
}

// wrongPeers looks at the routes of the machines outside.
func (s *servicesStorm) wrongPeers() string {
	for _, b := range s.birds {
		if !strings.Contains(b.route(blueCIDR), "via "+b.router) {
			return b.address + " has no route to " + blueCIDR
		}
		if !pings(s.t, b.ns, "10.0.0.30", "-I", b.address) {
			return "no answer to " + b.address
		}
	}
	return ""
}

// wrongGateway compares what the switch and the hosts know of each other.
func (s *servicesStorm) wrongGateway() string {
	_, _ = s.behind.Output(s.t.Context(), "ping", "-c1", "-W0.2", "10.77.0.99") // has the switch learn
	link, err := s.behind.Output(s.t.Context(), "ip", "-br", "link", "show", "eth0")
	if err != nil {
		return err.Error()
	}
	var remotes []string
	for l := range schema.LearnedRemotes.All(s.now()) {
		if l.VTEP != s.sw.Address {
			return fmt.Sprintf("%v is behind %v", l.MAC, l.VTEP)
		}
		remotes = append(remotes, l.MAC.String())
	}
	want := []string{strings.Fields(link)[2], "ff:ff:ff:ff:ff:ff"}
	slices.Sort(want)
	if slices.Sort(remotes); !slices.Equal(remotes, want) {
		return fmt.Sprintf("behind the switch are %q, want %q", remotes, want)
	}
	switches, err := s.sw.VTEPctl("list-ls")
	if err != nil {
		return err.Error()
	}
	known, err := s.sw.VTEPctl("list-remote-macs", strings.TrimSpace(switches))
	if err != nil || !strings.Contains(known, greenMAC) || !strings.Contains(known, "unknown-dst") {
		return fmt.Sprintf("the switch knows %q, %v", known, err)
	}
	return ""
}

// wrongTap looks whether the monitor sees what the client sends.
func (s *servicesStorm) wrongTap() string {
	before, err := received(s.monitor)
	if err != nil {
		return err.Error()
	}
	for range 3 {
		_ = pings(s.t, s.client, "10.0.0.11")
	}
	if after, err := received(s.monitor); err != nil || after < before+6 {
		return fmt.Sprintf("the monitor has got %d packets of three pings, %v", after-before, err)
	}
	return ""
}

// wrongLog reads the log of the group, whose lines have to be whole, and looks whether it has a new
// connection.
func (s *servicesStorm) wrongLog() string {
	c, err := dialer(s.client)(s.t.Context(), "tcp4", s.logged)
	if err != nil {
		return err.Error()
	}
	port := c.LocalAddr().(*net.TCPAddr).Port
	c.Close()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
	defer cancel()
	err = netlab.Until(ctx, "", func() (bool, error) {
		lines, err := s.logLines()
		return slices.ContainsFunc(lines, func(l logLine) bool { return l.SrcPort == port }), err
	})
	if err != nil {
		return fmt.Sprintf("the log has no connection from port %d: %v", port, err)
	}
	return ""
}

// received returns the packets that a machine has received.
func received(ns *netlab.Namespace) (n int, err error) {
	text, err := ns.Output(context.Background(), "ip", "-s", "-o", "link", "show", "eth0")
	if err != nil {
		return 0, err
	}
	_, counts, _ := strings.Cut(text, "missed")
	_, counts, _ = strings.Cut(counts, `\`)
	var bytes int
	_, err = fmt.Sscan(counts, &bytes, &n)
	return n, err
}

// wrongLeftovers looks for links, namespaces and files of containers that are elsewhere.
func (s *servicesStorm) wrongLeftovers() string {
	placed := map[string]int{}
	for b := range schema.ContainerBindings.All(s.now()) {
		placed[b.HostID]++
	}
	total := 0
	for i, h := range s.hosts {
		links, err := h.ns.Output(s.t.Context(), "ip", "-br", "link", "show", "type", "veth")
		if err != nil {
			return err.Error()
		}
		files, err := os.ReadDir(h.state + "/services")
		if err != nil && !os.IsNotExist(err) {
			return err.Error()
		}
		here := strings.Count(links, "hct")
		if here != len(files) {
			return fmt.Sprintf("h%d has %d links and %d directories of containers", i+1, here, len(files))
		}
		total += here
	}
	want := 0
	for _, n := range placed {
		want += n
	}
	if total != want {
		return fmt.Sprintf("hosts have %d containers, want %d", total, want)
	}
	return ""
}

// loseMember ends a member's service, and starts it again.
func (s *servicesStorm) loseMember() {
	s.t.Helper()
	id := s.balancers[0].members[0]
	is := func(status string) func() string {
		return func() string {
			for h := range schema.MemberHealths.By(s.now(), "member", id) {
				if h.Status == status {
					return ""
				}
			}
			return "a member is not " + status
		}
	}
	s.members[0].stop()
	s.until(is(topology.MemberInactive))
	s.members[0].start()
	s.until(is(topology.MemberActive))
}

// tearDown deletes all services through the API, and waits until nothing is left of them.
func (s *servicesStorm) tearDown() {
	s.t.Helper()
	for _, h := range s.hosts {
		succeed(s.t, h.ns, "doctor", "--config", "")
	}
	remove := func(c *client, path string) {
		if err := c.call(s.t.Context(), http.MethodDelete, path, nil, nil); err != nil {
			s.t.Error(err)
		}
	}
	for _, b := range s.balancers {
		remove(s.octavia(), "/v2.0/lbaas/loadbalancers/"+b.id+"?cascade=true")
	}
	for _, path := range slices.Backward(s.owned) {
		remove(s.api, path)
	}
	s.until(s.remains)
	s.until(s.wrongLeftovers)
	verify(s.t, openData(s.t, s.data))
}

// remains returns what is left of services in the store and beyond.
func (s *servicesStorm) remains() string {
	r := s.now()
	for what, n := range map[string]int{
		"containers' places": len(slices.Collect(schema.ContainerBindings.All(r))), "containers' states": len(slices.Collect(schema.ContainerStates.All(r))),
		"verdicts": len(slices.Collect(schema.MemberHealths.All(r))), "learned routes": len(slices.Collect(schema.LearnedRoutes.All(r))),
		"BGP sessions": len(slices.Collect(schema.BGPStates.All(r))), "addresses behind switches": len(slices.Collect(schema.LearnedRemotes.All(r))),
		"switches": len(slices.Collect(schema.GatewayStates.All(r))),
	} {
		if n > 0 {
			return fmt.Sprintf("%d %s are left", n, what)
		}
	}
	for _, b := range s.birds {
		if b.route(blueCIDR) != "" {
			return b.address + " has a route of a speaker that is deleted"
		}
	}
	return s.switchRemains()
}

// switchRemains returns what is left at the switch.
func (s *servicesStorm) switchRemains() string {
	if out, err := s.sw.VTEPctl("list-ls"); err != nil || strings.Contains(out, "heddle-") {
		return fmt.Sprintf("the switch has %q, %v", out, err)
	}
	return ""
}

// checkTraffic reports connections that have failed, and silences of flows, without a reason.
func (s *servicesStorm) checkTraffic() {
	s.t.Helper()
	for _, v := range s.visitors {
		for _, failed := range v.list() {
			if !overlaps(failed, &s.outages[0], &s.outages[1], &s.outages[2], &s.cuts[0], &s.cuts[1], &s.cuts[2]) {
				s.t.Error(failed)
			}
		}
		s.t.Logf("%s: %d connections served, %d failed", v.at, v.served.Load(), len(v.list()))
	}
	for i, f := range s.flows {
		for _, silent := range f.list() {
			if !overlaps(silent, &s.cuts[i], &s.cuts[2]) {
				s.t.Error(silent)
			}
		}
	}
}

// checkVerdicts reports members that were found down while they and their hosts were up. A host
// that is cut off finds the others' members down, as they find its own.
func (s *servicesStorm) checkVerdicts() {
	s.t.Helper()
	for _, v := range s.verdicts.list() {
		for _, b := range s.balancers {
			if i := slices.Index(b.members, v.what); i >= 0 && !overlaps(v, &s.outages[i], &s.cuts[0], &s.cuts[1], &s.cuts[2]) {
				s.t.Errorf("member %d of balancer %s, which was up, was found down at %s", i+1, b.vip, v.begin.Format("15:04:05.000"))
			}
		}
	}
	s.t.Logf("%d faults, %d times a member was found down", s.faults, len(s.verdicts.list()))
}

// overlaps reports whether a span overlaps one of the others, or begins soon after one.
func overlaps(s span, others ...*periods) bool {
	for _, o := range others {
		for _, one := range o.list() {
			if s.begin.Before(one.end.Add(outageGrace)) && s.end.After(one.begin) {
				return true
			}
		}
	}
	return false
}

// TestServicesFaults makes a few faults in a cloud with all services, one or two at a time, under
// traffic: see servicesStorm. All services come back, and traffic goes on. Then it ends a member,
// and deletes all services.
func TestServicesFaults(t *testing.T) {
	t.Parallel()
	s := newServicesStorm(t, servicesStormOptions{seed: 1, longest: 3 * time.Second, settle: 5 * time.Minute})
	s.run(6)
	s.loseMember()
	s.tearDown()
}
