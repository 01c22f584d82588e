// Package offline answers questions without a server, a kernel or root: files in, answers out (file-formats). Translate
// shows the topology that Neutron operations make; Trace sends frames through a topology and checks where they go.
// Both run the server's own operations, package control, over a store in memory, and the agents' own simulator.
//
//	translate:  file → steps ─────▶ requests → control → bundles in the store → link → print
//	trace:      file → topology ──▶ requests → control → bundles in the store → simulate each frame → compare → print
//
// Neutron has no rules here but the server's: a new resource needs an entry in world.resources. What is added to a request
// is what the server would choose by chance or find in its database, which would make the answer a different one every
// time: a port without fixed_ips has no address (with a subnet alone, its lowest free one), without security_groups no
// group; a new group has no rules but its own; a MAC address follows from the port's id. Ids are the file's, the caller is
// an administrator without quotas, and the underlay has the MTU and the physical networks that the file asks for.
package offline

import (
	"errors"
	"fmt"
)

// FileError says that the input is not what the format wants. Place is where, like steps[2].data.cidr.
type FileError struct {
	Place   string
	Problem string
	cause   error
}

func (e *FileError) Unwrap() error { return e.cause }

func (e *FileError) Error() string {
	if e.Place == "" {
		return e.Problem
	}
	return e.Place + ": " + e.Problem
}

// ErrExpectation is what Trace returns when it ran and something came out otherwise than expected; the answer has been
// printed.
var ErrExpectation = errors.New("an expectation failed")

func fileErrorf(place, format string, args ...any) error {
	return &FileError{Place: place, Problem: fmt.Sprintf(format, args...)}
}
