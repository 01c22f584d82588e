package dhcp

import (
	"syscall"
	"testing"
	"time"

	"heddle/internal/topology/packet"
)

// TestChangeOverAnswers lets a request arrive that an instance has not read when another takes
// over. It is stopped meanwhile, as if it got no processor; nobody but it can answer.
func TestChangeOverAnswers(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.populate(t, 2)
	before := f.pid()
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
