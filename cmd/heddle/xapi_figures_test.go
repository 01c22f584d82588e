package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"heddle/internal/netlab"
	"heddle/internal/ovsdb"
	xenapi "heddle/internal/xen/client"
	"heddle/internal/xen/model"
	"heddle/internal/xen/ovs"
)

// privateNetwork is a network of a pool of real processes, with a tunnel and a machine on each
// host, under a running controller.
type privateNetwork struct {
	*pool
	api        *xenapi.Session
	controller *running
	network    string   // ref
	tunnels    []string // refs, by host
	machines   []*netlab.Namespace
	hosts      []string // UUIDs
}

// poolTimeout bounds what the pool is waited for.
const poolTimeout = time.Minute

// startNetwork makes the pool and the network, whose preferred center is the first host.
func startNetwork(t testing.TB, hosts int, network model.Record) *privateNetwork {
	t.Helper()
	n := &privateNetwork{pool: startPool(t, hosts)}
	n.api = n.session()
	n.controller = n.control()
	for _, h := range n.lab.Hosts() {
		n.hosts = append(n.hosts, n.hostUUID(h))
	}
	network["name_label"] = "private"
	network["other_config"] = map[string]string{"heddle:preferred-center": n.hosts[0]}
	n.network = n.call("network.create", network).(string)
	bridge := n.call("network.get_bridge", n.network).(string)
	for i, h := range n.lab.Hosts() {
		n.tunnels = append(n.tunnels, n.call("tunnel.create", n.transportRef(h), n.network).(string))
		machine, port, err := h.Machine(fmt.Sprintf("m%d", i+1), machineIP(i)+"/24")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Vsctl("add-port", bridge, port); err != nil {
			t.Fatal(err)
		}
		n.machines = append(n.machines, machine)
	}
	n.awaitActive(n.all()...)
	for i := range n.machines {
		n.reach((i+1)%hosts, i)
	}
	return n
}

func machineIP(host int) string { return fmt.Sprintf("10.77.0.%d", host+1) }

// control starts the tunnel controller.
func (p *pool) control() *running {
	p.t.Helper()
	return start(p.t, p.lab.Fabric, "tunnel-controller", "--data", p.data, "--metrics", "127.0.0.1:9693",
		"--password-file", filepath.Join(p.data, rootPasswordFile))
}

// session is one of root's in this process.
func (p *pool) session() *xenapi.Session {
	p.t.Helper()
	password, err := os.ReadFile(filepath.Join(p.data, rootPasswordFile))
	if err != nil {
		p.t.Fatal(err)
	}
	s, err := xenapi.Dial(p.t.Context(), xenapi.Options{URL: "http://" + relay(p.t, p.lab.Fabric, "127.0.0.1:8080"), User: "root",
		Password: strings.TrimSpace(string(password)), JSON: true})
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// relay is an address of this machine that leads to one in the namespace.
func relay(t testing.TB, ns *netlab.Namespace, to string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	pass := func(here net.Conn) {
		defer here.Close()
		var there net.Conn
		err := ns.Do(func() (err error) {
			there, err = net.Dial("tcp", to)
			return err
		})
		if err != nil {
			return // who asks sees the connection end
		}
		go func() {
			_, _ = io.Copy(there, here)
			there.Close()
		}()
		_, _ = io.Copy(here, there)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go pass(c)
		}
	}()
	return l.Addr().String()
}

func (n *privateNetwork) call(method string, args ...any) any {
	n.t.Helper()
	return call(n.t, n.api, method, args...)
}

func call(t testing.TB, s *xenapi.Session, method string, args ...any) any {
	t.Helper()
	v, err := s.Call(t.Context(), method, args...)
	if err != nil {
		t.Fatalf("%s %v: %v", method, args, err)
	}
	return v
}

// awaitObjects waits until the objects of some classes are as they should be, and says when that
// was.
func awaitObjects(t testing.TB, s *xenapi.Session, what string, classes []string, cond func(xenapi.Objects) bool) time.Time {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), poolTimeout)
	defer cancel()
	done := errors.New("so it is")
	var last xenapi.Objects
	err := s.Follow(ctx, classes, func(all xenapi.Objects, _ []xenapi.Event) error {
		if last = all; cond(all) {
			return done
		}
		return nil
	})
	if !errors.Is(err, done) {
		t.Fatalf("wait for %s: %v: %v", what, err, last)
	}
	return time.Now()
}

// hostUUID is the UUID of a host of the lab.
func (n *privateNetwork) hostUUID(h *netlab.OVSHost) string {
	n.t.Helper()
	return n.call("host.get_uuid", n.call("host.get_by_name_label", h.Name).([]string)[0]).(string)
}

// transportRef is a host's PIF with its transport address, once the host has reported it.
func (n *privateNetwork) transportRef(h *netlab.OVSHost) string {
	n.t.Helper()
	return transportRefs(n.t, n.api, []*netlab.OVSHost{h})[0]
}

func transportRefs(t testing.TB, s *xenapi.Session, hosts []*netlab.OVSHost) []string {
	t.Helper()
	refs := make([]string, len(hosts))
	awaitObjects(t, s, "the hosts' PIFs", []string{"PIF"}, func(all xenapi.Objects) bool {
		for ref, r := range all["PIF"] {
			for i, h := range hosts {
				if r["IP"] == h.Address.String() {
					refs[i] = ref
				}
			}
		}
		return !slices.Contains(refs, "")
	})
	return refs
}

func (n *privateNetwork) all() []int {
	all := make([]int, len(n.tunnels))
	for i := range all {
		all[i] = i
	}
	return all
}

// awaitStatus waits until the statuses of these hosts' tunnels are as they should be.
func (n *privateNetwork) awaitStatus(what string, hosts []int, cond func(status map[string]string) bool) time.Time {
	n.t.Helper()
	return awaitObjects(n.t, n.api, what, []string{"tunnel"}, func(all xenapi.Objects) bool {
		return !slices.ContainsFunc(hosts, func(i int) bool {
			status, _ := all["tunnel"][n.tunnels[i]]["status"].(map[string]string)
			return !cond(status)
		})
	})
}

// awaitActive waits until these hosts' tunnels are active.
func (n *privateNetwork) awaitActive(hosts ...int) time.Time {
	n.t.Helper()
	return n.awaitStatus("tunnels to be active", hosts, func(s map[string]string) bool { return s["active"] == "true" })
}

// awaitCenter waits until these hosts' tunnels are active, and their center is this host, or is
// not.
func (n *privateNetwork) awaitCenter(center int, is bool, hosts ...int) {
	n.t.Helper()
	n.awaitStatus("another center", hosts, func(s map[string]string) bool {
		return s["active"] == "true" && (s["heddle:center"] == n.hosts[center]) == is
	})
}

// center is the host that is center.
func (n *privateNetwork) center() int {
	n.t.Helper()
	for i, tunnel := range n.tunnels {
		if n.call("tunnel.get_status", tunnel).(map[string]string)["heddle:role"] == "center" {
			return i
		}
	}
	n.t.Fatal("no host is the center")
	return -1
}

// reach waits until one host's machine reaches another's.
func (n *privateNetwork) reach(from, to int) time.Time {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), poolTimeout)
	defer cancel()
	if err := n.machines[from].Reach(ctx, machineIP(to)); err != nil {
		n.t.Fatal(err)
	}
	return time.Now()
}

// ping begins to ping one host's machine from another's.
func (n *privateNetwork) ping(from, to int) *netlab.Ping {
	n.t.Helper()
	p, err := n.machines[from].Ping(machineIP(to))
	if err != nil {
		n.t.Fatal(err)
	}
	return p
}

// ended is the longest time in which a ping had no answer, and how many were not answered.
func ended(t testing.TB, p *netlab.Ping) (time.Duration, int) {
	t.Helper()
	longest, lost, err := p.End()
	if err != nil {
		t.Fatal(err)
	}
	return longest, lost
}

// probing waits until BFD is past its slow beginning, a packet a second, on all hosts.
func (n *privateNetwork) probing() {
	n.t.Helper()
	for _, h := range n.lab.Hosts() {
		n.until("BFD on "+h.Name, func() bool {
			out, err := h.Appctl("bfd/show")
			return err == nil && strings.Contains(out, "RX Interval: Approx ") && !strings.Contains(out, "Approx 1000ms")
		})
	}
}

// prefer makes a host the preferred center.
func (n *privateNetwork) prefer(host int) {
	n.t.Helper()
	n.call("network.set_other_config", n.network, map[string]string{}) // the same once more would be no change
	n.call("network.set_other_config", n.network, map[string]string{"heddle:preferred-center": n.hosts[host]})
}

// rows returns the contents of the switches' databases without columns that change by themselves.
func (p *pool) rows() map[string]string {
	p.t.Helper()
	all := map[string]string{}
	for _, h := range p.lab.Hosts() {
		for table, columns := range map[string]string{"Port": "_uuid,name,external_ids,interfaces", "Interface": "_uuid,name,options,type,bfd", "Bridge": "_uuid,name,ports,external_ids,flood_vlans"} {
			out, err := h.Vsctl("--no-headings", "--columns="+columns, "list", table)
			if err != nil {
				p.t.Fatal(err)
			}
			lines := strings.Split(out, "\n")
			slices.Sort(lines)
			all[h.Name+" "+table] = strings.Join(lines, "\n")
		}
	}
	return all
}

// reportGaps reports the longest and the median.
func reportGaps(b *testing.B, what string, gaps []time.Duration) {
	b.Helper()
	slices.Sort(gaps)
	b.ReportMetric(float64(gaps[len(gaps)-1].Milliseconds()), "ms-"+what+"-max")
	b.ReportMetric(float64(gaps[len(gaps)/2].Milliseconds()), "ms-"+what+"-p50")
}

// reportLoad reports the machine's load average of the last minute, and that an operation's time
// means nothing.
func reportLoad(b *testing.B) {
	b.Helper()
	raw, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		b.Fatal(err)
	}
	var load float64
	if _, err := fmt.Sscan(string(raw), &load); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(load, "load")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkCenterDies kills the center of four hosts, its agent and both daemons, and cuts its
// wire: how long is the longest time without an answer to a ping every 10 ms between two spokes?
// Then it comes back: how long after the pool knows that it lives is its tunnel active, and how
// often were ports of its earlier life still there by then?
func BenchmarkCenterDies(b *testing.B) {
	n := startNetwork(b, 4, model.Record{"MTU": int64(1400)})
	var gaps, back, answered []time.Duration
	late := 0
	for b.Loop() {
		dead := n.center()
		left := []int{(dead + 1) % 4, (dead + 2) % 4, (dead + 3) % 4}
		n.probing()
		host := n.lab.Hosts()[dead]
		earlier := n.legs(host)
		p := n.ping(left[0], left[1])
		n.agents[dead].kill()
		if err := host.Kill(); err != nil {
			b.Fatal(err)
		}
		n.awaitCenter(dead, false, left...)
		gap, _ := ended(b, p)
		gaps = append(gaps, gap)
		n.awaitLive(dead, false)

		gone, found := make(chan time.Time, 1), make(chan time.Time, 1)
		if err := host.Start(); err != nil {
			b.Fatal(err)
		}
		go func() { gone <- n.awaitGone(host, earlier) }()
		go func() { found <- n.reach(left[0], dead) }()
		n.agents[dead] = launch(b, host.Space, n.agent(dead)...)
		live := n.awaitLive(dead, true)
		back = append(back, n.awaitActive(n.all()...).Sub(live))
		answered = append(answered, (<-found).Sub(live))
		if (<-gone).After(live) {
			late++
		}
	}
	reportGaps(b, "gap", gaps)
	reportGaps(b, "active-again", back)
	reportGaps(b, "answers-again", answered)
	b.ReportMetric(float64(late), "stale-ports-after-live")
	reportLoad(b)
}

// legs are the UUIDs of the controller's ports on a host.
func (n *privateNetwork) legs(h *netlab.OVSHost) []string {
	n.t.Helper()
	out, err := h.Vsctl("--bare", "--columns=_uuid", "find", "Port", "external_ids:heddle-owner=tunnel-controller")
	if err != nil {
		n.t.Fatal(err)
	}
	return strings.Fields(out)
}

// awaitGone waits until a host's database has none of these ports.
func (n *privateNetwork) awaitGone(h *netlab.OVSHost, ports []string) time.Time {
	ctx, cancel := context.WithTimeout(n.t.Context(), poolTimeout)
	defer cancel()
	c, err := ovs.Dial(ctx, ovsdb.Options{Address: h.DB()})
	if err != nil {
		n.t.Error(err)
		return time.Now()
	}
	defer c.Close()
	_, err = c.Wait(ctx, func(s *ovs.Snapshot) bool {
		return !slices.ContainsFunc(ports, func(id string) bool { return s.Ports[ovsdb.UUID(id)] != nil })
	})
	if err != nil {
		n.t.Errorf("host %s still has ports of its earlier life: %v", h.Name, err)
	}
	return time.Now()
}

// awaitLive waits until the pool knows that a host lives, or that it does not.
func (n *privateNetwork) awaitLive(host int, live bool) time.Time {
	n.t.Helper()
	return awaitObjects(n.t, n.api, fmt.Sprintf("host %d to be live: %v", host, live), []string{"host", "host_metrics"}, func(all xenapi.Objects) bool {
		for _, r := range all["host"] {
			if r["uuid"] == n.hosts[host] {
				return all["host_metrics"][r["metrics"].(string)]["live"] == live
			}
		}
		return false
	})
}

// BenchmarkPlannedMoves moves the center of four hosts in each way in which people do: what is the
// longest time without an answer to a ping every 10 ms between two spokes?
func BenchmarkPlannedMoves(b *testing.B) {
	n := startNetwork(b, 4, model.Record{"MTU": int64(1400)})
	gaps := map[string][]time.Duration{}
	move := func(what string, change func()) {
		b.Helper()
		from := n.center()
		p := n.ping(2, 3)
		change()
		n.awaitCenter(from, false, 2, 3)
		gap, _ := ended(b, p)
		gaps[what] = append(gaps[what], gap)
	}
	for b.Loop() {
		move("preferred", func() { n.prefer(1) })
		n.awaitActive(n.all()...)
		host := n.call("host.get_by_uuid", n.hosts[1])
		move("disabled", func() { n.call("host.disable", host) })
		n.call("host.enable", host)
		n.awaitActive(n.all()...)
		n.prefer(0)
		n.awaitCenter(0, true, n.all()...)
		access := n.call("tunnel.get_access_PIF", n.tunnels[0])
		move("unplugged", func() { n.call("PIF.unplug", access) })
		n.call("PIF.plug", access)
		if _, err := n.lab.Hosts()[0].Vsctl("--may-exist", "add-port", n.call("network.get_bridge", n.network).(string), "vm1"); err != nil {
			b.Fatal(err)
		}
		n.awaitActive(n.all()...)
		n.prefer(0)
		n.awaitCenter(0, true, n.all()...)
	}
	for what, all := range gaps {
		reportGaps(b, what, all)
	}
	reportLoad(b)
}

// BenchmarkControllerDies kills the controller and starts it again: how many answers to a ping are
// lost, how many rows of the switches change?
func BenchmarkControllerDies(b *testing.B) {
	n := startNetwork(b, 3, model.Record{"MTU": int64(1400)})
	lost, changed := 0, 0
	var longest []time.Duration
	for b.Loop() {
		from := n.center()
		before := n.rows()
		p := n.ping((from+1)%3, (from+2)%3)
		n.controller.kill()
		n.controller = n.control()
		n.until("the controller to lead", func() bool {
			status, text, err := n.controller.page(b.Context(), "/metrics")
			return err == nil && status == http.StatusOK && strings.Contains(text, "heddle_tunnel_legs_in_place 2")
		})
		gap, missed := ended(b, p)
		longest, lost = append(longest, gap), lost+missed
		after := n.rows()
		for table := range before {
			if before[table] != after[table] {
				changed++
				b.Logf("%s was\n%s\nand is\n%s", table, before[table], after[table])
			}
		}
	}
	b.ReportMetric(float64(lost), "answers-lost")
	b.ReportMetric(float64(changed), "tables-changed")
	reportGaps(b, "gap", longest)
	reportLoad(b)
}

// BenchmarkTwentyNetworks makes 20 networks on 8 hosts, all tunnels at once, or on each host one
// after the other: how long from the first tunnel.create until all have answered, bridges included,
// and until the first host has an answer to a ping of all others on all networks?
func BenchmarkTwentyNetworks(b *testing.B) {
	for name, atOnce := range map[string]int{"atOnce": twentyNetworks, "oneByOne": 1} {
		b.Run(name, func(b *testing.B) {
			f := newFilling(b)
			var created, pinged []time.Duration
			for b.Loop() {
				began := time.Now()
				tunnels := f.create(atOnce)
				created = append(created, time.Since(began))
				f.ping()
				pinged = append(pinged, time.Since(began))
				f.destroy(tunnels)
			}
			reportGaps(b, "created", created)
			reportGaps(b, "pinged", pinged)
			reportLoad(b)
		})
	}
}

const twentyNetworks = 20

// filling is a pool of 8 hosts and networks that are to be on all of them.
type filling struct {
	*pool
	api        *xenapi.Session
	transports []string // by host
	networks   [twentyNetworks]string
	bridges    [twentyNetworks]string
}

func newFilling(b *testing.B) *filling {
	b.Helper()
	f := &filling{pool: startPool(b, 8)}
	f.api = f.session()
	f.control()
	f.transports = transportRefs(b, f.api, f.lab.Hosts())
	for i := range f.networks {
		f.networks[i] = call(b, f.api, "network.create", model.Record{"name_label": fmt.Sprint("n", i), "MTU": int64(1400)}).(string)
		f.bridges[i] = call(b, f.api, "network.get_bridge", f.networks[i]).(string)
	}
	return f
}

// create makes all tunnels, so many at once on each host, and gives the hosts addresses on their
// bridges.
func (f *filling) create(atOnce int) (tunnels [][twentyNetworks]string) {
	f.t.Helper()
	tunnels = make([][twentyNetworks]string, len(f.transports))
	var hosts errgroup.Group
	for i, h := range f.lab.Hosts() {
		hosts.Go(func() error {
			var calls errgroup.Group
			calls.SetLimit(atOnce)
			var lines []string
			for j, network := range f.networks {
				calls.Go(func() error {
					ref, err := f.api.Call(f.t.Context(), "tunnel.create", f.transports[i], network)
					if err == nil {
						tunnels[i][j] = ref.(string)
					}
					return err
				})
				lines = append(lines, fmt.Sprintf("addr add 10.77.%d.%d/24 dev %s", j, i+1, f.bridges[j]))
			}
			if err := calls.Wait(); err != nil {
				return err
			}
			return h.Space.IP(lines...)
		})
	}
	if err := hosts.Wait(); err != nil {
		f.t.Fatal(err)
	}
	return tunnels
}

// ping waits until the first host reaches all others on all networks.
func (f *filling) ping() {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), poolTimeout)
	defer cancel()
	var all errgroup.Group
	for j := range f.networks {
		all.Go(func() error {
			for i := 1; i < len(f.transports); i++ {
				if err := f.lab.Hosts()[0].Space.Reach(ctx, fmt.Sprintf("10.77.%d.%d", j, i+1)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		f.t.Fatal(err)
	}
}

func (f *filling) destroy(tunnels [][twentyNetworks]string) {
	f.t.Helper()
	var all errgroup.Group
	for _, ofHost := range tunnels {
		for _, tunnel := range ofHost {
			all.Go(func() error {
				_, err := f.api.Call(f.t.Context(), "tunnel.destroy", tunnel)
				return err
			})
		}
	}
	if err := all.Wait(); err != nil {
		f.t.Fatal(err)
	}
}
