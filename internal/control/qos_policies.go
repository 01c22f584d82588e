package control

import (
	"context"
	"errors"
	"reflect"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

func (o *operation) createQoSPolicy(_ context.Context, v neutron.Values) (*neutron.QoSPolicy, error) {
	p := &neutron.QoSPolicy{Standard: o.standard(v, 0), Default: v.Flag("is_default"), Rules: []neutron.QoSRule{}}
	return p, errors.Join(o.putQoSPolicy(p), o.share(neutron.QoSPolicies, p.ID, v))
}

// update changes a policy, but not its rules.
func (s qosPolicies) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.QoSPolicyView, error) {
	return transact(ctx, s.service, c, func(o *operation) (*neutron.QoSPolicyView, error) {
		old, err := s.toChange(o, id, neutron.Update, v, ifMatch)
		if err != nil {
			return nil, err
		}
		p := *old
		applyStandard(&p.Standard, v)
		setFlag(&p.Default, v, "is_default")
		shared := false
		if v.Has("shared") {
			if shared, err = o.grantAll(neutron.QoSPolicies, id, neutron.AccessShared, v.Flag("shared")); err != nil {
				return nil, err
			}
		}
		if !shared && reflect.DeepEqual(&p, old) {
			return s.answerTo(o.tx, c, old, neutron.Query{}), nil
		}
		o.bump(&p.Standard)
		err = o.putQoSPolicy(&p)
		return s.answerTo(o.tx, c, &p, neutron.Query{}), err
	})
}

// delete deletes a policy that nothing has, with its rules.
func (s qosPolicies) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	return s.remove(ctx, c, id, ifMatch, func(o *operation, _ *neutron.QoSPolicy) error {
		if err := o.checkQoSPolicyUnused(id); err != nil {
			return err
		}
		return errors.Join(o.dropBundle(kindQoSPolicy, id), schema.QoSPolicies.Delete(o.tx, id))
	})
}

// putQoSPolicy stores a policy with what is derived from it.
func (o *operation) putQoSPolicy(p *neutron.QoSPolicy) error {
	err := schema.QoSPolicies.Put(o.tx, p)
	var taken *records.TakenError
	if errors.As(err, &taken) && taken.Name == "default" {
		return conflict("QoSPolicyDefaultAlreadyExists", "A default QoS policy exists for project %s.", p.ProjectID)
	}
	if err != nil {
		return err
	}
	return o.putBundle(kindQoSPolicy, p.ID, translate.QoSPolicy(p))
}
