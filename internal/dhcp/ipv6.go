package dhcp

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// lackOfIPv6 returns why this host has no IPv6 for its machines, "" if it has. The kernel may lack
// it (ipv6.disable=1), or it is disabled for the device: setting it for all links sets it for each
// and, for those to come, for "default".
func lackOfIPv6(device string) string {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "the kernel has none: " + err.Error()
	}
	unix.Close(fd)
	for _, link := range []string{device, "default"} {
		raw, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + link + "/disable_ipv6")
		off := strings.TrimSpace(string(raw))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err.Error()
		case off != "0":
			return "net.ipv6.conf." + link + ".disable_ipv6 is " + off
		}
		break
	}
	return ""
}
