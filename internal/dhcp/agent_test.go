package dhcp

import "testing"

// TestLease gives a machine the address that its endpoint names, whether the endpoint or the subnet came first.
func TestLease(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.start()
	m := l.machine(1)
	l.put(m.endpoint("10.65.0.7", "a"))
	l.logged("subnet \\\"a\\\" is not known", 1)
	l.put(subnet("a", "10.65.0.0/24", "10.65.0.1", ""))
	l.serving(1)
	m.wantLease("10.65.0.7")
	// A second one needs nothing to start anew.
	other := l.machine(2)
	pid := l.pid()
	l.put(other.endpoint("10.65.0.8", "a"))
	l.logged("hosts/tap2", 1)
	other.wantLease("10.65.0.8")
	if l.pid() != pid {
		t.Errorf("dnsmasq started anew for a new endpoint")
	}
}
