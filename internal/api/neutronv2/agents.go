package neutronv2

import (
	"encoding/json"
	"net/http"

	"heddle/internal/api"
	"heddle/internal/control"
	"heddle/internal/neutron"
)

// agents is the part of hosts as Neutron's clients know them: agents, availability zones, and what
// is on which agent. It rests on that of routers.
func agents() part {
	return part{
		routes: func(h *handler, on func(string, endpoint)) {
			register(on, &collection[*neutron.AgentView]{h, h.tables.Agents, h.ops.Agents()})
			zones := &collection[*neutron.AvailabilityZone]{h, h.tables.AvailabilityZones, h.ops.AvailabilityZones()}
			on("GET /v2.0"+neutron.AvailabilityZones.Path(), zones.list)
			scheduled(h, on, "dhcp-networks", "dhcp-agents", h.tables.Networks, h.ops.DHCPSchedule())
			scheduled(h, on, "l3-routers", "l3-agents", h.tables.Routers, h.ops.L3Schedule())
		},
		extensions: []extension{
			{"agent", "agent", "2013-02-03T10:00:00-00:00",
				"The agent management extension."},
			{"agent-resources-synced", "Agent's Resource View Synced to Placement", "2018-12-19T00:00:00-00:00",
				"Stores success/failure of last sync to Placement"},
			{"availability_zone", "Availability Zone", "2015-01-01T10:00:00-00:00",
				"Availability zone support."},
			{"availability_zone_filter", "Availability Zone Filter Extension", "2018-06-22T10:00:00-00:00",
				"Add filter parameters to AvailabilityZone resource"},
			{"dhcp_agent_scheduler", "DHCP Agent Scheduler", "2013-02-07T10:00:00-00:00",
				"Schedule networks among dhcp agents"},
			{"l3_agent_scheduler", "L3 Agent Scheduler", "2013-02-07T10:00:00-00:00",
				"Schedule routers among l3 agents"},
			{"network_availability_zone", "Network Availability Zone", "2015-01-01T10:00:00-00:00",
				"Availability zone support for network."},
			{"router_availability_zone", "Router Availability Zone", "2015-01-01T10:00:00-00:00",
				"Availability zone support for router."},
		},
	}
}

// scheduled registers the routes of objects on agents of one kind: below an agent are its objects,
// and below an object its agents.
func scheduled[T any](h *handler, on func(string, endpoint), objects, agents string, table *neutron.Table[T], ops control.AgentSchedule[T]) {
	res := table.Resource
	path := "/v2.0/agents/{id}/" + objects
	on("GET "+path, func(w http.ResponseWriter, r *http.Request) error {
		caller := api.Caller(r.Context())
		objects, err := ops.List(r.Context(), caller, r.PathValue("id"))
		if err != nil {
			return err
		}
		return writeAll(w, table, caller, objects)
	})
	on("POST "+path, func(w http.ResponseWriter, r *http.Request) error {
		id, err := readID(r, res.Name()+"_id")
		if err != nil {
			return err
		}
		if err := ops.Add(r.Context(), api.Caller(r.Context()), r.PathValue("id"), id); err != nil {
			return err
		}
		api.WriteJSON(w, http.StatusCreated, nil)
		return nil
	})
	on("DELETE "+path+"/{object}", func(w http.ResponseWriter, r *http.Request) error {
		return empty(w, http.StatusNoContent, ops.Remove(r.Context(), api.Caller(r.Context()), r.PathValue("id"), r.PathValue("object")))
	})
	on("GET /v2.0"+res.Path()+"/{id}/"+agents, func(w http.ResponseWriter, r *http.Request) error {
		caller := api.Caller(r.Context())
		found, err := ops.Agents(r.Context(), caller, r.PathValue("id"))
		if err != nil {
			return err
		}
		return writeAll(w, h.tables.Agents, caller, found)
	})
}

// writeAll answers a list that is not cut into pages.
func writeAll[T any](w http.ResponseWriter, table *neutron.Table[T], caller neutron.Caller, objects []T) error {
	e := table.Encoder(caller.Admin(), nil)
	out := newListWriter(w, http.StatusOK, table.Resource.Collection())
	for _, o := range objects {
		out.item(func(b []byte) []byte { return e.Append(b, o) })
	}
	return out.end(nil)
}

// readID reads a body that names one object, such as {"network_id": …}.
func readID(r *http.Request, name string) (id string, err error) {
	err = readObject(r, func(body document) error {
		if json.Unmarshal(body[name], &id) != nil || id == "" {
			return neutron.Errorf(neutron.Invalid, "HTTPBadRequest", "Failed to parse request. Required attribute '%s' not specified", name)
		}
		return nil
	})
	return id, err
}
