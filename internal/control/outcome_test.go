package control_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"heddle/internal/api/apitest"
	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
)

// flaky is a store that can fail a commit before or after it is done.
type flaky struct {
	*store.Memory
	refuse, forget atomic.Bool
}

func (f *flaky) Commit(ctx context.Context, conds []store.Cond, ops []store.Op) (int64, error) {
	if f.refuse.Load() {
		return 0, fmt.Errorf("commit: %w", store.ErrUnavailable)
	}
	rev, err := f.Memory.Commit(ctx, conds, ops)
	if err == nil && f.forget.Load() {
		return 0, fmt.Errorf("%w: commit: %w", store.ErrOutcomeUnknown, store.ErrUnavailable)
	}
	return rev, err
}

// TestOutcome: what is answered 503 was not done; where that is not known the answer says so, and
// names what to look for.
func TestOutcome(t *testing.T) {
	t.Parallel()
	st := &flaky{Memory: store.NewMemory()}
	t.Cleanup(func() { _ = st.Close() })
	rep := replica.New(st, replica.Options{Watch: schema.Root}, schema.All()...)
	apitest.Run(t, rep)
	ops, err := control.New(records.NewDB(st, rep), control.Options{})
	if err != nil {
		t.Fatal(err)
	}
	admin := neutron.Caller{ProjectID: "p", Roles: []string{"admin"}}
	values := func(op neutron.Op, name string) neutron.Values {
		t.Helper()
		v, err := neutron.Parse(admin, neutron.Networks, op, map[string]any{"name": name})
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	fails := func(kind neutron.Kind, err error) *neutron.Error {
		t.Helper()
		var e *neutron.Error
		if !errors.As(err, &e) || e.Kind != kind {
			t.Fatalf("error is %v, want one of kind %d", err, kind)
		}
		return e
	}
	count := func() int {
		t.Helper()
		found, err := ops.Networks().List(t.Context(), admin, neutron.Query{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for range found {
			n++
		}
		return n
	}

	st.refuse.Store(true)
	_, err = ops.Networks().Create(t.Context(), admin, []neutron.Values{values(neutron.Create, "refused")})
	fails(neutron.Unavailable, err)
	if n := count(); n != 0 {
		t.Errorf("%d networks after a refusal", n)
	}
	st.refuse.Store(false)

	st.forget.Store(true)
	_, err = ops.Networks().Create(t.Context(), admin, []neutron.Values{values(neutron.Create, "a"), values(neutron.Create, "b")})
	e := fails(neutron.Unknown, err)
	_, rest, _ := strings.Cut(e.Message, "unknown: ")
	ids, _, ok := strings.Cut(rest, ". Look for them")
	if e.Type != "OutcomeUnknown" || !ok {
		t.Fatalf("%s: %s", e.Type, e.Message)
	}
	for _, id := range strings.Split(ids, ", ") {
		if _, err := ops.Networks().Show(t.Context(), admin, id); err != nil {
			t.Errorf("the answer names %q: %v", id, err)
		}
		_, err := ops.Networks().Update(t.Context(), admin, id, values(neutron.Update, "new"), nil)
		if e := fails(neutron.Unknown, err); !strings.Contains(e.Message, "whether the change was made is unknown") {
			t.Error(e.Message)
		}
	}
	if n := count(); n != 2 {
		t.Errorf("%d networks, want both", n)
	}
}
