//go:build storm

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/store/backend"
)

// TestXenAPIStorm makes faults at random in a pool under load: servers of the XenAPI, tunnel
// controllers and agents are killed and frozen, while pings between machines go on; then switches,
// their databases and hosts, too. After each round nothing that was acknowledged is lost, nothing
// is half-made, and all machines reach each other. In the end what was made is destroyed, and
// nothing is left of it.
//
//	scripts/storm xen [-storm 5m] [-storm-seed N]
func TestXenAPIStorm(t *testing.T) {
	t.Logf("seed %d", *stormSeed)
	s := newPoolStorm(t)
	for end := time.Now().Add(*stormTime); time.Now().Before(end); {
		s.round(t)
		if t.Failed() {
			return
		}
	}
	s.tearDown(t)
}

// poolStorm is a pool with its processes and a private network over all hosts, and what was
// acknowledged.
type poolStorm struct {
	*pool
	random      *rand.Rand
	servers     []*member // the first has the store open
	controllers []*member
	agents      []*member
	machines    []*netlab.Namespace
	transports  []string

	mu       sync.Mutex
	networks map[string]bool   // by UUID: whether it must be there; none: unknown
	tunnels  map[string]bool   // the same of tunnels, by their access PIFs, which xe prints
	history  map[string]string // of each object
	made     int
}

const poolHosts = 3

func newPoolStorm(t *testing.T) *poolStorm {
	p := startPool(t, poolHosts)
	s := &poolStorm{pool: p, random: rand.New(rand.NewPCG(*stormSeed, 2)), networks: map[string]bool{}, tunnels: map[string]bool{}, history: map[string]string{}}
	s.servers = []*member{{running: p.server, ns: p.lab.Fabric, alive: true, args: []string{"xapi", "--data", p.data, "--metrics", "127.0.0.1:9697",
		"--tls-listen", fabricIP + ":8443", "--agents-listen", fabricIP + ":2379", "--operator-listen", fabricIP + ":9698"}}}
	run := func(args ...string) *member {
		return &member{running: start(t, p.lab.Fabric, args...), ns: p.lab.Fabric, args: args, alive: true}
	}
	s.servers = append(s.servers, run("xapi", "--data", p.data, "--listen", "127.0.0.1:8081", "--tls-listen", "", "--metrics", "127.0.0.1:9694"))
	for i := range 2 {
		s.controllers = append(s.controllers, run("tunnel-controller", "--data", p.data, "--name", fmt.Sprint("c", i), "--metrics", fmt.Sprint("127.0.0.1:979", i),
			"--xapi", "http://127.0.0.1:8080,http://127.0.0.1:8081", "--password-file", filepath.Join(p.data, rootPasswordFile)))
	}
	network := p.xe("network-create", "name-label=private")
	bridge := p.xe("network-param-get", "uuid="+network, "param-name=bridge")
	s.networks[network] = true
	for i, h := range p.lab.Hosts() {
		s.agents = append(s.agents, &member{running: p.agents[i], ns: h.Space, args: p.agent(i), alive: true})
		s.transports = append(s.transports, p.transport(h))
		s.tunnels[p.xe("tunnel-create", "pif-uuid="+s.transports[i], "network-uuid="+network)] = true
		machine, port, err := h.Machine(fmt.Sprint("m", i), fmt.Sprintf("10.77.0.%d/24", i+1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Vsctl("add-port", bridge, port); err != nil {
			t.Fatal(err)
		}
		s.machines = append(s.machines, machine)
	}
	s.allReach(t)
	return s
}

func (s *poolStorm) allReach(t *testing.T) {
	t.Helper()
	for i, m := range s.machines {
		for j := range s.machines {
			within(t, fmt.Sprintf("machine %d to reach %d", i, j), func() bool {
				return i == j || m.Reach(t.Context(), fmt.Sprintf("10.77.0.%d", j+1)) == nil
			})
		}
	}
}

// round makes faults of the control plane, then of all, and looks at what is left.
func (s *poolStorm) round(t *testing.T) {
	over := make(chan struct{})
	var working sync.WaitGroup
	for w := range 2 {
		working.Go(func() { s.work(t, w, over) })
	}
	var pings []*netlab.Ping
	for i, m := range s.machines {
		p, err := m.Ping(fmt.Sprintf("10.77.0.%d", (i+1)%poolHosts+1))
		if err != nil {
			t.Fatal(err)
		}
		pings = append(pings, p)
	}
	for range 12 {
		s.processFault(t)
	}
	for i, p := range pings {
		longest, lost, err := p.End()
		t.Logf("ping from machine %d: %v silent at most, %d lost", i, longest, lost)
		if err != nil || longest > mostSilence {
			t.Errorf("ping from machine %d while processes died: %v silent, %v", i, longest, err)
		}
	}
	for range 12 {
		if s.random.IntN(2) == 0 {
			s.processFault(t)
		} else {
			s.hostFault(t)
		}
	}
	close(over)
	working.Wait()
	s.check(t)
}

func (s *poolStorm) say(t *testing.T, format string, args ...any) {
	t.Log(time.Now().Format("15:04:05.000 ") + fmt.Sprintf(format, args...))
}

// processFault kills a process of Heddle and starts it again, or freezes it for a while.
func (s *poolStorm) processFault(t *testing.T) {
	all := slices.Concat(s.servers, s.controllers, s.agents)
	m := all[s.random.IntN(len(all))]
	pause := time.Duration(s.random.IntN(3000)) * time.Millisecond
	what := strings.Join(m.args[:min(len(m.args), 4)], " ")
	if s.random.IntN(3) == 0 {
		if s.random.IntN(3) == 0 {
			pause = 12 * time.Second // longer than leases last
		}
		s.say(t, "freeze %s for %v", what, pause)
		err := m.cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(pause) // the length of the fault, not a wait
		if err := errors.Join(err, m.cmd.Process.Signal(syscall.SIGCONT)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return
	}
	s.say(t, "kill %s for %v", what, pause)
	select {
	case err := <-m.done:
		t.Errorf("%s had ended by itself: %v", what, err)
		m.done <- err
	default:
	}
	m.kill()
	time.Sleep(pause)
	m.running = start(t, m.ns, m.args...)
}

// hostFault breaks a switch, its database or a host, and mends it.
func (s *poolStorm) hostFault(t *testing.T) {
	i := s.random.IntN(poolHosts)
	h := s.lab.Hosts()[i]
	pause := time.Duration(s.random.IntN(4000)) * time.Millisecond
	freeze := func(f func(bool) error) (func() error, func() error) {
		return func() error { return f(true) }, func() error { return f(false) }
	}
	var harm, mend func() error
	var what string
	switch s.random.IntN(6) {
	case 0:
		what, harm, mend = "kill switch", h.KillSwitch, h.StartSwitch
	case 1:
		what, harm, mend = "kill database", h.KillDatabase, h.StartDatabase
	case 2:
		what, harm, mend = "kill host", h.Kill, h.Start
	case 3:
		what = "freeze switch"
		harm, mend = freeze(h.FreezeSwitch)
	case 4:
		what = "freeze database"
		harm, mend = freeze(h.FreezeDatabase)
	default:
		what = "cut"
		harm, mend = freeze(h.Cut)
	}
	s.say(t, "%s of %s for %v", what, h.Name, pause)
	err := harm()
	time.Sleep(pause) // the length of the fault, not a wait
	if err := errors.Join(err, mend()); err != nil {
		t.Errorf("%s of %s: %v", what, h.Name, err)
	}
}

// xeAt runs xe at one of the servers.
func (s *poolStorm) xeAt(t *testing.T, server int, args ...string) (string, bool) {
	out, code := output(t, s.lab.Fabric, append([]string{"xe", "-s", "127.0.0.1", "-p", fmt.Sprint(8080 + server), "--nossl", "-u", "root", "-pwf", s.passwordFile()}, args...)...)
	return strings.TrimSpace(out), code == 0
}

// note records that objects must be there or gone; an outcome that is not known is recorded as
// none.
func (s *poolStorm) note(all map[string]bool, uuid string, there, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history[uuid] += fmt.Sprintf("%s there %v known %v; ", time.Now().Format("15:04:05.000"), there, known)
	if s.made++; known {
		all[uuid] = there
	} else {
		delete(all, uuid)
	}
}

// work makes and destroys networks with tunnels at a server, until over is closed.
func (s *poolStorm) work(t *testing.T, server int, over chan struct{}) {
	random := rand.New(rand.NewPCG(*stormSeed, uint64(10+server)))
	for n := 0; ; n++ {
		select {
		case <-over:
			return
		default:
		}
		network, ok := s.xeAt(t, server, "network-create", fmt.Sprintf("name-label=w%d-%d", server, n))
		if !ok {
			continue
		}
		s.note(s.networks, network, true, true)
		var tunnels []string
		for _, host := range random.Perm(poolHosts)[:1+random.IntN(2)] {
			if made, ok := s.xeAt(t, server, "tunnel-create", "pif-uuid="+s.transports[host], "network-uuid="+network); ok {
				s.note(s.tunnels, made, true, true)
				tunnels = append(tunnels, made)
			}
		}
		if random.IntN(8) == 0 {
			continue // it stays
		}
		for _, access := range tunnels {
			one, ok := s.xeAt(t, server, "tunnel-list", "access-PIF="+access, "params=uuid", "--minimal")
			if !ok || one == "" {
				continue
			}
			_, ok = s.xeAt(t, server, "tunnel-destroy", "uuid="+one)
			s.note(s.tunnels, access, false, ok)
		}
		_, ok = s.xeAt(t, server, "network-destroy", "uuid="+network)
		s.note(s.networks, network, false, ok)
	}
}

// list returns the values of a field of a class; xe separates them by commas.
func (s *poolStorm) list(class, field string, more ...string) []string {
	s.t.Helper()
	out := s.xe(append([]string{class + "-list", "params=" + field, "--minimal"}, more...)...)
	if out == "" {
		return nil
	}
	return strings.Split(out, ",")
}

// check waits until the pool is whole again, and compares it with what was acknowledged.
func (s *poolStorm) check(t *testing.T) {
	t.Helper()
	s.allReach(t)
	for class, want := range map[string]map[string]bool{"network": s.networks, "pif": s.tunnels} {
		there := s.list(class, "uuid")
		for uuid, must := range want {
			if slices.Contains(there, uuid) != must {
				other, _ := s.xeAt(t, 1, class+"-list", "uuid="+uuid)
				t.Errorf("%s %s: it is there: %v, acknowledged: %v; the other server has: %s; %s\n%d listed", class, uuid, !must, must, other, s.history[uuid], len(there))
			}
		}
	}
	var devices, bad []string
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := netlab.Until(ctx, "all tunnels to be active", func() (bool, error) {
		bad = s.inactive()
		return len(bad) == 0, nil
	}); err != nil {
		t.Fatalf("%v: %q", err, bad)
	}
	tunnels := s.list("tunnel", "uuid")
	for _, d := range s.list("pif", "device") {
		if strings.HasPrefix(d, "tunnel") {
			devices = append(devices, d)
		}
	}
	if len(devices) != len(tunnels) {
		t.Errorf("%d tunnels have %d access PIFs", len(tunnels), len(devices))
	}
	if access := s.list("tunnel", "access-PIF"); slices.Contains(access, "") || len(access) != len(tunnels) {
		t.Errorf("tunnels without access PIFs: %q", access)
	}
	within(t, "orders and tasks to end", func() bool {
		return len(s.keys(t, "/heddle/xen/orders/"))+len(s.keys(t, "/heddle/xen/running/"))+len(s.list("task", "uuid", "status=pending")) == 0
	})
	s.bridges(t)
	s.say(t, "whole: %d outcomes so far, %d networks, %d tunnels", s.made, len(s.list("network", "uuid")), len(tunnels))
}

// inactive returns the tunnels that are not active and should be. A host alone on its network has
// none to be active with.
func (s *poolStorm) inactive() (all []string) {
	s.t.Helper()
	network := map[string]string{} // by access PIF
	members := map[string]int{}    // by network
	for _, pif := range s.records("pif-list", "params=uuid,network-uuid,device") {
		if strings.HasPrefix(pif["device"], "tunnel") {
			network[pif["uuid"]] = pif["network-uuid"]
			members[pif["network-uuid"]]++
		}
	}
	for _, one := range s.records("tunnel-list", "params=uuid,access-PIF,status") {
		if alone := members[network[one["access-PIF"]]] == 1; alone == strings.Contains(one["status"], "active: true") {
			all = append(all, fmt.Sprint(one, " of ", members[network[one["access-PIF"]]]))
		}
	}
	return all
}

// records returns what xe lists, by field.
func (s *poolStorm) records(args ...string) (all []map[string]string) {
	s.t.Helper()
	for _, text := range strings.Split(s.xe(args...), "\n\n") {
		one := map[string]string{}
		for _, line := range strings.Split(text, "\n") {
			name, value, _ := strings.Cut(line, ":")
			name, _, _ = strings.Cut(name, "(")
			if name = strings.TrimSpace(name); name != "" {
				one[name] = strings.TrimSpace(value)
			}
		}
		if len(one) > 0 {
			all = append(all, one)
		}
	}
	return all
}

// keys returns what the store holds below a prefix.
func (s *poolStorm) keys(t *testing.T, prefix string) []string {
	t.Helper()
	st, err := backend.OpenRunning(t.Context(), s.data, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	kvs, _, err := st.List(t.Context(), prefix)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, kv := range kvs {
		all = append(all, kv.Key)
	}
	return all
}

// bridges waits until each host has those of its tunnels, and no others.
func (s *poolStorm) bridges(t *testing.T) {
	t.Helper()
	for _, h := range s.lab.Hosts() {
		want := map[string]bool{"br-phy": true}
		host := s.xe("host-list", "name-label="+h.Name, "params=uuid", "--minimal")
		for _, network := range s.list("pif", "network-uuid", "host-uuid="+host, "currently-attached=true") {
			if b := s.xe("network-param-get", "uuid="+network, "param-name=bridge"); strings.HasPrefix(b, "xapi") {
				want[b] = true
			}
		}
		wanted := slices.Sorted(maps.Keys(want))
		var got []string
		within(t, fmt.Sprintf("%s to have the bridges %v", h.Name, wanted), func() bool {
			out, vsctl := h.Vsctl("list-br")
			got = slices.Sorted(slices.Values(strings.Fields(out)))
			return vsctl == nil && slices.Equal(got, wanted)
		})
	}
}

// tearDown destroys everything, and looks for what is left.
func (s *poolStorm) tearDown(t *testing.T) {
	for _, uuid := range s.list("tunnel", "uuid") {
		s.xe("tunnel-destroy", "uuid="+uuid)
	}
	for uuid := range s.networks {
		if s.networks[uuid] {
			s.xe("network-destroy", "uuid="+uuid)
		}
	}
	s.bridges(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // keys are in quarantine for a minute
	defer cancel()
	var left []string
	if err := netlab.Until(ctx, "the controllers to forget all networks", func() (bool, error) {
		left = s.keys(t, "/heddle/xen/controller/networks/")
		return len(left) == 0, nil
	}); err != nil {
		t.Errorf("%v: %q", err, left)
	}
	for _, h := range s.lab.Hosts() {
		if out, err := h.Vsctl("show"); err != nil || strings.Contains(out, "type: gre") || strings.Contains(out, "type: vxlan") {
			t.Errorf("legs left on %s: %v\n%s", h.Name, err, out)
		}
	}
}
