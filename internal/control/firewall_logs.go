package control

import (
	"context"
	"errors"
	"iter"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// loggingResources are the operations on logging resources.
type loggingResources struct {
	*resource[neutron.LoggingResource, neutron.LoggingResourceView]
}

func newLoggingResources(s *Service) *resource[neutron.LoggingResource, neutron.LoggingResourceView] {
	t := schema.LoggingResources
	return &resource[neutron.LoggingResource, neutron.LoggingResourceView]{
		service: s, name: neutron.LoggingResources, make: (*operation).createLoggingResource,
		finder:     ofProject(t, byName(t), byProject(t)),
		standard:   func(x *neutron.LoggingResource) *neutron.Standard { return &x.Standard },
		attributes: func(v *neutron.LoggingResourceView) *neutron.Standard { return &v.Standard },
		answer: func(r records.Reader, x *neutron.LoggingResource, q neutron.Query) *neutron.LoggingResourceView {
			v := &neutron.LoggingResourceView{LoggingResource: x}
			if q.WithoutComputed {
				return v
			}
			for l := range schema.FirewallLogs.By(r, "logging_resource", x.ID) {
				v.Logs = append(v.Logs, l)
			}
			return v
		},
	}
}

// LoggingResources returns the operations on logging resources.
func (s *Service) LoggingResources() Operations[*neutron.LoggingResourceView] {
	o := s.loggingResources.untagged()
	o.Update, o.Delete = s.loggingResources.update, s.loggingResources.delete
	return o
}

func (o *operation) createLoggingResource(_ context.Context, v neutron.Values) (*neutron.LoggingResource, error) {
	r := &neutron.LoggingResource{Standard: o.standard(v, 0), Enabled: v.Flag("enabled")}
	return r, schema.LoggingResources.Put(o.tx, r)
}

func (s loggingResources) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.LoggingResourceView, error) {
	return s.modify(ctx, c, id, v, ifMatch, func(_ *operation, r, _ *neutron.LoggingResource) error {
		setFlag(&r.Enabled, v, "enabled")
		return nil
	}, func(o *operation, r *neutron.LoggingResource) error {
		return errors.Join(schema.LoggingResources.Put(o.tx, r), o.deriveLoggingResource(r))
	})
}

// delete deletes a logging resource with its logs.
func (s loggingResources) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return s.remove(ctx, c, id, ifMatch, func(o *operation, _ *neutron.LoggingResource) error {
		for l := range schema.FirewallLogs.By(o.tx, "logging_resource", id) {
			if err := o.dropBundle(kindFirewallLog, l.ID); err != nil {
				return err
			}
		}
		return errors.Join(o.dropBundle(kindLoggingResource, id), schema.LoggingResources.Delete(o.tx, id))
	})
}

// deriveLoggingResource stores what a logging resource means to packets: something while it has
// logs.
func (o *operation) deriveLoggingResource(r *neutron.LoggingResource) error {
	if len(schema.FirewallLogs.Referrers(o.tx, "logging_resource", r.ID)) == 0 {
		return o.dropBundle(kindLoggingResource, r.ID)
	}
	return o.putBundle(kindLoggingResource, r.ID, translate.LoggingResource(r))
}

// FirewallLogs returns the operations on the firewall logs of a logging resource. Callers in this
// process may leave the id of that empty, and name it as logging_resource_id at create.
func (s *Service) FirewallLogs(resource string) Operations[*neutron.FirewallLog] {
	l := firewallLogs{s, resource}
	return Operations[*neutron.FirewallLog]{Create: l.create, Update: l.update, Delete: l.delete, Show: l.show, List: l.list}
}

// firewallLogs are the operations on the logs of a logging resource. Who sees that sees them, and
// who may change it may change them.
type firewallLogs struct {
	*Service
	of string // id of the logging resource; "" = any
}

// read returns a snapshot in which the caller sees the logging resource.
func (s firewallLogs) read(ctx context.Context, c neutron.Caller) (*records.Snap, error) {
	snap, err := s.view(ctx)
	if err != nil || s.of == "" {
		return snap, err
	}
	if r, ok := schema.LoggingResources.Peek(snap, s.of); !ok || !s.loggingResources.sees(snap, c, r) {
		return nil, neutron.LoggingResources.NotFound(s.of)
	}
	return snap, nil
}

func (s firewallLogs) show(ctx context.Context, c neutron.Caller, id string) (*neutron.FirewallLog, error) {
	snap, err := s.read(ctx, c)
	if err != nil {
		return nil, err
	}
	l, ok := schema.FirewallLogs.Peek(snap, id)
	if !ok || s.of != "" && l.LoggingResourceID != s.of {
		return nil, neutron.FirewallLogs.NotFound(id)
	}
	return l, nil
}

func (s firewallLogs) list(ctx context.Context, c neutron.Caller, q neutron.Query) (iter.Seq[*neutron.FirewallLog], error) {
	snap, err := s.read(ctx, c)
	if err != nil {
		return nil, err
	}
	return func(yield func(*neutron.FirewallLog) bool) {
		for l := range schema.FirewallLogs.By(snap, "logging_resource", s.of) {
			if q.InRange(l.ID) && !yield(l) {
				return
			}
		}
	}, nil
}

// create makes logs, all or none.
func (s firewallLogs) create(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.FirewallLog, error) {
	id := func(l *neutron.FirewallLog) string { return l.ID }
	return createAll(ctx, s.Service, c, id, func(o *operation) ([]*neutron.FirewallLog, error) {
		var made []*neutron.FirewallLog
		for _, v := range vs {
			l, err := s.createOne(o, v)
			if err != nil {
				return nil, err
			}
			made = append(made, l)
		}
		return made, nil
	})
}

func (s firewallLogs) createOne(o *operation, v neutron.Values) (*neutron.FirewallLog, error) {
	of := s.of
	if of == "" {
		of = v.Text("logging_resource_id")
	}
	r, err := s.resource(o, of, neutron.Create)
	if err != nil {
		return nil, err
	}
	f, _, err := s.firewalls.inTransaction(o, v.Text("firewall_id"))
	if err != nil {
		return nil, err
	}
	if len(f.RouterIDs) == 0 {
		return nil, conflict("FirewallInUse", "Firewall %s is on no router: it decides about no packets that could be logged.", f.ID)
	}
	l := &neutron.FirewallLog{Standard: o.standard(v, 0), LoggingResourceID: r.ID, FirewallID: f.ID, Event: v.Text("fw_event")}
	l.ProjectID = r.ProjectID
	return l, errors.Join(
		o.charge(r.ProjectID, quotaFirewallLog, 1),
		schema.FirewallLogs.Put(o.tx, l),
		o.putBundle(kindFirewallLog, l.ID, translate.FirewallLog(l, f)),
		o.deriveLoggingResource(r))
}

// resource returns the logging resource if the caller may change its logs.
func (s firewallLogs) resource(o *operation, id string, op neutron.Op) (*neutron.LoggingResource, error) {
	r, owner, err := s.loggingResources.inTransaction(o, id)
	if err != nil {
		return nil, err
	}
	return r, neutron.Authorize(o.caller, neutron.FirewallLogs, op, nil, owner)
}

// toChange finds a log, and its logging resource, for an update or a delete.
func (s firewallLogs) toChange(o *operation, id string, op neutron.Op, ifMatch *int64) (*neutron.FirewallLog, *neutron.LoggingResource, error) {
	l, err := schema.FirewallLogs.Get(o.tx, id)
	if err != nil || s.of != "" && l.LoggingResourceID != s.of {
		return nil, nil, neutron.FirewallLogs.NotFound(id)
	}
	r, err := s.resource(o, l.LoggingResourceID, op)
	if err != nil {
		return nil, nil, err
	}
	return l, r, checkRevision(ifMatch, l.RevisionNumber)
}

func (s firewallLogs) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.FirewallLog, error) {
	return transact(ctx, s.Service, c, func(o *operation) (*neutron.FirewallLog, error) {
		old, _, err := s.toChange(o, id, neutron.Update, ifMatch)
		if err != nil {
			return nil, err
		}
		l := *old
		applyStandard(&l.Standard, v)
		setText(&l.Event, v, "fw_event")
		if l.Event == old.Event && l.Description == old.Description {
			return old, nil
		}
		o.bump(&l.Standard)
		f, err := schema.Firewalls.Get(o.tx, l.FirewallID)
		if err != nil {
			return nil, err
		}
		return &l, errors.Join(schema.FirewallLogs.Put(o.tx, &l), o.putBundle(kindFirewallLog, l.ID, translate.FirewallLog(&l, f)))
	})
}

func (s firewallLogs) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return perform(ctx, s.Service, c, func(o *operation) error {
		_, r, err := s.toChange(o, id, neutron.Delete, ifMatch)
		if err != nil {
			return err
		}
		return errors.Join(o.dropBundle(kindFirewallLog, id), schema.FirewallLogs.Delete(o.tx, id), o.deriveLoggingResource(r))
	})
}

// dropFirewallLogs deletes the logs of a firewall that goes.
func (o *operation) dropFirewallLogs(firewall string) error {
	for l := range schema.FirewallLogs.By(o.tx, "firewall", firewall) {
		r, err := schema.LoggingResources.Get(o.tx, l.LoggingResourceID)
		if err != nil {
			return err
		}
		if err := errors.Join(o.dropBundle(kindFirewallLog, l.ID), schema.FirewallLogs.Delete(o.tx, l.ID), o.deriveLoggingResource(r)); err != nil {
			return err
		}
	}
	return nil
}
