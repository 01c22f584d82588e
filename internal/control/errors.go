package control

import (
	"errors"
	"fmt"
	"slices"
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

// checkRevision compares the revision number of If-Match with the current one (neutron-api §2).
func checkRevision(ifMatch *int64, current int64) error {
	if ifMatch == nil || *ifMatch == current {
		return nil
	}
	return neutron.Errorf(neutron.Precondition, "RevisionNumberConstraintFailed",
		"Constrained to %d, but current revision is %d", *ifMatch, current)
}

// unavailable returns an error that goes away by itself.
func unavailable(message string, cause error) error {
	return fmt.Errorf("%w: %w", neutron.Errorf(neutron.Unavailable, "ServiceUnavailable", "%s", message), cause)
}

// outcomeUnknown returns the error for a change that may have been made; ids name created objects.
func outcomeUnknown(ids []string) *neutron.Error {
	const most = 20 // ids that are named
	switch n := len(ids); {
	case n > most:
		ids = append(slices.Clone(ids[:most]), fmt.Sprintf("and %d more", n-most))
		fallthrough
	case n > 0:
		return neutron.Errorf(neutron.Unknown, "OutcomeUnknown", "The store did not answer in time: whether these objects were "+
			"created is unknown: %s. Look for them before you try again.", strings.Join(ids, ", "))
	}
	return neutron.Errorf(neutron.Unknown, "OutcomeUnknown",
		"The store did not answer in time: whether the change was made is unknown. Look at the object before you try again.")
}

// StoreIsFull reports whether a request failed because the store is full, which is logged already.
func StoreIsFull(err error) bool { return errors.Is(err, store.ErrFull) }

// forClient turns an error of the store into the one that Neutron answers, where it has one. ids
// are those of the objects that the request was to create.
func forClient(err error, ids ...string) error {
	switch {
	case errors.Is(err, store.ErrTooLarge):
		return fmt.Errorf("%w: %w", neutron.Errorf(neutron.Invalid, "BadRequest", "The request changes too many objects at once: %v.", err), err)
	case errors.Is(err, store.ErrOutcomeUnknown):
		return fmt.Errorf("%w: %w", outcomeUnknown(ids), err)
	case errors.Is(err, store.ErrFull):
		return unavailable(fmt.Sprintf("Nothing was changed: %v.", err), err)
	case errors.Is(err, store.ErrUnavailable):
		return unavailable("The service is unavailable: it does not reach its store (etcd). Try again.", err)
	case errors.Is(err, store.ErrConflict):
		return unavailable("Others kept changing the same objects. Try again.", err)
	}
	return err
}
