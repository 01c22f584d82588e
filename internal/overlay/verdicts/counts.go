// Package verdicts counts a host's packets by what was decided about them, where and by which rule,
// and keeps its flow log. Nothing here waits for a reader.
package verdicts

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"heddle/internal/topology/flow"
)

// mostCounters bounds the counters of a host. Packets of further ports and rules are counted
// together, by verdict and code.
const mostCounters = 200_000

// Key names a counter.
type Key struct {
	port, device uint32 // ids of places; device is 0 if the port itself decided
	rule         uint32
	ingress      bool // toward the port's machine
	verdict      flow.Verdict
	code         flow.Code
}

// rule is a rule in its chain.
type rule struct{ chain, id string }

// total is packets and their bytes with the Ethernet header.
type total struct{ packets, bytes uint64 }

// Counts holds the counters of the present agent's life.
type Counts struct {
	isPort func(id string) bool // of a network
	since  time.Time
	most   int // counters

	mu        sync.Mutex
	places    names[string] // ports, and devices that drop packets
	rules     names[rule]
	totals    map[Key]total
	verdicts  [flow.Postponed + 1]uint64 // decisions
	unsettled uint64
}

// NewCounts returns counters that begin at a time. isPort reports whether an id is that of a
// network's port.
func NewCounts(since time.Time, isPort func(id string) bool) *Counts {
	return &Counts{isPort: isPort, since: since, most: mostCounters, places: newNames[string](), rules: newNames[rule](), totals: map[Key]total{}}
}

// names numbers values from 1 on; 0 is the zero value's.
type names[T comparable] struct {
	numbers map[T]uint32
	values  []T
}

func newNames[T comparable]() names[T] {
	var none T
	return names[T]{map[T]uint32{none: 0}, []T{none}}
}

func (n *names[T]) number(v T) uint32 {
	i, known := n.numbers[v]
	if !known {
		i = uint32(len(n.values))
		n.numbers[v] = i
		n.values = append(n.values, v)
	}
	return i
}

// Of appends to keys the counters of packets that came in by a port and get a decision.
func (c *Counts) Of(keys []Key, port string, d *flow.Decision) []Key {
	var drop *flow.Dropped
	atPort := false // other than the one by which the packet came
	if d.Verdict == flow.Drop || d.Verdict == flow.ErrorDrop {
		if len(d.Drops) == 0 {
			return keys
		}
		drop = &d.Drops[0]
		atPort = drop.Device != port && c.isPort(drop.Device)
	}
	if drop == nil && len(d.Rulings) == 0 {
		return keys
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range d.Rulings {
		r := &d.Rulings[i]
		keys = append(keys, c.key(Key{verdict: flow.Forward, ingress: r.Ingress}, r.PortID, "", rule{r.Chain, r.Rule}))
	}
	if drop == nil {
		return keys
	}
	device := ""
	switch {
	case atPort:
		port = drop.Device
	case drop.Device != port:
		device = drop.Device
	}
	return append(keys, c.key(Key{verdict: d.Verdict, code: drop.Code, ingress: atPort}, port, device, rule{drop.Chain, drop.Rule}))
}

// key completes a counter's key, or leaves it as that of the rest if there are too many. It needs
// the lock.
func (c *Counts) key(k Key, port, device string, by rule) Key {
	full := len(c.totals) >= c.most
	if full && !c.places.has(port, device) || full && !c.rules.has(by) {
		return Key{verdict: k.verdict, code: k.code}
	}
	whole := k
	whole.port, whole.device, whole.rule = c.places.number(port), c.places.number(device), c.rules.number(by)
	if _, known := c.totals[whole]; !known {
		if full {
			return Key{verdict: k.verdict, code: k.code}
		}
		c.totals[whole] = total{}
	}
	return whole
}

func (n *names[T]) has(values ...T) bool {
	return !slices.ContainsFunc(values, func(v T) bool { _, known := n.numbers[v]; return !known })
}

// Decided counts a decision about a packet of so many bytes, and the packet itself by keys.
func (c *Counts) Decided(v flow.Verdict, keys []Key, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.verdicts[v]++
	c.add(keys, total{1, uint64(bytes)})
}

// Add counts packets that a flow has carried.
func (c *Counts) Add(keys []Key, packets, bytes uint64) {
	if len(keys) == 0 || packets == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.add(keys, total{packets, bytes})
}

func (c *Counts) add(keys []Key, more total) {
	for _, k := range keys {
		t := c.totals[k]
		c.totals[k] = total{t.packets + more.packets, t.bytes + more.bytes}
	}
}

// Unsettled counts a flow that has gone before its last packets could be counted.
func (c *Counts) Unsettled() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unsettled++
}

// Totals returns the packets dropped by code, and the decisions by verdict.
func (c *Counts) Totals() (dropped map[flow.Code]uint64, verdicts [flow.Postponed + 1]uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	dropped = map[flow.Code]uint64{}
	for k, t := range c.totals {
		if k.code != 0 {
			dropped[k.code] += t.packets
		}
	}
	return dropped, c.verdicts
}

// Select answers a request. The counters with most packets come first, at most so many.
func (c *Counts) Select(q *flow.CountersRequest, most int) *flow.CountersAnswer {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &flow.CountersAnswer{Since: c.since, Unsettled: c.unsettled, Counters: []flow.Counter{}}
	if q.Rules {
		a.Counters, a.Asked = c.rulesUsed(), c.portsAsked()
	} else {
		for k, t := range c.totals {
			if t.packets > 0 && (q.PortID == "" || c.places.values[k.port] == q.PortID) && (q.Code == 0 || k.code == q.Code) && k.code != 0 {
				a.Counters = append(a.Counters, c.counter(k, t))
			}
		}
	}
	slices.SortFunc(a.Counters, compareCounters)
	if len(a.Counters) > most {
		a.Left = len(a.Counters) - most
		a.Counters = a.Counters[:most]
	}
	return a
}

func compareCounters(x, y flow.Counter) int {
	return cmp.Or(-cmp.Compare(x.Packets, y.Packets), cmp.Compare(x.PortID, y.PortID), cmp.Compare(x.Rule, y.Rule), cmp.Compare(x.Code, y.Code),
		cmp.Compare(x.Direction, y.Direction), cmp.Compare(x.Device, y.Device))
}

func (c *Counts) counter(k Key, t total) flow.Counter {
	by := c.rules.values[k.rule]
	v := flow.Counter{PortID: c.places.values[k.port], Direction: direction(k.ingress), Device: c.places.values[k.device],
		Code: k.code, Chain: by.chain, Rule: by.id, Packets: t.packets, Bytes: t.bytes}
	if k.port == 0 {
		v.Direction = ""
	}
	return v
}

func direction(ingress bool) string {
	if ingress {
		return flow.Ingress
	}
	return flow.Egress
}

// rulesUsed returns a counter for each rule that has decided. It needs the lock.
func (c *Counts) rulesUsed() []flow.Counter {
	sums := map[uint32]total{}
	for k, t := range c.totals {
		if k.rule != 0 && t.packets > 0 {
			s := sums[k.rule]
			sums[k.rule] = total{s.packets + t.packets, s.bytes + t.bytes}
		}
	}
	all := make([]flow.Counter, 0, len(sums))
	for number, t := range sums {
		by := c.rules.values[number]
		all = append(all, flow.Counter{Chain: by.chain, Rule: by.id, Packets: t.packets, Bytes: t.bytes})
	}
	return all
}

// portsAsked returns the ports to whose rules packets have come, other than replies. It needs the
// lock.
func (c *Counts) portsAsked() (all []flow.PortAsked) {
	asked := map[flow.PortAsked]bool{}
	for k, t := range c.totals {
		if t.packets > 0 && k.rule != 0 && k.port != 0 {
			asked[flow.PortAsked{PortID: c.places.values[k.port], Direction: direction(k.ingress)}] = true
		}
	}
	for p := range asked {
		all = append(all, p)
	}
	slices.SortFunc(all, func(x, y flow.PortAsked) int {
		return cmp.Or(cmp.Compare(x.PortID, y.PortID), cmp.Compare(x.Direction, y.Direction))
	})
	return all
}
