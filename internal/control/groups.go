package control

import (
	"context"
	"errors"
	"reflect"
	"slices"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// makeDefaultGroups makes the default groups of the projects that are about to get other groups.
func (o *operation) makeDefaultGroups(vs []neutron.Values) error {
	for _, v := range vs {
		if _, err := o.defaultGroup(v.Text("project_id")); err != nil {
			return err
		}
	}
	return nil
}

// createGroup makes a group, with the default rules unless the caller gives others.
func (o *operation) createGroup(_ context.Context, v neutron.Values) (*neutron.SecurityGroup, error) {
	g := &neutron.SecurityGroup{Standard: o.standard(v, 1), Stateful: v.Flag("stateful")}
	rules, given := v["security_group_rules"].([]neutron.Values)
	if !given {
		g.Rules = o.initialRules(g, false)
		return g, o.putNewGroup(g)
	}
	made, err := o.newRules(rules, g.ID)
	if err == nil {
		err = checkDuplicates(g, made)
	}
	if err != nil {
		return nil, err
	}
	g.Rules = made
	return g, o.putNewGroup(g)
}

// putNewGroup stores a new group, whose rules count against its project's quota.
func (o *operation) putNewGroup(g *neutron.SecurityGroup) error {
	if err := o.charge(g.ProjectID, quotaRule, len(g.Rules)); err != nil {
		return err
	}
	return o.putGroup(g)
}

// defaultGroup returns the default group of a project, and creates it if there is none (neutron-api
// §6), but nil for no project and another than a member's own. A unique key keeps it single.
func (o *operation) defaultGroup(project string) (*neutron.SecurityGroup, error) {
	if g := findDefaultGroup(o.tx, project); g != nil || project == "" || !o.caller.Owns(project) || o.opts.NoDefaultGroups {
		return g, nil
	}
	v := neutron.Values{"project_id": project, "name": schema.DefaultGroup, "description": "Default security group"}
	g := &neutron.SecurityGroup{Standard: o.standard(v, 1), Stateful: true}
	g.Rules = o.initialRules(g, true)
	return g, o.putNewGroup(g)
}

func findDefaultGroup(r records.Reader, project string) *neutron.SecurityGroup {
	for g := range schema.SecurityGroups.By(r, "default", project) {
		return g
	}
	return nil
}

// update changes a group. A default group keeps its name; stateful is fixed while ports use it.
func (s groups) update(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.SecurityGroupView, error) {
	return transact(ctx, s.service, c, func(o *operation) (*neutron.SecurityGroupView, error) {
		old, err := s.toChange(o, id, neutron.Update, v, ifMatch)
		if err != nil {
			return nil, err
		}
		if o.pending(workDeleteGroup, id) {
			return nil, groupInUse(id)
		}
		g := *old
		if v.Has("stateful") && v.Flag("stateful") != old.Stateful {
			if len(schema.Ports.Referrers(o.tx, "security_group", id)) > 0 {
				return nil, groupInUse(id)
			}
			g.Stateful = v.Flag("stateful")
		}
		if v.Has("name") && old.Name == schema.DefaultGroup {
			return nil, conflict("SecurityGroupCannotUpdateDefault", "Updating default security group not allowed.")
		}
		applyStandard(&g.Standard, v)
		if reflect.DeepEqual(&g, old) {
			return s.answerTo(o.tx, c, old, neutron.Query{}), nil
		}
		o.bump(&g.Standard)
		return s.answerTo(o.tx, c, &g, neutron.Query{}), o.putGroup(&g)
	})
}

// delete deletes a group without ports, and rules that name it, in steps if there are many.
func (s groups) delete(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
	pending, err := transact(ctx, s.service, c, func(o *operation) (pending bool, err error) {
		g, err := s.toChange(o, id, neutron.Delete, nil, ifMatch)
		if err != nil {
			return false, err
		}
		if o.pending(workDeleteGroup, id) {
			return true, nil
		}
		if len(schema.Ports.Referrers(o.tx, "security_group", id)) > 0 {
			return false, groupInUse(id)
		}
		if g.Name == schema.DefaultGroup && !c.Admin() {
			return false, conflict("SecurityGroupCannotRemoveDefault", "Insufficient rights for removing default security group.")
		}
		rules := len(g.Rules)
		others := schema.SecurityGroups.Referrers(o.tx, "remote_group", id)
		for _, other := range others[:min(len(others), stepObjects)] {
			if g, ok := schema.SecurityGroups.Peek(o.tx, other); ok {
				rules += len(g.Rules)
			}
		}
		if len(others)+policiesOf(o.tx, id) > stepObjects || rules > stepRules {
			return true, o.begin(workDeleteGroup, id)
		}
		_, err = steps{o}.deleteGroup(id)
		return false, err
	})
	if pending && err == nil {
		s.service.carryOut(ctx, workDeleteGroup, id)
	}
	return err
}

// forgetRemote takes the rules out of a group that name another, which is going.
func (o *operation) forgetRemote(id, remote string) error {
	old, err := schema.SecurityGroups.Get(o.tx, id)
	if err != nil {
		return err
	}
	g := *old
	g.Rules = slices.DeleteFunc(slices.Clone(g.Rules), func(r neutron.SecurityGroupRule) bool { return r.RemoteGroupID == remote })
	o.bump(&g.Standard)
	return o.putGroup(&g)
}

func groupInUse(id string) error {
	return conflict("SecurityGroupInUse", "Security Group %s in use.", id)
}

// putGroup stores a group with what is derived from it.
func (o *operation) putGroup(g *neutron.SecurityGroup) error {
	if err := schema.SecurityGroups.Put(o.tx, g); err != nil {
		return err
	}
	return errors.Join(o.putBundle(kindGroup, g.ID, translate.SecurityGroup(g)), o.calico().deriveProfile(g))
}

func groupOwner(g *neutron.SecurityGroup) neutron.Owner { return neutron.Owner{ProjectID: g.ProjectID} }
