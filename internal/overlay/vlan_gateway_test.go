package overlay

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/uuid"

	"heddle/internal/control/translate"
	"heddle/internal/netlab"
	"heddle/internal/neutron"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// TestVLANGateway joins two networks to VLANs of a trunk network, and a machine behind a trunk port
// that sends and takes frames with tags: on one host and on two, by the programs.
func TestVLANGateway(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	l.start()
	trunk := l.network("trunk")
	device := neutron.GatewayDevice{Standard: neutron.Standard{ID: uuid.NewString()}, Type: neutron.GatewayNetworkVLAN, ResourceID: trunk.net.ID}
	d := translate.GatewayDevice(&device)
	l.put(topology.Owner{Kind: "gateway-device", ID: device.ID}, &d)
	var networks []*network
	var sides []*machine // of the machine outside, one for each VLAN
	for i, vlan := range []uint16{101, 202} {
		n := l.network(fmt.Sprint("v", vlan))
		x := &neutron.L2GatewayConnection{Standard: neutron.Standard{ID: uuid.NewString()}, NetworkID: n.net.ID, DeviceID: device.ID, Segment: int(vlan)}
		b := translate.L2GatewayConnection(x, &device)
		l.put(topology.Owner{Kind: "l2-gateway-connection", ID: x.ID}, &b)
		networks = append(networks, n)
		sides = append(sides, &machine{lab: l, net: n, v4: netip.AddrFrom4([4]byte{10, 0, 0, byte(201 + i)}), v6: netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", 201+i)),
			port: neutron.Port{MACAddress: packet.MAC{2, 0, 0, 0, 0x88, byte(i)}, SubportVLAN: vlan}})
	}
	outside := trunk.port(l.hosts[0])
	outside.port.PortSecurityEnabled = false
	openTrunkVM(t, outside, sides...)
	outside.bind()
	outside.served()
	for i, side := range sides {
		side.MustIP(t, "link set eth0 mtu 1446") // a tag takes room between hosts
		for _, h := range l.hosts {
			m := networks[i].machine(h)
			m.MustIP(t, "link set eth0 mtu 1446")
			if err := m.ping(side.v4, 3); err != nil {
				t.Fatalf("%s: %v", side.net.net.Name, err)
			}
			for _, p := range []netlab.Path{
				{Name: "to the VLAN", Client: m.Namespace, Server: side.Namespace, Address: side.v4},
				{Name: "from the VLAN", Client: side.Namespace, Server: m.Namespace, Address: m.v4},
			} {
				before := l.upcalls()
				if _, err := p.RoundTrips(500); err != nil {
					t.Errorf("%s, %s: %v", p.Name, side.net.net.Name, err)
				}
				if n := l.upcalls() - before; n > 100 {
					t.Errorf("%s, %s: %d packets were decided by agents", p.Name, side.net.net.Name, n)
				}
			}
		}
	}
}

// upcalls returns how many packets agents have been given.
func (l *lab) upcalls() (n uint64) {
	l.t.Helper()
	for _, h := range l.hosts {
		c, err := h.agent.engine.dp.Counters()
		if err != nil {
			l.t.Fatal(err)
		}
		n += c.Upcalls
	}
	return n
}
