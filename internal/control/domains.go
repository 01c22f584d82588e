package control

import (
	"context"
	"log/slog"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/topology"
)

// Domains gives the DHCP of all virtual networks the domain of the server that starts. The names in
// endpoints of routed networks are [Keys]'s. It is a task.
type Domains struct {
	task.Part
	service *Service
	objects *replica.Replica
	log     *slog.Logger
	marked  *marks[struct{}] // ids of subnets
}

// renameAtOnce bounds the subnets of one transaction.
const renameAtOnce = 64

// NewDomains returns the task. objects is the service's replica.
func NewDomains(s *Service, objects *replica.Replica, log *slog.Logger) *Domains {
	return &Domains{Part: task.NewPart("domains"), service: s, objects: objects, log: log, marked: newMarks[struct{}]()}
}

// Run compares the domains of all subnets once, and writes those that differ.
func (d *Domains) Run(ctx context.Context) error {
	d.BeReady()
	snap, ok := fresh(ctx, d.objects)
	if !ok {
		return nil
	}
	r := records.Over(snap)
	differ := map[string]struct{}{}
	for s := range schema.Subnets.All(r) {
		if d.service.otherDomain(r, s.ID) {
			differ[s.ID] = struct{}{}
		}
	}
	d.marked.addAll(differ)
	d.marked.follow(ctx, d.log, "cannot give subnets the server's domain", d.pass)
	return nil
}

// fresh waits for a snapshot that is as new as the store. It is false once ctx ends.
func fresh(ctx context.Context, objects *replica.Replica) (*snapshot.Snapshot, bool) {
	snap, err := objects.Fresh(ctx)
	for err != nil {
		if !task.Pause(ctx, leastPause) {
			return nil, false
		}
		snap, err = objects.Fresh(ctx)
	}
	return snap, true
}

// otherDomain reports whether the DHCP of a subnet has another domain than the server's.
func (s *Service) otherDomain(r records.Reader, subnet string) bool {
	b, ok := schema.Bundles.Peek(r, schema.BundleID(topology.Owner{Kind: kindSubnet, ID: subnet}))
	return ok && (slices.ContainsFunc(b.Bundle.Dhcps, func(d topology.Dhcp) bool { return d.DomainName != s.opts.DNSDomain }) ||
		slices.ContainsFunc(b.Bundle.DhcpV6s, func(d topology.DhcpV6) bool { return d.DomainName != s.opts.DNSDomain }))
}

// pass writes the marked subnets and returns the last error. Those that failed stay marked.
func (d *Domains) pass(ctx context.Context) (last error) {
	taken := d.marked.take()
	ids := make([]string, 0, len(taken))
	for id := range taken {
		ids = append(ids, id)
	}
	for part := range slices.Chunk(ids, renameAtOnce) {
		if err := d.service.rename(ctx, part); err != nil {
			last = err
			for _, id := range part {
				d.marked.keep(id, struct{}{})
			}
		}
	}
	return last
}

// rename gives the DHCP of subnets the server's domain. Those that go meanwhile are left out.
func (s *Service) rename(ctx context.Context, subnets []string) error {
	return perform(ctx, s, neutron.Caller{}, func(o *operation) error {
		for _, id := range subnets {
			sub, err := find(schema.Subnets, o.tx, id)
			if err != nil {
				return err
			}
			if sub == nil || o.pending(workDeleteNetwork, sub.NetworkID) || !o.otherDomain(o.tx, id) {
				continue
			}
			n, err := schema.Networks.Need(o.tx, sub.NetworkID)
			if err != nil {
				return err
			}
			if err := o.deriveSubnet(sub, n); err != nil {
				return err
			}
		}
		return nil
	})
}
