package agent

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
	"heddle/internal/xen/ovs"
)

// play is a host to which things happen, and what it must come to.
type play struct {
	*host
	random   *rand.Rand
	networks []*objects.Object
	access   map[string]*objects.Object // PIFs by bridge, attached
	vifs     map[string]*objects.Object // attached, by bridge
	ordered  map[string]bool            // bridges
	domid    int64
}

// TestPlay: whatever happens to the pool, the switch and the agent, in the end the switch has what
// is wanted and nothing else, and the reports say so.
func TestPlay(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	p := &play{host: l.hosts[0], random: rand.New(rand.NewPCG(seed, 0)), access: map[string]*objects.Object{}, vifs: map[string]*objects.Object{}, ordered: map[string]bool{}}
	for i := range 4 {
		p.networks = append(p.networks, l.network(fmt.Sprintf("xapi%d", i), nil))
	}
	p.ready()
	var told []string
	for range 40 {
		told = append(told, p.step())
		if p.random.IntN(8) == 0 {
			p.settles(told)
		}
	}
	p.settles(told)
}

// step lets something happen, and says what.
func (p *play) step() string {
	l, n := p.lab, p.networks[p.random.IntN(len(p.networks))]
	bridge := n.Text("bridge")
	switch what := p.random.IntN(16); {
	case what < 5:
		if access := p.access[bridge]; access != nil {
			l.delete(access)
			delete(p.access, bridge)
			return "unplug " + bridge
		}
		_, p.access[bridge] = p.tunnel(n)
		return "plug " + bridge
	case what < 9:
		if p.ordered[bridge] {
			l.write(func(tx *records.Tx) error { return objects.Orders.Delete(tx, p.ref+"/"+bridge) })
		} else {
			o := &objects.Order{Host: p.ref, ID: bridge, Bridge: objects.Bridge{Name: bridge, NetworkUUID: n.UUID(), MAC: "02:00:00:00:aa:01", MTU: 1400, FailMode: "standalone"}}
			l.write(func(tx *records.Tx) error { return objects.Orders.Put(tx, o) })
		}
		p.ordered[bridge] = !p.ordered[bridge]
		return "order " + bridge
	case what < 12:
		if vif := p.vifs[bridge]; vif != nil {
			l.change(vif, model.Record{"currently_attached": false})
			delete(p.vifs, bridge)
			return "detach from " + bridge
		}
		p.domid++
		_, p.vifs[bridge] = p.vm(p.domid, n)
		return "attach to " + bridge
	case what < 14:
		if _, err := p.Vsctl("--if-exists", "--no-wait", "del-br", bridge); err != nil {
			l.t.Fatal(err)
		}
		return "somebody deletes " + bridge
	case what == 14:
		p.kill()
		p.start()
		return "kill agent"
	default:
		if err := p.KillSwitch(); err != nil {
			l.t.Fatal(err)
		}
		if err := p.StartSwitch(); err != nil {
			l.t.Fatal(err)
		}
		return "kill switch"
	}
}

// settles waits until all is as it must be.
func (p *play) settles(told []string) {
	p.lab.t.Helper()
	wanted := map[string]bool{}
	for _, all := range []map[string]*objects.Object{p.access, p.vifs} {
		for bridge := range all {
			wanted[bridge] = true
		}
	}
	for bridge, ordered := range p.ordered {
		wanted[bridge] = wanted[bridge] || ordered
	}
	maps.DeleteFunc(wanted, func(_ string, wanted bool) bool { return !wanted })
	want := fmt.Sprint(slices.Sorted(maps.Keys(wanted)), slices.Sorted(maps.Keys(p.vifs)))
	p.lab.until(fmt.Sprintf("%s after %s", want, strings.Join(told, ", ")), func() bool {
		return p.found(p.sw.Snapshot()) == want && p.told() == fmt.Sprint(slices.Sorted(maps.Keys(wanted)))
	})
}

// found is which of our bridges there are, up, and which have a VIF's port.
func (p *play) found(s *ovs.Snapshot) string {
	var bridges, ports []string
	for _, b := range s.Bridges {
		if i := s.Interface(b.Name); marked(b.ExternalIDs) && i != nil && i.OfPort > 0 && i.AdminState == "up" {
			bridges = append(bridges, b.Name)
		}
	}
	for _, port := range s.Ports {
		if b := s.BridgeOf(port.UUID); b != nil && strings.HasPrefix(port.Name, "vif") {
			ports = append(ports, b.Name)
		}
	}
	slices.Sort(bridges)
	slices.Sort(ports)
	return fmt.Sprint(bridges, ports)
}

// told is which bridges are reported, all being well.
func (p *play) told() string {
	var all []string
	for r := range objects.BridgeReports.By(p.lab.view(), "host", p.ref) {
		if r.Error != "" || (len(r.Orders) == 1) != p.ordered[r.Bridge.Name] {
			return r.Bridge.Name + ": " + r.Error
		}
		all = append(all, r.Bridge.Name)
	}
	return fmt.Sprint(all)
}
