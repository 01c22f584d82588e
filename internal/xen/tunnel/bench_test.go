package tunnel

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/store"
	"heddle/internal/xen/client"
	"heddle/internal/xen/model"
)

// BenchmarkCenterKilled is the longest time without an answer to a ping every 10 ms between two
// spokes of four hosts, when the center dies without a word.
func BenchmarkCenterKilled(b *testing.B) {
	var gaps []time.Duration
	for b.Loop() {
		l := newLab(b, 4)
		_, tunnels := l.star("gre")
		_, stop := l.controller(store.NewMemory())
		l.active(tunnels, 0, 1, 2, 3)
		l.reach()
		l.probing()
		p := l.ping(1, 2)
		if err := l.hosts[0].Kill(); err != nil {
			b.Fatal(err)
		}
		l.moved(tunnels, 0, 1, 2)
		gap, _ := p.gap(b)
		gaps = append(gaps, gap)
		stop()
	}
	report(b, gaps)
}

// BenchmarkPlannedMove is the same when another center is preferred, there and back.
func BenchmarkPlannedMove(b *testing.B) {
	l := newLab(b, 4)
	network, tunnels := l.star("gre")
	l.controller(store.NewMemory())
	l.active(tunnels, 0, 1, 2, 3)
	l.reach()
	var gaps []time.Duration
	for i := 0; b.Loop(); i++ {
		p := l.ping(2, 3)
		l.prefer(network, 1-i%2)
		l.centered(tunnels, 1-i%2, 2, 3)
		gap, _ := p.gap(b)
		gaps = append(gaps, gap)
	}
	report(b, gaps)
}

// report gives the median of the gaps and the longest.
func report(b *testing.B, gaps []time.Duration) {
	b.ReportMetric(float64(netlab.Median(gaps).Milliseconds()), "ms-median")
	b.ReportMetric(float64(slices.Max(gaps).Milliseconds()), "ms-longest")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkLegs measures how long the legs of 100 networks on 8 hosts with standing bridges take,
// from a controller's start: until they are made at both ends, and until all 800 tunnels are said
// to be active.
func BenchmarkLegs(b *testing.B) {
	const networks, hosts = 100, 8
	var made, said time.Duration
	for b.Loop() {
		l := newLab(b, hosts)
		var tunnels []string
		refs := make([]string, networks)
		for n := range refs {
			refs[n] = l.call("network.create", model.Record{"name_label": fmt.Sprint("n", n), "MTU": int64(1400)}).(string)
		}
		for _, h := range l.hosts {
			bridges(l, h, refs)
			transport := l.transport(h)
			for _, ref := range refs {
				tunnels = append(tunnels, l.call("tunnel.create", transport, ref).(string))
			}
		}
		began := time.Now()
		c, stop := l.controller(store.NewMemory())
		l.until("legs", func() bool { return c.figures.Load().inPlace == networks*(hosts-1) })
		made = max(made, time.Since(began))
		l.followed(len(tunnels))
		said = max(said, time.Since(began))
		stop()
	}
	b.ReportMetric(made.Seconds(), "s-legs")
	b.ReportMetric(said.Seconds(), "s-active")
	b.ReportMetric(0, "ns/op")
}

// followed waits until so many tunnels are said to be active.
func (l *lab) followed(n int) {
	l.t.Helper()
	enough := errors.New("enough")
	err := l.session.Follow(l.ctx, []string{"tunnel"}, func(all client.Objects, _ []client.Event) error {
		active := 0
		for _, r := range all["tunnel"] {
			if m, _ := r["status"].(map[string]string); m["active"] == "true" {
				active++
			}
		}
		if active == n {
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) {
		l.t.Fatal(err)
	}
}

// bridges makes those of many networks on a host.
func bridges(l *lab, h *netlab.OVSHost, refs []string) {
	records := l.records("network")
	var args []string
	for _, ref := range refs {
		name, uuid := records[ref]["bridge"].(string), records[ref]["uuid"].(string)
		args = append(args, "--", "add-br", name, "--", "set", "bridge", name, "datapath_type=netdev", "fail_mode=standalone", "external_ids:xs-network-uuids="+uuid)
	}
	l.vsctl(h, args...)
}
