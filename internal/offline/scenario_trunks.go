package offline

import (
	"encoding/binary"
	"maps"
	"slices"
	"strconv"

	"heddle/internal/neutron"
	"heddle/internal/topology/packet"
)

// trunking is the trunks of a scenario, and the ports that are subports at present.
type trunking struct {
	trunks   *section
	subports map[string]subport // by name of the port
}

// subport is the place of a subport: the interface of the parent of its trunk, on which frames of
// the subport have a tag.
type subport struct {
	trunk, parent string // names
	vlan          int
}

// subportList is the field of a trunk that lists its subports.
const subportList = "subports"

func newTrunking(s *scenario, w *world) trunking {
	t := trunking{subports: map[string]subport{}}
	t.trunks = &section{kind: w.kinds["trunk"], what: "trunk", ids: map[string]string{}, fields: asTheyAre("admin_state_up")}
	maps.Copy(t.trunks.fields, map[string]field{
		"up": {attribute: "admin_state_up"}, "port": {"port_id", s.ports.id}, subportList: {"sub_ports", listOf(s.readSubport)},
	})
	return t
}

// readSubport reads a subport as a request of Neutron's API has it.
func (s *scenario) readSubport(n node) (any, error) {
	o, err := n.object("port", "segmentation_id")
	if err != nil {
		return nil, err
	}
	port, err := s.ports.find(o.get("port"))
	if err != nil {
		return nil, err
	}
	vlan, given, err := o.get("segmentation_id").number(1, 4094)
	if err == nil && !given {
		err = fileErrorf(o.under("segmentation_id"), "is missing: give the VLAN id, from 1 to 4094, that frames of port %s have", s.nameOf[port])
	}
	return map[string]any{"port_id": port, "segmentation_type": neutron.SegmentationVLAN, "segmentation_id": strconv.Itoa(vlan)}, err
}

// addTrunk makes a trunk, whose subports are on the interface of its parent from then on.
func (s *scenario) addTrunk(n node) error {
	err := s.add(s.trunks, n, func(_ string, body map[string]any) error {
		parent, _ := body["port_id"].(string)
		return s.checkSubportHosts(n, parent, body["sub_ports"])
	})
	if err != nil {
		return err
	}
	return s.findSubports()
}

// checkSubportHosts refuses subports that the file puts on another host than their parent.
func (s *scenario) checkSubportHosts(trunk node, parent string, subports any) error {
	list, _ := subports.([]any)
	for i, sub := range list {
		name := s.nameOf[sub.(map[string]any)["port_id"].(string)]
		host, _ := s.bindingOf(s.nameOf[parent])
		if given := s.placed[name]; given != "" && given != host.Name {
			place := node{place: trunk.under(subportList)}.at(i)
			return fileErrorf(place, "port %s is on host %s, but its parent %s on host %s: leave out the host of port %[1]s",
				name, given, s.nameOf[parent], host.Name)
		}
	}
	return nil
}

// updateTrunk changes a trunk; subports that it names are all that it has then.
func (s *scenario) updateTrunk(n node) error {
	o, err := n.object(append(slices.Sorted(maps.Keys(s.trunks.fields)), "trunk")...)
	if err != nil {
		return err
	}
	id, err := s.trunks.find(o.get("trunk"))
	if err != nil {
		return err
	}
	plain := maps.Clone(o.fields)
	delete(plain, subportList)
	if err := s.updateIn(s.trunks, node{n.place, plain}, "trunk"); err != nil || !o.has(subportList) {
		return err
	}
	wanted, err := each(o.get(subportList), s.readSubport)
	if err != nil {
		return err
	}
	return s.changeSubports(n, id, append([]any{}, wanted...))
}

// changeSubports gives a trunk other subports. A port that leaves is on an interface of its own.
func (s *scenario) changeSubports(n node, trunk string, wanted []any) error {
	trunks := s.world.service.Trunks()
	t, err := trunks.Show(s.world.ctx, administrator(), trunk)
	if err != nil {
		return err
	}
	if err := s.checkSubportHosts(n, t.PortID, wanted); err != nil {
		return err
	}
	var leave []neutron.SubportRequest
	for _, sub := range t.Subports {
		stays := func(x any) bool {
			w := x.(map[string]any)
			return w["port_id"] == sub.PortID && w["segmentation_id"] == strconv.Itoa(sub.SegmentationID)
		}
		if rest := slices.DeleteFunc(slices.Clone(wanted), stays); len(rest) < len(wanted) {
			wanted = rest
		} else {
			leave = append(leave, neutron.SubportRequest{PortID: sub.PortID})
		}
	}
	come, err := neutron.ParseSubports(map[string]any{"sub_ports": wanted})
	if err != nil {
		return s.at(n, err)
	}
	if _, err := trunks.RemoveSubports(s.world.ctx, administrator(), trunk, leave); err != nil {
		return s.at(n, err)
	}
	if _, err := trunks.AddSubports(s.world.ctx, administrator(), trunk, come); err != nil {
		return s.at(n, err)
	}
	if err := s.findSubports(); err != nil {
		return err
	}
	return s.at(n, s.bindAlone(leave))
}

// bindAlone binds ports that are subports no longer.
func (s *scenario) bindAlone(left []neutron.SubportRequest) error {
	for _, r := range left {
		name := s.nameOf[r.PortID]
		if _, is := s.subports[name]; is {
			continue
		}
		host, iface := s.bindingOf(name)
		if err := s.world.bind(r.PortID, host.Name, map[string]any{"interface_name": iface}); err != nil {
			return err
		}
	}
	return nil
}

// findSubports notes which ports are subports.
func (s *scenario) findSubports() error {
	s.subports = map[string]subport{}
	for name, id := range s.trunks.ids {
		t, err := s.world.service.Trunks().Show(s.world.ctx, administrator(), id)
		if err != nil {
			return err
		}
		for _, sub := range t.Subports {
			s.subports[s.nameOf[sub.PortID]] = subport{name, s.nameOf[t.PortID], sub.SegmentationID}
		}
	}
	return nil
}

// subportIn returns the subport whose frames have this tag on the interface of port, which is the
// parent or the subport itself; "" without one.
func (s *scenario) subportIn(port string, vlan int) string {
	for name, sub := range s.subports {
		if (name == port || sub.parent == port) && sub.vlan == vlan {
			return name
		}
	}
	return ""
}

// A VLAN tag follows the two Ethernet addresses.
const (
	lengthOfTag = 4
	startOfTag  = 12
)

// entry returns the port by which a frame enters that a machine sends by port, and the frame as it
// is then: the tag of a subport ends at the interface.
func (s *scenario) entry(port string, frame []byte) (string, []byte) {
	if len(frame) < startOfTag+lengthOfTag || binary.BigEndian.Uint16(frame[startOfTag:]) != packet.TypeVLAN {
		return port, frame
	}
	sub := s.subportIn(port, int(binary.BigEndian.Uint16(frame[startOfTag+2:])&0x0fff))
	if sub == "" {
		return port, frame
	}
	return sub, slices.Delete(slices.Clone(frame), startOfTag, startOfTag+lengthOfTag)
}

// exit returns a frame as it leaves by a port's interface: those of a subport have its tag.
func (s *scenario) exit(port string, frame []byte) []byte {
	sub, is := s.subports[port]
	if !is {
		return frame
	}
	tag := binary.BigEndian.AppendUint16(nil, packet.TypeVLAN)
	return slices.Insert(frame, startOfTag, binary.BigEndian.AppendUint16(tag, uint16(sub.vlan))...)
}

// senderOf returns the port whose machine sends a frame by port: with the tag of a subport, that
// one. A frame by a subport gets its tag if the file does not give it.
func (r *run) senderOf(f fields, n node, port string) (string, error) {
	sub, is := r.subports[port]
	vlan, given := f["vlan"].(int)
	switch {
	case is && f["vlan"] == nil:
		f["vlan"] = sub.vlan
	case is && given && vlan != sub.vlan:
		return "", fileErrorf(n.under("vlan"), "frames of port %s have VLAN id %d in trunk %s: leave out vlan, or send by port %s",
			port, sub.vlan, sub.trunk, sub.parent)
	case !is && given:
		if by := r.subportIn(port, vlan); by != "" {
			return by, nil
		}
	}
	return port, nil
}
