package plan

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// Container is a service container that a host has to run.
type Container struct {
	ID, Kind  string
	PortID    string
	Interface string // of the host, its end of the pair
	Namespace string
	MAC       packet.MAC   // of the container's end
	Address   netip.Prefix // likewise
	Gateway   netip.Addr   // the router's address on the link
	// Addresses are further ones of the container, from which it checks or speaks BGP; in order.
	Addresses []netip.Addr
	Pools     []Pool // whose members are checked, by id
	// FormerHosts are those that ran the container before: what they have found of members counts
	// until this host has found something.
	FormerHosts []string
	Speaker     *Speaker // of a container that speaks BGP; nil while the router has no speaker
}

// Pool is a pool with a monitor that checks its members.
type Pool struct {
	ID      string
	Monitor topology.HealthMonitor
	Source  netip.Addr            // of the checks; invalid = the container's own address
	Members []topology.PoolMember // that are checked, by id
}

// longestHold bounds Hold: monitors of earlier versions have delays of up to 68 years.
const longestHold = 30 * 24 * time.Hour

// Hold returns the time for which the last verdicts about the pool's members count when nothing is
// known any more (services §5.5).
func (p *Pool) Hold() time.Duration {
	seconds := 3 * (int64(p.Monitor.Delay)*int64(p.Fall()) + int64(p.Monitor.Timeout))
	return time.Duration(min(seconds, int64(longestHold/time.Second))) * time.Second
}

// LongestCheck returns the time after which each check of the container's members is over.
func (c *Container) LongestCheck() (longest time.Duration) {
	for i := range c.Pools {
		longest = max(longest, time.Duration(c.Pools[i].Monitor.Timeout)*time.Second)
	}
	return longest
}

// Fall returns the number of checks that fail before a member is down.
func (p *Pool) Fall() int { return max(1, cmp.Or(p.Monitor.FailRetries, p.Monitor.MaxRetries)) }

// risesAfter is the number of successes after which a member of LBaaS is up again.
const risesAfter = 2

// Rise returns the number of checks that succeed before a member is up again.
func (p *Pool) Rise() int {
	if p.Monitor.FailRetries == 0 {
		return risesAfter
	}
	return max(1, p.Monitor.MaxRetries)
}

// byAgent reports whether the agent checks the members, not haproxy.
func (p *Pool) byAgent() bool {
	return p.Monitor.Type == topology.MonitorPing || p.Monitor.Type == topology.MonitorUDPConnect
}

// Probed returns the pools that the agent checks.
func (c *Container) Probed() []Pool {
	return slices.DeleteFunc(slices.Clone(c.Pools), func(p Pool) bool { return !p.byAgent() })
}

// Model holds the objects that service containers depend on, by the owners of their bundles. It
// depends on what was applied, not on the order.
type Model struct {
	owners    map[topology.Owner]*topology.Bundle
	passwords map[string]map[string]string // of BGP peers by id, by router
}

// NewModel returns an empty model.
func NewModel() *Model {
	return &Model{owners: map[topology.Owner]*topology.Bundle{}, passwords: map[string]map[string]string{}}
}

// SetPasswords sets the passwords of the peers of a router that this host speaks for, by the peers'
// ids; nil for none.
func (m *Model) SetPasswords(router string, passwords map[string]string) {
	if m.passwords[router] = passwords; passwords == nil {
		delete(m.passwords, router)
	}
}

// Apply replaces what an owner has, nil for nothing. It reports whether that concerns containers.
func (m *Model) Apply(owner topology.Owner, b *topology.Bundle) bool {
	_, had := m.owners[owner]
	if b == nil || !concerns(b) {
		delete(m.owners, owner)
		return had
	}
	m.owners[owner] = b
	return true
}

func concerns(b *topology.Bundle) bool {
	return len(b.ServiceContainers)+len(b.LoadBalancers)+len(b.Pools)+len(b.PoolMembers)+len(b.Vips)+len(b.HealthMonitors)+
		len(b.BgpSpeakers)+len(b.FloatingAddresses) > 0
}

// Containers returns the containers that are bound to a host, by id.
func (m *Model) Containers(hostID string) []Container {
	var all []Container
	var objects objects
	for _, b := range m.owners {
		objects.add(b)
		for i := range b.ServiceContainers {
			c := &b.ServiceContainers[i]
			if p := portOf(b, c.PortID); p != nil && p.HostID == hostID && p.InterfaceName != "" {
				all = append(all, newContainer(c, p))
			}
		}
	}
	configurations := map[string]string{}
	for _, b := range m.owners {
		for i := range b.ServiceContainers {
			configurations[b.ServiceContainers[i].ID] = b.ServiceContainers[i].ConfigurationID
		}
	}
	for i := range all {
		switch all[i].Kind {
		case topology.ContainerHAProxy:
			objects.addChecks(&all[i], configurations[all[i].ID])
		case topology.ContainerBGP:
			m.addSpeaker(&all[i], configurations[all[i].ID])
		}
	}
	slices.SortFunc(all, func(a, b Container) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

// Members returns the ids of all members of pools.
func (m *Model) Members() map[string]bool {
	ids := map[string]bool{}
	for _, b := range m.owners {
		for i := range b.PoolMembers {
			ids[b.PoolMembers[i].ID] = true
		}
	}
	return ids
}

// addSpeaker adds the work of a router's BGP speaker.
func (m *Model) addSpeaker(c *Container, router string) {
	b := m.owners[topology.Owner{Kind: topology.RouterBGPOwner, ID: router}]
	if b == nil || len(b.BgpSpeakers) == 0 {
		return
	}
	var floating []netip.Addr
	for _, other := range m.owners {
		for _, f := range other.FloatingAddresses {
			if f.RouterID == router && f.Address.Is4() {
				floating = append(floating, f.Address)
			}
		}
	}
	peers := slices.Clone(b.BgpPeers)
	for i := range peers {
		peers[i].Password = m.passwords[router][peers[i].ID]
	}
	c.Speaker = newSpeaker(&b.BgpSpeakers[0], peers, floating)
	c.Addresses = c.Speaker.localAddresses()
}

func portOf(b *topology.Bundle, id string) *topology.Port {
	for i := range b.Ports {
		if b.Ports[i].ID == id {
			return &b.Ports[i]
		}
	}
	return nil
}

// NamespacePrefix begins the names of the namespaces of a kind of containers.
func NamespacePrefix(kind string) string { return "heddle-" + strings.ToLower(kind) + "-" }

// newContainer returns a container without its checks.
func newContainer(c *topology.ServiceContainer, p *topology.Port) Container {
	bits := 30
	if len(p.PortSubnet) > 0 {
		bits = p.PortSubnet[0].Bits()
	}
	return Container{
		ID: c.ID, Kind: c.ServiceType, PortID: p.ID, Interface: p.InterfaceName,
		Namespace: NamespacePrefix(c.ServiceType) + c.ID[:min(len(c.ID), 11)],
		MAC:       topology.ContainerMAC(p.PortMAC),
		Address:   netip.PrefixFrom(p.PortAddress.Next(), bits), Gateway: p.PortAddress, FormerHosts: c.FormerHostIDs,
	}
}

// objects are those of load balancers.
type objects struct {
	pools    []*topology.Pool
	monitors map[string]*topology.HealthMonitor
	members  map[string][]*topology.PoolMember // by pool
	vips     map[string][]*topology.Vip        // likewise
}

func (o *objects) add(b *topology.Bundle) {
	if o.monitors == nil {
		o.monitors, o.members, o.vips = map[string]*topology.HealthMonitor{}, map[string][]*topology.PoolMember{}, map[string][]*topology.Vip{}
	}
	for i := range b.Pools {
		o.pools = append(o.pools, &b.Pools[i])
	}
	for i := range b.HealthMonitors {
		o.monitors[b.HealthMonitors[i].ID] = &b.HealthMonitors[i]
	}
	for i := range b.PoolMembers {
		o.members[b.PoolMembers[i].PoolID] = append(o.members[b.PoolMembers[i].PoolID], &b.PoolMembers[i])
	}
	for i := range b.Vips {
		o.vips[b.Vips[i].PoolID] = append(o.vips[b.Vips[i].PoolID], &b.Vips[i])
	}
}

// addChecks adds the pools of a load balancer whose members are checked.
func (o *objects) addChecks(c *Container, loadBalancer string) {
	own := map[netip.Addr]bool{}
	for _, p := range o.pools {
		monitor := o.monitors[p.HealthMonitorID]
		if p.LoadBalancerID != loadBalancer || monitor == nil || !monitor.Checks() {
			continue
		}
		pool := Pool{ID: p.ID, Monitor: *monitor, Source: o.source(p.ID)}
		if pool.Source.IsValid() {
			own[pool.Source] = true
		}
		for _, m := range o.members[p.ID] {
			if m.AdminStateUp && m.Address.IsValid() {
				pool.Members = append(pool.Members, *m)
			}
		}
		slices.SortFunc(pool.Members, func(a, b topology.PoolMember) int { return cmp.Compare(a.ID, b.ID) })
		c.Pools = append(c.Pools, pool)
	}
	slices.SortFunc(c.Pools, func(a, b Pool) int { return cmp.Compare(a.ID, b.ID) })
	c.Addresses = slices.SortedFunc(maps.Keys(own), netip.Addr.Compare)
}

// source returns the address from which a pool is checked: of v1, whose VIPs name no load balancer,
// that of its VIP.
func (o *objects) source(pool string) (lowest netip.Addr) {
	for _, v := range o.vips[pool] {
		if v.LoadBalancerID == "" && v.Address.IsValid() && (!lowest.IsValid() || v.Address.Less(lowest)) {
			lowest = v.Address
		}
	}
	return lowest
}
