package control

import (
	"errors"
	"fmt"
	"strings"

	"heddle/internal/neutron"
)

// invalid is Neutron's error for input that does not fit the rest of the request or other objects.
func invalid(format string, args ...any) *neutron.Error {
	return neutron.Errorf(neutron.Invalid, "InvalidInput", "Invalid input for operation: %s.", fmt.Sprintf(format, args...))
}

func conflict(typ, format string, args ...any) *neutron.Error {
	return neutron.Errorf(neutron.Conflict, typ, format, args...)
}

// overQuota names the quotas that a request would exceed, each quoted as Neutron prints a list.
func overQuota(resources ...string) *neutron.Error {
	return conflict("OverQuota", "Quota exceeded for resources: ['%s'].", strings.Join(resources, "', '"))
}

// checkRevision holds the revision number a client insists on against the current one (neutron-api §2).
func checkRevision(ifMatch *int64, current int64) error {
	if ifMatch == nil || *ifMatch == current {
		return nil
	}
	return neutron.Errorf(neutron.Precondition, "RevisionNumberConstraintFailed",
		"Constrained to %d, but current revision is %d", *ifMatch, current)
}

// forClient says whether an error is an answer for the client rather than a failure of ours.
func forClient(err error) bool {
	var e *neutron.Error
	return errors.As(err, &e)
}
