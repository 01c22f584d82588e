package console

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/api"
	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// TestBGP: operators see each router that speaks BGP with its peers, as its host reports them.
func TestBGP(t *testing.T) {
	w := newWorld(t, time.Second)
	const router, container, first, second = "66666666-0000-4000-8000-000000000001", "66666666-0000-4000-8000-000000000002",
		"66666666-0000-4000-8000-000000000003", "66666666-0000-4000-8000-000000000004"
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at, other, announced := netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.9"), netip.MustParsePrefix("10.0.0.0/24")
	speaker := topology.BgpSpeaker{RouterID: router, ContainerID: container, ASNumber: 64512, Announced: []netip.Prefix{announced},
		Links: []topology.BgpLink{{PortID: "uplink"}}}
	peers := []topology.BgpPeer{{ID: first, RouterID: router, Address: at, ASNumber: 65001}, {ID: second, RouterID: router, Address: other, ASNumber: 65002}}
	w.update(t, func(tx *records.Tx) error {
		return errors.Join(schema.Routers.Put(tx, &neutron.Router{Standard: neutron.Standard{ID: router, Name: "edge"}}),
			schema.Hosts.Put(tx, &topology.Host{ID: host, Name: "h1"}),
			schema.Bundles.Put(tx, &schema.Bundle{Owner: topology.Owner{Kind: topology.RouterBGPOwner, ID: router}, Bundle: topology.Bundle{
				BgpSpeakers: []topology.BgpSpeaker{speaker}, BgpPeers: peers}}))
	})
	want := operator.BGPRouter{ID: router, Name: "edge", AS: 64512, Status: "DOWN", Message: noSpeakerHost, Announced: []netip.Prefix{announced},
		Peers: []operator.BGPPeer{{ID: first, Address: at, AS: 65001, State: topology.BgpIdle}, {ID: second, Address: other, AS: 65002, State: topology.BgpIdle}}}
	w.wantBGP(t, want)

	w.update(t, func(tx *records.Tx) error {
		route := topology.LearnedRoute{Dst: netip.MustParsePrefix("0.0.0.0/0"), Gateway: at}
		return errors.Join(
			schema.Bundles.Put(tx, &schema.Bundle{Owner: topology.Owner{Kind: topology.ContainerOwner, ID: container}}),
			schema.ContainerBindings.Put(tx, &topology.ContainerBinding{ContainerID: container, HostID: host}),
			schema.ContainerStates.Put(tx, &topology.ContainerState{ContainerID: container, HostID: host, Status: topology.ContainerRunning}),
			schema.LearnedRoutes.Put(tx, &topology.LearnedRoutes{HostID: host, PortID: "uplink", Routes: []topology.LearnedRoute{route}}),
			schema.LearnedRoutes.Put(tx, &topology.LearnedRoutes{HostID: "another", PortID: "uplink", Routes: []topology.LearnedRoute{
				{Dst: netip.MustParsePrefix("198.51.100.0/24"), Gateway: at}}}),
			schema.BGPStates.Put(tx, &topology.BgpState{HostID: host, PortID: "port", RouterID: router, Peers: []topology.BgpPeerState{
				{PeerID: first, Address: at, State: topology.BgpEstablished, Since: since, Received: 1, Refused: 2, Advertised: 1, LastError: "refused"}}}))
	})
	want.Host, want.Status, want.Message, want.Learned = "h1", topology.ContainerRunning, "", 1
	want.Peers[0] = operator.BGPPeer{ID: first, Address: at, AS: 65001, State: topology.BgpEstablished, Since: since, Received: 1, Refused: 2, Advertised: 1, LastError: "refused"}
	w.wantBGP(t, want)
	if status, _ := w.get(t, "member", "/v1/bgp"); status != http.StatusForbidden {
		t.Errorf("a member is answered %d", status)
	}
}

func (w *world) wantBGP(t *testing.T, want operator.BGPRouter) {
	t.Helper()
	status, body := w.get(t, "admin", "/v1/bgp")
	var answer struct{ Routers []operator.BGPRouter }
	if err := json.Unmarshal([]byte(body), &answer); err != nil || status != http.StatusOK {
		t.Fatalf("got %d %s: %v", status, body, err)
	}
	if diff := cmp.Diff([]operator.BGPRouter{want}, answer.Routers, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("routers (-want +got):\n%s", diff)
	}
}

func (w *world) get(t *testing.T, token, path string) (int, string) {
	t.Helper()
	return w.call(t, token, http.MethodGet, path)
}

// call makes a call without a body.
func (w *world) call(t *testing.T, token, method, path string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, w.url+path, nil)
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
