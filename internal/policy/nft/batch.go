package nft

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Backend holds rulesets: the kernel ([Kernel]), or a [Fake]. Its methods are for a [Table].
type Backend interface {
	// commit carries out one batch after another, each as a whole or not at all. An error names the
	// refused operation; only read shows what was carried out.
	commit(ctx context.Context, batches ...batch) error
	// read returns what is in our tables.
	read(ctx context.Context) (*found, error)
	// generation grows by one with each commit of any program to any table.
	generation(ctx context.Context) (uint32, error)
	// counters returns the packets and bytes of our named counters.
	counters(ctx context.Context) (map[string]Counter, error)
}

// Counter has the packets and bytes counted since a named counter was made.
type Counter struct {
	Packets, Bytes uint64
}

// The errors of backends, which are the kernel's.
var (
	errMissing = errors.New("no such object")
	errExists  = errors.New("exists already, and differs")
	errBusy    = errors.New("still in use")
)

// operation is one step of a batch.
type operation struct {
	kind     operationKind
	ref      ref
	hook     *hook         // of addChain
	rules    func() []rule // of addRules; many, so they are made when they are needed
	set      *set          // of addSet and operations on elements
	elements []element     // of addElements and deleteElements
}

type operationKind uint8

const (
	addTable       operationKind = iota // an existing one is fine
	deleteTable                         // with all that is in it
	addCounter                          // an existing one is fine
	deleteCounter                       //
	addSet                              // an existing one of the same shape is fine
	deleteSet                           // no rule may name it
	addElements                         // existing ones are fine if they are the same
	deleteElements                      // all must be there
	flushSet                            // takes all elements away
	addChain                            // an existing one of the same hook is fine
	flushChain                          // takes all rules away
	addRules                            // at the chain's end
	deleteChain                         // nothing may name it, and it must be empty
)

var operationNames = [...]string{"add table", "delete table", "add counter", "delete counter", "add set", "delete set",
	"add elements to", "delete elements of", "flush set", "add chain", "flush chain", "add rule to", "delete chain"}

// batch is a list of operations that take effect together.
type batch []operation

// String prints the batch as a person would type it, an operation a line.
func (b batch) String() string {
	var text strings.Builder
	for _, o := range b {
		switch o.kind {
		case addRules:
			for _, r := range o.rules() {
				fmt.Fprintf(&text, "%s %s %s\n", operationNames[o.kind], o.ref, &r)
			}
		case addElements, deleteElements:
			for _, e := range o.elements {
				fmt.Fprintf(&text, "%s %s %s\n", operationNames[o.kind], o.ref, o.set.elementText(e))
			}
		default:
			fmt.Fprintln(&text, o)
		}
	}
	return text.String()
}

// String names the operation.
func (o operation) String() string {
	if o.kind == addTable || o.kind == deleteTable {
		return fmt.Sprintf("%s %s %s", operationNames[o.kind], o.ref.table, tableName)
	}
	return fmt.Sprintf("%s %s", operationNames[o.kind], o.ref)
}

// found has the contents of our tables.
type found struct {
	generation uint32
	withoutARP bool // the kernel has no tables of family arp
	tables     map[family]bool
	chains     map[ref]chainSum
	sets       map[ref]foundSet
	counters   map[ref]bool
}

// foundSet is a named set as found.
type foundSet struct {
	shape    string
	elements map[string]element // by key
}

func newFound() *found {
	return &found{tables: map[family]bool{}, chains: map[ref]chainSum{}, sets: map[ref]foundSet{}, counters: map[ref]bool{}}
}
