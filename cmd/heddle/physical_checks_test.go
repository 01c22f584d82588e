package main

import (
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
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

// TestDoctorOfUnits: without --config the doctor has the settings of Heddle's units. Where they are
// wrong it says so, and looks at all else; an empty --config is none.
func TestDoctorOfUnits(t *testing.T) {
	t.Parallel()
	ns := netlab.ForTest(t).MustNamespace(t, "doctor")
	doctor := func(settings string, args ...string) string {
		t.Helper()
		plain := heddle(args...)
		cmd := exec.Command("unshare", append([]string{"--mount", "sh", "-ec",
			`mount -t tmpfs none /etc; mkdir /etc/heddle; printf %s "$0" > /etc/heddle/heddle.yaml; exec "$@"`, settings}, plain.Args...)...)
		cmd.Env, cmd.Dir = plain.Env, t.TempDir()
		var text strings.Builder
		cmd.Stdout, cmd.Stderr = &text, &text
		if err := ns.Start(cmd); err != nil {
			t.Fatal(err)
		}
		var exit *exec.ExitError
		if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return text.String()
	}
	const settings = "agent:\n  physical: physnet1=missing\n"
	if text := doctor(settings, "doctor"); !regexp.MustCompile(`(?m)^missing +physical network physnet1 .*interface missing: `).MatchString(text) {
		t.Errorf("the doctor does not look at the units' settings:\n%s", text)
	}
	if text := doctor(settings, "doctor", "--config", ""); strings.Contains(text, "physnet1") {
		t.Errorf("the doctor looks at the units' settings, though it is to have none:\n%s", text)
	}
	text := doctor("agent: 5\n", "doctor")
	if !strings.Contains(text, "going on without the settings in /etc/heddle/heddle.yaml: ") || !strings.Contains(text, "eBPF datapath") {
		t.Errorf("the doctor with settings that are wrong:\n%s", text)
	}
}
