package control

import (
	"context"
	"iter"
	"log/slog"
	"maps"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/topology"
)

// Bindings keeps ports bound to existing hosts: it binds a port when its host appears, and marks it
// binding_failed when the host is gone. It is a task.
//
//	replica ──a host or a port changed──▶ marks ports ──▶ Run ──some ports a transaction──▶ store
//
// It compares states, not events, so every server may run one: the second finds nothing to do. A
// port that was bound while its host was being deleted is found by its own change.
type Bindings struct {
	task.Part
	service *Service
	log     *slog.Logger
	marked  *marks[struct{}] // ids of ports
}

// rebindAtOnce bounds the ports of one transaction: each is a few operations and some kilobytes.
const rebindAtOnce = 64

// NewBindings returns the task, which follows the service's replica from when that runs.
func NewBindings(s *Service, r *replica.Replica, log *slog.Logger) *Bindings {
	b := &Bindings{Part: task.NewPart("bindings"), service: s, log: log, marked: newMarks[struct{}]()}
	r.OnChange(b.notice)
	return b
}

// notice marks the ports that a change has left with a binding that is not true.
func (b *Bindings) notice(u snapshot.Update) {
	r := records.Over(u.Next)
	for _, c := range u.Changed {
		switch c.Source {
		case schema.Ports.Name():
			if p, ok := c.New.(*neutron.Port); ok {
				b.mark(r, p)
				b.markSubports(r, p)
			}
		case schema.Hosts.Name():
			for p := range portsOfHost(r, c) {
				b.mark(r, p)
			}
		}
	}
}

// portsOfHost yields the ports that a host's coming, going or renaming concerns: those bound to it,
// and those that name it. A name that was ambiguous before may be clear now.
func portsOfHost(r records.Reader, c snapshot.Changed) iter.Seq[*neutron.Port] {
	return func(yield func(*neutron.Port) bool) {
		before, was := c.Old.(*topology.Host)
		after, is := c.New.(*topology.Host)
		if was && is && before.Name == after.Name {
			return
		}
		var named []iter.Seq[*neutron.Port]
		if was {
			named = append(named, schema.Ports.By(r, "bound_host", c.ID), schema.Ports.By(r, "host", before.Name))
		}
		if is {
			named = append(named, schema.Ports.By(r, "host", after.Name))
		}
		for _, ports := range named {
			for p := range ports {
				if !yield(p) {
					return
				}
			}
		}
	}
}

// markSubports marks those that a port's change has left behind it.
func (b *Bindings) markSubports(r records.Reader, parent *neutron.Port) {
	if parent.TrunkID == "" {
		return
	}
	for sub := range schema.Subports.By(r, "trunk", parent.TrunkID) {
		if p, ok := schema.Ports.Peek(r, sub.PortID); ok {
			b.mark(r, p)
		}
	}
}

func (b *Bindings) mark(r records.Reader, p *neutron.Port) {
	if misbound(r, p) {
		b.marked.add(p.ID, struct{}{})
	}
}

// misbound reports whether a port is bound to a host that is gone or has another name, or not bound
// to one that is there and has its interface free; of a subport, whether its parent's binding is
// another.
func misbound(r records.Reader, p *neutron.Port) bool {
	if p.SubportVLAN != 0 {
		parent, ok := parentOf(r, p)
		return ok && !boundLike(p, parent)
	}
	if p.BoundHostID != "" {
		h, there := schema.Hosts.Peek(r, p.BoundHostID)
		return !there || h.Name != p.HostID
	}
	name := wantedInterface(p)
	if name == "" {
		return false
	}
	h, err := schema.HostByName(r, p.HostID)
	return err == nil && interfaceFree(r, h.ID, name)
}

func interfaceFree(r records.Reader, hostID, name string) bool {
	return schema.Ports.CountBy(r, "interface", schema.PortInterface(hostID, name)) == 0
}

// Run binds what is marked until ctx ends.
func (b *Bindings) Run(ctx context.Context) error {
	b.BeReady()
	b.marked.follow(ctx, b.log, "cannot rebind ports", b.pass)
	return nil
}

// pass binds marked ports and returns the last error. Ports that failed stay marked.
func (b *Bindings) pass(ctx context.Context) error {
	var last error
	changed := 0
	for part := range slices.Chunk(slices.Sorted(maps.Keys(b.marked.take())), rebindAtOnce) {
		n, err := b.service.rebind(ctx, part)
		if err != nil {
			last = err
			for _, id := range part {
				b.marked.keep(id, struct{}{})
			}
		}
		changed += n
	}
	if changed > 0 {
		b.log.Info("rebound ports after host changes", "ports", changed)
	}
	return last
}

// Rebind corrects the bindings of the ports that are bound to a host or name it, for callers that
// change hosts and do not run [Bindings].
func (s *Service) Rebind(ctx context.Context, h *topology.Host) error {
	snap, err := s.view(ctx)
	if err != nil {
		return err
	}
	var ids []string
	for p := range union(schema.Ports, schema.Ports.By(snap, "bound_host", h.ID), schema.Ports.By(snap, "host", h.Name)) {
		if misbound(snap, p) {
			ids = append(ids, p.ID)
		}
	}
	for part := range slices.Chunk(ids, rebindAtOnce) {
		if _, err := s.rebind(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// rebind makes the bindings of ports true in one transaction, and returns how many were not.
func (s *Service) rebind(ctx context.Context, ids []string) (changed int, err error) {
	return transact(ctx, s, neutron.Caller{}, func(o *operation) (int, error) {
		n := 0
		for _, id := range ids {
			p, err := schema.Ports.Get(o.tx, id)
			if err != nil || !misbound(o.tx, p) {
				continue // deleted, or another server was faster
			}
			if err := o.rebindPort(p); err != nil {
				return 0, err
			}
			n++
		}
		return n, nil
	})
}

// rebindPort binds a port to the host it names now. Where a client would be told that another port
// has the interface, the binding fails.
func (o *operation) rebindPort(old *neutron.Port) error {
	n, err := schema.Networks.Need(o.tx, old.NetworkID)
	if err != nil {
		return err
	}
	p := *old
	if err := o.settleHost(&p); err != nil {
		return err
	}
	if p.SubportVLAN == 0 && p.BoundHostID != "" && !interfaceFree(o.tx, p.BoundHostID, p.InterfaceName) {
		p.BoundHostID, p.InterfaceName = "", ""
	}
	o.bump(&p.Standard)
	return o.putPort(&p, n)
}
