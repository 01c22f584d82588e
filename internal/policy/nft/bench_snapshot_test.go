package nft

import (
	"runtime"
	"testing"
	"time"

	"heddle/internal/policy/calc"
	"heddle/internal/policy/calctest"
)

// Large networks from decoded objects to rendered rules: the calculation, and what it says turned
// into all operations and all rules for the kernel, one chain's at a time, as the kernel gets them.
// The time includes making the objects; calc-ms is the part up to the calculation's outcome. Goals:
// 5, 6 and 5 s.
//
// The heaps are what lives after garbage collection, the calculation included: MB-heap before the
// plan is carried out, with all of its set elements, at most 150, 250 and any; MB-after when that
// is done.
func BenchmarkSnapshot(b *testing.B) {
	for _, network := range calctest.Networks() {
		b.Run(network.Name, func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				before := liveHeap()
				b.StartTimer()
				began := time.Now()
				c := calc.New(calctest.Here)
				network.Fill(c.Update)
				out := c.Changes()
				calculated := time.Since(began)
				table := benchTable(b, &Fake{})
				table.Update(out)
				out = nil
				table.rules.settle()
				p := table.plan(newFound())
				chains, rules, elements := 0, 0, 0
				for _, part := range p.parts() {
					for _, o := range part {
						elements += len(o.elements)
						if o.kind == addRules {
							chains++
							rules += len(o.rules())
						}
					}
				}
				b.StopTimer()
				b.ReportMetric(float64(calculated.Microseconds())/1e3, "calc-ms")
				b.ReportMetric(float64(liveHeap()-before)/1e6, "MB-heap")
				p.done(table)
				p = plan{}
				b.ReportMetric(float64(liveHeap()-before)/1e6, "MB-after")
				b.ReportMetric(float64(chains), "chains")
				b.ReportMetric(float64(rules), "rules")
				b.ReportMetric(float64(elements), "elements")
				runtime.KeepAlive(c)
				runtime.KeepAlive(table)
				b.StartTimer()
			}
		})
	}
}

func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
