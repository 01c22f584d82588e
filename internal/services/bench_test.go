package services

import (
	"testing"
	"time"

	"heddle/internal/topology"
)

// BenchmarkVerdict measures from a member's end to the verdict in the store: over/s is the part
// beyond fall × delay, which a check may take (services §14, row 6).
func BenchmarkVerdict(b *testing.B) {
	l := newLab(b, 1)
	at, ns := l.machine(l.hosts[0])
	lb := l.balancer(monitorOf(topology.MonitorTCP))
	stop := serve(b, ns, 80)
	m := lb.add(at, 80)
	l.waitHealth(m, topology.MemberActive)
	var over time.Duration
	for b.Loop() {
		begun := time.Now()
		stop()
		l.waitHealth(m, topology.MemberInactive)
		over += time.Since(begun) - 2*time.Second
		stop = serve(b, ns, 80)
		l.waitHealth(m, topology.MemberActive)
	}
	b.ReportMetric(over.Seconds()/float64(b.N), "over-s/op")
}
