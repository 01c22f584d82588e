package records

import (
	"fmt"
	"strings"
)

// NotFoundError reports that there is no record with this id.
type NotFoundError struct{ Table, ID string }

func (e *NotFoundError) Error() string { return fmt.Sprintf("%s %s not found", e.Table, e.ID) }

// TakenError reports that another record, By, already has this value of a unique key.
type TakenError struct{ Table, Name, Value, By string }

func (e *TakenError) Error() string {
	return fmt.Sprintf("%s %s %s is taken by %s", e.Table, e.Name, e.Value, e.By)
}

// InUseError reports that a record cannot be deleted because the records IDs of ByTable refer to
// it.
type InUseError struct {
	Table, ID      string
	ByTable, Field string
	IDs            []string
}

func (e *InUseError) Error() string {
	ids, more := e.IDs, ""
	if len(ids) > 3 {
		ids, more = ids[:3], fmt.Sprintf(" and %d more", len(ids)-3)
	}
	return fmt.Sprintf("%s %s is in use: %s of %s %s%s", e.Table, e.ID, e.Field, e.ByTable, strings.Join(ids, ", "), more)
}
