package vtep

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"heddle/internal/ovsdb"
	"heddle/internal/topology/packet"
)

// vtepSchema is the real schema of VTEPs.
func vtepSchema(t testing.TB) []byte {
	t.Helper()
	raw, err := os.ReadFile("/usr/share/openvswitch/vtep.ovsschema")
	if err != nil {
		t.Skipf("this test reads the schema of VTEPs: install openvswitch-vtep (%v)", err)
	}
	return raw
}

func switchCache(t testing.TB, raw []byte) *ovsdb.Cache[*tables] {
	t.Helper()
	c, err := ovsdb.NewCache(&model, raw)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func testSegment() segment {
	return segment{networkID: "n", portID: "g", behindID: "b", vni: 7, locator: netip.MustParseAddr("192.0.2.1"),
		macs:     map[packet.MAC]netip.Addr{{2, 0, 0, 0, 0, 1}: netip.MustParseAddr("10.0.0.1")},
		bindings: map[string][]int{"p0": {0, 5}}}
}

const goodRows = `"Logical_Switch":{"l":{"initial":{"name":"heddle-n","tunnel_key":7,"replication_mode":"source_node"}},"x":{"initial":{"name":"other"}}},
"Physical_Locator":{"d":{"initial":{"encapsulation_type":"vxlan_over_ipv4","dst_ip":"198.51.100.1"}}},
"Physical_Locator_Set":{"e":{"initial":{"locators":["uuid","d"]}}},`

// TestRowsOfSwitches lists rows that switches write, what comes of them, and what is said of
// others.
func TestRowsOfSwitches(t *testing.T) {
	t.Parallel()
	row := func(mac, logical, to, ip string) string {
		return `{"r":{"initial":{"MAC":"` + mac + `","logical_switch":["uuid","` + logical + `"],` + to + `,"ipaddr":"` + ip + `"}}}`
	}
	locator, set := `"locator":["uuid","d"]`, `"locator_set":["uuid","e"]`
	for name, tc := range map[string]struct {
		table, row string
		want       string // MAC, VTEP, IP; "" = none
		fault      string
	}{
		"a machine":                         {"Ucast_Macs_Local", row("02:00:00:00:00:05", "l", locator, ""), "02:00:00:00:00:05 198.51.100.1 invalid IP", ""},
		"with an address":                   {"Ucast_Macs_Local", row("02:00:00:00:00:05", "l", locator, "10.0.0.5"), "02:00:00:00:00:05 198.51.100.1 10.0.0.5", ""},
		"with a bad address":                {"Ucast_Macs_Local", row("02:00:00:00:00:05", "l", locator, "10.0.0"), "02:00:00:00:00:05 198.51.100.1 invalid IP", `"10.0.0" is no address`},
		"a bad MAC address":                 {"Ucast_Macs_Local", row("02:00:00", "l", locator, ""), "", "no MAC address"},
		"a multicast MAC address":           {"Ucast_Macs_Local", row("03:00:00:00:00:05", "l", locator, ""), "", "no MAC address"},
		"a locator that is missing":         {"Ucast_Macs_Local", row("02:00:00:00:00:05", "l", `"locator":["uuid","?"]`, ""), "", "locator is missing"},
		"of another's switch":               {"Ucast_Macs_Local", row("02:00:00:00:00:05", "x", locator, ""), "", ""},
		"floods":                            {"Mcast_Macs_Local", row("unknown-dst", "l", set, ""), "ff:ff:ff:ff:ff:ff 198.51.100.1 invalid IP", ""},
		"a group":                           {"Mcast_Macs_Local", row("01:00:5e:00:00:01", "l", set, ""), "", ""},
		"floods to a set that is not there": {"Mcast_Macs_Local", row("unknown-dst", "l", `"locator_set":["uuid","?"]`, ""), "", "locator set is missing"},
	} {
		c := switchCache(t, vtepSchema(t))
		if err := c.Apply([]byte("{"+goodRows+`"`+tc.table+`":`+tc.row+"}"), true); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		l := readLocals(c.Contents(), []segment{testSegment()})
		var got []string
		for _, r := range l.remotes {
			got = append(got, r.MAC.String()+" "+r.VTEP.String()+" "+r.IP.String())
			if r.PortID != "g" || r.NetworkID != "n" || r.BehindID != "b" {
				t.Errorf("%s: %+v", name, r)
			}
		}
		if strings.Join(got, "\n") != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
		faults := strings.Join(l.faults(), "\n")
		if (tc.fault == "") != (faults == "") || !strings.Contains(faults, tc.fault) {
			t.Errorf("%s: faults %q, want %q", name, faults, tc.fault)
		}
	}
}

// FuzzRows feeds two messages of changes of a switch's rows, whatever they hold: what can be read
// is planned for, and foreign logical switches are never changed.
func FuzzRows(f *testing.F) {
	f.Add([]byte("{"+strings.TrimSuffix(goodRows, ",")+"}"),
		[]byte(`{"Ucast_Macs_Local":{"r":{"insert":{"MAC":"02:00:00:00:00:05","logical_switch":["uuid","l"],"locator":["uuid","d"],"ipaddr":""}}}}`))
	f.Add([]byte(`{"Physical_Port":{"p":{"initial":{"name":"p0","vlan_bindings":["map",[[0,["uuid","x"]],[5,["uuid","l"]]]]}}}}`),
		[]byte(`{"Logical_Switch":{"x":{"initial":{"name":"heddle-gone"}}},"Physical_Port":{"p":{"modify":{"vlan_bindings":["map",[]]}}}}`))
	f.Add([]byte(`{"Mcast_Macs_Remote":{"m":{"initial":{"MAC":"unknown-dst","logical_switch":["uuid","l"],"locator_set":["uuid","e"]}}}}`),
		[]byte(`{"Physical_Locator_Set":{"e":{"initial":{"locators":["set",[]]}}},"Physical_Locator":{"d":{"initial":{"dst_ip":"::"}}}}`))
	segments, schema := []segment{testSegment()}, vtepSchema(f)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		c := switchCache(t, schema)
		for _, raw := range [][]byte{first, second} {
			_ = c.Apply(raw, false)
			now := c.Contents()
			for _, r := range readLocals(now, segments).remotes {
				if !r.VTEP.Is4() || r.MAC.IsZero() || r.IP.IsValid() && r.IP.IsUnspecified() {
					t.Fatalf("%+v", r)
				}
			}
			ops, _ := plan(now, segments)
			foreign := slices.ContainsFunc(ops, func(op ovsdb.Op) bool {
				text := op.String()
				return strings.Contains(text, "Logical_Switch") && !strings.Contains(text, prefix)
			})
			if foreign {
				t.Fatalf("%v", ops)
			}
		}
	})
}
