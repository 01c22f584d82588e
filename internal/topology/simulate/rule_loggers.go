package simulate

import (
	"cmp"
	"slices"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// ruleLoggers holds what asks for records of decisions of firewalls' chains, each found by its
// chain, and where the records go.
type ruleLoggers struct {
	resources  map[string]*topology.LoggingResource
	byResource map[string][]*topology.RuleLogger // by id
}

func compareRuleLoggers(x *topology.RuleLogger, id string) int { return cmp.Compare(x.ID, id) }

func withRuleLogger(list []*topology.RuleLogger, x *topology.RuleLogger) []*topology.RuleLogger {
	i, _ := slices.BinarySearchFunc(list, x.ID, compareRuleLoggers)
	return slices.Insert(list, i, x)
}

func withoutRuleLogger(list []*topology.RuleLogger, x *topology.RuleLogger) []*topology.RuleLogger {
	if i, found := slices.BinarySearchFunc(list, x.ID, compareRuleLoggers); found {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// setRuleLogger replaces a logger by another with its id; either may be nil. Flows that its chain
// has decided are decided again.
func (w *World) setRuleLogger(before, after *topology.RuleLogger) {
	if before != nil {
		c := w.chains[before.ChainID]
		c.ruleLoggers = withoutRuleLogger(c.ruleLoggers, before)
		all := withoutRuleLogger(w.ruleLoggers.byResource[before.LoggingResourceID], before)
		if w.ruleLoggers.byResource[before.LoggingResourceID] = all; len(all) == 0 {
			delete(w.ruleLoggers.byResource, before.LoggingResourceID)
		}
		w.touchChain(c)
		release(w.chains, c)
	}
	if after != nil {
		c := hold(w.chains, after.ChainID)
		c.ruleLoggers = withRuleLogger(c.ruleLoggers, after)
		w.ruleLoggers.byResource[after.LoggingResourceID] = withRuleLogger(w.ruleLoggers.byResource[after.LoggingResourceID], after)
		w.touchChain(c)
	}
}

// setLoggingResource replaces a logging resource by another with its id; either may be nil.
func (w *World) setLoggingResource(id string, after *topology.LoggingResource) {
	if after == nil {
		delete(w.ruleLoggers.resources, id)
	} else {
		w.ruleLoggers.resources[id] = after
	}
	for _, l := range w.ruleLoggers.byResource[id] {
		w.touchChain(w.chains[l.ChainID])
	}
}

// run evaluates a chain, and notes which of its loggers ask for what it decided.
func (f *filters) run(c *chain) (verb, *chain, *rule) {
	v, by, r := f.evaluate(c)
	if len(c.ruleLoggers) > 0 {
		f.noteRule(c, v, by, r)
	}
	return v, by, r
}

// noteRule notes which loggers of chain c ask for its decision by a rule of chain by (services
// §9.2). What it hands back has passed it.
func (f *filters) noteRule(c *chain, v verb, by *chain, r *rule) {
	var accepted bool
	switch v {
	case accept, giveBack:
		accepted = true
	case drop, reject:
	default:
		return
	}
	if f.generated || !f.now.IsIP() {
		return
	}
	for _, l := range c.ruleLoggers {
		if to := f.ruleLoggers.resources[l.LoggingResourceID]; to == nil || !to.Enabled || !l.Asks(accepted) {
			continue
		}
		d := f.describeLogged(by, r, accepted)
		d.Log, d.Resource, d.Firewall = l.ID, l.LoggingResourceID, topology.MetadataOf(l.Metadata, topology.MetadataFirewall)
		d.TenantID, d.RouterID = topology.MetadataOf(l.Metadata, topology.MetadataTenant), f.routerID()
		f.record(d, d.RouterID)
	}
}

// routerID returns the id of the router that the packet is in, or "".
func (f *filters) routerID() string {
	if p := f.inPort; p != nil && p.router != nil {
		return p.router.id
	}
	return ""
}

// record adds a decision, made on a device, to those that are logged.
func (f *filters) record(d flow.Logged, device string) {
	f.dec.Logged = append(f.dec.Logged, d)
	if f.dec.explain {
		f.dec.say(device, flow.StepLog, "logged as "+d.Event()+" by log "+d.Log)
	}
}
