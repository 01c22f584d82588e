package octaviav2

import (
	"encoding/json"
	"math"
	"net/http"

	"heddle/internal/api"
	"heddle/internal/neutron"
)

// quotaNames are the names of limits, each with its other spelling, which is for requests and
// lists, or "".
var quotaNames = [][2]string{
	{"load_balancer", "loadbalancer"}, {"listener", ""}, {"pool", ""}, {"member", ""}, {"health_monitor", "healthmonitor"}, {"l7policy", ""}, {"l7rule", ""},
}

// registerQuotas adds the routes of limits, which clients look for in two places.
func (h *handler) registerQuotas(on func(string, endpoint)) {
	h.registerQuotasAt(on, lbaas+"/quotas")
	h.registerQuotasAt(on, "/v2/quotas")
}

func (h *handler) registerQuotasAt(on func(string, endpoint), path string) {
	on("GET "+path, h.listQuotas)
	on("GET "+path+"/defaults", func(w http.ResponseWriter, r *http.Request) error {
		if !caller(r).LBQuotaAdmin() {
			return neutron.LBForbidden("get_quota-defaults")
		}
		return writeQuota(w, http.StatusOK, nil)
	})
	on("GET "+path+"/{project}", func(w http.ResponseWriter, r *http.Request) error {
		limits, err := h.ops.Quota(r.Context(), caller(r), r.PathValue("project"))
		if err != nil {
			return err
		}
		return writeQuota(w, http.StatusOK, limits)
	})
	on("GET "+path+"/{project}/default", func(w http.ResponseWriter, r *http.Request) error {
		if _, err := h.ops.Quota(r.Context(), caller(r), r.PathValue("project")); err != nil {
			return err
		}
		return writeQuota(w, http.StatusOK, nil)
	})
	on("PUT "+path+"/{project}", h.setQuota)
	on("DELETE "+path+"/{project}", func(w http.ResponseWriter, r *http.Request) error {
		if err := h.ops.ResetQuota(r.Context(), caller(r), r.PathValue("project")); err != nil {
			return err
		}
		w.WriteHeader(http.StatusAccepted)
		return nil
	})
}

func writeQuota(w http.ResponseWriter, status int, limits map[string]int) error {
	q := object{}
	for _, names := range quotaNames {
		q[names[0]] = -1
		if n, ok := limits[names[0]]; ok {
			q[names[0]] = n
		}
	}
	api.WriteJSON(w, status, object{"quota": q})
	return nil
}

func (h *handler) listQuotas(w http.ResponseWriter, r *http.Request) error {
	all, err := h.ops.Quotas(r.Context(), caller(r))
	if err != nil {
		return err
	}
	quotas := []object{}
	for _, q := range all {
		o := object{"project_id": q.ProjectID, "tenant_id": q.ProjectID}
		for _, names := range quotaNames {
			var limit any
			if n, ok := q.Limits[names[0]]; ok {
				limit = n
			}
			for _, name := range names {
				if name != "" {
					o[name] = limit
				}
			}
		}
		quotas = append(quotas, o)
	}
	api.WriteJSON(w, http.StatusOK, object{"quotas": quotas, "quotas_links": []any{}})
	return nil
}

func (h *handler) setQuota(w http.ResponseWriter, r *http.Request) error {
	if !caller(r).LBQuotaAdmin() {
		return neutron.LBForbidden("update_quota")
	}
	limit := integer(-1, math.MaxInt32)
	var rows []*attribute
	for _, names := range quotaNames {
		for _, name := range names {
			if name != "" {
				rows = append(rows, &attribute{name: name, update: true, def: none{}, parse: limit})
			}
		}
	}
	limits := map[string]*int{}
	err := readBody(r, update, "quotas", "quota", func(b *body, raw json.RawMessage) error {
		v, err := b.object(rows, "quota", raw)
		if err != nil {
			return err
		}
		for _, names := range quotaNames {
			for _, name := range names {
				if v.Has(name) {
					limits[names[0]] = v.Number(name)
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	set, err := h.ops.SetQuota(r.Context(), caller(r), r.PathValue("project"), limits)
	if err != nil {
		return err
	}
	return writeQuota(w, http.StatusAccepted, set)
}
