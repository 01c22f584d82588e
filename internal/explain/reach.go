package explain

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"heddle/internal/api/operator"
	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/reach"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology/packet"
	"heddle/internal/topology/simulate"
)

// Reach answers who can reach a machine, or what a machine can reach. An error is a [Fault].
func (w *World) Reach(snap *records.Snap, q *operator.ReachRequest) (*operator.ReachAnswer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.apply(snap)
	if q.By != "" {
		return w.matrix(snap, q)
	}
	x, err := w.newSurvey(snap, q)
	if err != nil {
		return nil, err
	}
	x.run()
	return x.answer(), nil
}

// survey is a question about reachability with what it is about.
type survey struct {
	world    *World
	snap     *records.Snap
	from, to *end // nil = all
	service  service
	asker    *reach.Asker
	ends     map[string]*reach.End

	rows   map[string]*operator.Reach
	silent int
}

func (w *World) newSurvey(snap *records.Snap, q *operator.ReachRequest) (*survey, error) {
	x := &survey{world: w, snap: snap, ends: map[string]*reach.End{}, rows: map[string]*operator.Reach{}}
	x.asker = reach.NewAsker(w.world, x.end)
	if q.From == "" && q.To == "" {
		return nil, fault("to", Invalid, "want the end that is asked about: from, to or both")
	}
	if q.Protocol != "" || q.Port != 0 {
		var err error
		if x.service, err = readService(&operator.WhyRequest{Protocol: q.Protocol, Port: q.Port}); err != nil {
			return nil, err
		}
	}
	for _, one := range []struct {
		field, text string
		end         **end
	}{{"from", q.From, &x.from}, {"to", q.To, &x.to}} {
		if one.text == "" {
			continue
		}
		e, err := findEnd(snap, one.field, one.text)
		if err != nil {
			return nil, err
		}
		if e.port == nil {
			return nil, fault(one.field, Missing, "no port has the address %s: heddle port list", one.text)
		}
		if err := checkEnd(snap, one.field, e); err != nil {
			return nil, err
		}
		*one.end = &e
	}
	return x, nil
}

// end returns a port as an end, the same each time.
func (x *survey) end(id string) *reach.End {
	e, known := x.ends[id]
	if !known {
		e = endOf(x.snap, id)
		x.ends[id] = e
	}
	return e
}

func (x *survey) run() {
	switch {
	case x.from != nil && x.to != nil:
		x.pair(x.end(x.from.port.ID), x.to.port, x.to.port)
	case x.to != nil:
		for p := range schema.Ports.All(x.snap) {
			if p.ID != x.to.port.ID && x.isMachine(p) {
				x.pair(x.end(p.ID), x.to.port, p)
			}
		}
		x.fromOutside()
	default:
		from := x.end(x.from.port.ID)
		for p := range schema.Ports.All(x.snap) {
			if p.ID != x.from.port.ID && x.isMachine(p) {
				x.pair(from, p, p)
			}
		}
		x.toOutside(from)
	}
}

// isMachine reports whether a port is one of a machine that is on a host and on a network with a
// virtual topology.
func (x *survey) isMachine(p *neutron.Port) bool {
	if translate.ClassOf(p.DeviceOwner) != translate.VIF || p.BoundHostID == "" {
		return false
	}
	n, ok := schema.Networks.Peek(x.snap, p.NetworkID)
	return ok && !n.Routed()
}

// pair asks about a pair of ports, by each version of IP that both have, and notes the answer for
// the one that is listed.
func (x *survey) pair(from *reach.End, to, listed *neutron.Port) {
	silent := true
	for _, is4 := range []bool{true, false} {
		e := x.to
		if e == nil {
			e = &end{port: to}
		}
		source, target := firstOf(from.Addresses, is4), e.addressOf(is4)
		if x.from != nil && x.from.address.IsValid() {
			source = x.from.fixed
		}
		if !source.IsValid() || !target.IsValid() || source.Is4() != target.Is4() {
			continue
		}
		q := x.question(target)
		q.From, q.Source, q.Target, q.To, q.Any = from, source, target, x.end(to.ID), e.isVIP()
		a := x.asker.Ask(&q)
		if a.IsEmpty() {
			continue
		}
		silent = false
		row := x.row(&a, is4)
		address := target
		if listed.ID == from.PortID {
			address = source
		}
		row.Ports = append(row.Ports, operator.ReachPort{Port: listed.ID, Name: listed.Name, Address: address, Groups: listed.SecurityGroups})
	}
	if silent {
		x.silent++
	}
}

// question returns a question about the services that are asked about.
func (x *survey) question(target netip.Addr) reach.Question {
	s := x.service.ofVersion(target)
	return reach.Question{Protocol: s.proto, Port: s.port}
}

// firstOf returns the first address of a version of IP, invalid if there is none.
func firstOf(all []netip.Addr, is4 bool) netip.Addr {
	if i := slices.IndexFunc(all, func(a netip.Addr) bool { return a.Is4() == is4 }); i >= 0 {
		return all[i]
	}
	return netip.Addr{}
}

// fromOutside finds out who outside reaches the port that is asked about: by its own addresses,
// where routers or a LAN lead to these, and by its floating ones.
func (x *survey) fromOutside() {
	to := x.end(x.to.port.ID)
	for _, target := range x.targets() {
		for _, door := range x.world.world.Doors() {
			if !x.answersFor(door.NetworkID, target, door.MAC) {
				continue
			}
			x.outside(door, to, target)
		}
		if door, ok := x.world.world.LANDoor(to.NetworkID, to.MAC); ok {
			x.outside(door, to, target)
		}
	}
}

// targets returns the addresses by which the port that is asked about may be reached from outside.
func (x *survey) targets() (all []netip.Addr) {
	if x.to.address.IsValid() {
		return []netip.Addr{x.to.address}
	}
	for _, f := range x.to.port.FixedIPs {
		all = append(all, f.IPAddress)
	}
	for f := range schema.FloatingIPs.By(x.snap, "port", x.to.port.ID) {
		all = append(all, f.FloatingIPAddress)
	}
	for f := range schema.PortForwardings.By(x.snap, "internal_port", x.to.port.ID) {
		if floating, ok := schema.FloatingIPs.Peek(x.snap, f.FloatingIPID); ok && !slices.Contains(all, floating.FloatingIPAddress) {
			all = append(all, floating.FloatingIPAddress)
		}
	}
	return all
}

// answersFor reports whether a machine outside may send packets for an address to a MAC address:
// not if another answers for the address on its LAN.
func (x *survey) answersFor(network string, address netip.Addr, mac packet.MAC) bool {
	if network == "" {
		return true
	}
	known, _, ok := x.world.world.Neighbour(network, address)
	return !ok || known == mac
}

// outside finds out who outside reaches an address by a door.
func (x *survey) outside(door simulate.Door, to *reach.End, target netip.Addr) {
	q := x.question(target)
	q.Door, q.Target, q.To, q.Any = door, target, to, x.to.isVIP()
	for _, a := range x.asker.FromOutside(q) {
		x.noteOutside(&a, target)
	}
}

// toOutside finds out what outside the port that is asked about reaches.
func (x *survey) toOutside(from *reach.End) {
	for _, is4 := range []bool{true, false} {
		source := firstOf(from.Addresses, is4)
		if !source.IsValid() {
			continue
		}
		q := x.question(source)
		q.From, q.Source = from, source
		for _, a := range x.asker.ToOutside(q) {
			x.noteOutside(&a, source)
		}
	}
}

// noteOutside notes the answer for a range of addresses outside that know the machine by one of its
// own.
func (x *survey) noteOutside(a *reach.OutsideAnswer, own netip.Addr) {
	row := x.row(&a.Answer, own.Is4())
	i := slices.IndexFunc(row.Outside, func(o operator.ReachOutside) bool { return o.Address == own })
	if i < 0 {
		i = len(row.Outside)
		row.Outside = append(row.Outside, operator.ReachOutside{Address: own})
	}
	if r := (operator.AddressRange{First: a.First, Last: a.Last}); !slices.Contains(row.Outside[i].Ranges, r) {
		row.Outside[i].Ranges = append(row.Outside[i].Ranges, r)
	}
}

// row returns the row of the ends with an answer.
func (x *survey) row(a *reach.Answer, is4 bool) *operator.Reach {
	version := 6
	if is4 {
		version = 4
	}
	key := string(rune(version)) + a.Always.Key() + "/" + a.May.Key() + "/" + a.OneWay.Key()
	row := x.rows[key]
	if row == nil {
		row = &operator.Reach{Version: version, Always: rangesOf(&a.Always, is4), May: rangesOf(&a.May, is4), OneWay: rangesOf(&a.OneWay, is4)}
		x.rows[key] = row
	}
	return row
}

func (x *survey) answer() *operator.ReachAnswer {
	a := &operator.ReachAnswer{Revision: x.snap.Revision(), Silent: x.silent, Reaches: []operator.Reach{}}
	if x.service.proto != 0 {
		a.Service = x.service.String()
	}
	for _, one := range []struct {
		end *end
		to  **operator.WhyEnd
	}{{x.from, &a.From}, {x.to, &a.To}} {
		if one.end != nil {
			d := describeEnd(x.snap, *one.end)
			if fixed := one.end.port.FixedIPs; !d.Address.IsValid() && len(fixed) > 0 {
				d.Address = fixed[0].IPAddress
			}
			*one.to = &d
		}
	}
	for _, key := range slices.Sorted(maps.Keys(x.rows)) {
		row := x.rows[key]
		slices.SortFunc(row.Ports, func(a, b operator.ReachPort) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port))
		})
		for i := range row.Outside {
			o := &row.Outside[i]
			o.Ranges = joinRanges(o.Ranges)
			o.Text = addressesText(o.Ranges)
		}
		a.Reaches = append(a.Reaches, *row)
	}
	slices.SortStableFunc(a.Reaches, func(a, b operator.Reach) int {
		return cmp.Or(cmp.Compare(a.Version, b.Version), cmp.Compare(len(b.Outside), len(a.Outside)), cmp.Compare(len(b.Ports), len(a.Ports)))
	})
	return a
}
