package tunnel

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"heddle/internal/netlab"
	"heddle/internal/store"
)

// TestOneChange: a member that leaves, and one that comes, changes its own leg at both ends, by one
// transaction on each of the two hosts, and nothing else: no row of other hosts, of other networks
// or of the network's other legs.
func TestOneChange(t *testing.T) {
	t.Parallel()
	l := newLab(t, 4)
	l.bfdEvery = calmBFD
	var networks []string
	tunnels := map[string][]string{}
	for _, name := range []string{"n1", "n2", "n3"} {
		network := l.network(name)
		networks = append(networks, network)
		l.prefer(network, 0)
		for _, h := range l.hosts {
			tunnels[network] = append(tunnels[network], l.tunnel(h, network, "gre"))
		}
	}
	c, _ := l.controller(store.NewMemory())
	for _, network := range networks {
		l.active(tunnels[network], 0, 1, 2, 3)
		l.centered(tunnels[network], 0, 1, 2, 3)
	}
	center, spoke := l.hosts[0], l.hosts[1]
	network := networks[slices.IndexFunc(networks, func(n string) bool { return !l.probed(spoke, n) })]

	change := func(what string, do func(), done func() bool) {
		t.Helper()
		before, ports, transactions := l.rowSet(), l.ports(), c.figures.Load().transactions
		do()
		l.until(what, done)
		l.until("the controller to rest", func() bool { f := c.figures.Load(); return f.legs == f.inPlace })
		if n := c.figures.Load().transactions - transactions; n != 2 {
			t.Errorf("%s: %d transactions on hosts' databases, want one on the center and one on the spoke", what, n)
		}
		after, portsAfter := l.rowSet(), l.ports()
		for _, h := range l.hosts {
			changed := difference(before[h.Name], after[h.Name])
			want := 0
			if h == center || h == spoke {
				want = 3 // the port, its interface, and the bridge that lists it
			}
			if len(changed) != want {
				t.Errorf("%s: %s: %d rows are others, want %d:\n%s", what, h.Name, len(changed), want, strings.Join(changed, "\n"))
			}
		}
		if portsAfter-ports != 2 && portsAfter-ports != -2 {
			t.Errorf("%s: %d ports became %d", what, ports, portsAfter)
		}
	}
	legs := func(n int) func() bool { return func() bool { return l.ports() == 2*n } }
	change("a member leaves", func() { l.call("tunnel.destroy", tunnels[network][1]) }, legs(8))
	change("a member comes", func() { tunnels[network][1] = l.call("tunnel.create", l.transport(spoke), network, "gre").(string) }, legs(9))
	l.active(tunnels[network], 0, 1, 2, 3)
}

// probed reports whether a network's leg on a host bears the BFD session of its path.
func (l *lab) probed(h *netlab.OVSHost, network string) bool {
	l.t.Helper()
	port := strings.TrimSpace(l.vsctl(h, "--bare", "--columns=name", "find", "Port", "external_ids:heddle-network="+l.call("network.get_uuid", network).(string)))
	return strings.Contains(l.vsctl(h, "get", "Interface", port, "bfd"), "enable")
}

// ports returns the number of the controller's ports.
func (l *lab) ports() int {
	l.t.Helper()
	n := 0
	for _, h := range l.hosts {
		n += len(strings.Fields(l.vsctl(h, "--bare", "--columns=_uuid", "find", "Port", "external_ids:heddle-owner=tunnel-controller")))
	}
	return n
}

// rowSet returns the rows of each host's switch that the controller may change, by UUID.
func (l *lab) rowSet() map[string]map[string]string {
	l.t.Helper()
	all := map[string]map[string]string{}
	for _, h := range l.hosts {
		all[h.Name] = map[string]string{}
		for table, columns := range map[string]string{"Port": "name,external_ids,interfaces", "Interface": "name,options,type,bfd", "Bridge": "name,ports,flood_vlans,external_ids"} {
			for line := range strings.Lines(l.vsctl(h, "--no-headings", "--format=csv", "--columns=_uuid,"+columns, "list", table)) {
				id, row, _ := strings.Cut(strings.TrimSpace(line), ",")
				all[h.Name][id] = row
			}
		}
	}
	return all
}

// difference are the rows that one of two sets lacks or has otherwise.
func difference(before, after map[string]string) []string {
	var changed []string
	ids := maps.Clone(before)
	maps.Copy(ids, after)
	for id := range ids {
		if before[id] != after[id] {
			changed = append(changed, id+": "+before[id]+" -> "+after[id])
		}
	}
	return changed
}
