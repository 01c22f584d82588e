// Package nft keeps the rules of Calico's policy on this host in nftables: a table of family inet
// and a small one of family arp. Both are called heddle and belong to Heddle alone.
//
// A [Table] takes the desired state ([Table.Update], [Table.Configure], [Table.Surround]) and
// applies its changes with [Table.Commit] in one atomic batch. It adopts what an earlier process
// left behind, as far as that is right. [Table.Mend] reads the tables back and repairs them;
// [Kernel.Watch] reports that another program has changed them. [Cleanup] removes them.
//
// The way of a packet (priorities in brackets):
//
//	prerouting [-300]  sources of workloads; untracked policy of host endpoints
//	prerouting [-150]  pre-DNAT policy of host endpoints
//	prerouting [-100]  translation of floating addresses and metadata
//	input      [0]     peers of tunnels; workloads to this host; host endpoints, inbound
//	forward    [0]     source: outbound policy of workloads, inbound of host endpoints
//	forward    [1]     destination: inbound policy of workloads, outbound of host endpoints
//	output     [-300]  untracked policy of host endpoints
//	output     [0]     peers of tunnels; host to workloads; host endpoints, outbound
//	postrouting [100]  hairpins, masquerade
//
// In each, a map from the name of the interface leads to the chain that judges, so that the number
// of interfaces costs nothing. That chain jumps to those of policies and profiles, which all
// endpoints share. Forward has two base chains, so that a packet accepted by the first still meets
// the second. Other tables of the host may drop what ours accept.
//
// Two bits of a packet's mark are ours: 0x01000000, early policy has accepted the packet, and
// 0x02000000, a rule has sent it to the next tier. Both are cleared before use, and touched only
// where there are such policies.
package nft

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"heddle/internal/policy/calc"
)

// Table brings nftables to the desired state. Its methods may be called from any goroutine. Update,
// Configure and Surround only mark; Commit acts.
type Table struct {
	backend Backend
	log     *slog.Logger

	mu    sync.Mutex
	rules ruleset
	have  have
}

// have is the state of the kernel as far as known.
type have struct {
	known      bool // false: read first
	certain    bool // no other program has changed nftables since generation
	generation uint32
	chains     map[ref]chainSum
	sets       map[ref]string // shapes
	counters   map[ref]bool   // of rules
}

// New returns a Table for the settings alone, under which interfaces of unknown workloads pass no
// traffic. It changes nothing before the first Commit.
func New(b Backend, s Settings, log *slog.Logger) (*Table, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Table{backend: b, log: log, rules: newRuleset(s)}, nil
}

// Configure replaces the settings.
func (t *Table) Configure(s Settings) error {
	if err := s.check(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rules.in.settings = s
	t.rules.in.dirty.fixed, t.rules.in.dirty.all = true, true
	for k := range t.rules.used {
		t.rules.in.dirty.lists[k] = true // the default log prefix may be another
	}
	return nil
}

// Surround replaces the surroundings, which must not be changed after. An equal value costs little.
func (t *Table) Surround(s Surroundings) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rules.in.surround(s)
}

// Update applies changes of the calculation, which must not be changed after.
func (t *Table) Update(c *calc.Changes) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, change := range c.Sets {
		t.rules.out.updateSet(id, change)
	}
	for id, list := range c.Lists {
		t.rules.updateList(id, list)
	}
	for key, w := range c.Workloads {
		t.rules.in.updateWorkload(key, w)
	}
	for key, h := range c.Hosts {
		t.rules.in.updateHost(key, h)
	}
}

// Commit applies what was marked, in one atomic batch. After an error the old state is in force or
// the new one; the next Commit or Mend finds out.
func (t *Table) Commit(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rules.settle()
	if !t.have.known {
		_, err := t.mend(ctx)
		return err
	}
	err := t.carryOut(ctx, t.plan(nil))
	if err == nil || ctx.Err() != nil {
		return err
	}
	// Somebody may have changed what was there. The same is tried once more from what is there now.
	t.log.Warn("nftables refused a change; comparing all", "err", err)
	if _, again := t.mend(ctx); again != nil {
		return again
	}
	return nil
}

// Mend reads back our tables, and repairs what differs from the desired state. It returns the
// operations that were needed, one a line. It is cheap if nftables has not changed.
func (t *Table) Mend(ctx context.Context) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rules.settle()
	if t.have.known && t.have.certain {
		now, err := t.backend.generation(ctx)
		if err != nil {
			return "", err
		}
		if now == t.have.generation {
			return "", t.carryOut(ctx, t.plan(nil))
		}
	}
	return t.mend(ctx)
}

func (t *Table) mend(ctx context.Context) (string, error) {
	found, err := t.backend.read(ctx)
	if err != nil {
		t.have.known = false
		return "", err
	}
	if found.withoutARP != t.rules.features.withoutARP {
		t.log.Warn("this kernel has no nftables of family arp: whom workloads say they are in ARP is not checked")
		t.rules.features.withoutARP, t.rules.in.dirty.fixed, t.rules.in.dirty.all = found.withoutARP, true, true
		t.rules.settle()
	}
	t.have.generation, t.have.certain = found.generation, true
	p := t.plan(found)
	if err := t.carryOut(ctx, p); err != nil {
		return "", err
	}
	return p.String(), nil
}

// carryOut commits a plan and records its result.
func (t *Table) carryOut(ctx context.Context, p plan) error {
	parts := p.parts()
	if err := t.backend.commit(ctx, parts...); err != nil {
		t.have.known = false
		return err
	}
	if len(parts) > 0 {
		now, err := t.backend.generation(ctx)
		if err != nil {
			t.have.known = false
			return err
		}
		t.have.certain = t.have.certain && now == t.have.generation+uint32(len(parts))
		t.have.generation = now
	}
	p.done(t)
	return nil
}

// RuleCount is the number of packets that a rule of a policy or profile has matched.
type RuleCount struct {
	List   calc.ListID
	Rule   int    // index in the stored list
	Action string // calico.Allow, Deny, Log or NextTier
	Counter
}

// Counts holds what the rules have counted since they were made.
type Counts struct {
	Refused map[string]Counter // by reason
	ByRule  Counter            // of those refused by policy, the ones that a rule denies
	// Rules has those of policies and profiles; none if there are more than are counted.
	Rules []RuleCount
	// Accepted reports whether what policy refuses is let pass (DropActionOverride).
	Accepted bool
}

// Counts reads all counters in one dump. A rule that is used before connection tracking or
// translation also is counted there alone.
func (t *Table) Counts(ctx context.Context) (*Counts, error) {
	all, err := t.backend.counters(ctx)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	onDrop := t.rules.in.settings.OnDrop
	c := &Counts{Refused: map[string]Counter{}, ByRule: all[deniedByRule], Accepted: onDrop == Accept || onDrop == LogAndAccept}
	for name, counter := range all {
		if reason, ok := strings.CutPrefix(name, "refused-"); ok {
			c.Refused[reason] = counter
		}
	}
	for k := range t.rules.used {
		list := t.rules.in.lists[k.list].List
		for i := range rulesIn(list) {
			r := &list.Rules[i]
			if counter, ok := all[k.counterOf(r.Index)]; ok {
				c.Rules = append(c.Rules, RuleCount{k.list, r.Index, r.Action, counter})
			}
		}
	}
	return c, nil
}

// String prints the desired state as nft would list it.
func (t *Table) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rules.settle()
	sets, chains := map[ref]filledSet{}, map[ref]chain{}
	for r, w := range t.rules.out.allSets() {
		sets[r] = filledSet{w.shape(), slices.Collect(w.all())}
	}
	for r, c := range t.rules.out.chains {
		chains[r] = chain{ref: r, hook: c.hook, rules: c.rules()}
	}
	f := t.rules.features
	return printTables(f.families(), sets, t.rules.counters(), chains)
}
