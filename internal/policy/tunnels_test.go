package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"heddle/internal/hostnet"
)

// countedNet counts how often all links are read, and the addresses of one.
type countedNet struct {
	hostnet.Net
	links, addresses int
}

func (c *countedNet) Addresses(link string) ([]netip.Prefix, error) {
	c.addresses++
	return c.Net.Addresses(link)
}

func (c *countedNet) Links() ([]hostnet.Link, error) {
	c.links++
	return c.Net.Links()
}

// TestTunnelsAmongManyInterfaces: changes of addresses do not cause a check of the tunnels each.
func TestTunnelsAmongManyInterfaces(t *testing.T) {
	t.Parallel()
	const pool = "/calico/v1/ipam/v4/pool/10.65.0.0-16"
	b := newBench(t)
	b.snapshot(ready, "true", "/calico/v1/host/h1/bird_ip", "192.0.2.1")
	b.link("eth0")
	addresses := func(more int) (links int) {
		t.Helper()
		before := b.reads.links
		for i := range 20 {
			if err := b.net.AddAddress("eth0", netip.MustParsePrefix(fmt.Sprintf("10.1.%d.%d/32", more, i))); err != nil {
				t.Fatal(err)
			}
			b.act()
		}
		b.after(tunnelsPause)
		return b.reads.links - before
	}
	if n := addresses(1); n != 0 {
		t.Errorf("without tunnels all links are read %d times", n)
	}
	b.change(pool, `{"cidr": "10.65.0.0/16", "ipip": "vxlan0"}`)
	if n := addresses(2); n != 1 {
		t.Errorf("all links are read %d times, want once for all addresses", n)
	}
}

// TestLostEvents: when the kernel has reported more than could be read, all is read at once, not
// link by link.
func TestLostEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.snapshot(ready, "true", "/calico/v1/host/h1/endpoint/e", `{"expected_ipv4_addrs": ["10.1.0.1"]}`)
	for i := range 10 {
		b.link(fmt.Sprintf("eth%d", i))
	}
	if err := b.net.AddAddress("eth1", netip.MustParsePrefix("10.1.0.1/32")); err != nil {
		t.Fatal(err)
	}
	links, addresses := b.reads.links, b.reads.addresses
	if err := b.applyKernel(hostnet.Event{Kind: hostnet.Lost}, true); err != nil {
		t.Fatal(err)
	}
	links, addresses = b.reads.links-links, b.reads.addresses-addresses
	if links != 1 || addresses != 0 {
		t.Errorf("links were read %d times, addresses of one %d times", links, addresses)
	}
	b.pass(t.Context())
	if !strings.Contains(b.nft.String(), `"eth1" : goto host-in/`) {
		t.Errorf("the endpoint does not govern the interface that has its address:\n%s", b.nft)
	}
}

// TestTunnelThatNobodyAsksFor: without its rules an open IPIP device would accept packets from any
// host.
func TestTunnelThatNobodyAsksFor(t *testing.T) {
	t.Parallel()
	const pool = "/calico/v1/ipam/v4/pool/10.65.0.0-16"
	b := newBench(t)
	up := func(when string, want bool) {
		t.Helper()
		if l, err := b.net.Link("tunl0"); err != nil || l.Up != want {
			t.Errorf("%s: the device is up: %v, %v; want %v", when, l.Up, err, want)
		}
	}
	b.snapshot(ready, "true", "/calico/v1/host/h1/bird_ip", "192.0.2.1", pool, `{"cidr": "10.65.0.0/16", "ipip": "tunl0"}`)
	up("asked for", true)
	b.change(pool, `{"cidr": "10.65.0.0/16"}`)
	up("no more", false)
	b.change(pool, `{"cidr": "10.65.0.0/16", "ipip": "tunl0"}`)
	b.after(time.Minute)
	up("again", true)
}
