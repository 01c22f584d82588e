package tunnel

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"heddle/internal/store"
	"heddle/internal/xen/model"
)

// TestSpread makes 20 networks over 8 hosts under a controller's eyes, one tunnel after another: no
// host is center of more than one network more than another, and no center moves when the next
// controller goes on.
func TestSpread(t *testing.T) {
	t.Parallel()
	const networks, hosts = 20, 8
	l := newLab(t, hosts)
	st := store.NewMemory()
	c, stop := l.controller(st)
	var tunnels []string
	var all, bridges []string
	for i := range networks {
		all = append(all, l.network(fmt.Sprintf("network%d", i)))
		r := l.call("network.get_record", all[i]).(model.Record)
		bridges = append(bridges, "--", "add-br", r["bridge"].(string), "--", "set", "bridge", r["bridge"].(string), "datapath_type=netdev", "fail_mode=standalone",
			"external_ids:xs-network-uuids="+r["uuid"].(string))
	}
	for _, h := range l.hosts {
		l.vsctl(h, bridges[1:]...)
	}
	for _, network := range all {
		for _, h := range l.hosts {
			tunnels = append(tunnels, l.call("tunnel.create", l.transport(h), network, "gre").(string))
		}
	}
	centers := func() (count map[string]int, active int) {
		count = map[string]int{}
		for _, s := range l.statuses(tunnels) {
			if s["active"] == "true" {
				active++
			}
			if s["heddle:role"] == "center" {
				count[s["heddle:center"]]++
			}
		}
		return count, active
	}
	var count map[string]int
	l.until("tunnels that are active and centers that are spread", func() bool {
		var active int
		count, active = centers()
		per := slices.Sorted(maps.Values(count))
		return active == len(tunnels) && len(per) == hosts && per[hosts-1]-per[0] <= 1
	})
	t.Logf("centers by host: %v; %d moves", slices.Sorted(maps.Values(count)), c.figures.Load().moves)
	stop()
	next, _ := l.controller(st)
	l.until("the next controller knows all hosts", func() bool {
		f := next.figures.Load()
		return f.leader && f.known == hosts && f.inPlace == networks*(hosts-1)
	})
	if after, _ := centers(); !maps.Equal(count, after) || next.figures.Load().moves > 0 {
		t.Errorf("centers were %v and are %v after %d moves", count, after, next.figures.Load().moves)
	}
}
