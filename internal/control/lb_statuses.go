package control

import (
	"cmp"
	"time"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// memberStatus returns the operating status of a member, and since when it is reported, or "".
func memberStatus(r records.Reader, m *neutron.LBMember) (status, since string) {
	if !m.AdminStateUp {
		return neutron.LBOffline, ""
	}
	p, ok := schema.LBPools.Peek(r, m.PoolID)
	var health *topology.MemberHealth
	if ok && monitored(r, p) {
		health = healthOf(r, m.ID, p)
	}
	switch {
	case health != nil && health.Status == topology.MemberInactive:
		return neutron.LBFailed, health.Since.UTC().Format(time.RFC3339)
	case m.Weight == 0:
		return neutron.LBDraining, ""
	case health == nil:
		return neutron.LBNoMonitor, ""
	}
	return neutron.LBOnline, health.Since.UTC().Format(time.RFC3339)
}

// monitored reports whether a health monitor has the members of a pool checked.
func monitored(r records.Reader, p *neutron.LBPool) bool {
	m, ok := schema.HealthMonitors.Peek(r, p.HealthMonitorID)
	return ok && m.AdminStateUp && m.Delay > 0 && m.Timeout > 0
}

// healthOf returns the verdict on a member of a pool, nil if there is none: that of the host with
// the container that checks it or, until that has one, the newest of a host that had it before.
func healthOf(r records.Reader, member string, p *neutron.LBPool) *topology.MemberHealth {
	container := containerOf(p)
	if checker, ok := schema.ContainerBindings.Peek(r, container); ok {
		if h, ok := schema.MemberHealths.Peek(r, checker.HostID+"/"+member); ok {
			return h
		}
	}
	b, ok := schema.Bundles.Peek(r, schema.ContainerBundleID(container))
	if !ok {
		return nil
	}
	return schema.FormerHealth(r, member, b.Bundle.ServiceContainers[0].FormerHostIDs)
}

// containerOf returns the container that checks the members of a pool.
func containerOf(p *neutron.LBPool) string {
	if p.V1() {
		return translate.LBContainer(p.RouterID)
	}
	return translate.LBContainer(translate.LBRouter(p.LoadBalancerID))
}

// poolStatus returns the operating status of a pool: that of its members with a verdict. One that
// no listener uses is OFFLINE, as in the reference.
func poolStatus(r records.Reader, p *neutron.LBPool) string {
	if !p.AdminStateUp || !poolServes(r, p) {
		return neutron.LBOffline
	}
	if !monitored(r, p) {
		return neutron.LBOnline
	}
	judged, failed := 0, 0
	for m := range schema.LBMembers.By(r, "pool", p.ID) {
		health := healthOf(r, m.ID, p)
		if !m.AdminStateUp || health == nil {
			continue
		}
		judged++
		if health.Status == topology.MemberInactive {
			failed++
		}
	}
	switch {
	case failed == 0:
		return neutron.LBOnline
	case failed == judged:
		return neutron.LBFailed
	}
	return neutron.LBDegraded
}

// poolServes reports whether a pool is a listener's, or a router's of LBaaS v1.
func poolServes(r records.Reader, p *neutron.LBPool) bool {
	for range schema.Listeners.By(r, "default_pool", p.ID) {
		return true
	}
	return p.RouterID != ""
}

// listenerStatus returns the operating status of a listener, and the reason if it is that nothing
// checks the members of its pool.
func listenerStatus(r records.Reader, l *neutron.Listener) (status, reason string) {
	if !l.AdminStateUp {
		return neutron.LBOffline, ""
	}
	p, ok := schema.LBPools.Peek(r, l.DefaultPoolID)
	if !ok {
		return neutron.LBOnline, ""
	}
	if why := unchecked(r, p); why != "" {
		reason = "the members of pool " + p.ID + " are not checked: " + why
	}
	switch status := poolStatus(r, p); {
	case status == neutron.LBFailed:
		return status, reason
	case status == neutron.LBOnline && reason == "":
		return status, ""
	}
	return neutron.LBDegraded, reason
}

// loadBalancerStatus returns the operating status of a load balancer: ERROR if all of its listeners
// are, DEGRADED if anything below is not ONLINE. The reason is that of the first listener with one.
func loadBalancerStatus(r records.Reader, lb *neutron.LoadBalancer) (status, reason string) {
	if !lb.AdminStateUp {
		return neutron.LBOffline, ""
	}
	below, failed, online := 0, 0, 0
	for l := range schema.Listeners.By(r, "load_balancer", lb.ID) {
		below++
		status, why := listenerStatus(r, l)
		reason = cmp.Or(reason, why)
		switch status {
		case neutron.LBFailed:
			failed++
		case neutron.LBOnline:
			online++
		}
	}
	if below > 0 && failed == below {
		return neutron.LBFailed, reason
	}
	for p := range schema.LBPools.By(r, "load_balancer", lb.ID) {
		if !poolServes(r, p) {
			continue
		}
		below++
		if poolStatus(r, p) == neutron.LBOnline {
			online++
		}
	}
	if online < below {
		return neutron.LBDegraded, reason
	}
	return neutron.LBOnline, ""
}

// unchecked returns why the members of a pool are not checked although its health monitor is up, ""
// if they are or there is none.
func unchecked(r records.Reader, p *neutron.LBPool) string {
	m, ok := schema.HealthMonitors.Peek(r, p.HealthMonitorID)
	switch {
	case !ok || !m.AdminStateUp:
		return ""
	case m.Delay == 0:
		return "health monitor " + m.ID + " has delay 0"
	case m.Timeout == 0:
		return "health monitor " + m.ID + " has timeout 0"
	}
	return checksFail(r, p)
}

// checksFail returns why nothing checks the members of a pool, "" if its container does or starts.
// What counts is the word of the host that the container is bound to.
func checksFail(r records.Reader, p *neutron.LBPool) (why string) {
	binding, ok := schema.ContainerBindings.Peek(r, containerOf(p))
	if !ok {
		return "no live host runs health checks"
	}
	s, ok := schema.ContainerStates.Peek(r, binding.HostID+"/"+binding.ContainerID)
	switch {
	case !ok:
		return ""
	case s.Status == topology.ContainerError:
		why = s.Message
	case s.Unchecked[p.ID] != "":
		why = s.Unchecked[p.ID]
	default:
		return ""
	}
	if h, ok := schema.Hosts.Peek(r, binding.HostID); ok {
		why += ", on host " + h.Name
	}
	return why
}
