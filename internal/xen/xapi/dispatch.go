package xapi

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"

	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
	"heddle/internal/xen/wire"
)

const (
	refPrefix = "OpaqueRef:"
	// callTimeout ends a call that no longer gets anywhere. It goes on when its client has left:
	// what it does is done or undone as a whole.
	callTimeout = 5 * time.Minute
	aliveCall   = "system.isAlive"
)

func newUUID() string { return uuid.NewString() }

// handler carries a message out. What it answers is of the Go type for the call's result.
type handler func(*call) (any, error)

// call is one call under way.
type call struct {
	*model.Call
	ctx     context.Context // ends when the client is gone
	from    netip.Addr      // the client's
	server  *Server
	session *session       // nil for calls that need no login
	args    map[string]any // by parameter, those left out with their defaults; of the Go types for theirs
	task    string         // of a call made with Async; "" for others
}

// Arguments by the parameter's name. A mistaken name or type is ours, and panics.
func (c *call) text(name string) string             { return c.args[name].(string) }
func (c *call) number(name string) int64            { return c.args[name].(int64) }
func (c *call) float(name string) float64           { return c.args[name].(float64) }
func (c *call) truth(name string) bool              { return c.args[name].(bool) }
func (c *call) texts(name string) []string          { return c.args[name].([]string) }
func (c *call) pairs(name string) map[string]string { return c.args[name].(map[string]string) }
func (c *call) record(name string) model.Record     { return c.args[name].(model.Record) }

// update commits what f writes, all or nothing. f may run several times, see [records.DB.Update];
// read with object, write with put and remove.
func (c *call) update(f func(tx *records.Tx) error) error { return c.server.update(c.ctx, f) }

// view is a snapshot with everything committed so far.
func (c *call) view() (*records.Snap, error) { return c.server.view(c.ctx) }

// spellings are the calls by each name that clients give them: C.m and C_m.
func spellings(calls map[string]*model.Call) map[string]*model.Call {
	all := make(map[string]*model.Call, 2*len(calls))
	for name, c := range calls {
		all[name] = c
		all[strings.Replace(name, ".", "_", 1)] = c
	}
	return all
}

// answer is the result or failure of a call.
type answer struct {
	result  model.Type
	value   any
	failure *model.Error
}

func failed(e *model.Error) answer { return answer{failure: e} }

// dispatch carries out the call that a client names, with its parameters as the wire has them.
func (s *Server) dispatch(ctx context.Context, from netip.Addr, name string, params []any) answer {
	began := time.Now()
	a := s.answer(ctx, from, name, params)
	outcome := "success"
	if a.failure != nil {
		outcome = a.failure.Error()
	}
	s.opts.Log.Debug("call", "call", name, "outcome", outcome, "took", time.Since(began))
	return a
}

func (s *Server) answer(ctx context.Context, from netip.Addr, name string, params []any) answer {
	plain, async := strings.CutPrefix(name, "Async.")
	if strings.HasPrefix(name, aliveCall+":") { // what follows is for the client's own log
		plain = aliveCall
	}
	m := s.calls[plain]
	if m == nil || async && !m.Async {
		// The session comes first here too, where there is one.
		if len(params) > 0 {
			if _, failure := s.sessionOf(params); failure != nil {
				return failed(failure)
			}
		}
		return failed(model.MessageMethodUnknown(name))
	}
	c := &call{Call: m, ctx: reserved(ctx, m), from: from, server: s}
	if !m.NoLogin {
		var failure *model.Error
		if c.session, failure = s.sessionOf(params); failure != nil {
			return failed(failure)
		}
		params = params[1:]
		if failure := c.permitted(); failure != nil {
			return failed(failure)
		}
	}
	if failure := c.take(params); failure != nil {
		return failed(failure)
	}
	c.audited()
	if async {
		return c.startTask()
	}
	return c.finish()
}

// take makes arguments of the parameters.
func (c *call) take(params []any) *model.Error {
	optional := c.Required < len(c.Params)
	if len(params) < c.Required || len(params) > len(c.Params) && !optional {
		return model.MessageParameterCountMismatch(c.Name, c.Required, len(params))
	}
	c.args = make(map[string]any, len(c.Params))
	for i, p := range c.Params {
		if i >= len(params) {
			c.args[p.Name] = p.Initial()
			continue
		}
		v, err := wire.Coerce(p.Type, params[i])
		if err != nil {
			return mistyped(c.about(p), err)
		}
		c.args[p.Name] = v
	}
	return nil
}

// about returns the name for errors: of a setter's value the field, else the parameter.
func (c *call) about(p model.Param) string {
	switch {
	case p.Name != "value":
		return p.Name
	case c.Field != nil:
		return c.Field.Name
	}
	field, _ := strings.CutPrefix(c.Message.Name, "set_")
	return field
}

// mistyped returns the error of a parameter of the wrong type; of a record it names the field.
func mistyped(name string, err error) *model.Error {
	if bad := (*wire.ValueError)(nil); errors.As(err, &bad) {
		return model.InvalidValue(cmp.Or(bad.Field, name), bad.Value)
	}
	if bad := (*wire.TypeError)(nil); errors.As(err, &bad) {
		name = cmp.Or(bad.Field, name)
	}
	return model.FieldTypeError(name)
}

// finish carries the call out and answers.
func (c *call) finish() answer {
	if c.Name != "event.from" && c.Name != "event.next" {
		var cancel context.CancelFunc
		c.ctx, cancel = context.WithTimeout(context.WithoutCancel(c.ctx), callTimeout)
		defer cancel()
	}
	value, err := c.run()
	if err != nil {
		return failed(c.server.failure(c.Name, err))
	}
	return answer{result: c.Result, value: value}
}

// run carries the call out. A panic is a mistake of ours that harms this call alone.
func (c *call) run() (value any, err error) {
	defer func() {
		if p := recover(); p != nil {
			c.server.opts.Log.Error("call failed: a mistake in Heddle", "call", c.Name, "panic", p, "stack", string(debug.Stack()))
			err = model.InternalError("the server made a mistake; its log says more")
		}
	}()
	if h := c.server.handlers[c.Name]; h != nil {
		return h(c)
	}
	if c.Verb == model.Do || c.Verb == model.Create {
		return nil, model.NotImplemented(c.Name)
	}
	return c.generic()
}

// failure returns the error that clients get for an error.
func (s *Server) failure(name string, err error) *model.Error {
	var (
		known  *model.Error
		absent *records.NotFoundError
		taken  *records.TakenError
	)
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &absent) && classOf(absent.Table) != "":
		return model.HandleInvalid(classOf(absent.Table), absent.ID)
	case errors.As(err, &taken):
		return conflict(taken)
	case errors.Is(err, context.Canceled):
		return model.InternalError("the client has gone away")
	case errors.Is(err, store.ErrOutcomeUnknown):
		return model.InternalError("the store did not answer in time: whether the change was made is unknown; look before you try again")
	case errors.Is(err, store.ErrFull):
		return model.InternalError("nothing was changed: " + err.Error())
	case errors.Is(err, store.ErrUnavailable):
		return model.InternalError("the store cannot be reached; try again")
	case errors.Is(err, store.ErrConflict):
		return model.InternalError("others kept changing the same object; try again")
	case errors.Is(err, store.ErrLeaseGone):
		return model.InternalError("the server was cut off from the store for a while; try again")
	case errors.Is(err, context.DeadlineExceeded):
		return model.InternalError("it took too long; try again")
	}
	s.opts.Log.Error("call failed", "call", name, "err", err)
	return model.InternalError(err.Error())
}

// conflict is the answer to one who was not the first to have something that is unique.
func conflict(e *records.TakenError) *model.Error {
	switch {
	case e.Table == objects.Table("PIF").Name() && e.Name == "host_network":
		host, _, _ := strings.Cut(e.Value, "/")
		return model.NetworkAlreadyConnected(host, e.By)
	case e.Table == objects.Table("network").Name() && e.Name == "bridge":
		return model.BridgeNameExists(e.Value)
	case e.Table == objects.Table("VIF").Name() && e.Name == "vm_device":
		return model.DeviceAlreadyExists(e.Value[strings.LastIndexByte(e.Value, '/')+1:])
	}
	return model.InternalError(e.Error())
}

// classOf is the class whose objects a table holds; "" for others.
func classOf(table string) string {
	for _, c := range model.Classes() {
		if t := objects.Table(c.Name); t != nil && t.Name() == table {
			return c.Name
		}
	}
	return ""
}
