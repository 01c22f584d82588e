// Package guest boots small virtual machines in the namespaces of a netlab: Debian's cloud kernel
// with an initramfs of busybox, which gets its address by DHCP and then has a shell on the console.
//
// scripts/setup downloads the kernel and busybox; see [Build]. QEMU emulates the processor where
// KVM does not work; see [Accelerator].
package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"

	"heddle/internal/netlab"
)

// QEMU is the program that runs guests.
const QEMU = "qemu-system-x86_64"

// Options describe a guest.
type Options struct {
	Name      string
	Namespace *netlab.Namespace // of the host
	Tap       string            // on the host, made by QEMU unless it is there
	MAC       string
	Queues    int    // of the network interface; 0 = one
	Machine   string // QEMU's machine type; "" = q35
	// Incoming makes it the target of a live migration by [Guest.Migrate]: it waits for the state
	// of another guest with the same options.
	Incoming bool
}

// Guest is a virtual machine.
type Guest struct {
	dir     string
	cmd     *exec.Cmd
	ended   chan struct{}
	console *console
	monitor *monitor
}

// Start boots a guest, which ends with ctx at the latest. It returns once QEMU answers; the guest
// is up after [Guest.Ready].
func Start(ctx context.Context, image *Image, o Options) (g *Guest, err error) {
	accelerator, err := Accelerator(image)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "guest-")
	if err != nil {
		return nil, err
	}
	g = &Guest{dir: dir, cmd: exec.CommandContext(ctx, QEMU, o.arguments(image, dir, accelerator)...), ended: make(chan struct{})}
	log := &netlab.Log{}
	g.cmd.Stdout, g.cmd.Stderr = log, log
	if err := o.Namespace.Start(g.cmd); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() { defer close(g.ended); _ = g.cmd.Wait() }()
	if err := g.connect(ctx); err != nil {
		g.Close()
		return nil, fmt.Errorf("guest %s: %w: %s", o.Name, err, log.String())
	}
	return g, nil
}

// arguments are those of QEMU.
func (o *Options) arguments(image *Image, dir, accelerator string) []string {
	machine, bus, kernel := "q35", "pci", consoleOnly
	if o.Machine != "" {
		machine = o.Machine
	}
	if machine == "microvm" {
		bus = "device"
		kernel += microvmClock
	}
	netdev, device := "tap,id=n,script=no,downscript=no,vhost=off,ifname="+o.Tap, "virtio-net-"+bus+",netdev=n,mac="+o.MAC
	cpus := 1
	if o.Queues > 1 {
		netdev += fmt.Sprintf(",queues=%d", o.Queues)
		device += fmt.Sprintf(",mq=on,vectors=%d", 2*o.Queues+2)
		cpus = o.Queues
	}
	if bus == "pci" {
		device += ",romfile="
	}
	args := []string{"-name", o.Name, "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-M", machine,
		"-accel", accelerator, "-cpu", processor(accelerator), "-smp", fmt.Sprint(cpus), "-m", "128",
		"-kernel", image.Kernel, "-initrd", image.Initrd, "-append", kernel,
		"-chardev", "socket,id=c,server=on,wait=off,path=" + filepath.Join(dir, "console"), "-serial", "chardev:c",
		"-qmp", "unix:" + filepath.Join(dir, "qmp") + ",server=on,wait=off",
		"-netdev", netdev, "-device", device}
	if o.Incoming {
		args = append(args, "-incoming", "unix:"+filepath.Join(dir, "incoming"))
	}
	return args
}

const (
	consoleOnly = "console=ttyS0 quiet panic=-1"
	// microvmClock has the kernel do without a timer to compare the processor's clock with: the
	// machine type microvm has none under emulation.
	microvmClock = " tsc_early_khz=2500000 lpj=4000000 no_timer_check"
)

// connect connects to the guest's console and to QEMU's monitor.
func (g *Guest) connect(ctx context.Context) error {
	for name, use := range map[string]func(net.Conn) error{
		"console": func(c net.Conn) error { g.console = newConsole(c); return nil },
		"qmp":     func(c net.Conn) (err error) { g.monitor, err = newMonitor(c); return err },
	} {
		var c net.Conn
		err := netlab.Until(ctx, "QEMU to listen", func() (bool, error) {
			select {
			case <-g.ended:
				return false, fmt.Errorf("%s has ended", QEMU)
			default:
			}
			var err error
			c, err = net.Dial("unix", filepath.Join(g.dir, name))
			return err == nil, nil
		})
		if err == nil {
			err = use(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Close ends the guest, and removes what QEMU has made for it.
func (g *Guest) Close() error {
	_ = g.cmd.Process.Kill() // has ended already is fine
	<-g.ended
	if g.console != nil {
		g.console.close()
	}
	if g.monitor != nil {
		g.monitor.close()
	}
	return os.RemoveAll(g.dir)
}

// Ready waits until the guest has asked for an address and has a shell. lease reports whether it
// got one.
func (g *Guest) Ready(ctx context.Context) (lease bool, err error) {
	text, err := g.console.until(ctx, readyLine)
	if err == nil {
		_, err = g.Run(ctx, "true") // its shell has introduced itself
	}
	return leaseLine.MatchString(text), err
}

// Run runs a line of shell in the guest and returns what it prints. An exit code other than 0 is an
// error.
func (g *Guest) Run(ctx context.Context, line string) (string, error) {
	return g.console.run(ctx, line)
}

// Console returns all that the guest has written to its console.
func (g *Guest) Console() string { return g.console.all() }

// Query sends QEMU's monitor a command and decodes its answer into out unless nil.
func (g *Guest) Query(command string, arguments, out any) error {
	raw, err := g.monitor.execute(command, arguments)
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(raw, out)
}

// Migrate moves the guest live to one that was started with Incoming, and waits until that runs.
func (g *Guest) Migrate(ctx context.Context, to *Guest) error {
	if err := g.Query("migrate", map[string]any{"uri": "unix:" + filepath.Join(to.dir, "incoming")}, nil); err != nil {
		return err
	}
	return to.monitor.await(ctx, "RESUME")
}
