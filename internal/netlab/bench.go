package netlab

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// CompareOptions set the length of a comparison.
type CompareOptions struct {
	Slices int           // of each path and kind of traffic; default 24
	Slice  time.Duration // default 250 ms
	// Progress, if set, is called before the slices of each kind of traffic.
	Progress func(kind string)
}

func (o CompareOptions) withDefaults() CompareOptions {
	o.Slices, o.Slice = cmp.Or(o.Slices, 24), cmp.Or(o.Slice, 250*time.Millisecond)
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	return o
}

// Figures are the results of one path, slice by slice.
type Figures struct {
	RoundTrips    []float64 // seconds, the median of each slice
	Datagrams     []float64 // UDP with 18 bytes of payload, a second, received
	Bits          []float64 // TCP over one connection, a second
	BadChecksums  int       // of TCP and UDP, received at either end in all slices; must be 0
	Retransmitted int       // TCP segments of either end, in all slices
}

// Compare measures round trips, datagrams and a stream, each in slices that alternate between the
// paths. The figures are in the order of the paths.
func Compare(ctx context.Context, paths []Path, o CompareOptions) ([]Figures, error) {
	o = o.withDefaults()
	all := make([]Figures, len(paths))
	for i, p := range paths {
		if err := all[i].count(ctx, p, -1); err != nil {
			return nil, err
		}
	}
	for _, kind := range []struct {
		name    string
		measure func(Path) (float64, error)
		to      func(*Figures) *[]float64
	}{
		{"round trips", func(p Path) (float64, error) {
			rr, err := p.RoundTripsFor(o.Slice)
			return rr.P50.Seconds(), err
		}, func(f *Figures) *[]float64 { return &f.RoundTrips }},
		{"UDP packets", func(p Path) (float64, error) {
			rate, err := p.Blast(18, o.Slice)
			return rate.PerSecond, err
		}, func(f *Figures) *[]float64 { return &f.Datagrams }},
		{"TCP", func(p Path) (float64, error) { return p.Stream(o.Slice) }, func(f *Figures) *[]float64 { return &f.Bits }},
	} {
		o.Progress(kind.name)
		slices, err := Alternate(ctx, paths, o.Slices, kind.measure)
		if err != nil {
			return nil, err
		}
		for i := range all {
			*kind.to(&all[i]) = slices[i]
		}
	}
	for i, p := range paths {
		if err := all[i].count(ctx, p, 1); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// Alternate measures a slice of each path in turn, so many times, every other time in reverse
// order: other load, and changes over time, affect all paths alike. It returns the slices of each
// path; those of the same index were measured one right after the other.
func Alternate(ctx context.Context, paths []Path, times int, measure func(Path) (float64, error)) ([][]float64, error) {
	all := make([][]float64, len(paths))
	order := make([]int, len(paths))
	for i := range order {
		order[i] = i
	}
	for range times {
		for _, i := range order {
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("compare paths: %w", err)
			}
			got, err := measure(paths[i])
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], got)
		}
		slices.Reverse(order)
	}
	return all, nil
}

// count adds the kernel's counters of both ends, times sign: subtracted before and added after,
// they give the difference.
func (f *Figures) count(ctx context.Context, p Path, sign int) error {
	for _, end := range []*Namespace{p.Client, p.Server} {
		counters, err := end.Counters(ctx)
		if err != nil {
			return err
		}
		f.BadChecksums += sign * (counters["TcpInCsumErrors"] + counters["UdpInCsumErrors"])
		f.Retransmitted += sign * counters["TcpRetransSegs"]
	}
	return nil
}

// Median returns the middle one of the values, the upper of two; 0 of none.
func Median[T time.Duration | float64](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// Spread is the median of several values, and the range of their middle half.
type Spread struct {
	Median, Low, High float64 // Low and High are the first and the third quartile
	Count             int
}

// Relative returns the width of the interquartile range as a share of the median.
func (s Spread) Relative() float64 { return (s.High - s.Low) / s.Median }

// Ratios returns the spread of the ratios of a's slices to those of b with the same index.
func Ratios(a, b []float64) Spread {
	ratios := make([]float64, 0, len(a))
	for i := range min(len(a), len(b)) {
		ratios = append(ratios, a[i]/b[i])
	}
	return SpreadOf(ratios)
}

// SpreadOf returns the spread of values. Quartiles between two values are interpolated, as R and
// NumPy do by default.
func SpreadOf(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	at := func(share float64) float64 {
		position := share * float64(len(sorted)-1)
		below := int(position)
		if below == len(sorted)-1 {
			return sorted[below]
		}
		return sorted[below] + (position-float64(below))*(sorted[below+1]-sorted[below])
	}
	return Spread{Median: at(0.5), Low: at(0.25), High: at(0.75), Count: len(sorted)}
}
