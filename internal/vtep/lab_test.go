package vtep

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

const waitLimit = time.Minute

// site is a store with servers, in which tests stand for the API and for hosts.
type site struct {
	t       *testing.T
	st      store.Store
	objects *replica.Replica
	db      *records.DB
	host    *netlab.OVSHost
	log     netlab.Log
}

func newSite(t *testing.T, host *netlab.OVSHost) *site {
	s := &site{t: t, st: store.NewMemory(), host: host}
	s.objects = replica.New(s.st, replica.Options{Watch: schema.Root}, schema.All()...)
	s.db = records.NewDB(s.st, s.objects)
	s.run(s.objects.Run)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the servers:\n%s", s.log.String())
		}
	})
	return s
}

// run runs a part until stop or the end of the test.
func (s *site) run(part func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = part(ctx) })
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	s.t.Cleanup(stop)
	return stop
}

// server runs a server's part, over a replica of its own.
func (s *site) server(name string, kept time.Duration) (stop func()) {
	objects := replica.New(s.st, replica.Options{Watch: schema.Root}, schema.All()...)
	g := New(Options{Store: s.st, Objects: objects, Server: name, TTL: time.Second, Kept: kept,
		Log:  slog.New(slog.NewTextHandler(&s.log, nil)).With("server", name),
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return s.host.DialDatabase(ctx) }})
	s.run(objects.Run)
	return s.run(g.Run)
}

func (s *site) update(f func(tx *records.Tx) error) {
	s.t.Helper()
	if _, err := s.db.Update(s.t.Context(), f); err != nil {
		s.t.Fatal(err)
	}
}

// until waits for a condition on the store.
func (s *site) until(what string, is func(r records.Reader) bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), waitLimit)
	defer cancel()
	err := netlab.Until(ctx, what, func() (bool, error) {
		snap, err := s.objects.Fresh(ctx)
		return err == nil && is(records.Over(snap)), err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// untilRows waits for a condition on what vtep-ctl answers.
func (s *site) untilRows(what string, is func(out string) bool, args ...string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), waitLimit)
	defer cancel()
	var out string
	err := netlab.Until(ctx, what, func() (bool, error) {
		var err error
		out, err = s.host.VTEPctl(args...)
		return err == nil && is(out), nil
	})
	if err != nil {
		s.t.Fatalf("%v; vtep-ctl %v: %s", err, args, out)
	}
}

const (
	deviceID, networkID = "device", "8d1c2f6a-6d4b-4f1e-9f43-0b7c1f4a5e10"
	routerPort          = "router-port"
	networkPort         = "network-port"
)

var (
	ourTunnel = netip.MustParseAddr("198.18.0.254")
	vmMAC     = packet.MAC{2, 0, 0, 0, 0, 0x11}
	vmIP      = netip.MustParseAddr("10.77.0.11")
)

// connect makes a device with a connection of the network, with interfaces of the switch if any,
// and a port of the network.
func (s *site) connect(interfaces ...neutron.L2GatewayInterface) {
	s.t.Helper()
	standard := func(id string) neutron.Standard { return neutron.Standard{ID: id, Name: id, ProjectID: "p"} }
	s.update(func(tx *records.Tx) error {
		segment := 77
		connection := &neutron.L2GatewayConnection{Standard: standard("connection"), L2GatewayID: "gateway", NetworkID: networkID, DeviceID: deviceID, Segment: segment}
		for _, put := range []error{
			schema.Networks.Put(tx, &neutron.Network{Standard: standard(networkID)}),
			schema.Routers.Put(tx, &neutron.Router{Standard: standard("router")}),
			schema.GatewayDevices.Put(tx, &neutron.GatewayDevice{Standard: standard(deviceID), Type: neutron.GatewayRouterVTEP, ResourceID: "router",
				TunnelIPs: []netip.Addr{ourTunnel}, ManagementIP: s.host.Address, ManagementPort: netlab.OVSDBPort, ManagementProtocol: "ovsdb"}),
			schema.L2Gateways.Put(tx, &neutron.L2Gateway{Standard: standard("gateway"),
				Device: neutron.L2GatewayDevice{ID: "entry", DeviceID: deviceID, DeviceName: "sw", Interfaces: interfaces}}),
			schema.L2GatewayConnections.Put(tx, connection),
			schema.Bundles.Put(tx, &schema.Bundle{Owner: topology.Owner{Kind: connectionBundle, ID: "connection"},
				Bundle: topology.Bundle{Ports: []topology.Port{{ID: networkPort, NetworkID: networkID, PeerID: routerPort},
					{ID: routerPort, RouterID: "router", VNI: uint32(segment), TunnelIP: ourTunnel, PeerID: networkPort}}}}),
		} {
			if put != nil {
				return put
			}
		}
		return s.putPort(tx, "vm", vmMAC, vmIP)
	})
}

func (s *site) putPort(tx *records.Tx, id string, mac packet.MAC, ip netip.Addr) error {
	return schema.Ports.Put(tx, &neutron.Port{Standard: neutron.Standard{ID: id, ProjectID: "p"}, NetworkID: networkID, MACAddress: mac, BoundHostID: "h1",
		FixedIPs: []neutron.FixedIP{{IPAddress: ip}}})
}

// learn reports that a host has seen an address behind a port.
func (s *site) learn(host string, mac packet.MAC, port string) {
	s.t.Helper()
	m := &topology.LearnedMAC{HostID: host, NetworkID: networkID, MAC: mac, PortID: port}
	value, err := json.Marshal(m)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.st.Commit(s.t.Context(), nil, []store.Op{{Key: schema.LearnedMACs.KeyOf(m), Value: value}}); err != nil {
		s.t.Fatal(err)
	}
}

// remote returns what is reported of an address behind the switch.
func remote(r records.Reader, mac packet.MAC) *topology.LearnedRemote {
	l, _ := schema.LearnedRemotes.Peek(r, fmt.Sprintf("%s/%s/%s", topology.RemoteHolder, routerPort, mac))
	return l
}

func state(r records.Reader) topology.GatewayState {
	if s, ok := schema.GatewayStates.Peek(r, topology.RemoteHolder+"/"+deviceID); ok {
		return *s
	}
	return topology.GatewayState{}
}
