package datapath

import (
	"errors"
	"strings"
	"testing"

	"heddle/internal/topology/flow"
)

// TestCopiesOfFlows: flows are found with the copies that they were installed with, also by the
// next agent, and flows with the same copies share their list.
func TestCopiesOfFlows(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	here, there := Output{Port: l.out}, Output{Tunnel: l.tunnel, TunnelKey: 0xabcdef}
	lists := [][]Copy{{{here, false}}, {{here, true}, {there, false}}, {{there, true}, {there, true}, {here, false}, {here, true}}, nil}
	want := map[Key]Flow{}
	for i, frame := range [][]byte{tcp4(nil), udp6(nil), echo4()} {
		for j, copies := range lists {
			for k, out := range []Output{{}, here, there} {
				key := l.keyOf(frame)
				key.Port = Port(100*i + 10*j + k)
				f := Flow{Key: key, Out: out, Tags: l.Tags(1, 2, 3, 4, 5), Copies: copies}
				if copies != nil && copies[0].Rewritten || i == 1 && !out.Drops() {
					f.Rewrite = translated(key)
				} else if i == 2 && j == 1 {
					f.Rewrite = routed(key)
				}
				if err := l.Install([]Flow{f}); err != nil {
					t.Fatalf("%+v: %v", f, err)
				}
				want[key] = f
			}
		}
	}
	dump := func() map[Key]Flow {
		got := map[Key]Flow{}
		if err := l.Dump(func(s FlowState) bool { got[s.Key] = s.Flow; return true }); err != nil {
			t.Fatal(err)
		}
		return got
	}
	compare(t, "flows", dump(), want)
	if n := len(l.copySets.numbers); n != 3 {
		t.Errorf("%d lists of copies, want 3", n)
	}
	l.copySets = numbered[bpfCopies]{} // as the next agent begins
	if err := l.copySets.open(l.maps.Copies); err != nil {
		t.Fatal(err)
	}
	compare(t, "flows of an earlier agent", dump(), want)
}

// TestCopyNumbers: numbers of lists that no flow has are given again, and those in use never.
func TestCopyNumbers(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	kept, changing := l.keyOf(tcp4(nil)), l.keyOf(udp6(nil))
	list := func(i int) []Copy { return []Copy{{Output{Tunnel: l.tunnel, TunnelKey: uint32(i)}, false}} }
	if err := l.Install([]Flow{{Key: kept, Copies: list(0)}}); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < 2*maxNumbers; i++ {
		if err := l.Install([]Flow{{Key: changing, Copies: list(i)}}); err != nil {
			t.Fatalf("list %d: %v", i, err)
		}
	}
	for key, want := range map[Key][]Copy{kept: list(0), changing: list(2*maxNumbers - 1)} {
		s, _, err := l.Lookup(key)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, "copies", s.Copies, want)
	}
	// In one batch: 4094 lists, with the one that is kept all that there is room for.
	if err := l.Delete(changing); err != nil {
		t.Fatal(err)
	}
	var all []Flow
	for i := range maxNumbers {
		key := changing
		key.Port = Port(i + 1)
		all = append(all, Flow{Key: key, Copies: list(i + 1)})
	}
	if err := l.Install(all[:maxNumbers-2]); err != nil {
		t.Fatal(err)
	}
	for _, f := range append(all[:maxNumbers-2:maxNumbers-2], Flow{Key: kept, Copies: list(0)}) {
		if s, _, err := l.Lookup(f.Key); err != nil || len(s.Copies) != 1 || s.Copies[0] != f.Copies[0] {
			t.Fatalf("flow %+v has copies %+v, %v", f, s.Copies, err)
		}
	}
	if err := l.Install(all[maxNumbers-2:]); !errors.Is(err, errCopySetsFull) {
		t.Errorf("more lists in use than there are numbers: %v", err)
	}
}

// TestCopyRefusals lists copies that Install does not take.
func TestCopyRefusals(t *testing.T) {
	t.Parallel()
	l := newLab(t, PortOptions{})
	key := l.keyOf(tcp4(nil))
	one := Copy{Output: Output{Port: l.out}}
	for want, f := range map[string]Flow{
		"5 copies":         {Copies: []Copy{one, one, one, one, one}},
		"does not rewrite": {Copies: []Copy{{Output: one.Output, Rewritten: true}}},
		"goes nowhere":     {Copies: []Copy{{}}},
		"6 tags":           {Copies: []Copy{one}, Tags: l.Tags(1, 2, 3, 4, 5, 6)},
		"ICMP errors":      {Copies: []Copy{{Output: one.Output, Rewritten: true}}, Rewrite: &flow.Rewrite{Src: ipA, Dst: ipB, Quote: &flow.Quote{}}},
	} {
		f.Key = key
		if err := l.Install([]Flow{f}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}
