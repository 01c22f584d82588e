package datapath_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"heddle/internal/overlay/datapath"
	"heddle/internal/topology/packet"
)

const vni = 0x123456

var (
	vtepIP = netip.MustParseAddr("203.0.113.1")
	peerIP = netip.MustParseAddr("203.0.113.2")
)

// vtepPeer makes a namespace with a vxlan device of the kernel behind an uplink of h, and returns
// what is at its other end as if it were a workload of h. All hosts pack frames to it as VTEP
// vtepIP.
func (n *network) vtepPeer(h *host, number int, flags string) *workload {
	n.t.Helper()
	p := &workload{host: h, name: "uplink", Namespace: n.lab.MustNamespace(n.t, "peer"), key: 5000,
		mac: packet.MAC{2, 0, 0, 0, 0, byte(number)}, v4: netip.AddrFrom4([4]byte{192, 0, 2, byte(number)}),
		v6: netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", number))}
	router, far := packet.MAC{2, 0, 0, 0, 1, 1}, packet.MAC{2, 0, 0, 0, 1, 2}
	n.lab.MustVeth(n.t, h.ns, "uplink", p.Namespace, "eth0")
	p.MustIP(n.t, fmt.Sprintf("link set eth0 address %s up", far), fmt.Sprintf("addr add %s/24 dev eth0", peerIP),
		fmt.Sprintf("neigh add %s lladdr %s dev eth0", vtepIP, router),
		fmt.Sprintf("link add vx0 address %s type vxlan id %d dstport %d local %s remote %s %s", p.mac, vni, datapath.VXLANPort, peerIP, vtepIP, flags),
		"link set vx0 mtu 1450 up", fmt.Sprintf("addr add %s/24 dev vx0", p.v4), fmt.Sprintf("addr add %s/64 dev vx0 nodad", p.v6))
	var err error
	if p.port, err = h.AttachPort(p.name, "uplink", datapath.PortOptions{TunnelKey: p.key, MTU: 1500}); err != nil {
		n.t.Fatal(err)
	}
	senders := map[netip.Addr]bool{}
	for _, other := range h.others {
		senders[other.ip] = true
	}
	h.SetSenders(p.port, senders)
	inside, err := h.AttachVTEP("vtep", datapath.VTEP{IP: vtepIP, VNI: vni})
	if err != nil {
		n.t.Fatal(err)
	}
	framing := datapath.Framing{Encap: datapath.Encap{VNI: vni, SrcMAC: router, DstMAC: far, Src: vtepIP, Dst: peerIP, SrcPort: 50000, DstPort: datapath.VXLANPort, TTL: 63}}
	for _, other := range n.hosts {
		out := datapath.Output{Port: p.port, Framing: framing}
		if other != h {
			out = datapath.Output{Tunnel: other.tunnel(), TunnelKey: p.key, Framing: framing}
		}
		other.mu.Lock()
		other.where[p.mac] = out
		other.mu.Unlock()
	}
	unpack := func(u *datapath.Upcall) {
		if u.Port != p.port {
			h.forward(u)
			return
		}
		key, ok := u.Key()
		if !ok || key.DstPort != datapath.VXLANPort || key.Dst != vtepIP || len(u.Frame) < 64 {
			return // what the namespace says of itself
		}
		if got := binary.BigEndian.Uint32(u.Frame[46:]) >> 8; got != vni {
			n.t.Errorf("VNI %#x", got)
		}
		if err := h.Install([]datapath.Flow{{Key: key, Out: datapath.Output{Inside: true}, Tags: h.Tags(datapath.SlotOf("all"))}}); err != nil {
			n.t.Error(err)
		}
		h.forward(&datapath.Upcall{Reason: u.Reason, Port: inside, Frame: u.Frame[50:], Length: u.Length - 50, Offload: u.Offload.Inner(50)})
	}
	for _, reason := range []datapath.Reason{datapath.Miss, datapath.Stale, datapath.NoKey, datapath.Expired, datapath.Malformed} {
		h.mu.Lock()
		h.answers[reason.String()] = unpack
		h.mu.Unlock()
	}
	return p
}

// checkPacked fails if frames of flows were not packed and unpacked by the programs.
func checkPacked(t *testing.T, h *host, unpacked bool) {
	t.Helper()
	c := counters(t, h)
	if c.VTEPIn < 1000 && unpacked || c.VTEPOut < 1000 {
		t.Errorf("%d frames unpacked, %d packed by the programs, want thousands", c.VTEPIn, c.VTEPOut)
	}
	if c.Drops["refused by the kernel"] > 0 || t.Failed() {
		t.Errorf("counters: %+v", c)
	}
}

// TestVTEP sends all kinds of traffic between a workload and what is behind a vxlan device of the
// kernel, which is the peer of a VTEP of the virtual network.
func TestVTEP(t *testing.T) {
	t.Parallel()
	for _, flags := range []string{"noudpcsum", "udpcsum"} {
		t.Run(flags, func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t, 1)
			p := n.vtepPeer(n.hosts[0], 9, flags)
			w := n.workload(n.hosts[0], 1)
			checkTraffic(t, w, p)
			// An outer checksum that was left to hardware, which a veth is not, is the agent's.
			checkPacked(t, n.hosts[0], flags == "noudpcsum")
		})
	}
}

// TestVTEPBehindTunnel has the workload on one host and the uplink of the VTEP on another.
func TestVTEPBehindTunnel(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, 2)
	n.underlay()
	p := n.vtepPeer(n.hosts[0], 9, "noudpcsum")
	p.MustIP(t, "link set vx0 mtu 1400")
	w := n.workload(n.hosts[1], 1)
	w.MustIP(t, "link set eth0 mtu 1400")
	checkTraffic(t, w, p)
	if c := counters(t, n.hosts[1]); c.VTEPOut < 1000 {
		t.Errorf("%d frames were packed", c.VTEPOut)
	}
	if c := counters(t, n.hosts[0]); c.VTEPIn < 1000 {
		t.Errorf("%d frames were unpacked", c.VTEPIn)
	}
	for _, h := range n.hosts {
		if c := counters(t, h); c.Drops["refused by the kernel"] > 0 || t.Failed() {
			t.Errorf("counters of %s: %+v", h.ns.Name, c)
		}
	}
}

// TestVLANs sends all kinds of traffic between workloads and one that gets and sends frames with a
// tag, which flows push and pop: on one host and between two.
func TestVLANs(t *testing.T) {
	t.Parallel()
	const vlan = 42
	n := newNetwork(t, 2)
	n.underlay()
	tagged, near, far := n.workload(n.hosts[0], 1), n.workload(n.hosts[0], 2), n.workload(n.hosts[1], 3)
	tagFrames(t, tagged.Namespace, "eth0", vlan)
	for _, w := range []*workload{tagged, far} {
		w.MustIP(t, "link set eth0 mtu 1446") // a tag takes room in the tunnel
	}
	for _, h := range n.hosts {
		h.mu.Lock()
		out := h.where[tagged.mac]
		out.Framing.PushVLAN = vlan
		h.where[tagged.mac] = out
		h.mu.Unlock()
	}
	pop := func(u *datapath.Upcall) {
		h := n.hosts[0]
		if u.Port != tagged.port {
			h.forward(u)
			return
		}
		if key, ok := u.Key(); ok && key.VLAN != 0x1000|vlan {
			return // the kernel's own, of before
		}
		for mac, out := range h.where { // as forward reads them
			out.Framing.PopVLAN = true
			h.where[mac] = out
		}
		h.forward(u)
		for mac, out := range h.where {
			out.Framing.PopVLAN = false
			h.where[mac] = out
		}
	}
	for _, reason := range []datapath.Reason{datapath.Miss, datapath.Stale, datapath.NoKey} {
		n.hosts[0].mu.Lock()
		n.hosts[0].answers[reason.String()] = pop
		n.hosts[0].mu.Unlock()
	}
	checkTraffic(t, near, tagged)
	checkTraffic(t, tagged, far)
	for _, h := range n.hosts {
		if c := counters(t, h); c.Drops["refused by the kernel"] > 0 || t.Failed() {
			t.Errorf("counters of %s: %+v", h.ns.Name, c)
		}
	}
}
