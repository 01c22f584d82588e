package policy

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"heddle/internal/hostnet"
	"heddle/internal/netlab"
)

// TestHostEndpoint: an interface of the host itself is policed once an endpoint names it or has its
// address, fail-safe ports stay open, and the one with the lowest id counts.
func TestHostEndpoint(t *testing.T) {
	t.Parallel()
	needs(t, "nft")
	l := newLab(t)
	for _, port := range []int{22, 80, 81} {
		listen(t, l.host, port)
	}
	l.put("/calico/v1/Ready", "true", "/calico/v1/policy/profile/web/rules", `{"inbound_rules": [{"protocol": "tcp", "dst_ports": [80]}], "outbound_rules": [{}]}`)
	l.start()
	l.mustReach(l.outside, "198.51.100.1", 81)
	l.put("/calico/v1/host/h1/endpoint/b", `{"expected_ipv4_addrs": ["198.51.100.77"], "profile_ids": ["web"]}`)
	l.mustReach(l.outside, "198.51.100.1", 81)
	l.host.MustIP(t, "addr add 198.51.100.77/24 dev eth0")
	l.mustNotReach(l.outside, "198.51.100.1", 81)
	l.mustReach(l.outside, "198.51.100.1", 80)
	l.mustReach(l.outside, "198.51.100.1", 22)
	l.put("/calico/v1/host/h1/endpoint/a", `{"name": "eth0"}`)
	l.mustNotReach(l.outside, "198.51.100.1", 80)
	l.mustReach(l.outside, "198.51.100.1", 22)
	l.mustReach(l.outside, "2001:db8:1::1", 22)
	l.mustNotReach(l.outside, "2001:db8:1::1", 80)
	l.put("/calico/v1/host/h1/endpoint/a", "")
	l.mustReach(l.outside, "198.51.100.1", 80)
	l.host.MustIP(t, "addr del 198.51.100.77/24 dev eth0")
	l.mustReach(l.outside, "198.51.100.1", 81)
}

// TestFloatingAddress: traffic to a floating address reaches the workload, also its own, and a
// workload sends by its own address; a pool's traffic to the outside takes the host's address when
// the pool says so.
func TestFloatingAddress(t *testing.T) {
	t.Parallel()
	needs(t, "nft")
	l := newLab(t)
	a, b := l.machine(1), l.machine(2)
	listen(t, a.Namespace, 80)
	from := sources80(t, l.outside, 80)
	floating := strings.Replace(a.endpoint("{}", `["open"]`), `"labels"`, `"ipv4_nat": [{"int_ip": "10.65.0.1", "ext_ip": "203.0.113.1"}], "labels"`, 1)
	l.put("/calico/v1/Ready", "true", "/calico/v1/policy/profile/open/rules", open, a.key(), floating, b.key(), b.endpoint("{}", `["open"]`))
	l.start()
	l.mustReach(l.outside, "203.0.113.1", 80)
	l.mustReach(b.Namespace, "203.0.113.1", 80)
	l.mustReach(a.Namespace, "203.0.113.1", 80)
	if !hasRoute(l.text(), "203.0.113.1/32", "cali1") {
		t.Errorf("no route to the floating address:\n%s", l.text())
	}
	l.wait("a workload to be seen by its own address", func() bool { return seenAs(a.Namespace, from) == "10.65.0.1" })
	l.put("/calico/v1/ipam/v4/pool/10.65.0.0-16", `{"cidr": "10.65.0.0/16", "masquerade": true}`)
	l.wait("a workload to be seen by the host's address", func() bool { return seenAs(a.Namespace, from) == "198.51.100.1" })
	l.put("/calico/v1/ipam/v4/pool/198.51.100.0-24", `{"cidr": "198.51.100.0/24", "disabled": true}`)
	l.wait("it to be seen by its own where it goes to another pool", func() bool { return seenAs(a.Namespace, from) == "10.65.0.1" })
	l.put(a.key(), a.endpoint("{}", `["open"]`))
	l.mustNotReach(l.outside, "203.0.113.1", 80)
	l.mustReach(l.outside, a.v4, 80)
	l.wait("the route to go", func() bool { return !strings.Contains(l.text(), "203.0.113.1") })
}

// sources80 listens outside and returns the addresses of clients.
func sources80(t testing.TB, ns *netlab.Namespace, port int) <-chan string {
	t.Helper()
	var l net.Listener
	if err := ns.Do(func() (err error) {
		l, err = net.Listen("tcp", fmt.Sprintf("198.51.100.254:%d", port))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	from := make(chan string, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			from <- c.RemoteAddr().(*net.TCPAddr).IP.String()
			go func() { defer c.Close(); io.Copy(c, c) }()
		}
	}()
	return from
}

func seenAs(ns *netlab.Namespace, from <-chan string) string {
	c, err := dial(ns, "198.51.100.254", 80, short)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	return <-from
}

// TestOverlayInterface: policy leaves an interface alone, whatever its name, once it is bound to a
// port of the virtual topology.
func TestOverlayInterface(t *testing.T) {
	t.Parallel()
	needs(t, "nft")
	l := newLab(t)
	a := l.machine(1)
	l.host.MustIP(t, "addr add 169.254.1.1/32 dev cali1") // the workload's gateway, for which nobody here answers
	listen(t, a.Namespace, 80)
	l.put("/calico/v1/Ready", "true")
	l.start()
	l.host.MustIP(t, "route add 10.65.0.1/32 dev cali1")
	l.mustNotReach(l.host, a.v4, 80)
	bundle := `{"owner": {"kind": "port", "id": "p"}, "bundle": {"ports": [{"id": "p", "hostId": %q, "interfaceName": "cali1"}]}}`
	l.put("/heddle/topology/port/p", fmt.Sprintf(bundle, "host-1"))
	l.mustReach(l.host, a.v4, 80)
	l.put("/heddle/topology/port/p", fmt.Sprintf(bundle, "host-2"))
	l.mustNotReach(l.host, a.v4, 80)
}

// TestStatus: the agent reports its liveness under a lease, and whether each endpoint is up, down
// or in error.
func TestStatus(t *testing.T) {
	t.Parallel()
	needs(t, "nft")
	l := newLab(t)
	a := l.machine(1)
	status := strings.Replace(a.key(), "/calico/v1/", "/calico/felix/v1/", 1)
	hostStatus := "/calico/felix/v1/host/h1/endpoint/eth0"
	l.put("/calico/v1/Ready", "true", "/calico/v1/config/EndpointReportingEnabled", "true", "/calico/v1/config/EndpointReportingDelaySecs", "0.02",
		"/calico/v1/config/ReportingTTLSecs", "7", "/calico/v1/config/ReportingIntervalSecs", "3600",
		"/calico/v1/policy/profile/open/rules", open, a.key(), a.endpoint("{}", `["open"]`),
		"/calico/felix/v1/host/h1/workload/o/gone/endpoint/e", `{"status": "up"}`, status, `{"status": "error"}`, "/calico/felix/v1/host/h2/workload/o/w/endpoint/e", `{"status": "up"}`)
	is := func(key, want string) {
		t.Helper()
		l.wait(fmt.Sprintf("%s to be %s, is %q", key, want, l.value(key)), func() bool { return l.value(key) == want })
	}
	l.start()
	is(status, `{"status":"up"}`)
	is("/calico/felix/v1/host/h1/workload/o/gone/endpoint/e", "")
	is("/calico/felix/v1/host/h2/workload/o/w/endpoint/e", `{"status": "up"}`)
	l.wait("the agent to live", func() bool {
		return strings.Contains(l.value("/calico/felix/v1/host/h1/status"), `"first_update":true`)
	})
	kv, err := l.st.Get(t.Context(), "/calico/felix/v1/host/h1/status")
	if err != nil || kv.Lease == 0 {
		t.Errorf("the liveness is under lease %d: %v", kv.Lease, err)
	}
	if left, err := l.st.TimeLeft(t.Context(), kv.Lease); err != nil || left > 7*time.Second {
		t.Errorf("the liveness lasts %v, %v; want 7 s", left, err)
	}
	l.put("/calico/v1/config/ReportingIntervalSecs", "0.2")
	l.wait("the second word", func() bool {
		return strings.Contains(l.value("/calico/felix/v1/host/h1/last_reported_status"), `"first_update":false`)
	})
	a.MustIP(t, "link set eth0 down")
	is(status, `{"status":"down"}`)
	a.MustIP(t, "link set eth0 up")
	is(status, `{"status":"up"}`)
	l.put(a.key(), strings.Replace(a.endpoint("{}", `["open"]`), "active", "inactive", 1))
	is(status, `{"status":"down"}`)
	l.put(a.key(), `{"state": 1}`)
	is(status, `{"status":"error"}`)
	l.put(a.key(), a.endpoint("{}", `["open"]`), "/calico/v1/policy/tier/default/policy/bad", `{"selector": "all()", "order": "x"}`)
	is(status, `{"status":"error"}`)
	l.put("/calico/v1/policy/tier/default/policy/bad", "", "/calico/v1/host/h1/endpoint/eth0", `{"name": "eth0", "profile_ids": ["open"]}`)
	is(status, `{"status":"up"}`)
	is(hostStatus, `{"status":"up"}`)
	l.host.MustIP(t, "link del cali1")
	is(status, `{"status":"down"}`)
	l.put(a.key(), "", "/calico/v1/host/h1/endpoint/eth0", "")
	is(status, "")
	is(hostStatus, "")
}

// TestTunnel: pools that ask for VXLAN have their traffic between hosts tunnelled once routes lead
// there. Log, metric and status show what the kernel lacks for a pool.
func TestTunnel(t *testing.T) {
	t.Parallel()
	needs(t, "nft")
	l := newLab(t)
	other := buildHost(l, "h2", "198.51.100.2")
	a, b := l.machine(1), &machine{Namespace: l.MustNamespace(t, "w2"), lab: other, number: 2, v4: "10.65.1.2", v6: "2001:db8:65:1::2"}
	b.plug()
	listen(t, b.Namespace, 80)
	l.put("/calico/v1/Ready", "true", "/calico/v1/policy/profile/open/rules", open,
		"/calico/v1/ipam/v4/pool/10.65.0.0-16", `{"cidr": "10.65.0.0/16", "ipip": "vxlan0"}`,
		"/calico/v1/host/h1/bird_ip", "198.51.100.1", "/calico/v1/host/h2/bird_ip", "198.51.100.2",
		a.key(), a.endpoint("{}", `["open"]`), strings.Replace(b.key(), "/h1/", "/h2/", 1), b.endpoint("{}", `["open"]`))
	l.start()
	other.start()
	for _, h := range []*lab{l, other} {
		h.wait("the tunnel device", func() bool { return strings.Contains(h.text(), "link vxlan0 vxlan running mtu 1450\n") })
	}
	// What the BGP speaker would set.
	l.host.MustIP(t, "route add 10.65.1.0/24 via 198.51.100.2 dev vxlan0 onlink")
	other.host.MustIP(t, "route add 10.65.0.0/24 via 198.51.100.1 dev vxlan0 onlink")
	l.mustReach(a.Namespace, b.v4, 80)
	l.put("/calico/v1/host/h2/bird_ip", "198.51.100.3")
	l.mustNotReach(a.Namespace, b.v4, 80)
	l.put("/calico/v1/host/h2/bird_ip", "198.51.100.2")
	l.wait("the route over the device that was made again to lead there", func() bool {
		err := other.host.IP("route replace 10.65.0.0/24 via 198.51.100.1 dev vxlan0 onlink")
		return err == nil && reaches(a.Namespace, b.v4, 80)
	})

	n := hostNet(t, l)
	if _, err := n.AddLink(hostnet.LinkSpec{Name: "probe", Kind: hostnet.IPIP}); err != nil {
		l.put("/calico/v1/ipam/v4/pool/10.65.0.0-16", `{"cidr": "10.65.0.0/16", "ipip": "tunl0"}`, "/calico/v1/config/ReportingIntervalSecs", "0.1")
		l.wait("the metric to tell", func() bool { return l.metric("heddle_policy_tunnel_device") == 0 })
		if !strings.Contains(l.log.String(), "set ipip of the pools to vxlan0") {
			t.Error("the log does not say what to do")
		}
		l.wait("the status to tell", func() bool {
			return strings.Contains(l.value("/calico/felix/v1/host/h1/status"), "load the module ipip")
		})
	}
}

func hostNet(t testing.TB, l *lab) *hostnet.Linux {
	t.Helper()
	n, err := hostnet.NewLinux(l.hostNS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// buildHost adds a host to a lab, on the same wire.
func buildHost(l *lab, name, address string) *lab {
	l.t.Helper()
	h := &lab{Lab: l.Lab, t: l.t, st: l.st, host: l.MustNamespace(l.t, name), outside: l.outside}
	l.MustVeth(l.t, h.host, "eth0", l.outside, name)
	// Those outside are a switch from now on.
	l.outside.MustIP(l.t, "link add br0 type bridge", "link set br0 up", "link set "+name+" master br0", "addr del 198.51.100.254/24 dev eth0",
		"link set eth0 master br0", "addr add 198.51.100.254/24 dev br0", "route replace 10.65.0.0/16 via 198.51.100.1")
	h.host.MustIP(l.t, "addr add "+address+"/24 dev eth0", "route add default via 198.51.100.254")
	var err error
	if h.hostNS, err = hostnet.OpenNamespace(h.host.Name); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { h.hostNS.Close() })
	h.options = Options{Host: name, HostID: "host-" + name, Store: l.st, Namespace: h.hostNS}
	l.t.Cleanup(func() {
		if h.stop != nil {
			h.stop()
		}
	})
	return h
}
