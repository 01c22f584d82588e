package explain

import (
	"cmp"
	"context"
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
func (w *World) Reach(ctx context.Context, snap *records.Snap, q *operator.ReachRequest) (*operator.ReachAnswer, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.apply(snap)
	if q.By != "" {
		return w.matrix(ctx, snap, q)
	}
	x, err := w.newSurvey(ctx, snap, q)
	if err != nil {
		return nil, err
	}
	x.run()
	return x.answer(), late(ctx)
}

// late returns the fault of a question of which the time has run out, whose answer is not whole.
func late(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fault("to", Late, "the answer takes too long: ask for one service by protocol and port, or for fewer machines, or again when the server has less to do")
}

// operators may ask about all ports.
var operators = neutron.Caller{Roles: []string{"admin"}}

// survey is a question about reachability with what it is about.
type survey struct {
	world    *World
	snap     *records.Snap
	from, to *end // nil = all
	service  service
	roster   *roster
	asker    *reach.Asker
	sharing  *reach.Sharing // of senders to the end that is asked about

	rows   map[string]*operator.Reach
	silent int
	heard  func(a *reach.OutsideAnswer, own netip.Addr) // of answers about outside; nil: rows have them
}

func (w *World) newSurvey(ctx context.Context, snap *records.Snap, q *operator.ReachRequest) (*survey, error) {
	x := &survey{world: w, snap: snap, roster: w.rosterOf(snap), rows: map[string]*operator.Reach{}}
	x.asker = reach.NewAsker(ctx, w.world, x.roster.end)
	x.sharing = reach.NewSharing(x.asker, x.roster.partition)
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
		e, err := finder{snap, operators}.findEnd(one.field, one.text)
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

func (x *survey) run() {
	switch {
	case x.from != nil && x.to != nil:
		for _, is4 := range []bool{true, false} {
			x.alike(is4, []*reach.End{x.roster.end(x.from.port.ID)})
		}
	case x.to != nil:
		x.machines(x.to.port.ID)
		x.fromOutside()
	default:
		x.machines(x.from.port.ID)
		x.toOutside(x.roster.end(x.from.port.ID))
	}
}

// machines asks about all machines but one, by each version of IP.
func (x *survey) machines(but string) {
	x.silent = len(x.roster.machines)
	if x.roster.machines[but] != nil {
		x.silent--
	}
	heard := map[string]bool{}
	for _, is4 := range []bool{true, false} {
		x.sharing.Turn()
		for _, class := range x.roster.classes(is4) {
			others := slices.DeleteFunc(slices.Clone(class), func(e *reach.End) bool { return e.PortID == but })
			if len(others) == 0 || !x.alike(is4, others) {
				continue
			}
			for _, e := range others {
				if !heard[e.PortID] {
					heard[e.PortID] = true
					x.silent--
				}
			}
		}
	}
}

// isMachine reports whether a port is one of a machine that is on a host and on a network with a
// virtual topology.
func isMachine(snap *records.Snap, p *neutron.Port) bool {
	if translate.ClassOf(p.DeviceOwner) != translate.VIF || p.BoundHostID == "" {
		return false
	}
	n, ok := schema.Networks.Peek(snap, p.NetworkID)
	return ok && !n.Routed()
}

// alike asks about the end that is asked about and one of some machines that are alike, or the two
// ends, and notes the answer for all of them. It reports whether there is a service.
func (x *survey) alike(is4 bool, machines []*reach.End) bool {
	one := machines[0]
	from, to := one, x.to
	var source netip.Addr
	switch {
	case x.from != nil && x.to != nil, x.from == nil:
		source = one.Address(is4)
	default:
		from, to = x.roster.end(x.from.port.ID), &end{port: x.roster.machines[one.PortID]}
		source = from.Address(is4)
	}
	if x.from != nil && x.from.address.IsValid() {
		source = x.from.fixed
	}
	target := to.addressOf(is4)
	if !source.IsValid() || !target.IsValid() || source.Is4() != target.Is4() {
		return false
	}
	q := x.question(target)
	q.From, q.Source, q.Target, q.To, q.Any = from, source, target, x.roster.end(to.port.ID), to.isVIP()
	a := x.ask(&q, is4)
	if a.IsEmpty() {
		return false
	}
	row := x.row(&a, is4)
	for _, e := range machines {
		if p := x.roster.machines[e.PortID]; p != nil {
			row.Ports = append(row.Ports, operator.ReachPort{Port: p.ID, Name: p.Name, Address: e.Address(is4), Groups: p.SecurityGroups})
		}
	}
	return true
}

// ask answers a question; of several senders' to one receiver, only those that no other stands for
// are asked.
func (x *survey) ask(q *reach.Question, is4 bool) reach.Answer {
	if x.from != nil {
		return x.asker.Ask(q)
	}
	sender := x.roster.partition.Sender(q.From, is4)
	return x.sharing.Ask(q, &sender)
}

// question returns a question about the services that are asked about.
func (x *survey) question(target netip.Addr) reach.Question {
	s := x.service.ofVersion(target)
	return reach.Question{Protocol: s.proto, Port: s.port}
}

// fromOutside finds out who outside reaches the port that is asked about: by its own addresses,
// where routers or a LAN lead to these, and by its floating ones.
func (x *survey) fromOutside() {
	to := x.roster.end(x.to.port.ID)
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
		source := from.Address(is4)
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
	if x.heard != nil {
		x.heard(a, own)
		return
	}
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
