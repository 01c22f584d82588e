package translate

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// lbCase is the input of a golden file: what of load balancing is translated.
type lbCase struct {
	LoadBalancer *neutron.LoadBalancer `json:"load_balancer"`
	Port         *neutron.Port         `json:"port"`
	Subnet       *neutron.Subnet       `json:"subnet"`

	Listeners []*neutron.Listener      `json:"listeners"`
	Pools     []*neutron.LBPool        `json:"pools"`
	Members   []*neutron.LBMember      `json:"members"`
	Monitors  []*neutron.HealthMonitor `json:"monitors"`

	// Of LBaaS v1.
	Router    string       `json:"router"`
	Monitored bool         `json:"monitored"`
	VIP       *neutron.VIP `json:"vip"`
}

// bundles translates everything, each owner by itself.
func (c *lbCase) bundles() map[string]topology.Bundle {
	all := map[string]topology.Bundle{}
	if lb := c.LoadBalancer; lb != nil {
		all["load-balancer"] = LoadBalancer(lb, c.Port, c.Subnet)
		all["container"] = LoadBalancerContainer(lb, c.Subnet)
		for _, l := range c.Listeners {
			all["listener "+l.ID] = Listener(l, lb)
		}
	}
	for _, p := range c.Pools {
		all["lb-pool "+p.ID] = LBPool(p)
	}
	for _, m := range c.Members {
		all["lb-member "+m.ID] = LBMember(m)
	}
	for _, m := range c.Monitors {
		all["health-monitor "+m.ID] = HealthMonitor(m)
	}
	if c.Router != "" {
		all["router-lb"] = RouterLoadBalancer(c.Router, c.Monitored)
		all["container"] = RouterLoadBalancerContainer(c.Router, LinkSpace{Subnets: []*neutron.Subnet{c.Subnet}}, []netip.Addr{c.VIP.Address})
		all["vip"] = VIP(c.VIP, c.Subnet.NetworkID, c.Port)
	}
	return all
}

// Each file has Neutron's objects above a line of dashes, and the bundles below.
func TestLoadBalancerGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/loadbalancers/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		input, want, _ := strings.Cut(string(raw), "\n----\n")
		var c lbCase
		if err := json.Unmarshal([]byte(input), &c); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		got, err := json.MarshalIndent(c.bundles(), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if *update {
			if err := os.WriteFile(file, []byte(input+"\n----\n"+string(got)+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if d := cmp.Diff(strings.TrimSpace(want), string(got)); d != "" {
			t.Errorf("%s: -want +got\n%s", file, d)
		}
	}
}

// TestContainerLink: the link of a container is the lowest that no subnet overlaps.
func TestContainerLink(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		subnets, others []string
		own, want       string
	}{
		{nil, nil, "", "169.254.0.0/30"},
		{[]string{"10.0.0.0/24"}, nil, "", "169.254.0.0/30"},
		{[]string{"169.254.0.0/29"}, nil, "", "169.254.0.8/30"},
		{[]string{"169.254.0.0/24", "169.254.1.0/30"}, nil, "", "169.254.1.4/30"},
		{nil, []string{"169.254.0.0/30"}, "", "169.254.0.4/30"},
		{nil, []string{"169.254.0.4/30"}, "", "169.254.0.0/30"},
		{nil, nil, "169.254.0.4/30", "169.254.0.4/30"},
		{[]string{"169.254.0.0/24"}, nil, "169.254.0.4/30", "169.254.1.0/30"},
		{nil, []string{"169.254.0.4/30"}, "169.254.0.4/30", "169.254.0.0/30"},
		{[]string{"0.0.0.0/0"}, nil, "", "169.254.0.0/30"},
	} {
		var space LinkSpace
		for _, s := range tt.subnets {
			space.Subnets = append(space.Subnets, &neutron.Subnet{CIDR: netip.MustParsePrefix(s)})
		}
		for _, s := range tt.others {
			space.Others = append(space.Others, netip.MustParsePrefix(s))
		}
		if tt.own != "" {
			space.Own = netip.MustParsePrefix(tt.own)
		}
		l := space.choose()
		if l.prefix.String() != tt.want || l.first != l.prefix.Addr().Next() || l.second != l.first.Next() {
			t.Errorf("%+v: %+v, want %s", tt, l, tt.want)
		}
	}
}
