package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// An auto-allocated topology is a network with a subnet of each default subnet pool, behind a
// router with its gateway on the default external network. A project has one at most. It is made
// by one transaction, and its parts are ordinary objects of the project afterwards.

// The reasons of an AutoAllocationFailure.
const (
	noDefaultNetwork = "No default router:external network"
	noDefaultPools   = "No default subnetpools defined"
	noPrivateNetwork = "Unable to provide tenant private network"
	noConnectivity   = "Unable to provide external connectivity"
)

// AutoTopology returns the network of a project's auto-allocated topology, which it creates unless
// there is one.
func (s *Service) AutoTopology(ctx context.Context, c neutron.Caller, project string) (networkID string, err error) {
	if err := neutron.AuthorizeTopology(c, project); err != nil {
		return "", err
	}
	snap, err := s.view(ctx)
	if err != nil {
		return "", err
	}
	if id := networkOfTopology(snap, project); id != "" {
		return id, nil
	}
	if err := neutron.AuthorizeTopologyChange(c, "get"); err != nil {
		return "", err
	}
	return transact(ctx, s, c, func(o *operation) (string, error) {
		_, _ = schema.AutoTopologies.Get(o.tx, project) // guards against another request for it
		if id := networkOfTopology(o.tx, project); id != "" {
			return id, nil
		}
		return o.makeTopology(ctx, project)
	})
}

// networkOfTopology returns the network of a project's topology; "" if there is none, or it is
// being deleted.
func networkOfTopology(r records.Reader, project string) string {
	t, ok := schema.AutoTopologies.Peek(r, project)
	if !ok {
		return ""
	}
	if _, deleted := schema.PendingWorks.Peek(r, schema.PendingWorkID(workDeleteNetwork, t.NetworkID)); deleted {
		return ""
	}
	return t.NetworkID
}

// CheckAutoTopology reports what is missing to make topologies for a project.
func (s *Service) CheckAutoTopology(ctx context.Context, c neutron.Caller, project string) error {
	if err := neutron.AuthorizeTopology(c, project); err != nil {
		return err
	}
	return perform(ctx, s, c, func(o *operation) error {
		if _, err := o.defaultExternal(); err != nil {
			return err
		}
		if len(o.defaultPools()) == 0 {
			return allocationFailure(noDefaultPools)
		}
		return nil
	})
}

// DeleteAutoTopology deletes a project's auto-allocated topology, all or nothing. A project that
// has none is no error.
func (s *Service) DeleteAutoTopology(ctx context.Context, c neutron.Caller, project string) error {
	if err := neutron.AuthorizeTopology(c, project); err != nil {
		return err
	}
	if err := neutron.AuthorizeTopologyChange(c, "delete"); err != nil {
		return err
	}
	pending, err := transact(ctx, s, c, func(o *operation) (network string, err error) {
		t, err := schema.AutoTopologies.Get(o.tx, project)
		if err != nil {
			return "", nil
		}
		if err := o.removeTopologyRouter(t); err != nil {
			return "", err
		}
		if err := schema.AutoTopologies.Delete(o.tx, project); err != nil {
			return "", err
		}
		if later, err := s.networks.remove(o, t.NetworkID, nil); err != nil || !later {
			return "", err
		}
		return t.NetworkID, nil
	})
	if pending != "" && err == nil {
		s.carryOut(ctx, workDeleteNetwork, pending)
	}
	return err
}

// removeTopologyRouter deletes the router of a topology, with its interfaces on the topology's
// subnets.
func (o *operation) removeTopologyRouter(t *schema.AutoTopology) error {
	if t.RouterID == "" {
		return nil
	}
	var subnets []string
	for s := range schema.Subnets.By(o.tx, "network", t.NetworkID) {
		subnets = append(subnets, s.ID)
	}
	for _, id := range subnets {
		_, err := o.routers.detach(o, t.RouterID, neutron.InterfaceRequest{SubnetID: id})
		if err != nil && !isKind(err, neutron.NotFound) { // it has no interface there any more
			return err
		}
	}
	return o.routers.remove(o, t.RouterID, nil)
}

// makeTopology creates the topology of a project that has none, and returns its network.
func (o *operation) makeTopology(ctx context.Context, project string) (string, error) {
	external, err := o.defaultExternal()
	if err != nil {
		return "", err
	}
	n, subnets, err := o.makeTopologyNetwork(ctx, project)
	if err != nil {
		return "", because(noPrivateNetwork, err, neutron.Invalid, neutron.NotFound)
	}
	r, err := o.makeTopologyRouter(ctx, project, external.ID, subnets)
	if err != nil {
		return "", because(noConnectivity, err, neutron.Invalid)
	}
	return n.ID, schema.AutoTopologies.Put(o.tx, &schema.AutoTopology{ProjectID: project, NetworkID: n.ID, RouterID: r.ID})
}

// makeTopologyNetwork creates the network of a topology with a subnet of each default pool.
func (o *operation) makeTopologyNetwork(ctx context.Context, project string) (*neutron.Network, []*neutron.Subnet, error) {
	pools := o.defaultPools()
	if len(pools) == 0 {
		return nil, nil, allocationFailure(noPrivateNetwork)
	}
	v, err := o.valuesFor(neutron.Networks, project, map[string]any{"name": "auto_allocated_network"})
	if err != nil {
		return nil, nil, err
	}
	n, err := o.createNetwork(ctx, v)
	if err != nil {
		return nil, nil, err
	}
	var subnets []*neutron.Subnet
	for _, pool := range pools {
		v, err := o.valuesFor(neutron.Subnets, project, map[string]any{
			"name":          fmt.Sprintf("auto_allocated_subnet_v%d", pool.IPVersion),
			"network_id":    n.ID,
			"ip_version":    json.Number(fmt.Sprint(pool.IPVersion)),
			"subnetpool_id": pool.ID,
		})
		if err != nil {
			return nil, nil, err
		}
		s, err := o.createSubnet(ctx, v)
		if err != nil {
			return nil, nil, err
		}
		subnets = append(subnets, s)
	}
	return n, subnets, nil
}

// makeTopologyRouter creates the router of a topology between its subnets and an external network.
func (o *operation) makeTopologyRouter(ctx context.Context, project, external string, subnets []*neutron.Subnet) (*neutron.Router, error) {
	v, err := o.valuesFor(neutron.Routers, project, map[string]any{
		"name": "auto_allocated_router", attrGateway: map[string]any{"network_id": external},
	})
	if err != nil {
		return nil, err
	}
	r, err := o.createRouter(ctx, v)
	if err != nil {
		return nil, err
	}
	for _, s := range subnets {
		if _, err := (routerEdit{o, r}).addSubnet(s.ID); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// valuesFor returns the values of an object that the server makes for a project on a client's
// behalf, and charges the project for it.
func (o *operation) valuesFor(r neutron.Resource, project string, attributes map[string]any) (neutron.Values, error) {
	attributes["project_id"] = project
	v, err := neutron.Parse(o.caller, r, neutron.Create, attributes)
	if err != nil {
		return nil, err
	}
	return v, o.charge(project, r.Name(), 1)
}

// defaultExternal returns the default external network, or Neutron's refusal. The commit fails if
// it has changed.
func (o *operation) defaultExternal() (*neutron.Network, error) {
	for n := range schema.Networks.By(o.tx, "default", "true") {
		return schema.Networks.Get(o.tx, n.ID)
	}
	return nil, allocationFailure(noDefaultNetwork)
}

// defaultPools returns the default subnet pools that the caller sees, IPv4 first.
func (o *operation) defaultPools() []*neutron.SubnetPool {
	var pools []*neutron.SubnetPool
	for _, version := range []int{4, 6} {
		if p := o.visibleDefaultPool(version); p != nil {
			pools = append(pools, p)
		}
	}
	return pools
}

// because returns an AutoAllocationFailure in place of an error of one of the kinds.
func because(reason string, err error, kinds ...neutron.Kind) error {
	if isKind(err, kinds...) {
		return fmt.Errorf("%w: %w", allocationFailure(reason), err)
	}
	return err
}

// isKind reports whether an error is a client's, of one of these kinds.
func isKind(err error, kinds ...neutron.Kind) bool {
	var e *neutron.Error
	if !errors.As(err, &e) {
		return false
	}
	for _, k := range kinds {
		if e.Kind == k {
			return true
		}
	}
	return false
}

func allocationFailure(reason string) error {
	return conflict("AutoAllocationFailure", "Deployment error: %s.", reason)
}
