package octaviav2

import (
	"net/http"

	"heddle/internal/api"
	"heddle/internal/neutron"
)

type object = map[string]any

// statuses answers the statuses of a load balancer and of what its listeners have.
func (h *handler) statuses(w http.ResponseWriter, r *http.Request) error {
	v, err := h.ops.Tree(r.Context(), caller(r), r.PathValue("id"))
	if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, object{"statuses": v.LBStatuses()})
	return nil
}

func (h *handler) loadBalancerStats(w http.ResponseWriter, r *http.Request) error {
	s, err := h.ops.LoadBalancerStats(r.Context(), caller(r), r.PathValue("id"))
	return writeStats(w, s, err)
}

func (h *handler) listenerStats(w http.ResponseWriter, r *http.Request) error {
	s, err := h.ops.ListenerStats(r.Context(), caller(r), r.PathValue("id"))
	return writeStats(w, s, err)
}

func writeStats(w http.ResponseWriter, s neutron.LBStats, err error) error {
	if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, map[string]neutron.LBStats{"stats": s})
	return nil
}

// failover moves the health checks of a load balancer to another host, if there is one.
func (h *handler) failover(w http.ResponseWriter, r *http.Request) error {
	if err := h.ops.Failover(r.Context(), caller(r), r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}
