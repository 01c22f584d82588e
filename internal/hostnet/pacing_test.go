package hostnet

import (
	"errors"
	"testing"
)

// TestPaceLink: where the kernel has the discipline, a paced link has it until it is unpaced; else
// that is said, and the link is as before.
func TestPaceLink(t *testing.T) {
	t.Parallel()
	n := kernel(t)
	if _, err := n.AddLink(LinkSpec{Name: "eth0", Kind: Veth, Peer: "peer0"}); err != nil {
		t.Fatal(err)
	}
	link, err := n.handle.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	kind := func() string {
		all, err := n.handle.QdiscList(link)
		if err != nil || len(all) > 1 {
			t.Fatalf("%v, %v: want one queue at most", all, err)
		}
		if len(all) == 0 {
			return "none"
		}
		return all[0].Type()
	}
	before, paced := kind(), "fq"
	if err := n.PaceLink(link.Attrs().Index); errors.Is(err, ErrUnsupported) {
		paced = before
	} else if err != nil {
		t.Fatal(err)
	}
	if got := kind(); got != paced {
		t.Errorf("paced, its queue is %s: want %s", got, paced)
	}
	for range 2 {
		if err := n.UnpaceLink(link.Attrs().Index); err != nil {
			t.Fatal(err)
		}
	}
	if got := kind(); got != before {
		t.Errorf("unpaced, its queue is %s: want %s", got, before)
	}
	if err := n.UnpaceLink(1 << 20); err != nil {
		t.Errorf("of a link that is gone: %v", err)
	}
	if err := n.PaceLink(1 << 20); err == nil {
		t.Error("a link that is gone was paced")
	}
}
