package hostnet

import (
	"fmt"
	"io"
	"net"
)

// Alone holds a name in this process's network namespace until it is closed or the process ends: of
// most agents a host can have but one. It fails while another process holds the name.
func Alone(name string) (io.Closer, error) {
	l, err := net.Listen("unix", "@heddle-"+name) // abstract names belong to a network namespace
	if err != nil {
		return nil, fmt.Errorf("%s runs here already: %w", name, err)
	}
	return l, nil
}
