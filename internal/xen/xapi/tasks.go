package xapi

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
	"heddle/internal/xen/wire"
)

const (
	taskLife   = 65 * time.Minute // of a task that has finished
	sweepEvery = time.Minute
	// taskPause is between attempts to write down how a task ended, while the store is away.
	taskPause = time.Second
	// lastWords bounds the time for that when the server ends.
	lastWords = 3 * time.Second
)

// runs records that a server carries out a task: it goes with the server's lease.
type runs struct {
	Task string `json:"task"` // ref
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
	err := c.change(func(p *pool) {
		t = newObject("task", model.Record{
			"name_label": label, "name_description": description, "created": c.server.time(), "type": "<none/>",
			"allowed_operations": append([]string{}, allowed...),
		})
		t.Account = c.session.account
		for own := range objects.Table("pool").All(p) {
			t.Fields["resident_on"] = own.Text("master")
		}
		p.put(t)
		p.fail(running.PutLeased(p.tx, &runs{t.Ref}, c.server.lease.current()))
	})
	return t, err
}

// time returns the clock as objects have it.
func (s *Server) time() time.Time { return s.opts.Now().UTC().Truncate(time.Second) }

// startTask carries the call out in the background, and answers with its task at once (spec 3).
func (c *call) startTask() answer {
	s := c.server
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), callTimeout)
	c.ctx = ctx
	t, err := c.putTask("Async."+c.Name, "", "cancel")
	if err == nil && !s.async.begin(s.stopping, t.Ref, cancel) {
		err = model.InternalError("the server is stopping")
	}
	if err != nil {
		cancel()
		return failed(s.failure(c.Name, err))
	}
	c.task = t.Ref
	go func() {
		defer s.async.ended(t.Ref)
		value, err := c.run()
		s.finishTask(t.Ref, c.outcome(ctx, value, err))
	}()
	return answer{result: model.Type{Kind: model.Ref, Class: "task"}, value: t.Ref}
}

// asyncCalls tracks Async calls in progress.
type asyncCalls struct {
	running sync.WaitGroup
	mu      sync.Mutex
	cancels map[string]func() // by task
}

// begin notes a call, unless the server is stopping.
func (a *asyncCalls) begin(stopping context.Context, task string, cancel func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if stopping.Err() != nil {
		return false
	}
	a.cancels[task] = cancel
	a.running.Add(1)
	return true
}

// ended notes that a call has ended.
func (a *asyncCalls) ended(task string) {
	a.cancel(task)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.cancels, task)
	a.running.Done()
}

// cancel cancels a call, if it is in progress.
func (a *asyncCalls) cancel(task string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if cancel := a.cancels[task]; cancel != nil {
		cancel()
	}
}

// end cancels all calls and waits for them.
func (a *asyncCalls) end() {
	a.mu.Lock()
	for _, cancel := range a.cancels {
		cancel()
	}
	a.mu.Unlock()
	a.running.Wait()
}

// outcome returns what a task's record says of how its call ended.
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
	defer context.AfterFunc(s.stopping, func() { time.AfterFunc(lastWords, cancel) })()
	for {
		err := s.update(ctx, changing(func(p *pool) { p.endTask(ref, outcome) }))
		if err == nil {
			return
		}
		s.opts.Log.Warn("cannot write down how a task ended", "task", ref, "err", err)
		if !task.Pause(s.stopping, taskPause) {
			return // its lease goes, and another server will note that it was interrupted
		}
	}
}

func (p *pool) endTask(ref string, outcome model.Record) {
	discard(p, running, ref)
	t, err := objects.Table("task").Get(p, ref)
	if err != nil {
		p.fail(unlessGone(err))
	} else if pending(t) {
		p.edit(t, outcome)
	}
}

// pending reports whether a task has not ended.
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

// checkOwn refuses a change of a task that another account's call made, unless this account may
// change hosts.
func (c *call) checkOwn(t *objects.Object) error {
	switch {
	case c.session.role().Includes(model.PoolOperator) || t.Account == c.session.account:
		return nil
	case t.Account == "":
		return model.RBACPermissionDenied(c.Name, fmt.Sprintf("the account of the task is not recorded, as by earlier versions; this needs the role %s", model.PoolOperator))
	}
	return model.RBACPermissionDenied(c.Name, fmt.Sprintf("the task is of the account %s; this needs its own, or the role %s", t.Account, model.PoolOperator))
}

func taskDestroy(c *call) (any, error) {
	ref := c.text("self")
	return nil, c.change(func(p *pool) {
		p.fail(c.checkOwn(p.get("task", ref)))
		discard(p, running, ref)
		p.remove("task", ref)
	})
}

// taskCancel asks the task's server to stop. A task that a client has made ends at once.
func taskCancel(c *call) (any, error) {
	ref := c.text("task")
	return nil, c.change(func(p *pool) {
		t := p.get("task", ref)
		p.fail(c.checkOwn(t))
		if !pending(t) {
			p.fail(model.OperationNotAllowed("the task has ended"))
		}
		if allowed, _ := t.Fields["allowed_operations"].([]string); len(allowed) == 0 {
			p.endTask(ref, model.Record{"status": "cancelled", "finished": c.server.time(), "error_info": []string{"TASK_CANCELLED", ref}})
		} else {
			p.edit(t, model.Record{"status": "cancelling", "allowed_operations": []string{"cancel"}})
		}
	})
}

// sweeper returns the part that ends tasks without a server, and deletes old finished ones.
func (s *Server) sweeper() task.Task {
	return task.New("xapi tasks", func(ctx context.Context, ready func()) error {
		ready() // nothing waits for the sweeping
		every := time.NewTicker(sweepEvery)
		defer every.Stop()
		for {
			if err := s.sweepTasks(ctx); err != nil && ctx.Err() == nil {
				s.opts.Log.Warn("cannot sweep tasks; will try again", "err", err)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-every.C:
			case <-s.orphaned:
			}
		}
	})
}

func (s *Server) sweepTasks(ctx context.Context) error {
	ctx = store.WithReserve(ctx)
	interrupted := model.Record{"status": "failure", "finished": s.time(), "allowed_operations": []string{},
		"error_info": []string{"INTERNAL_ERROR", "the server that carried it out has ended; look what is there and try again"}}
	var errs []error
	for t := range objects.Table("task").All(s.now()) {
		_, runs := running.Peek(s.now(), t.Ref)
		switch {
		case pending(t) && !runs:
			errs = append(errs, s.update(ctx, changing(func(p *pool) {
				if _, err := running.Get(p, t.Ref); err != nil { // a server may have taken it meanwhile
					p.endTask(t.Ref, interrupted)
				}
			})))
		case !pending(t) && s.opts.Now().Sub(t.Fields["finished"].(time.Time)) > taskLife:
			errs = append(errs, s.update(ctx, changing(func(p *pool) { discard(p, objects.Table("task"), t.Ref) })))
		}
	}
	return errors.Join(errs...)
}

// noteTasks follows what other servers and clients do to tasks: it cancels those that are to be,
// and has those swept that no server looks after.
func (s *Server) noteTasks(u snapshot.Update) {
	for _, c := range u.Changed {
		switch {
		case c.Source == running.Name() && c.New == nil:
			if t, ok := objects.Table("task").Peek(records.Over(u.Next), c.ID); ok && pending(t) { // else it has ended
				s.orphaned.Give()
			}
		case c.Source == objects.Table("task").Name() && c.New != nil && c.New.(*objects.Object).Text("status") == "cancelling":
			s.async.cancel(c.ID)
		}
	}
}
