package dhcp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"heddle/internal/topology/packet"
)

// TestChangeOverAnswers lets a request arrive that an instance has not read when another takes
// over, also when another agent has started it. It is stopped meanwhile, as if it got no processor;
// no other can answer.
func TestChangeOverAnswers(t *testing.T) {
	t.Parallel()
	for _, adopted := range []bool{false, true} {
		t.Run(fmt.Sprintf("adopted %t", adopted), func(t *testing.T) {
			t.Parallel()
			changeOverAnswers(t, adopted)
		})
	}
}

func changeOverAnswers(t *testing.T, adopted bool) {
	f := newFleet(t)
	f.populate(t, 2)
	before := f.pid()
	if adopted {
		f.kill()
		f.start()
		f.logged("adopted the dnsmasq that runs", 1)
	}
	send(t, before, syscall.SIGSTOP)
	c, err := f.client(0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if err := c.send(packet.DHCPDiscover); err != nil {
		t.Fatal(err)
	}
	key, value := f.endpoint(2, address(1))
	f.put(endpointKey(1), "", key, value)
	f.serving(2)
	send(t, before, syscall.SIGCONT)
	if _, err := c.expect(packet.DHCPOffer); err != nil {
		t.Error(err)
	}
	f.until("the end of the instance before", func() bool { return !alive(before) })
}

// TestChangeOverRefusesNobody has a machine get an address that was another's while the agent does
// not notice that the new instance listens: the one before, which knows the address as the other
// machine's, says nothing.
func TestChangeOverRefusesNobody(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.populate(t, 2)
	before := f.pid()
	if err := f.plug(2, 1); err != nil {
		t.Fatal(err)
	}
	c, err := f.client(2)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	started := map[int]bool{}
	for _, pid := range f.instances(t) {
		started[pid] = true
	}
	key, value := f.endpoint(2, address(1))
	f.put(endpointKey(1), "", key, value)
	f.until("another instance", func() bool {
		for _, pid := range f.instances(t) {
			if !started[pid] {
				send(t, f.cmd.Process.Pid, syscall.SIGSTOP) // the agent does not hear that it listens
				return true
			}
		}
		return false
	})
	offer, err := c.untilOffered(time.Now().Add(timeout), time.Millisecond)
	if err == nil {
		_, err = c.request(offer)
	}
	stopped := alive(before)
	send(t, f.cmd.Process.Pid, syscall.SIGCONT)
	if err != nil {
		t.Errorf("the instance before is still there: %t: %v", stopped, err)
	}
	f.serving(2)
}

// TestChangeOverRefusesNoLatecomer has a machine get an address after the new instance has been
// started, which is another's for the one before: that one says nothing.
func TestChangeOverRefusesNoLatecomer(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	gate := f.holdable(t)
	f.populate(t, 3)
	if err := f.plug(3, 2); err != nil {
		t.Fatal(err)
	}
	c, err := f.client(4)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	held := gate.hold(t)
	key, value := f.endpoint(3, address(2))
	f.put(endpointKey(1), "", endpointKey(2), "", key, value)
	f.until("another instance", held)
	f.put(f.endpoint(4, address(1)))
	f.read(4)                                   // by the one before
	send(t, f.cmd.Process.Pid, syscall.SIGSTOP) // the agent does not hear that the new one listens
	gate.release(t)
	offer, err := c.untilOffered(time.Now().Add(timeout), time.Millisecond)
	if err == nil {
		_, err = c.request(offer)
	}
	send(t, f.cmd.Process.Pid, syscall.SIGCONT)
	if err != nil {
		t.Error(err)
	}
	f.serving(2)
}

// gate is a file: while it is there, instances that the agent starts do not begin.
type gate string

// holdable has the agent start dnsmasq behind a gate, which is open.
func (l *lab) holdable(t *testing.T) gate {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o711), os.Chmod(dir, 0o777)); err != nil { // for dnsmasq's user
		t.Fatal(err)
	}
	g := gate(filepath.Join(dir, "gate"))
	l.options.Program = string(g) + ".sh"
	script := fmt.Sprintf("#!/bin/sh\n[ ! -e %[1]s ] || : >%[1]s.held\nwhile [ -e %[1]s ]; do sleep 0.02; done\nexec dnsmasq \"$@\"\n", g)
	if err := os.WriteFile(l.options.Program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return g
}

// hold closes the gate. The function that it returns reports whether an instance waits there.
func (g gate) hold(t *testing.T) (held func() bool) {
	t.Helper()
	if err := os.WriteFile(string(g), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return func() bool {
		_, err := os.Stat(string(g) + ".held")
		return err == nil
	}
}

func (g gate) release(t *testing.T) {
	t.Helper()
	if err := os.Remove(string(g)); err != nil {
		t.Fatal(err)
	}
}
