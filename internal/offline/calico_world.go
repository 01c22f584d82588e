package offline

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"heddle/calico"
	"heddle/internal/policy"
	"heddle/internal/policy/calc"
	"heddle/internal/policy/judge"
)

// policyWorld is the host of a case: what calc decided for it, and its interfaces.
type policyWorld struct {
	rules      judge.Rules
	config     judge.Config
	places     map[string]judge.Place         // by the name that packets use
	interfaces map[judge.Place]*hostInterface // of the places where a packet enters or leaves; not of the host itself
	owners     map[netip.Addr]string          // ids of active workloads, by their own addresses
	invalid    []string                       // what is refused, and why
}

// hostInterface is an interface of the host.
type hostInterface struct {
	name      string
	workload  bool
	mac       *calico.MAC  // of the machine at its other end; nil: any
	addresses []netip.Addr // that host endpoints expect on it
}

// world calculates what the agent of the case's host would.
func (c *policyCase) world(extensions bool) (*policyWorld, error) {
	w := &policyWorld{config: c.settings.Judge(), owners: map[netip.Addr]string{}, invalid: slices.Clone(c.problems),
		places:     map[string]judge.Place{outside: {}, hostSelf: judge.LocalHost()},
		interfaces: map[judge.Place]*hostInterface{{}: {name: externalInterface}}}
	var opts []calico.Option
	if extensions {
		opts = append(opts, calico.SelectorExtensions())
	}
	rules := calc.New(checkedHost)
	rules.SetMaxSetSize(c.settings.MaxSetSize)
	for _, o := range c.objects {
		object, err := calico.Decode(o.key, o.value, opts...)
		if err != nil {
			w.invalid = append(w.invalid, fmt.Sprintf("%s: %v", strings.TrimPrefix(o.place, c.place+"."), err))
			rules.Invalid(o.key, policy.PartOf(o.key, o.value), err.Error())
			continue
		}
		rules.Update(o.key, object)
	}
	changes := rules.Changes()
	w.rules.Apply(changes)
	w.workloads(c, changes.Workloads)
	w.hosts(c, changes.Hosts)
	return w, nil
}

// workloads places the workloads at their interfaces. One whose interface is not named like a
// workload's is refused.
func (w *policyWorld) workloads(c *policyCase, all map[calico.WorkloadEndpointKey]*calc.Workload) {
	gone := map[calico.WorkloadEndpointKey]*calc.Workload{}
	holders := map[string]string{}
	for _, id := range slices.Sorted(maps.Keys(c.endpoints)) {
		key, isWorkload := c.endpoints[id].(calico.WorkloadEndpointKey)
		if !isWorkload {
			continue
		}
		place := judge.AtWorkload(key)
		w.places[id] = place
		e := all[key]
		if e == nil { // refused: its interface has a workload's name, and no policy
			w.interfaces[place] = &hostInterface{workload: true, name: fmt.Sprintf("%.8s%d", c.settings.Rules.WorkloadPrefixes[0], len(w.interfaces))}
			continue
		}
		name := e.Endpoint.Name
		prefixed := func(p string) bool { return strings.HasPrefix(name, p) }
		switch {
		case !slices.ContainsFunc(c.settings.Rules.WorkloadPrefixes, prefixed):
			w.invalid = append(w.invalid, fmt.Sprintf("endpoints.%s: name: %q begins with none of the prefixes of workload interfaces (InterfacePrefix): %s",
				id, name, strings.Join(c.settings.Rules.WorkloadPrefixes, ", ")))
			gone[key] = nil
			continue
		case holders[name] != "":
			w.invalid = append(w.invalid, fmt.Sprintf("endpoints.%s: name: interface %s is that of endpoint %s", id, name, holders[name]))
			gone[key] = nil
			continue
		}
		holders[name] = id
		w.interfaces[place] = &hostInterface{workload: true, name: name, mac: e.Endpoint.MAC}
		if e.Endpoint.State != calico.Active {
			continue
		}
		for _, n := range slices.Concat(e.Endpoint.IPv4Nets, e.Endpoint.IPv6Nets) {
			if w.owners[n.Addr()] == "" {
				w.owners[n.Addr()] = id
			}
		}
	}
	w.rules.Apply(&calc.Changes{Workloads: gone})
}

// hosts places the host endpoints at interfaces: those that are named, and one for each group of
// addresses that are expected together. Of several endpoints that match an interface the one with
// the lowest id governs it (spec §8.5).
func (w *policyWorld) hosts(c *policyCase, all map[calico.HostEndpointKey]*calc.Host) {
	keys := slices.SortedFunc(maps.Keys(all), func(a, b calico.HostEndpointKey) int { return cmp.Compare(a.Endpoint, b.Endpoint) })
	for id, key := range c.endpoints {
		if _, isHost := key.(calico.HostEndpointKey); isHost {
			w.places[id] = judge.Place{} // refused, and its name cannot be read: nothing governs its interface
		}
	}
	var interfaces []*hostInterface
	at := map[calico.HostEndpointKey]*hostInterface{}
	find := func(matches func(*hostInterface) bool, name string) *hostInterface {
		if i := slices.IndexFunc(interfaces, matches); i >= 0 {
			return interfaces[i]
		}
		interfaces = append(interfaces, &hostInterface{name: name})
		return interfaces[len(interfaces)-1]
	}
	place := func(key calico.HostEndpointKey, i *hostInterface) {
		at[key] = i
		i.addresses = append(i.addresses, expectedAddresses(all[key].Endpoint)...)
	}
	for _, key := range keys {
		if name := all[key].Endpoint.Name; name != "" {
			place(key, find(func(i *hostInterface) bool { return i.name == name }, name))
		}
	}
	for _, key := range keys {
		if e := all[key].Endpoint; e.Name == "" && len(expectedAddresses(e)) > 0 {
			place(key, find(func(i *hostInterface) bool { return holdsAny(i, e) }, fmt.Sprintf("net%d", len(interfaces))))
		}
	}
	for _, key := range keys {
		i := at[key]
		if i == nil {
			continue
		}
		governs := slices.IndexFunc(keys, func(k calico.HostEndpointKey) bool {
			return at[k] == i || all[k].Endpoint.Name == "" && holdsAny(i, all[k].Endpoint)
		})
		w.places[key.Endpoint] = judge.AtHost(keys[governs])
		w.interfaces[judge.AtHost(keys[governs])] = i
	}
}

func expectedAddresses(e *calico.HostEndpoint) []netip.Addr {
	return slices.Concat(e.ExpectedIPv4Addrs, e.ExpectedIPv6Addrs)
}

func holdsAny(i *hostInterface, e *calico.HostEndpoint) bool {
	return slices.ContainsFunc(expectedAddresses(e), func(a netip.Addr) bool { return slices.Contains(i.addresses, a) })
}

// judge calculates the verdicts on the packets.
func (w *policyWorld) judge(packets []policyPacket) []judge.Verdict {
	verdicts := make([]judge.Verdict, len(packets))
	for i, p := range packets {
		verdicts[i] = judge.Judge(&w.rules, w.config, w.placed(&p))
	}
	return verdicts
}

// placed is the packet between the places that it names.
func (w *policyWorld) placed(p *policyPacket) judge.Packet {
	q := p.packet
	q.From, q.To = w.places[p.from], w.places[p.to]
	return q
}
