package offline

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"heddle/internal/topology/flow"
)

// newFirewallLogs returns the section of firewall logs, each with a logging resource of its own.
func newFirewallLogs(s *scenario, w *world) *section {
	return &section{kind: w.kinds["firewall_log"], what: "firewall log", ids: map[string]string{},
		fields: map[string]field{"firewall": {"firewall_id", s.routing.firewalls.id}, "event": {attribute: "fw_event"}, "enabled": {attribute: "enabled"}}}
}

// addFirewallLog makes a log that is enabled unless the file says otherwise.
func (s *scenario) addFirewallLog(n node) error {
	return s.addWith(s.firewallLogs, n, nil, func(id string, data object) error {
		resource := map[string]any{"id": s.derive("logging resource", id), "enabled": true}
		if data.has("enabled") {
			resource["enabled"] = data.get("enabled").value
		}
		fields := maps.Clone(data.fields)
		delete(fields, "enabled")
		fields[loggingResource] = resource
		return s.world.createFirewallLog(s.firewallLogs.kind, id, object{data.node, fields})
	})
}

// updateFirewallLog changes a log's event, or whether it is enabled.
func (s *scenario) updateFirewallLog(n node) error {
	o, err := n.object("firewall_log", "event", "enabled")
	if err != nil {
		return err
	}
	id, err := s.firewallLogs.find(o.get("firewall_log"))
	if err != nil {
		return err
	}
	w := s.world
	if o.has("enabled") {
		change := object{n, map[string]any{"enabled": o.get("enabled").value}}
		if err := w.update(w.kinds["logging_resource"], s.derive("logging resource", id), change); err != nil {
			return s.at(n, err)
		}
	}
	if !o.has("event") {
		return nil
	}
	return s.at(n, w.update(s.firewallLogs.kind, id, object{n, map[string]any{"fw_event": o.get("event").value}}))
}

// logged is a record that a log would have (services §11).
type logged struct {
	Log     string `json:"log"` // name
	Event   string `json:"event"`
	Src     string `json:"src"`
	Dst     string `json:"dst"`
	SrcPort uint16 `json:"sport"`
	DstPort uint16 `json:"dport"`
	Proto   any    `json:"proto"` // as frames show it
}

func (l logged) String() string {
	return fmt.Sprintf("%s %s, protocol %v, %s:%d → %s:%d", l.Log, l.Event, l.Proto, l.Src, l.SrcPort, l.Dst, l.DstPort)
}

// newLogged returns a record as the file shows it.
func (y *system) newLogged(l *flow.Logged) logged {
	r := logged{Log: y.words(l.Log), Event: l.Event(), Src: l.Src.String(), Dst: l.Dst.String(), Proto: protocolName(l.Proto)}
	if l.HasPorts {
		r.SrcPort, r.DstPort = l.SrcPort, l.DstPort
	}
	return r
}

// compareLogs reports whether the records are exactly those that n lists, in any order. Fields that
// it does not list are not compared.
func (r *run) compareLogs(n node, got []logged) (bool, error) {
	refs := r.references(r.captured)
	want, err := each(n, func(n node) (fields, error) {
		return refs.read(n, map[string]frameField{
			"log": {read: readText}, "event": {read: readText}, "src": {read: canonicalIP}, "dst": {read: canonicalIP},
			"sport": {read: canonicalNumber}, "dport": {read: canonicalNumber}, "proto": {read: canonicalProtocol},
		})
	})
	if err != nil || len(want) != len(got) {
		return false, err
	}
	rest := slices.Clone(got)
	// Those with more fields choose first.
	slices.SortStableFunc(want, func(a, b fields) int { return cmp.Compare(len(b), len(a)) })
	for _, w := range want {
		i := slices.IndexFunc(rest, w.matchesLogged)
		if i < 0 {
			return false, nil
		}
		rest = slices.Delete(rest, i, i+1)
	}
	return true, nil
}

// matchesLogged reports whether a record has the values of the fields.
func (f fields) matchesLogged(l logged) bool {
	has := map[string]any{"log": l.Log, "event": l.Event, "src": l.Src, "dst": l.Dst, "sport": l.SrcPort, "dport": l.DstPort, "proto": l.Proto}
	for name, value := range f {
		if value != nil && fmt.Sprint(value) != fmt.Sprint(has[name]) {
			return false
		}
	}
	return true
}
