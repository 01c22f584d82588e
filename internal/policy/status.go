package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"heddle/calico"
	"heddle/internal/policy/calc"
)

// toleratedRefusals is the number of failed commits in a row that leave endpoints without an error.
const toleratedRefusals = 3

// statusReport is a report to the store.
type statusReport struct {
	problems   []string          // of the agent as a whole
	unreadable []string          // objects that cannot be read
	changed    map[string]string // statuses of endpoints by path; "": there is none any more
}

// report returns what has changed for the store, or nil.
func (c *core) report(isWired func(name string) bool) *statusReport {
	if !c.dirty.statuses {
		return nil
	}
	c.dirty.statuses = false
	r := &statusReport{problems: c.describeProblems(), unreadable: c.model.describeUnreadable(), changed: map[string]string{}}
	if !c.config.settings.EndpointReporting {
		return r
	}
	now := c.endpointStatuses(isWired)
	for path := range c.statuses {
		if now[path] == "" {
			r.changed[path] = ""
		}
	}
	for path, status := range now {
		if c.statuses[path] != status {
			r.changed[path] = status
		}
	}
	c.statuses = now
	return r
}

// endpointStatuses returns the status of each endpoint of this host, by path.
func (c *core) endpointStatuses(isWired func(name string) bool) map[string]string {
	all := map[string]string{}
	set := func(key calico.Key, status string) {
		if path, err := key.Path(); err == nil {
			all[path] = status
		}
	}
	for key, w := range c.endpoints.workloads {
		set(statusKey(key), c.workloadStatus(key, w, isWired))
	}
	for key, h := range c.endpoints.hosts {
		set(calico.HostEndpointStatusKey(key), c.hostStatus(key, h))
	}
	for path := range c.model.bad {
		parsed, _ := calico.ParseKey(path)
		key, ok := parsed.(calico.WorkloadEndpointKey)
		key.Legacy = false
		if ok && key.Host == c.model.host && c.endpoints.workloads[key] == nil { // else a v1 object hides it
			set(statusKey(key), calico.StatusError)
		}
	}
	return all
}

func statusKey(k calico.WorkloadEndpointKey) calico.WorkloadEndpointStatusKey {
	return calico.WorkloadEndpointStatusKey{Host: k.Host, Orchestrator: k.Orchestrator, Workload: k.Workload, Endpoint: k.Endpoint}
}

// workloadStatus returns down if the interface is down, the endpoint inactive, or the set-up of the
// interface still being tried; error if programming failed for good (spec §15).
func (c *core) workloadStatus(key calico.WorkloadEndpointKey, w *calc.Workload, isWired func(name string) bool) string {
	name := w.Endpoint.Name
	switch {
	case c.endpoints.assigned.refused[key] != "":
		return calico.StatusError
	case !c.links.isRunning(name) || w.Endpoint.State != calico.Active:
		return calico.StatusDown
	case len(w.Errors) > 0 || c.commit.refusals > toleratedRefusals:
		return calico.StatusError
	case c.commit.pending || !isWired(name):
		return calico.StatusDown
	}
	return calico.StatusUp
}

// hostStatus returns the status of a host endpoint: down if it governs no running interface.
func (c *core) hostStatus(key calico.HostEndpointKey, h *calc.Host) string {
	running := false
	for name, by := range c.endpoints.governed {
		running = running || by == key && c.links.isRunning(name)
	}
	switch {
	case !running:
		return calico.StatusDown
	case h.Invalid != "" || len(h.Errors) > 0 || c.commit.refusals > toleratedRefusals:
		return calico.StatusError
	case c.commit.pending:
		return calico.StatusDown
	}
	return calico.StatusUp
}

// describeProblems returns what is wrong with the agent as a whole, for its status.
func (c *core) describeProblems() []string {
	var all []string
	if c.waiting.cause != "" {
		all = append(all, "waiting: "+c.waiting.cause)
	}
	if c.commit.refusal != nil {
		all = append(all, "the kernel refuses the rules: "+c.commit.refusal.Error())
	}
	for _, name := range slices.Sorted(maps.Keys(c.tunnels.failed)) {
		all = append(all, fmt.Sprintf("device %s: %v", name, c.tunnels.failed[name]))
	}
	for _, p := range c.config.problems {
		if !strings.Contains(p, errUnknown.Error()) && !strings.Contains(p, errNoEffect.Error()) {
			all = append(all, p)
		}
	}
	return all
}
