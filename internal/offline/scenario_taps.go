package offline

// tapping is the taps of a scenario.
type tapping struct {
	tapServices, tapFlows *section
}

func newTapping(s *scenario, w *world) tapping {
	t := tapping{
		tapServices: &section{kind: w.kinds["tap_service"], what: "tap service", ids: map[string]string{},
			fields: map[string]field{"port": {"port_id", s.ports.id}}},
		tapFlows: &section{kind: w.kinds["tap_flow"], what: "tap flow", ids: map[string]string{}, fields: asTheyAre("direction", "vlan_filter")},
	}
	t.tapFlows.fields["service"] = field{"tap_service_id", t.tapServices.id}
	t.tapFlows.fields["source_port"] = field{"source_port", s.ports.id}
	return t
}

// updateTapFlow deletes a tap flow, of which nothing else can be changed.
func (s *scenario) updateTapFlow(n node) error {
	o, err := n.object("tap_flow", "deleted")
	if err != nil {
		return err
	}
	name, err := o.get("tap_flow").text()
	if err != nil {
		return err
	}
	id, err := s.tapFlows.find(o.get("tap_flow"))
	if err != nil {
		return err
	}
	deleted, err := o.get("deleted").flag(false)
	switch {
	case err != nil:
		return err
	case !deleted:
		return fileErrorf(o.under("deleted"), "is not true: a tap flow can only be deleted")
	}
	delete(s.tapFlows.ids, name)
	return s.at(n, s.tapFlows.kind.remove(id))
}
