package simulate

import (
	"testing"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// container adds a service container of the example's router: port "q-hc", bound to host h2.
func (l *lab) container() topology.Port {
	k := link{id: "hc", router: "r", n: 30, at: prefix("169.254.0.1/30")}
	p := k.port()
	p.PeerID, p.HostID, p.InterfaceName, p.ServiceContainerID, p.TunnelKey = "", "h2", "hct1", "hc", 3<<20
	l.Apply(owner(topology.ContainerOwner, "hc"), &topology.Bundle{
		ServiceContainers: []topology.ServiceContainer{{ID: "hc", ServiceType: topology.ContainerHAProxy, PortID: p.ID}},
		Ports:             []topology.Port{p}, Routes: k.routes(),
	})
	return p
}

var ipHC = ip("169.254.0.2")

// TestContainer: a router knows the MAC address of a service container, and what goes to it or
// comes from it keeps its time to live.
func TestContainer(t *testing.T) {
	t.Parallel()
	l := example()
	p := l.container()
	for _, c := range []struct {
		name, from string
		frame      []byte
		to         string
	}{
		{"to the container", "p-x", frameSpec{n: 1, to: 1, src: ipX, dst: ipHC, ttl: 1}.tcp(4000, 80), "q-hc"},
		{"from the container", "q-hc", frameSpec{to: 30, src: ipHC, dst: ipX, ttl: 1}.tcp(4000, 80), "p-x"},
	} {
		frame := delivered(t, l.send(c.from, c.frame), c.frame)
		var f packet.Frame
		if err := packet.Decode(frame, &f); err != nil {
			t.Errorf("%s: %v\n%s", c.name, err, walk(l.send(c.from, c.frame)))
			continue
		}
		if f.TTL != 1 {
			t.Errorf("%s: the time to live is %d, want 1 as before", c.name, f.TTL)
		}
		if c.to == "q-hc" && (f.Dst != topology.ContainerMAC(p.PortMAC) || f.Src != p.PortMAC) {
			t.Errorf("%s: from %v to %v", c.name, f.Src, f.Dst)
		}
	}
}

// TestContainerSpeaksForTheRouter: a container may send with an address that belongs behind another
// port of its router, such as that of a VIP. Machines may not.
func TestContainerSpeaksForTheRouter(t *testing.T) {
	t.Parallel()
	l := example()
	l.container()
	vip := ip("10.2.0.100")
	l.expectAt(t, "q-hc", frameSpec{to: 30, src: vip, dst: ipY}.tcp(4000, 80), "p-y", "10.2.0.100:4000→10.2.0.5:80")
	l.expectAt(t, "p-x", frameSpec{n: 1, to: 1, src: vip, dst: ipY}.tcp(4000, 80), "", "")
}

// TestContainerAsksItsRouter: the container's own ARP request is answered.
func TestContainerAsksItsRouter(t *testing.T) {
	t.Parallel()
	l := example()
	p := l.container()
	d := l.send("q-hc", arp(packet.Broadcast, packet.ARP{Op: packet.ARPRequest, SHA: topology.ContainerMAC(p.PortMAC), SPA: ipHC, TPA: p.PortAddress}))
	if len(d.Emit) != 1 || d.Emit[0].PortID != "q-hc" {
		t.Fatalf("emitted %v\n%s", d.Emit, walk(d))
	}
	var f packet.Frame
	if err := packet.Decode(d.Emit[0].Frame, &f); err != nil || f.ARPOp != packet.ARPReply || f.SHA != p.PortMAC {
		t.Errorf("answered %+v, %v", f, err)
	}
}
