package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"

	"heddle/internal/hostnet"
	"heddle/internal/store/records"
	"heddle/internal/xen/objects"
)

// addresses keeps interfaces configured as orders have said, over restarts of the host: a file
// holds the last order for each interface and IP version. An interface that no order was about is
// not touched.
//
// An interface is configured when it is ordered; when the link that has its addresses is another
// than before, at the start or because its bridge was made anew; and when the link has gone down,
// and its routes with it: one that is to have an address is up. What other programs do to it
// otherwise stands.
type addresses struct {
	agent  *Agent
	file   string
	wanted map[string]objects.Address // by interface and family
	done   map[string]int             // the link's index when it was configured last, or wasDown

	mu   sync.Mutex
	down map[int]bool // links that have been down since takeDown
}

// wasDown stands for the index of a link that has been down: it is to be configured again.
const wasDown = -1

func newAddresses(a *Agent) *addresses {
	return &addresses{agent: a, file: a.opts.Addresses, wanted: map[string]objects.Address{}, done: map[string]int{}, down: map[int]bool{}}
}

// wentDown notes that a link was seen down.
func (a *addresses) wentDown(index int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.down[index] = true
}

// takeDown is which links have been down since it was asked last.
func (a *addresses) takeDown() map[int]bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	down := a.down
	a.down = map[int]bool{}
	return down
}

func addressKey(a objects.Address) string {
	return fmt.Sprintf("%s IPv%d", objects.DeviceKey(a.Device, a.VLAN), a.Family)
}

// load reads the file. Without one no interface was ordered to be anything.
func (a *addresses) load() error {
	raw, err := os.ReadFile(a.file)
	if a.file == "" || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var all []objects.Address
	if err := json.Unmarshal(raw, &all); err != nil {
		return fmt.Errorf("%s: %w", a.file, err)
	}
	for _, one := range all {
		a.wanted[addressKey(one)] = one
	}
	return nil
}

func (a *addresses) save() error {
	all := make([]objects.Address, 0, len(a.wanted))
	for _, key := range slices.Sorted(maps.Keys(a.wanted)) {
		all = append(all, a.wanted[key])
	}
	raw, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(a.file+".new", raw, 0o600); err != nil {
		return err
	}
	return os.Rename(a.file+".new", a.file)
}

// configure does what an order says, now and from now on.
func (a *addresses) configure(order objects.Address) error {
	if a.file == "" {
		return errors.New("this host's agent does not configure interfaces")
	}
	if _, err := prefixesOf(order); err != nil {
		return err
	}
	undo, err := a.apply(order)
	if err != nil {
		return err
	}
	key := addressKey(order)
	before, had := a.wanted[key]
	a.wanted[key] = order
	if err = a.save(); err == nil {
		return nil
	}
	if delete(a.wanted, key); had {
		a.wanted[key] = before
	}
	return errors.Join(fmt.Errorf("interface %s: what was ordered cannot be kept for the next start, and is undone: %w", key, err), undo())
}

// restore configures those interfaces whose link has changed, or has been down.
func (a *addresses) restore() {
	down := a.takeDown()
	for key, want := range a.wanted {
		if down[a.done[key]] {
			a.done[key] = wasDown
		}
		l, made, err := a.find(want)
		if err != nil || a.done[key] == l.Index {
			continue // it is not there yet, or as it was left
		}
		if made != nil && made.Text("ip_configuration_mode") == "None" && made.Text("ipv6_configuration_mode") == "None" {
			continue // another VLAN than the one that was ordered to be something, of the same tag
		}
		if _, err := a.apply(want); err != nil {
			a.agent.log.Warn("cannot configure an interface as it was ordered", "interface", key, "err", err)
		}
	}
}

// find is the link that has the addresses of an interface, or of a VLAN that the pool has made,
// whose PIF is then made.
func (a *addresses) find(order objects.Address) (l hostnet.Link, made *objects.Object, err error) {
	m, err := look(a.agent.kernel, a.agent.sw.Snapshot())
	if err != nil {
		return hostnet.Link{}, nil, err
	}
	byIndex := map[int]hostnet.Link{}
	for _, l := range m.links {
		byIndex[l.Index] = l
	}
	known := a.agent.known()
	for _, l := range m.links {
		name, tag := l.Name, 0
		if l.Kind == hostnet.VLAN {
			name, tag = byIndex[l.Parent].Name, l.Tag
		}
		if holder := m.holder(l, byIndex); name == order.Device && tag == order.VLAN && m.own(l, holder, known) && holder.Index > 0 {
			return holder, nil, nil
		}
	}
	pif := a.vlanPIF(order)
	bridge := a.bridgeOf(pif)
	for _, l := range m.links {
		if l.Name == bridge {
			return l, pif, nil
		}
	}
	return hostnet.Link{}, nil, fmt.Errorf("interface %s: this host has none of that name that its agent could configure", objects.DeviceKey(order.Device, order.VLAN))
}

// vlanPIF is the PIF of a VLAN; nil: the order is not about one.
func (a *addresses) vlanPIF(order objects.Address) *objects.Object {
	r := records.Over(a.agent.reader())
	for pif := range objects.Table("PIF").By(r, "host", a.agent.host) {
		if order.VLAN > 0 && pif.Text("device") == order.Device && pif.Int("VLAN") == int64(order.VLAN) {
			return pif
		}
	}
	return nil
}

// bridgeOf returns the bridge that this agent has made for a VLAN, "" for none.
func (a *addresses) bridgeOf(pif *objects.Object) string {
	if pif == nil {
		return ""
	}
	network, ok := objects.Table("network").Peek(records.Over(a.agent.reader()), pif.Text("network"))
	if !ok {
		return ""
	}
	return network.Text("bridge")
}

// apply gives the interface the addresses and the default route of an order, in place of all others
// of that IP version, or leaves it as it is and says why. undo takes that back.
func (a *addresses) apply(order objects.Address) (undo func() error, err error) {
	c := hostnet.Configuration{Family: order.Family}
	if c.Addresses, err = prefixesOf(order); err != nil {
		return nil, err
	}
	if order.Mode == "Static" && order.Gateway != "" {
		c.Gateway = netip.MustParseAddr(order.Gateway)
	}
	l, _, err := a.find(order)
	if err != nil {
		return nil, err
	}
	lost, undo, err := a.agent.kernel.Configure(l.Name, c)
	if err != nil {
		return nil, err
	}
	for _, r := range lost {
		a.agent.log.Warn("interface configured; route lost, the new addresses do not reach its gateway", "interface", addressKey(order), "destination", r.Dst, "gateway", r.Gateway, "link", r.Link)
	}
	a.done[addressKey(order)] = l.Index
	return undo, nil
}

// prefixesOf are the addresses of an order, or why the agent cannot carry it out.
func prefixesOf(o objects.Address) ([]netip.Prefix, error) {
	name := "interface " + objects.DeviceKey(o.Device, o.VLAN)
	switch {
	case o.Family != 4 && o.Family != 6:
		return nil, fmt.Errorf("%s: IP version %d: want 4 or 6", name, o.Family)
	case o.Mode == "None":
		return nil, nil
	case o.Mode != "Static":
		return nil, fmt.Errorf("%s: mode %s: the host's own network configuration does that, not its agent; here it can be Static or None", name, o.Mode)
	case o.DNS != "":
		return nil, fmt.Errorf("%s: DNS servers are what %s names on the host: leave them out here", name, resolvConf)
	}
	if o.Gateway != "" {
		if g, err := netip.ParseAddr(o.Gateway); err != nil || g.Is4() != (o.Family == 4) {
			return nil, fmt.Errorf("%s: gateway %q: want an IPv%d address", name, o.Gateway, o.Family)
		}
	}
	texts := o.IPv6
	if o.Family == 4 {
		mask := net.ParseIP(o.Netmask).To4()
		ones, bits := net.IPMask(mask).Size()
		if bits != 32 {
			return nil, fmt.Errorf("%s: netmask %q: want one such as 255.255.255.0", name, o.Netmask)
		}
		texts = []string{fmt.Sprintf("%s/%d", o.IP, ones)}
	}
	var all []netip.Prefix
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().Is4() != (o.Family == 4) {
			return nil, fmt.Errorf("%s: address %q: want an IPv%d address with prefix length", name, text, o.Family)
		}
		all = append(all, p)
	}
	return all, nil
}
