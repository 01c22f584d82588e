package xapi

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// ended waits by events until a task has ended, as clients do, and returns its record.
func (c *clientOf) ended(task string) map[string]any {
	c.t.Helper()
	for token := ""; ; {
		b := c.from(token, 10*time.Second, "task/"+task)
		if len(b.events) == 0 {
			c.t.Fatalf("task %s does not end", task)
		}
		for _, e := range b.events {
			if r, ok := e["snapshot"].(map[string]any); ok && r["status"] != "pending" && r["status"] != "cancelling" {
				return r
			}
		}
		token = b.token
	}
}

// TestAsync: what a task says of a call that answers something, nothing, fails, or is cancelled.
func TestAsync(t *testing.T) {
	t.Parallel()
	s, c := served(t)
	waiting := make(chan struct{})
	s.handlers["network.create"] = func(c *call) (any, error) { return "OpaqueRef:made", nil }
	s.handlers["network.destroy"] = func(c *call) (any, error) {
		switch c.text("self") {
		case "wait":
			close(waiting)
			<-c.ctx.Done()
			return nil, c.ctx.Err()
		case "panic":
			panic("a mistake")
		case "fail":
			return nil, model.NetworkContainsPIF("OpaqueRef:1", "OpaqueRef:2")
		}
		return nil, nil
	}
	run := func(method string, args ...any) map[string]any {
		t.Helper()
		return c.ended(c.must("Async."+method, args...).(string))
	}
	tests := []struct {
		got    map[string]any
		status string
		result string
		info   []any
	}{
		{run("network.create", map[string]string{"name_label": "x"}), "success", "<value>OpaqueRef:made</value>", []any{}},
		{run("network.destroy", "fine"), "success", "", []any{}},
		{run("network.destroy", "fail"), "failure", "", []any{"NETWORK_CONTAINS_PIF", "OpaqueRef:1", "OpaqueRef:2"}},
		{run("network.destroy", "panic"), "failure", "", []any{"INTERNAL_ERROR", "the server made a mistake; its log says more"}},
	}
	for _, tt := range tests {
		if tt.got["status"] != tt.status || tt.got["result"] != tt.result || !cmp.Equal(tt.got["error_info"], any(tt.info)) || len(tt.got) != len(model.Lookup("task").Fields) {
			t.Errorf("want %s, %q, %v; got %v", tt.status, tt.result, tt.info, tt.got)
		}
	}
	if got := tests[0].got["name_label"]; got != "Async.network.create" {
		t.Error(got)
	}

	task := c.must("Async.network.destroy", "wait").(string)
	<-waiting
	if got := c.must("task.get_allowed_operations", task); !cmp.Equal(got, []any{"cancel"}) {
		t.Error(got)
	}
	c.must("task.cancel", task)
	if got := c.ended(task); got["status"] != "cancelled" || !cmp.Equal(got["error_info"], []any{"TASK_CANCELLED", task}) {
		t.Error(got)
	}
	c.fails("OPERATION_NOT_ALLOWED", "task.cancel", task)
	c.must("task.destroy", task)
	c.fails("HANDLE_INVALID", "task.get_record", task)
	c.fails("HANDLE_INVALID", "task.destroy", task)
	c.fails("MESSAGE_PARAMETER_COUNT_MISMATCH", "Async.network.destroy")
	eventually(t, "nothing is noted of tasks that have ended", func() bool { return running.Count(s.now()) == 0 })

	withAccounts(t, s, func(ctx context.Context, l *Accounts) error { return l.Add(ctx, "ada", "x", model.ReadOnly) })
	ada := connect(t, s, "ada", "x")
	ada.must("task.cancel", ada.must("task.create", "hers", ""))
	own := c.must("task.create", "mine", "for tests").(string)
	ada.fails("RBAC_PERMISSION_DENIED", "task.cancel", own)
	ada.fails("RBAC_PERMISSION_DENIED", "task.destroy", own)
	c.must("task.add_to_other_config", own, "a", "b")
	ended := c.must("Async.network.destroy", "fine").(string)
	c.ended(ended)
	for _, other := range []string{own, ended} {
		for _, change := range [][]any{
			{"task.destroy", other}, {"task.set_other_config", other, map[string]string{}},
			{"task.add_to_other_config", other, "c", "d"}, {"task.remove_from_other_config", other, "a"},
		} {
			ada.fails("RBAC_PERMISSION_DENIED", change[0].(string), change[1:]...)
		}
	}
	c.must("task.cancel", own)
	if got := c.ended(own); got["status"] != "cancelled" || got["name_description"] != "for tests" {
		t.Error(got)
	}
}

// TestAsyncElsewhere: a task is cancelled at whichever server a client asks.
func TestAsyncElsewhere(t *testing.T) {
	t.Parallel()
	a, c := served(t)
	other := started(t, Options{Store: a.opts.Store})
	withAccounts(t, other, func(ctx context.Context, l *Accounts) error { return l.Add(ctx, "ada", "x", model.PoolAdmin) })
	waiting := make(chan struct{})
	a.handlers["network.destroy"] = func(c *call) (any, error) {
		close(waiting)
		<-c.ctx.Done()
		return nil, c.ctx.Err()
	}
	task := c.must("Async.network.destroy", "x").(string)
	<-waiting
	connect(t, other, "ada", "x").must("task.cancel", task)
	if got := c.ended(task); got["status"] != "cancelled" {
		t.Error(got)
	}
}

// TestTasksOfLostServer: when a server dies, another says so of the tasks that it had under way.
func TestTasksOfLostServer(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	t.Cleanup(func() { st.Close() })
	s := started(t, Options{Store: st})
	withAccounts(t, s, func(ctx context.Context, l *Accounts) error { return l.Add(ctx, "ada", "x", model.PoolAdmin) })
	c := connect(t, s, "ada", "x")
	lease, err := st.Grant(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	task := newObject("task", nil)
	change(t, s, func(tx *records.Tx) error {
		return errors.Join(put(tx, task), running.PutLeased(tx, &runs{Task: task.Ref}, lease))
	})
	if err := st.Revoke(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if got := c.ended(task.Ref); got["status"] != "failure" || got["error_info"].([]any)[0] != "INTERNAL_ERROR" {
		t.Error(got)
	}
}

// TestTasksGo: tasks that have finished go after a while, those that are pending do not.
func TestTasksGo(t *testing.T) {
	t.Parallel()
	var shift atomic.Int64
	st := store.NewMemory()
	t.Cleanup(func() { st.Close() })
	s := started(t, Options{Store: st, Now: func() time.Time { return time.Now().Add(time.Duration(shift.Load())) }})
	old := newObject("task", model.Record{"status": "success", "finished": s.time()})
	pending := newObject("task", nil)
	made(t, s, old)
	change(t, s, func(tx *records.Tx) error {
		return errors.Join(put(tx, pending), running.PutLeased(tx, &runs{Task: pending.Ref}, s.lease.current()))
	})
	shift.Add(int64(taskLife + time.Second))
	young := newObject("task", model.Record{"status": "success", "finished": s.time()})
	made(t, s, young)
	s.orphaned <- struct{}{}
	eventually(t, "the old task is gone", func() bool { return objects.Table("task").Count(s.now()) == 2 })
	for _, o := range []*objects.Object{pending, young} {
		if _, there := objects.Table("task").Peek(s.now(), o.Ref); !there {
			t.Errorf("%s is gone", o.Ref)
		}
	}
}
