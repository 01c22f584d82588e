package simulate

import (
	"cmp"
	"slices"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// loggers holds what asks for records of decisions of ports' filters. Those that name chains are
// found by the chains: of ports, or else of groups.
type loggers struct {
	all      map[string]*topology.Logger   // by id
	byTenant map[string][]*topology.Logger // of all filters of a tenant's ports, by id
}

func compareLoggers(x *topology.Logger, id string) int { return cmp.Compare(x.ID, id) }

func withLogger(list []*topology.Logger, x *topology.Logger) []*topology.Logger {
	i, _ := slices.BinarySearchFunc(list, x.ID, compareLoggers)
	return slices.Insert(list, i, x)
}

func withoutLogger(list []*topology.Logger, x *topology.Logger) []*topology.Logger {
	if i, found := slices.BinarySearchFunc(list, x.ID, compareLoggers); found {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// setLogger replaces a logger by another with its id; either may be nil.
func (w *World) setLogger(before, after *topology.Logger) {
	if before != nil {
		delete(w.loggers.all, before.ID)
		w.attachLogger(before, withoutLogger, func(c *chain) { release(w.chains, c) })
	}
	if after != nil {
		w.loggers.all[after.ID] = after
		w.attachLogger(after, withLogger, func(c *chain) { c.refs++ })
	}
}

// attachLogger changes the lists by which a logger is found, counts the references to its chains,
// and touches the ports that it is about.
func (w *World) attachLogger(x *topology.Logger, change func([]*topology.Logger, *topology.Logger) []*topology.Logger, count func(*chain)) {
	chains := x.ChainIDs
	if len(chains) == 0 {
		chains = x.GroupChainIDs
	}
	for _, id := range chains {
		c := hold(w.chains, id)
		c.loggers = change(c.loggers, x)
		w.touchChain(c)
		count(c)
		release(w.chains, c)
	}
	if x.TenantID == "" {
		return
	}
	if w.loggers.byTenant[x.TenantID] = change(w.loggers.byTenant[x.TenantID], x); len(w.loggers.byTenant[x.TenantID]) == 0 {
		delete(w.loggers.byTenant, x.TenantID)
	}
	for _, p := range w.ports {
		if p.in.belongsTo(x.TenantID) || p.out.belongsTo(x.TenantID) {
			w.touch(p)
		}
	}
}

// belongsTo reports whether the chain, if any, is a tenant's.
func (c *chain) belongsTo(tenant string) bool {
	return c != nil && c.def != nil && c.def.TenantID == tenant
}

// note notes which loggers ask for what chain c decided by a rule of chain by. It concerns filters
// of networks' ports: that a group let the packet through, or that it is a reply, or that no group
// did (services §9.1). What machines need to find each other is not logged, nor what they forge.
func (f *filters) note(c *chain, v verb, by *chain, r *rule) {
	p := f.filtered(c)
	reply := r != nil && r.set&onReturn != 0
	switch {
	case p == nil || p.network == nil || f.generated || !f.now.IsIP():
		return
	case v == accept && (by != c || reply):
	case v == drop && by == c:
	default:
		return
	}
	d := f.decided(p, c, v == accept, by, r)
	for _, l := range c.loggers {
		if len(l.GroupChainIDs) == 0 || !reply && c.decidesFor(l.GroupChainIDs, by) {
			f.log(l, d)
		}
	}
	switch {
	case v == drop:
		for _, x := range c.rules {
			if x.verb == jump {
				f.logAll(x.target.loggers, d)
			}
		}
	case by != c:
		f.logAll(by.loggers, d)
	}
	f.logAll(f.loggers.byTenant[c.def.TenantID], d)
}

// filtered returns the port of which chain c is filtering the packet, or nil.
func (f *filters) filtered(c *chain) *port {
	switch {
	case f.outPort != nil && f.outPort.out == c:
		return f.outPort
	case f.inPort != nil && f.inPort.in == c:
		return f.inPort
	}
	return nil
}

// decidesFor reports whether a decision of filter c by a rule of chain by is one of a group with
// these chains: by itself for a packet that it let through, and else if the filter has asked it.
func (c *chain) decidesFor(group []string, by *chain) bool {
	if by != c {
		return slices.Contains(group, by.id)
	}
	return slices.ContainsFunc(c.rules, func(r *rule) bool { return r.verb == jump && slices.Contains(group, r.target.id) })
}

// decided describes the packet, as the filter of port p saw it, and what became of it there.
func (f *filters) decided(p *port, c *chain, accepted bool, by *chain, r *rule) flow.Logged {
	d := f.describeLogged(by, r, accepted)
	d.PortID, d.TenantID, d.Ingress = p.id, c.def.TenantID, p.out == c
	return d
}

// describeLogged describes the packet, where it is, and the rule of chain by that decided about it.
func (f *filters) describeLogged(by *chain, r *rule, accepted bool) flow.Logged {
	x := f.now
	d := flow.Logged{Accepted: accepted, Chain: by.id, Rule: r.id, Proto: x.Proto, Src: x.SrcIP, Dst: x.DstIP, HasPorts: x.HasTp, SrcPort: x.TpSrc, DstPort: x.TpDst, Frag: x.Frag}
	if f.inPort != nil {
		d.InPort = f.inPort.id
	}
	if f.outPort != nil {
		d.OutPort = f.outPort.id
	}
	return d
}

func (f *filters) logAll(all []*topology.Logger, d flow.Logged) {
	for _, l := range all {
		f.log(l, d)
	}
}

// log adds a decision to those that are logged if the logger asks for such.
func (f *filters) log(l *topology.Logger, d flow.Logged) {
	if d.Accepted && !l.Accepts || !d.Accepted && !l.Drops {
		return
	}
	d.Log = l.ID
	f.record(d, d.PortID)
}
