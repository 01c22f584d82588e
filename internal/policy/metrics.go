package policy

import "heddle/internal/telemetry"

// metrics are the agent's figures.
func (e *engine) metrics() []telemetry.Value {
	gauge := func(name, help string, value float64) telemetry.Value {
		return telemetry.Value{Name: "heddle_policy_" + name, Help: help, Kind: telemetry.Gauge, Value: value}
	}
	counter := func(name, help string, value uint64) telemetry.Value {
		return telemetry.Value{Name: "heddle_policy_" + name, Help: help, Kind: telemetry.Counter, Value: float64(value)}
	}
	wiring := e.wiring.Status()
	values := []telemetry.Value{
		gauge("revision", "Revision of the store that is in force.", float64(e.known.revision)),
		gauge("waiting", "1 while the agent waits, say for /calico/v1/Ready, and leaves the kernel as it is.", truthOf(e.waiting != "")),
		gauge("workloads", "Workload endpoints of this host.", float64(len(e.workloads))),
		gauge("host_endpoints", "Host endpoints of this host.", float64(len(e.hosts))),
		gauge("refused_endpoints", "Workload endpoints of this host without an interface of theirs.", float64(len(e.assigned.refused))),
		gauge("unreadable_objects", "Objects in the store that cannot be read; the log and the status say what is in force in their place.", float64(len(e.known.bad))),
		gauge("hidden_legacy_objects", "Objects of the legacy tree that objects of v1 hide.", float64(len(e.known.hidden))),
		gauge("interfaces_wired", "Interfaces of workloads that have all they are to have.", float64(wiring.InPlace)),
		gauge("interfaces_failing", "Interfaces of workloads whose set-up is being tried again.", float64(wiring.Failing)),
		gauge("failed_commits_in_a_row", "Commits that the kernel has refused since the last that it took.", float64(e.refusals)),
		gauge("last_commit_seconds", "How long the last commit took.", e.counts.lastCommit.Seconds()),
		counter("commits_total", "Commits to nftables.", e.counts.commits),
		counter("failed_commits_total", "Commits that the kernel has refused.", e.counts.failures),
		counter("mended_total", "Times that somebody else had changed our rules.", e.counts.mended),
		counter("passes_total", "Times that what is wanted was worked out.", e.counts.passes),
	}
	for _, name := range append([]string{e.tunnelled.ipip}, e.tunnelled.vxlans...) {
		if name != "" {
			v := gauge("tunnel_device", "1 where a tunnel device is as its pools ask, else 0.", truthOf(e.failed[name] == nil))
			v.Labels = map[string]string{"device": name}
			values = append(values, v)
		}
	}
	return values
}

func truthOf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
