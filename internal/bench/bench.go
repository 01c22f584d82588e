// Package bench is `heddle bench`: it measures Heddle on this machine beside the kernel's own
// paths. Each part of --only has a file.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"heddle/internal/command"
	"heddle/internal/lab"
)

const (
	// prefix begins the name of everything the benchmark makes.
	prefix = "heddle-bench"
	// defaultDir holds the server's data and all logs, on a disk, since commits should be durable.
	defaultDir = "/var/tmp/" + prefix
	// sliceTime is the time for which a path is measured in one turn.
	sliceTime            = 250 * time.Millisecond
	minSlices, maxSlices = 20, 1000
	// maxSpread is the widest interquartile range of a comparison that counts as measured, as a
	// share of its median: goals are steps of a tenth and less.
	maxSpread = 0.2
)

// parts returns what can be measured, in order.
func parts() []part {
	return []part{
		{"traffic", "cached flows beside the kernel's own paths", (*bench).traffic},
		{"nat", "cached flows by a router's SNAT beside the kernel's own", (*bench).nat},
		{"limits", "ports with a bandwidth limit, beside its rate", (*bench).limits},
		{"flows", "new flows, and a scan beside them", (*bench).flows},
		{"changes", "changes of rules, and a restart, under traffic", (*bench).changes},
		{"start", "an agent's start on a host with 100 of 1,000 ports", (*bench).start},
		{"api", "the Neutron API over durable commits, up to 10,000 ports", (*bench).api},
		{"metadata", "machines that ask for metadata, beside plain HTTP", (*bench).metadata},
		{"explain", "questions of why and of who reaches whom, in a cloud of 10,000 ports", (*bench).questions},
		{"services", "load balancers beside the kernel's DNAT and haproxy, taps, VTEPs, BGP, firewall logs", (*bench).services},
	}
}

type part struct {
	name, about string
	run         func(*bench, context.Context) error
}

// Command returns `heddle bench`.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the product on this machine, beside what the kernel offers",
		Long:  help(),
		Args:  cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.only, "only", nil, "measure these `parts` only")
	f.IntVar(&o.slices, "slices", 24, fmt.Sprintf("slices of %s of each path where paths are compared, %d to %d; the median of their ratios counts", sliceTime, minSlices, maxSlices))
	f.IntVar(&o.rounds, "rounds", 3, "rounds of all else, of which the median counts, 1 to 9")
	f.BoolVar(&o.quick, "quick", false, "only see that everything can be measured: short rounds, small numbers, figures that mean little")
	f.StringVar(&o.dir, "dir", defaultDir, "`directory` for the server's data, taken away after; the disk it is on counts")
	output := command.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		o.output, o.out, o.progress = *output, cmd.OutOrStdout(), cmd.ErrOrStderr()
		return run(cmd.Context(), o)
	}
	return cmd
}

func help() string {
	var b strings.Builder
	b.WriteString(`Runs the server, agents and workloads in network namespaces, makes everything by calls to the API, and measures real traffic
through real agents, beside a direct veth pair, a Linux bridge, a router with nftables rules and the kernel's vxlan. Compared paths take
turns in short slices; a figure is the median of the slices' ratios, with the range of their middle half. It prints the goals of
docs/performance.md and what was got, and fails only when something cannot be measured. It takes some minutes and wants
a machine that does nothing else: "not measured" stands where the slices differ too much to say whether the goal was met. The parts:
`)
	for _, p := range parts() {
		fmt.Fprintf(&b, "  %-8s  %s\n", p.name, p.about)
	}
	b.WriteString("What can be measured without a network is measured by the Go benchmarks: make bench runs both.")
	return b.String()
}

type options struct {
	only     []string
	slices   int
	rounds   int
	quick    bool
	dir      string
	output   string // text or json
	out      io.Writer
	progress io.Writer
}

func (o options) check() error {
	if o.slices < minSlices || o.slices > maxSlices {
		return &command.Exit{Code: 2, Text: fmt.Sprintf("--slices %d: want %d to %d", o.slices, minSlices, maxSlices)}
	}
	if o.rounds < 1 || o.rounds > 9 {
		return &command.Exit{Code: 2, Text: fmt.Sprintf("--rounds %d: want 1 to 9", o.rounds)}
	}
	if o.output != "text" && o.output != "json" {
		return &command.Exit{Code: 2, Text: fmt.Sprintf("output format %q: want text or json", o.output)}
	}
	var names []string
	for _, p := range parts() {
		names = append(names, p.name)
	}
	for _, name := range o.only {
		if !slices.Contains(names, name) {
			return &command.Exit{Code: 2, Text: fmt.Sprintf("--only %s: want some of %s", name, strings.Join(names, ", "))}
		}
	}
	if os.Geteuid() != 0 {
		return &command.Exit{Code: 1, Text: "the benchmark makes network namespaces and loads eBPF programs: run it as root"}
	}
	return nil
}

// bench is one run.
type bench struct {
	options
	part   string // being measured
	report report
}

// report holds the results of a run.
type report struct {
	Machine  machine   `json:"machine"`
	Slices   int       `json:"slices"`
	Rounds   int       `json:"rounds"`
	Took     string    `json:"took"`
	Measures []measure `json:"measures"`
}

// measure is one figure.
type measure struct {
	Part string  `json:"part"`
	Name string  `json:"measure"`
	Got  float64 `json:"got"`
	Unit string  `json:"unit"` // "×" for a ratio
	Goal *goal   `json:"goal,omitempty"`
	// Range is that of a ratio's slices; nil for other figures.
	Range *quartiles `json:"range,omitempty"`
	// Verdict is "met", "missed", "not measured" or, without a goal, "".
	Verdict string `json:"verdict,omitempty"`
	// Beside has other results of the same run, such as the terms of a ratio.
	Beside string `json:"beside,omitempty"`
	// Install is the Debian package of a program that the measurement needs and this machine lacks.
	// There is no figure then.
	Install string `json:"install,omitempty"`
}

// quartiles are the first and the third of a comparison's slices.
type quartiles struct {
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
	Slices int     `json:"slices"`
}

// verdict compares a figure with its goal. A comparison counts as measured if the interquartile
// range of its slices lies on one side of the goal and is no wider than maxSpread of the median.
func (m measure) verdict() string {
	if m.Install != "" {
		return "not measured"
	}
	if r := m.Range; r != nil {
		wide := !(r.High-r.Low <= maxSpread*m.Got) // true for NaN
		if wide || m.Goal != nil && m.Goal.met(r.Low) != m.Goal.met(r.High) {
			return "not measured"
		}
	}
	switch {
	case m.Goal == nil:
		return ""
	case m.Goal.met(m.Got):
		return "met"
	}
	return "missed"
}

// goal bounds a figure of the same unit.
type goal struct {
	AtMost bool    `json:"atMost"` // else at least
	Bound  float64 `json:"bound"`
}

func atMost(x float64) *goal  { return &goal{AtMost: true, Bound: x} }
func atLeast(x float64) *goal { return &goal{Bound: x} }

func (g *goal) met(got float64) bool {
	if g.AtMost {
		return got <= g.Bound
	}
	return got >= g.Bound
}

func run(ctx context.Context, o options) error {
	if err := o.check(); err != nil {
		return err
	}
	if err := lab.Clean(prefix, o.dir); err != nil {
		return fmt.Errorf("take down what an earlier run left: %w", err)
	}
	b := &bench{options: o}
	begun := time.Now()
	b.report.Slices, b.report.Rounds = o.slices, o.rounds
	var err error
	if b.report.Machine, err = thisMachine(); err != nil {
		return err
	}
	b.head()
	for _, p := range parts() {
		if len(o.only) > 0 && !slices.Contains(o.only, p.name) {
			continue
		}
		b.part = p.name
		if err := b.measurePart(ctx, p); err != nil {
			return err
		}
	}
	if b.report.Machine.LoadAfter, err = loadAverage(); err != nil {
		return err
	}
	b.report.Took = time.Since(begun).Round(time.Second).String()
	if o.output == "json" {
		return command.PrintJSON(o.out, b.report)
	}
	fmt.Fprintf(o.out, "\ntook %s, load average after: %.1f\n", b.report.Took, b.report.Machine.LoadAfter)
	return os.RemoveAll(o.dir)
}

func (b *bench) measurePart(ctx context.Context, p part) error {
	b.logf("%s: %s", p.name, p.about)
	if b.output == "text" {
		fmt.Fprintf(b.out, "\n%s: %s\n", p.name, p.about)
	}
	err := p.run(b, ctx)
	if ctx.Err() != nil {
		return &command.Exit{Code: 1, Text: "interrupted; everything was taken down"}
	}
	if err != nil {
		return fmt.Errorf("measure %s: %w (logs are in %s)", p.name, err, b.dir)
	}
	return nil
}

// logf prints progress.
func (b *bench) logf(format string, args ...any) {
	fmt.Fprintf(b.progress, "… "+format+"\n", args...)
}

func (b *bench) head() {
	if b.output != "text" {
		return
	}
	m := b.report.Machine
	fmt.Fprintf(b.out, "%s, %d cores, %d MB, Linux %s; load average before: %.1f; ratios: medians of %d slices and their middle half; else medians of %d rounds\n\n", m.Processor, m.Cores, m.MemoryMB, m.Kernel, m.LoadBefore, b.slices, b.rounds)
	fmt.Fprintf(b.out, "%-64s %-11s %-11s %-12s %-12s %s\n", "MEASURE", "GOAL", "GOT", "MIDDLE HALF", "", "BESIDE IT, IN THE SAME RUN")
}

// add records a figure and prints its line.
func (b *bench) add(m measure) {
	m.Part, m.Verdict = b.part, m.verdict()
	b.report.Measures = append(b.report.Measures, m)
	if b.output != "text" {
		return
	}
	wanted, got, middle, beside := "", quantity(m.Got, m.Unit), "", m.Beside
	if m.Install != "" {
		got, beside = "", "needs apt-get install "+m.Install
	}
	if m.Goal != nil {
		sign := "≥ "
		if m.Goal.AtMost {
			sign = "≤ "
		}
		wanted = sign + quantity(m.Goal.Bound, m.Unit)
	}
	if m.Range != nil {
		middle = fmt.Sprintf("%.2f to %.2f", m.Range.Low, m.Range.High)
	}
	fmt.Fprintf(b.out, "%-64s %-11s %-11s %-12s %-12s %s\n", m.Name, wanted, got, middle, m.Verdict, beside)
}

// slice returns how long a path is measured in one turn.
func (b *bench) slice() time.Duration {
	if b.quick {
		return sliceTime / 10
	}
	return sliceTime
}

// quantity formats a number with its unit.
func quantity(x float64, unit string) string {
	switch {
	case unit == "×":
		return fmt.Sprintf("%.2f ×", x)
	case x != 0 && x < 10 && x != float64(int(x)):
		return fmt.Sprintf("%.1f %s", x, unit)
	}
	return fmt.Sprintf("%.0f %s", x, unit)
}

// pick returns n, or with --quick the small number.
func (b *bench) pick(n, quick int) int {
	if b.quick {
		return quick
	}
	return n
}

// withLab starts a server for a part, and stops it afterwards.
func (b *bench) withLab(ctx context.Context, use func(*lab.Lab) error) (err error) {
	dir := filepath.Join(b.dir, b.part)
	l, err := lab.New(ctx, prefix, dir)
	if l != nil {
		// ctx may have ended by Ctrl-C; everything is taken down all the same.
		defer func() { err = errors.Join(err, l.Close(context.WithoutCancel(ctx))) }()
	}
	if err != nil {
		return err
	}
	return use(l)
}
