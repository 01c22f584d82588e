package xapi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
	"heddle/internal/xen/wire"
)

const (
	taskLife   = 65 * time.Minute // of a task that has finished
	sweepEvery = time.Minute
	// taskPause is between attempts to write down how a task ended, while the store is away.
	taskPause = time.Second
	// lastWords is how long that may take when the server ends.
	lastWords = 3 * time.Second
)

// runs says that a server looks after a task that is pending: it goes with the server's lease.
type runs struct {
	Task    string `json:"task"`    // ref
	Account string `json:"account"` // whose call it is
}

// running are found by the task's ref.
var running = records.NewTable("xen-running", schema.XenPrefix+"running/", func(r *runs) string { return r.Task })

func taskMessages() map[string]handler {
	return map[string]handler{
		"task.create":  taskCreate,
		"task.destroy": taskDestroy,
		"task.cancel":  taskCancel,
	}
}

// putTask makes a task that this server looks after.
func (c *call) putTask(label, description string, allowed ...string) (*objects.Object, error) {
	var t *objects.Object
	err := c.update(func(tx *records.Tx) error {
		t = newObject("task", model.Record{
			"name_label": label, "name_description": description, "created": c.server.time(), "type": "<none/>",
			"allowed_operations": append([]string{}, allowed...),
		})
		for pool := range objects.Table("pool").All(tx) {
			t.Fields["resident_on"] = pool.Text("master")
		}
		if err := put(tx, t); err != nil {
			return err
		}
		return running.PutLeased(tx, &runs{t.Ref, c.session.account}, c.server.lease.current())
	})
	return t, err
}

// time is the clock as objects have it.
func (s *Server) time() time.Time { return s.opts.Now().UTC().Truncate(time.Second) }

// startTask carries the call out beside this one, which answers a task at once (spec 3).
func (c *call) startTask() answer {
	s := c.server
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), callTimeout)
	c.ctx = ctx
	t, err := c.putTask("Async."+c.Name, "", "cancel")
	if err == nil && !s.begin(t.Ref, cancel) {
		err = model.InternalError("the server is stopping")
	}
	if err != nil {
		cancel()
		return failed(s.failure(c.Name, err))
	}
	c.task = t.Ref
	go func() {
		defer s.end(t.Ref)
		value, err := c.run()
		s.finishTask(t.Ref, c.outcome(ctx, value, err))
	}()
	return answer{result: model.Type{Kind: model.Ref, Class: "task"}, value: t.Ref}
}

// begin notes an Async call under way; false: the server is stopping.
func (s *Server) begin(task string, cancel func()) bool {
	s.cancelsMu.Lock()
	defer s.cancelsMu.Unlock()
	select {
	case <-s.stopping:
		return false
	default:
	}
	s.cancels[task] = cancel
	s.async.Add(1)
	return true
}

func (s *Server) end(task string) {
	s.cancelsMu.Lock()
	defer s.cancelsMu.Unlock()
	s.cancels[task]()
	delete(s.cancels, task)
	s.async.Done()
}

// cancelAll ends all Async calls under way.
func (s *Server) cancelAll() {
	s.cancelsMu.Lock()
	defer s.cancelsMu.Unlock()
	for _, cancel := range s.cancels {
		cancel()
	}
}

// outcome is what a task's record says of how its call ended.
func (c *call) outcome(ctx context.Context, value any, err error) model.Record {
	r := model.Record{"finished": c.server.time(), "progress": 1.0, "allowed_operations": []string{}}
	switch {
	case err == nil:
		r["status"] = "success"
		if c.Result.Kind != model.Void {
			r["result"] = wire.XMLValue(c.Result, value)
		}
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		r["status"], r["error_info"] = "cancelled", []string{"TASK_CANCELLED", c.task}
	default:
		failure := c.server.failure(c.Name, err)
		r["status"], r["error_info"] = "failure", append([]string{failure.Code}, failure.Params...)
	}
	return r
}

// finishTask writes down how a task ended, unless it has ended already or is gone.
func (s *Server) finishTask(ref string, outcome model.Record) {
	ctx, cancel := context.WithCancel(store.WithReserve(context.Background()))
	defer cancel()
	go func() {
		select {
		case <-s.stopping:
			time.AfterFunc(lastWords, cancel)
		case <-ctx.Done():
		}
	}()
	for {
		err := s.update(ctx, func(tx *records.Tx) error { return endTask(tx, ref, outcome) })
		if err == nil {
			return
		}
		s.opts.Log.Warn("cannot write down how a task ended", "task", ref, "err", err)
		select {
		case <-time.After(taskPause):
		case <-s.stopping: // its lease goes, and another server will say that it was interrupted
			return
		}
	}
}

func endTask(tx *records.Tx, ref string, outcome model.Record) error {
	if _, err := running.Get(tx, ref); err == nil {
		if err := running.Delete(tx, ref); err != nil {
			return err
		}
	}
	t, err := objects.Table("task").Get(tx, ref)
	if absent := (*records.NotFoundError)(nil); errors.As(err, &absent) {
		return nil
	} else if err != nil {
		return err
	}
	if !pending(t) {
		return nil
	}
	return put(tx, edited(t, outcome))
}

// pending says whether a task has not ended.
func pending(t *objects.Object) bool {
	return t.Text("status") == "pending" || t.Text("status") == "cancelling"
}

func taskCreate(c *call) (any, error) {
	t, err := c.putTask(c.text("label"), c.text("description"))
	if err != nil {
		return nil, err
	}
	return t.Ref, nil
}

// owned refuses to touch what others have under way, but to those who may change hosts.
func (c *call) owned(tx *records.Tx, ref string) error {
	r, pending := running.Peek(tx, ref)
	if !pending || r.Account == c.session.account || c.session.role().Includes(model.PoolOperator) {
		return nil
	}
	return model.RBACPermissionDenied(c.Name, fmt.Sprintf("the task is of the account %s; this needs its own, or the role %s", r.Account, model.PoolOperator))
}

func taskDestroy(c *call) (any, error) {
	ref := c.text("self")
	return nil, c.update(func(tx *records.Tx) error {
		if err := c.owned(tx, ref); err != nil {
			return err
		}
		if _, err := running.Get(tx, ref); err == nil {
			if err := running.Delete(tx, ref); err != nil {
				return err
			}
		}
		return remove(tx, "task", ref)
	})
}

// taskCancel asks whichever server carries the task out to stop. A task that a client has made ends at once.
func taskCancel(c *call) (any, error) {
	ref := c.text("task")
	return nil, c.update(func(tx *records.Tx) error {
		t, err := object(tx, "task", ref)
		if err != nil {
			return err
		}
		if err := c.owned(tx, ref); err != nil {
			return err
		}
		switch {
		case !pending(t):
			return model.OperationNotAllowed("the task has ended")
		case len(t.Fields["allowed_operations"].([]string)) == 0:
			return endTask(tx, ref, model.Record{"status": "cancelled", "finished": c.server.time(), "error_info": []string{"TASK_CANCELLED", ref}})
		}
		return put(tx, edited(t, model.Record{"status": "cancelling", "allowed_operations": []string{"cancel"}}))
	})
}

// sweeper ends tasks whose server is gone, and takes finished ones away after a while. It is a task of the server's.
type sweeper struct {
	server *Server
	ready  chan struct{}
}

func (w *sweeper) String() string { return "xapi tasks" }

// Ready is closed at once: nothing waits for the sweeping.
func (w *sweeper) Ready() <-chan struct{} { return w.ready }

// Run sweeps until ctx ends.
func (w *sweeper) Run(ctx context.Context) error {
	close(w.ready)
	every := time.NewTicker(sweepEvery)
	defer every.Stop()
	for {
		if err := w.sweep(ctx); err != nil && ctx.Err() == nil {
			w.server.opts.Log.Warn("cannot sweep tasks; will try again", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		case <-w.server.orphaned:
		}
	}
}

func (w *sweeper) sweep(ctx context.Context) error {
	s := w.server
	ctx = store.WithReserve(ctx)
	var errs []error
	for t := range objects.Table("task").All(s.now()) {
		_, runs := running.Peek(s.now(), t.Ref)
		switch {
		case pending(t) && !runs:
			errs = append(errs, s.update(ctx, func(tx *records.Tx) error { return interrupt(tx, t.Ref, s.time()) }))
		case !pending(t) && s.opts.Now().Sub(t.Fields["finished"].(time.Time)) > taskLife:
			errs = append(errs, s.update(ctx, func(tx *records.Tx) error { return forget(tx, t.Ref) }))
		}
	}
	return errors.Join(errs...)
}

// interrupt ends a task that no server looks after.
func interrupt(tx *records.Tx, ref string, now time.Time) error {
	if _, err := running.Get(tx, ref); err == nil {
		return nil
	}
	return endTask(tx, ref, model.Record{"status": "failure", "finished": now, "allowed_operations": []string{},
		"error_info": []string{"INTERNAL_ERROR", "the server that carried it out has ended; look what is there and try again"}})
}

// forget deletes a task that somebody may have deleted already.
func forget(tx *records.Tx, ref string) error {
	err := objects.Table("task").Delete(tx, ref)
	if absent := (*records.NotFoundError)(nil); errors.As(err, &absent) {
		return nil
	}
	return err
}

// noteTasks heeds what other servers and clients do to tasks: it cancels those that are to be, and has those swept that
// nobody looks after.
func (s *Server) noteTasks(u replica.Update) {
	for _, c := range u.Changed {
		switch {
		case c.Source == running.Name() && c.New == nil:
			if t, ok := objects.Table("task").Peek(records.Over(u.Next), c.ID); !ok || !pending(t) {
				continue // it has ended
			}
			s.orphaned.Give()
		case c.Source == objects.Table("task").Name() && c.New != nil && c.New.(*objects.Object).Text("status") == "cancelling":
			s.cancelTask(c.ID)
		}
	}
}

func (s *Server) cancelTask(ref string) {
	s.cancelsMu.Lock()
	defer s.cancelsMu.Unlock()
	if cancel := s.cancels[ref]; cancel != nil {
		cancel()
	}
}
