package overlay

import (
	"heddle/internal/overlay/datapath"
	"heddle/internal/topology"
)

// portPolicies joins limits with the ports of this host that name them, whichever comes first.
type portPolicies struct {
	limits map[string]*topology.Limits      // by id
	ports  map[string]map[string]attachment // by the id of their limits, those of ports by id
	of     map[string]string                // by the id of a port: of its limits
}

// add notes that a port has limits, "" for none, and returns them as they are now.
func (x *portPolicies) add(limitsID string, want attachment, port string) datapath.PortLimits {
	if limitsID == "" {
		return datapath.PortLimits{}
	}
	if x.of == nil {
		x.of, x.ports = map[string]string{}, map[string]map[string]attachment{}
	}
	if x.ports[limitsID] == nil {
		x.ports[limitsID] = map[string]attachment{}
	}
	x.of[port], x.ports[limitsID][port] = limitsID, want
	return portLimits(x.limits[limitsID])
}

func (x *portPolicies) remove(port string) {
	id, has := x.of[port]
	if !has {
		return
	}
	delete(x.of, port)
	delete(x.ports[id], port)
	if len(x.ports[id]) == 0 {
		delete(x.ports, id)
	}
}

// portLimits returns what the datapath has to know of limits, nil for none.
func portLimits(l *topology.Limits) (p datapath.PortLimits) {
	if l == nil {
		return p
	}
	p.Egress, p.Ingress = l.Egress, l.Ingress
	if l.DSCP != nil {
		p.Marks, p.DSCP = true, *l.DSCP
	}
	return p
}

// limitsChanged replaces the limits of one owner, and those of the ports that name them.
func (a *attachments) limitsChanged(before, after []topology.Limits) {
	if len(before)+len(after) == 0 {
		return
	}
	for port, want := range a.replaceLimits(before, after) {
		a.reconciler.Want(port, want)
	}
}

// replaceLimits enters the limits of one owner, and returns the ports that name them, as they are
// desired now.
func (a *attachments) replaceLimits(before, after []topology.Limits) map[string]attachment {
	a.mu.Lock()
	defer a.mu.Unlock()
	x := &a.limits
	if x.limits == nil {
		x.limits = map[string]*topology.Limits{}
	}
	changed := map[string]bool{}
	for i := range before {
		delete(x.limits, before[i].ID)
		changed[before[i].ID] = true
	}
	for i := range after {
		x.limits[after[i].ID] = &after[i]
		changed[after[i].ID] = true
	}
	desired := map[string]attachment{}
	for id := range changed {
		for port, want := range x.ports[id] {
			want.Limits = portLimits(x.limits[id])
			desired[port] = want
		}
	}
	return desired
}
