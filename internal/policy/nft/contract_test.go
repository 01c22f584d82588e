package nft

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/netlab"
)

// backends runs a test on the fake and on the kernel.
func backends(t *testing.T, f func(t *testing.T, b Backend)) {
	t.Run("fake", func(t *testing.T) {
		t.Parallel()
		f(t, &Fake{})
	})
	t.Run("kernel", func(t *testing.T) {
		t.Parallel()
		f(t, openIn(t, netlab.ForTest(t).MustNamespace(t, "host")))
	})
}

func inetRef(name string) ref { return ref{inet, name} }

func ruleOps(name string, rules ...rule) operation {
	return operation{kind: addRules, ref: inetRef(name), rules: func() []rule { return rules }}
}

func elementsOp(kind operationKind, s *set, all ...element) operation {
	return operation{kind: kind, ref: s.ref, set: s, elements: all}
}

func addr(s string) element { return element{key: string(netip.MustParseAddr(s).AsSlice())} }

func dispatch(name string, v verdict) element { return element{key: string(nameKey(name)), verdict: v} }

// Every backend carries out all of a batch or nothing, refuses the same, and reads back the same.
func TestContract(t *testing.T) {
	addrs, ways := addressSet("addrs/4", 4), verdictMap("ways")
	setup := batch{
		{kind: addTable, ref: ref{table: inet}},
		{kind: addCounter, ref: inetRef("seen")},
		{kind: addSet, ref: addrs.ref, set: addrs}, {kind: addSet, ref: ways.ref, set: ways},
		elementsOp(addElements, addrs, addr("192.0.2.1"), addr("192.0.2.2")),
		{kind: addChain, ref: inetRef("leaf")}, {kind: addChain, ref: inetRef("base"), hook: &hook{"filter", "forward", 0}},
		elementsOp(addElements, ways, dispatch("a", verdict{goTo, "leaf"})),
		ruleOps("leaf", do(implied{version(4)}, inSet{fields: []field{address(4, source)}, set: addrs.name}, count{"seen"}, verdict{kind: drop})),
		ruleOps("base", do(decide{inName(), ways.name})),
	}
	leaf := func(rules ...rule) chainSum { return wantedChain{rules: func() []rule { return rules }}.sum() }
	first := leaf(do(implied{version(4)}, inSet{fields: []field{address(4, source)}, set: addrs.name}, count{"seen"}, verdict{kind: drop}))
	cases := []struct {
		name string
		do   batch
		err  error
		want func(f *found) // what is other than after setup
	}{
		{"what is there is added again", setup[:8], nil, func(*found) {}},
		{"an element goes and one comes", batch{elementsOp(deleteElements, addrs, addr("192.0.2.1")), elementsOp(addElements, addrs, addr("192.0.2.3"))}, nil,
			func(f *found) {
				delete(f.sets[addrs.ref].elements, addr("192.0.2.1").key)
				f.sets[addrs.ref].elements[addr("192.0.2.3").key] = addr("192.0.2.3")
			}},
		{"an element goes that is not there", batch{elementsOp(addElements, addrs, addr("192.0.2.3")), elementsOp(deleteElements, addrs, addr("192.0.2.9"))}, errMissing, nil},
		{"an entry is changed without being taken away", batch{elementsOp(addElements, ways, dispatch("a", verdict{kind: drop}))}, errExists, nil},
		{"an entry is replaced", batch{elementsOp(deleteElements, ways, dispatch("a", verdict{goTo, "leaf"})), elementsOp(addElements, ways, dispatch("a", verdict{kind: drop}))}, nil,
			func(f *found) { f.sets[ways.ref].elements[string(nameKey("a"))] = dispatch("a", verdict{kind: drop}) }},
		{"an entry names a chain that is not there", batch{elementsOp(addElements, ways, dispatch("b", verdict{goTo, "nowhere"}))}, errMissing, nil},
		{"a rule names a chain that is not there", batch{ruleOps("base", do(verdict{jumpTo, "nowhere"}))}, errMissing, nil},
		{"a rule names a set that is not there", batch{ruleOps("base", do(decide{inName(), "nowhere"}))}, errMissing, nil},
		{"a rule names a counter that is not there", batch{ruleOps("base", do(count{"nowhere"}))}, errMissing, nil},
		{"a rule goes into a chain that is not there", batch{ruleOps("nowhere", do(verdict{kind: drop}))}, errMissing, nil},
		{"a chain goes that an entry names", batch{{kind: deleteChain, ref: inetRef("leaf")}}, errBusy, nil},
		{"a set goes that a rule names", batch{{kind: flushSet, ref: addrs.ref}, {kind: deleteSet, ref: addrs.ref}}, errBusy, nil},
		{"a counter goes that a rule names", batch{{kind: deleteCounter, ref: inetRef("seen")}}, errBusy, nil},
		{"a set goes that is not there", batch{{kind: deleteSet, ref: inetRef("nowhere")}}, errMissing, nil},
		{"a chain goes that is not there", batch{{kind: deleteChain, ref: inetRef("nowhere")}}, errMissing, nil},
		{"a chain that is not there is flushed", batch{{kind: flushChain, ref: inetRef("nowhere")}}, errMissing, nil},
		{"a table that is not there goes", batch{{kind: deleteTable, ref: ref{table: arp}}}, errMissing, nil},
		{"a set's shape changes", batch{{kind: addSet, ref: addrs.ref, set: verdictMap("addrs/4")}}, errExists, nil},
		{"a chain's rules are replaced", batch{{kind: flushChain, ref: inetRef("leaf")}, ruleOps("leaf", do(verdict{kind: accept}), do(verdict{kind: drop}))}, nil,
			func(f *found) { f.chains[inetRef("leaf")] = leaf(do(verdict{kind: accept}), do(verdict{kind: drop})) }},
		{"a chain goes with all that names it", batch{{kind: flushSet, ref: ways.ref}, {kind: flushChain, ref: inetRef("leaf")}, {kind: deleteChain, ref: inetRef("leaf")},
			{kind: flushChain, ref: inetRef("base")}, {kind: deleteSet, ref: ways.ref}, {kind: deleteSet, ref: addrs.ref}, {kind: deleteCounter, ref: inetRef("seen")}}, nil,
			func(f *found) {
				clear(f.sets)
				clear(f.counters)
				delete(f.chains, inetRef("leaf"))
				f.chains[inetRef("base")] = sumOf(&hook{"filter", "forward", 0}, nil)
			}},
		{"the table is made anew", append(batch{{kind: deleteTable, ref: ref{table: inet}}}, setup...), nil, func(*found) {}},
		{"the table goes", batch{{kind: deleteTable, ref: ref{table: inet}}}, nil, func(f *found) { *f = *newFound() }},
	}
	backends(t, func(t *testing.T, b Backend) {
		base := wantedChain{hook: &hook{"filter", "forward", 0}, rules: func() []rule { return []rule{do(decide{inName(), ways.name})} }}.sum()
		for _, c := range cases {
			if err := Cleanup(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			must(t, b.commit(t.Context(), setup))
			want := newFound()
			want.tables[inet] = true
			want.counters[inetRef("seen")] = true
			want.chains[inetRef("leaf")], want.chains[inetRef("base")] = first, base
			want.sets[addrs.ref] = foundSet{addrs.shape(), map[string]element{addr("192.0.2.1").key: addr("192.0.2.1"), addr("192.0.2.2").key: addr("192.0.2.2")}}
			want.sets[ways.ref] = foundSet{ways.shape(), map[string]element{string(nameKey("a")): dispatch("a", verdict{goTo, "leaf"})}}

			before, err := b.generation(t.Context())
			must(t, err)
			if err := b.commit(t.Context(), c.do); !errors.Is(err, c.err) {
				t.Fatalf("%s: error %v, want %v\n%s", c.name, err, c.err, c.do)
			}
			if c.want != nil {
				c.want(want)
				if after, _ := b.generation(t.Context()); after != before+1 {
					t.Errorf("%s: generation %d after %d, want one more", c.name, after, before)
				}
			}
			got, err := b.read(t.Context())
			must(t, err)
			got.generation = 0
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(found{}, foundSet{}, chainSum{}, element{}, verdict{}, ref{})); diff != "" {
				t.Errorf("%s: found differs (-want +got):\n%s", c.name, diff)
			}
		}
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
