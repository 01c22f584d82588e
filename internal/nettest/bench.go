package nettest

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// BenchOptions say how long a benchmark takes.
type BenchOptions struct {
	Rounds     int           // of all cases; default 3
	RoundTrips int           // a round; default 20000
	Connects   int           // a round; default 2000
	Stream     time.Duration // a round; default 1 s
	Blast      time.Duration // a round; default 500 ms
	// Progress, if set, is told before each case of each round.
	Progress func(round int, name string)
}

func (o BenchOptions) withDefaults() BenchOptions {
	if o.Rounds == 0 {
		o.Rounds = 3
	}
	if o.RoundTrips == 0 {
		o.RoundTrips = 20000
	}
	if o.Connects == 0 {
		o.Connects = 2000
	}
	if o.Stream == 0 {
		o.Stream = time.Second
	}
	if o.Blast == 0 {
		o.Blast = 500 * time.Millisecond
	}
	if o.Progress == nil {
		o.Progress = func(int, string) {}
	}
	return o
}

// Figures are what one path came to: the median of all rounds.
type Figures struct {
	Path          string        `json:"path"`
	Group         string        `json:"group"`
	RoundTrip     time.Duration `json:"roundTripNanoseconds"` // median
	Datagrams     float64       `json:"datagramsPerSecond"`   // UDP, 18 bytes of payload
	Bits          float64       `json:"bitsPerSecond"`        // TCP, one connection
	Connects      float64       `json:"connectsPerSecond"`    // TCP, one after another
	BadChecksums  int           `json:"badChecksums"`         // must be 0
	Retransmitted int           `json:"retransmitted"`        // TCP segments, in all rounds
}

// Goal is a ratio between two paths measured in one run.
type Goal struct {
	Name   string  `json:"name"`
	Ratio  float64 `json:"ratio"`
	Bound  float64 `json:"bound"`
	AtMost bool    `json:"atMost"` // else at least
}

// Met says whether the goal is.
func (g Goal) Met() bool {
	if g.AtMost {
		return g.Ratio <= g.Bound
	}
	return g.Ratio >= g.Bound
}

// Report is the result of a benchmark.
type Report struct {
	Figures []Figures `json:"figures"`
	Goals   []Goal    `json:"goals"`
}

// Groups of paths that are compared with each other.
const (
	oneHost       = "one host"
	twoHosts      = "two hosts"
	wireSegmented = "two hosts, 1500-byte wire"
)

// benchCase is a path to build and measure.
type benchCase struct {
	group string
	build func(*Lab) (Path, io.Closer, error)
}

func benchCases() []benchCase {
	return []benchCase{
		{oneHost, directPath},
		{oneHost, bridgePath},
		{oneHost, overlayPath},
		{twoHosts, bridgeVXLANPath(false)},
		{twoHosts, overlayHostsPath(false)},
		{wireSegmented, bridgeVXLANPath(true)},
		{wireSegmented, overlayHostsPath(true)},
	}
}

// Bench measures Heddle's datapath beside what the kernel offers, case after case in each round, so that what else the
// machine does falls on all alike (dataplane-goals §5). It makes namespaces and removes them; it needs root.
func Bench(ctx context.Context, o BenchOptions) (Report, error) {
	o = o.withDefaults()
	var runs []*benchRun
	defer func() {
		for _, r := range runs {
			_ = r.close.Close()
		}
	}()
	for i, c := range benchCases() {
		l := New(fmt.Sprintf("hb%d%s", i, randomText()))
		path, closer, err := c.build(l)
		if closer == nil {
			closer = l
		}
		runs = append(runs, &benchRun{group: c.group, path: path, close: closer})
		if err != nil {
			return Report{}, fmt.Errorf("build path %s, %s: %w", path.Name, c.group, err)
		}
	}
	for round := range o.Rounds {
		for _, r := range runs {
			if err := ctx.Err(); err != nil {
				return Report{}, fmt.Errorf("benchmark: %w", err)
			}
			o.Progress(round+1, r.path.Name+", "+r.group)
			if err := r.measure(o); err != nil {
				return Report{}, err
			}
		}
	}
	var report Report
	for _, r := range runs {
		f, err := r.figures(ctx)
		if err != nil {
			return report, err
		}
		report.Figures = append(report.Figures, f)
	}
	report.Goals = goals(report.Figures)
	return report, nil
}

// benchRun is a path with what was measured on it so far.
type benchRun struct {
	group string
	path  Path
	close io.Closer

	roundTrips                []time.Duration
	datagrams, bits, connects []float64
}

func (r *benchRun) measure(o BenchOptions) error {
	rr, err := r.path.RoundTrips(o.RoundTrips)
	if err != nil {
		return err
	}
	blast, err := r.path.Blast(18, o.Blast)
	if err != nil {
		return err
	}
	bits, err := r.path.Stream(o.Stream)
	if err != nil {
		return err
	}
	_, connects, err := r.path.Connects(o.Connects)
	if err != nil {
		return err
	}
	r.roundTrips = append(r.roundTrips, rr.P50)
	r.datagrams = append(r.datagrams, blast.PerSecond)
	r.bits = append(r.bits, bits)
	r.connects = append(r.connects, connects)
	return nil
}

func (r *benchRun) figures(ctx context.Context) (Figures, error) {
	f := Figures{Path: r.path.Name, Group: r.group, RoundTrip: median(r.roundTrips), Datagrams: median(r.datagrams),
		Bits: median(r.bits), Connects: median(r.connects)}
	for _, end := range []*Namespace{r.path.Client, r.path.Server} {
		counters, err := end.Counters(ctx)
		if err != nil {
			return f, err
		}
		f.BadChecksums += counters["TcpInCsumErrors"] + counters["UdpInCsumErrors"]
		f.Retransmitted += counters["TcpRetransSegs"]
	}
	return f, nil
}

func median[T time.Duration | float64](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// goals are the ratios that Heddle sets itself (dataplane-goals §3).
func goals(figures []Figures) []Goal {
	find := func(group, path string) Figures {
		i := slices.IndexFunc(figures, func(f Figures) bool { return f.Group == group && f.Path == path })
		return figures[i]
	}
	direct, bridge, ours := find(oneHost, "direct veth"), find(oneHost, "Linux bridge"), find(oneHost, "Heddle")
	vxlan, tunnel := find(twoHosts, "bridge + vxlan"), find(twoHosts, "Heddle")
	wireVXLAN, wireTunnel := find(wireSegmented, "bridge + vxlan"), find(wireSegmented, "Heddle")
	roundTrip := func(a, b Figures) float64 { return float64(a.RoundTrip) / float64(b.RoundTrip) }
	return []Goal{
		{"one host: round trip / direct veth", roundTrip(ours, direct), 1.06, true},
		{"one host: datagrams / direct veth", ours.Datagrams / direct.Datagrams, 0.88, false},
		{"one host: TCP stream / Linux bridge", ours.Bits / bridge.Bits, 1, false},
		{"one host: connects / direct veth", ours.Connects / direct.Connects, 0.55, false},
		{"two hosts: round trip / bridge + vxlan", roundTrip(tunnel, vxlan), 0.85, true},
		{"two hosts: datagrams / bridge + vxlan", tunnel.Datagrams / vxlan.Datagrams, 1.4, false},
		{"two hosts: TCP stream / bridge + vxlan", tunnel.Bits / vxlan.Bits, 1, false},
		{"1500-byte wire: round trip / bridge + vxlan", roundTrip(wireTunnel, wireVXLAN), 0.85, true},
		{"1500-byte wire: datagrams / bridge + vxlan", wireTunnel.Datagrams / wireVXLAN.Datagrams, 1.4, false},
		{"1500-byte wire: TCP stream / bridge + vxlan", wireTunnel.Bits / wireVXLAN.Bits, 1, false},
	}
}

// String is the report as two tables.
func (r Report) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "path\tround trip p50\tdatagrams/s\tTCP Gbit/s\tconnects/s\tbad checksums")
	group := ""
	for _, f := range r.Figures {
		if f.Group != group {
			group = f.Group
			fmt.Fprintf(w, "%s:\t\t\t\t\t\n", group)
		}
		fmt.Fprintf(w, "  %s\t%.1f µs\t%.0fk\t%.1f\t%.0f\t%d\n", f.Path, float64(f.RoundTrip)/1e3, f.Datagrams/1e3, f.Bits/1e9,
			f.Connects, f.BadChecksums)
	}
	fmt.Fprintln(w, "\t\t\t\t\t\ngoal\tratio\twanted\t\t\t")
	for _, g := range r.Goals {
		bound, met := "≥", "met"
		if g.AtMost {
			bound = "≤"
		}
		if !g.Met() {
			met = "missed"
		}
		fmt.Fprintf(w, "%s\t%.2f\t%s %.2f\t%s\t\t\n", g.Name, g.Ratio, bound, g.Bound, met)
	}
	w.Flush()
	return b.String()
}
