package netlab

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

// UnitCapabilities returns the capabilities to which the file of a systemd unit bounds a service,
// such as CAP_NET_ADMIN.
func UnitCapabilities(file string) ([]string, error) {
	unit, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	setting := regexp.MustCompile(`(?m)^CapabilityBoundingSet=(CAP_.+)$`).FindSubmatch(unit)
	if setting == nil {
		return nil, fmt.Errorf("%s does not bound the capabilities of its service", file)
	}
	return strings.Fields(string(setting[1])), nil
}

// Confine has a command that has not been started run with these capabilities and no others, and
// gain none.
func Confine(cmd *exec.Cmd, capabilities []string) error {
	program, err := exec.LookPath("setpriv")
	if err != nil {
		return err
	}
	bound := "-all"
	for _, capability := range capabilities {
		bound += ",+" + strings.ToLower(strings.TrimPrefix(capability, "CAP_"))
	}
	cmd.Args = append([]string{"setpriv", "--no-new-privs", "--bounding-set", bound, "--", cmd.Path}, cmd.Args[1:]...)
	cmd.Path = program
	return nil
}
