package control

import (
	"testing"

	"heddle/internal/neutron"
)

func TestRequestedSegment(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		v     neutron.Values
		want  segment
		error string
	}{
		{"none", neutron.Values{}, segment{typ: "vxlan"}, ""},
		{"vxlan id", neutron.Values{attrNetworkType: "vxlan", attrSegmentationID: 7}, segment{"vxlan", "", 7}, ""},
		{"vlan", neutron.Values{attrNetworkType: "vlan", attrPhysicalNetwork: "physnet1", attrSegmentationID: 1777}, segment{"vlan", "physnet1", 1777}, ""},
		{"flat", neutron.Values{attrNetworkType: "flat", attrPhysicalNetwork: "public"}, segment{typ: "flat", physical: "public"}, ""},
		{"uplink", neutron.Values{attrNetworkType: "uplink"}, segment{typ: "uplink"}, ""},
		{"vlan without physical network", neutron.Values{attrNetworkType: "vlan", attrSegmentationID: 5}, segment{},
			"InvalidInput: Invalid input for operation: segmentation_id requires physical_network for VLAN provider network."},
		{"unknown type", neutron.Values{attrNetworkType: "zzz"}, segment{},
			"InvalidInput: Invalid input for operation: network_type value 'zzz' not supported."},
		{"vlan out of range", neutron.Values{attrNetworkType: "vlan", attrPhysicalNetwork: "physnet1", attrSegmentationID: 5000}, segment{},
			"InvalidInput: Invalid input for operation: segmentation_id out of range (1 through 4094)."},
		{"unknown physical network", neutron.Values{attrNetworkType: "vlan", attrPhysicalNetwork: "nope", attrSegmentationID: 50}, segment{},
			"InvalidInput: Invalid input for operation: physical_network 'nope' unknown for VLAN provider network."},
		{"id without type", neutron.Values{attrSegmentationID: 50}, segment{}, "InvalidInput: Invalid input for operation: network_type required."},
		{"flat on a vlan trunk", neutron.Values{attrNetworkType: "flat", attrPhysicalNetwork: "physnet1"}, segment{},
			"InvalidInput: Invalid input for operation: physical_network 'physnet1' unknown for flat provider network."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := testOptions(t).requestedSegment(tt.v)
			if problem(err) != tt.error {
				t.Fatalf("got error  %q\nwant %q", problem(err), tt.error)
			}
			if err == nil && got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestChooseSegment(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	random := testRandom()
	taken := map[segment]bool{}
	isTaken := func(s segment) bool { return taken[s] }
	for range 2 {
		got, err := o.chooseSegment(segment{typ: "vlan"}, isTaken, random)
		if err != nil || got.physical != "physnet1" || got.id < 100 || got.id > 101 || taken[got] {
			t.Fatalf("got %+v, %v", got, err)
		}
		taken[got] = true
	}
	if _, err := o.chooseSegment(segment{typ: "vlan"}, isTaken, random); problem(err) !=
		"NoNetworkAvailable: Unable to create the network. No tenant network is available for allocation." {
		t.Errorf("range used up: %v", err)
	}
	for s, want := range map[segment]string{
		{"vlan", "physnet1", 100}: "VlanIdInUse: Unable to create the network. The VLAN 100 on physical network physnet1 is in use.",
		{"flat", "public", 0}:     "FlatNetworkInUse: Unable to create the flat network. Physical network public is in use.",
		{"vxlan", "", 7}:          "TunnelIdInUse: Unable to create the network. The tunnel ID 7 is in use.",
	} {
		taken[s] = true
		if _, err := o.chooseSegment(s, isTaken, random); problem(err) != want {
			t.Errorf("%+v: got %q, want %q", s, problem(err), want)
		}
	}
	if got, err := o.chooseSegment(segment{typ: "uplink"}, func(segment) bool { return true }, random); err != nil || got.id != 0 {
		t.Errorf("uplink networks are many: %+v, %v", got, err)
	}
}

func TestNetworkMTU(t *testing.T) {
	t.Parallel()
	o := testOptions(t)
	v6 := []*neutron.Subnet{{Standard: neutron.Standard{ID: "s"}, IPVersion: 6}}
	tests := []struct {
		name    string
		s       segment
		mtu     int
		subnets []*neutron.Subnet
		want    int
		error   string
	}{
		{"vxlan", segment{typ: "vxlan"}, 0, nil, 1450, ""},
		{"vlan", segment{"vlan", "physnet1", 1}, 0, nil, 1500, ""},
		{"flat, jumbo", segment{typ: "flat", physical: "public"}, 0, nil, 9000, ""},
		{"smaller", segment{typ: "vxlan"}, 10, nil, 10, ""},
		{"too big", segment{typ: "vxlan"}, 1451, nil, 0, "InvalidInput: Invalid input for operation: Requested MTU is too big, maximum is 1450."},
		{"too small for its subnets", segment{typ: "vxlan"}, 1279, v6, 0,
			"InvalidInput: Invalid input for operation: Requested MTU is too small for subnet s of IP version 6, minimum is 1280."},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := o.networkMTU(tt.s, tt.mtu, tt.subnets)
			if got != tt.want || problem(err) != tt.error {
				t.Errorf("got %d, %q; want %d, %q", got, problem(err), tt.want, tt.error)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"underlay":     {UnderlayMTU: 100},
		"vxlan range":  {VXLANs: IDRange{5, 4}},
		"vlan range":   {PhysicalNetworks: map[string]PhysicalNetwork{"p": {VLANs: []IDRange{{1, 4095}}}}},
		"no name":      {PhysicalNetworks: map[string]PhysicalNetwork{"": {}}},
		"quota name":   {Quotas: map[string]int{"nets": 1}},
		"quota number": {Quotas: map[string]int{"network": -2}},
	} {
		if _, err := o.complete(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	o, err := Options{Quotas: map[string]int{"network": 5}}.complete()
	if err != nil || o.Quotas["network"] != 5 || o.Quotas["port"] != 500 {
		t.Errorf("quotas %v, %v", o.Quotas, err)
	}
}
