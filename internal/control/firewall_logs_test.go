package control_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/neutron"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// firewallLog makes a log below a logging resource.
func (w *world) firewallLog(resource, text string) (*neutron.FirewallLog, error) {
	w.t.Helper()
	v, err := parse(w.member, neutron.FirewallLogs, neutron.Create, text)
	if err != nil {
		return nil, err
	}
	made, err := w.FirewallLogs(resource).Create(w.t.Context(), w.member, []neutron.Values{v})
	if err != nil {
		return nil, err
	}
	return made[0], nil
}

// keysOf returns how many keys of the topology end so.
func (w *world) keysOf(tail string) int {
	count := 0
	for _, line := range w.dump() {
		if key, _, _ := strings.Cut(line, " "); strings.HasPrefix(key, schema.TopologyPrefix) && strings.HasSuffix(key, tail) {
			count++
		}
	}
	return count
}

// TestFirewallLogLife: a logging resource is something to packets while it has logs, which go with
// it and with their firewall.
func TestFirewallLogLife(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.network(`{}`) // brings the default group
	before := w.dump()
	router := w.routerTo(w.member, "")
	f := must[*neutron.FirewallView](w, w.member, neutron.Firewalls, `{"firewall_policy_id":"`+w.firewallPolicy()+`"}`)
	r := must[*neutron.LoggingResourceView](w, w.member, neutron.LoggingResources, `{"name":"audit"}`)
	if r.Enabled || len(r.Logs) > 0 {
		t.Errorf("new resource %+v", r)
	}
	if got := w.keysOf("logging-resource/" + r.ID); got > 0 {
		t.Error("without logs it is something to packets")
	}
	one, err := w.firewallLog(r.ID, `{"firewall_id":"`+f.ID+`","description":"d"}`)
	if err != nil {
		t.Fatal(err)
	}
	two, err := w.firewallLog(r.ID, `{"firewall_id":"`+f.ID+`","fw_event":"DROP"}`)
	if err != nil {
		t.Fatal(err)
	}
	if got := w.bundle("firewall-log", two.ID).RuleLoggers; len(got) != 1 || got[0].ID != two.ID || got[0].Event != topology.LogDrop ||
		got[0].ChainID != w.bundle("firewall", f.ID).Chains[0].ID || topology.MetadataOf(got[0].Metadata, topology.MetadataFirewall) != f.ID {
		t.Errorf("a log is %+v", got)
	}
	if _, err := w.change(w.member, neutron.LoggingResources, r.ID, `{"enabled":true}`); err != nil {
		t.Fatal(err)
	}
	if got := w.bundle("logging-resource", r.ID).LoggingResources; len(got) != 1 || !got[0].Enabled || got[0].Type != topology.TypeFile {
		t.Errorf("enabled it is %+v", got)
	}
	v, err := parse(w.member, neutron.FirewallLogs, neutron.Update, `{"fw_event":"ACCEPT"}`)
	if err != nil {
		t.Fatal(err)
	}
	if l, err := w.FirewallLogs(r.ID).Update(t.Context(), w.member, one.ID, v, nil); err != nil || l.Event != topology.LogAccept || l.RevisionNumber != 1 {
		t.Errorf("updated: %+v, %v", l, err)
	}
	if got := w.bundle("firewall-log", one.ID).RuleLoggers; got[0].Event != topology.LogAccept {
		t.Errorf("an updated log is %+v", got)
	}
	if shown, err := w.LoggingResources().Show(t.Context(), w.member, r.ID); err != nil || len(shown.Logs) != 2 {
		t.Errorf("shown: %+v, %v", shown, err)
	}
	for _, id := range []string{one.ID, two.ID} {
		if err := w.FirewallLogs(r.ID).Delete(t.Context(), w.member, id, nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.keysOf("logging-resource/" + r.ID); got > 0 {
		t.Error("after its last log it is something to packets")
	}
	for _, first := range []neutron.Resource{neutron.LoggingResources, neutron.Firewalls} {
		if _, err := w.firewallLog(r.ID, `{"firewall_id":"`+f.ID+`"}`); err != nil {
			t.Fatal(err)
		}
		if first == neutron.LoggingResources {
			if err := w.LoggingResources().Delete(t.Context(), w.member, r.ID, nil); err != nil {
				t.Fatal(err)
			}
			r = must[*neutron.LoggingResourceView](w, w.member, neutron.LoggingResources, `{}`)
			continue
		}
		if err := w.Firewalls().Delete(t.Context(), w.member, f.ID, nil); err != nil {
			t.Fatal(err)
		}
	}
	if shown, err := w.LoggingResources().Show(t.Context(), w.member, r.ID); err != nil || len(shown.Logs) != 0 {
		t.Errorf("without its firewall: %+v, %v", shown, err)
	}
	for _, x := range []struct {
		of neutron.Resource
		id string
	}{{neutron.LoggingResources, r.ID}, {neutron.FirewallPolicies, f.PolicyID}, {neutron.Routers, router}} {
		if err := w.remove(w.member, x.of, x.id); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(before, w.dump()); d != "" {
		t.Errorf("left in the store (+) or lost (-):\n%s", d)
	}
}

// TestFirewallLogRefusals: what is refused changes nothing.
func TestFirewallLogRefusals(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	w.network(`{}`)
	idle := must[*neutron.FirewallView](w, w.member, neutron.Firewalls, `{"firewall_policy_id":"`+w.firewallPolicy()+`","router_ids":[]}`)
	r := must[*neutron.LoggingResourceView](w, w.member, neutron.LoggingResources, `{}`)
	const none = "5e7a04b4-84a4-4bd9-a51c-3d9c6d9c0b4f"
	_, err := w.firewallLog(none, `{"firewall_id":"`+idle.ID+`"}`)
	w.expect(err, "LoggingResourceNotFound: Logging resource "+none+" does not exist")
	_, err = w.firewallLog(r.ID, `{"firewall_id":"`+none+`"}`)
	w.expect(err, "FirewallNotFound: Firewall "+none+" could not be found.")
	_, err = w.firewallLog(r.ID, `{"firewall_id":"`+idle.ID+`"}`)
	w.expect(err, "FirewallInUse: Firewall "+idle.ID+" is on no router: it decides about no packets that could be logged.")
	_, err = w.FirewallLogs(r.ID).Show(t.Context(), w.member, none)
	w.expect(err, "FirewallLogNotFound: Firewall log "+none+" does not exist")
	w.expect(w.FirewallLogs(r.ID).Delete(t.Context(), w.member, none, nil), "FirewallLogNotFound: Firewall log "+none+" does not exist")
	_, err = w.FirewallLogs(r.ID).List(t.Context(), w.other, neutron.Query{})
	w.expect(err, "LoggingResourceNotFound: Logging resource "+r.ID+" does not exist")
}
