package control

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/topology"
)

// Arrivals activates inactive bindings of ports whose machines run on the bindings' hosts, as these
// report (docs/decisions/0045-machines-announce-themselves.md). It is a task, and every server may
// run one.
type Arrivals struct {
	task.Part
	service *Service
	log     *slog.Logger
	arrived *marks[topology.PortArrival] // by their ids
}

// NewArrivals returns the task, which follows the service's replica from when that runs.
func NewArrivals(s *Service, r *replica.Replica, log *slog.Logger) *Arrivals {
	a := &Arrivals{Part: task.NewPart("arrivals"), service: s, log: log, arrived: newMarks[topology.PortArrival]()}
	r.OnChange(a.notice)
	return a
}

func (a *Arrivals) notice(u snapshot.Update) {
	for _, c := range u.Changed {
		if now, ok := c.New.(*topology.PortArrival); ok {
			a.arrived.add(schema.PortArrivals.ID(now), *now)
		}
	}
}

// Run activates bindings until ctx ends.
func (a *Arrivals) Run(ctx context.Context) error {
	a.BeReady()
	a.arrived.follow(ctx, a.log, "cannot activate bindings of ports", a.pass)
	return nil
}

// pass activates the bindings of the machines that have arrived. It returns the last error; what
// failed stays marked.
func (a *Arrivals) pass(ctx context.Context) error {
	var last error
	for id, arrival := range a.arrived.take() {
		host, err := a.service.activateArrived(ctx, arrival)
		switch {
		case err != nil:
			last = fmt.Errorf("port %s, host %s: %w", arrival.PortID, arrival.HostID, err)
			a.arrived.keep(id, arrival)
		case host != "":
			a.log.Info("activated binding", "port", arrival.PortID, "host", host, "id", arrival.HostID)
		}
	}
	return last
}

// activateArrived makes the binding of a port to the host that its machine runs on the active one,
// if that is inactive and the host still reports the machine. It returns the host's name, "" if it
// was not.
func (s *Service) activateArrived(ctx context.Context, at topology.PortArrival) (host string, err error) {
	return transact(ctx, s, neutron.Caller{}, func(o *operation) (string, error) {
		_, reported := schema.PortArrivals.Peek(o.tx, schema.PortArrivals.ID(&at))
		old, there := schema.Ports.Peek(o.tx, at.PortID)
		if !reported || !there {
			return "", nil
		}
		i := slices.IndexFunc(old.OtherBindings, func(b neutron.PortBinding) bool { return b.BoundHostID == at.HostID && !b.Deactivated })
		if i < 0 {
			return "", nil
		}
		n, err := schema.Networks.Need(o.tx, old.NetworkID)
		if err != nil {
			return "", err
		}
		p := *old
		p.OtherBindings = slices.Clone(old.OtherBindings)
		if _, err := (portBindings{s.ports, p.ID}).exchange(o, &p, i); err != nil {
			return "", err
		}
		o.bump(&p.Standard)
		return p.HostID, o.putPort(&p, n)
	})
}
