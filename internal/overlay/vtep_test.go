package overlay

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"heddle/internal/control/translate"
	"heddle/internal/netlab"
	"heddle/internal/neutron"
	"heddle/internal/overlay/datapath"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

const testVNI = 77

// vtepRouter connects a network to a router's VTEP, which has the address of the router's gateway.
type vtepRouter struct {
	*routed
	net        *network
	device     neutron.GatewayDevice
	connection *neutron.L2GatewayConnection
}

func (r *routed) vtep(name string) *vtepRouter {
	r.lab.t.Helper()
	v := &vtepRouter{routed: r, net: r.lab.network(name)}
	v.device = neutron.GatewayDevice{Standard: neutron.Standard{ID: uuid.NewString()}, Type: neutron.GatewayRouterVTEP, ResourceID: r.router.ID, TunnelIPs: []netip.Addr{r.gatewayIP}}
	d := translate.GatewayDevice(&v.device)
	r.lab.put(topology.Owner{Kind: "gateway-device", ID: v.device.ID}, &d)
	x := &neutron.L2GatewayConnection{Standard: neutron.Standard{ID: uuid.NewString()}, NetworkID: v.net.net.ID, DeviceID: v.device.ID, Segment: testVNI}
	v.connection = x
	b := translate.L2GatewayConnection(x, &v.device)
	r.lab.put(topology.Owner{Kind: "l2-gateway-connection", ID: x.ID}, &b)
	return v
}

// remote enters an address behind another VTEP.
func (v *vtepRouter) remote(mac packet.MAC, at netip.Addr) {
	v.lab.t.Helper()
	e := &neutron.RemoteMACEntry{Standard: neutron.Standard{ID: uuid.NewString()}, DeviceID: v.device.ID, MACAddress: mac, VTEPAddress: at, SegmentationID: testVNI}
	b := translate.RemoteMACEntry(e, &v.device)
	v.lab.put(topology.Owner{Kind: "remote-mac-entry", ID: e.ID}, &b)
}

// peer gives a machine of the external network a vxlan device of the kernel, with an address in the
// VTEP's network, and enters that.
func (v *vtepRouter) peer(m *machine, ip string, mtu int) {
	v.lab.t.Helper()
	mac := packet.MAC{2, 0, 0, 0, 0x77, byte(m.number)}
	m.MustIP(v.lab.t, fmt.Sprintf("link add vx0 address %s type vxlan id %d dstport 4789 local %s remote %s noudpcsum", mac, testVNI, m.v4, v.gatewayIP),
		fmt.Sprintf("link set vx0 mtu %d up", mtu), "addr add "+ip+"/24 dev vx0")
	v.remote(mac, m.v4)
	v.remote(packet.Broadcast, m.v4)
}

// TestVTEPs joins a network to a vxlan device of the kernel: both ways, by the programs but for the
// first packets, on one host, and with the machine, the VTEP's uplink, and packets in both
// directions on different ones; after a restart of the agent, and until the connection's device has
// another address.
func TestVTEPs(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	l.start()
	r := l.routed()
	v := r.vtep("l2")
	outside := r.external.machine(l.hosts[0])
	near, far := v.net.machine(l.hosts[0]), v.net.machine(l.hosts[1])
	for _, m := range []*machine{near, far} {
		m.MustIP(t, "link set eth0 mtu 1400") // as DHCP says on such a network
	}
	v.peer(outside, "10.0.0.200", 1400)
	there := netip.MustParseAddr("10.0.0.200")
	for _, m := range []*machine{near, far} {
		if err := m.ping(there, 3); err != nil {
			t.Fatal(err)
		}
		if err := outside.ping(m.v4, 3); err != nil {
			t.Fatal(err)
		}
		for _, p := range []netlab.Path{
			{Name: "to the peer", Client: m.Namespace, Server: outside.Namespace, Address: there},
			{Name: "from the peer", Client: outside.Namespace, Server: m.Namespace, Address: m.v4},
		} {
			if _, err := p.RoundTrips(200); err != nil {
				t.Error(err)
			}
			if bits, err := p.Stream(200 * time.Millisecond); err != nil || bits == 0 {
				t.Errorf("%s: %v Mbit/s, %v", p.Name, bits/1e6, err)
			}
		}
	}
	for _, h := range l.hosts {
		c, err := h.agent.engine.dp.Counters()
		if err != nil || c.VTEPOut < 100 || h == l.hosts[0] && c.VTEPIn < 100 || c.Drops["refused by the kernel"] > 0 {
			t.Errorf("%s: %+v, %v", h.name, c, err)
		}
	}

	if all := l.hosts[0].verifyFlows(t); !slices.ContainsFunc(all, func(f datapath.FlowState) bool { return f.Out.Inside }) {
		t.Error("no flow unpacks packets")
	}

	// A packet that does not fit is answered, in the kernel's own way.
	far.MustIP(t, "link set eth0 mtu 1450")
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	out, err := far.Output(ctx, "ping", "-n", "-c", "3", "-i", "0.1", "-W", "1", "-M", "do", "-s", "1410", there.String())
	if err == nil || !strings.Contains(fmt.Sprint(err, out), "mtu") {
		t.Errorf("a packet that does not fit: %s, %v", out, err)
	}

	if err := near.pingAs(77, there, 2); err != nil {
		t.Fatal(err)
	}
	l.hosts[0].stop()
	if err := near.pingAs(77, there, 3); err != nil {
		t.Errorf("while no agent runs: %v", err)
	}
	l.hosts[0].start()
	if err := outside.ping(near.v4, 3); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}
