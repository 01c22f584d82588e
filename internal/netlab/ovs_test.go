package netlab

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// TestOVSLab joins machines of three hosts by a star of GRE tunnels, as a person would by hand, and
// brings the center back from the dead.
func TestOVSLab(t *testing.T) {
	t.Parallel()
	l := OVSForTest(t, 3)
	var machines []*Namespace
	for i, h := range l.Hosts() {
		if _, err := h.Vsctl("add-br", "xapi0", "--", "set", "bridge", "xapi0", "datapath_type=netdev"); err != nil {
			t.Fatal(err)
		}
		m, port, err := h.Machine(fmt.Sprintf("m%d", i+1), fmt.Sprintf("10.77.0.%d/24", i+1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Vsctl("add-port", "xapi0", port); err != nil {
			t.Fatal(err)
		}
		machines = append(machines, m)
	}
	center := l.Hosts()[0]
	for _, spoke := range l.Hosts()[1:] {
		for _, ends := range [][2]*OVSHost{{center, spoke}, {spoke, center}} {
			name := "t" + ends[1].Name
			if _, err := ends[0].Vsctl("add-port", "xapi0", name, "--", "set", "interface", name, "type=gre",
				"options:remote_ip="+ends[1].Address.String(), "options:key=7"); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	ping := func() {
		t.Helper()
		if err := machines[1].Reach(ctx, "10.77.0.3"); err != nil {
			t.Fatal(err)
		}
	}
	ping()
	if err := center.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := center.Start(); err != nil {
		t.Fatal(err)
	}
	ping()
}
