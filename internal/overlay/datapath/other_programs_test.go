package datapath

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// TestOtherPrograms: a program of other software is named, our own are not.
func TestOtherPrograms(t *testing.T) {
	d := open(t)
	look := func(want ...string) {
		t.Helper()
		if found, err := OtherPrograms(d.opts.Namespace, d.tap.ifindex); err != nil || !slices.Equal(found, want) {
			t.Errorf("found %q, %v, want %q", found, err, want)
		}
	}
	look()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "intruder", Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, at := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
		var attached link.Link
		if err := d.inNamespace(func() (err error) {
			attached, err = link.AttachTCX(link.TCXOptions{Interface: d.tap.ifindex, Program: p, Attach: at})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		defer attached.Close()
	}
	look("tcx program intruder at ingress", "tcx program intruder at egress")
}
