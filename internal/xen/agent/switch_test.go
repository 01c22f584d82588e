package agent

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"heddle/internal/ovsdb"
	"heddle/internal/store/records"
	"heddle/internal/store/storetest"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
	"heddle/internal/xen/ovs"
)

// TestForeign: bridges and ports of others are never touched. A bridge in the way is an error until
// it is gone.
func TestForeign(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	h.vsctl("add-br", "xapi0", "--", "set", "bridge", "xapi0", "datapath_type=netdev", "external_ids:xs-network-uuids=theirs",
		"--", "add-br", "ovsbr1", "--", "set", "bridge", "ovsbr1", "datapath_type=netdev", "--", "add-port", "ovsbr1", "vif9.0", "--", "set", "interface", "vif9.0", "type=internal")
	h.ready()
	n := l.network("xapi0", nil)
	h.tunnel(n)
	l.until("the error", func() bool {
		r := h.bridgeReport("xapi0")
		return r != nil && strings.Contains(r.Error, "not Heddle's")
	})
	if b := h.bridge("xapi0"); b.ExternalIDs["xs-network-uuids"] != "theirs" || marked(b.ExternalIDs) {
		t.Errorf("their bridge is now %+v", b)
	}
	h.vsctl("del-br", "xapi0")
	l.until("the bridge", func() bool { r := h.bridgeReport("xapi0"); return r != nil && r.Error == "" })
	if s := h.sw.Snapshot(); s.Bridge("ovsbr1") == nil || s.Port("vif9.0") == nil || s.Bridge("br-phy") == nil {
		t.Error("something of others is gone")
	}
}

// TestVIFs: the ports of machines' interfaces are there before these are, on the network's bridge
// or on that of the host's own interface, and go with them.
func TestVIFs(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	h.ready()
	n, internal, physical := l.network("xapi0", nil), l.network("xapi1", nil), l.network("xenbr0", nil)
	_, access := h.tunnel(n)
	l.write(func(tx *records.Tx) error {
		return objects.Table("PIF").Put(tx, l.object("PIF", model.Record{"device": "leg", "host": h.ref, "network": physical.Ref, "physical": true, "currently_attached": true}))
	})
	vm, vif := h.vm(1, n)
	h.vm(2, internal)
	h.vm(3, physical)
	on := func(port string) string {
		s := h.sw.Snapshot()
		p := s.Port(port)
		if p == nil {
			return ""
		}
		return s.BridgeOf(p.UUID).Name
	}
	l.until("the ports", func() bool { return on("vif1.0") == "xapi0" && on("vif2.0") == "xapi1" && on("vif3.0") == "br-phy" })
	ids := h.sw.Snapshot().Interface("vif1.0").ExternalIDs
	if ids["xs-vif-uuid"] != vif.UUID() || ids["xs-network-uuid"] != n.UUID() || ids["attached-mac"] != "02:00:00:00:00:0a" || ids["xs-vm-uuid"] != vm.UUID() {
		t.Errorf("external_ids %v", ids)
	}
	h.plug("vif1.0", "a", "10.77.0.1/24")
	l.until("the device to be switched", func() bool { return h.sw.Snapshot().Interface("vif1.0").OfPort > 0 })
	for _, i := range h.report().Interfaces {
		if i.Device != "leg" {
			t.Errorf("%s is no interface of the host's own", i.Device)
		}
	}
	l.change(vif, model.Record{"network": internal.Ref})
	l.until("the interface to have moved", func() bool { return on("vif1.0") == "xapi1" })
	l.change(vif, model.Record{"currently_attached": false})
	l.until("the port to go", func() bool { return on("vif1.0") == "" })
	l.delete(access)
	l.until("the bridge to go", func() bool { return h.bridge("xapi0") == nil })
	if h.bridge("xapi1") == nil {
		t.Error("the internal network's bridge went too")
	}
}

// TestInsideHost: without a controller a tunnel network works inside each host.
func TestInsideHost(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	h.ready()
	n := l.network("xapi0", nil)
	h.tunnel(n)
	h.vm(1, n)
	h.vm(2, n)
	a, _ := h.plug("vif1.0", "a", "10.77.0.1/24"), h.plug("vif2.0", "b", "10.77.0.2/24")
	l.reaches(a, "10.77.0.2")
}

// TestVLANBridge: a VLAN's bridge carries what the interface's bridge does with that tag.
func TestVLANBridge(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	for i, h := range l.hosts {
		h.ready()
		physical := l.object("network", model.Record{"bridge": "xenbr" + h.Name})
		leg := l.object("PIF", model.Record{"device": "leg", "host": h.ref, "network": physical.Ref, "physical": true, "currently_attached": true})
		n := l.object("network", model.Record{"bridge": "xapi" + h.Name})
		untagged := l.object("PIF", model.Record{"device": "leg", "VLAN": int64(7), "host": h.ref, "network": n.Ref, "currently_attached": true})
		vlan := l.object("VLAN", model.Record{"tagged_PIF": leg.Ref, "untagged_PIF": untagged.Ref, "tag": int64(7)})
		l.write(func(tx *records.Tx) error {
			for _, o := range []*objects.Object{physical, leg, n, untagged, vlan} {
				if err := objects.Table(o.Class).Put(tx, o); err != nil {
					return err
				}
			}
			return nil
		})
		l.until("the bridge", func() bool { r := h.bridgeReport("xapi" + h.Name); return r != nil && r.Error == "" })
		h.vm(int64(i+1), n)
	}
	a, _ := l.hosts[0].plug("vif1.0", "a", "10.77.0.1/24"), l.hosts[1].plug("vif2.0", "b", "10.77.0.2/24")
	l.reaches(a, "10.77.0.2")
	if s := l.hosts[0].sw.Snapshot(); len(s.PortsOf(s.Bridge("br-phy"))) != 3 { // itself, the leg, the patch
		t.Errorf("ports of br-phy: %+v", s.PortsOf(s.Bridge("br-phy")))
	}
}

// TestListen: the database listens for controllers with the host's certificate, to those who have
// one of the authority.
func TestListen(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	dir := t.TempDir()
	authority, err := storetest.NewAuthority(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"host", "controller"} {
		if err := authority.Pair(name, h.Address.String()); err != nil {
			t.Fatal(err)
		}
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	h.options.Listen = &Listen{Address: h.Address, Certificate: file("host.crt"), Key: file("host.key"), CA: file("ca.crt")}
	h.ready()
	pem, err := os.ReadFile(file("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	pair, err := tls.LoadX509KeyPair(file("controller.crt"), file("controller.key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, known := range []bool{true, false} {
		config := &tls.Config{RootCAs: roots}
		if known {
			config.Certificates = []tls.Certificate{pair}
		}
		l.until("the database's answer", func() bool {
			client, err := ovs.Dial(t.Context(), ovsdb.Options{Address: "ssl:" + h.Address.String(), TLS: config, Dial: h.dial})
			if err == nil {
				client.Close()
			}
			return (err == nil) == known
		})
	}
	h.stop()
	h.options.Listen = nil
	if err := h.Space.Do(func() error { return Cleanup(h.options.Options) }); err != nil {
		t.Fatal(err)
	}
	if left := h.vsctl("get-manager") + h.vsctl("get-ssl"); left != "" {
		t.Errorf("after the clean-up the database listens still: %s", left)
	}
}

// TestCleanup takes away what agents have made, and nothing else.
func TestCleanup(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	h.ready()
	n := l.network("xapi0", nil)
	h.tunnel(n)
	h.vm(1, n)
	l.until("the port", func() bool { return h.sw.Snapshot().Port("vif1.0") != nil })
	if err := h.Space.Do(func() error { return Cleanup(h.options.Options) }); err == nil {
		t.Error("cleaned up under a running agent")
	}
	h.stop()
	if err := h.Space.Do(func() error { return Cleanup(h.options.Options) }); err != nil {
		t.Fatal(err)
	}
	if bridges := h.vsctl("list-br"); bridges != "br-phy" {
		t.Errorf("bridges left: %q", bridges)
	}
}

// TestMove: an order to join another pool is answered, and then the agent ends to start over; a
// token that is refused is answered too, and the host stays.
func TestMove(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	h.options.MoveTo = "good"
	h.ready()
	if can := h.report().Can; len(can) != 2 {
		t.Errorf("it can %v", can)
	}
	answer := func(id, token string) *objects.OrderReport {
		l.write(func(tx *records.Tx) error {
			return objects.Orders.Put(tx, &objects.Order{Host: h.ref, ID: id, Join: &objects.Join{Token: token}})
		})
		var r *objects.OrderReport
		l.until("the answer", func() bool { r, _ = objects.OrderReports.Peek(l.view(), h.ref+"/"+id); return r != nil })
		return r
	}
	if r := answer("o1", "bad"); !strings.Contains(r.Error, "not good") {
		t.Errorf("%+v", r)
	}
	if r := answer("o2", "good"); r.Error != "" {
		t.Errorf("%+v", r)
	}
	if err := h.cmd.Wait(); err != nil {
		t.Error(err)
	}
	h.cmd = nil
}
