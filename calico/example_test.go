package calico_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"heddle/calico"
)

// A program that follows etcd tells what has changed by the key.
func ExampleParseKey() {
	for _, path := range []string{
		"/calico/v1/host/node-1/workload/openstack/vm-7/endpoint/port%2f1",
		"/calico/v1/policy/tier/default/policy/web",
		"/calico/v1/ipam/v4/pool/10.65.0.0-16",
		"/calico/v1/config/bgp_node_mesh", // the second spelling of /calico/bgp/v1/global/node_mesh
		"/calico/v1/ipam/v4/pool/10.65.0.0",
	} {
		key, ok := calico.ParseKey(path)
		if !ok {
			fmt.Println("not a key:", path)
			continue
		}
		switch k := key.(type) {
		case calico.WorkloadEndpointKey:
			fmt.Printf("endpoint %s of %s on %s\n", k.Endpoint, k.Workload, k.Host)
		case calico.PolicyKey:
			fmt.Printf("policy %s of tier %s\n", k.Policy, k.Tier)
		default:
			fmt.Printf("%s %v\n", k.Kind(), k)
		}
	}
	// Output:
	// endpoint port/1 of vm-7 on node-1
	// policy web of tier default
	// IPPool {10.65.0.0/16}
	// BGPGlobalConfig {node_mesh}
	// not a key: /calico/v1/ipam/v4/pool/10.65.0.0
}

// A look-up by path allocates nothing.
func ExampleParseAs() {
	up := map[calico.WorkloadEndpointKey]bool{{Host: "node-1", Orchestrator: "docker", Workload: "c1", Endpoint: "eth0"}: true}
	key, ok := calico.ParseAs[calico.WorkloadEndpointKey]("/calico/v1/host/node-1/workload/docker/c1/endpoint/eth0")
	fmt.Println(ok, up[key])
	// Output: true true
}

// To list the policies of one tier, or all endpoints of a host, leave the rest of the key out.
func ExamplePrefixes() {
	partial := calico.WorkloadEndpointKey{Host: "node-1"}
	prefixes, err := calico.Prefixes(partial)
	fmt.Println(prefixes, err)

	key, _ := calico.ParseKey("/calico/v1/host/node-1/workload/docker/c1/endpoint/eth0")
	fmt.Println(calico.Matches(partial, key))
	// Output:
	// [/calico/v1/host/node-1/workload/] <nil>
	// true
}

// Handles, peers and the node mesh may lie at a second path; who deletes one deletes both.
func ExampleAlias() {
	key := calico.HandleKey{Handle: "vm-7"}
	path, err := key.Path()
	fmt.Println(path, err)
	fmt.Println(calico.Alias(key))
	// Output:
	// /calico/ipam/v2/handle/vm-7 <nil>
	// /calico/ipam/v2/assignment/handle/vm-7 true
}

func ExampleEncode() {
	order := 100.0
	policy := &calico.Policy{
		Selector: `role == 'web'`,
		Order:    &order,
		InboundRules: []calico.Rule{
			{Protocol: calico.ProtocolTCP, DstPorts: []calico.Ports{{Low: 80, High: 80}, {Low: 8000, High: 8100}}, SrcSelector: `role == 'lb'`},
			{Action: calico.Deny, LogPrefix: "web refused"},
		},
	}
	value, err := calico.Encode(calico.PolicyKey{Tier: "default", Policy: "web"}, policy)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(inLines(value))
	// Output:
	// {"selector":"role == \"web\"",
	// "order":100,
	// "inbound_rules":[{"action":"allow",
	// "protocol":"tcp",
	// "src_selector":"role == \"lb\"",
	// "dst_ports":[80,
	// "8000:8100"]},{"action":"deny",
	// "log_prefix":"web_refused"}],
	// "outbound_rules":[]}
}

// What Decode gives is checked and in its canonical form; members that it does not know are kept
// for the rewrite.
func ExampleDecode() {
	key := calico.WorkloadEndpointKey{Host: "node-1", Orchestrator: "openstack", Workload: "vm-7", Endpoint: "port-1"}
	object, err := calico.Decode(key, []byte(`{"state": "active", "name": "tap1", "mac": "FA-16-3E-00-00-01", "profile_id": "web",
		"ipv4_nets": ["10.65.0.2"], "labels": {"role": "web"}, "colour": "red"}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	endpoint := object.(*calico.WorkloadEndpoint)
	endpoint.IPv4NAT = []calico.NAT{{IntIP: netip.MustParseAddr("10.65.0.2"), ExtIP: netip.MustParseAddr("192.0.2.7")}}
	value, err := calico.Encode(key, endpoint)
	fmt.Println(inLines(value), err)
	// Output:
	// {"state":"active",
	// "name":"tap1",
	// "mac":"fa:16:3e:00:00:01",
	// "profile_ids":["web"],
	// "ipv4_nets":["10.65.0.2/32"],
	// "ipv6_nets":[],
	// "ipv4_nat":[{"int_ip":"10.65.0.2",
	// "ext_ip":"192.0.2.7"}],
	// "labels":{"role":"web"},
	// "colour":"red"} <nil>
}

// An error says which member is wrong, what is there and what may be.
func ExampleError() {
	_, err := calico.Decode(calico.ProfileRulesKey{Profile: "web"}, []byte(`{"inbound_rules": [{}, {"protocol": "tcp", "dst_ports": [80, "90:81"]}]}`))
	var refused *calico.Error
	if errors.As(err, &refused) {
		fmt.Println(refused.Field, "is", refused.Value)
		fmt.Println(refused.Reason)
	}
	// Output:
	// inbound_rules[1].dst_ports[1] is "90:81"
	// want a port from 1 to 65535, or a range "low:high" of them with low <= high
}

func ExampleWorkloadEndpoint_Validate() {
	endpoint := &calico.WorkloadEndpoint{State: calico.Active, Name: "tap1", IPv4Nets: []netip.Prefix{netip.MustParsePrefix("10.65.0.0/24")}}
	fmt.Println(endpoint.Validate())
	// Output: WorkloadEndpoint: ipv4_nets[0]: "10.65.0.0/24": want the prefix of one address, /32
}

// A block whose parts disagree is read as it is, and reported.
func ExampleBlock_Check() {
	object, err := calico.DecodeAs(calico.KindIPAMBlock, []byte(`{"cidr": "10.65.0.0/24", "affinity": "host:node-1", "allocations": [null, null]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(object.(*calico.Block).Check())
	// Output: IPAMBlock: cidr: "10.65.0.0/24": want a block of 64 addresses, a /26
}

// inLines begins a line with each text after a comma.
func inLines(value []byte) string { return strings.ReplaceAll(string(value), `,"`, ",\n\"") }
