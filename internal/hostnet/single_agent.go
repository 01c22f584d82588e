package hostnet

import (
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
)

// namePrefix begins the abstract names of sockets that [Alone] listens on.
const namePrefix = "@heddle-"

// Alone holds a name in this process's network namespace until it is closed or the process ends: of
// most agents a host can have but one. It fails while another process holds the name.
func Alone(name string) (io.Closer, error) {
	l, err := net.Listen("unix", namePrefix+name) // abstract names belong to a network namespace
	if err != nil {
		return nil, fmt.Errorf("%s runs here already: %w", name, err)
	}
	return l, nil
}

// Held reports whether a process holds a name in this process's network namespace.
func Held(name string) (bool, error) {
	sockets, err := os.ReadFile("/proc/self/net/unix")
	if err != nil {
		return false, fmt.Errorf("processes of this host: %w", err)
	}
	return regexp.MustCompile(`(?m) ` + regexp.QuoteMeta(namePrefix+name) + `$`).Match(sockets), nil
}
