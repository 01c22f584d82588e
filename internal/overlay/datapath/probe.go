package datapath

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Probe returns nil if this kernel can carry the datapath, else what it lacks. Linux 6.6 suffices.
func Probe() error {
	var missing []error
	lack := func(what string, err error) {
		if err != nil {
			missing = append(missing, fmt.Errorf("%s: %w", what, err))
		}
	}
	lack("ring buffer", features.HaveMapType(ebpf.RingBuf))
	lack("redirect to the other end of a veth", features.HaveProgramHelper(ebpf.SchedCLS, asm.FnRedirectPeer))
	lack("coarse clock", features.HaveProgramHelper(ebpf.SchedCLS, asm.FnKtimeGetCoarseNs))
	lack("tcx", haveTCX())
	if len(missing) == 0 {
		return nil
	}
	var u unix.Utsname
	_ = unix.Uname(&u)
	return fmt.Errorf("kernel %s lacks what the overlay needs; use Linux 6.6 or newer, as root (CAP_BPF, CAP_NET_ADMIN): %w",
		unix.ByteSliceToString(u.Release[:]), errors.Join(missing...))
}

// haveTCX attaches to an interface that cannot exist: a kernel with tcx says so.
func haveTCX() error {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		return err
	}
	defer p.Close()
	l, err := link.AttachTCX(link.TCXOptions{Interface: math.MaxInt32, Program: p, Attach: ebpf.AttachTCXIngress})
	if err == nil {
		return l.Close()
	}
	if errors.Is(err, ebpf.ErrNotSupported) {
		return err
	}
	return nil
}
