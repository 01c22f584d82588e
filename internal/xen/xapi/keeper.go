package xapi

import (
	"cmp"
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// keeper makes the pool's objects of what hosts report. What it does for a host follows from the
// newest report alone, and is nothing when it was done before: every server of a pool runs one. It
// is a task, ready once the pool and the hosts that reported at the start have their objects.
type keeper struct {
	task.Part
	server *Server

	mu    sync.Mutex
	due   map[string]bool // refs of hosts to look after
	woken task.Notice     // holds a token while something is due
}

// keeperPause is between attempts while the store does not take what the keeper writes.
const keeperPause = time.Second

func newKeeper(s *Server) *keeper {
	k := &keeper{Part: task.NewPart("keeper"), server: s, due: map[string]bool{}, woken: task.NewNotice()}
	s.replica.OnChange(k.note)
	return k
}

// note remembers the hosts for which a change may mean work.
func (k *keeper) note(u snapshot.Update) {
	for _, c := range u.Changed {
		switch c.Source {
		case objects.HostReports.Name():
			k.add(c.ID)
		case objects.Table("host").Name():
			if differ(c, "enabled") {
				k.add(c.ID)
			}
		case objects.Table("PIF").Name():
			if differ(c, "ip_configuration_mode", "ipv6_configuration_mode") {
				k.add(c.New.(*objects.Object).Text("host"))
			}
		}
	}
}

// differ reports whether a field of an object that stays has another value.
func differ(c snapshot.Changed, fields ...string) bool {
	old, _ := c.Old.(*objects.Object)
	now, _ := c.New.(*objects.Object)
	if old == nil || now == nil {
		return false
	}
	for _, f := range fields {
		if old.Fields[f] != now.Fields[f] {
			return true
		}
	}
	return false
}

func (k *keeper) add(host string) {
	k.mu.Lock()
	k.due[host] = true
	k.mu.Unlock()
	k.woken.Give()
}

func (k *keeper) take() map[string]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	due := k.due
	k.due = map[string]bool{}
	return due
}

// Run looks after hosts until ctx ends.
func (k *keeper) Run(ctx context.Context) error {
	if err := k.server.update(ctx, ensurePool); err != nil {
		return err
	}
	k.pass(ctx)
	k.BeReady()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-k.woken:
			k.pass(ctx)
		}
	}
}

// pass looks after every host that is due; those that fail are due again after a while.
func (k *keeper) pass(ctx context.Context) {
	failed := false
	for host := range k.take() {
		name, err := schema.RegisteredName(ctx, k.server.opts.Store, strings.TrimPrefix(host, refPrefix))
		if err == nil {
			err = k.server.update(ctx, changing(func(p *pool) { p.keepHost(host, name, k.server.time()) }))
		}
		if err != nil && ctx.Err() == nil {
			k.server.opts.Log.Warn("host not looked after: trying again", "host", cmp.Or(name, host), "err", err)
			k.add(host)
			failed = true
		}
	}
	if failed {
		task.Pause(ctx, keeperPause)
	}
}

// ensurePool makes the pool's object.
func ensurePool(tx *records.Tx) error {
	tx.Touch("xen-pool")
	if objects.Table("pool").Count(tx) > 0 {
		return nil
	}
	return put(tx, newObject("pool", nil))
}

// keepHost makes and renews the objects of a host by its report. A host that does not report keeps
// its objects. name is the host's registered name, "" if it has none: a host that has one could
// report another's name.
func (p *pool) keepHost(ref, name string, now time.Time) {
	now = now.UTC().Truncate(time.Second)
	stored, err := objects.HostReports.Get(p, ref)
	if err != nil {
		return // it is dead; host_metrics.live says so by itself
	}
	report := new(*stored)
	if name != "" {
		report.Name, report.ID = name, strings.TrimPrefix(ref, refPrefix)
	}
	if gone, err := objects.Expelled.Get(p, ref); err == nil {
		if gone.Started.Equal(report.Started) {
			return
		}
		discard(p, objects.Expelled, ref)
	}
	host := p.renewHost(report, now)
	p.introduceAll(report, now)
	if !imagined(p, ref) {
		p.renewPIFs(report, now)
	}
	if started := report.Started.UTC().Format(time.RFC3339Nano); host.Map("other_config")[startedKey] != started {
		p.inherit(ref)
		p.edit(host, model.Record{"other_config": with(host.Map("other_config"), startedKey, started)})
	}
	p.plugInherited(ref)
}

// Keys in a host's other_config.
const (
	startedKey   = "agent_start_time"      // the start that the host was last looked after for
	forgottenKey = "heddle:forgotten-PIFs" // interfaces that PIF.forget took out of the pool, separated by spaces
)

// renewHost has the host's object and metrics follow the report. The first host is coordinator.
func (p *pool) renewHost(report *objects.HostReport, now time.Time) *objects.Object {
	host, err := objects.Table("host").Get(p, report.Host)
	if err != nil {
		host = p.newHost(report)
	}
	metrics := p.get("host_metrics", host.Text("metrics"))
	if metrics.Int("memory_total") != report.Memory[0] || metrics.Int("memory_free") != report.Memory[1] {
		p.edit(metrics, model.Record{"memory_total": report.Memory[0], "memory_free": report.Memory[1], "last_updated": now})
	}
	fields := model.Record{"hostname": report.Name,
		"software_version": map[string]string{"network_backend": report.Backend, "product_brand": "Heddle", "product_version": report.Version}}
	if !imagined(p, report.Host) || host.Text("address") == "" {
		fields["address"] = report.Address
	}
	return p.renew(host, fields)
}

// newHost makes the objects of a host that reports for the first time.
func (p *pool) newHost(report *objects.HostReport) *objects.Object {
	own := p.own()
	metrics := newObject("host_metrics", model.Record{"live": true})
	host := &objects.Object{Class: "host", Ref: report.Host, Fields: model.New("host")}
	maps.Copy(host.Fields, model.Record{"uuid": report.ID, "name_label": report.Name, "metrics": metrics.Ref, "software_version": map[string]string{}})
	p.put(metrics, host)
	if null(own.Text("master")) {
		p.edit(own, model.Record{"master": host.Ref})
	}
	return host
}

// inherit gives a host the coordinator's tunnels that it can have: on networks that it has no PIF
// on yet, where it has one on the network of the coordinator's transport. Others are left out (spec
// 7.10). They begin unplugged.
func (p *pool) inherit(host string) {
	master := p.own().Text("master")
	if master == host {
		return
	}
	for _, access := range by(p, "PIF", "host", master) {
		t := tunnelOf(p, access.Ref)
		if t == nil {
			continue
		}
		transport := on(p, host, p.get("PIF", t.Text("transport_PIF")).Text("network"))
		if transport == nil || !inheritable(p, transport, access.Text("network")) {
			continue
		}
		network := p.get("network", access.Text("network"))
		tunnel, pif := p.newTunnel(tunnelSite{transport, network}, t.Text("protocol"), randomMAC())
		tunnel.Fields["other_config"] = map[string]string{inheritedKey: "true"}
		p.putTunnel(tunnel, pif)
	}
}

// inheritable reports whether a transport may carry a tunnel of the network.
func inheritable(r records.Reader, transport *objects.Object, network string) bool {
	report, ok := objects.HostReports.Peek(r, transport.Text("host"))
	return ok && report.Backend == "openvswitch" && transport.Bool("managed") && !isSlave(transport) &&
		tunnelOf(r, transport.Ref) == nil && on(r, transport.Text("host"), network) == nil
}

// plugInherited plugs the tunnels that the host has inherited once it is enabled and their
// transports are configured. The host makes their bridges as those of tunnels that were plugged
// when it started.
func (p *pool) plugInherited(host string) {
	if !p.get("host", host).Bool("enabled") {
		return
	}
	for _, pif := range by(p, "PIF", "host", host) {
		t := tunnelOf(p, pif.Ref)
		if t == nil || t.Map("other_config")[inheritedKey] == "" {
			continue
		}
		attempt := over(p.tx)
		if pifs := attempt.rising(p.get("PIF", pif.Ref)); attempt.err == nil { // else its transport is not configured yet
			p.attach(pifs)
		}
	}
}

// syncTunnels gives a host the coordinator's tunnels now.
func syncTunnels(c *call) (any, error) {
	return nil, c.change(func(p *pool) {
		p.alive(c.text("host"))
		p.inherit(c.text("host"))
		p.plugInherited(c.text("host"))
	})
}
