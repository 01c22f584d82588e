package main

import (
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"heddle/internal/netlab"
)

// roleFlags has an agent run one role.
var roleFlags = map[string][]string{
	"overlay": {"agent", "--tunnel-ip", "192.0.2.1"},
	"policy":  {"agent", "--policy"},
	"bgp":     {"agent", "--bgp"},
	"dhcp":    {"agent", "--dhcp"},
	"xen":     {"agent", "--xen"},
}

// names returns the names of the capabilities that roles need, in order.
func names(roles ...string) (all []string) {
	for _, role := range append([]string{"agent"}, roles...) {
		for _, n := range needs[role] {
			all = append(all, n.name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// TestCapabilities: the units of agents give what their roles need and nothing else. With one
// capability less an agent does not start, and names it. That what a role needs is enough, all
// tests show that [launch] agents.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	for unit, roles := range map[string][]string{"heddle-agent": slices.Collect(maps.Keys(roleFlags)), calicoDHCPAgent: {"dhcp"}} {
		given, err := netlab.UnitCapabilities(unitFile(unit))
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(given)
		if want := names(roles...); !slices.Equal(given, want) {
			t.Errorf("%s.service gives %v, its roles need %v", unit, given, want)
		}
	}
	for role, flags := range roleFlags {
		given := names(role)
		for _, missing := range given {
			out, code := confined(t, slices.DeleteFunc(slices.Clone(given), func(name string) bool { return name == missing }),
				append(flags, "--name", "h1", "--state", t.TempDir(), "--felix-config", "/dev/null")...)
			if code != 1 || !strings.Contains(out, " lacks "+missing+", for ") || !strings.Contains(out, "CapabilityBoundingSet= of Heddle's heddle-agent.service") {
				t.Errorf("%s without %s: exit code %d, %s", role, missing, code, out)
			}
		}
		if out, code := confined(t, given, append(flags, "--name", "h1", "--state", t.TempDir(), "--felix-config", "/dev/null")...); code != 2 || !strings.Contains(out, "this host has not joined") {
			t.Errorf("%s with all that it needs: exit code %d, %s", role, code, out)
		}
	}
	if out, code := confined(t, nil, "dhcp-agent", "--config-file", "/dev/null"); code != 1 || !strings.Contains(out, "CapabilityBoundingSet= of Heddle's "+calicoDHCPAgent+".service") {
		t.Errorf("dhcp-agent without capabilities: exit code %d, %s", code, out)
	}
}

// confined runs heddle with these capabilities and no others, and returns what it prints, and its
// exit code.
func confined(t *testing.T, capabilities []string, args ...string) (string, int) {
	t.Helper()
	cmd := heddle(args...)
	if err := netlab.Confine(cmd, capabilities); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}
