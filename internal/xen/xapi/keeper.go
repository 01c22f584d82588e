package xapi

import (
	"context"
	"strings"
	"sync"
	"time"

	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/task"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// keeper makes the pool's objects of what hosts report. What it does for a host follows from the newest report alone, and
// is nothing when it was done before: every server of a pool runs one. It is a task.
type keeper struct {
	server *Server
	ready  chan struct{}

	mu    sync.Mutex
	due   map[string]bool // refs of hosts to look after
	woken task.Notice     // holds a token while something is due
}

// keeperPause is between attempts while the store does not take what the keeper writes.
const keeperPause = time.Second

func newKeeper(s *Server) *keeper {
	k := &keeper{server: s, ready: make(chan struct{}), due: map[string]bool{}, woken: task.NewNotice()}
	s.replica.OnChange(k.note)
	return k
}

func (k *keeper) String() string { return "keeper" }

// Ready is closed once the pool and the hosts that reported at the start have their objects.
func (k *keeper) Ready() <-chan struct{} { return k.ready }

// note remembers the hosts for which a change may mean work.
func (k *keeper) note(u replica.Update) {
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

// differ says that a field of an object that stays has another value.
func differ(c replica.Changed, fields ...string) bool {
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
	close(k.ready)
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
			err = k.server.update(ctx, func(tx *records.Tx) error { return keepHost(tx, host, name, k.server.opts.Now()) })
		}
		if err != nil && ctx.Err() == nil {
			k.server.opts.Log.Warn("host not looked after: trying again", "host", host, "err", err)
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

// keepHost makes and renews the objects of a host by its report. A host that does not report keeps its objects. name is the
// host's registered name, "" if it has none. What a host reports is not trusted where it has one: it could take another's name.
func keepHost(tx *records.Tx, ref, name string, now time.Time) error {
	stored, err := objects.HostReports.Get(tx, ref)
	if err != nil {
		return nil // it is dead; host_metrics.live says so by itself
	}
	report := new(*stored)
	if name != "" {
		report.Name, report.ID = name, strings.TrimPrefix(ref, refPrefix)
	}
	if gone, err := objects.Expelled.Get(tx, ref); err == nil {
		if gone.Started.Equal(report.Started) {
			return nil
		}
		if err := objects.Expelled.Delete(tx, ref); err != nil {
			return err
		}
	}
	host, err := renewHost(tx, report, now)
	if err != nil {
		return err
	}
	if err := introduceAll(tx, report, now); err != nil {
		return err
	}
	if !imagined(tx, ref) {
		if err := renewPIFs(tx, report, now); err != nil {
			return err
		}
	}
	if started := report.Started.UTC().Format(time.RFC3339Nano); host.Map("other_config")[startedKey] != started {
		if err := inherit(tx, ref); err != nil {
			return err
		}
		if err := put(tx, edited(host, model.Record{"other_config": with(host.Map("other_config"), startedKey, started)})); err != nil {
			return err
		}
	}
	return plugInherited(tx, ref)
}

// Keys in a host's other_config.
const (
	startedKey   = "agent_start_time"      // the start that the host was last looked after for
	forgottenKey = "heddle:forgotten-PIFs" // interfaces that PIF.forget took out of the pool, separated by spaces
)

// renewHost has the host's object and its metrics say what the report does. The first host is the pool's coordinator.
func renewHost(tx *records.Tx, report *objects.HostReport, now time.Time) (*objects.Object, error) {
	software := map[string]string{"network_backend": report.Backend, "product_brand": "Heddle", "product_version": report.Version}
	host, err := objects.Table("host").Get(tx, report.Host)
	if err != nil {
		if host, err = newHost(tx, report); err != nil {
			return nil, err
		}
	}
	metrics, err := object(tx, "host_metrics", host.Text("metrics"))
	if err != nil {
		return nil, err
	}
	memory := model.Record{"memory_total": report.Memory[0], "memory_free": report.Memory[1]}
	if metrics.Int("memory_total") != report.Memory[0] || metrics.Int("memory_free") != report.Memory[1] {
		memory["last_updated"] = now.UTC().Truncate(time.Second)
		if err := put(tx, edited(metrics, memory)); err != nil {
			return nil, err
		}
	}
	fields := model.Record{"hostname": report.Name, "software_version": software}
	if !imagined(tx, report.Host) || host.Text("address") == "" {
		fields["address"] = report.Address
	}
	return renew(tx, host, fields)
}

// renew puts an object with these fields if it has other ones, and returns what it is then.
func renew(tx *records.Tx, o *objects.Object, fields model.Record) (*objects.Object, error) {
	for f, v := range fields {
		if !same(o.Fields[f], v) {
			changed := edited(o, fields)
			return changed, put(tx, changed)
		}
	}
	return o, nil
}

// newHost makes the objects of a host that reports for the first time.
func newHost(tx *records.Tx, report *objects.HostReport) (*objects.Object, error) {
	pool, err := thePool(tx)
	if err != nil {
		return nil, err
	}
	metrics := newObject("host_metrics", model.Record{"live": true})
	host := &objects.Object{Class: "host", Ref: report.Host, Fields: model.New("host")}
	host.Fields["uuid"], host.Fields["name_label"], host.Fields["metrics"] = report.ID, report.Name, metrics.Ref
	host.Fields["software_version"] = map[string]string{}
	if err := put(tx, metrics); err != nil {
		return nil, err
	}
	if err := put(tx, host); err != nil {
		return nil, err
	}
	if null(pool.Text("master")) {
		return host, put(tx, edited(pool, model.Record{"master": host.Ref}))
	}
	return host, nil
}

// inherit gives a host the coordinator's tunnels that it can have: on networks that it has no PIF on yet, where it has one
// on the network of the coordinator's transport. What it cannot have is left out (spec 7.10). They begin unplugged.
func inherit(tx *records.Tx, host string) error {
	pool, err := thePool(tx)
	if err != nil {
		return err
	}
	master := pool.Text("master")
	if master == host {
		return nil
	}
	for _, access := range by(tx, "PIF", "host", master) {
		t := tunnelOf(tx, access.Ref)
		if t == nil {
			continue
		}
		carrier, err := object(tx, "PIF", t.Text("transport_PIF"))
		if err != nil {
			return err
		}
		transport := on(tx, host, carrier.Text("network"))
		if transport == nil || !inheritable(tx, transport, access.Text("network")) {
			continue
		}
		network, err := object(tx, "network", access.Text("network"))
		if err != nil {
			return err
		}
		tunnel, pif := newTunnel(tx, tunnelSite{transport, network}, t.Text("protocol"), randomMAC())
		tunnel.Fields["other_config"] = map[string]string{inheritedKey: "true"}
		if err := putTunnel(tx, tunnel, pif); err != nil {
			return err
		}
	}
	return nil
}

// inheritable says whether a transport may carry a tunnel of the network.
func inheritable(r records.Reader, transport *objects.Object, network string) bool {
	report, ok := objects.HostReports.Peek(r, transport.Text("host"))
	return ok && report.Backend == "openvswitch" && transport.Bool("managed") && !isSlave(transport) &&
		tunnelOf(r, transport.Ref) == nil && on(r, transport.Text("host"), network) == nil
}

// plugInherited plugs the tunnels that the host has inherited once it is enabled and their transports are configured. The
// host makes their bridges as those of tunnels that were plugged when it started.
func plugInherited(tx *records.Tx, host string) error {
	if h, err := object(tx, "host", host); err != nil || !h.Bool("enabled") {
		return err
	}
	for _, pif := range by(tx, "PIF", "host", host) {
		t := tunnelOf(tx, pif.Ref)
		if t == nil || t.Map("other_config")[inheritedKey] == "" {
			continue
		}
		pif, err := object(tx, "PIF", pif.Ref)
		if err != nil {
			return err
		}
		pifs, err := rising(tx, pif)
		if err != nil {
			continue // not yet: its transport is not configured
		}
		if err := attach(tx, pifs); err != nil {
			return err
		}
	}
	return nil
}

// syncHost gives a host the coordinator's tunnels now.
func (c *call) syncHost() error {
	return c.update(func(tx *records.Tx) error {
		if _, err := alive(tx, c.text("host")); err != nil {
			return err
		}
		if err := inherit(tx, c.text("host")); err != nil {
			return err
		}
		return plugInherited(tx, c.text("host"))
	})
}
