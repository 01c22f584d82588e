package neutronv2

import (
	"net/http"

	"heddle/internal/api"
	"heddle/internal/neutron"
)

// loadBalancers is the part of LBaaS v2: the operations of Octavia's API, with Neutron's bodies and
// errors.
func loadBalancers() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			ops := h.ops.LoadBalancing()
			register(on, &collection[*neutron.LoadBalancerView]{h, h.tables.LoadBalancers, ops.LoadBalancers()})
			register(on, &collection[*neutron.ListenerView]{h, h.tables.Listeners, ops.Listeners()})
			register(on, &collection[*neutron.LBPoolView]{h, h.tables.LBPools, ops.Pools()})
			register(on, &collection[*neutron.HealthMonitorView]{h, h.tables.HealthMonitors, ops.HealthMonitors()})
			h.lbMembers(on)
			on("GET /v2.0/lbaas/loadbalancers/{id}/statuses", func(w http.ResponseWriter, r *http.Request) error {
				v, err := ops.Tree(r.Context(), api.Caller(r.Context()), r.PathValue("id"))
				if err == nil {
					api.WriteJSON(w, http.StatusOK, map[string]any{"statuses": v.LBStatuses()})
				}
				return err
			})
			on("GET /v2.0/lbaas/loadbalancers/{id}/stats", func(w http.ResponseWriter, r *http.Request) error {
				s, err := ops.LoadBalancerStats(r.Context(), api.Caller(r.Context()), r.PathValue("id"))
				return writeStats(w, s, err)
			})
		},
		extensions: []extension{
			{"lbaasv2", "LoadBalancing service v2", "2014-06-18T10:00:00-00:00", "Extension for LoadBalancing service v2"},
		},
	}
}

// lbMembers registers the routes of members, each below its pool.
func (h *handler) lbMembers(on func(string, endpoint)) {
	of := func(answer func(c *collection[*neutron.LBMemberView], w http.ResponseWriter, r *http.Request) error) endpoint {
		return func(w http.ResponseWriter, r *http.Request) error {
			c := &collection[*neutron.LBMemberView]{h, h.tables.LBMembers, h.ops.LoadBalancing().Members(r.PathValue("pool"))}
			return answer(c, w, r)
		}
	}
	const path, item = "/v2.0/lbaas/pools/{pool}/members", "/v2.0/lbaas/pools/{pool}/members/{id}"
	on("GET "+path, of((*collection[*neutron.LBMemberView]).list))
	on("POST "+path, of((*collection[*neutron.LBMemberView]).create))
	on("GET "+item, of((*collection[*neutron.LBMemberView]).show))
	on("PUT "+item, of((*collection[*neutron.LBMemberView]).update))
	on("DELETE "+item, of((*collection[*neutron.LBMemberView]).delete))
}

func writeStats(w http.ResponseWriter, s neutron.LBStats, err error) error {
	if err == nil {
		api.WriteJSON(w, http.StatusOK, map[string]neutron.LBStats{"stats": s})
	}
	return err
}

// loadBalancersV1 is the part of LBaaS v1, which rests on that of routers.
func loadBalancersV1() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			ops := h.ops.LoadBalancingV1()
			register(on, &collection[*neutron.VIPView]{h, h.tables.VIPs, ops.VIPs()})
			register(on, &collection[*neutron.LBPoolView]{h, h.tables.V1Pools, ops.Pools()})
			register(on, &collection[*neutron.LBMemberView]{h, h.tables.V1Members, ops.Members()})
			register(on, &collection[*neutron.HealthMonitorView]{h, h.tables.V1HealthMonitors, ops.HealthMonitors()})
			on("POST /v2.0/lb/pools/{id}/health_monitors", func(w http.ResponseWriter, r *http.Request) error {
				monitor, err := readReference(r)
				if err != nil {
					return err
				}
				ids, err := ops.Associate(r.Context(), api.Caller(r.Context()), r.PathValue("id"), monitor)
				if err == nil {
					api.WriteJSON(w, http.StatusCreated, map[string][]string{neutron.V1HealthMonitors.Name(): ids})
				}
				return err
			})
			on("DELETE /v2.0/lb/pools/{id}/health_monitors/{monitor}", func(w http.ResponseWriter, r *http.Request) error {
				return empty(w, http.StatusNoContent, ops.Dissociate(r.Context(), api.Caller(r.Context()), r.PathValue("id"), r.PathValue("monitor")))
			})
			on("GET /v2.0/lb/pools/{id}/stats", func(w http.ResponseWriter, r *http.Request) error {
				s, err := ops.PoolStats(r.Context(), api.Caller(r.Context()), r.PathValue("id"))
				if err == nil {
					api.WriteJSON(w, http.StatusOK, map[string]any{"stats": map[string]int64{
						"bytes_in": s.BytesIn, "bytes_out": s.BytesOut, "active_connections": s.ActiveConnections, "total_connections": s.TotalConnections,
					}})
				}
				return err
			})
		},
		extensions: []extension{
			{"lbaas", "LoadBalancing service", "2012-10-07T10:00:00-00:00", "Extension for LoadBalancing service"},
		},
	}
}

// readReference reads {"health_monitor":{"id":…}}, and returns the id.
func readReference(r *http.Request) (id string, err error) {
	err = readObject(r, func(body document) error {
		_, err := items(body, neutron.V1HealthMonitors, neutron.Update, func(o map[string]any) error {
			text, ok := o["id"].(string)
			if !ok || len(o) != 1 {
				return badRequest("Invalid input for health_monitor. Reason: it has an id, and nothing else.")
			}
			id = text
			return nil
		})
		return err
	})
	return id, err
}
