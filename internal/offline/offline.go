// Package offline answers questions without a server, a kernel or root: files in, answers out
// (file-formats). Translate shows the topology that Neutron operations make; Trace sends frames
// through a topology and checks where they go. Both run the server's own operations, package
// control, over a store in memory, and the agents' own simulator.
//
//	translate:  file → steps ────▶ requests → control → bundles → link → print
//	trace:      file → topology ─▶ requests → control → bundles → simulate frames → compare
//
// Neutron has no rules here but the server's: a new resource needs an entry in world.resources.
// What is added to a request is what the server would choose by chance or find in its database,
// which would make the answer a different one every time: a port without fixed_ips has no address
// (with a subnet alone, its lowest free one), without security_groups no group; a new group has no
// rules but its own; a MAC address follows from the port's id. Ids are the file's, the caller is an
// administrator without quotas, and the underlay has the MTU and the physical networks that the
// file asks for.
package offline

import (
	"cmp"
	"errors"
	"fmt"
)

// FileError is a mistake in the input, at a place such as steps[2].data.cidr.
type FileError struct {
	Place   string
	Problem string
	cause   error
	path    string // see Path; "" where Place is one
}

// Path returns the place as members and indices alone, from the file's outermost value on: Place
// begins with a case's name where a file has cases.
func (e *FileError) Path() string { return cmp.Or(e.path, e.Place) }

func (e *FileError) Unwrap() error { return e.cause }

func (e *FileError) Error() string {
	if e.Place == "" {
		return e.Problem
	}
	return e.Place + ": " + e.Problem
}

// ErrExpectation means that an expectation of the file was not met; the answer has been printed.
var ErrExpectation = errors.New("an expectation failed")

func fileErrorf(place, format string, args ...any) error {
	return &FileError{Place: place, Problem: fmt.Sprintf(format, args...)}
}
