package objects_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// opened is a store in memory that holds a pool.
func opened(t *testing.T) *records.DB {
	t.Helper()
	st := store.NewMemory()
	rep := replica.New(st, replica.Options{}, objects.Tables()...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- rep.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		st.Close()
	})
	<-rep.Ready()
	return records.NewDB(st, rep)
}

// object is one whose ref and uuid are its name.
func object(class, name string, fields model.Record) *objects.Object {
	o := &objects.Object{Class: class, Ref: "OpaqueRef:" + name, Fields: model.New(class)}
	o.Fields["uuid"] = name
	for f, v := range fields {
		if s, ok := v.(string); ok && strings.HasPrefix(s, "@") {
			v = "OpaqueRef:" + s[1:]
		}
		o.Fields[f] = v
	}
	return o
}

// TestWanted: which bridges each thing in a pool asks of a host, and what they are like.
func TestWanted(t *testing.T) {
	t.Parallel()
	secure := map[string]string{"vswitch-controller-fail-mode": "secure"}
	base := []*objects.Object{
		object("pool", "pool", nil),
		object("network", "phys", model.Record{"bridge": "br-phy"}),
		object("network", "priv", model.Record{"bridge": "xapi0", "MTU": int64(1400)}),
		object("PIF", "eth0", model.Record{"host": "@h", "network": "@phys", "device": "eth0", "currently_attached": true}),
	}
	access := func(attached bool, config map[string]string) []*objects.Object {
		pif := object("PIF", "tunnel0", model.Record{"host": "@h", "network": "@priv", "device": "tunnel0", "MAC": "02:00:00:00:00:01", "currently_attached": attached})
		if config != nil {
			pif.Fields["other_config"] = config
		}
		return []*objects.Object{pif, object("tunnel", "t", model.Record{"access_PIF": "@tunnel0", "transport_PIF": "@eth0"})}
	}
	vlan := []*objects.Object{
		object("PIF", "eth0.5", model.Record{"host": "@h", "network": "@priv", "device": "eth0", "VLAN": int64(5), "currently_attached": true}),
		object("VLAN", "v", model.Record{"tagged_PIF": "@eth0", "untagged_PIF": "@eth0.5", "tag": int64(5)}),
	}
	vif := func(attached bool) []*objects.Object {
		return []*objects.Object{object("VM", "vm", model.Record{"resident_on": "@h"}), object("VIF", "vif", model.Record{"VM": "@vm", "network": "@priv", "device": "0", "currently_attached": attached})}
	}
	plain := "xapi0 priv 02:00:00:00:00:01 1400 standalone"
	for _, c := range []struct {
		name    string
		objects []*objects.Object
		report  *objects.HostReport
		order   *objects.Order
		want    string
	}{
		{name: "a host's own interface", want: ""},
		{name: "attached access PIF", objects: access(true, nil), want: plain},
		{name: "detached access PIF", objects: access(false, nil), want: ""},
		{name: "the PIF says secure", objects: access(true, secure), want: "xapi0 priv 02:00:00:00:00:01 1400 secure"},
		{name: "nonsense is no fail mode", objects: access(true, map[string]string{"vswitch-controller-fail-mode": "x"}), want: plain},
		{name: "attached VIF on an internal network", objects: vif(true), want: "xapi0 priv  1400 standalone"},
		{name: "detached VIF", objects: vif(false), want: ""},
		{name: "attached VIF on a tunnel network", objects: append(vif(true), access(true, nil)...), want: plain},
		{name: "attached VIF where the PIF is detached", objects: append(vif(true), access(false, nil)...), want: ""},
		{name: "VLAN of a host that cannot", objects: vlan, report: &objects.HostReport{}, want: ""},
		{name: "VLAN", objects: vlan, report: &objects.HostReport{Can: []string{objects.CanVLAN}}, want: "xapi0 priv  1400 standalone br-phy/5"},
		{name: "VLAN that the host has itself", objects: vlan, report: &objects.HostReport{Can: []string{objects.CanVLAN}, Interfaces: []objects.Interface{{Device: "eth0", VLAN: 5}}}, want: ""},
		{name: "order", order: &objects.Order{ID: "1", Bridge: objects.Bridge{Name: "xapi9", NetworkUUID: "n"}}, want: "xapi9 n  0  [1]"},
		{name: "order for a bridge that is wanted anyway", objects: access(true, nil), order: &objects.Order{ID: "1", Bridge: objects.Bridge{Name: "xapi0", MAC: "02:00:00:00:00:02"}}, want: plain + " [1]"},
		{name: "order for an address", order: &objects.Order{ID: "1", Address: &objects.Address{Device: "eth0"}}, want: ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := opened(t)
			if _, err := db.Update(t.Context(), func(tx *records.Tx) error {
				if c.report != nil {
					c.report.Host = "OpaqueRef:h"
					if err := objects.HostReports.Put(tx, c.report); err != nil {
						return err
					}
				}
				if c.order != nil {
					c.order.Host = "OpaqueRef:h"
					if err := objects.Orders.Put(tx, c.order); err != nil {
						return err
					}
				}
				for _, o := range append(append([]*objects.Object{}, base...), c.objects...) {
					if err := objects.Table(o.Class).Put(tx, o); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			snap, err := db.View(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := text(objects.Wanted(snap, "OpaqueRef:h")); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			if got := text(objects.Wanted(snap, "OpaqueRef:other")); got != "" {
				t.Errorf("another host is to have %q", got)
			}
		})
	}
}

// text is one line a bridge.
func text(bridges []objects.Bridge, orders map[string][]string) string {
	var lines []string
	for _, b := range bridges {
		line := fmt.Sprintf("%s %s %s %d %s", b.Name, b.NetworkUUID, b.MAC, b.MTU, b.FailMode)
		if b.Parent != "" {
			line += fmt.Sprintf(" %s/%d", b.Parent, b.Tag)
		}
		if ids := orders[b.Name]; ids != nil {
			line += fmt.Sprint(" ", ids)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}
