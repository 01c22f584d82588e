package services

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"os/exec"
	"reflect"
	"slices"
	"sync"
	"time"

	"heddle/internal/hostnet"
	"heddle/internal/services/plan"
	"heddle/internal/store"
	"heddle/internal/store/presence"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/telemetry"
	"heddle/internal/topology"
)

// Options of an Agent. HostID, Store, Objects, Reports, Deciding and StateDir are required.
type Options struct {
	HostID    string
	Store     store.Store
	Objects   *replica.Replica   // of Bundles, MemberHealths and the host's BGPPasswords
	Reports   *presence.Presence // of the host
	Deciding  <-chan struct{}    // closed once this process decides what becomes of packets
	StateDir  string             // a directory of the agent's own
	Namespace *hostnet.Namespace // nil: this process's own
	Weight    int                // the host's share of the containers; 0 = none that is new
	Limit     int                // containers that the host runs at most; 0 = any number
	HAProxy   string             // program; default haproxy, from PATH
	Log       *slog.Logger       // default: none
}

// checkEvery is the interval at which the agent reads back what is there.
const checkEvery = 30 * time.Second

// Agent runs the service containers that are bound to its host. It is a task.
type Agent struct {
	task.Part
	opts    Options
	log     *slog.Logger
	wake    task.Notice
	health  *verdicts
	sight   *sight
	figures figures

	mu      sync.Mutex
	model   *plan.Model
	loaded  bool
	earlier earlierRouting

	running map[string]*runner // by container; of Run
	net     *hostnet.Linux     // of the host; of Run
}

// figures are counts for metrics.
type figures struct {
	mu                sync.Mutex
	states            map[string]topology.ContainerState // by container
	routers           map[string]*topology.BgpState      // by container
	learned           map[string]int                     // destinations, by container
	restarts, reloads int
}

// New returns an agent, which follows the replica from when that runs.
func New(o Options) *Agent {
	o.HAProxy, o.Log = cmp.Or(o.HAProxy, "haproxy"), cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	a := &Agent{Part: task.NewPart("service containers"), opts: o, log: o.Log, wake: task.NewNotice(), model: plan.NewModel(), running: map[string]*runner{}}
	a.figures.states, a.figures.routers, a.figures.learned = map[string]topology.ContainerState{}, map[string]*topology.BgpState{}, map[string]int{}
	a.health, a.sight = newVerdicts(&a.opts), &sight{deciding: o.Deciding}
	o.Objects.OnChange(a.changed)
	a.announce()
	return a
}

// announce reports the kinds of containers that the host runs.
func (a *Agent) announce() {
	h := &topology.ContainerHost{HostID: a.opts.HostID, Weight: a.opts.Weight, Limit: a.opts.Limit}
	if _, err := exec.LookPath(a.opts.HAProxy); err == nil {
		h.Kinds = append(h.Kinds, topology.ContainerHAProxy)
	} else {
		h.Lacks = append(h.Lacks, topology.ContainerHAProxy)
	}
	h.Kinds = append(h.Kinds, topology.ContainerBGP) // by this program itself
	if err := a.opts.Reports.SetRecord(schema.ContainerHosts.KeyOf(h), h); err != nil {
		a.log.Error("cannot report a record", "key", schema.ContainerHosts.KeyOf(h), "err", err)
	}
}

// changed follows the objects that containers depend on.
func (a *Agent) changed(u snapshot.Update) {
	a.mu.Lock()
	defer a.mu.Unlock()
	concerns := !a.loaded
	for _, c := range u.Changed {
		if c.Source == schema.BGPPasswords.Name() {
			a.setPasswords(c)
			concerns = true
		}
		if c.Source != schema.Bundles.Name() {
			continue
		}
		if now, ok := c.New.(*schema.Bundle); ok {
			concerns = a.model.Apply(now.Owner, &now.Bundle) || concerns
		} else if old, ok := c.Old.(*schema.Bundle); ok {
			concerns = a.model.Apply(old.Owner, nil) || concerns
		}
	}
	if !a.loaded {
		a.loaded = true
		a.health.load(u.Next)
		a.earlier.load(&a.opts, u.Next)
	}
	if concerns {
		a.wake.Give()
	}
}

// setPasswords follows the passwords of a router's peers. It needs the lock.
func (a *Agent) setPasswords(c snapshot.Changed) {
	if now, ok := c.New.(*topology.BgpPasswords); ok {
		a.model.SetPasswords(now.RouterID, now.Passwords)
	} else if old, ok := c.Old.(*topology.BgpPasswords); ok {
		a.model.SetPasswords(old.RouterID, nil)
	}
}

// desired returns the containers that this host has to run, and all members of pools; false before
// the first snapshot.
func (a *Agent) desired() (containers []plan.Container, members map[string]bool, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.loaded {
		return nil, nil, false
	}
	containers = a.model.Containers(a.opts.HostID)
	if a.opts.Reports.Suspended() { // another agent speaks for the routers of this host
		containers = slices.DeleteFunc(containers, func(c plan.Container) bool { return c.Kind == topology.ContainerBGP })
	}
	return containers, a.model.Members(), true
}

// Run runs containers until ctx ends. They go on without the agent; see Cleanup.
func (a *Agent) Run(ctx context.Context) (err error) {
	if a.opts.Namespace == nil {
		if a.opts.Namespace, err = hostnet.CurrentNamespace(); err != nil {
			return err
		}
		defer a.opts.Namespace.Close()
	}
	if a.net, err = hostnet.NewLinux(a.opts.Namespace); err != nil {
		return err
	}
	defer a.net.Close()
	var reporting sync.WaitGroup
	reporting.Go(func() { a.health.run(ctx) })
	reporting.Go(func() { a.sight.run(ctx) })
	reporting.Go(func() { a.followPlace(ctx) })
	defer reporting.Wait()
	defer a.stopAll()
	check, backoff := time.NewTicker(checkEvery), task.Backoff{Least: leastPause, Most: mostPause}
	defer check.Stop()
	for {
		var retry <-chan time.Time
		if err := a.pass(ctx); err != nil {
			a.log.Warn("cannot remove what is left of service containers, will try again", "err", err)
			retry = time.After(backoff.Next())
		} else {
			backoff.Reset()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.wake:
		case <-retry:
		case <-check.C:
			a.announce()
		}
	}
}

// followPlace has the containers looked at when another agent takes the host's place, and when this
// one has it again.
func (a *Agent) followPlace(ctx context.Context) {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for suspended := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := a.opts.Reports.Suspended(); now != suspended {
			suspended = now
			a.wake.Give()
		}
	}
}

// pass starts and changes the containers of this host, and removes others.
func (a *Agent) pass(ctx context.Context) error {
	containers, members, ok := a.desired()
	if !ok {
		return nil
	}
	wanted := map[string]bool{}
	for _, c := range containers {
		wanted[c.ID] = true
	}
	for _, id := range slices.Sorted(maps.Keys(a.running)) {
		if !wanted[id] {
			a.drop(id)
		}
	}
	a.health.keep(members)
	a.earlier.keep(&a.opts, containers)
	for _, c := range containers {
		if r := a.running[c.ID]; r != nil {
			r.change(c)
			continue
		}
		a.running[c.ID] = a.start(ctx, c)
	}
	err := sweep(a.net, a.opts.StateDir, containers)
	if err == nil {
		a.BeReady()
	}
	return err
}

// drop ends a container that this host has no longer.
func (a *Agent) drop(id string) {
	r := a.running[id]
	delete(a.running, id)
	r.stop()
	r.endRouting()
	a.health.lose(id)
	a.opts.Reports.Delete(schema.ContainerStates.KeyOf(&topology.ContainerState{HostID: a.opts.HostID, ContainerID: id}))
	a.figures.mu.Lock()
	delete(a.figures.states, id)
	delete(a.figures.routers, id)
	delete(a.figures.learned, id)
	a.figures.mu.Unlock()
	a.log.Info("stopped service container", "container", id)
}

// stopAll ends the work of the agent on its containers, which go on.
func (a *Agent) stopAll() {
	for _, r := range a.running {
		r.stop()
	}
}

// report reports the state of a container, if it has changed.
func (a *Agent) report(c *plan.Container, status, message string) {
	a.reportState(c, topology.ContainerState{Status: status, Message: message})
}

// reportChecks reports that a container runs, but for the checks of some pools; refused has why
// haproxy refuses them.
func (a *Agent) reportChecks(c *plan.Container, refused map[string]string) {
	a.reportState(c, topology.ContainerState{Status: topology.ContainerRunning, Unchecked: refused})
}

func (a *Agent) reportState(c *plan.Container, s topology.ContainerState) {
	s.ContainerID, s.HostID, s.Namespace, s.Interface = c.ID, a.opts.HostID, c.Namespace, c.Interface
	a.figures.mu.Lock()
	before := a.figures.states[c.ID]
	s.Since = before.Since
	if reflect.DeepEqual(before, s) {
		a.figures.mu.Unlock()
		return
	}
	if before.Status != s.Status {
		s.Since = time.Now().UTC().Truncate(time.Second)
	}
	a.figures.states[c.ID] = s
	a.figures.mu.Unlock()
	if before.Status != s.Status || before.Message != s.Message {
		level := slog.LevelInfo
		if s.Status == topology.ContainerError {
			level = slog.LevelWarn
		}
		a.log.Log(context.Background(), level, "service container changed state", "container", c.ID, "kind", c.Kind, "status", s.Status, "message", s.Message)
	}
	for _, pool := range slices.Sorted(maps.Keys(s.Unchecked)) {
		if before.Unchecked[pool] != s.Unchecked[pool] {
			a.log.Warn("members of a pool are not checked", "container", c.ID, "pool", pool, "err", s.Unchecked[pool])
		}
	}
	if err := a.opts.Reports.SetRecord(schema.ContainerStates.KeyOf(&s), &s); err != nil {
		a.log.Error("cannot report a record", "key", schema.ContainerStates.KeyOf(&s), "err", err)
	}
}

// Metrics returns the state of the containers.
func (a *Agent) Metrics() []telemetry.Value {
	a.figures.mu.Lock()
	counts := map[string]int{}
	for _, s := range a.figures.states {
		counts[s.Status]++
	}
	restarts, reloads := a.figures.restarts, a.figures.reloads
	routing := a.figures.routing()
	a.figures.mu.Unlock()
	values := []telemetry.Value{
		telemetry.Counter.Of("heddle_service_container_restarts_total", "Times that a container's program has ended and was started again.", restarts),
		telemetry.Counter.Of("heddle_haproxy_reloads_total", "Changes of checks that a running haproxy has taken over.", reloads),
	}
	for _, status := range []string{topology.ContainerStarting, topology.ContainerRunning, topology.ContainerError} {
		values = append(values, telemetry.Gauge.Of("heddle_service_containers_on_host", "Service containers of this host, by status.", counts[status]).With("status", status))
	}
	return slices.Concat(values, routing, a.health.metrics())
}

// Cleanup removes all service containers of a host, and ends their programs.
func Cleanup(namespace *hostnet.Namespace, stateDir string) error {
	if namespace == nil {
		var err error
		if namespace, err = hostnet.CurrentNamespace(); err != nil {
			return err
		}
		defer namespace.Close()
	}
	net, err := hostnet.NewLinux(namespace)
	if err != nil {
		return err
	}
	defer net.Close()
	return sweep(net, stateDir, nil)
}

var errNoHAProxy = errors.New("haproxy is not installed (apt install haproxy)")
