package nft

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const tableName = "heddle"

// nameLength is the room for the name of an interface with its final zero (IFNAMSIZ).
const nameLength = 16

// family is that of a table.
type family uint8

const (
	inet family = unix.NFPROTO_INET
	arp  family = unix.NFPROTO_ARP
)

func (f family) String() string {
	if f == arp {
		return "arp"
	}
	return "inet"
}

// ref names a chain, a set or a counter in one of our tables.
type ref struct {
	table family
	name  string
}

func (r ref) String() string { return r.table.String() + " " + tableName + " " + r.name }

func compareRefs(a, b ref) int {
	if a.table != b.table {
		return int(a.table) - int(b.table)
	}
	return strings.Compare(a.name, b.name)
}

func sortedRefs[V any](m map[ref]V) []ref { return slices.SortedFunc(maps.Keys(m), compareRefs) }

// hook is the place of a base chain. The policy of all of ours is accept.
type hook struct {
	kind     string // filter or nat
	at       string // prerouting, input, forward, output, postrouting
	priority int32
}

// hookNames returns the hooks of a table's base chains, in the order of the kernel's numbers.
func hookNames(table family) []string {
	if table == arp {
		return []string{"input", "output", "forward"}
	}
	return []string{"prerouting", "input", "forward", "output", "postrouting"}
}

func (h hook) number(table family) uint32 { return uint32(slices.Index(hookNames(table), h.at)) }

func (h hook) String() string {
	return fmt.Sprintf("type %s hook %s priority %d; policy accept;", h.kind, h.at, h.priority)
}

// chain is a list of rules.
type chain struct {
	ref
	hook  *hook // nil: only other chains call it
	rules []rule
}

// keyType is a type of nft, with nft's magic number and length, so that it lists our sets well.
type keyType struct {
	name   string
	magic  uint32
	length int
	host   bool // in the byte order of this machine
	show   func(key []byte) string
}

// set is a named set or map with exact members. Prefixes and ranges are in anonymous sets.
type set struct {
	ref
	keys     []keyType // more than one: concatenated
	data     *keyType  // of a map
	verdicts bool      // a map to verdicts
}

// shape returns a text that differs for sets which cannot be turned into one another.
func (s *set) shape() string {
	names := make([]string, len(s.keys))
	for i, k := range s.keys {
		names[i] = k.name
	}
	text := strings.Join(names, " . ")
	switch {
	case s.verdicts:
		text += " : verdict"
	case s.data != nil:
		text += " : " + s.data.name
	}
	return text
}

// element is a member of a set, or an entry of a map.
type element struct {
	key     string // bytes
	data    string // bytes, of a map to values
	verdict verdict
}

// rule is a list of statements, evaluated in order until one does not match.
type rule struct {
	statements []statement
	comment    string
}

// statement is one part of a rule. It can be written as nft does, and encoded for the kernel.
type statement interface {
	text() string // empty: nft does not write it, the next statement implies it
	encode(e *ruleEncoder)
}

func (r *rule) String() string {
	var parts []string
	for _, s := range r.statements {
		if t := s.text(); t != "" {
			parts = append(parts, t)
		}
	}
	if r.comment != "" {
		parts = append(parts, `comment "`+r.comment+`"`)
	}
	return strings.Join(parts, " ")
}

// encoding is the version of the encoding of rules: after a change, rules that an earlier program
// left behind differ from ours.
const encoding = "1"

// sum returns a hash of the rule. It is stored with the rule in the kernel, which cannot change
// what a rule does: rules with equal sums are equal.
func (r *rule) sum() uint64 {
	h := fnv.New64a()
	h.Write([]byte(encoding + r.String()))
	return h.Sum64()
}

// chainSum identifies the contents of a chain.
type chainSum struct {
	hook  string // as text; empty: none
	rules int
	sum   uint64 // of the rules' sums, in order
}

func sumOf(h *hook, sums []uint64) chainSum {
	c := chainSum{rules: len(sums), sum: 14695981039346656037}
	if h != nil {
		c.hook = h.String()
	}
	for _, s := range sums {
		c.sum = (c.sum ^ s) * 1099511628211
	}
	return c
}

// verdict ends a rule. After the zero verdict the next rule follows.
type verdict struct {
	kind  verdictKind
	chain string // of jumpTo and goTo
}

type verdictKind uint8

const (
	goOn verdictKind = iota
	accept
	drop
	returns
	jumpTo
	goTo
)

// verdicts has nft's text and the kernel's number of each kind of verdict.
var verdicts = [...]struct {
	text string
	kind expr.VerdictKind
}{
	goOn: {"continue", expr.VerdictContinue}, accept: {"accept", expr.VerdictAccept}, drop: {"drop", expr.VerdictDrop},
	returns: {"return", expr.VerdictReturn}, jumpTo: {"jump ", expr.VerdictJump}, goTo: {"goto ", expr.VerdictGoto},
}

func (v verdict) String() string { return verdicts[v.kind].text + v.chain }

// tableText is a table as nft lists it.
type tableText struct {
	family   family
	counters []string
	sets     []filledSet
	chains   []chain
}

// filledSet is a set with its elements.
type filledSet struct {
	*set
	elements []element
}

func printTables(tables []family, sets map[ref]filledSet, counters []ref, chains map[ref]chain) string {
	var b strings.Builder
	for _, table := range tables {
		text := tableText{family: table}
		for _, r := range counters {
			if r.table == table {
				text.counters = append(text.counters, r.name)
			}
		}
		for _, r := range sortedRefs(sets) {
			if r.table == table {
				text.sets = append(text.sets, sets[r])
			}
		}
		for _, r := range sortedRefs(chains) {
			if r.table == table {
				text.chains = append(text.chains, chains[r])
			}
		}
		text.print(&b)
	}
	return b.String()
}

func (t tableText) print(b *strings.Builder) {
	fmt.Fprintf(b, "table %s %s {\n", t.family, tableName)
	for _, c := range t.counters {
		fmt.Fprintf(b, "\tcounter %s {\n\t}\n\n", c)
	}
	for _, s := range t.sets {
		s.print(b)
	}
	for i, c := range t.chains {
		if i > 0 {
			b.WriteString("\n")
		}
		c.print(b)
	}
	b.WriteString("}\n")
}

func (s filledSet) print(b *strings.Builder) {
	kind := "set"
	if s.verdicts || s.data != nil {
		kind = "map"
	}
	fmt.Fprintf(b, "\t%s %s {\n\t\ttype %s\n", kind, s.name, s.shape())
	if len(s.elements) > 0 {
		texts := make([]string, len(s.elements))
		for i, e := range s.elements {
			texts[i] = s.elementText(e)
		}
		slices.Sort(texts)
		fmt.Fprintf(b, "\t\telements = { %s }\n", strings.Join(texts, ", "))
	}
	b.WriteString("\t}\n\n")
}

func (c chain) print(b *strings.Builder) {
	fmt.Fprintf(b, "\tchain %s {\n", c.name)
	if c.hook != nil {
		fmt.Fprintf(b, "\t\t%s\n", c.hook)
	}
	for i := range c.rules {
		fmt.Fprintf(b, "\t\t%s\n", &c.rules[i])
	}
	b.WriteString("\t}\n")
}

// elementText returns an element as nft writes it.
func (s *set) elementText(e element) string {
	var parts []string
	at := 0
	for _, k := range s.keys {
		parts = append(parts, k.show([]byte(e.key[at:at+k.length])))
		at += padded(k.length)
	}
	text := strings.Join(parts, " . ")
	switch {
	case s.verdicts:
		text += " : " + e.verdict.String()
	case s.data != nil:
		text += " : " + s.data.show([]byte(e.data))
	}
	return text
}

// padded rounds up to whole registers of four bytes.
func padded(length int) int { return (length + 3) &^ 3 }
