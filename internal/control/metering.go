package control

import (
	"context"
	"errors"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

func newMeteringLabels(s *Service) *resource[neutron.MeteringLabel, neutron.MeteringLabel] {
	t := schema.MeteringLabels
	return asStored(s, neutron.MeteringLabels, ofProject(t, byProject(t)),
		func(l *neutron.MeteringLabel) *neutron.Standard { return &l.Standard }, (*operation).createMeteringLabel)
}

func newMeteringRules(s *Service) *resource[neutron.MeteringLabelRule, neutron.MeteringLabelRule] {
	return asStored(s, neutron.MeteringLabelRules, ofProject(schema.MeteringLabelRules),
		func(r *neutron.MeteringLabelRule) *neutron.Standard { return &r.Standard }, (*operation).createMeteringRule)
}

// MeteringLabels returns the operations on metering labels, which only admins make.
func (s *Service) MeteringLabels() Operations[*neutron.MeteringLabel] {
	o := s.meteringLabels.untagged()
	o.Delete = s.deleteMeteringLabel
	return o
}

// MeteringLabelRules returns the operations on rules of metering labels, which only admins make.
func (s *Service) MeteringLabelRules() Operations[*neutron.MeteringLabelRule] {
	o := s.meteringRules.untagged()
	o.Delete = s.deleteMeteringRule
	return o
}

func (o *operation) createMeteringLabel(_ context.Context, v neutron.Values) (*neutron.MeteringLabel, error) {
	l := &neutron.MeteringLabel{Standard: o.standard(v, 0), Shared: v.Flag("shared")}
	return l, errors.Join(schema.MeteringLabels.Put(o.tx, l), o.deriveMeteringLabel(l))
}

func (o *operation) createMeteringRule(_ context.Context, v neutron.Values) (*neutron.MeteringLabelRule, error) {
	r, err := neutron.NewMeteringLabelRule(v)
	if err != nil {
		return nil, err
	}
	l, err := schema.MeteringLabels.Get(o.tx, r.LabelID)
	if err != nil {
		return nil, neutron.MeteringLabels.NotFound(r.LabelID)
	}
	r.Standard = o.standard(v, 0)
	r.ProjectID = l.ProjectID
	for other := range schema.MeteringLabelRules.By(o.tx, "label", l.ID) {
		if other.Overlaps(r) {
			return nil, conflict("MeteringLabelRuleOverlaps", "Metering label rule with remote_ip_prefix '%s' overlaps another.", r.Remote)
		}
	}
	return r, errors.Join(schema.MeteringLabelRules.Put(o.tx, r), o.changeMeteringLabel(l))
}

// changeMeteringLabel notes a change of a label's rules, one at a time.
func (o *operation) changeMeteringLabel(l *neutron.MeteringLabel) error {
	changed := *l
	o.bump(&changed.Standard)
	return errors.Join(schema.MeteringLabels.Put(o.tx, &changed), o.deriveMeteringLabel(&changed))
}

// deriveMeteringLabel stores what a label means to packets now.
func (o *operation) deriveMeteringLabel(l *neutron.MeteringLabel) error {
	rules := slices.Collect(schema.MeteringLabelRules.By(o.tx, "label", l.ID))
	return o.putBundle(kindMeteringLabel, l.ID, translate.MeteringLabel(l, rules))
}

func (s *Service) deleteMeteringLabel(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return s.meteringLabels.remove(ctx, c, id, ifMatch, func(o *operation, _ *neutron.MeteringLabel) error {
		return errors.Join(schema.MeteringLabels.Delete(o.tx, id), o.dropBundle(kindMeteringLabel, id))
	})
}

func (s *Service) deleteMeteringRule(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return s.meteringRules.remove(ctx, c, id, ifMatch, func(o *operation, r *neutron.MeteringLabelRule) error {
		l, err := schema.MeteringLabels.Get(o.tx, r.LabelID)
		if err != nil {
			return err
		}
		return errors.Join(schema.MeteringLabelRules.Delete(o.tx, r.ID), o.changeMeteringLabel(l))
	})
}
