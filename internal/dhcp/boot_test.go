package dhcp

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// BenchmarkBoot has 200 machines of a host boot at once. It tells how long they waited for their
// leases, and how many had to ask more than once.
//
//	known    the endpoints have been there before, as when a host reboots; each machine is a
//	         udhcpc, which asks every three seconds, and takes its part of the host's processors
//	written  each machine asks 100 ms after its endpoint was written, and again every three
//	         seconds; all are written at once
func BenchmarkBoot(b *testing.B) {
	const count = 200
	f := newFleet(b)
	f.populate(b, count)
	b.Run("known", func(b *testing.B) {
		var all boots
		for b.Loop() {
			all.boot(count, func(n int) (asked int, err error) {
				said, err := f.ns.Output(b.Context(), "udhcpc", "-i", fmt.Sprintf("e%d", n), "-f", "-q", "-n", "-s", "/bin/true")
				if !strings.Contains(said, "lease of "+address(n)+" ") {
					err = fmt.Errorf("no lease of %s: %w:\n%s", address(n), err, said)
				}
				return strings.Count(said, "discover"), err
			})
		}
		all.report(b)
	})
	var appear, vanish []string
	for n := range count {
		key, value := f.endpoint(n, address(n))
		appear, vanish = append(appear, key, value), append(vanish, key, "")
	}
	f.put(f.endpoint(count, address(count))) // so that there is always a dnsmasq
	f.vanish(vanish)
	b.Run("written", func(b *testing.B) {
		var all boots
		for b.Loop() {
			all.boot(count, func(n int) (asked int, err error) {
				f.put(appear[2*n], appear[2*n+1])
				<-time.After(100 * time.Millisecond)
				for asked = 1; ; asked++ {
					if err = f.lease(n, address(n)); err == nil || asked == 3 {
						return asked, err
					}
				}
			})
			f.vanish(vanish)
		}
		all.report(b)
	})
}

// vanish writes that endpoints go, and waits until dnsmasq has forgotten them.
func (f *fleet) vanish(pairs []string) {
	starts := strings.Count(f.log.String(), "dnsmasq serves")
	f.put(pairs...)
	f.serving(starts + 1)
}

// boots are the times that machines waited for their leases.
type boots struct {
	mu     sync.Mutex
	took   []time.Duration
	again  int // machines that asked more than once
	failed []error
}

// boot has machines ask for their addresses, all at once. Each tells how often it asked.
func (all *boots) boot(count int, ask func(n int) (asked int, err error)) {
	began := time.Now()
	var booting sync.WaitGroup
	for n := range count {
		booting.Go(func() {
			asked, err := ask(n)
			took := time.Since(began)
			all.mu.Lock()
			defer all.mu.Unlock()
			all.took = append(all.took, took)
			if asked > 1 {
				all.again++
			}
			if err != nil {
				all.failed = append(all.failed, fmt.Errorf("machine %d: %w", n, err))
			}
		})
	}
	booting.Wait()
}

func (all *boots) report(b *testing.B) {
	for _, err := range all.failed {
		b.Error(err)
	}
	b.ReportMetric(float64(all.again)/float64(b.N), "asked-again")
	reportLatency(b, all.took)
}
