package control_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"heddle/internal/control"
	"heddle/internal/neutron"
)

// The figures of docs/performance.md: durable commits to an embedded etcd.
//
//	go test ./internal/control -run '^$' -bench . -benchtime 3s

// benchWorld has a network with a large subnet, and a group to put ports into.
func benchWorld(b *testing.B) (w *world, port string) {
	b.Helper()
	w = open(b, inEtcd(b, true), control.Options{Quotas: map[string]int{"port": -1}})
	n := w.network(`{}`)
	w.subnet(n.ID, `"ip_version":4,"cidr":"10.0.0.0/8"`)
	g := must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"web"}`)
	return w, `{"network_id":"` + n.ID + `","security_groups":["` + g.ID + `"]}`
}

func BenchmarkCreatePort(b *testing.B) {
	for _, clients := range []int{1, 16} {
		b.Run(strconv.Itoa(clients)+"-clients", func(b *testing.B) {
			w, port := benchWorld(b)
			b.SetParallelism(max(1, clients/runtime.GOMAXPROCS(0)))
			if clients == 1 {
				for b.Loop() {
					must[*neutron.PortView](w, w.member, neutron.Ports, port)
				}
			} else {
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if _, err := w.create(w.member, neutron.Ports, port); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ports/s")
		})
	}
}

func BenchmarkCreatePortsInBulk(b *testing.B) {
	const each = 1000
	w, port := benchWorld(b)
	ports := make([]string, each)
	for i := range ports {
		ports[i] = port
	}
	for b.Loop() {
		if _, err := w.create(w.member, neutron.Ports, ports...); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N*each)/b.Elapsed().Seconds(), "ports/s")
}

// BenchmarkAddInterface adds interfaces to one router, and to one each, each with a subnet of its
// own.
func BenchmarkAddInterface(b *testing.B) {
	for _, routers := range []int{1, 16} {
		b.Run(strconv.Itoa(routers)+"-routers", func(b *testing.B) {
			w := open(b, inEtcd(b, true), control.Options{Quotas: map[string]int{"router": -1, "network": -1, "subnet": -1, "port": -1}})
			var ids []string
			for range routers {
				ids = append(ids, w.router(`{}`).ID)
			}
			subnets := make(chan string, b.N)
			for i := range b.N {
				subnets <- w.subnetOn(fmt.Sprintf("10.%d.%d.0/24", i/256, i%256)).ID
			}
			var next atomic.Int64
			b.SetParallelism(16 / runtime.GOMAXPROCS(0))
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					router := ids[int(next.Add(1))%routers]
					if _, err := w.join(w.member, router, neutron.InterfaceRequest{SubnetID: <-subnets}); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "interfaces/s")
		})
	}
}

// BenchmarkListPorts lists 10,000 ports, and reports what the process holds in memory then, etcd
// included.
func BenchmarkListPorts(b *testing.B) {
	w, port := benchWorld(b)
	fill(b, w, port, 10000)
	b.ResetTimer()
	for b.Loop() {
		ports, err := all(w.Ports().List(context.Background(), w.member, neutron.Query{}))
		if err != nil || len(ports) != 10000 {
			b.Fatal(len(ports), err)
		}
	}
	b.ReportMetric(resident(b)/1e6, "MB-resident")
}

func fill(b *testing.B, w *world, port string, n int) {
	b.Helper()
	fillAs(b, w, w.member, port, n)
}

func fillAs(b *testing.B, w *world, c neutron.Caller, port string, n int) {
	b.Helper()
	ports := make([]string, 250)
	for i := range ports {
		ports[i] = port
	}
	for range n / len(ports) {
		if _, err := w.create(c, neutron.Ports, ports...); err != nil {
			b.Fatal(err)
		}
	}
}

// resident returns the memory of this process in bytes, garbage collected.
func resident(b *testing.B) float64 {
	b.Helper()
	debug.FreeOSMemory() // as the runtime does by itself in a while
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			if err != nil {
				b.Fatal(err)
			}
			return kb * 1024
		}
	}
	b.Fatal("no VmRSS in /proc/self/status")
	return 0
}
