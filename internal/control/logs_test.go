package control_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// loggers returns what is derived from a log; nil for nothing.
func (w *world) loggers(id string) []topology.Logger {
	w.t.Helper()
	snap, err := w.db.View(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	b, ok := schema.Bundles.Peek(snap, "log/"+id)
	if !ok {
		return nil
	}
	return b.Bundle.Loggers
}

// TestLogs: admins make logs of groups and ports, which the project does not see; while they are
// enabled they are in the topology. They go with their group or port, and leave nothing.
func TestLogs(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{}`)
	g := must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"g"}`)
	p := w.port(n.ID, `"security_groups":["`+g.ID+`"]`)
	make := func(text string) *neutron.Log {
		t.Helper()
		return must[*neutron.Log](w, w.admin, neutron.Logs, `{"project_id":"`+w.member.ProjectID+`","resource_type":"security_group"`+text+`}`)
	}
	group, port := `,"resource_id":"`+g.ID+`"`, `,"target_id":"`+p.ID+`"`
	ofGroup, ofPort, ofBoth := make(group+`,"event":"DROP"`), make(port), make(group+port+`,"event":"ACCEPT"`)
	ofAll, disabled := make(``), make(group+`,"enabled":false`)
	groupChains := w.bundle("security-group", g.ID).Chains
	portDevice := w.bundle("port", p.ID).Ports[0]
	groupIDs := []string{groupChains[0].ID, groupChains[1].ID}
	portIDs := []string{portDevice.InboundFilterID, portDevice.OutboundFilterID}
	for _, tt := range []struct {
		log  *neutron.Log
		want []topology.Logger
	}{
		{ofGroup, []topology.Logger{{ID: ofGroup.ID, Drops: true, GroupChainIDs: groupIDs}}},
		{ofPort, []topology.Logger{{ID: ofPort.ID, Accepts: true, Drops: true, ChainIDs: portIDs}}},
		{ofBoth, []topology.Logger{{ID: ofBoth.ID, Accepts: true, ChainIDs: portIDs, GroupChainIDs: groupIDs}}},
		{ofAll, []topology.Logger{{ID: ofAll.ID, Accepts: true, Drops: true, TenantID: w.member.ProjectID}}},
	} {
		if d := cmp.Diff(tt.want, w.loggers(tt.log.ID)); d != "" {
			t.Errorf("loggers (-want +got):\n%s", d)
		}
		if d := cmp.Diff(translate.Log(tt.log).Loggers, tt.want); d != "" {
			t.Errorf("translated otherwise:\n%s", d)
		}
	}
	if w.loggers(disabled.ID) != nil {
		t.Error("a disabled log is in the topology")
	}
	if _, err := w.change(w.admin, neutron.Logs, disabled.ID, `{"enabled":true,"name":"on"}`); err != nil || len(w.loggers(disabled.ID)) != 1 {
		t.Errorf("enabled: %v, %v", err, w.loggers(disabled.ID))
	}
	if _, err := w.change(w.admin, neutron.Logs, disabled.ID, `{"enabled":false}`); err != nil || w.loggers(disabled.ID) != nil {
		t.Errorf("disabled again: %v", err)
	}

	if err := w.remove(w.member, neutron.Ports, p.ID); err != nil {
		t.Fatal(err)
	}
	w.expect(w.remove(w.admin, neutron.Logs, ofPort.ID), "LogResourceNotFound: Log resource "+ofPort.ID+" could not be found.")
	if w.loggers(ofPort.ID) != nil || w.loggers(ofBoth.ID) != nil || w.loggers(ofGroup.ID) == nil {
		t.Error("the port is gone, but its logs are in the topology, or the group's is not")
	}
	if err := w.remove(w.admin, neutron.Logs, ofAll.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.remove(w.member, neutron.SecurityGroups, g.ID); err != nil {
		t.Fatal(err)
	}
	w.expect(w.remove(w.admin, neutron.Logs, disabled.ID), "LogResourceNotFound: Log resource "+disabled.ID+" could not be found.")
	if w.loggers(ofGroup.ID) != nil {
		t.Error("the group is gone, but its log is in the topology")
	}
}

// TestLogsRefused: logs of what is not there are refused, and what users of the project ask for.
func TestLogsRefused(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	n := w.network(`{}`)
	g := must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"g"}`)
	p := w.port(n.ID, "")
	before := w.dump()
	const unknown = "5e7a04b4-84a4-4bd9-a51c-3d9c6d9c0b4f"
	for body, want := range map[string]string{
		`"resource_type":"snat"`:                                           "InvalidLogResourceType: Invalid log resource_type: snat.",
		`"resource_type":"security_group","event":"x"`:                     "HTTPBadRequest: Invalid input for event. Reason: x is not in valid_values.",
		`"resource_type":"security_group","resource_id":"` + unknown + `"`: "ResourceNotFound: Resource " + unknown + " could not be found.",
		`"resource_type":"security_group","target_id":"` + unknown + `"`:   "TargetResourceNotFound: Target resource " + unknown + " could not be found.",
		`"resource_type":"security_group","resource_id":"` + g.ID + `","target_id":"` + p.ID + `"`: "InvalidResourceConstraint: Invalid resource constraint between resource (security_group " +
			g.ID + ") and target resource (port " + p.ID + ").",
	} {
		_, err := w.create(w.admin, neutron.Logs, "{"+body+"}")
		w.expect(err, want)
	}
	_, err := w.create(w.member, neutron.Logs, `{"resource_type":"security_group"}`)
	w.expect(err, "PolicyNotAuthorized: rule:create_log is disallowed by policy")
	if d := cmp.Diff(before, w.dump()); d != "" {
		t.Errorf("refusals left traces:\n%s", d)
	}
	l := must[*neutron.Log](w, w.admin, neutron.Logs, `{"project_id":"`+w.member.ProjectID+`","resource_type":"security_group"}`)
	for _, tt := range []struct {
		c           neutron.Caller
		logs, types int
	}{{w.admin, 1, 2}, {w.member, 0, 0}} {
		found, err := all(w.Logs().List(t.Context(), tt.c, neutron.Query{}))
		types, err2 := all(w.LoggableResources().List(t.Context(), tt.c, neutron.Query{}))
		if err != nil || err2 != nil || len(found) != tt.logs || len(types) != tt.types {
			t.Errorf("%s sees %d logs and %d types, %v, %v; want %d and %d", tt.c.ProjectID, len(found), len(types), err, err2, tt.logs, tt.types)
		}
	}
	if _, err := w.Logs().Show(t.Context(), w.member, l.ID); err == nil {
		t.Error("a user of the project is shown its log")
	}
	w.expect(w.remove(w.member, neutron.Logs, l.ID), "LogResourceNotFound: Log resource "+l.ID+" could not be found.")
}

// TestLogOfFirewall: an admin's log of a firewall is a logger of its chain with a file of its own,
// while it is enabled, and goes with the firewall.
func TestLogOfFirewall(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.routerTo(w.member, "")
	f := must[*neutron.FirewallView](w, w.member, neutron.Firewalls, `{"firewall_policy_id":"`+w.firewallPolicy()+`"}`)
	for _, more := range []string{``, `,"resource_id":"` + f.ID + `","target_id":"` + f.ID + `"`, `,"resource_id":"` + w.network(`{}`).ID + `"`} {
		if _, err := w.create(w.admin, neutron.Logs, `{"resource_type":"firewall"`+more+`}`); err == nil {
			t.Errorf("a log with %q is made", more)
		}
	}
	l := must[*neutron.Log](w, w.admin, neutron.Logs, `{"resource_type":"firewall","resource_id":"`+f.ID+`","event":"DROP"}`)
	b := w.bundle("log", l.ID)
	if len(b.RuleLoggers) != 1 || len(b.LoggingResources) != 1 {
		t.Fatalf("translated to %+v", b)
	}
	x := b.RuleLoggers[0]
	if x.ChainID != w.bundle("firewall", f.ID).Chains[0].ID || x.Event != topology.LogDrop || x.LoggingResourceID != b.LoggingResources[0].ID || !b.LoggingResources[0].Enabled ||
		topology.MetadataOf(x.Metadata, topology.MetadataTenant) != f.ProjectID {
		t.Errorf("translated to %+v, %+v", x, b.LoggingResources[0])
	}
	if _, err := w.change(w.admin, neutron.Logs, l.ID, `{"enabled":false}`); err != nil {
		t.Fatal(err)
	}
	if got := w.keysOf("log/" + l.ID); got > 0 {
		t.Error("a log that is not enabled is something to packets")
	}
	if _, err := w.change(w.admin, neutron.Logs, l.ID, `{"enabled":true}`); err != nil {
		t.Fatal(err)
	}
	if err := w.remove(w.member, neutron.Firewalls, f.ID); err != nil {
		t.Fatal(err)
	}
	if got := w.keysOf("log/" + l.ID); got > 0 {
		t.Error("a log outlives its firewall")
	}
}
