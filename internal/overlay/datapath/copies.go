package datapath

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// MaxCopies is the number of copies of one flow.
const MaxCopies = 4

// Copy is a place that a copy of a flow's frames goes to. It has the headers that frames come with
// or, if Rewritten, those of the flow's Rewrite, also if the flow drops. A copy that cannot be sent
// is counted, and changes nothing about the frame.
type Copy struct {
	Output
	Rewritten bool
}

// errCopySetsFull reports that flows in force use all numbers.
var errCopySetsFull = errors.New("flows have too many different lists of copies")

// copyNumber returns the number of a list of copies, which the kernel has by then; 0 for none. It
// needs the locks of the lists and the framings.
func (c *flowCache) copyNumber(all []Copy) (uint16, error) {
	if len(all) == 0 {
		return 0, nil
	}
	list, err := c.packCopies(all)
	if err != nil {
		return 0, err
	}
	number, err := c.copySets.number(list, c.maps.Copies, c.releaseCopies, errCopySetsFull)
	if err != nil {
		return 0, fmt.Errorf("copies of a flow: %w", err)
	}
	return number, nil
}

// releaseCopies gives back the numbers that no flow has.
func (c *flowCache) releaseCopies() error {
	used := maps.Clone(c.copySets.given)
	slot := func(v *bpfFlow) (uint16, bool) { return v.Slots[MaxTags-1], v.Kind&outCopied != 0 }
	err := errors.Join(numbersInUse[bpfKey4, bpfFlow4](c.maps.Flows4, used, slot), numbersInUse[bpfKey6, bpfFlow6](c.maps.Flows6, used, slot))
	if err != nil {
		return fmt.Errorf("find the copies that flows have: %w", err)
	}
	c.copySets.keep(used)
	return nil
}

// copiesAt returns the list of copies with a number.
func (c *flowCache) copiesAt(number uint16) (all []Copy) {
	for _, to := range c.copySets.at(number).All {
		if to.Kind == outDrop {
			break
		}
		out := outputOf(to.Kind, to.Out, to.Vni)
		out.Framing = framingOf(c.framings.at(to.Framing), 0)
		all = append(all, Copy{out, to.Rewritten != 0})
	}
	return all
}

func (c *flowCache) packCopies(all []Copy) (list bpfCopies, err error) {
	for i, copied := range all {
		to := &list.All[i]
		to.Kind, to.Out, to.Vni = copied.words()
		if to.Framing, err = c.framingNumber(copied.Framing); err != nil {
			return list, err
		}
		if copied.Rewritten {
			to.Rewritten = 1
		}
	}
	return list, nil
}

// copiesRewritten reports whether some copies have the headers of the flow's Rewrite.
func (f *Flow) copiesRewritten() bool {
	return slices.ContainsFunc(f.Copies, func(c Copy) bool { return c.Rewritten })
}

// checkCopies returns why the programs cannot send the flow's copies.
func (f *Flow) checkCopies() error {
	switch {
	case len(f.Copies) > MaxCopies:
		return fmt.Errorf("%d copies: want at most %d", len(f.Copies), MaxCopies)
	case f.copiesRewritten() && f.Rewrite == nil:
		return errors.New("rewritten copies of a flow that does not rewrite")
	case slices.ContainsFunc(f.Copies, func(c Copy) bool { return c.Drops() }):
		return errors.New("a copy that goes nowhere")
	}
	return nil
}
