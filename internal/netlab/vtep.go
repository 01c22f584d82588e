package netlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
)

const (
	vtepSchema   = "/usr/share/openvswitch/vtep.ovsschema"
	vtepEmulator = "/usr/share/openvswitch/scripts/ovs-vtep"
)

// VTEPSwitch is the name of the physical switch of a host's VTEP.
const VTEPSwitch = "sw0"

// FindVTEP reports a missing program that an emulated hardware VTEP needs.
func FindVTEP() error {
	if err := FindOVS(); err != nil {
		return err
	}
	for _, path := range []string{"/usr/bin/vtep-ctl", vtepEmulator, vtepSchema} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("install openvswitch-vtep: %w", err)
		}
	}
	// Debian's own python3 has the module that the emulator needs.
	if err := exec.Command("/usr/bin/python3", "-c", "import ovs").Run(); err != nil {
		return errors.New("install python3-openvswitch")
	}
	return nil
}

// VTEPForTest makes a lab with one host that is a hardware VTEP, whose emulator runs. It skips the
// test without the programs.
func VTEPForTest(t TB) *OVSHost {
	t.Helper()
	if err := FindVTEP(); err != nil {
		t.Skipf("this test emulates a hardware VTEP: %v", err)
	}
	h := OVSForTest(t, 1).Hosts()[0]
	if err := h.BecomeVTEP(); err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := h.KillEmulator(); err != nil {
			t.Errorf("end the emulator: %v", err)
		}
	})
	return h
}

// BecomeVTEP gives the host the database and the emulator of a hardware VTEP with a switch that has
// no ports yet. Its tunnel address is the host's, and its database listens on OVSDBPort there.
func (h *OVSHost) BecomeVTEP() error {
	if err := h.EmptyVTEP(); err != nil {
		return err
	}
	h.vtep = true
	if err := errors.Join(h.KillDatabase(), h.StartDatabase()); err != nil {
		return err
	}
	// The emulator copies the type of the switch's bridge to those that it makes.
	if _, err := h.Vsctl("--may-exist", "add-br", VTEPSwitch, "--", "set", "bridge", VTEPSwitch, "datapath_type=netdev"); err != nil {
		return err
	}
	if err := h.DeclareVTEP(); err != nil {
		return err
	}
	return h.StartEmulator()
}

// EmptyVTEP replaces the VTEP's database by an empty one. It must not run.
func (h *OVSHost) EmptyVTEP() error {
	if err := os.Remove(h.file("vtep.db")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return run("ovsdb-tool", "create", h.file("vtep.db"), vtepSchema)
}

// DeclareVTEP enters the switch and its tunnel address into the VTEP's database.
func (h *OVSHost) DeclareVTEP() error {
	_, err := h.VTEPctl("--may-exist", "add-ps", VTEPSwitch, "--", "set", "Physical_Switch", VTEPSwitch, "tunnel_ips="+h.Address.String())
	return err
}

// StartEmulator starts the program that makes the switch do what the VTEP's database says.
func (h *OVSHost) StartEmulator() (err error) {
	h.emulator, err = h.spawn("/usr/bin/python3", vtepEmulator, "-vconsole:off", "--log-file="+h.file("vtep.log"), "--pidfile="+h.file("vtep.pid"), VTEPSwitch)
	return err
}

// KillEmulator kills it, if it runs.
func (h *OVSHost) KillEmulator() error { return end(&h.emulator) }

// VTEPPort makes a machine of that address behind a port of the switch.
func (h *OVSHost) VTEPPort(name, prefix string) (space *Namespace, port string, err error) {
	if space, port, err = h.Machine(name, prefix); err != nil {
		return nil, "", err
	}
	if _, err = h.Vsctl("add-port", VTEPSwitch, port); err != nil {
		return nil, "", err
	}
	_, err = h.VTEPctl("add-port", VTEPSwitch, port)
	return space, port, err
}

// VTEPctl runs vtep-ctl on the host's VTEP.
func (h *OVSHost) VTEPctl(args ...string) (string, error) {
	return h.command("vtep-ctl", append([]string{fmt.Sprintf("--timeout=%d", int(ovsTimeout.Seconds())), "--db=" + h.DB()}, args...)...)
}

// DialDatabase connects to the host's databases as a client outside would by TCP, from any
// namespace.
func (h *OVSHost) DialDatabase(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", h.file("db.sock"))
}
