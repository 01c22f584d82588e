package tunnel

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"heddle/internal/xen/client"
	"heddle/internal/xen/ovs"
	"heddle/internal/xen/star"
)

const (
	// gather bounds the time for which a new leader waits for all switches before it decides.
	gather = 3 * time.Second
	// calm is the time between two moves because no host reached the center, unless a host has
	// reached the new center since. It doubles with each.
	calm    = 5 * time.Second
	maxCalm = time.Minute
	// passedFor is for how long a host whose agent is silent keeps its legs while BFD reports
	// nothing: longer than a session takes to come up.
	passedFor = settleIn + time.Second
)

// core is a leader's state, and decides what to do. It does no I/O and has no lock, clock or
// goroutine: its methods take events and the time, and leave actions, which the engine takes and
// carries out.
//
// After events comes a pass, in two halves: decide aims, and act, once the decisions are in the
// store, follows them.
type core struct {
	quarantine time.Duration                     // of keys
	database   func(name, address string) string // address of a host's database

	pool    *pool
	intents *intents
	hosts   map[string]*host    // by UUID
	nets    map[string]*tracked // by UUID
	centers map[string]int      // how many networks a host is center of
	paths   *paths
	agenda  agenda[string] // networks

	loaded  bool // the XenAPI was read
	begun   bool // switches were reached, or enough time was given to them
	beginBy time.Time

	counts  counts
	actions []any
}

func newCore(in *intents, quarantine time.Duration, database func(name, address string) string) *core {
	hosts := map[string]*host{}
	return &core{quarantine: quarantine, database: database, pool: newPool(), intents: in, hosts: hosts, nets: map[string]*tracked{},
		centers: map[string]int{}, paths: newPaths(hosts), agenda: newAgenda[string]()}
}

// Actions.
type (
	// followSwitch: connect to a host's database.
	followSwitch struct{ host, name, address string }
	// leaveSwitch: end that.
	leaveSwitch struct{ host string }
	// retrySwitch: connect now, if there is no connection.
	retrySwitch struct{ host string }
	// runJob: carry out a transaction on a host's database.
	runJob struct {
		host string
		job  job
	}
	// setStatus: make a tunnel's status desired. It is actual in the XenAPI.
	setStatus struct {
		tunnel          string // ref
		desired, actual map[string]string
	}
	// freeKey: delete a network's intent from the store.
	freeKey struct{ network string }
	// logEntry: log.
	logEntry struct {
		level slog.Level
		text  string
		args  []any
	}
)

// Events of a switch.
type (
	// switchChanged: its database, or what is known of it, has changed.
	switchChanged struct{}
	// switchObeys: it obeys this leader on a connection, and follows its database.
	switchObeys struct{ connection int64 }
	// switchLost: it does so no longer. What was under way may or may not be done.
	switchLost struct{ why error }
	// jobDone: the job that it was given is over.
	jobDone struct {
		failed map[string]string // why, by network, for those that could not be done
		lost   error             // why the switch no longer follows, nil if it does
	}
)

// do adds an action.
func (c *core) do(action any) { c.actions = append(c.actions, action) }

// takeActions returns the actions since the last call, in order.
func (c *core) takeActions() []any {
	actions := c.actions
	c.actions = nil
	return actions
}

// Load returns how many networks the host is center of, for star.View.
func (c *core) Load(host string) int { return c.centers[host] }

// Carries reports whether the network's leg probes the path between two hosts, for star.View.
func (c *core) Carries(network, a, b string) bool { return c.paths.Carries(network, a, b) }

// Health returns what BFD says of the path between two hosts, for star.View.
func (c *core) Health(a, b string) star.Health { return c.paths.Health(a, b) }

// poolChanged applies events of the XenAPI. The first are of all objects that there are.
func (c *core) poolChanged(events []client.Event, now time.Time) {
	networks, hosts := c.pool.apply(events)
	c.addAll(maps.Keys(networks))
	if hosts || !c.loaded {
		c.updateHosts(now)
	}
	if !c.loaded {
		c.loaded, c.beginBy = true, now.Add(gather)
		c.addAll(maps.Keys(c.pool.networks))
		c.addAll(maps.Keys(c.intents.all))
	}
}

// statusRefused has a tunnel's status considered again a little later.
func (c *core) statusRefused(tunnel string, now time.Time) {
	if network := c.pool.uuids[c.pool.home[tunnel]]; network != "" {
		c.agenda.addAt(network, now.Add(retryAfter))
	}
}

// switchEvent applies an event of a host's switch, with what its database is known to have.
func (c *core) switchEvent(host string, event any, snap *ovs.Snapshot, now time.Time) {
	h := c.hosts[host]
	if e, lost := event.(switchLost); lost {
		if reason := e.why.Error(); !h.checked || h.known || h.reason != reason {
			c.lose(h, reason, now)
		}
		return
	}
	networks, pairs := h.take(snap)
	c.addAll(maps.Keys(networks))
	for pair := range pairs {
		c.paths.agenda.add(pair)
	}
	switch e := event.(type) {
	case switchObeys:
		c.counts.connections++
		h.obeys(e.connection)
		c.touch(h)
		c.paths.addAll(h.uuid)
	case jobDone:
		h.busy = false
		c.addAll(maps.Keys(h.waiting))
		clear(h.waiting)
		if e.lost != nil {
			c.lose(h, e.lost.Error(), now)
			return
		}
		clear(h.hub)
		for _, st := range h.job.steps {
			c.stepDone(h, st.Network, e.failed[st.Network], now)
		}
	}
}

// stepDone notes whether a network's step was refused, and why.
func (c *core) stepDone(h *host, network, refusal string, now time.Time) {
	if refusal == "" {
		delete(h.failed, network)
		return
	}
	f := h.failed[network]
	if f.text != refusal {
		c.do(logEntry{slog.LevelWarn, "a switch refuses", []any{"host", h.name, "network", network, "err", refusal}})
	}
	h.failed[network] = failure{refusal, f.times + 1, now.Add(failedFor)}
	c.agenda.add(network)
}

// cannotFollow notes that the address of a host's database is invalid.
func (c *core) cannotFollow(host, reason string) {
	h := c.hosts[host]
	h.followed, h.checked, h.reason = false, true, reason
}

func (c *core) addAll(networks func(yield func(string) bool)) {
	for network := range networks {
		c.agenda.add(network)
	}
}

// updateHosts compares the hosts with those of the XenAPI, and follows their databases.
func (c *core) updateHosts(now time.Time) {
	all := c.pool.hosts()
	for uuid, info := range all {
		h := c.hosts[uuid]
		if h == nil {
			h = newHost(uuid)
			h.lostAt = now
			c.hosts[uuid] = h
		} else if h.hostInfo == info {
			continue
		}
		before, after := c.database(h.name, h.address), c.database(info.name, info.address)
		if h.hostInfo = info; h.followed && (!info.openVSwitch || before != after) {
			c.leave(h, now)
		}
		if !h.followed && info.openVSwitch {
			h.followed = true
			c.do(followSwitch{uuid, info.name, after})
		}
		if h.followed && info.live {
			c.do(retrySwitch{uuid})
		}
		c.touch(h)
	}
	for uuid, h := range c.hosts {
		if _, ok := all[uuid]; !ok {
			c.touch(h)
			c.leave(h, now)
			delete(c.hosts, uuid)
		}
	}
}

// touch has all networks considered that the host takes part in.
func (c *core) touch(h *host) {
	c.addAll(slices.Values(c.pool.tunnelsOn(h.uuid)))
	c.addAll(maps.Keys(h.ends))
	for network, in := range c.intents.all {
		if slices.Contains(in.Hosts, h.uuid) {
			c.agenda.add(network)
		}
	}
}

// leave ends following a host's database.
func (c *core) leave(h *host, now time.Time) {
	if !h.followed {
		return
	}
	c.do(leaveSwitch{h.uuid})
	h.followed, h.busy = false, false
	c.lose(h, "its database is not followed", now)
}

// lose notes that a host's switch no longer follows.
func (c *core) lose(h *host, reason string, now time.Time) {
	if h.known || !h.checked {
		h.lostAt = now
	}
	h.checked, h.known, h.reason = true, false, reason
	c.touch(h)
	c.paths.addAll(h.uuid)
}

// nameOf returns a host's name for people.
func (c *core) nameOf(uuid string) string {
	if h := c.hosts[uuid]; h != nil {
		return h.name
	}
	return uuid
}

// next returns when another pass is due unless something happens before.
func (c *core) next(now time.Time) time.Time {
	if c.begun && len(c.agenda.now) > 0 {
		return now
	}
	at := c.paths.agenda.next(c.agenda.next(now.Add(time.Hour)))
	if c.loaded && !c.begun && c.beginBy.Before(at) {
		at = c.beginBy
	}
	return at
}

// ready reports whether enough is known to decide: all switches were reached, found to be out of
// reach, or given enough time.
func (c *core) ready(now time.Time) bool {
	if c.begun || !c.loaded {
		return c.begun
	}
	for _, h := range c.hosts {
		if h.followed && !h.checked && now.Before(c.beginBy) {
			return false
		}
	}
	c.begin(now)
	return true
}

// begin counts what was decided before, so that what is decided now goes well with it.
func (c *core) begin(now time.Time) {
	c.begun = true
	for network, in := range c.intents.all {
		net := newTracked()
		net.acted = in.Intent
		for _, host := range in.Hosts { // before any session of BFD was considered
			net.passed[host] = now
		}
		c.nets[network] = net
		c.count(network, in.Center)
	}
	for _, network := range slices.Sorted(maps.Keys(c.intents.all)) {
		n, _ := c.network(network, now)
		c.setProbes(n, c.intents.all[network].Intent)
	}
}

// decide chooses what to aim at for each network that is to be considered, and returns them for
// act. The engine has to store the decisions in between.
func (c *core) decide(now time.Time) (networks []string) {
	c.updatePaths(now)
	c.addAll(maps.Keys(c.intents.writes)) // what is written is decided by the present state
	networks = c.agenda.take(now, strings.Compare)
	for _, network := range networks {
		c.aim(network, now)
	}
	return networks
}

// act follows the decisions that are in the store, and gives hosts their next jobs.
func (c *core) act(networks []string, now time.Time) {
	for _, network := range networks {
		if c.intents.pending(network) {
			in, _ := c.intents.get(network)
			c.count(network, in.Center)
			c.agenda.addAt(network, now.Add(retryAfter))
			continue
		}
		c.noteMove(network, now)
		c.follow(network, now)
	}
	c.updatePaths(now)
	c.assignJobs()
}

// updatePaths considers the paths that are due, and adds the networks on those that changed.
func (c *core) updatePaths(now time.Time) {
	for _, pair := range c.paths.update(now) {
		c.do(logEntry{slog.LevelDebug, "path", []any{"between", c.nameOf(pair[0]), "and", c.nameOf(pair[1]), "health", c.Health(pair[0], pair[1])}})
		c.addAll(slices.Values(c.paths.Networks(pair[0], pair[1])))
	}
}

// assignJobs gives each idle host its next job.
func (c *core) assignJobs() {
	for _, h := range c.hosts {
		if h.busy || !h.known || !h.followed {
			h.postpone()
		} else if len(h.steps) > 0 || len(h.flush) > 0 {
			h.job = h.next()
			h.busy = true
			c.counts.transactions++
			c.do(runJob{h.uuid, h.job})
		}
	}
}
