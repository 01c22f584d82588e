package services

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"heddle/internal/services/plan"
	"heddle/internal/store"
	"heddle/internal/store/presence"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/telemetry"
	"heddle/internal/topology"
)

// schedulerKey is held by the server that schedules.
const schedulerKey = schema.Root + "scheduler"

const leastPause, mostPause = time.Second, 30 * time.Second

// SchedulerOptions of a Scheduler.
type SchedulerOptions struct {
	DB      *records.DB
	Store   store.Store
	Objects *replica.Replica // of schema's tables
	TTL     time.Duration    // after which another server schedules when this one is gone; 0 = 5 s
	Log     *slog.Logger     // default: none
}

// Scheduler chooses the hosts of service containers. It is a task; of all servers that run one, one
// is elected. It compares states, so what it has missed is made up for.
type Scheduler struct {
	task.Part
	opts SchedulerOptions
	log  *slog.Logger
	wake task.Notice

	mu         sync.Mutex
	containers map[string]scheduled
	places     map[string]string         // container → its host
	count      map[string]int            // host → containers there
	groups     map[string]map[string]int // port group → host → bound ports
	// unsettled has the containers that the next pass looks at: those that have changed, and those
	// without a host. With allUnsettled it looks at all, since what hosts there are has changed.
	unsettled    map[string]bool
	allUnsettled bool
	ended        endedRouters
	homeless     int
	moves        int

	endedNext *task.Alarm // when the next of ended is over; of Run
}

// scheduled is a container with the port group whose hosts may run it, "" for any host.
type scheduled struct{ kind, portGroup string }

// NewScheduler returns the task, which follows the replica from when that runs.
func NewScheduler(o SchedulerOptions) *Scheduler {
	o.TTL, o.Log = cmp.Or(o.TTL, 5*time.Second), cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	s := &Scheduler{Part: task.NewPart("scheduler"), opts: o, log: o.Log, wake: task.NewNotice(),
		containers: map[string]scheduled{}, places: map[string]string{}, count: map[string]int{},
		groups: map[string]map[string]int{}, unsettled: map[string]bool{}, ended: endedRouters{}, endedNext: task.NewAlarm()}
	o.Objects.OnChange(s.notice)
	return s
}

// notice follows what containers and groups there are, and wakes the task.
func (s *Scheduler) notice(u snapshot.Update) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range u.Changed {
		switch c.Source {
		case schema.Bundles.Name():
			if ended := s.ended.changed(c); s.bundleChanged(c) || ended {
				s.wake.Give()
			}
		case schema.ContainerBindings.Name():
			s.bindingChanged(c)
			s.wake.Give()
		case schema.HostStates.Name(), schema.ContainerHosts.Name():
			s.allUnsettled = true
			s.wake.Give()
		}
	}
}

// bindingChanged follows the place of a container.
func (s *Scheduler) bindingChanged(c snapshot.Changed) {
	if old, ok := c.Old.(*topology.ContainerBinding); ok {
		delete(s.places, old.ContainerID)
		if s.count[old.HostID]--; s.count[old.HostID] == 0 {
			delete(s.count, old.HostID)
		}
		s.unsettled[old.ContainerID] = true
	}
	if now, ok := c.New.(*topology.ContainerBinding); ok {
		s.places[now.ContainerID] = now.HostID
		s.count[now.HostID]++
		s.unsettled[now.ContainerID] = true
	}
}

// bundleChanged reports whether a change of a bundle concerns containers.
func (s *Scheduler) bundleChanged(c snapshot.Changed) (concerns bool) {
	for by, record := range map[int]any{-1: c.Old, 1: c.New} {
		b, ok := record.(*schema.Bundle)
		if !ok {
			continue
		}
		for i := range b.Bundle.Ports {
			if p := &b.Bundle.Ports[i]; p.Exterior() {
				if s.countGroups(p, by) {
					concerns, s.allUnsettled = true, true
				}
			}
		}
	}
	if old, ok := c.Old.(*schema.Bundle); ok {
		for i := range old.Bundle.ServiceContainers {
			id := old.Bundle.ServiceContainers[i].ID
			delete(s.containers, id)
			concerns, s.unsettled[id] = true, true
		}
	}
	if now, ok := c.New.(*schema.Bundle); ok {
		for i := range now.Bundle.ServiceContainers {
			sc := &now.Bundle.ServiceContainers[i]
			s.containers[sc.ID] = scheduled{sc.ServiceType, portGroupOf(&now.Bundle, sc.ServiceGroupID)}
			concerns, s.unsettled[sc.ID] = true, true
		}
	}
	return concerns
}

// portGroupOf returns the port group of a group of containers, or "".
func portGroupOf(b *topology.Bundle, id string) string {
	for i := range b.ServiceContainerGroups {
		if b.ServiceContainerGroups[i].ID == id {
			return b.ServiceContainerGroups[i].PortGroupID
		}
	}
	return ""
}

// countGroups counts a bound port in its groups.
func (s *Scheduler) countGroups(p *topology.Port, by int) bool {
	for _, id := range p.PortGroupIDs {
		if s.groups[id] == nil {
			s.groups[id] = map[string]int{}
		}
		if s.groups[id][p.HostID] += by; s.groups[id][p.HostID] == 0 {
			delete(s.groups[id], p.HostID)
		}
		if len(s.groups[id]) == 0 {
			delete(s.groups, id)
		}
	}
	return len(p.PortGroupIDs) > 0
}

// Metrics returns the state of scheduling.
func (s *Scheduler) Metrics() []telemetry.Value {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []telemetry.Value{
		telemetry.Gauge.Of("heddle_service_containers", "Service containers of load balancers and routers.", len(s.containers)),
		telemetry.Gauge.Of("heddle_service_containers_unplaced", "Service containers for which no host is eligible; on the server that schedules.", s.homeless),
		telemetry.Counter.Of("heddle_service_container_moves_total", "Times that this server has given a service container another host.", s.moves),
	}
}

// Run schedules, while this server is elected, until ctx ends.
func (s *Scheduler) Run(ctx context.Context) error {
	s.BeReady()
	backoff := task.Backoff{Least: leastPause, Most: mostPause}
	for ctx.Err() == nil {
		err := presence.Campaign(ctx, s.opts.Store, schedulerKey, s.opts.TTL, func(ctx context.Context, _ int64) error {
			backoff.Reset()
			return s.lead(ctx)
		})
		if ctx.Err() != nil {
			return nil
		}
		s.log.Warn("stopped scheduling service containers", "err", err)
		backoff.Pause(ctx)
	}
	return nil
}

// lead schedules until ctx ends, or the store refuses.
func (s *Scheduler) lead(ctx context.Context) error {
	s.mu.Lock()
	s.allUnsettled = true // whatever an earlier leader has left
	s.mu.Unlock()
	defer s.endedNext.Set(time.Time{})
	for {
		if err := s.pass(ctx); err != nil {
			return err
		}
		if err := s.removeEnded(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.wake:
		case <-s.endedNext.C:
		}
	}
}

// pass moves the containers that have to be elsewhere. A stale leader does no harm: each move is a
// transaction that rests on the container's place.
func (s *Scheduler) pass(ctx context.Context) error {
	snap, err := s.opts.Objects.Fresh(ctx)
	if err != nil {
		return err
	}
	r := records.Over(snap)
	hosts := liveHosts(r)
	containers, others := s.takeUnsettled()
	homeless := map[string]bool{}
	for _, c := range containers {
		if c.Host == "" {
			homeless[c.ID] = true
		}
	}
	for _, m := range plan.Place(hosts, containers, others) {
		moved, err := s.move(ctx, m)
		if err != nil {
			return fmt.Errorf("service container %s: %w", m.ContainerID, err)
		}
		if !moved {
			continue // another writer was faster, and wakes us
		}
		if delete(homeless, m.ContainerID); m.To == "" {
			homeless[m.ContainerID] = true
		}
		s.log.Info("placed service container", "container", m.ContainerID, "from", schema.HostName(r, m.From), "host", schema.HostName(r, m.To))
		s.mu.Lock()
		s.moves++
		s.mu.Unlock()
	}
	s.mu.Lock()
	s.homeless = len(homeless)
	maps.Copy(s.unsettled, homeless)
	s.mu.Unlock()
	return nil
}

// liveHosts returns the live hosts that run containers.
func liveHosts(r records.Reader) (hosts []plan.Host) {
	for h := range schema.ContainerHosts.All(r) {
		if _, alive := schema.HostStates.Peek(r, h.HostID); alive {
			hosts = append(hosts, plan.Host{ID: h.HostID, Weight: min(h.Weight, plan.MaxWeight), Limit: h.Limit, Able: set(h.Kinds), Unable: set(h.Lacks)})
		}
	}
	return hosts
}

func set(names []string) map[string]bool {
	s := make(map[string]bool, len(names))
	for _, n := range names {
		s[n] = true
	}
	return s
}

// takeUnsettled returns the containers that a pass looks at, with their places, and how many others
// each host has.
func (s *Scheduler) takeUnsettled() (all []plan.Placed, others map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.allUnsettled {
		for id := range s.containers {
			s.unsettled[id] = true
		}
	}
	others = maps.Clone(s.count)
	for id := range s.unsettled {
		if host, ok := s.places[id]; ok {
			others[host]--
		}
		c, ok := s.containers[id]
		if !ok {
			continue // deleted
		}
		p := plan.Placed{ID: id, Kind: c.kind, Among: map[string]bool{}, Host: s.places[id]}
		for host := range s.groups[c.portGroup] {
			p.Among[host] = true
		}
		all = append(all, p)
	}
	s.unsettled, s.allUnsettled = map[string]bool{}, false
	return all, others
}

// errMoved reports that a container is not where the decision found it.
var errMoved = errors.New("the container has moved")

// move gives a container another host, and binds its port there, in one transaction.
func (s *Scheduler) move(ctx context.Context, m plan.Move) (moved bool, err error) {
	_, err = s.opts.DB.Update(ctx, func(tx *records.Tx) error {
		old, err := schema.Bundles.Get(tx, schema.ContainerBundleID(m.ContainerID))
		if err != nil {
			return errMoved // deleted
		}
		from := ""
		if b, err := schema.ContainerBindings.Get(tx, m.ContainerID); err == nil {
			from = b.HostID
		}
		if from != m.From || len(old.Bundle.ServiceContainers) == 0 {
			return errMoved
		}
		return rebind(tx, old, from, m.To)
	})
	if errors.Is(err, errMoved) {
		return false, nil
	}
	return err == nil, err
}

// rebind binds a container and its port to a host in place of another, "" for none.
func rebind(tx *records.Tx, old *schema.Bundle, from, host string) error {
	c := old.Bundle.ServiceContainers[0]
	var to *topology.ContainerBinding
	if host != "" {
		to = &topology.ContainerBinding{ContainerID: c.ID, HostID: host, InterfaceName: topology.ContainerInterface(c.PortID)}
	}
	b := *old
	b.Bundle.Ports = append([]topology.Port(nil), b.Bundle.Ports...)
	schema.BindContainer(&b.Bundle, &old.Bundle, to)
	if err := schema.Bundles.Put(tx, &b); err != nil {
		return err
	}
	if c.ServiceType == topology.ContainerBGP {
		if err := movePasswords(tx, c.ConfigurationID, from, host); err != nil {
			return err
		}
	}
	if to == nil {
		return schema.ContainerBindings.Delete(tx, c.ID)
	}
	return schema.ContainerBindings.Put(tx, to)
}

// movePasswords takes the passwords of a router's peers from a host and gives them to another, ""
// for none.
func movePasswords(tx *records.Tx, router, from, to string) error {
	if from != "" {
		if err := schema.TakeBGPPasswords(tx, router, from); err != nil {
			return err
		}
	}
	if to == "" {
		return nil
	}
	return schema.GiveBGPPasswords(tx, router, to)
}
