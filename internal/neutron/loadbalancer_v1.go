package neutron

// Refusals of LBaaS v1.

// v1Refusal returns a refusal that no other API has.
func v1Refusal(k Kind, typ, format string, args ...any) error { return Errorf(k, typ, format, args...) }

// NoRouterForPool returns the refusal of a pool on a subnet that no router is on.
func NoRouterForPool(pool string) error {
	return v1Refusal(NotFound, "NoEligibleBackend", "No eligible backend for pool %s", pool)
}

// VIPExists returns the refusal of a second VIP of a pool.
func VIPExists(pool string) error {
	return v1Refusal(Conflict, "VipExists", "Another Vip already exists for pool %s", pool)
}

// PoolInUse returns the refusal to delete a pool with a VIP.
func PoolInUse(pool string) error {
	return v1Refusal(Conflict, "PoolInUse", "Pool %s is still in use", pool)
}

// MonitorInUse returns the refusal to delete a health monitor that pools have.
func MonitorInUse(monitor string) error {
	return v1Refusal(Conflict, "HealthMonitorInUse", "Health monitor %s still has associations with pools", monitor)
}

// MonitorAssociated returns the refusal of a second health monitor of a pool, or of the same.
func MonitorAssociated(pool, monitor string) error {
	return v1Refusal(Conflict, "PoolMonitorAssociationExists", "health_monitor %s is already associated with pool %s", monitor, pool)
}

// MonitorNotAssociated returns the refusal to take away a health monitor that a pool does not have.
func MonitorNotAssociated(pool, monitor string) error {
	return v1Refusal(NotFound, "PoolMonitorAssociationNotFound", "Monitor %s is not associated with Pool %s", monitor, pool)
}

// V1Protocols returns the refusal of a VIP of one protocol for a pool of another.
func V1Protocols(vip, pool string) error {
	return v1Refusal(Invalid, "ProtocolMismatch", "Protocol %s does not match %s", vip, pool)
}

// CheckMonitorTimes refuses checks of LBaaS that take longer than the time between them.
func CheckMonitorTimes(m *HealthMonitor) error {
	if m.Delay >= m.Timeout {
		return nil
	}
	text := "Delay must be greater than or equal to timeout"
	return lbError(Errorf(Invalid, "DelayOrTimeoutInvalid", "%s", text), validation("%s", text))
}

// AsInvalid returns a refusal of what is known and not balanced as LBaaS v1 answers it, and any
// other error as it is.
func AsInvalid(err error) error {
	if r, ok := err.(*LBRefusal); ok && r.LBaaS.Kind == Unsupported {
		return Errorf(Invalid, "InvalidInput", "Invalid input for operation: %s.", trimDot(r.LBaaS.Message))
	}
	return err
}

func trimDot(s string) string {
	if n := len(s); n > 0 && s[n-1] == '.' {
		return s[:n-1]
	}
	return s
}

// LBStatuses returns the statuses of a load balancer and of what its listeners have, as the APIs
// answer them. An operating_status_reason, which is not of the reference, says of those that are
// not ONLINE why nothing checks their members.
func (v *LoadBalancerView) LBStatuses() map[string]any {
	one := func(s *Standard, operating string) map[string]any {
		return map[string]any{"id": s.ID, "name": s.Name, "provisioning_status": "ACTIVE", "operating_status": operating}
	}
	explain := func(o map[string]any, reason string) {
		if reason != "" {
			o["operating_status_reason"] = reason
		}
	}
	pools := map[string]map[string]any{}
	for _, p := range v.Made.Pools {
		o := one(&p.LBPool.Standard, p.OperatingStatus)
		members := []map[string]any{}
		for _, m := range p.Members {
			member := one(&m.LBMember.Standard, m.OperatingStatus)
			member["address"], member["protocol_port"] = m.Address.String(), m.ProtocolPort
			members = append(members, member)
		}
		o["members"] = members
		if m := p.Monitor; m != nil {
			monitor := one(&m.HealthMonitor.Standard, m.OperatingStatus)
			monitor["type"] = m.Type
			o["health_monitor"] = monitor
		}
		pools[p.LBPool.ID] = o
	}
	listeners := []map[string]any{}
	for _, l := range v.Made.Listeners {
		o := one(&l.Listener.Standard, l.OperatingStatus)
		explain(o, l.StatusReason)
		o["pools"] = []map[string]any{}
		if p, ok := pools[l.DefaultPoolID]; ok {
			o["pools"] = []map[string]any{p}
		}
		listeners = append(listeners, o)
	}
	balancer := one(&v.LoadBalancer.Standard, v.OperatingStatus)
	explain(balancer, v.StatusReason)
	balancer["listeners"] = listeners
	return map[string]any{"loadbalancer": balancer}
}
