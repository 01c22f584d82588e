package overlay

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"heddle/internal/hostnet"
	"heddle/internal/task"
	"heddle/internal/topology"
)

// ParsePhysical reads the interfaces by which a host is connected to physical networks, one of the
// form NETWORK=INTERFACE each.
func ParsePhysical(all []string) (interfaces map[string]string, err error) {
	interfaces = map[string]string{}
	networks := map[string]string{}
	for _, text := range all {
		network, name, ok := strings.Cut(text, "=")
		switch {
		case !ok || network == "" || name == "":
			return nil, fmt.Errorf("%q: want NETWORK=INTERFACE, as in physnet1=eth1", text)
		case !topology.IsPhysicalName(network):
			return nil, fmt.Errorf("%q: the name of a physical network has up to 64 characters that are printed, none of them a space or /", text)
		case len(name) > 15 || strings.ContainsAny(name, "=/ \t\n"):
			return nil, fmt.Errorf("%q: %q is not the name of an interface", text, name)
		case interfaces[network] != "":
			return nil, fmt.Errorf("%q: physical network %s has interface %s already: a host has one interface for each", text, network, interfaces[network])
		case networks[name] != "":
			return nil, fmt.Errorf("%q: interface %s leads to physical network %s already: use VLANs of that one, or another interface", text, name, networks[name])
		}
		interfaces[network], networks[name] = name, network
	}
	return interfaces, nil
}

// CheckPhysical refuses an interface behind which there is no LAN, such as Heddle's own devices.
func CheckPhysical(link hostnet.Link) error {
	switch link.Kind {
	case hostnet.Loopback, hostnet.VXLAN, hostnet.Tun, hostnet.IPIP, hostnet.WireGuard:
		return fmt.Errorf("interface %s is a %s: connect the physical network by a network card, a bond or a bridge", link.Name, link.Kind)
	}
	return nil
}

// serves reports whether a port is one of this host's: bound to it, moving away from it, or the
// localnet port of a physical network that it is connected to.
func (o *Options) serves(p *topology.Port) bool {
	if p.PhysicalNetwork != "" {
		return o.Physical[p.PhysicalNetwork] != ""
	}
	return slices.Contains(p.HostIDs(), o.HostID)
}

// interfaceOf returns the interface of a port that this host serves.
func (o *Options) interfaceOf(p *topology.Port) string {
	if p.PhysicalNetwork != "" {
		return o.Physical[p.PhysicalNetwork]
	}
	return p.InterfaceOn(o.HostID)
}

// physical watches the interfaces into physical networks. This host carries those networks whose
// interface is there, can lead to a LAN and has a carrier; another one takes over the homes of the
// others. With an obstacle it carries none.
type physical struct {
	interfaces map[string]string // by physical network
	net        hostnet.Net
	obstacles  *obstacles
	log        *slog.Logger
	changed    func() // what this host carries, or the reason why it does not, is other than before

	mu    sync.Mutex
	state map[string]linkState // by physical network
}

// obstacle is a reason for carrying no physical network, whatever the interfaces are like.
type obstacle string

const (
	agentDisplaced  obstacle = "this agent is displaced"
	storeDenied     obstacle = "the store refuses this agent"
	noTunnelAddress obstacle = "no interface has the tunnel address of this host"
)

// obstacles is the set of those that there are.
type obstacles struct {
	changed task.Notice

	mu  sync.Mutex
	all map[obstacle]bool
}

func newObstacles() *obstacles {
	return &obstacles{changed: task.NewNotice(), all: map[obstacle]bool{}}
}

// set notes whether there is an obstacle.
func (o *obstacles) set(x obstacle, is bool) {
	o.mu.Lock()
	changed := o.all[x] != is
	o.all[x] = is
	o.mu.Unlock()
	if changed {
		o.changed.Give()
	}
}

// first returns the first of these obstacles that there is, or "".
func (o *obstacles) first(of ...obstacle) obstacle {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, x := range of {
		if o.all[x] {
			return x
		}
	}
	return ""
}

// noPlace returns why this agent must not stand for addresses on LANs, or "": other hosts, or
// another agent of this one, stand for them.
func (o *obstacles) noPlace() obstacle { return o.first(agentDisplaced, storeDenied) }

// linkState is the state of an interface when it was looked at last.
type linkState struct {
	index   int    // 0: there is none of that name
	problem string // why it carries nothing, as logged
}

func newPhysical(interfaces map[string]string, n hostnet.Net, o *obstacles, log *slog.Logger, changed func()) *physical {
	return &physical{interfaces: interfaces, net: n, obstacles: o, log: log, changed: changed, state: map[string]linkState{}}
}

// carried returns the physical networks that this host carries now, with their interfaces.
func (p *physical) carried() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]string{}
	for network, name := range p.interfaces {
		if s := p.state[network]; s.index != 0 && s.problem == "" {
			all[network] = name
		}
	}
	return all
}

// keptOff returns the physical networks that this host does not carry because of an obstacle.
func (p *physical) keptOff(by obstacle) (networks []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for network, s := range p.state {
		if s.problem == string(by) {
			networks = append(networks, network)
		}
	}
	slices.Sort(networks)
	return networks
}

// concerns reports whether an event of a link may change what is carried.
func (p *physical) concerns(l hostnet.Link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for network, name := range p.interfaces {
		if name == l.Name || p.state[network].index == l.Index {
			return true
		}
	}
	return false
}

// look looks at all interfaces, and sets those up that have appeared.
func (p *physical) look() {
	changed := false
	for network, name := range p.interfaces {
		changed = p.note(network, name, p.find(network, name)) || changed
	}
	if changed {
		p.changed()
	}
}

func (p *physical) find(network, name string) linkState {
	l, err := p.net.Link(name)
	p.mu.Lock()
	isNew := p.state[network].index != l.Index
	p.mu.Unlock()
	switch {
	case errors.Is(err, hostnet.ErrNotFound):
		return linkState{problem: "there is no such interface; waiting for it"}
	case err != nil:
		return linkState{problem: err.Error()}
	}
	if err := CheckPhysical(l); err != nil {
		return linkState{l.Index, err.Error()}
	}
	switch {
	case !l.Up && !isNew:
		return linkState{l.Index, "the interface has been set down"}
	case !l.Up:
		if err := p.net.SetUp(name, true); err != nil {
			return linkState{l.Index, err.Error()}
		}
		if l, err = p.net.Link(name); err != nil {
			return linkState{problem: err.Error()}
		}
	}
	if !l.Running {
		return linkState{l.Index, "the interface has no carrier"}
	}
	if why := p.obstacles.first(agentDisplaced, storeDenied, noTunnelAddress); why != "" {
		return linkState{l.Index, string(why)}
	}
	return linkState{index: l.Index}
}

// note keeps the state of an interface, and reports whether it is other than before.
func (p *physical) note(network, name string, now linkState) (changed bool) {
	p.mu.Lock()
	before, known := p.state[network]
	p.state[network] = now
	p.mu.Unlock()
	switch {
	case now.problem == before.problem && known:
	case now.problem == "":
		p.log.Info("carrying a physical network", "physical_network", network, "interface", name)
	default:
		p.log.Warn("not carrying a physical network", "physical_network", network, "interface", name, "err", now.problem)
	}
	return now != before
}
