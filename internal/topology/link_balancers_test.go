package topology

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLinkBalancers: the references of load balancers are followed both ways, whatever the order of
// the bundles; those of missing objects lead nowhere.
func TestLinkBalancers(t *testing.T) {
	t.Parallel()
	bundles := []Bundle{
		{Routers: []Router{{ID: "r"}}},
		{LoadBalancers: []LoadBalancer{{ID: "lb2", RouterID: "r"}, {ID: "lb1", RouterID: "r"}, {ID: "stray", RouterID: "gone"}}},
		{Pools: []Pool{{ID: "p", LoadBalancerID: "lb1", HealthMonitorID: "m"}}},
		{PoolMembers: []PoolMember{{ID: "b", PoolID: "p"}}},
		{PoolMembers: []PoolMember{{ID: "a", PoolID: "p"}, {ID: "c", PoolID: "gone"}}},
		{Vips: []Vip{{ID: "v1", PoolID: "p"}, {ID: "v2", LoadBalancerID: "lb2"}, {ID: "v0", PoolID: "p", LoadBalancerID: "lb1"}}},
		{HealthMonitors: []HealthMonitor{{ID: "m"}}, ServiceContainers: []ServiceContainer{{ID: "c"}}},
	}
	for range 5 {
		rand.Shuffle(len(bundles), func(i, j int) { bundles[i], bundles[j] = bundles[j], bundles[i] })
		v := Link(bundles, nil, nil)
		for _, tt := range []struct {
			what      string
			got, want any
		}{
			{"the router's load balancer", v.Routers["r"].LoadBalancerID, "lb1"},
			{"its pools", v.LoadBalancers["lb1"].PoolIDs, []string{"p"}},
			{"its VIPs", v.LoadBalancers["lb1"].VipIDs, []string{"v0", "v1"}},
			{"VIPs of another", v.LoadBalancers["lb2"].VipIDs, []string{"v2"}},
			{"a pool's members", v.Pools["p"].PoolMemberIDs, []string{"a", "b"}},
			{"a pool's VIPs", v.Pools["p"].VipIDs, []string{"v0", "v1"}},
			{"a monitor's pools", v.HealthMonitors["m"].PoolIDs, []string{"p"}},
			{"containers", len(v.ServiceContainers), 1},
		} {
			if d := cmp.Diff(tt.want, tt.got); d != "" {
				t.Errorf("%s: %s", tt.what, d)
			}
		}
	}
	text, err := json.Marshal(Link(nil, nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if _, there := all["LoadBalancer"]; there {
		t.Error("a view without load balancers names them")
	}
}
