package console

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/api"
	"heddle/internal/api/apitest"
	"heddle/internal/api/callertest"
	"heddle/internal/api/hosts"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// world is the console over a store in memory, with one port on each of two hosts of one network.
type world struct {
	cluster []ClusterMember
	db      *records.DB
	url     string
}

const (
	boundPort, loosePort = "11111111-0000-4000-8000-000000000001", "11111111-0000-4000-8000-000000000002"
	routedPort           = "11111111-0000-4000-8000-000000000003"
	network              = "22222222-0000-4000-8000-000000000001"
	host                 = "33333333-0000-4000-8000-000000000001"
	lanNetwork           = "22222222-0000-4000-8000-000000000002"
	localnetPort         = "11111111-0000-4000-8000-000000000004"
	group                = "44444444-0000-4000-8000-000000000001"
	groupChain           = "44444444-0000-4000-8000-000000000002"
	groupRule            = "44444444-0000-4000-8000-000000000003"
)

func newWorld(t *testing.T, wait time.Duration) *world {
	t.Helper()
	st := store.NewMemory()
	t.Cleanup(func() { _ = st.Close() })
	rep := replica.New(st, replica.Options{Watch: schema.Root}, append(schema.All(), hosts.Tables()...)...)
	events := NewEvents()
	rep.OnChange(events.Add)
	apitest.Run(t, rep)
	calico := replica.New(st, replica.Options{}, schema.CalicoObjects())
	apitest.Run(t, calico)
	w := &world{db: records.NewDB(st, rep)}
	mux := http.NewServeMux()
	Register(mux, Options{
		DB: w.db, Formats: schema.Formats{{Number: 1, MinReader: 1}, {Number: 2, MinReader: 1}}, Log: slog.New(slog.DiscardHandler), TraceWait: wait, WorkloadWait: wait, Events: events,
		Neutron: neutronOver, Calico: calico,
		Cluster: func(context.Context) ([]ClusterMember, error) { return w.cluster, nil },
	})
	srv := httptest.NewServer(api.RequireToken(tokens(), "", described(t, api.Routes(mux, api.NoRoute))))
	t.Cleanup(srv.Close)
	w.url = srv.URL
	w.update(t, func(tx *records.Tx) error {
		mac, other := packet.MAC{0xfa, 0x16, 0x3e, 0, 0, 1}, packet.MAC{0xfa, 0x16, 0x3e, 0, 0, 2}
		if err := schema.Networks.Put(tx, &neutron.Network{Standard: neutron.Standard{ID: network}}); err != nil {
			return err
		}
		bundle := topology.Bundle{Ports: []topology.Port{{ID: boundPort, NetworkID: network, AdminStateUp: true, HostID: host, InterfaceName: "tap1"}},
			MACs: []topology.MACEntry{{NetworkID: network, MAC: mac, PortID: boundPort}}}
		for _, b := range []schema.Bundle{
			{Owner: topology.Owner{Kind: "network", ID: network}, Bundle: topology.Bundle{Networks: []topology.Network{{ID: network, AdminStateUp: true}}}},
			{Owner: topology.Owner{Kind: "port", ID: boundPort}, Bundle: bundle},
		} {
			if err := schema.Bundles.Put(tx, &b); err != nil {
				return err
			}
		}
		if err := schema.Ports.Put(tx, &neutron.Port{Standard: neutron.Standard{ID: loosePort}, NetworkID: network, MACAddress: other}); err != nil {
			return err
		}
		routed := &neutron.Network{Standard: neutron.Standard{ID: "routed"}, NetworkType: neutron.TypeRouted}
		if err := errors.Join(schema.Networks.Put(tx, routed),
			schema.Ports.Put(tx, &neutron.Port{Standard: neutron.Standard{ID: routedPort}, NetworkID: routed.ID, MACAddress: mac, BoundHostID: host, InterfaceName: "tap3"})); err != nil {
			return err
		}
		return schema.Ports.Put(tx, &neutron.Port{Standard: neutron.Standard{ID: boundPort}, NetworkID: network, MACAddress: mac, BoundHostID: host, InterfaceName: "tap1"})
	})
	return w
}

func (w *world) update(t *testing.T, f func(tx *records.Tx) error) {
	t.Helper()
	if _, err := w.db.Update(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

func (w *world) post(t *testing.T, token, body string) (int, string) {
	t.Helper()
	return w.postTo(t, "/v1/traces", token, body)
}

func (w *world) postTo(t *testing.T, path, token, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(api.TokenHeader, token)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(raw)
}

// frame is a UDP datagram from the bound port to nobody known.
func frame() []byte {
	src, dst := netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("10.0.0.9")
	datagram := packet.UDP{SrcPort: 1, DstPort: 2}.Append(nil, src, dst, nil)
	b := packet.Ethernet{Src: packet.MAC{0xfa, 0x16, 0x3e, 0, 0, 1}, Dst: packet.MAC{0xfa, 0x16, 0x3e, 0, 0, 9}, Type: packet.TypeIPv4}.Append(nil)
	b = packet.IPv4{TTL: 64, Proto: packet.ProtoUDP, Src: src, Dst: dst}.Append(b, len(datagram))
	return append(b, datagram...)
}

func request(t *testing.T, port string, frame []byte) string {
	t.Helper()
	raw, err := json.Marshal(traceRequest{Port: port, Frame: frame})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// fromLAN is the request for the frame that comes in from a LAN.
func fromLAN(t *testing.T, network, host string) string {
	t.Helper()
	raw, err := json.Marshal(traceRequest{Network: network, Host: host, Frame: frame()})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// addLAN makes a network on physnet1, which host "h" carries and "inland" does not, and puts the
// bound port into a security group.
func (w *world) addLAN(t *testing.T) {
	t.Helper()
	const carrier, inland = host, "33333333-0000-4000-8000-000000000002"
	w.update(t, func(tx *records.Tx) error {
		bundles := []error{
			schema.Bundles.Put(tx, &schema.Bundle{Owner: topology.Owner{Kind: "network", ID: lanNetwork}, Bundle: topology.Bundle{
				Networks: []topology.Network{{ID: lanNetwork, AdminStateUp: true}},
				Ports:    []topology.Port{{ID: localnetPort, NetworkID: lanNetwork, AdminStateUp: true, PhysicalNetwork: "physnet1", TunnelKey: 7}}}}),
			schema.Bundles.Put(tx, &schema.Bundle{Owner: topology.Owner{Kind: "security-group", ID: group}, Bundle: topology.Bundle{
				Chains: []topology.Chain{{ID: groupChain, Name: "OS_SG_" + group, Rules: []topology.Rule{{ID: groupRule}}}}}}),
		}
		return errors.Join(append(bundles,
			schema.Networks.Put(tx, &neutron.Network{Standard: neutron.Standard{ID: lanNetwork, Name: "office"}, NetworkType: "flat", PhysicalNetwork: "physnet1"}),
			schema.SecurityGroups.Put(tx, &neutron.SecurityGroup{Standard: neutron.Standard{ID: group, Name: "web"}}),
			schema.Hosts.Put(tx, &topology.Host{ID: carrier, Name: "h"}), schema.Hosts.Put(tx, &topology.Host{ID: inland, Name: "inland"}),
			schema.Underlays.Put(tx, &topology.HostUnderlay{HostID: carrier, PhysicalNetworks: map[string]string{"physnet1": "eth1"}}))...)
	})
}

// TestTraceFromLAN: a frame from a LAN comes in at a host, and the answer has names.
func TestTraceFromLAN(t *testing.T) {
	w := newWorld(t, time.Millisecond)
	w.addLAN(t)
	w.update(t, func(tx *records.Tx) error { return schema.HostStates.Put(tx, &topology.HostState{HostID: host}) })
	status, body := w.post(t, "admin", fromLAN(t, lanNetwork, "h"))
	var a flow.TraceAnswer
	if err := json.Unmarshal([]byte(body), &a); err != nil || status != 200 {
		t.Fatalf("got %d %s: %v", status, body, err)
	}
	if len(a.Walk) == 0 || a.Walk[0].Device != localnetPort || a.Walk[len(a.Walk)-1].Device != lanNetwork || strings.Contains(body, "no live host") {
		t.Errorf("got %s, want the walk of a frame that came in by the LAN of a live host", body)
	}
	if n := a.Names[localnetPort]; n != (flow.TraceName{Kind: "LAN physnet1 of network", Name: "office"}) {
		t.Errorf("the LAN is called %+v", n)
	}
}

func TestNamesInAnswers(t *testing.T) {
	w := newWorld(t, time.Second)
	w.addLAN(t)
	const router, end = "55555555-0000-4000-8000-000000000001", "55555555-0000-4000-8000-000000000002"
	w.update(t, func(tx *records.Tx) error {
		return errors.Join(schema.Routers.Put(tx, &neutron.Router{Standard: neutron.Standard{ID: router, Name: "r1"}}),
			schema.RouterPorts.Put(tx, &neutron.RouterPort{PortID: loosePort, RouterID: router}),
			schema.Bundles.Put(tx, &schema.Bundle{Owner: topology.Owner{Kind: "router-interface", ID: loosePort},
				Bundle: topology.Bundle{Ports: []topology.Port{{ID: end}}}}))
	})
	snap, err := w.db.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := namesIn(snap, &flow.TraceAnswer{
		Walk: []flow.Step{{Device: router, Text: "route to 10.0.0.0/24: by port " + end + " to 10.0.0.9"},
			{Device: boundPort, Chain: groupChain, Rule: groupRule, Text: "out filter: accepted by chain OS_SG_" + group}},
		Outputs: []flow.TraceOutput{{PortID: loosePort, HostID: host}},
	})
	want := map[string]flow.TraceName{
		router: {Kind: "router", Name: "r1"}, end: {Kind: "interface", Name: "r1 on "}, boundPort: {Kind: "port"}, loosePort: {Kind: "port"},
		group: {Kind: "security group", Name: "web"}, groupChain: {Kind: "chain of security group", Name: "web"},
		groupRule: {Kind: "rule of security group", Name: "web"}, host: {Kind: "host", Name: "h"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

func TestTraceRefuses(t *testing.T) {
	w := newWorld(t, time.Second)
	w.addLAN(t)
	for _, c := range []struct {
		what, token, body string
		status            int
		says              string
	}{
		{"a member", "member", request(t, boundPort, frame()), 403, "role admin"},
		{"no such port", "admin", request(t, "nope", frame()), 404, "port nope could not be found"},
		{"a port without host", "admin", request(t, loosePort, frame()), 409, "set its binding:host_id"},
		{"a port without virtual topology", "admin", request(t, routedPort, frame()), 409, "is on a routed network"},
		{"a network without LAN", "admin", fromLAN(t, network, "h"), 409, "on no physical network"},
		{"no such network", "admin", fromLAN(t, "nope", "h"), 404, "network nope could not be found"},
		{"no such host", "admin", fromLAN(t, lanNetwork, "nope"), 404, "host nope could not be found"},
		{"a host without LAN", "admin", fromLAN(t, lanNetwork, "inland"), 409, "host inland does not carry the physical network physnet1"},
		{"a network without host", "admin", fromLAN(t, lanNetwork, ""), 400, "want port, an id, or network, an id, and host"},
		{"a port and a network", "admin", `{"port":"` + boundPort + `","network":"` + lanNetwork + `","host":"h","frame":"AA=="}`, 400, "want port, an id, or network"},
		{"no frame", "admin", request(t, boundPort, nil), 400, "1 to 65536 bytes"},
		{"a huge frame", "admin", request(t, boundPort, make([]byte, maxFrame+1)), 400, "1 to 65536 bytes"},
		{"no JSON", "admin", "{", 400, ""},
	} {
		status, body := w.post(t, c.token, c.body)
		if status != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s: got %d %s, want %d with %q", c.what, status, body, c.status, c.says)
		}
	}
}

func TestServerAnswersForAHostWithoutAgent(t *testing.T) {
	w := newWorld(t, time.Second)
	status, body := w.post(t, "admin", request(t, boundPort, frame()))
	var a flow.TraceAnswer
	if err := json.Unmarshal([]byte(body), &a); err != nil || status != 200 {
		t.Fatalf("got %d %s: %v", status, body, err)
	}
	if a.LiveState || a.HostID != "" || len(a.Walk) == 0 || a.Verdict == "" {
		t.Errorf("got %+v, want a walk without live state", a)
	}
}

// TestAgentAnswers plays the agent of the port's host in the store.
func TestAgentAnswers(t *testing.T) {
	w := newWorld(t, time.Minute)
	w.update(t, func(tx *records.Tx) error { return schema.HostStates.Put(tx, &topology.HostState{HostID: host}) })
	rev, err := w.db.Store().Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	changes, _ := w.db.Store().Watch(t.Context(), rev, schema.TraceRequestsPrefix+host+"/")
	answered := make(chan error, 1)
	go func() {
		var r flow.TraceRequest
		c := <-changes
		if err := json.Unmarshal(c.Events[0].Value, &r); err != nil {
			answered <- err
			return
		}
		_, err := w.db.Update(context.Background(), func(tx *records.Tx) error {
			return schema.TraceAnswers.Put(tx, &flow.TraceAnswer{ID: r.ID, HostID: r.HostID, LiveState: true, Verdict: "drop", Reason: r.PortID, Walk: []flow.Step{}})
		})
		answered <- err
	}()
	status, body := w.post(t, "admin", request(t, boundPort, frame()))
	if err := <-answered; err != nil {
		t.Fatal(err)
	}
	var a flow.TraceAnswer
	if err := json.Unmarshal([]byte(body), &a); err != nil || status != 200 {
		t.Fatalf("got %d %s: %v", status, body, err)
	}
	if !a.LiveState || a.HostID != host || a.Reason != boundPort {
		t.Errorf("got %+v, want the agent's answer", a)
	}
	kvs, _, err := w.db.Store().List(t.Context(), schema.TraceRequestsPrefix)
	if err != nil || len(kvs) != 0 {
		t.Errorf("requests left behind: %v, %v", kvs, err)
	}
}

func TestSilentAgent(t *testing.T) {
	w := newWorld(t, time.Millisecond)
	w.update(t, func(tx *records.Tx) error { return schema.HostStates.Put(tx, &topology.HostState{HostID: host}) })
	status, body := w.post(t, "admin", request(t, boundPort, frame()))
	var a flow.TraceAnswer
	if err := json.Unmarshal([]byte(body), &a); err != nil || status != 200 || a.LiveState {
		t.Errorf("got %d %s, want the server's own answer", status, body)
	}
}

// tokens are those of callers: by their role, or of a project.
func tokens() callertest.Tokens {
	all := callertest.WithRoles("admin", "member", "stranger")
	all["tenant"] = &api.Identity{UserID: "u-tenant", ProjectID: "tenant", Roles: []string{"reader"}}
	all["operator"] = &api.Identity{UserID: "u-operator", ProjectID: "ops", Roles: []string{"admin", "member"}}
	return all
}
