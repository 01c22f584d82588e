package neutronv2

import (
	"net/http"

	"heddle/internal/api"
	"heddle/internal/neutron"
	"heddle/internal/topology"
)

// portMetadata is the part of what users give to the machines behind their ports. It is Heddle's
// own: with Nova, that does so.
func portMetadata() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			const path = "/v2.0/ports/{port}/metadata"
			on("GET "+path, h.showPortMetadata)
			on("PUT "+path, h.setPortMetadata)
			on("DELETE "+path, func(w http.ResponseWriter, r *http.Request) error {
				return empty(w, http.StatusNoContent, h.ops.DeletePortMetadata(r.Context(), api.Caller(r.Context()), r.PathValue("port")))
			})
		},
		extensions: []extension{
			{"heddle-port-metadata", "Metadata of Machines", "2026-11-27T00:00:00-00:00",
				"Hostname, keys, password and user data for the machine behind a port, from Heddle's metadata service."},
		},
	}
}

func (h *handler) showPortMetadata(w http.ResponseWriter, r *http.Request) error {
	m, err := h.ops.PortMetadata(r.Context(), api.Caller(r.Context()), r.PathValue("port"))
	return writePortMetadata(w, m, err)
}

func (h *handler) setPortMetadata(w http.ResponseWriter, r *http.Request) error {
	var change func(*topology.InstanceSecrets)
	err := readObject(r, func(body document) error {
		v, err := decodeValue(body["metadata"])
		if err != nil {
			return err
		}
		fields, ok := v.(map[string]any)
		if !ok {
			return badRequest("Unable to find 'metadata' in request body")
		}
		change, err = neutron.ParsePortMetadata(fields)
		return err
	})
	if err != nil {
		return err
	}
	m, err := h.ops.ChangePortMetadata(r.Context(), api.Caller(r.Context()), r.PathValue("port"), change)
	return writePortMetadata(w, m, err)
}

func writePortMetadata(w http.ResponseWriter, m *neutron.PortMetadataView, err error) error {
	if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, map[string]any{"metadata": m})
	return nil
}
