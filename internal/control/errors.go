package control

import (
	"errors"
	"fmt"
	"strings"

	"heddle/internal/neutron"
	"heddle/internal/store"
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

// unavailable is an error that goes away by itself.
func unavailable(message string, cause error) error {
	return fmt.Errorf("%w: %w", neutron.Errorf(neutron.Unavailable, "ServiceUnavailable", "%s", message), cause)
}

// forClient turns an error of the store into the one that Neutron answers, where it has one.
func forClient(err error) error {
	switch {
	case errors.Is(err, store.ErrTooLarge):
		return neutron.Errorf(neutron.Invalid, "BadRequest", "The request changes too many objects at once: %v.", err)
	case errors.Is(err, store.ErrUnavailable):
		return unavailable("The service is unavailable.", err)
	case errors.Is(err, store.ErrConflict):
		return unavailable("Others kept changing the same objects. Try again.", err)
	}
	return err
}
