package ovs

import (
	"os"
	"testing"

	"heddle/internal/ovsdb"
)

// FuzzApply feeds a cache with two messages of changes, whatever they hold: it takes them or
// refuses them whole.
func FuzzApply(f *testing.F) {
	for _, seeds := range [][2]string{
		{`{"Bridge":{"b":{"initial":{"name":"xapi0","ports":["uuid","p"],"external_ids":["map",[["k","v"]]]}}}}`,
			`{"Bridge":{"b":{"modify":{"ports":["set",[["uuid","p"],["uuid","q"]]],"external_ids":["map",[["k","v"]]]}}}}`},
		{`{"Interface":{"i":{"insert":{"ofport":-1,"error":"File exists"}}}}`, `{"Interface":{"i":{"delete":null}}}`},
		{`{"Port":{"p":{"new":{"name":"x","tag":["set",[]]}}}}`, `{"Port":{"p":{"old":{"name":"x"}}}}`},
		{`{"Open_vSwitch":{"o":{"insert":{"next_cfg":1.5,"ssl":["set",[]]}}}}`, `{"Open_vSwitch":{"o":{"modify":{"external_ids":5}}}}`},
	} {
		f.Add([]byte(seeds[0]), []byte(seeds[1]), true)
	}
	schema, err := os.ReadFile("/usr/share/openvswitch/vswitch.ovsschema")
	if err != nil {
		f.Skipf("this test reads the schema of Open vSwitch: install openvswitch-switch (%v)", err)
	}
	f.Fuzz(func(t *testing.T, first, second []byte, all bool) {
		c, err := ovsdb.NewCache(&model, schema)
		if err != nil {
			t.Fatal(err)
		}
		for _, raw := range [][]byte{first, second} {
			before := c.Contents()
			if err := c.Apply(raw, all); err != nil && c.Contents() != before {
				t.Fatalf("%v, and the snapshot is another", err)
			}
			snap := c.Contents()
			snap.Bridge("xapi0")
			for _, b := range snap.Bridges {
				for _, p := range snap.PortsOf(b) {
					snap.InterfaceOf(p)
				}
			}
		}
	})
}
