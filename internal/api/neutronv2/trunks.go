package neutronv2

import (
	"context"
	"net/http"

	"heddle/internal/api"
	"heddle/internal/neutron"
)

// trunks is the part of trunks.
func trunks() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			ops := h.ops.Trunks()
			a := trunkActions{&collection[*neutron.TrunkView]{h, h.tables.Trunks, ops.Operations}}
			register(on, a.collection)
			on("PUT /v2.0/trunks/{id}/add_subports", a.changeSubports(ops.AddSubports))
			on("PUT /v2.0/trunks/{id}/remove_subports", a.changeSubports(ops.RemoveSubports))
			on("GET /v2.0/trunks/{id}/get_subports", a.getSubports)
		},
		extensions: []extension{
			{"trunk", "Trunk Extension", "2016-01-01T10:00:00-00:00", "Provides support for trunk ports"},
			{"trunk-details", "Trunk port details", "2016-01-01T10:00:00-00:00", "Expose trunk port details"},
		},
	}
}

// trunkActions serves what clients do with the subports of a trunk.
type trunkActions struct {
	*collection[*neutron.TrunkView]
}

// changeSubports answers a request to add subports or to remove them: with the trunk alone, as the
// reference.
func (a trunkActions) changeSubports(change func(context.Context, neutron.Caller, string, []neutron.SubportRequest) (*neutron.TrunkView, error)) endpoint {
	return func(w http.ResponseWriter, r *http.Request) error {
		var requests []neutron.SubportRequest
		err := readObject(r, func(body document) error {
			list, err := decodeValue(body["sub_ports"])
			if err != nil {
				return err
			}
			requests, err = neutron.ParseSubports(map[string]any{"sub_ports": list})
			return err
		})
		if err != nil {
			return err
		}
		caller := api.Caller(r.Context())
		t, err := change(r.Context(), caller, r.PathValue("id"), requests)
		if err != nil {
			return err
		}
		writeJSON(w, a.table.Encoder(caller.Admin(), nil).Append(nil, t))
		return nil
	}
}

// getSubports answers the subports of a trunk.
func (a trunkActions) getSubports(w http.ResponseWriter, r *http.Request) error {
	t, err := a.ops.Show(r.Context(), api.Caller(r.Context()), r.PathValue("id"))
	if err != nil {
		return err
	}
	writeJSON(w, neutron.AppendSubports(nil, t.Subports))
	return nil
}

func writeJSON(w http.ResponseWriter, b []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(b) // a client that has gone is not our error
}
