package agent

import (
	"strings"
	"testing"

	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// TestReport: what the agent tells of a host, and that it follows the kernel.
func TestReport(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	h.ready()
	r := h.report()
	if r.ID != h.options.HostID || r.Name != "h1" || r.Address != h.Address.String() || r.Backend != openVSwitch || r.Version != "test" || r.Memory[0] == 0 || r.Memory[1] == 0 {
		t.Errorf("report %+v", r)
	}
	if len(r.Interfaces) != 1 {
		t.Fatalf("interfaces %+v, want the leg alone", r.Interfaces)
	}
	if i := r.Interfaces[0]; i.Device != "leg" || i.Bridge != "br-phy" || i.Mode != "Static" || i.IP != "198.18.0.1" || i.Netmask != "255.255.255.0" || !i.Carrier || i.MTU != 1600 || !i.Physical {
		t.Errorf("interface %+v", i)
	}
	// Without an address the veth could be anything; it stays while a PIF is called so.
	l.write(func(tx *records.Tx) error {
		return objects.Table("PIF").Put(tx, l.object("PIF", model.Record{"device": "leg", "host": h.ref, "network": "OpaqueRef:n", "physical": true}))
	})
	h.Space.MustIP(t, "addr del 198.18.0.1/24 dev br-phy", "addr add 198.18.0.77/16 dev br-phy valid_lft 1000 preferred_lft 1000", "route add default via 198.18.0.254")
	l.until("the lease", func() bool {
		i := h.report().Interfaces[0]
		return i.Mode == "DHCP" && i.IP == "198.18.0.77" && i.Netmask == "255.255.0.0" && i.Gateway == "198.18.0.254"
	})
	h.Space.MustIP(t, "addr flush dev br-phy")
	l.until("the interface without address", func() bool {
		r := h.report()
		return len(r.Interfaces) == 1 && r.Interfaces[0].Mode == "None" && r.Interfaces[0].IP == ""
	})
	if err := h.Cut(true); err != nil {
		t.Fatal(err)
	}
	l.until("the lost carrier", func() bool { return !h.report().Interfaces[0].Carrier })
}

// TestBridge: an order makes the bridge before any object speaks of it, the plugged PIF keeps it,
// its unplugging takes it away.
func TestBridge(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	h.ready()
	n := l.network("xapi0", map[string]string{"vswitch-disable-in-band": "true"})
	order := &objects.Order{Host: h.ref, ID: "o1", Bridge: objects.Bridge{Name: "xapi0", NetworkUUID: n.UUID(), MAC: "02:00:00:00:aa:01", MTU: 1400, FailMode: "standalone"}}
	l.write(func(tx *records.Tx) error { return objects.Orders.Put(tx, order) })
	l.until("the answer", func() bool { r := h.bridgeReport("xapi0"); return r != nil && len(r.Orders) == 1 && r.Error == "" })
	b := h.bridge("xapi0")
	if b.FailMode != "standalone" || b.DatapathType != "netdev" || b.OtherConfig["hwaddr"] != "02:00:00:00:aa:01" || b.OtherConfig["disable-in-band"] != "true" || b.ExternalIDs["xs-network-uuids"] != n.UUID() {
		t.Errorf("bridge %+v", b)
	}
	link, err := h.Space.Output(t.Context(), "ip", "link", "show", "xapi0")
	if err != nil || !strings.Contains(link, "mtu 1400") || !strings.Contains(link, ",UP") || !strings.Contains(link, "02:00:00:00:aa:01") {
		t.Errorf("%v: %s", err, link)
	}
	if ports := h.sw.Snapshot().PortsOf(b); len(ports) != 1 {
		t.Errorf("%d ports: the bridge must have no way out", len(ports))
	}

	_, access := h.tunnel(n)
	l.write(func(tx *records.Tx) error { return objects.Orders.Delete(tx, h.ref+"/o1") })
	l.until("the order to be forgotten", func() bool { r := h.bridgeReport("xapi0"); return r != nil && len(r.Orders) == 0 })
	if now := h.bridge("xapi0"); now == nil || now.UUID != b.UUID {
		t.Errorf("the bridge was made anew: %+v", now)
	}
	l.change(n, model.Record{"MTU": int64(1300), "other_config": map[string]string{"vswitch-controller-fail-mode": "secure"}})
	l.until("the network's settings", func() bool {
		b, i := h.bridge("xapi0"), h.sw.Snapshot().Interface("xapi0")
		return b.FailMode == "secure" && i.MTU == 1300
	})
	// Nothing is written while nothing changes: one more change that is nobody's here.
	before := h.sw.Snapshot().Root.NextCfg
	l.network("xapi7", nil)
	marker := l.network("xapi8", nil)
	h.tunnel(marker)
	l.until("the second bridge", func() bool { return h.bridgeReport("xapi8") != nil })
	if after := h.sw.Snapshot().Root.NextCfg; after != before+1 {
		t.Errorf("%d transactions for one bridge", after-before)
	}

	l.change(access, model.Record{"currently_attached": false})
	l.until("the bridge to go", func() bool { return h.bridge("xapi0") == nil && h.bridgeReport("xapi0") == nil })
}
