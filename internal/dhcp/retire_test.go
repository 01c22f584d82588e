package dhcp

import (
	"syscall"
	"testing"

	"heddle/internal/topology/packet"
)

// TestChangeOverAnswers lets a request arrive that an instance has not read when another takes over. It is stopped
// meanwhile, as if it got no processor; nobody but it can answer.
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
