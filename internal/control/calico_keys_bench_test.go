package control_test

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store"
)

// counted is a store that counts what commits ask of it.
type counted struct {
	store.Store
	conds, ops, gets atomic.Int64
}

func (c *counted) Commit(ctx context.Context, conds []store.Cond, ops []store.Op) (int64, error) {
	c.conds.Add(int64(len(conds)))
	c.ops.Add(int64(len(ops)))
	return c.Store.Commit(ctx, conds, ops)
}

func (c *counted) Get(ctx context.Context, key string) (store.KV, error) {
	c.gets.Add(1)
	return c.Store.Get(ctx, key)
}

func (c *counted) List(ctx context.Context, prefix string) ([]store.KV, int64, error) {
	c.gets.Add(1)
	return c.Store.List(ctx, prefix)
}

func (c *counted) work() [3]int64 { return [3]int64{c.conds.Load(), c.ops.Load(), c.gets.Load()} }

// TestRoutedPortWork: what a port on a routed network costs the store does not depend on how many
// others are on its network and in its group; beside another network's it is one write, and at most
// one condition.
func TestRoutedPortWork(t *testing.T) {
	t.Parallel()
	c := &counted{Store: store.NewMemory()}
	w := open(t, c, control.Options{Quotas: map[string]int{"port": -1}})
	w.hosts("h1")
	work := func(texts ...string) (made [3]int64) {
		before := c.work()
		if _, err := w.create(w.admin, neutron.Ports, texts...); err != nil {
			t.Fatal(err)
		}
		for i, n := range c.work() {
			made[i] = n - before[i]
		}
		return made
	}
	routed, overlay := boundPort(t, w, w.routed()), boundPort(t, w, w.overlay())
	alone, there := work(routed), work(overlay)
	for range 5 {
		work(slices.Repeat([]string{routed}, 100)...)
	}
	if got := work(routed); got != alone {
		t.Errorf("conditions, operations, reads: %v among 500 ports, %v alone", got, alone)
	}
	if extra := [3]int64{alone[0] - there[0], alone[1] - there[1], alone[2] - there[2]}; extra[0] > 1 || extra[1] != 1 || extra[2] != 0 {
		t.Errorf("conditions, operations, reads: %v on a routed network, %v on another", alone, there)
	}
}

// overlay makes a network that is not routed, of the admin, and returns its id.
func (w *world) overlay() string {
	w.t.Helper()
	return must[*neutron.NetworkView](w, w.admin, neutron.Networks, `{}`).ID
}

// boundPort returns a request for a port on a network, that gets a subnet for it.
func boundPort(t testing.TB, w *world, network string) string {
	t.Helper()
	cidr := "10.0.0.0/12"
	if n, err := w.Networks().Show(t.Context(), w.admin, network); err == nil && n.Routed() {
		cidr = "10.64.0.0/12"
	}
	must[*neutron.SubnetView](w, w.admin, neutron.Subnets, `{"network_id":"`+network+`","ip_version":4,"cidr":"`+cidr+`"}`)
	return `{"network_id":"` + network + `","device_id":"vm","binding:host_id":"h1"}`
}

// BenchmarkRoutedPort makes ports in turn on a routed network and on another, of as many ports
// each, all in one group.
func BenchmarkRoutedPort(b *testing.B) {
	for _, ports := range []int{0, 10_000} {
		b.Run(strconv.Itoa(ports)+"-ports", func(b *testing.B) {
			w := open(b, inEtcd(b, false), control.Options{Quotas: map[string]int{"port": -1}})
			w.hosts("h1")
			requests := [2]string{boundPort(b, w, w.overlay()), boundPort(b, w, w.routed())}
			for _, request := range requests {
				fillAs(b, w, w.admin, request, ports)
			}
			var took [2]time.Duration
			for b.Loop() {
				for i, request := range requests {
					began := time.Now()
					must[*neutron.PortView](w, w.admin, neutron.Ports, request)
					took[i] += time.Since(began)
				}
			}
			b.ReportMetric(float64(took[0].Microseconds())/float64(b.N), "overlay-µs")
			b.ReportMetric(float64(took[1].Microseconds())/float64(b.N), "routed-µs")
			b.ReportMetric(float64(took[1])/float64(took[0]), "routed/overlay")
		})
	}
}

// BenchmarkKeys starts a server over 10,000 endpoints: as they should be, and after --dns-domain
// has changed.
func BenchmarkKeys(b *testing.B) {
	st := inEtcd(b, false)
	w := open(b, st, control.Options{Quotas: map[string]int{"port": -1}})
	w.hosts("h1")
	fillAs(b, w, w.admin, boundPort(b, w, w.routed()), 10_000)
	domains := [2]string{"a.example", "b.example"}
	_, keys := keeping(b, st, control.Options{DNSDomain: domains[0]})
	once(b, keys)
	var right, renamed time.Duration
	for i := 0; b.Loop(); i++ {
		_, same := keeping(b, st, control.Options{DNSDomain: domains[i%2]})
		_, other := keeping(b, st, control.Options{DNSDomain: domains[(i+1)%2]})
		began := time.Now()
		once(b, same)
		right += time.Since(began)
		began = time.Now()
		once(b, other)
		renamed += time.Since(began)
	}
	b.ReportMetric(float64(right.Milliseconds())/float64(b.N), "ms-right")
	b.ReportMetric(float64(renamed.Milliseconds())/float64(b.N), "ms-renamed")
}
