package guest

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// AccelVariable names the environment variable that sets QEMU's accelerator.
const AccelVariable = "HEDDLE_TEST_ACCEL"

const (
	kvm = "kvm"
	// tcg runs all processors of a guest in one thread: of QEMU 7.2, which Debian 12 has, one may
	// otherwise see code that another has patched already.
	tcg = "tcg,thread=single"
)

// acceleratorProbe bounds the time in which a kernel that runs by KVM prints its first line.
const acceleratorProbe = 5 * time.Second

var accelerator struct {
	sync.Mutex
	chosen string
}

// Accelerator returns QEMU's accelerator for guests with this image: that of HEDDLE_TEST_ACCEL,
// else kvm if a kernel is seen to start by it, else tcg. Whether /dev/kvm can be opened says too
// little: there are machines where it opens and runs no such kernel.
func Accelerator(image *Image) (string, error) {
	if set := os.Getenv(AccelVariable); set != "" {
		return set, nil
	}
	accelerator.Lock()
	defer accelerator.Unlock()
	if accelerator.chosen == "" {
		works, err := startsByKVM(image)
		if err != nil {
			return "", err
		}
		accelerator.chosen = tcg
		if works {
			accelerator.chosen = kvm
		}
	}
	return accelerator.chosen, nil
}

func processor(accelerator string) string {
	if strings.HasPrefix(accelerator, kvm) {
		return "host"
	}
	return "qemu64"
}

// startsByKVM reports whether a kernel prints something soon after its start by KVM.
func startsByKVM(image *Image) (bool, error) {
	device, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false, nil
	}
	device.Close()
	ctx, cancel := context.WithTimeout(context.Background(), acceleratorProbe)
	defer cancel()
	cmd := exec.CommandContext(ctx, QEMU, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-M", "q35",
		"-accel", kvm, "-cpu", processor(kvm), "-m", "128", "-kernel", image.Kernel, "-append", "console=ttyS0 panic=-1", "-serial", "stdio")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	n, _ := io.ReadFull(out, make([]byte, len("Linux version"))) // fails when QEMU ends, or is killed
	cancel()
	_ = cmd.Wait() // killed
	return n > 0, nil
}
