package policy

import (
	"heddle/internal/reconcile"
	"heddle/internal/telemetry"
)

func (c *core) metrics(wiring reconcile.Status) []telemetry.Value {
	lastCommit := telemetry.Gauge.Of("heddle_policy_last_commit_seconds", "How long the last commit took.", 0)
	lastCommit.Value = c.counts.lastCommit.Seconds()
	values := []telemetry.Value{
		telemetry.Gauge.Of("heddle_policy_revision", "Revision of the store that is in force.", int(c.model.revision)),
		telemetry.Flag("heddle_policy_waiting", "1 while the agent waits, say for /calico/v1/Ready, and leaves the kernel as it is.", c.waiting.cause != ""),
		telemetry.Gauge.Of("heddle_policy_workloads", "Workload endpoints of this host.", len(c.endpoints.workloads)),
		telemetry.Gauge.Of("heddle_policy_host_endpoints", "Host endpoints of this host.", len(c.endpoints.hosts)),
		telemetry.Gauge.Of("heddle_policy_refused_endpoints", "Workload endpoints of this host that have no interface.", len(c.endpoints.assigned.refused)),
		telemetry.Gauge.Of("heddle_policy_unreadable_objects", "Objects in the store that cannot be read; the log and the status say what is in force in their place.", len(c.model.bad)),
		telemetry.Gauge.Of("heddle_policy_hidden_legacy_objects", "Objects of the legacy tree that objects of v1 hide.", len(c.model.hidden)),
		telemetry.Gauge.Of("heddle_policy_interfaces_wired", "Interfaces of workloads that are set up.", wiring.InPlace),
		telemetry.Gauge.Of("heddle_policy_interfaces_failing", "Interfaces of workloads whose set-up is being tried again.", wiring.Failing),
		telemetry.Gauge.Of("heddle_policy_failed_commits_in_a_row", "Commits that the kernel has refused since the last success.", int(c.commit.refusals)),
		lastCommit,
		telemetry.Counter.Of("heddle_policy_commits_total", "Commits to nftables.", int(c.counts.commits)),
		telemetry.Counter.Of("heddle_policy_failed_commits_total", "Commits that the kernel has refused.", int(c.counts.failures)),
		telemetry.Counter.Of("heddle_policy_mended_total", "Times that another program had changed our rules.", int(c.counts.mended)),
		telemetry.Counter.Of("heddle_policy_passes_total", "Passes that computed the desired state.", int(c.counts.passes)),
	}
	for _, name := range append([]string{c.tunnels.wanted.ipip}, c.tunnels.wanted.vxlans...) {
		if name != "" {
			values = append(values, telemetry.Flag("heddle_policy_tunnel_device", "1 where a tunnel device is as its pools ask, else 0.", c.tunnels.failed[name] == nil).
				With("device", name))
		}
	}
	return values
}
