package hostnet

import (
	"fmt"
	"io"
	"net"
)

// Alone keeps others that call it with the same name out of this process's network namespace, until it is closed or the
// process ends: of most agents a host can have but one. An error says that there is one.
func Alone(name string) (io.Closer, error) {
	l, err := net.Listen("unix", "@heddle-"+name) // abstract names belong to a network namespace
	if err != nil {
		return nil, fmt.Errorf("%s runs here already: %w", name, err)
	}
	return l, nil
}
