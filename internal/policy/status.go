package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"heddle/calico"
	"heddle/internal/policy/calc"
)

// toleratedRefusals is how many refused commits in a row pass before endpoints are in error: the first ones may come from
// something that mends itself.
const toleratedRefusals = 3

// tellStatuses works out the status of each endpoint of this host and tells the reporter what has changed.
func (e *engine) tellStatuses() {
	if !e.dirty.statuses {
		return
	}
	e.dirty.statuses = false
	e.report.concern(e.concerns())
	if e.dirty.unreadable {
		e.dirty.unreadable = false
		e.report.unreadable(e.unreadable())
	}
	defer e.report.start()
	if !e.settings.EndpointReporting {
		return
	}
	now := map[string]string{}
	for key, w := range e.workloads {
		e.status(now, calico.WorkloadEndpointStatusKey{Host: key.Host, Orchestrator: key.Orchestrator, Workload: key.Workload, Endpoint: key.Endpoint}, e.workloadStatus(key, w))
	}
	for key, h := range e.hosts {
		e.status(now, calico.HostEndpointStatusKey(key), e.hostStatus(key, h))
	}
	for path := range e.known.bad {
		key, _ := calico.ParseKey(path)
		k, ok := key.(calico.WorkloadEndpointKey)
		of := k
		of.Legacy = false
		if ok && k.Host == e.host && e.workloads[of] == nil { // else it is hidden by one of v1 that can be read
			e.status(now, calico.WorkloadEndpointStatusKey{Host: k.Host, Orchestrator: k.Orchestrator, Workload: k.Workload, Endpoint: k.Endpoint}, calico.StatusError)
		}
	}
	for path := range e.statuses {
		if _, still := now[path]; !still {
			e.report.set(path, "")
		}
	}
	for path, status := range now {
		if e.statuses[path] != status {
			e.report.set(path, status)
		}
	}
	e.statuses = now
}

func (e *engine) status(into map[string]string, key calico.Key, status string) {
	if path, err := key.Path(); err == nil {
		into[path] = status
	}
}

// workloadStatus is down where the interface is, or where nothing is to be programmed; else error where programming has
// failed, for good as far as we can tell; an interface whose set-up is still being tried is down (spec §15).
func (e *engine) workloadStatus(key calico.WorkloadEndpointKey, w *calc.Workload) string {
	name := w.Endpoint.Name
	d := e.devices[name]
	switch {
	case e.assigned.refused[key] != "":
		return calico.StatusError
	case d == nil || !d.Running || w.Endpoint.State != calico.Active:
		return calico.StatusDown
	case len(w.Errors) > 0 || e.refusals > toleratedRefusals:
		return calico.StatusError
	case e.dirty.rules || !e.wiring.InPlace(name):
		return calico.StatusDown
	}
	return calico.StatusUp
}

// hostStatus is that of a host endpoint: down where no interface is governed by it.
func (e *engine) hostStatus(key calico.HostEndpointKey, h *calc.Host) string {
	running := false
	for name, by := range e.governed {
		running = running || by == key && e.devices[name] != nil && e.devices[name].Running
	}
	switch {
	case !running:
		return calico.StatusDown
	case h.Invalid != "" || len(h.Errors) > 0 || e.refusals > toleratedRefusals:
		return calico.StatusError
	case e.dirty.rules:
		return calico.StatusDown
	}
	return calico.StatusUp
}

// mostUnreadable bounds how many objects that cannot be read the agent's status names.
const mostUnreadable = 20

// unreadable returns what the agent's status says of objects that cannot be read: which, why, and what is in force.
func (e *engine) unreadable() []string {
	paths := slices.Sorted(maps.Keys(e.known.bad))
	var all []string
	for _, path := range paths[:min(len(paths), mostUnreadable)] {
		b := e.known.bad[path]
		all = append(all, fmt.Sprintf("%s cannot be read since revision %d: %v; in force: %s", path, b.since, b.err, b.inForce))
	}
	if more := len(paths) - len(all); more > 0 {
		all = append(all, fmt.Sprintf("%d more objects cannot be read: the log names them", more))
	}
	return all
}

// concerns is what is wrong with the agent as a whole, for its status.
func (e *engine) concerns() []string {
	var all []string
	if e.waiting != "" {
		all = append(all, "waiting: "+e.waiting)
	}
	if e.refusal != nil {
		all = append(all, "the kernel refuses the rules: "+e.refusal.Error())
	}
	for _, name := range slices.Sorted(maps.Keys(e.failed)) {
		all = append(all, fmt.Sprintf("device %s: %v", name, e.failed[name]))
	}
	for _, p := range e.problems {
		if !strings.Contains(p, errUnknown.Error()) && !strings.Contains(p, errNoEffect.Error()) {
			all = append(all, p)
		}
	}
	return all
}
