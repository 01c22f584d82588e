package dhcp

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"heddle/internal/dhcp/plan"
	"heddle/internal/netlab"
	"heddle/internal/store/backend"
	"heddle/internal/store/replica"
	"heddle/internal/store/storetest"
)

// recorder is an agent with all that it has towards etcd, a connection of its own included. In
// place of the host with its dnsmasq it has a record of what it would write for that.
type recorder struct {
	st    *backend.Etcd
	feed  *feed
	plans atomic.Int64

	mu    sync.Mutex
	files map[string]string
	wants []want
}

// want is a file that somebody waits for.
type want struct {
	file, content string
	there         chan time.Time
}

func newRecorder(ctx context.Context, dataDir, host string) (*recorder, error) {
	st, err := backend.OpenRunning(ctx, dataDir, nil)
	if err != nil {
		return nil, err
	}
	// Checks that the store is the same one are reads, and come with time.
	o := replica.Options{CheckEvery: time.Hour, Log: slog.New(slog.DiscardHandler)}
	return &recorder{st: st, feed: newFeed(host, st, o), files: map[string]string{}}, nil
}

// run does what an agent does until ctx ends.
func (r *recorder) run(ctx context.Context) {
	defer r.st.Close()
	var feed sync.WaitGroup
	defer feed.Wait()
	feed.Go(func() { _ = r.feed.Run(ctx) }) // ends with ctx alone
	o := Options{Plan: plan.Options{Dir: "/recorded"}}.withDefaults()
	running := plan.Found(nil, nil)
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.feed.changed:
		}
		p, waits := r.feed.plan(o.Plan)
		if waits != "" {
			continue
		}
		r.plans.Add(1)
		r.record(running.Step(p))
	}
}

// record keeps the files of a step, and tells who waits for them.
func (r *recorder) record(s plan.Step) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range s.Remove {
		delete(r.files, f)
	}
	for _, f := range s.Write {
		r.files[f.Path] = f.Content
	}
	r.wants = slices.DeleteFunc(r.wants, func(w want) bool {
		if content, ok := r.files[w.file]; !ok || !strings.Contains(content, w.content) {
			return false
		}
		w.there <- now
		return true
	})
}

// when is told when a file has been recorded that contains something.
func (r *recorder) when(file, content string) <-chan time.Time {
	w := want{file, content, make(chan time.Time, 1)}
	r.mu.Lock()
	r.wants = append(r.wants, w)
	r.mu.Unlock()
	r.record(plan.Step{})
	return w.there
}

// region is an etcd with the endpoints of many hosts.
type region struct {
	t           testing.TB
	dataDir     string
	st          *backend.Etcd
	hosts, each int // endpoints of a host
	recorders   []*recorder
	stop        context.CancelFunc
	stopped     sync.WaitGroup
}

const regionSubnets = 100

func newRegion(t testing.TB, hosts, each int) *region {
	t.Helper()
	dir, err := os.MkdirTemp("", "hdhcp") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := &region{t: t, dataDir: filepath.Join(dir, "etcd"), hosts: hosts, each: each}
	r.st = storetest.Open(t, r.dataDir)
	pairs := []string{"/calico/v1/Ready", "true"}
	for i := range regionSubnets {
		key, value := r.subnet(i, "172.18.10.55")
		pairs = append(pairs, key, value)
	}
	for host := range hosts {
		for n := range each {
			key, value := r.endpoint(host, n, 0)
			pairs = append(pairs, key, value)
		}
		if len(pairs) > 4000 || host == hosts-1 {
			storetest.Put(t, r.st, pairs...)
			pairs = nil
		}
	}
	return r
}

// subnet is the key and value of a subnet.
func (r *region) subnet(i int, server string) (string, string) {
	return subnet(fmt.Sprintf("s%d", i), fmt.Sprintf("10.%d.0.0/16", i), fmt.Sprintf("10.%d.0.1", i), fmt.Sprintf(`, "dns_servers": [%q]`, server))
}

// endpoint is the key and value of an endpoint. Each round of it has another name.
func (r *region) endpoint(host, n, round int) (string, string) {
	m := &machine{lab: &lab{t: r.t}, n: n}
	_, value := m.endpoint(fmt.Sprintf("10.%d.%d.%d", host%regionSubnets, 1+(host/regionSubnets*r.each+n)/250, 1+(host/regionSubnets*r.each+n)%250), fmt.Sprintf("s%d", host%regionSubnets))
	value = strings.Replace(value, "example.org", nameOf(round), 1)
	return fmt.Sprintf("/calico/v1/host/host%d/workload/openstack/i%d-%d/endpoint/p%d-%d", host, host, n, host, n), value
}

func nameOf(round int) string { return fmt.Sprintf("r%d.example.org", round) }

// start connects an agent for each host, all at once, and tells how long it took until all were in
// step with etcd: each has its endpoints and its three watches.
func (r *region) start() time.Duration {
	r.t.Helper()
	ctx, stop := context.WithCancel(r.t.Context())
	r.stop = stop
	began := time.Now()
	r.recorders = make([]*recorder, r.hosts)
	var starting sync.WaitGroup
	for host := range r.hosts {
		starting.Go(func() {
			a, err := newRecorder(ctx, r.dataDir, fmt.Sprintf("host%d", host))
			if err != nil {
				r.t.Error(err)
				return
			}
			r.recorders[host] = a
			r.stopped.Go(func() { a.run(ctx) })
			select {
			case <-a.when(fmt.Sprintf("%s/tap%d", plan.HostsDir, r.each-1), "vm"):
			case <-time.After(10 * timeout):
				r.t.Errorf("host %d is not in step", host)
			}
		})
	}
	starting.Wait()
	if r.t.Failed() {
		r.t.FailNow()
	}
	r.waitForWatches(r.t, 3*r.hosts)
	took := time.Since(began)
	for host, a := range r.recorders {
		a.mu.Lock()
		if want := 2*r.each + 1; len(a.files) != want {
			r.t.Errorf("host %d has %d files, want those of its %d endpoints and its subnet: %d", host, len(a.files), r.each, want)
		}
		a.mu.Unlock()
	}
	return took
}

func (r *region) end() {
	r.stop()
	r.stopped.Wait()
}

// change renames an endpoint and returns what it took until its agent would have told dnsmasq.
func (r *region) change(t testing.TB, round int) time.Duration {
	t.Helper()
	host, n := rand.N(r.hosts), rand.N(r.each)
	return r.write(t, host, n, round, r.recorders[host].when(fmt.Sprintf("%s/tap%d", plan.HostsDir, n), nameOf(round)))
}

// write renames an endpoint and returns what it took until there had a time.
func (r *region) write(t testing.TB, host, n, round int, there <-chan time.Time) time.Duration {
	t.Helper()
	key, value := r.endpoint(host, n, round)
	began := time.Now()
	storetest.Put(t, r.st, key, value)
	select {
	case at := <-there:
		return at.Sub(began)
	case <-time.After(timeout):
		t.Fatalf("host %d has not heard of its endpoint's change", host)
		return 0
	}
}

// changeSubnet gives a subnet that all hosts know another DNS server, and returns what it took
// until those that have endpoints in it would have told dnsmasq.
func (r *region) changeSubnet(t testing.TB, round int) time.Duration {
	t.Helper()
	server := fmt.Sprintf("172.19.%d.%d", round/250, 1+round%250)
	var there []<-chan time.Time
	for host := round % regionSubnets; host < r.hosts; host += regionSubnets {
		there = append(there, r.recorders[host].when(plan.OptionsDir+"/subnet-"+fmt.Sprintf("s%d", host%regionSubnets), server))
	}
	key, value := r.subnet(round%regionSubnets, server)
	began := time.Now()
	storetest.Put(t, r.st, key, value)
	last := began
	for _, c := range there {
		select {
		case at := <-c:
			last = latest(last, at)
		case <-time.After(timeout):
			t.Fatal("a host has not heard of its subnet's change")
		}
	}
	return last.Sub(began)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// plans returns the number of plans that the agents have made, in all.
func (r *region) plans() (sum int64) {
	for _, a := range r.recorders {
		sum += a.plans.Load()
	}
	return sum
}

// heap is the memory that this process uses for what it has.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// processor is the time of processors that this process has used.
func processor() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail with these arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// metrics are etcd's own, by name with labels.
func (r *region) metrics() map[string]float64 {
	r.t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(r.dataDir, "etcd.sock"))
	}}}
	answer, err := c.Get("http://etcd/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	defer answer.Body.Close()
	all := map[string]float64{}
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		at := strings.LastIndexByte(lines.Text(), ' ')
		if v, err := strconv.ParseFloat(lines.Text()[at+1:], 64); err == nil && lines.Text()[0] != '#' {
			all[lines.Text()[:at]] = v
		}
	}
	return all
}

// served returns the number of requests of a kind that etcd has served.
func served(metrics map[string]float64, method string) (sum float64) {
	for name, v := range metrics {
		if strings.HasPrefix(name, "grpc_server_started_total{") && strings.Contains(name, `grpc_method="`+method+`"`) {
			sum += v
		}
	}
	return sum
}

// watchers are the least that hosts could ask etcd for: a connection each with one watch, of the
// host's endpoints.
type watchers struct {
	arrived []chan time.Time // by host: when a change came
	stop    func()
}

// watchOnly connects them, all at once, and tells how long it took until all watched.
func (r *region) watchOnly(t testing.TB) (w watchers, took time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	began := time.Now()
	var connecting, watching sync.WaitGroup
	for host := range r.hosts {
		arrived := make(chan time.Time, 1)
		w.arrived = append(w.arrived, arrived)
		connecting.Go(func() {
			st, err := backend.OpenRunning(ctx, r.dataDir, nil)
			if err != nil {
				t.Error(err)
				return
			}
			prefix := fmt.Sprintf("/calico/v1/host/host%d/", host)
			_, at, err := st.List(ctx, prefix)
			if err != nil {
				t.Error(err)
			}
			changes, _ := st.Watch(ctx, at, prefix)
			watching.Go(func() {
				defer st.Close()
				for range changes {
					arrived <- time.Now()
				}
			})
		})
	}
	connecting.Wait()
	w.stop = func() {
		cancel()
		watching.Wait()
		r.waitForWatches(t, 0)
	}
	r.waitForWatches(t, r.hosts)
	return w, time.Since(began)
}

const watchesMetric, streamsMetric = "etcd_debugging_mvcc_watcher_total", "etcd_debugging_mvcc_watch_stream_total"

// waitForWatches waits until etcd serves so many watches.
func (r *region) waitForWatches(t testing.TB, want int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	err := netlab.Until(ctx, fmt.Sprintf("%d watches", want), func() (bool, error) { return r.metrics()[watchesMetric] == float64(want), nil })
	if err != nil {
		t.Fatal(err)
	}
}

// TestManyAgents runs many agents against one etcd: each takes its own endpoints, a change is the
// work of one agent alone, and etcd serves watches and no other request. It is alone: all etcds of
// a process count together.
func TestManyAgents(t *testing.T) {
	const hosts, each, changes = 100, 20, 50
	r := newRegion(t, hosts, each)
	r.start()
	t.Cleanup(r.end)
	if m := r.metrics(); m[streamsMetric] != hosts {
		t.Errorf("etcd serves %v streams of watches, want one for each of %d agents", m[streamsMetric], hosts)
	}
	plans, asked := r.plans(), r.metrics()
	var took []time.Duration
	for round := range changes {
		took = append(took, r.change(t, round+1))
	}
	if n := r.plans() - plans; n != changes {
		t.Errorf("%d changes, each of one host: the agents made %d plans", changes, n)
	}
	if n := served(r.metrics(), "Range") - served(asked, "Range"); n != 0 {
		t.Errorf("%d changes cost %v reads of etcd", changes, n)
	}
	slices.Sort(took)
	if median := took[changes/2]; median > 100*time.Millisecond {
		t.Errorf("a change took %v until its agent had it (median)", median)
	}
	r.changeSubnet(t, 1)
}
