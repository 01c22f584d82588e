package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"heddle/internal/hostnet"
	"heddle/internal/ovsdb"
	"heddle/internal/store/records"
	"heddle/internal/task"
	"heddle/internal/xen/objects"
	"heddle/internal/xen/ovs"
)

const (
	// switchTimeout bounds one change of Open vSwitch: less than a server waits for an order.
	switchTimeout = 5 * time.Second
	// switchGrace is the time after which a host without Open vSwitch's database counts as one
	// without Open vSwitch.
	switchGrace = 5 * time.Second
	// againAfter is the pause before what has failed is tried again.
	againAfter = time.Second
)

// mark is on all rows that the agent makes. Nothing without it is changed or deleted.
var mark = ovs.Mark{Key: "heddle-owner", Value: "host"}

func marked(externalIDs map[string]string) bool { return mark.On(externalIDs) }

// bridges makes and reports the bridges that the pool needs. Its goroutine, run, owns it.
type bridges struct {
	agent    *Agent
	datapath string            // datapath_type of bridges; "" is the kernel's
	chosen   bool              // it has been found out
	logged   map[string]string // complaints already logged, by what they are about
	reported map[string]bool   // bridges that have a report
	wanted   *wanted           // nil: to be planned anew
}

func newBridges(a *Agent) *bridges {
	return &bridges{agent: a, logged: map[string]string{}, reported: map[string]bool{}}
}

// run makes passes until ctx ends: after changes of the pool and of Open vSwitch, and after
// failures.
func (b *bridges) run(ctx context.Context) error {
	again := task.NewAlarm()
	var before *ovs.Snapshot
	for first := true; ; first = false {
		changed := b.agent.sw.Changed()
		if s := b.agent.sw.Snapshot(); before == nil || rewired(before, s) {
			b.agent.reportDue.Give()
			b.agent.ordersDue.Give() // an interface may be on another bridge now
			before, b.wanted = s, nil
		}
		if err := b.pass(ctx); err != nil && ctx.Err() == nil {
			again.Set(time.Now().Add(againAfter))
		}
		if first {
			b.agent.presence.Complete()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-b.agent.bridgesDue:
			b.wanted = nil
		case <-again.C:
		}
	}
}

// rewired reports whether a change of Open vSwitch matters to the plan and to the host's report:
// most do not, such as what becomes of an interface.
func rewired(before, now *ovs.Snapshot) bool {
	return (before.Lost == nil) != (now.Lost == nil) || len(ovsdb.Changed(before.Ports, now.Ports)) > 0 || len(ovsdb.Changed(before.Bridges, now.Bridges)) > 0
}

// pass does all that is to be done now.
func (b *bridges) pass(ctx context.Context) error {
	s, r := b.agent.sw.Snapshot(), records.Over(b.agent.reader())
	if b.wanted == nil {
		w := plan(r, b.agent.host, bridgeOf(s))
		b.wanted = &w
	}
	w := *b.wanted
	if s.Lost != nil {
		b.report(w, s, s.Lost)
		return nil // its return is a change
	}
	if s.Root == nil {
		b.complain("root", "Open vSwitch's database is empty", errEmpty)
		b.report(w, s, errEmpty)
		return nil
	}
	b.complain("root", "Open vSwitch's database is empty", nil)
	if err := b.agent.returned.clear(ctx); err != nil {
		b.complain("legs", "cannot remove legs of an earlier life of this host, will try again", err)
		return err
	}
	if err := b.choose(ctx, s); err != nil {
		return err
	}
	_, known := objects.HostReports.Peek(r, b.agent.host)
	edit := ovs.NewEdit(s, mark)
	refused := b.difference(edit, s, w, known)
	var err error
	if ops := edit.Ops(); len(ops) > 0 {
		if _, _, err = b.agent.sw.Apply(ctx, ops...); ctx.Err() != nil {
			return nil
		}
		s = b.agent.sw.Snapshot()
	}
	b.complain("apply", "Open vSwitch does not do what the pool asks for, will try again", err)
	b.report(w, s, errors.Join(err, b.raise(s)))
	return errors.Join(err, refused)
}

// errEmpty: the database is not prepared for a switch.
var errEmpty = errors.New("the database of Open vSwitch has not been set up: run ovs-vsctl init")

// choose finds out which datapath bridges are made for.
func (b *bridges) choose(ctx context.Context, s *ovs.Snapshot) error {
	if b.chosen {
		return nil
	}
	switch b.agent.opts.Datapath {
	case "netdev":
		b.datapath = "netdev"
	case "":
		types := s.Root.DatapathTypes
		lack := KernelSwitch(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if lack != nil || len(types) > 0 && !slices.Contains(types, "system") {
			b.datapath = "netdev"
			b.agent.log.Info("the kernel has no Open vSwitch: bridges are made in user space (datapath_type netdev), which is slower", "why", lack)
		}
	}
	b.chosen = true
	return nil
}

// KernelSwitch loads the kernel module of Open vSwitch's datapath, or returns why there is none.
func KernelSwitch(ctx context.Context) error {
	const module = "/sys/module/openvswitch"
	if _, err := os.Stat(module); err == nil {
		return nil
	}
	if out, err := exec.CommandContext(ctx, "modprobe", "openvswitch").CombinedOutput(); err != nil {
		return fmt.Errorf("no kernel module openvswitch: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// difference collects what is to be done. Bridges and ports that are not wanted go only once the
// pool has this host's report: what is wanted depends on it.
func (b *bridges) difference(edit *ovs.Edit, s *ovs.Snapshot, w wanted, known bool) error {
	var errs []error
	keep := map[string]bool{}
	try := func(what string, err error) {
		b.complain(what, "cannot do what the pool asks for", err)
		if err != nil && !errors.Is(err, ovs.ErrForeign) { // that is not better a second later; its end is a change
			errs = append(errs, err)
		}
	}
	for _, want := range w.bridges {
		keep[want.Name] = true
		try("bridge "+want.Name, edit.EnsureBridge(ovs.BridgeSpec{Name: want.Name, DatapathType: b.datapath, FailMode: want.FailMode, MAC: want.MAC, MTU: want.MTU,
			ExternalIDs: map[string]string{networkKey: want.NetworkUUID}, OtherConfig: want.other}))
	}
	for _, want := range w.ports {
		if s.Bridge(want.bridge) == nil && !keep[want.bridge] {
			continue // a VIF on a network that this host does not have yet
		}
		keep[want.Name] = true
		try("port "+want.Name, edit.EnsurePort(want.bridge, want.PortSpec))
	}
	if known {
		errs = append(errs, sweep(edit, s, func(name string) bool { return keep[name] }))
	}
	if l := b.agent.opts.Listen; l != nil && l.ready() {
		try("listen", l.edit(edit))
	} else {
		edit.KeepManagers()
	}
	return errors.Join(errs...)
}

// networkKey is the key of a bridge's external_ids by which controllers find a network's bridge.
const networkKey = "xs-network-uuids"

// sweep removes bridges and ports of ours that are not to be kept.
func sweep(edit *ovs.Edit, s *ovs.Snapshot, keep func(name string) bool) error {
	var errs []error
	for _, bridge := range s.Bridges {
		if marked(bridge.ExternalIDs) && !keep(bridge.Name) {
			errs = append(errs, edit.DeleteBridge(bridge.Name))
		}
	}
	for _, p := range s.Ports {
		if bridge := s.BridgeOf(p.UUID); marked(p.ExternalIDs) && !keep(p.Name) && bridge != nil && bridge.Name != p.Name {
			errs = append(errs, edit.DeletePort(p.Name))
		}
	}
	return errors.Join(errs...)
}

// raise sets the devices of our bridges and of machines' ports up. Whoever makes a machine's device
// does so too; but Open vSwitch, which takes it over in the same moment, may undo that: it writes
// back the flags that it has read.
func (b *bridges) raise(s *ovs.Snapshot) error {
	var errs []error
	for _, p := range s.Ports {
		bridge, i := s.BridgeOf(p.UUID), s.InterfaceOf(p)
		if bridge == nil || i == nil || !marked(p.ExternalIDs) || i.OfPort <= 0 || i.AdminState == "up" || i.Type != "" && i.Type != "internal" {
			continue
		}
		if err := b.agent.kernel.SetUp(i.Name, true); !errors.Is(err, hostnet.ErrNotFound) { // it is just going
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// report tells the pool of each bridge that is wanted, once there is something to tell, and of
// those that are gone no more. failed is why the last pass did not do all.
func (b *bridges) report(w wanted, s *ovs.Snapshot, failed error) {
	reported := map[string]bool{}
	for _, want := range w.bridges {
		r := &objects.BridgeReport{Host: b.agent.host, Bridge: want.Bridge, Orders: slices.Sorted(slices.Values(w.orders[want.Name]))}
		err := outcome(s, want.Name, failed)
		switch {
		case s.Lost != nil && b.reported[want.Name] && len(r.Orders) == 0:
			reported[want.Name] = true // what was there is, as far as anybody knows
			continue
		case errors.Is(err, errPending):
			if b.reported[want.Name] {
				reported[want.Name] = true
			}
			continue
		case err != nil:
			r.Error = err.Error()
		}
		reported[want.Name] = true
		if err := b.agent.presence.SetRecord(objects.BridgeReports.KeyOf(r), r); err != nil {
			b.complain("report", "cannot report", err)
		}
	}
	for name := range b.reported {
		if bridge := s.Bridge(name); !reported[name] && bridge != nil && marked(bridge.ExternalIDs) {
			reported[name] = true // not wanted, but still there
		} else if !reported[name] {
			b.agent.presence.Delete(objects.BridgeReports.KeyOf(&objects.BridgeReport{Host: b.agent.host, Bridge: objects.Bridge{Name: name}}))
		}
	}
	b.reported = reported
	b.agent.counted(w, s)
}

// errPending: the switch has not come to it yet.
var errPending = errors.New("not there yet")

// outcome returns why a desired bridge is not in place, nil if it is.
func outcome(s *ovs.Snapshot, name string, failed error) error {
	if s.Lost != nil {
		return fmt.Errorf("the database of Open vSwitch does not answer: %w", s.Lost)
	}
	bridge, i := s.Bridge(name), s.Interface(name)
	switch {
	case bridge != nil && !marked(bridge.ExternalIDs):
		return fmt.Errorf("bridge %s: this host has one that is not Heddle's: remove it, or give the network another bridge", name)
	case i != nil && (i.OfPort < 0 || i.Error != ""):
		return fmt.Errorf("bridge %s: Open vSwitch cannot make it: %s", name, i.Error)
	case bridge != nil && i != nil && i.OfPort > 0 && i.AdminState == "up":
		return nil
	case failed != nil:
		return fmt.Errorf("bridge %s: %w", name, failed)
	}
	return errPending
}

// complain logs what is wrong with something once, and once when it is over.
func (b *bridges) complain(what, text string, err error) {
	now := ""
	if err != nil {
		now = err.Error()
	}
	switch before := b.logged[what]; {
	case now == before:
		return
	case now == "":
		b.agent.log.Info("over: "+text, "what", what)
		delete(b.logged, what)
	default:
		b.agent.log.Warn(text, "what", what, "err", err)
		b.logged[what] = now
	}
}
