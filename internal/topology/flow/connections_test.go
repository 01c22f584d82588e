package flow

import (
	"net/netip"
	"testing"
)

// TestConnectionSetHas: packets are of a set by their port or address, service and destination.
func TestConnectionSetHas(t *testing.T) {
	t.Parallel()
	span := func(first, last string) AddressRange {
		return AddressRange{netip.MustParseAddr(first), netip.MustParseAddr(last)}
	}
	to := []AddressRange{span("10.0.0.1", "10.0.0.4"), span("10.0.0.8", "10.0.0.8"), span("2001:db8::", "2001:db8::ff")}
	services := []ServiceRange{{6, 80, 89}, {17, 0, 65535}}
	inside := ConnectionSet{Ports: []string{"a", "b"}, To: to, Services: services}
	outside := ConnectionSet{From: []AddressRange{span("192.0.2.0", "192.0.2.9")}, To: to, Services: services}
	for _, c := range []struct {
		set      *ConnectionSet
		port     string
		from, to string
		proto    uint8
		want     bool
	}{
		{&inside, "a", "10.0.0.9", "10.0.0.4:80", 6, true},
		{&inside, "b", "10.0.0.9", "10.0.0.1:89", 6, true},
		{&inside, "b", "2001:db8::1", "[2001:db8::ff]:53", 17, true},
		{&inside, "c", "10.0.0.9", "10.0.0.4:80", 6, false},
		{&inside, "a", "10.0.0.9", "10.0.0.5:80", 6, false},
		{&inside, "a", "10.0.0.9", "10.0.0.0:80", 6, false},
		{&inside, "a", "10.0.0.9", "10.0.0.8:90", 6, false},
		{&inside, "a", "10.0.0.9", "10.0.0.8:80", 132, false},
		{&outside, "lan", "192.0.2.9", "10.0.0.8:80", 6, true},
		{&outside, "lan", "192.0.2.10", "10.0.0.8:80", 6, false},
	} {
		if got := c.set.Has(c.port, netip.MustParseAddr(c.from), c.proto, netip.MustParseAddrPort(c.to)); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}
