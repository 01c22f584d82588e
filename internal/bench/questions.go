package bench

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"heddle/internal/netlab"
)

// sampledPairs is the number of pairs that are asked about one by one.
const sampledPairs = 500

// questions measures what is asked of a cloud: why, who reaches a port, and all pairs, beside pairs
// that are asked about one by one (explain §6).
func (b *bench) questions(ctx context.Context) error {
	size := cloudSize{networks: b.pick(50, 5), groups: b.pick(1000, 20), rules: 10, ports: b.pick(10_000, 100)}
	b.logf("a cloud of %d ports in %d networks, %d groups of %d rules", size.ports, size.networks, size.groups, size.rules)
	q, err := newCloud(ctx, size)
	if err != nil {
		return err
	}
	defer q.end()
	before := heapMB()
	if err := q.whoReaches(0); err != nil { // builds the virtual network, and the classes
		return err
	}
	b.add(measure{Name: "reach: memory of the virtual network with its classes", Got: heapMB() - before, Unit: "MB", Goal: atMost(150)})
	why, err := b.asked(func(int) error { return q.why(0, size.networks) })
	if err != nil {
		return err
	}
	b.add(measure{Name: "why: one connection", Got: 1000 * netlab.Median(why), Unit: "µs"})
	reach, err := b.asked(func(i int) error { return q.whoReaches(i) })
	if err != nil {
		return err
	}
	b.add(measure{Name: "reach: who reaches a port by one service", Got: netlab.Median(reach), Unit: "ms", Goal: atMost(50)})
	if err := b.afterChange(q); err != nil {
		return err
	}
	return b.allPairs(q, size)
}

// afterChange measures what a change of a rule adds to the next question.
func (b *bench) afterChange(q *questionedCloud) error {
	var same, more []float64
	ask := func() error { return q.whoReaches(0) }
	for range b.rounds * 3 {
		unchanged, err := milliseconds(ask)
		if err != nil {
			return err
		}
		if err := q.changeRule(); err != nil {
			return err
		}
		changed, err := milliseconds(ask)
		if err != nil {
			return err
		}
		same, more = append(same, unchanged), append(more, max(0, changed-unchanged))
	}
	b.add(measure{Name: "reach: what the change of a rule adds to the next question", Got: netlab.Median(more), Unit: "ms", Goal: atMost(20),
		Beside: fmt.Sprintf("to %.1f ms", netlab.Median(same))})
	return nil
}

// allPairs measures the matrix of one service beside a sample of its pairs one by one.
func (b *bench) allPairs(q *questionedCloud, size cloudSize) error {
	var matrix []float64
	for range b.rounds {
		one, err := milliseconds(q.matrix)
		if err != nil {
			return err
		}
		matrix = append(matrix, one)
	}
	b.add(measure{Name: "reach: all pairs by one service", Got: netlab.Median(matrix), Unit: "ms", Goal: atMost(2000)})
	sample, err := milliseconds(func() error {
		for i := range sampledPairs {
			from := (7*i + 1) % size.ports
			if err := q.pair(from, (from+1+13*i%(size.ports-1))%size.ports); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	all := sample / sampledPairs * float64(size.ports) * float64(size.ports-1)
	b.add(measure{Name: "reach: all pairs one by one / by classes", Got: all / netlab.Median(matrix), Unit: "×",
		Beside: fmt.Sprintf("%.0f s, extrapolated from %d of %d pairs", all/1000, sampledPairs, size.ports*(size.ports-1))})
	return nil
}

// asked returns the milliseconds that some questions take.
func (b *bench) asked(ask func(i int) error) (took []float64, err error) {
	for i := range b.rounds * 3 {
		one, err := milliseconds(func() error { return ask(i) })
		if err != nil {
			return nil, err
		}
		took = append(took, one)
	}
	return took, nil
}

func milliseconds(f func() error) (float64, error) {
	begun := time.Now()
	err := f()
	return float64(time.Since(begun)) / float64(time.Millisecond), err
}

// heapMB returns what is in use of the heap.
func heapMB() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}
