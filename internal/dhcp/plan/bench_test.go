package plan

import (
	"fmt"
	"testing"

	"heddle/calico"
)

// BenchmarkChange measures the cost of a new port on a host with so many others: the plan and the
// step to it.
func BenchmarkChange(b *testing.B) {
	for _, others := range []int{500, 10_000} {
		b.Run(fmt.Sprint(others), func(b *testing.B) { benchmarkChange(b, others) })
	}
}

func benchmarkChange(b *testing.B, others int) {
	endpoints := map[calico.WorkloadEndpointKey]*calico.WorkloadEndpoint{}
	subnets := map[calico.DHCPSubnetKey]*calico.DHCPSubnet{
		{Subnet: "b"}:    subnetOf(b, `{"cidr": "10.66.0.0/16", "gateway_ip": "10.66.0.1"}`),
		{Subnet: "ipv6"}: subnetOf(b, `{"cidr": "fd65::/64", "gateway_ip": "fd65::1"}`),
	}
	add := func(i int) calico.WorkloadEndpointKey {
		key, e := endpoint(machine{fmt.Sprint(i), fmt.Sprintf("02:00:00:00:%02x:%02x", i/250, i%250), fmt.Sprintf("10.66.%d.%d", i/250+1, i%250), fmt.Sprintf("fd65::%x", i+10), "vm.example.org"})
		endpoints[key] = e
		return key
	}
	for i := range others {
		add(i)
	}
	var planner Planner
	running := Started(planner.Plan(defaults(), endpoints, subnets))
	for i := others; b.Loop(); i++ {
		key := add(i % 50000)
		if s := running.Step(planner.Plan(defaults(), endpoints, subnets)); len(s.Write) != 2 {
			b.Fatalf("%+v", s)
		}
		b.StopTimer()
		delete(endpoints, key)
		running = Started(planner.Plan(defaults(), endpoints, subnets))
		b.StartTimer()
	}
}
