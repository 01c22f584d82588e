package bench

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"heddle/internal/offline"
)

// TestVerdict: a comparison counts as measured when its slices agree on which side of the goal they
// lie, and with each other.
func TestVerdict(t *testing.T) {
	for _, c := range []struct {
		name      string
		got       float64
		low, high float64
		goal      *goal
		want      string
	}{
		{"all below what is allowed", 1.03, 1.02, 1.05, atMost(1.06), "met"},
		{"all above", 1.12, 1.10, 1.14, atMost(1.06), "missed"},
		{"on both sides", 1.05, 1.02, 1.07, atMost(1.06), "not measured"},
		{"on both sides, the median missing", 0.87, 0.85, 0.89, atLeast(0.88), "not measured"},
		{"all above what is wanted", 1.6, 1.5, 1.7, atLeast(1.4), "met"},
		{"too wide, all on one side", 2, 1.7, 2.2, atLeast(1.4), "not measured"},
		{"as wide as may be", 2, 1.81, 2.2, atLeast(1.4), "met"},
		{"no goal", 1.2, 1.15, 1.25, nil, ""},
		{"no goal, too wide", 0.5, 0.26, 0.62, nil, "not measured"},
		{"nothing came through", math.NaN(), math.NaN(), math.NaN(), nil, "not measured"},
	} {
		m := measure{Got: c.got, Unit: "×", Goal: c.goal, Range: &quartiles{Low: c.low, High: c.high, Slices: 20}}
		if got := m.verdict(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if got := (measure{Got: 3, Unit: "ms", Goal: atMost(100)}).verdict(); got != "met" {
		t.Errorf("a figure that is no comparison: %q, want met", got)
	}
}

// TestComparedLine: the line of a comparison shows the median of the slices' ratios and their
// middle half.
func TestComparedLine(t *testing.T) {
	var out bytes.Buffer
	b := &bench{options: options{output: "text", out: &out}}
	b.add(ratio("TCP / bridge", []float64{10, 12, 14, 11, 13}, []float64{10, 10, 10, 10, 10}, atLeast(1), "beside"))
	if got, want := strings.Join(strings.Fields(out.String()), " "), "TCP / bridge ≥ 1.00 × 1.20 × 1.10 to 1.30 met beside"; got != want {
		t.Errorf("the line is %q, want %q", got, want)
	}
}

// TestMissingProgram: rows whose program is missing say what to install, and are not measured.
func TestMissingProgram(t *testing.T) {
	t.Setenv("PATH", "")
	var out bytes.Buffer
	b := &bench{options: options{output: "text", out: &out}}
	err := b.withProgram("nft", "nftables", []measure{{Name: "row", Unit: "×", Goal: atLeast(2)}}, func() error {
		t.Error("it was measured")
		return nil
	})
	got, want := strings.Join(strings.Fields(out.String()), " "), "row ≥ 2.00 × not measured needs apt-get install nftables"
	if err != nil || got != want {
		t.Errorf("the line is %q, %v; want %q", got, err, want)
	}
}

// TestScenarios: the first packet to a VIP is forwarded in networks of both versions.
func TestScenarios(t *testing.T) {
	for _, scenario := range []func(crowding) string{routerScenario, vipScenario} {
		text := scenario(crowding{vips: 3, members: 2})
		f, err := offline.OpenFirstFrame(t.Context(), strings.NewReader(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if d := f.Simulate(); len(d.NewNATs) == 0 {
			t.Errorf("the packet is not balanced: %+v\n%s", d, text)
		}
	}
}

func TestBenchOptions(t *testing.T) {
	for _, slices := range []int{minSlices - 1, maxSlices + 1} {
		err := options{slices: slices, rounds: 3, output: "text"}.check()
		if err == nil || !strings.Contains(err.Error(), "--slices") {
			t.Errorf("%d slices: %v", slices, err)
		}
	}
}
