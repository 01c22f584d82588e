package dhcp

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// lackOfIPv6 says why this host has no IPv6 for its machines; "" when it has. The kernel may have none at all (ipv6.disable=1),
// or it is switched off for the device: what is said of all links is said of each and, for those to come, of "default".
func lackOfIPv6(device string) string {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "the kernel has none: " + err.Error()
	}
	unix.Close(fd)
	for _, link := range []string{device, "default"} {
		file := "/proc/sys/net/ipv6/conf/" + link + "/disable_ipv6"
		off, err := os.ReadFile(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err.Error()
		case strings.TrimSpace(string(off)) != "0":
			return "net.ipv6.conf." + link + ".disable_ipv6 is " + strings.TrimSpace(string(off))
		}
		break
	}
	return ""
}
