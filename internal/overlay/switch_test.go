package overlay

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"

	"heddle/internal/netlab"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/vtep"
)

// TestHardwareVTEP joins a network to a port of a switch that Open vSwitch emulates: all that each
// side knows of the other goes by the switch's database.
func TestHardwareVTEP(t *testing.T) {
	t.Parallel()
	if err := netlab.FindVTEP(); err != nil {
		t.Skipf("this test emulates a hardware VTEP: %v", err)
	}
	fabric := netlab.OVSForTest(t, 1)
	sw := fabric.Hosts()[0]
	if err := sw.BecomeVTEP(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sw.KillEmulator(); err != nil {
			t.Error(err)
		}
	})
	behind, port, err := sw.VTEPPort("m1", "10.0.0.200/24")
	if err != nil {
		t.Fatal(err)
	}
	behind.MustIP(t, "link set eth0 mtu 1400")

	l := newLab(t, 1)
	l.start()
	external := l.networkAt("ext", "198.18.0.0/24")
	external.v4.GatewayIP = nil
	v := l.routedTo(external, "blue", "198.18.0.200").vtep("l2")
	uplink := external.port(l.hosts[0])
	l.MustVeth(t, l.hosts[0].ns, uplink.port.InterfaceName, fabric.Fabric, "heddle")
	fabric.Fabric.MustIP(t, "link set heddle mtu 1500 master br0 up")
	uplink.bind()
	uplink.served()
	m := v.net.machine(l.hosts[0])
	m.MustIP(t, "link set eth0 mtu 1400")
	// A switch in user space does not finish checksums.
	if out, err := m.Output(t.Context(), "ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso", "off"); err != nil {
		t.Fatal(out, err)
	}
	v.drive(sw, neutron.L2GatewayInterface{Name: port}, m)

	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	there := netip.MustParseAddr("10.0.0.200")
	if err := m.Reach(ctx, there.String()); err != nil {
		t.Fatal(err)
	}
	if err := behind.Reach(ctx, m.v4.String()); err != nil {
		t.Fatal(err)
	}
	for _, p := range []netlab.Path{
		{Name: "to the switch", Client: m.Namespace, Server: behind, Address: there},
		{Name: "from the switch", Client: behind, Server: m.Namespace, Address: m.v4},
	} {
		if _, err := p.RoundTrips(100); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

// drive runs the server's part of a managed device, with the records of its API.
func (v *vtepRouter) drive(sw *netlab.OVSHost, at neutron.L2GatewayInterface, machines ...*machine) {
	t := v.lab.t
	t.Helper()
	objects := replica.New(v.lab.st, replica.Options{Watch: schema.Root}, schema.All()...)
	var log netlab.Log
	gateways := vtep.New(vtep.Options{Store: v.lab.st, Objects: objects, Server: "s1", Log: slog.New(slog.NewTextHandler(&log, nil)),
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return sw.DialDatabase(ctx) }})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = objects.Run(ctx) })
	running.Go(func() { _ = gateways.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if t.Failed() {
			t.Logf("log of the server:\n%s", log.String())
		}
	})
	d, x := &v.device, v.connection
	d.ManagementIP, d.ManagementPort, d.ManagementProtocol = sw.Address, netlab.OVSDBPort, "ovsdb"
	g := &neutron.L2Gateway{Standard: neutron.Standard{ID: "gateway"}, Device: neutron.L2GatewayDevice{ID: "entry", DeviceID: d.ID, DeviceName: "tor", Interfaces: []neutron.L2GatewayInterface{at}}}
	x.L2GatewayID = g.ID
	_, err := records.NewDB(v.lab.st, objects).Update(ctx, func(tx *records.Tx) error {
		for _, err := range []error{schema.Networks.Put(tx, &v.net.net), schema.Subnets.Put(tx, &v.net.v4), schema.Subnets.Put(tx, &v.net.v6), schema.Routers.Put(tx, &neutron.Router{Standard: neutron.Standard{ID: d.ResourceID}}),
			schema.GatewayDevices.Put(tx, d), schema.L2Gateways.Put(tx, g), schema.L2GatewayConnections.Put(tx, x)} {
			if err != nil {
				return err
			}
		}
		for _, m := range machines {
			if err := schema.Ports.Put(tx, &m.port); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(fmt.Errorf("records of the device: %w", err))
	}
}
