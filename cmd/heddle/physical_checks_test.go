package main

import (
	"path/filepath"
	"regexp"
	"testing"

	"heddle/internal/netlab"
)

// TestDoctorOfPhysicalNetworks: the doctor looks at the interfaces in the agent's section of the
// file.
func TestDoctorOfPhysicalNetworks(t *testing.T) {
	t.Parallel()
	ns := netlab.ForTest(t).MustNamespace(t, "doctor")
	ns.MustIP(t, "link add good type veth peer name other", "link set good up", "link set other up", "link add idle type veth peer name away",
		"link add cut type veth peer name end", "link set cut up")
	file := filepath.Join(t.TempDir(), "heddle.yaml")
	writeFile(t, file, "agent:\n  physical: [a=good, b=idle, c=cut, d=missing, e=lo]\n")
	text, _ := output(t, ns, "doctor", "--config", file)
	for _, line := range []string{`ok +physical network a `, `missing +physical network b .*interface idle is down`, `missing +physical network c .*interface cut has no carrier`,
		`missing +physical network d .*interface missing: .*not found`, `missing +physical network e .*interface lo is a loopback: connect the physical network by a network card`} {
		if !regexp.MustCompile(`(?m)^` + line).MatchString(text) {
			t.Errorf("want a line %q in\n%s", line, text)
		}
	}
}
