package neutronv2

import (
	"encoding/json"
	"net/http"

	"heddle/internal/api"
	"heddle/internal/control"
	"heddle/internal/neutron"
)

// portBindings is the part of the bindings of a port to several hosts.
func portBindings() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			of := func(answer func(b bindingsOfPort, w http.ResponseWriter, r *http.Request) error) endpoint {
				return func(w http.ResponseWriter, r *http.Request) error {
					ops := h.ops.PortBindings(r.PathValue("port"))
					return answer(bindingsOfPort{&collection[*neutron.PortBindingView]{h, h.tables.PortBindings, ops.Operations}, ops}, w, r)
				}
			}
			const path, item = "/v2.0/ports/{port}/bindings", "/v2.0/ports/{port}/bindings/{id}"
			on("GET "+path, of(bindingsOfPort.list))
			on("POST "+path, of(bindingsOfPort.create))
			on("GET "+item, of(bindingsOfPort.show))
			on("PUT "+item, of(bindingsOfPort.update))
			on("DELETE "+item, of(bindingsOfPort.delete))
			on("PUT "+item+"/activate", of(bindingsOfPort.activate))
		},
		extensions: []extension{
			{"binding-extended", "Port Bindings Extended", "2017-07-17T10:00:00-00:00",
				"Expose port bindings of a virtual port to external application"},
		},
	}
}

// bindingsOfPort serves the bindings of one port; the id of each is its host's name.
type bindingsOfPort struct {
	*collection[*neutron.PortBindingView]
	ops control.PortBindingOperations
}

// create makes one binding: like the reference, it takes no lists.
func (b bindingsOfPort) create(w http.ResponseWriter, r *http.Request) error {
	caller := api.Caller(r.Context())
	var v neutron.Values
	err := readObject(r, func(body document) error {
		_, err := items(body, neutron.PortBindings, neutron.Update, func(o map[string]any) (err error) {
			v, err = neutron.Parse(caller, neutron.PortBindings, neutron.Create, o)
			return err
		})
		return err
	})
	if err != nil {
		return err
	}
	made, err := b.ops.Create(r.Context(), caller, []neutron.Values{v})
	if err != nil {
		return err
	}
	return b.writeOne(w, http.StatusCreated, b.table.Created(caller.Admin()), made[0])
}

// activate answers the binding without a name around it, as the reference does.
func (b bindingsOfPort) activate(w http.ResponseWriter, r *http.Request) error {
	view, err := b.ops.Activate(r.Context(), api.Caller(r.Context()), r.PathValue("id"))
	if err != nil {
		return err
	}
	api.WriteJSON(w, http.StatusOK, json.RawMessage(b.table.Encoder(true, nil).Append(nil, view)))
	return nil
}
