package control

import (
	"context"
	"errors"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// HealthMonitors returns the operations on health monitors.
func (s *LoadBalancing) HealthMonitors() Operations[*neutron.HealthMonitorView] {
	id := func(v *neutron.HealthMonitorView) string { return v.ID }
	return Operations[*neutron.HealthMonitorView]{
		Create: func(ctx context.Context, c neutron.Caller, vs []neutron.Values) ([]*neutron.HealthMonitorView, error) {
			return s.monitors.create(ctx, c, vs, s.createMonitor, id)
		},
		Update: s.updateMonitor,
		Delete: func(ctx context.Context, c neutron.Caller, id string, ifMatch *int64) error {
			return s.monitors.remove(ctx, c, id, ifMatch, (*operation).removeMonitor)
		},
		Show: s.monitors.show, List: s.monitors.list,
	}
}

// createMonitor makes the health monitor of a pool. Only a file has one without a pool: the pool
// that comes later names it.
func (s *LoadBalancing) createMonitor(o *operation, v neutron.Values) (*neutron.HealthMonitorView, error) {
	if v.Text("pool_id") == "" {
		m, err := s.newMonitor(o, &neutron.LBPool{Standard: neutron.Standard{ProjectID: v.Text("project_id")}}, v)
		if err != nil {
			return nil, err
		}
		return s.monitors.view(o.tx, m), nil
	}
	old, err := s.pools.toChange(o, v.Text("pool_id"), "update")
	if err != nil {
		return nil, err
	}
	if old.HealthMonitorID != "" {
		return nil, neutron.PoolHasMonitor(old.ID, old.HealthMonitorID)
	}
	m, err := s.newMonitor(o, old, v)
	if err != nil {
		return nil, err
	}
	p := *old
	p.HealthMonitorID = m.ID
	o.bump(&p.Standard)
	if err := o.putLBPool(&p); err != nil {
		return nil, err
	}
	return s.monitors.view(o.tx, m), nil
}

// newMonitor makes the health monitor of a pool, whose project has it. The caller stores the pool.
func (s *LoadBalancing) newMonitor(o *operation, p *neutron.LBPool, v neutron.Values) (*neutron.HealthMonitor, error) {
	m := &neutron.HealthMonitor{
		Standard: o.lbStandard(v), AdminStateUp: v.Flag("admin_state_up"), Type: v.Text("type"),
		ByFailures: v.Number("max_retries_down") == nil, MaxRetriesDown: defaultRetriesDown,
	}
	m.ProjectID = p.ProjectID
	if err := applyMonitor(m, v, p.Protocol); err != nil {
		return nil, err
	}
	if err := o.chargeLB(m.ProjectID, lbQuotaMonitor, neutron.NameHealthMonitor, 1); err != nil {
		return nil, err
	}
	return m, o.putMonitor(m)
}

// defaultRetriesDown is that of max_retries_down.
const defaultRetriesDown = 3

// Defaults of monitors that send HTTP requests.
const (
	defaultHTTPMethod = "GET"
	defaultURLPath    = "/"
	defaultCodes      = "200"
)

// applyMonitor sets what a request names, and checks it with the protocol of the pool, if there is
// one.
func applyMonitor(m *neutron.HealthMonitor, v neutron.Values, protocol string) error {
	setFlag(&m.AdminStateUp, v, "admin_state_up")
	setNumber(&m.Delay, v, "delay")
	setNumber(&m.Timeout, v, "timeout")
	setNumber(&m.MaxRetries, v, "max_retries")
	if v.Number("max_retries_down") != nil {
		m.ByFailures = false
	}
	setNumber(&m.MaxRetriesDown, v, "max_retries_down")
	for name, to := range map[string]*string{
		"http_method": &m.HTTPMethod, "url_path": &m.URLPath, "expected_codes": &m.ExpectedCodes, "http_version": &m.HTTPVersion, "domain_name": &m.DomainName,
	} {
		setText(to, v, name)
	}
	if m.HTTP() {
		for to, instead := range map[*string]string{&m.HTTPMethod: defaultHTTPMethod, &m.URLPath: defaultURLPath, &m.ExpectedCodes: defaultCodes} {
			if *to == "" {
				*to = instead
			}
		}
	}
	if m.ByFailures {
		if err := neutron.CheckMonitorTimes(m); err != nil {
			return err
		}
	}
	return neutron.CheckHealthMonitor(m, v, protocol)
}

func (s *LoadBalancing) updateMonitor(ctx context.Context, c neutron.Caller, id string, v neutron.Values, ifMatch *int64) (*neutron.HealthMonitorView, error) {
	return s.monitors.modify(ctx, c, id, v, ifMatch, func(o *operation, m, _ *neutron.HealthMonitor) error {
		protocol := ""
		for p := range schema.LBPools.By(o.tx, "health_monitor", id) {
			protocol = p.Protocol
		}
		return applyMonitor(m, v, protocol)
	}, (*operation).putMonitor)
}

// putMonitor stores a health monitor with what is derived from it.
func (o *operation) putMonitor(m *neutron.HealthMonitor) error {
	if err := schema.HealthMonitors.Put(o.tx, m); err != nil {
		return err
	}
	return o.putBundle(kindHealthMonitor, m.ID, translate.HealthMonitor(m))
}

// removeMonitor deletes a health monitor, and leaves its pool without one.
func (o *operation) removeMonitor(m *neutron.HealthMonitor) error {
	for _, id := range schema.LBPools.Referrers(o.tx, "health_monitor", m.ID) {
		old, err := schema.LBPools.Get(o.tx, id)
		if err != nil {
			return err
		}
		p := *old
		p.HealthMonitorID = ""
		o.bump(&p.Standard)
		if err := o.putLBPool(&p); err != nil {
			return err
		}
	}
	return o.dropMonitor(m.ID)
}

// dropMonitor deletes a health monitor that no pool has, with what is derived from it.
func (o *operation) dropMonitor(id string) error {
	return errors.Join(o.dropBundle(kindHealthMonitor, id), schema.HealthMonitors.Delete(o.tx, id))
}

func healthMonitorView(r records.Reader, m *neutron.HealthMonitor) *neutron.HealthMonitorView {
	status := neutron.LBOnline
	if !m.AdminStateUp {
		status = neutron.LBOffline
	}
	return &neutron.HealthMonitorView{
		HealthMonitor: m, OperatingStatus: status,
		Pools: idsOf(schema.LBPools.By(r, "health_monitor", m.ID), func(p *neutron.LBPool) *neutron.Standard { return &p.Standard }),
	}
}
