package overlay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"heddle/internal/hostnet"
	"heddle/internal/overlay/datapath"
	"heddle/internal/reconcile"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// attachment is the desired state of a port on this host.
type attachment struct {
	Interface string // "" while the port has none here any more
	Network   string // of the port
	TunnelKey uint32
	Localnet  string // the network of a localnet port, "" of others
	VLAN      uint16 // of a localnet port or a subport
	Trunk     bool   // the interface carries subports too
	MovesTo   string // the host for which frames go on to where the interface is missing; or ""
	Limits    datapath.PortLimits
	VTEP      datapath.VTEP // of a port that has no interface on any host
}

// attachments make the interfaces of bound ports ports of the datapath, as they appear, and report
// them as served. They are the target of a reconciler whose keys are port ids.
type attachments struct {
	net        hostnet.Net
	engine     *engine
	underlay   *underlay
	obstacles  *obstacles
	reconciler *reconcile.Reconciler[string, attachment]

	mu     sync.Mutex
	placed map[string]placed // by port id
	wanted map[string]string // by port id: the interface that the port is bound to
	since  map[string]time.Time
	limits portPolicies
}

// placed is the link that a port was attached to.
type placed struct {
	link hostnet.Link
	att  attachment
}

var _ reconcile.Target[string, attachment] = (*attachments)(nil)

// Found lists the ports of the datapath. If a port's interface has changed meanwhile, its entry
// equals no desired one.
func (a *attachments) Found(context.Context) (map[string]attachment, error) {
	links, err := a.net.Links()
	if err != nil {
		return nil, err
	}
	byName := make(map[string]hostnet.Link, len(links))
	for _, l := range links {
		byName[l.Name] = l
	}
	found := map[string]attachment{}
	for _, p := range a.engine.dp.Ports() {
		if isVTEP(p.VTEP) {
			if a.isPlaced(p.Name) {
				found[p.Name] = attachment{VTEP: p.VTEP}
			} else {
				found[p.Name] = attachment{} // of an earlier agent
			}
			continue
		}
		att := attachment{Interface: p.Interface, Network: a.networkOf(p.Name), TunnelKey: p.TunnelKey, VLAN: p.VLAN, Trunk: p.Trunk, Limits: p.Limits}
		if p.Localnet {
			att.Localnet = att.Network
		}
		if l, there := byName[p.Interface]; !there || l.Index != p.Index || a.changed(p.Name, l) {
			att.Interface = ""
		}
		found[p.Name] = att
	}
	return found, nil
}

// Set attaches the port to its interface, or waits for the interface to appear.
func (a *attachments) Set(_ context.Context, id string, want attachment) error {
	if isVTEP(want.VTEP) {
		return a.attachVTEP(id, want)
	}
	if want.Interface == "" {
		return a.forward(id, want)
	}
	link, err := a.net.Link(want.Interface)
	if errors.Is(err, hostnet.ErrNotFound) {
		return a.missing(id, want, "it to appear")
	}
	if err != nil {
		return err
	}
	if err := a.usable(link, want); err != nil {
		return err
	}
	if want.Localnet != "" {
		return a.attachLocalnet(id, link, want)
	}
	if link, err = a.prepare(link, want); err != nil {
		return err
	}
	if link.Kind == hostnet.Tap && !link.Running {
		return a.missing(id, want, "a machine to open it")
	}
	if want.VLAN != 0 && !a.engine.dp.HasTrunk(link.Index) {
		return fmt.Errorf("interface %s: %w for the parent of its trunk", want.Interface, reconcile.ErrWait)
	}
	if !a.attachedTo(id, link) && !a.engine.moves.ready(id) {
		return fmt.Errorf("interface %s: %w for the state of its connections", want.Interface, reconcile.ErrWait)
	}
	if id == flow.MetadataPort {
		return a.attachMetadata(link, want)
	}
	number, err := a.engine.dp.AttachPort(id, link.Name,
		datapath.PortOptions{TunnelKey: want.TunnelKey, MTU: link.MTU, VLAN: want.VLAN, Trunk: want.Trunk, Limits: want.Limits})
	if err != nil {
		return err
	}
	a.attached(localPort{id: id, number: number, mtu: link.MTU, network: want.Network}, placed{link: link, att: want})
	a.engine.adverts.attached(id)
	a.mu.Lock()
	if a.since[id].IsZero() {
		a.since[id] = time.Now().UTC().Truncate(time.Second)
	}
	state := &topology.PortState{PortID: id, HostID: a.engine.host, Since: a.since[id]}
	a.mu.Unlock()
	a.engine.reports.set(schema.PortStates.KeyOf(state), state)
	if want.Trunk {
		a.retryOthers(id, want.Interface)
	}
	return nil
}

// missing detaches a port that has no workload here: its interface is not there, or is a tap that
// nothing has open. While the port moves away, frames go on to its next host.
func (a *attachments) missing(id string, want attachment, awaited string) error {
	if want.MovesTo == "" {
		if err := a.Delete(context.Background(), id); err != nil {
			return err
		}
		return fmt.Errorf("interface %s: %w for %s", want.Interface, reconcile.ErrWait, awaited)
	}
	if a.isPlaced(id) {
		a.engine.moves.soon(id) // nothing changes the state of its connections here any more
	}
	if err := a.forward(id, want); err != nil {
		return err
	}
	return fmt.Errorf("interface %s: %w for %s or the port to be served elsewhere", want.Interface, reconcile.ErrWait, awaited)
}

// prepare makes an interface ready for a workload's port, and returns it as it is then. A tap gets
// the MTU of the port's network; the MTU of a veth belongs to who has made its two ends.
func (a *attachments) prepare(link hostnet.Link, want attachment) (hostnet.Link, error) {
	if !link.Up {
		if err := a.net.SetUp(link.Name, true); err != nil {
			return link, err
		}
	}
	if err := a.net.Silence(link.Name); err != nil {
		return link, err
	}
	if link.Kind != hostnet.Tap {
		return link, nil
	}
	// A trunk's interface carries the frames of several networks.
	if mtu := a.engine.networkMTU(want.Network); mtu != 0 && mtu != link.MTU && !want.Trunk && want.VLAN == 0 {
		if err := a.net.SetMTU(link.Name, mtu); err != nil {
			return link, err
		}
	}
	return a.net.Link(link.Name)
}

// retryOthers tries the other ports on an interface again: subports that waited for their parent.
func (a *attachments) retryOthers(id, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for other, wanted := range a.wanted {
		if _, there := a.placed[other]; wanted == name && other != id && !there {
			a.reconciler.Kick(other)
		}
	}
}

func (a *attachments) isPlaced(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, is := a.placed[id]
	return is
}

// attachedTo reports whether the datapath has the port on a link already.
func (a *attachments) attachedTo(id string, link hostnet.Link) bool {
	for _, p := range a.engine.dp.Ports() {
		if p.Name == id {
			return p.Index == link.Index
		}
	}
	return false
}

// forward has frames for a port that has moved go on to its host.
func (a *attachments) forward(id string, want attachment) error {
	tunnel, ok := a.engine.tunnelTo(want.MovesTo)
	if !ok {
		return fmt.Errorf("tunnel to host %s: %w for it", want.MovesTo, reconcile.ErrWait)
	}
	number, err := a.engine.dp.ForwardPort(id, tunnel, datapath.PortOptions{TunnelKey: want.TunnelKey})
	if err != nil {
		return err
	}
	a.engine.keys.senders.attached(id, number)
	a.forget(id)
	return nil
}

// forget takes back that a port is served here.
func (a *attachments) forget(id string) {
	a.engine.reports.Delete(schema.PortStates.KeyOf(&topology.PortState{PortID: id, HostID: a.engine.host}))
	a.engine.detached(id)
	a.mu.Lock()
	if before, was := a.placed[id]; was {
		a.engine.log.Debug("detached port", "port", id, "interface", before.link.Name)
	}
	delete(a.placed, id)
	delete(a.since, id)
	a.mu.Unlock()
}

// attachLocalnet attaches a localnet port, which no host reports as served: it is on many, and the
// interface stays the host's own. Without the host's place this agent leaves the LAN.
func (a *attachments) attachLocalnet(id string, link hostnet.Link, want attachment) error {
	if why := a.obstacles.noPlace(); why != "" {
		if err := a.Delete(context.Background(), id); err != nil {
			return err
		}
		return fmt.Errorf("interface %s: %s: %w for that to end", link.Name, why, reconcile.ErrWait)
	}
	number, err := a.engine.dp.AttachPort(id, link.Name,
		datapath.PortOptions{TunnelKey: want.TunnelKey, MTU: link.MTU, Localnet: true, VLAN: want.VLAN})
	if err != nil {
		return err
	}
	a.attached(localPort{id: id, number: number, mtu: link.MTU, localnet: want.Localnet}, placed{link: link, att: want})
	return nil
}

func (a *attachments) attached(p localPort, at placed) {
	a.engine.keys.senders.attached(p.id, p.number)
	a.engine.net.attached(p)
	a.mu.Lock()
	defer a.mu.Unlock()
	if before, was := a.placed[p.id]; !was || before.link.Index != at.link.Index {
		a.engine.log.Debug("attached port", "port", p.id, "interface", at.link.Name)
	}
	a.placed[p.id] = at
}

// networkOf returns the network of a port that is attached.
func (a *attachments) networkOf(id string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.placed[id].att.Network
}

// usable refuses interfaces that no workload or LAN is behind, above all, for a workload, the one
// that the tunnels need.
func (a *attachments) usable(link hostnet.Link, want attachment) error {
	switch {
	case want.Localnet != "":
		return CheckPhysical(link)
	case link.Kind == hostnet.Loopback, link.Kind == hostnet.VXLAN, link.Kind == hostnet.Tun, link.Kind == hostnet.Bridge:
		return fmt.Errorf("interface %s is a %s: bind the port to the veth or tap of a workload", link.Name, link.Kind)
	case a.underlay.uses(link):
		return fmt.Errorf("interface %s carries the tunnels of this host: bind the port to the veth or tap of a workload", link.Name)
	}
	return nil
}

func (a *attachments) Delete(_ context.Context, id string) error {
	a.engine.reports.Delete(schema.PortStates.KeyOf(&topology.PortState{PortID: id, HostID: a.engine.host}))
	if err := a.engine.dp.DetachPort(id); err != nil {
		return err
	}
	a.engine.keys.senders.gone(id)
	a.forget(id)
	return nil
}

func (a *attachments) rebind(before, after []topology.Port, o *Options) {
	serves := func(p *topology.Port) bool { return o.serves(p) || isVTEP(vtepOf(p)) }
	was, is := portsByID(before, serves), portsByID(after, serves)
	a.mu.Lock()
	for id := range was {
		delete(a.wanted, id)
		a.limits.remove(id)
	}
	for id, p := range is {
		a.wanted[id] = o.interfaceOf(p)
	}
	a.mu.Unlock()
	for id := range was {
		if is[id] == nil {
			a.reconciler.Unwant(id)
		}
	}
	for id, p := range is {
		if v := vtepOf(p); isVTEP(v) {
			a.reconciler.Want(id, attachment{VTEP: v})
			continue
		}
		want := attachment{Interface: o.interfaceOf(p), Network: p.NetworkID, TunnelKey: p.TunnelKey, VLAN: p.VlanID, Trunk: p.Trunk}
		if p.MovedFrom() == o.HostID {
			want.MovesTo = p.HostID
		}
		if p.PhysicalNetwork != "" {
			want.Localnet = p.NetworkID
		} else {
			a.mu.Lock()
			want.Limits = a.limits.add(p.LimitsID, want, id)
			a.mu.Unlock()
		}
		a.reconciler.Want(id, want)
	}
}

func portsByID(ports []topology.Port, bound func(*topology.Port) bool) map[string]*topology.Port {
	all := map[string]*topology.Port{}
	for i := range ports {
		if p := &ports[i]; bound(p) {
			all[p.ID] = p
		}
	}
	return all
}

// concerned are the ports to be looked at because a link has changed.
func (a *attachments) concerned(l hostnet.Link, gone bool) (ids []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, name := range a.wanted {
		if name != l.Name {
			continue
		}
		p, there := a.placed[id]
		if gone == there || there && differs(p.link, l) {
			ids = append(ids, id)
		}
	}
	if gone {
		return ids
	}
	for id, p := range a.placed { // renamed
		if p.link.Index == l.Index && p.link.Name != l.Name {
			ids = append(ids, id)
		}
	}
	return ids
}

// changed reports whether the link of a port differs from the one that was attached.
func (a *attachments) changed(id string, l hostnet.Link) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	p, there := a.placed[id]
	return !there || differs(p.link, l)
}

// differs in what an attachment depends on.
func differs(a, b hostnet.Link) bool {
	return a.Index != b.Index || a.MTU != b.MTU || a.Elsewhere != b.Elsewhere || a.Name != b.Name ||
		a.Kind == hostnet.Tap && a.Running != b.Running
}
