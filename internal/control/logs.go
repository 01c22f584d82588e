package control

import (
	"context"
	"errors"
	"iter"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// logs implements the operations on logs, which only admins make and see.
type logs struct {
	*resource[neutron.Log, neutron.Log]
}

func newLogs(s *Service) *resource[neutron.Log, neutron.Log] {
	return asStored(s, neutron.Logs, forAdmins(schema.Logs),
		func(l *neutron.Log) *neutron.Standard { return &l.Standard }, (*operation).createLog)
}

// Logs returns the operations on logs of security groups and firewalls.
func (s *Service) Logs() Operations[*neutron.Log] {
	o := s.logs.untagged()
	o.Update, o.Delete = s.logs.update, s.logs.delete
	return o
}

// LoggableResources returns the list of the types of resources that logs are made for. Only admins
// see them.
func (s *Service) LoggableResources() Operations[*neutron.LoggableResource] {
	return Operations[*neutron.LoggableResource]{List: func(_ context.Context, c neutron.Caller, _ neutron.Query) (iter.Seq[*neutron.LoggableResource], error) {
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
	switch l.ResourceType {
	case neutron.LogSecurityGroup:
	case neutron.LogFirewall:
		return o.checkFirewallOfLog(l)
	default:
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

// checkFirewallOfLog refuses a new log that names no firewall, or a port.
func (o *operation) checkFirewallOfLog(l *neutron.Log) error {
	switch {
	case l.ResourceID == "":
		return invalid("a log of resource_type firewall needs the id of a firewall as resource_id")
	case l.TargetID != "":
		return invalid("a log of resource_type firewall has no target_id: firewalls decide in routers")
	}
	if _, err := schema.Firewalls.Need(o.tx, l.ResourceID); err != nil {
		return neutron.Errorf(neutron.NotFound, "ResourceNotFound", "Resource %s could not be found.", l.ResourceID)
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
	if l.ResourceType != neutron.LogFirewall {
		return o.putBundle(kindLog, l.ID, translate.Log(l))
	}
	f, err := schema.Firewalls.Need(o.tx, l.ResourceID)
	if err != nil {
		return err
	}
	return o.putBundle(kindLog, l.ID, translate.LogOfFirewall(l, f))
}

func (s logs) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.Log, error) {
	return s.modify(ctx, c, id, v, ifMatch, func(_ *operation, l, _ *neutron.Log) error {
		setFlag(&l.Enabled, v, "enabled")
		return nil
	}, (*operation).putLog)
}

func (s logs) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return s.remove(ctx, c, id, ifMatch, func(o *operation, _ *neutron.Log) error {
		return errors.Join(schema.Logs.Delete(o.tx, id), o.dropBundle(kindLog, id))
	})
}

// dropLoggers deletes what is derived from the logs that go with the group, the firewall or the
// port that they name in a field.
func (o *operation) dropLoggers(field, id string) error {
	var errs []error
	for l := range schema.Logs.By(o.tx, field, id) {
		errs = append(errs, o.dropBundle(kindLog, l.ID))
	}
	return errors.Join(errs...)
}
