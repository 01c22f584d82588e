package agent

import (
	"context"
	"sync"
	"time"

	"heddle/internal/hostnet"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/task"
	"heddle/internal/xen/objects"
	"heddle/internal/xen/ovs"
)

const (
	// lookPause is the pause between a change and the look at the kernel: others may go with it, as
	// when one address takes the place of another.
	lookPause = 50 * time.Millisecond
	// lookEvery is the period of looks without a change; the report's memory grows no older.
	lookEvery = time.Minute
)

// lastReport holds those parts of the host's last report that the next one depends on.
type lastReport struct {
	mu      sync.Mutex
	backend string
	lost    time.Time // since when Open vSwitch's database is away; zero while it is not
	memory  [2]int64
}

// reports keeps the host's report as the host is until ctx ends: a look at each change that the
// kernel, Open vSwitch or the pool reports, and one each minute.
func (a *Agent) reports(ctx context.Context) error {
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	failing := ""
	for {
		now := ""
		if err := a.sendReport(); err != nil {
			now = err.Error()
			time.AfterFunc(againAfter, a.reportDue.Give)
		}
		if now != failing && now != "" {
			a.log.Warn("cannot look at this host's interfaces, will try again", "err", now)
		}
		failing = now
		select {
		case <-ctx.Done():
			return nil
		case <-a.reportDue:
		case <-every.C:
		}
		task.Pause(ctx, lookPause)
		select {
		case <-a.reportDue:
		default:
		}
	}
}

// watch renews the report after each change that the kernel reports.
func (a *Agent) watch(ctx context.Context) error {
	events, err := a.kernel.Watch(ctx)
	if err != nil {
		return err
	}
	for e := range events {
		if e.Kind != hostnet.NeighbourSet && e.Kind != hostnet.NeighbourGone {
			a.reportDue.Give()
		}
		if a.opts.Addresses == "" {
			continue
		}
		if e.Kind == hostnet.LinkSet && !e.Link.Up {
			a.clerk.addresses.wentDown(e.Link.Index)
		}
		if e.Kind == hostnet.LinkSet || e.Kind == hostnet.Lost {
			a.ordersDue.Give()
		}
	}
	return nil
}

// sendReport reports the host as it is now.
func (a *Agent) sendReport() error {
	a.last.mu.Lock()
	defer a.last.mu.Unlock()
	s := a.sw.Snapshot()
	m, err := look(a.kernel, s)
	if err != nil {
		return err
	}
	r := &objects.HostReport{Host: a.host, ID: a.opts.HostID, Name: a.opts.HostName, Address: a.opts.Address, Version: a.opts.Version,
		Started: a.begun.UTC().Truncate(time.Second), Backend: a.backend(s), Memory: a.last.remember(), Interfaces: m.interfaces(a.known()),
		Reads: schema.KnownFormats().Newest(), Writes: schema.KnownFormats().Newest()}
	if r.Address == "" {
		r.Address = management(r.Interfaces)
	}
	if r.Backend == openVSwitch {
		r.Can = append(r.Can, objects.CanVLAN)
	}
	if a.opts.Addresses != "" {
		r.Can = append(r.Can, objects.CanAddress)
	}
	if a.opts.Move != nil {
		r.Can = append(r.Can, objects.CanJoin)
	}
	if r.Backend != a.last.backend {
		a.log.Info("this host's networks", "backend", r.Backend)
		a.last.backend = r.Backend
	}
	return a.presence.SetRecord(objects.HostReports.KeyOf(r), r)
}

// Network backends, as host.software_version has them.
const (
	openVSwitch  = "openvswitch"
	linuxBridges = "bridge"
)

// backend returns the backend of this host's networks: Open vSwitch as long as its database
// answers, or did a moment ago.
func (a *Agent) backend(s *ovs.Snapshot) string {
	if !a.returned.clean() {
		return linuxBridges
	}
	if s.Lost == nil {
		a.last.lost = time.Time{}
		return openVSwitch
	}
	if a.last.lost.IsZero() {
		a.last.lost = time.Now()
		time.AfterFunc(switchGrace, a.reportDue.Give)
	}
	if a.last.backend == openVSwitch && time.Since(a.last.lost) < switchGrace {
		return openVSwitch
	}
	return linuxBridges
}

// known are names that are configured as the host's own, whatever they look like.
func (a *Agent) known() func(device string) bool {
	pifs := map[string]bool{}
	for pif := range objects.Table("PIF").By(records.Over(a.reader()), "host", a.host) {
		if pif.Bool("physical") {
			pifs[pif.Text("device")] = true
		}
	}
	return func(device string) bool { return pifs[device] || matches(a.opts.Interfaces, device) }
}

// remember is the host's memory as it was reported, until it has changed by a sixteenth.
func (r *lastReport) remember() [2]int64 {
	all, free := memory()
	if change := free - r.memory[1]; all != r.memory[0] || max(change, -change) > all/16 {
		r.memory = [2]int64{all, free}
	}
	return r.memory
}
