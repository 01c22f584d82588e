// Package offline answers questions without a server, a kernel or root: files in, answers out (file-formats). Translate
// shows the topology that Neutron operations make; Trace sends frames through a topology and checks where they go.
// Both run the very functions that the server and the agents run, over objects held in memory.
//
//	translate:  file → steps → apply each to the objects → translate all objects → link → print
//	trace:      file → objects → translate → simulate each frame, keeping connections → compare → print
//
// Absent attributes have Neutron's defaults, except those that Neutron would choose or find for itself, which would make
// the answer another one every time: without fixed_ips a port has no address (with a subnet alone, its lowest free one),
// without security_groups no group, a new group no rules but its own; a MAC address follows from the port's id.
//
// Operations are refused for what translation itself cannot do or would leave without meaning: ids that name nothing,
// addresses twice, a group or subnet taken from under a port. What the API holds besides (owners, quotas, rules of one
// request) is not repeated here, and deleting a network takes what is on it along.
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
