package simulate

import (
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// nameOwners adds to each step of a walk whose it is: the owner of the rule that decided, of its
// chain, of the route, or of the device.
func (s *Simulator) nameOwners() {
	for i := range s.dec.Walk {
		step := &s.dec.Walk[i]
		for j := range step.Routes {
			step.Routes[j].Object = ownedObject(s.world.ownerOfRoute(step.Routes[j].ID))
		}
		switch {
		case step.Object != nil:
		case step.Chain != "":
			step.Object = ownedObject(s.world.ownerOfRule(step.Chain, step.Rule))
		case step.Kind == flow.StepRoute && len(step.Routes) > 0:
			step.Object = step.Routes[0].Object
		default:
			step.Object = ownedObject(s.world.ownerOfDevice(step.Device))
		}
	}
}

// RuleOwner returns the owner of a rule in a chain, or of the chain if the rule is its own; nil if
// there is none.
func (w *World) RuleOwner(chain, rule string) *flow.Object {
	return ownedObject(w.ownerOfRule(chain, rule))
}

// DeviceOwner returns the owner of a port, a network, a router or a load balancer; nil if there is
// none.
func (w *World) DeviceOwner(id string) *flow.Object { return ownedObject(w.ownerOfDevice(id)) }

// ownedObject returns an owner as steps have it; nil if there is none.
func ownedObject(o topology.Owner) *flow.Object {
	if o == (topology.Owner{}) {
		return nil
	}
	return &flow.Object{Kind: o.Kind, ID: o.ID}
}

// owner returns the one whose definition counts.
func (c claims[T]) owner() topology.Owner {
	if len(c) == 0 {
		return topology.Owner{}
	}
	return c[0].owner
}

// ownerOfRule returns the owner of a rule in a chain, or of the chain if the rule is its own.
func (w *World) ownerOfRule(chain, rule string) topology.Owner {
	c := w.chains[chain]
	if c == nil {
		return topology.Owner{}
	}
	if e := c.entries[rule]; e != nil {
		return e.claims.owner()
	}
	return c.claims.owner()
}

func (w *World) ownerOfRoute(id string) topology.Owner {
	r := w.routes[id]
	if r == nil {
		return topology.Owner{}
	}
	return r.claims.owner()
}

// ownerOfDevice returns the owner of a port, a network, a router or a load balancer.
func (w *World) ownerOfDevice(id string) topology.Owner {
	if p := w.ports[id]; p != nil && p.def != nil {
		return p.claims.owner()
	}
	if n := w.networks[id]; n != nil && n.def != nil {
		return n.claims.owner()
	}
	if r := w.routers[id]; r != nil && r.def != nil {
		return r.claims.owner()
	}
	if b := w.balancers[id]; b != nil && b.def != nil {
		return b.claims.owner()
	}
	return topology.Owner{}
}
