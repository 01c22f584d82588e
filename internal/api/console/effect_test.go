package console

import (
	"context"
	"testing"
	"time"

	"heddle/internal/api/apitest"
	"heddle/internal/api/operator"
	"heddle/internal/history"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology/flow"
)

// TestEffectsWithoutTime: changes that there is no time to compare say so.
func TestEffectsWithoutTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, time.Second)
	c := &console{Options: Options{DB: w.db, Journal: history.NewJournal(t.TempDir(), w.db.Store(), nil)}}
	apitest.Run(t, c.Journal)
	if _, err := c.past(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.update(t, func(tx *records.Tx) error {
		return schema.Networks.Put(tx, &neutron.Network{Standard: neutron.Standard{ID: lanNetwork}})
	})
	present, err := c.past(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	changes := func() []operator.Revision {
		return []operator.Revision{{Epoch: c.Journal.Position().Epoch, Revision: present.Revision()}}
	}
	if done, why := c.effects(t.Context(), changes(), map[string]flow.TraceName{}); done != 1 || why == "" {
		t.Errorf("in time: %d changes are compared, %s", done, why)
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if done, why := c.effects(late, changes(), map[string]flow.TraceName{}); done != 0 || why != noTime {
		t.Errorf("out of time: %d changes are compared, %s", done, why)
	}
}
