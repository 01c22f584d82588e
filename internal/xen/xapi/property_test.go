package xapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// play makes calls of one server without a wire between.
type play struct {
	t *rapid.T
	s *Simulation
	p *poolOfFile
}

// do makes a call; false: it was refused. That must be for a reason of the model's.
func (p play) do(name string, args ...any) (any, bool) {
	call := model.Calls()[name]
	named := map[string]any{}
	for i, param := range call.Params {
		named[param.Name] = param.Default
		if i < len(args) {
			named[param.Name] = args[i]
		}
	}
	v, err := called(p.p.server, name, named)
	failure := (*model.Error)(nil)
	if err != nil && (!errors.As(err, &failure) || failure.Code == "INTERNAL_ERROR" || failure.Code == "NOT_IMPLEMENTED" || model.LookupError(failure.Code) == nil) {
		p.t.Fatalf("%s %v: %v", name, args, err)
	}
	return v, err == nil
}

func (p play) refs(class string) []string {
	var all []string
	for o := range objects.Table(class).All(p.p.server.now()) {
		all = append(all, o.Ref)
	}
	return all
}

// any is one of a class; one that is not there when there is none, and now and then.
func (p play) any(class string) string {
	return rapid.SampledFrom(append(p.refs(class), "OpaqueRef:gone")).Draw(p.t, class)
}

// TestPoolProperties: whatever is asked of a pool in whatever order, its objects fit each other,
// and when all that was made is destroyed nothing is left.
func TestPoolProperties(t *testing.T) {
	t.Parallel()
	s, _ := simulated(t, strings.Replace(twoPools, "  vms: [{name: busy, host: h1, power_state: Running}, {name: idle}]\n", "", 1), "secret", "other")
	p := s.pools[0]
	before := population(p.server.now())
	rapid.Check(t, func(rt *rapid.T) {
		one := play{rt, s, p}
		for n := rapid.IntRange(1, 25).Draw(rt, "calls"); n > 0; n-- {
			one.step()
			fits(rt, p.server.now())
		}
		one.clear()
		if diff := cmp.Diff(before, population(p.server.now())); diff != "" {
			rt.Fatalf("when all is destroyed: %s", diff)
		}
	})
	var tables []records.Target
	for _, c := range model.Classes() {
		if table := objects.Table(c.Name); table != nil {
			tables = append(tables, table)
		}
	}
	if err := records.Verify(t.Context(), p.server.opts.Store, tables...); err != nil {
		t.Error(err)
	}
}

// step makes a call that may change something.
func (p play) step() {
	ref := func(class string) string { return p.any(class) }
	switch rapid.IntRange(0, 22).Draw(p.t, "call") {
	case 0, 1, 2:
		p.do("tunnel.create", ref("PIF"), ref("network"))
	case 3:
		p.do("tunnel.destroy", ref("tunnel"))
	case 4:
		p.do("PIF.plug", ref("PIF"))
	case 5, 6:
		p.do("PIF.unplug", ref("PIF"))
	case 7:
		p.do("VLAN.create", ref("PIF"), rapid.Int64Range(-1, 3).Draw(p.t, "tag"), ref("network"))
	case 8:
		p.do("VLAN.destroy", ref("VLAN"))
	case 9:
		p.do("Bond.create", ref("network"), []string{ref("PIF"), ref("PIF")}, "")
	case 10:
		p.do("Bond.destroy", ref("Bond"))
	case 11, 12:
		p.do("network.create", model.Record{"name_label": "made"})
	case 13:
		p.do("network.destroy", ref("network"))
	case 14:
		p.do("VM.create", model.Record{"name_label": "made"})
	case 15, 16:
		p.do("VIF.create", model.Record{"device": rapid.SampledFrom([]string{"0", "1"}).Draw(p.t, "device"), "network": ref("network"), "VM": ref("VM")})
	case 17:
		p.do("VM.start", ref("VM"), false, false)
	case 18:
		p.do(rapid.SampledFrom([]string{"VM.hard_shutdown", "VM.destroy"}).Draw(p.t, "end"), ref("VM"))
	case 19:
		p.do(rapid.SampledFrom([]string{"VIF.plug", "VIF.unplug", "VIF.destroy"}).Draw(p.t, "VIF's"), ref("VIF"))
	case 20:
		p.do("VIF.move", ref("VIF"), ref("network"))
	case 21:
		p.do("PIF.reconfigure_ip", ref("PIF"), rapid.SampledFrom([]string{"None", "DHCP"}).Draw(p.t, "mode"), "", "", "", "")
	case 22:
		p.do("host.sync_tunnels", ref("host"))
	}
}

// clear destroys what was made.
func (p play) clear() {
	for _, vm := range p.refs("VM") {
		p.do("VM.hard_shutdown", vm)
		p.do("VM.destroy", vm)
	}
	for _, class := range []string{"VIF", "tunnel", "VLAN", "Bond"} {
		for _, ref := range p.refs(class) {
			p.do(class+".destroy", ref)
		}
	}
	for _, n := range p.refs("network") {
		if o, _ := objects.Table("network").Peek(p.p.server.now(), n); o.Text("name_label") == "made" {
			p.do("network.destroy", n)
		}
	}
}

// population are the objects by class.
func population(r records.Reader) map[string][]string {
	all := map[string][]string{}
	for _, c := range model.Classes() {
		if objects.Table(c.Name) != nil {
			for o := range objects.Table(c.Name).All(r) {
				all[c.Name] = append(all[c.Name], o.Ref)
			}
		}
	}
	return all
}

// fataler is a test, or a run of one.
type fataler interface {
	Fatalf(format string, args ...any)
}

// fits fails if objects of a pool contradict each other.
func fits(t fataler, r records.Reader) {
	places := map[string]string{}
	for _, c := range model.Classes() {
		table := objects.Table(c.Name)
		if table == nil {
			continue
		}
		for o := range table.All(r) {
			dangling(t, r, c, o)
		}
	}
	for pif := range objects.Table("PIF").All(r) {
		for _, place := range []string{pif.Text("host") + pif.Text("network"), pif.Text("host") + deviceOf(pif)} {
			if places[place] != "" {
				t.Fatalf("PIFs %s and %s in one place", pif.Ref, places[place])
			}
			places[place] = pif.Ref
		}
	}
	for tunnel := range objects.Table("tunnel").All(r) {
		access, transport := need(t, r, "PIF", tunnel.Text("access_PIF")), need(t, r, "PIF", tunnel.Text("transport_PIF"))
		switch {
		case access.Text("host") != transport.Text("host"):
			t.Fatalf("tunnel %s is between hosts", tunnel.Ref)
		case isSlave(transport), tunnelOf(r, transport.Ref) != nil:
			t.Fatalf("tunnel %s is on a PIF that cannot carry it", tunnel.Ref)
		case access.Bool("currently_attached") && !transport.Bool("currently_attached"):
			t.Fatalf("tunnel %s is plugged, and its transport is not", tunnel.Ref)
		case !strings.HasPrefix(access.Text("device"), "tunnel"), len(by(r, "tunnel", "access_PIF", access.Ref)) != 1:
			t.Fatalf("tunnel %s has the access PIF %s", tunnel.Ref, access.Text("device"))
		}
	}
	for vif := range objects.Table("VIF").All(r) {
		vm := need(t, r, "VM", vif.Text("VM"))
		if !vif.Bool("currently_attached") {
			continue
		}
		if null(vm.Text("resident_on")) {
			t.Fatalf("VIF %s is attached to a VM that is nowhere", vif.Ref)
		}
		if pif := on(r, vm.Text("resident_on"), vif.Text("network")); pif != nil && !pif.Bool("currently_attached") {
			t.Fatalf("VIF %s is attached to a network whose PIF is not", vif.Ref)
		}
	}
}

func need(t fataler, r records.Reader, class, ref string) *objects.Object {
	o, ok := objects.Table(class).Peek(r, ref)
	if !ok {
		t.Fatalf("%s %s is not there", class, ref)
	}
	return o
}

// dangling finds references to what is not there.
func dangling(t fataler, r records.Reader, c *model.Class, o *objects.Object) {
	for _, f := range c.Fields {
		if f.Far != nil || f.Type.Kind != model.Ref || objects.Table(f.Type.Class) == nil || null(o.Text(f.Name)) {
			continue
		}
		if _, ok := objects.Table(f.Type.Class).Peek(r, o.Text(f.Name)); !ok {
			t.Fatalf("%s %s: %s is %s, which is not there", c.Name, o.Ref, f.Name, o.Text(f.Name))
		}
	}
}

// TestStorm: calls at the same time, at two servers of a pool, leave it in one piece.
func TestStorm(t *testing.T) {
	t.Parallel()
	s, users := simulated(t, twoPools, "secret", "other")
	u, p := users[0], s.pools[0]
	second := started(t, Options{Store: p.server.opts.Store})
	other := &poolOfFile{file: p.file, server: second}
	var networks []string
	for n := range 4 {
		networks = append(networks, u.network(fmt.Sprint("n", n)))
	}
	hosts := []string{u.pif("h1", "eth1"), u.pif("h2", "eth1")}
	done := make(chan error, 8)
	for n := range 8 {
		at := []*poolOfFile{p, other}[n%2]
		go func() { done <- storm(at, hosts[n/2%2], networks) }()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	fits(t, p.server.now())
	for _, r := range u.records("tunnel") {
		if u.get("PIF", r["access_PIF"].(string), "currently_attached") != true {
			t.Error("a tunnel is there, but not plugged")
		}
	}
	if got := len(slices.Collect(maps.Keys(u.records("tunnel")))); got > 8 {
		t.Errorf("%d tunnels of two hosts on four networks", got)
	}
}

// TestManyAtOnce: a hundred networks with a tunnel each are made at once on one host.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	s, users := simulated(t, twoPools, "secret", "other")
	transport := users[0].pif("h1", "eth1")
	each(t, 100, func(int) error {
		network, err := called(s.pools[0].server, "network.create", map[string]any{"args": model.Record{}})
		if err == nil {
			_, err = called(s.pools[0].server, "tunnel.create", map[string]any{"transport_PIF": transport, "network": network, "protocol": "gre"})
		}
		return err
	})
	devices := map[any]bool{}
	for _, r := range users[0].records("tunnel") {
		devices[users[0].get("PIF", r["access_PIF"].(string), "device")] = true
	}
	if len(devices) != 100 || !devices["tunnel99"] {
		t.Errorf("%d devices, want tunnel0 to tunnel99", len(devices))
	}
}

// TestVMsAtOnce: no two VMs of a host have the same number, whoever starts them when.
func TestVMsAtOnce(t *testing.T) {
	t.Parallel()
	s, users := simulated(t, twoPools, "secret", "other")
	h1 := users[0].named("host", "h1")
	each(t, 30, func(int) error {
		vm, err := called(s.pools[0].server, "VM.create", map[string]any{"args": model.Record{}})
		if err == nil {
			_, err = called(s.pools[0].server, "VM.start_on", map[string]any{"vm": vm, "host": h1, "start_paused": false, "force": false})
		}
		return err
	})
	numbers := map[any]bool{}
	for _, vm := range users[0].records("VM") {
		numbers[vm["domid"]] = true
	}
	if want := 30 + 1 + 1; len(numbers) != want { // and that of the file which runs, and -1
		t.Errorf("%d numbers, want %d", len(numbers), want)
	}
}

// storm makes and destroys tunnels of a host.
func storm(p *poolOfFile, transport string, networks []string) error {
	for n := range 12 {
		made, err := called(p.server, "tunnel.create", map[string]any{"transport_PIF": transport, "network": networks[n%4], "protocol": "gre"})
		if refused := (*model.Error)(nil); errors.As(err, &refused) && refused.Code == "NETWORK_ALREADY_CONNECTED" {
			continue
		} else if err != nil {
			return err
		}
		if n%3 == 0 {
			continue
		}
		if _, err := called(p.server, "tunnel.destroy", map[string]any{"self": made}); err != nil {
			return err
		}
	}
	return nil
}

// called makes a call of a server without a session.
func called(s *Server, name string, args map[string]any) (any, error) {
	c := &call{Call: model.Calls()[name], ctx: context.Background(), server: s, args: args}
	return c.run()
}
