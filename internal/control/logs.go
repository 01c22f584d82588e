package control

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// logs implements the operations on logs, which only admins make and see.
type logs struct {
	*resource[neutron.Log, neutron.Log]
}

func newLogs(s *Service) *resource[neutron.Log, neutron.Log] {
	t := schema.Logs
	standard := func(l *neutron.Log) *neutron.Standard { return &l.Standard }
	return &resource[neutron.Log, neutron.Log]{
		Service: s, name: neutron.Logs, make: (*operation).createLog,
		finder: finder[neutron.Log]{t, []criterion[neutron.Log]{
			byID(t, func(q *neutron.Query) []string { return q.IDs }),
		}, func(records.Reader, neutron.Caller) []iter.Seq[*neutron.Log] { return nil }},
		standard: standard, attributes: standard,
		owner: func(_ records.Reader, l *neutron.Log) (neutron.Owner, bool) {
			return neutron.Owner{ProjectID: l.ProjectID}, true
		},
		answer: func(_ records.Reader, l *neutron.Log, _ neutron.Query) *neutron.Log { return l },
	}
}

// Logs returns the operations on logs of security groups.
func (s *Service) Logs() Operations[neutron.Log] {
	o := s.logs.untagged()
	o.Update, o.Delete = s.logs.update, s.logs.delete
	return o
}

// LoggableResources returns the list of the types of resources that logs are made for. Only admins
// see them.
func (s *Service) LoggableResources() Operations[neutron.LoggableResource] {
	return Operations[neutron.LoggableResource]{List: func(_ context.Context, c neutron.Caller, _ neutron.Query) (iter.Seq[*neutron.LoggableResource], error) {
		return func(yield func(*neutron.LoggableResource) bool) {
			for _, r := range neutron.LoggableResourceTypes() {
				if neutron.CanSee(c, neutron.LoggableResources, neutron.Owner{}) && !yield(&r) {
					return
				}
			}
		}, nil
	}}
}

func (o *operation) createLog(_ context.Context, v neutron.Values) (*neutron.Log, error) {
	l := &neutron.Log{Standard: o.standard(v, 0), ResourceType: v.Text("resource_type"), ResourceID: v.Text("resource_id"),
		TargetID: v.Text("target_id"), Event: v.Text("event"), Enabled: v.Flag("enabled")}
	if err := o.checkLog(l); err != nil {
		return nil, err
	}
	return l, o.putLog(l)
}

// checkLog refuses a new log of what is not there, and of a group on a port that is not in it.
func (o *operation) checkLog(l *neutron.Log) error {
	if l.ResourceType != neutron.LogSecurityGroup {
		return neutron.Errorf(neutron.Invalid, "InvalidLogResourceType", "Invalid log resource_type: %s.", l.ResourceType)
	}
	if l.ResourceID != "" {
		if _, err := schema.SecurityGroups.Need(o.tx, l.ResourceID); err != nil {
			return neutron.Errorf(neutron.NotFound, "ResourceNotFound", "Resource %s could not be found.", l.ResourceID)
		}
	}
	if l.TargetID == "" {
		return nil
	}
	p, err := schema.Ports.Need(o.tx, l.TargetID)
	if err != nil {
		return neutron.Errorf(neutron.NotFound, "TargetResourceNotFound", "Target resource %s could not be found.", l.TargetID)
	}
	if l.ResourceID != "" && !slices.Contains(p.SecurityGroups, l.ResourceID) {
		return neutron.Errorf(neutron.Invalid, "InvalidResourceConstraint",
			"Invalid resource constraint between resource (security_group %s) and target resource (port %s).", l.ResourceID, l.TargetID)
	}
	return nil
}

// putLog stores a log with what is derived from it.
func (o *operation) putLog(l *neutron.Log) error {
	if err := schema.Logs.Put(o.tx, l); err != nil {
		return err
	}
	if !l.Enabled {
		return o.dropBundle(kindLog, l.ID)
	}
	return o.putBundle(kindLog, l.ID, translate.Log(l))
}

func (s logs) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.Log, error) {
	return transact(ctx, s.Service, c, func(o *operation) (*neutron.Log, error) {
		old, err := s.toChange(o, id, neutron.Update, v, ifMatch)
		if err != nil {
			return nil, err
		}
		l := *old
		applyStandard(&l.Standard, v)
		setFlag(&l.Enabled, v, "enabled")
		if reflect.DeepEqual(&l, old) {
			return old, nil
		}
		o.bump(&l.Standard)
		return &l, o.putLog(&l)
	})
}

func (s logs) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return perform(ctx, s.Service, c, func(o *operation) error {
		if _, err := s.toChange(o, id, neutron.Delete, nil, ifMatch); err != nil {
			return err
		}
		return errors.Join(schema.Logs.Delete(o.tx, id), o.dropBundle(kindLog, id))
	})
}

// dropLoggers deletes what is derived from the logs that go with the group or the port that they
// name in a field.
func (o *operation) dropLoggers(field, id string) error {
	var errs []error
	for l := range schema.Logs.By(o.tx, field, id) {
		errs = append(errs, o.dropBundle(kindLog, l.ID))
	}
	return errors.Join(errs...)
}
