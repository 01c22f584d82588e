package control_test

import (
	"testing"
	"time"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// TestGatewayAgents: a device with a switch is an agent, which is alive while a server is
// connected.
func TestGatewayAgents(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	d := w.gatewayDevice(`{"type":"router_vtep","resource_id":"` + w.router(`{}`).ID + `","tunnel_ips":["192.0.2.1"],"management_ip":"192.0.2.9","management_port":6640}`)
	w.vtepOf(w.router(`{}`).ID, "192.0.2.2") // without a switch
	agents, err := all(w.Agents().List(t.Context(), w.admin, neutron.Query{}))
	if err != nil || len(agents) != 1 || agents[0].ID != d.ID || agents[0].AgentType != "L2 Gateway agent" || agents[0].Alive {
		t.Fatalf("agents %+v, %v", agents, err)
	}
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	_, err = w.db.Update(t.Context(), func(tx *records.Tx) error {
		return schema.GatewayStates.Put(tx, &topology.GatewayState{HolderID: topology.RemoteHolder, DeviceID: d.ID, Server: "s1", Connected: true, Since: since,
			Switches: []string{"sw0"}, Ports: []string{"p0"}, Faults: []string{"a port is missing"}})
	})
	if err != nil {
		t.Fatal(err)
	}
	a, err := w.Agents().Show(t.Context(), w.admin, d.ID)
	if err != nil || !a.Alive || a.Host != "s1" || !a.StartedAt.Equal(since) || a.Configurations["connected"] != true ||
		a.Configurations["switch"].([]string)[0] != "sw0" || a.Configurations["faults"].([]string)[0] != "a port is missing" {
		t.Errorf("agent %+v, %v", a, err)
	}
	if err := w.Agents().Delete(t.Context(), w.admin, d.ID, nil); problem(err) != "AgentInUse: Agent "+d.ID+" goes when its gateway device does." {
		t.Error(err)
	}
	v, err := parse(w.admin, neutron.Agents, neutron.Update, `{"admin_state_up":false}`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Agents().Update(t.Context(), w.admin, d.ID, v, nil); problem(err) == "" {
		t.Error("an agent without settings was updated")
	}
	if _, err := w.Agents().Show(t.Context(), w.member, d.ID); problem(err) != "AgentNotFound: Agent "+d.ID+" could not be found." {
		t.Errorf("a member asks: %v", err)
	}
}
