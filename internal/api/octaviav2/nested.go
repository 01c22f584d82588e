package octaviav2

import (
	"encoding/json"

	"heddle/internal/neutron"
)

// nestedListeners takes the listeners inside a load balancer.
func (h *handler) nestedListeners(b *body, raw json.RawMessage) (any, error) {
	return list(b, raw, func(item json.RawMessage) (neutron.Values, error) {
		return b.object(h.listener.rows, "loadbalancer.listeners", item, "loadbalancer_id")
	})
}

// nestedPools takes the pools inside a load balancer.
func (h *handler) nestedPools(b *body, raw json.RawMessage) (any, error) {
	return list(b, raw, func(item json.RawMessage) (neutron.Values, error) { return h.poolInside(b, item, "loadbalancer.pools") })
}

func (h *handler) poolInside(b *body, raw json.RawMessage, path string) (neutron.Values, error) {
	return b.object(h.pool.rows, path, raw, "loadbalancer_id", "listener_id")
}

// nestedPool takes the pool inside a listener: a whole one, or the name of another.
func (h *handler) nestedPool(b *body, raw json.RawMessage) (any, error) {
	if m, ok := members(raw); ok && len(m) == 1 && m["name"] != nil {
		name, err := text(maxText255)(b, m["name"])
		return neutron.Values{"name": name}, err
	}
	return h.poolInside(b, raw, "listener.default_pool")
}

// nestedMembers takes the members inside a pool.
func (h *handler) nestedMembers(b *body, raw json.RawMessage) (any, error) {
	return list(b, raw, func(item json.RawMessage) (neutron.Values, error) {
		return b.object(h.member.rows, "pool.members", item)
	})
}

// nestedMonitor takes the health monitor inside a pool.
func (h *handler) nestedMonitor(b *body, raw json.RawMessage) (any, error) {
	return b.object(h.monitor.rows, "pool.healthmonitor", raw, "pool_id")
}

// list reads each element of a list.
func list(b *body, raw json.RawMessage, read func(json.RawMessage) (neutron.Values, error)) (any, error) {
	items, err := elements(raw)
	if err != nil {
		return nil, err
	}
	all := make([]neutron.Values, len(items))
	for i, item := range items {
		if all[i], err = read(item); err != nil {
			return nil, err
		}
		delete(all[i], "tenant_id")
		delete(all[i], "project_id")
	}
	return all, nil
}

// additionalVIPs refuses further addresses of a load balancer.
func additionalVIPs(b *body, raw json.RawMessage) (any, error) {
	items, err := elements(raw)
	if err != nil || len(items) == 0 {
		return nil, err
	}
	root, _ := members(b.raw)
	balancer, _ := members(root["loadbalancer"])
	for _, item := range items {
		vip, _ := members(item)
		if s := pyText(vip["subnet_id"]); vip["subnet_id"] != nil && s == pyText(balancer["vip_subnet_id"]) {
			return nil, neutron.LBInvalid("Duplicate VIP subnet(s) specified. Only one IP can be bound per subnet.")
		}
	}
	return nil, neutron.LBUnsupported("additional_vips")
}
