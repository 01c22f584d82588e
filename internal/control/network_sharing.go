package control

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
)

// sharedNetworks is the type of networks, which have a second action: while a policy lets a project
// use a network as external, it is an external one.
func sharedNetworks() sharedType {
	t := sharedTable(neutron.Networks, schema.Networks, func(n *neutron.Network) string { return n.ProjectID })
	t.users = (*operation).usersOfNetwork
	t.check = (*operation).keepDefaultNetwork
	t.before = (*operation).completePolicies
	t.after = (*operation).followPolicies
	return t
}

// usersOfNetwork returns the projects that have ports on a network or, of an external one, routers
// with a gateway.
func (o *operation) usersOfNetwork(id, action string) iter.Seq[string] {
	ports := o.portsOf(id)
	return func(yield func(string) bool) {
		for _, p := range ports {
			project := p.ProjectID
			if action == neutron.AccessExternal {
				r, ok := schema.Routers.Peek(o.tx, p.DeviceID)
				if !ok || p.DeviceOwner != ownerRouterGateway {
					continue
				}
				project = r.ProjectID
			}
			if !yield(project) {
				return
			}
		}
	}
}

// keepDefaultNetwork refuses to take the default external network from every project.
func (o *operation) keepDefaultNetwork(p *neutron.RBACPolicy) error {
	n, err := schema.Networks.Get(o.tx, p.ObjectID)
	if err != nil || p.Action != neutron.AccessExternal || p.Target != neutron.EveryProject || !n.Default {
		return err
	}
	return policyInUse(p, "Default external networks must be shared to everyone.")
}

// completePolicies gives a network the policies that its record stands for.
func (o *operation) completePolicies(id string) error {
	old, err := schema.Networks.Get(o.tx, id)
	if err != nil || old.SharedBefore == nil {
		return err
	}
	n := *old
	if err := o.makePolicies(&n); err != nil {
		return err
	}
	return schema.Networks.Put(o.tx, &n)
}

// makePolicies makes the policies that a network's record stands for, and takes that out of it. A
// network with policies is not given more: a server of an older version has written its record.
func (o *operation) makePolicies(n *neutron.Network) error {
	wants := map[string]bool{neutron.AccessExternal: n.External, neutron.AccessShared: n.SharedBefore != nil && *n.SharedBefore}
	if n.SharedBefore == nil {
		return nil
	}
	n.SharedBefore = nil
	for action, want := range wants {
		if !want || o.grants(n.ID, action) > 0 {
			continue
		}
		if _, err := o.grantAll(neutron.Networks, n.ID, action, true); err != nil {
			return err
		}
	}
	return nil
}

// grants counts the policies for an action on a network.
func (o *operation) grants(id, action string) int {
	return schema.RBACPolicies.CountBy(o.tx, "granted", schema.GrantedAction(neutron.Networks.Name(), id, action))
}

// followPolicies notes that policies of a network have changed, by which it may have become
// external, or internal.
func (o *operation) followPolicies(id string) error {
	old, err := schema.Networks.Get(o.tx, id)
	if err != nil {
		return err
	}
	n := *old
	if external := o.grants(id, neutron.AccessExternal) > 0; external != n.External {
		if err := o.checkExternal(&n, external); err != nil {
			return err
		}
		n.External, n.Default = external, n.Default && external
	}
	o.bump(&n.Standard)
	return schema.Networks.Put(o.tx, &n)
}

// applySharing sets "shared" and "router:external", and reports whether that changed policies.
func (o *operation) applySharing(n *neutron.Network, v neutron.Values, subnets []*neutron.Subnet) (changed bool, err error) {
	if !v.Has("shared") && !v.Has("router:external") {
		return false, nil
	}
	if err := o.makePolicies(n); err != nil {
		return false, err
	}
	if v.Has("shared") {
		if changed, err = o.applyShared(n, v.Flag("shared"), subnets); err != nil {
			return false, err
		}
	}
	if v.Has("router:external") && v.Flag("router:external") != n.External {
		changed = true
		err = o.applyExternal(n, v.Flag("router:external"))
	}
	return changed, err
}

// applyShared shares a network with every project, or takes that back unless others use it that
// have no policy of their own.
func (o *operation) applyShared(n *neutron.Network, want bool, subnets []*neutron.Subnet) (changed bool, err error) {
	p, err := schema.RBACPolicies.Get(o.tx, schema.Grant(neutron.Networks.Name(), n.ID, neutron.AccessShared, neutron.EveryProject))
	had := err == nil
	if want || !had {
		return o.grantAll(neutron.Networks, n.ID, neutron.AccessShared, want)
	}
	schema.Subnets.Referrers(o.tx, "network", n.ID) // guards that no new ones have come
	projects := map[string]bool{}
	for _, s := range subnets {
		projects[s.ProjectID] = true
	}
	for _, port := range o.portsOf(n.ID) {
		if !strings.HasPrefix(port.DeviceOwner, ownerNetworkPrefix) {
			projects[port.ProjectID] = true
		}
	}
	if o.dependent(p, n.ProjectID, "", maps.Keys(projects)) != "" {
		return false, conflict("InvalidSharedSetting",
			"Unable to reconfigure sharing settings for network %s. Multiple tenants are using it.", n.ID)
	}
	return true, schema.RBACPolicies.Delete(o.tx, schema.RBACPolicies.ID(p))
}

// applyExternal makes a network external for every project, or internal.
func (o *operation) applyExternal(n *neutron.Network, external bool) error {
	if err := o.checkExternal(n, external); err != nil {
		return err
	}
	n.External = external
	if external {
		_, err := o.grantAll(neutron.Networks, n.ID, neutron.AccessExternal, true)
		return err
	}
	grants := schema.GrantedAction(neutron.Networks.Name(), n.ID, neutron.AccessExternal)
	for _, p := range slices.Collect(schema.RBACPolicies.By(o.tx, "granted", grants)) {
		if err := schema.RBACPolicies.Delete(o.tx, schema.RBACPolicies.ID(p)); err != nil {
			return err
		}
	}
	return nil
}

// checkExternal refuses to make a network internal while routers use it as their gateway.
func (o *operation) checkExternal(n *neutron.Network, external bool) error {
	if external {
		return nil
	}
	for _, p := range o.portsOf(n.ID) {
		if p.DeviceOwner == ownerRouterGateway {
			return conflict("ExternalNetworkInUse",
				"External network %s cannot be updated to be made non-external, since it has existing gateway ports.", n.ID)
		}
	}
	return nil
}

// seesNetwork reports whether policies let the caller see a network.
func seesNetwork(r records.Reader, c neutron.Caller, n *neutron.Network) bool {
	return sharedWith(r, c.ProjectID, neutron.Networks, n.ID) ||
		n.External && granted(r, c.ProjectID, neutron.Networks, n.ID, neutron.AccessExternal)
}

// visibleNetworks returns the networks that a caller sees who is no admin.
func visibleNetworks(r records.Reader, c neutron.Caller) []iter.Seq[*neutron.Network] {
	t := schema.Networks
	if c.AdvancedService() {
		return []iter.Seq[*neutron.Network]{t.All(r)}
	}
	return slices.Concat([]iter.Seq[*neutron.Network]{t.By(r, "project", c.ProjectID)}, sharedObjects(t, neutron.Networks, r, c),
		grantedObjects(t, neutron.Networks, r, c, neutron.AccessExternal))
}

// onlyExternal is the criterion of lists of external networks alone.
func onlyExternal() criterion[neutron.Network] {
	t := schema.Networks
	return criterion[neutron.Network]{
		values: func(q *neutron.Query) []string { return flag(q.OnlyExternal) },
		find: func(r records.Reader, c neutron.Caller, _ []string) iter.Seq[*neutron.Network] {
			if c.Admin() {
				return t.By(r, "external", "true")
			}
			return func(yield func(*neutron.Network) bool) {
				for n := range union(t, visibleNetworks(r, c)...) {
					if n.External && !yield(n) {
						return
					}
				}
			}
		},
	}
}

// NetworkSharing gives networks that a version without RBAC policies has written, and that are
// shared or external, the policies that this means. It is a task; every server runs one. It is
// ready once the networks found at the start have theirs: until then others would not find them.
type NetworkSharing struct {
	task.Part
	service *Service
	log     *slog.Logger
	marked  *marks[struct{}] // ids of networks
}

// NewNetworkSharing returns the task, which follows the service's replica from when that runs.
func NewNetworkSharing(s *Service, r *replica.Replica, log *slog.Logger) *NetworkSharing {
	n := &NetworkSharing{Part: task.NewPart("network sharing"), service: s, log: log, marked: newMarks[struct{}]()}
	r.OnChange(n.notice)
	return n
}

func (n *NetworkSharing) notice(u snapshot.Update) {
	for _, c := range u.Changed {
		if c.Source != schema.Networks.Name() || c.New == nil {
			continue
		}
		if c.New.(*neutron.Network).WithoutPolicies() {
			n.marked.add(c.ID, struct{}{})
		}
	}
}

const policiesNotMade = "could not make the policies of shared networks"

// Run makes missing policies until ctx ends.
func (n *NetworkSharing) Run(ctx context.Context) error {
	n.passAtStart(ctx)
	if ctx.Err() != nil {
		return nil
	}
	n.BeReady()
	n.marked.follow(ctx, n.log, policiesNotMade, n.pass)
	return nil
}

// passAtStart makes the policies of the networks that are there. It tries again only after errors
// that pass by themselves: a server with a full store starts, so that space can be reclaimed.
func (n *NetworkSharing) passAtStart(ctx context.Context) {
	backoff := newBackoff()
	for {
		err := cmp.Or(n.markAll(ctx), n.pass(ctx))
		if err == nil {
			return
		}
		n.log.Warn(policiesNotMade, "err", err)
		passing := errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrOutcomeUnknown)
		if !passing || !backoff.Pause(ctx) {
			return
		}
	}
}

// markAll marks the networks of the store that lack policies.
func (n *NetworkSharing) markAll(ctx context.Context) error {
	snap, err := n.service.view(ctx)
	if err != nil {
		return err
	}
	for network := range schema.Networks.All(snap) {
		if network.WithoutPolicies() {
			n.marked.add(network.ID, struct{}{})
		}
	}
	return nil
}

// pass makes the policies of all marked networks, and returns the last error. Those that failed
// stay marked.
func (n *NetworkSharing) pass(ctx context.Context) (last error) {
	for part := range slices.Chunk(slices.Sorted(maps.Keys(n.marked.take())), stepObjects) {
		err := perform(ctx, n.service, neutron.Caller{}, func(o *operation) error {
			for _, id := range part {
				if _, there := schema.Networks.Peek(o.tx, id); !there {
					continue
				}
				if err := o.completePolicies(id); err != nil {
					return err
				}
			}
			return nil
		})
		if err == nil {
			continue
		}
		last = err
		for _, id := range part {
			n.marked.keep(id, struct{}{})
		}
	}
	return last
}
