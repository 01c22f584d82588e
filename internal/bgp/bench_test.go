package bgp

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// BenchmarkRoutes times how long routes take through an agent: 5,000 of a router from its session
// to the kernel, 2,000 addresses of workloads to the kernel of another host, one more address
// there, and all of them out again.
func BenchmarkRoutes(b *testing.B) {
	const learned, local = 5000, 2000
	var statics strings.Builder
	var add []string
	for i := range learned {
		fmt.Fprintf(&statics, "route 172.%d.%d.0/26 unreachable;\n", 16+i/250, i%250)
	}
	for i := range local {
		add = append(add, fmt.Sprintf("route add 10.%d.%d.1/32 dev cali1", 2+i/250, i%250))
	}
	for b.Loop() {
		l := newLab(b)
		h, other := l.host("h"), l.host("o")
		r := l.bird("r", tor(statics.String(), h))
		l.pool("10.0.0.0/8", "")
		l.put("/calico/bgp/v1/host/h/peer_v4/"+r.ip.String(), fmt.Sprintf(`{"ip": %q, "as_num": "65001"}`, r.ip))
		h.workload("cali1")
		h.start()
		other.start()
		timed := func(what string, at *host, begins string, count int) {
			start := time.Now()
			l.await(what, func() string {
				return fmt.Sprintf("%d ", strings.Count("\n"+at.routes("4"), "\n"+begins))
			}, []string{fmt.Sprintf("%d ", count)}, nil)
			b.ReportMetric(float64(time.Since(start).Milliseconds()), what+"-ms")
		}
		l.await("the session", func() string { return strings.ReplaceAll(h.log.String(), "msg=", "\n") }, []string{`"session up" peer=` + r.ip.String()}, nil)
		timed("learn", h, "172.", learned)
		l.await("the mesh", func() string { return strings.ReplaceAll(other.log.String(), "msg=", "\n") }, []string{`"session up" peer=` + h.ip.String()}, nil)
		h.ns.MustIP(b, add...)
		timed("tell", other, "10.", local)
		h.workload("cali2", "10.100.0.1/32")
		timed("one", other, "10.100.0.1", 1)
		r.configure(tor("", h))
		timed("withdraw", h, "172.", 0)
		h.ns.MustIP(b, "link delete cali1")
		timed("gone", other, "10.", 1)
	}
}
