package ipam_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"heddle/calico"
	"heddle/calico/client"
	"heddle/calico/ipam"
	"heddle/internal/store/backend"
)

// durable runs an embedded store that survives the machine's failure, with a pool of 65,536
// addresses.
func durable(b *testing.B) *client.Client {
	b.Helper()
	s, err := backend.Open(b.Context(), backend.Options{Embedded: &backend.Embedded{DataDir: b.TempDir(), Listen: "127.0.0.1:0"}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	c, err := client.New(client.Options{Endpoints: []string{s.Endpoint()}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	pool := netip.MustParsePrefix("10.0.0.0/12")
	if _, err := c.Create(b.Context(), calico.PoolKey{CIDR: pool}, &calico.Pool{CIDR: pool, IPAM: true}); err != nil {
		b.Fatal(err)
	}
	return c
}

// BenchmarkComeAndGo is a host with 8 callers that assign an address, look it up and release it by
// its handle.
func BenchmarkComeAndGo(b *testing.B) {
	i := share(b, durable(b))
	var n atomic.Int64
	b.SetParallelism(4) // times GOMAXPROCS
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			handle := fmt.Sprintf("handle-%d", n.Add(1))
			got, _, err := i.AutoAssign(b.Context(), ipam.Request{Num4: 1, Host: "host", Handle: handle})
			if err != nil || len(got) != 1 {
				b.Errorf("%v, %v", got, err)
			}
			if found, err := i.IPsByHandle(b.Context(), handle); err != nil || len(found) != 1 {
				b.Errorf("%v, %v", found, err)
			}
			if err := i.ReleaseByHandle(b.Context(), handle); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "addresses/s")
}

// churn has callers assign one address each after another, with a handle of its own, and reports
// how many a second and how long they waited.
func churn(b *testing.B, callers int, of func(caller int) (*ipam.IPAM, string)) {
	b.Helper()
	var n atomic.Int64
	waits := make([][]time.Duration, callers)
	var all sync.WaitGroup
	b.ResetTimer()
	for c := range callers {
		i, host := of(c)
		all.Go(func() {
			for {
				k := n.Add(1)
				if k > int64(b.N) {
					return
				}
				start := time.Now()
				got, _, err := i.AutoAssign(context.Background(), ipam.Request{Num4: 1, Host: host, Handle: fmt.Sprintf("handle-%d", k)})
				if err != nil || len(got) != 1 {
					b.Errorf("%v, %v", got, err)
					return
				}
				waits[c] = append(waits[c], time.Since(start))
			}
		})
	}
	all.Wait()
	b.StopTimer()
	sorted := slices.Sorted(slices.Values(slices.Concat(waits...)))
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "addresses/s")
	b.ReportMetric(float64(sorted[len(sorted)*99/100].Microseconds())/1000, "p99-ms")
}

func share(b *testing.B, c *client.Client) *ipam.IPAM {
	i, err := ipam.New(c, ipam.Options{})
	if err != nil {
		b.Fatal(err)
	}
	return i
}

// BenchmarkOneHost is one host with 1 and with 8 callers.
func BenchmarkOneHost(b *testing.B) {
	for _, callers := range []int{1, 8} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) {
			i := share(b, durable(b))
			churn(b, callers, func(int) (*ipam.IPAM, string) { return i, "host" })
		})
	}
}

// BenchmarkOneHostTwoProcesses is one host with two processes of 4 callers each, who contend for
// the same block.
func BenchmarkOneHostTwoProcesses(b *testing.B) {
	c := durable(b)
	processes := []*ipam.IPAM{share(b, c), share(b, c)}
	churn(b, 8, func(n int) (*ipam.IPAM, string) { return processes[n%2], "host" })
}

// BenchmarkHosts64 is 64 hosts with a caller each: all in one process, and each with an IPAM of its
// own, as on 64 machines.
func BenchmarkHosts64(b *testing.B) {
	b.Run("shared", func(b *testing.B) {
		i := share(b, durable(b))
		churn(b, 64, func(c int) (*ipam.IPAM, string) { return i, fmt.Sprintf("host-%d", c) })
	})
	b.Run("apart", func(b *testing.B) {
		c := durable(b)
		churn(b, 64, func(n int) (*ipam.IPAM, string) { return share(b, c), fmt.Sprintf("host-%d", n) })
	})
}
