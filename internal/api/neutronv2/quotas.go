package neutronv2

import (
	"encoding/json"
	"net/http"
	"strings"

	"heddle/internal/api"
	"heddle/internal/neutron"
)

func (h *handler) listQuotas(w http.ResponseWriter, r *http.Request) error {
	quotas, err := h.ops.Quotas(r.Context(), api.Caller(r.Context()))
	if err != nil {
		return err
	}
	list := make([]map[string]any, 0, len(quotas))
	for _, q := range quotas {
		o := map[string]any{"tenant_id": q.ProjectID, "project_id": q.ProjectID}
		for name, limit := range q.Limits {
			o[name] = limit
		}
		list = append(list, o)
	}
	api.WriteJSON(w, http.StatusOK, map[string]any{"quotas": list})
	return nil
}

// ownProject answers whose token it is, which python-neutronclient asks for here.
func (h *handler) ownProject(key string) endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		project := api.Caller(r.Context()).ProjectID
		if project == "" {
			return neutron.Errorf(neutron.Invalid, "QuotaMissingTenant", "Tenant-id was missing from quota request.")
		}
		api.WriteJSON(w, http.StatusOK, map[string]any{key: map[string]string{key + "_id": project}})
		return nil
	}
}

func (h *handler) showQuota(w http.ResponseWriter, r *http.Request) error {
	q, err := h.ops.Quota(r.Context(), api.Caller(r.Context()), r.PathValue("project"))
	return writeQuota(w, q.Limits, err)
}

func (h *handler) defaultQuota(w http.ResponseWriter, r *http.Request) error {
	q, err := h.ops.DefaultQuota(r.Context(), api.Caller(r.Context()), r.PathValue("project"))
	return writeQuota(w, q.Limits, err)
}

func (h *handler) quotaDetails(w http.ResponseWriter, r *http.Request) error {
	details, err := h.ops.QuotaDetails(r.Context(), api.Caller(r.Context()), r.PathValue("project"))
	return writeQuota(w, details, err)
}

func writeQuota(w http.ResponseWriter, quota any, err error) error {
	if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, map[string]any{"quota": quota})
	return nil
}

func (h *handler) setQuota(w http.ResponseWriter, r *http.Request) error {
	caller := api.Caller(r.Context())
	if err := neutron.AuthorizeQuota(caller, "update", r.PathValue("project")); err != nil {
		return err // before the body is looked at, as the reference does
	}
	var v neutron.Values
	checkLimit := isTrue(r.URL.Query().Get("check_limit"))
	err := readObject(r, func(body document) error {
		_, err := items(body, neutron.Quotas, neutron.Update, func(limits map[string]any) (err error) {
			checkLimit = checkLimit || isTrue(limits["check_limit"])
			delete(limits, "check_limit")
			delete(limits, "force") // not to check is the default
			v, err = neutron.Parse(caller, neutron.Quotas, neutron.Update, limits)
			return err
		})
		return err
	})
	if err != nil {
		return err
	}
	q, err := h.ops.SetQuota(r.Context(), caller, r.PathValue("project"), v, checkLimit)
	return writeQuota(w, q.Limits, err)
}

// isTrue reads a flag that clients send as a boolean, a text or a number.
func isTrue(v any) bool {
	switch v := v.(type) {
	case bool:
		return v
	case string:
		return strings.EqualFold(v, "true") || v == "1"
	case json.Number:
		return v == "1"
	}
	return false
}

func (h *handler) resetQuota(w http.ResponseWriter, r *http.Request) error {
	return empty(w, http.StatusNoContent, h.ops.ResetQuota(r.Context(), api.Caller(r.Context()), r.PathValue("project")))
}
