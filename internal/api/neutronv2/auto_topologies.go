package neutronv2

import (
	"net/http"
	"slices"

	"heddle/internal/api"
	"heddle/internal/neutron"
)

// autoTopologies is the part of auto-allocated topologies, or "get me a network".
func autoTopologies() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			on("GET /v2.0/auto-allocated-topology/{project}", h.getTopology)
			on("DELETE /v2.0/auto-allocated-topology/{project}", h.deleteTopology)
		},
		extensions: []extension{
			{"auto-allocated-topology", "Auto Allocated Topology Services", "2016-01-01T00:00:00-00:00",
				"Auto Allocated Topology Services."},
		},
	}
}

// getTopology answers a project's topology, which is made if need be, or with fields=dry-run
// whether it could be.
func (h *handler) getTopology(w http.ResponseWriter, r *http.Request) error {
	caller := api.Caller(r.Context())
	project, err := projectOfTopology(r)
	if err != nil {
		return err
	}
	topology := map[string]string{"tenant_id": project}
	switch fields := nonEmpty(r.URL.Query()["fields"]); {
	case slices.Contains(fields, "dry-run"):
		topology["id"] = "dry-run=pass"
		err = h.ops.CheckAutoTopology(r.Context(), caller, project)
	case len(fields) > 0:
		err = neutron.Errorf(neutron.Invalid, "BadRequest", "Bad auto_allocate request: Unrecognized field.")
	default:
		topology["project_id"] = project
		topology["id"], err = h.ops.AutoTopology(r.Context(), caller, project)
	}
	if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, map[string]any{"auto_allocated_topology": topology})
	return nil
}

func (h *handler) deleteTopology(w http.ResponseWriter, r *http.Request) error {
	project, err := projectOfTopology(r)
	if err != nil {
		return err
	}
	return empty(w, http.StatusNoContent, h.ops.DeleteAutoTopology(r.Context(), api.Caller(r.Context()), project))
}

// projectOfTopology returns the project that a path names; clients write None for their own.
func projectOfTopology(r *http.Request) (string, error) {
	project := r.PathValue("project")
	if project == "None" {
		project = api.Caller(r.Context()).ProjectID
	}
	if project == "" {
		return "", neutron.Errorf(neutron.Invalid, "BadRequest", "Bad auto_allocate request: the token has no project; name one in the path.")
	}
	return project, nil
}
