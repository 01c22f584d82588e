package nettest

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// CompareOptions say how long a comparison takes.
type CompareOptions struct {
	Rounds     int           // of all cases; default 3
	RoundTrips int           // a round; default 20000
	Stream     time.Duration // a round; default 1 s
	Blast      time.Duration // a round; default 500 ms
	// Progress, if set, is told before each case of each round.
	Progress func(round int, path Path)
}

func (o CompareOptions) withDefaults() CompareOptions {
	if o.Rounds == 0 {
		o.Rounds = 3
	}
	if o.RoundTrips == 0 {
		o.RoundTrips = 20000
	}
	if o.Stream == 0 {
		o.Stream = time.Second
	}
	if o.Blast == 0 {
		o.Blast = 500 * time.Millisecond
	}
	if o.Progress == nil {
		o.Progress = func(int, Path) {}
	}
	return o
}

// Figures are what one path came to: the median of all rounds.
type Figures struct {
	RoundTrip     time.Duration // median of each round
	Datagrams     float64       // UDP with 18 bytes of payload, a second, received
	Bits          float64       // TCP over one connection, a second
	BadChecksums  int           // of TCP and UDP, received at either end in all rounds; must be 0
	Retransmitted int           // TCP segments of either end, in all rounds
}

// Compare measures paths side by side: one after the other in each round, so that what else the machine does falls on
// all alike (dataplane-goals §5). The figures are in the order of the paths.
func Compare(ctx context.Context, paths []Path, o CompareOptions) ([]Figures, error) {
	o = o.withDefaults()
	runs := make([]comparedPath, len(paths))
	for i, p := range paths {
		runs[i].Path = p
		if err := runs[i].count(ctx, -1); err != nil {
			return nil, err
		}
	}
	for round := range o.Rounds {
		for i := range runs {
			if err := ctx.Err(); err != nil {
				return nil, fmt.Errorf("compare paths: %w", err)
			}
			o.Progress(round+1, runs[i].Path)
			if err := runs[i].measure(o); err != nil {
				return nil, err
			}
		}
	}
	all := make([]Figures, len(runs))
	for i := range runs {
		if err := runs[i].count(ctx, 1); err != nil {
			return nil, err
		}
		all[i] = runs[i].figures()
	}
	return all, nil
}

// comparedPath is a path with what was measured on it so far.
type comparedPath struct {
	Path
	roundTrips      []time.Duration
	datagrams, bits []float64
	bad, resent     int
}

func (r *comparedPath) measure(o CompareOptions) error {
	rr, err := r.RoundTrips(o.RoundTrips)
	if err != nil {
		return err
	}
	blast, err := r.Blast(18, o.Blast)
	if err != nil {
		return err
	}
	bits, err := r.Stream(o.Stream)
	if err != nil {
		return err
	}
	r.roundTrips = append(r.roundTrips, rr.P50)
	r.datagrams = append(r.datagrams, blast.PerSecond)
	r.bits = append(r.bits, bits)
	return nil
}

// count adds the kernel's counters of both ends, times sign: taken away before and added after, they tell of between.
func (r *comparedPath) count(ctx context.Context, sign int) error {
	for _, end := range []*Namespace{r.Client, r.Server} {
		counters, err := end.Counters(ctx)
		if err != nil {
			return err
		}
		r.bad += sign * (counters["TcpInCsumErrors"] + counters["UdpInCsumErrors"])
		r.resent += sign * counters["TcpRetransSegs"]
	}
	return nil
}

func (r *comparedPath) figures() Figures {
	return Figures{RoundTrip: Median(r.roundTrips), Datagrams: Median(r.datagrams), Bits: Median(r.bits),
		BadChecksums: r.bad, Retransmitted: r.resent}
}

// Median is the middle one of the values, the upper of two; 0 of none.
func Median[T time.Duration | float64](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
