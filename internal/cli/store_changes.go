package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"heddle/internal/command"
	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/terminal"
)

// mostChanges bounds the revisions of the store that are looked at, and the changes of keys in
// them.
const mostChanges = 100

// storeHistory is the end of a store's history.
type storeHistory struct {
	Revision int64         `json:"revision"` // of the last change
	Note     string        `json:"note,omitempty"`
	Changes  []storeChange `json:"changes"` // the oldest first
}

// storeChange is a change of a key, without its value.
type storeChange struct {
	Revision int64  `json:"revision"`
	Key      string `json:"key"`
	Change   string `json:"change"` // created, changed or deleted
	// Created is the revision in which the key was created; 0 of one that was deleted.
	Created int64 `json:"created,omitempty"`
	// Time is the time that the object itself says it was updated; most have none.
	Time time.Time `json:"time,omitzero"`
}

// storeChangesCommand prints the last changes of the store.
func storeChangesCommand(open func(context.Context) (*backend.Etcd, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "changes",
		Short: "Print which keys have changed last, without their values",
		Long: fmt.Sprintf("Prints the changes of keys in the last %d revisions, the last %[1]d of them, without values. History that was compacted is gone: an\n"+
			"embedded store keeps that of the last minutes. Objects of the Neutron API have the time of their update.", mostChanges),
		Args: cobra.NoArgs,
	}
	format := command.OutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		st, err := open(cmd.Context())
		if err != nil {
			return err
		}
		defer st.Close()
		h, err := lastChanges(cmd.Context(), st)
		if err != nil {
			return err
		}
		if *format == "text" && h.Note != "" {
			note(cmd, "%s", h.Note)
		}
		var rows [][]string
		for _, c := range h.Changes {
			at := ""
			if !c.Time.IsZero() {
				at = c.Time.Local().Format(time.DateTime)
			}
			rows = append(rows, []string{strconv.FormatInt(c.Revision, 10), c.Change, at, terminal.Escape(c.Key)})
		}
		return command.PrintTable(cmd.OutOrStdout(), *format, h, []string{"REVISION", "CHANGE", "UPDATED", "KEY"}, rows)
	}
	return cmd
}

// lastChanges returns the last changes of a store's keys that it has not compacted.
func lastChanges(ctx context.Context, st store.Store) (storeHistory, error) {
	now, err := st.Revision(ctx)
	if err != nil {
		return storeHistory{}, err
	}
	from := max(now-mostChanges, 1) // nothing happened in revision 1
	changes, err := changesBetween(ctx, st, from, now)
	if !errors.Is(err, store.ErrCompacted) {
		return storeHistory{Revision: now, Changes: changes}, err
	}
	if from, err = firstKept(ctx, st, from, now); err != nil {
		return storeHistory{}, err
	}
	changes, err = changesBetween(ctx, st, from, now)
	return storeHistory{Revision: now, Note: fmt.Sprintf("the store was compacted: what changed up to revision %d is forgotten", from), Changes: changes}, err
}

// changesBetween returns the last changes after revision from, up to revision to.
func changesBetween(ctx context.Context, st store.Store, from, to int64) ([]storeChange, error) {
	last := []storeChange{}
	if from == to {
		return last, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	arriving, failed := st.Watch(ctx, from, "/calico/", "/heddle/")
	st.Nudge(to)
	for c := range arriving {
		for _, e := range c.Events {
			if e.ModRevision <= to {
				last = append(last, describeChange(e))
			}
		}
		last = last[max(len(last)-mostChanges, 0):]
		if c.Revision >= to {
			return last, nil
		}
	}
	return nil, errors.Join(failed(), ctx.Err())
}

func describeChange(e store.Event) storeChange {
	c := storeChange{Revision: e.ModRevision, Key: e.Key, Change: "changed", Created: e.CreateRevision}
	switch {
	case e.Deleted:
		c.Change = "deleted"
	case e.CreateRevision == e.ModRevision:
		c.Change = "created"
	}
	var object struct {
		UpdatedAt time.Time `json:"updated_at"`
	}
	if json.Unmarshal(e.Value, &object) == nil { // others have another form, and no such time
		c.Time = object.UpdatedAt
	}
	return c
}

// firstKept returns the first revision, from one that was compacted to the current one, that the
// store still knows.
func firstKept(ctx context.Context, st store.Store, compacted, now int64) (int64, error) {
	for low := compacted + 1; low < now; {
		middle := low + (now-low)/2
		switch _, err := st.GetAt(ctx, store.SchemaKey, middle); {
		case errors.Is(err, store.ErrCompacted):
			low = middle + 1
		case err == nil || errors.Is(err, store.ErrNotFound):
			now = middle
		default:
			return 0, err
		}
	}
	return now, nil
}
