package nft

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"heddle/calico"
	"heddle/internal/policy/calc"
)

var update = flag.Bool("update", false, "write the golden files anew")

// The whole ruleset of a small host, for people to read and to review changes by. It is the text
// that nft reads.
func TestGolden(t *testing.T) {
	t.Parallel()
	var f Fake
	w := newWorld(t, &f)
	l := &lab{t: t, table: w.table, calc: w.calc}
	l.everything()
	const path = "testdata/everything.nft"
	if *update {
		must(t, os.WriteFile(path, []byte(f.String()), 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if diff := cmp.Diff(string(want), f.String()); diff != "" {
		t.Errorf("%s differs (-want +got); go test -update writes it anew:\n%s", path, diff)
	}
	if diff := cmp.Diff(w.table.String(), f.String()); diff != "" {
		t.Errorf("what is wanted (-) is not what is there (+):\n%s", diff)
	}
}

// Names of chains and sets differ for different things, and nft can read them.
func TestNames(t *testing.T) {
	t.Parallel()
	readable := regexp.MustCompile(`^[a-z][A-Za-z0-9/_.-]{0,127}$`)
	id := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z/_.%+-]{0,8}`), rapid.StringMatching(`[a-z]{90,200}`))
	key := rapid.Custom(func(t *rapid.T) listKey {
		return listKey{calc.ListID{Tier: rapid.SampledFrom([]string{"", "a", "default"}).Draw(t, "tier"), Name: id.Draw(t, "name"),
			Direction: rapid.SampledFrom([]calc.Direction{calc.Inbound, calc.Outbound}).Draw(t, "direction")},
			rapid.SampledFrom([]stage{normal, untracked, preDNAT}).Draw(t, "stage")}
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := key.Draw(t, "a"), key.Draw(t, "b")
		if !readable.MatchString(a.chain()) {
			t.Fatalf("%q of %v: nft does not read it", a.chain(), a)
		}
		if a != b && a.chain() == b.chain() && (a.list != b.list || a.list.Tier != "") {
			t.Fatalf("%v and %v are both %s", a, b, a.chain())
		}
		x, y := calc.SetID(id.Draw(t, "x")), calc.SetID("s:"+id.Draw(t, "y"))
		if x != y && setName(x, 4) == setName(y, 4) {
			t.Fatalf("sets %q and %q are both %s", x, y, setName(x, 4))
		}
	})
}

// A list of prefixes or ports as ranges holds what any of them holds, in order and without overlap.
func TestSpans(t *testing.T) {
	t.Parallel()
	prefix := rapid.Custom(func(t *rapid.T) netip.Prefix {
		return netip.PrefixFrom(member(rapid.IntRange(0, 1<<10).Draw(t, "address")), rapid.IntRange(1, 32).Draw(t, "bits"))
	})
	holds := func(spans []span, key string) bool {
		for i, s := range spans {
			if i > 0 && spans[i-1].high >= s.low || s.low > s.high {
				t.Fatalf("ranges %q are not in order", spans)
			}
			if s.low <= key && key <= s.high {
				return true
			}
		}
		return false
	}
	rapid.Check(t, func(t *rapid.T) {
		prefixes := rapid.SliceOfN(prefix, 1, 10).Draw(t, "prefixes")
		a := member(rapid.IntRange(0, 1<<11).Draw(t, "of"))
		spans, _ := spansOf(merge(prefixes))
		var want bool
		for _, p := range prefixes {
			want = want || p.Contains(a)
		}
		if got := holds(spans, string(a.AsSlice())); got != want {
			t.Fatalf("%v in %v: %v", a, prefixes, got)
		}
		ports := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) calico.Ports {
			low := rapid.Uint16Range(1, 100).Draw(t, "low")
			return calico.Ports{Low: low, High: rapid.Uint16Range(low, 110).Draw(t, "high")}
		}), 1, 10).Draw(t, "ports")
		p := rapid.Uint16Range(1, 120).Draw(t, "port")
		want = false
		for _, r := range ports {
			want = want || r.Low <= p && p <= r.High
		}
		spans, _ = portSpans(ports)
		if got := holds(spans, string([]byte{byte(p >> 8), byte(p)})); got != want {
			t.Fatalf("%d in %v: %v", p, ports, got)
		}
	})
}

func TestLogPrefix(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"":                                     "calico-packet",
		"my prefix: ü":                         "my_prefix:__",
		"a-very-long_prefix:that-is-too-long-": "a-very-long_prefix:that-is-",
	} {
		if got := logPrefix(given); got != want || len(got)+len(": ") > 29 {
			t.Errorf("prefix %q is logged as %q, want %q", given, got, want)
		}
	}
}

func TestSettingsAreChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		change func(*Settings)
		want   string
	}{
		{func(*Settings) {}, ""},
		{func(s *Settings) { s.WorkloadPrefixes = nil }, "no prefix"},
		{func(s *Settings) { s.WorkloadPrefixes = []string{"cali", ""} }, `prefix of workload interfaces ""`},
		{func(s *Settings) { s.WorkloadPrefixes = []string{"a*"} }, `"a*"`},
		{func(s *Settings) { s.ToHost = "drop" }, `"drop": want DROP`},
		{func(s *Settings) { s.OnDrop = "" }, "drop action"},
		{func(s *Settings) { s.FailsafeInbound = []Failsafe{{Protocol: 1, Port: 1}} }, "fail-safe port 1 of protocol 1"},
	} {
		s := usual()
		c.change(&s)
		_, err := New(&Fake{}, s, nil)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("settings %+v: %v, want %q", s, err, c.want)
		}
		w := newWorld(t, &Fake{})
		if again := w.table.Configure(s); fmt.Sprint(again) != fmt.Sprint(err) {
			t.Errorf("Configure says %v, New says %v", again, err)
		}
	}
}

// A large load goes ahead in pieces that nothing in force names; the rules in force change in the
// last.
func TestPieces(t *testing.T) {
	t.Parallel()
	var f Fake
	var batches []string
	f.Refuse(func(b string) error { batches = append(batches, b); return nil })
	table, err := New(&f, usual(), nil)
	must(t, err)
	must(t, table.Commit(t.Context()))
	before, batchesBefore := f.String(), len(batches)
	table.Update(large(1200, 100))
	must(t, table.Commit(t.Context()))
	pieces := batches[batchesBefore:]
	if len(pieces) < 4 {
		t.Fatalf("120,000 members and 12,000 rules in %d batches", len(pieces))
	}
	for i, p := range pieces[:len(pieces)-1] {
		for line := range strings.Lines(p) {
			if !strings.HasPrefix(line, "add ") || strings.Contains(line, " forward-") || strings.Contains(line, "elements to inet heddle workload") {
				t.Fatalf("piece %d has %s", i, line)
			}
		}
	}
	if todo, err := table.Mend(t.Context()); err != nil || todo != "" || before == f.String() {
		t.Errorf("after the pieces there is something to mend: %s %v", todo, err)
	}
}

// Whatever the kernel sends, reading it neither fails nor hangs.
func FuzzMessages(f *testing.F) {
	e := encode(batch{
		{kind: addTable, ref: ref{table: inet}},
		{kind: addSet, ref: inetRef("s"), set: floatingMap(4)},
		elementsOp(addElements, verdictMap("m"), dispatch("a", verdict{goTo, "b"})),
		{kind: addChain, ref: inetRef("c"), hook: &hook{"filter", "forward", 1}},
		ruleOps("c", connectionRule(&Settings{})),
	})
	if e.err != nil {
		f.Fatal(e.err)
	}
	f.Add(e.bytes)
	f.Add(e.bytes[:len(e.bytes)-3])
	f.Fuzz(func(t *testing.T, datagram []byte) {
		concernsUs(datagram)
		for m := range messages(datagram) {
			m.errno()
			hookOf(m.family, m)
			setOf(m.family, m).shape()
			for _, data := range m.attributes() {
				elementOf(data)
				sumIn(data)
				cString(data)
			}
		}
	})
}
