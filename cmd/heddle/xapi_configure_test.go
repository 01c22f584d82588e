package main

import (
	"context"
	"strings"
	"testing"

	"heddle/internal/netlab"
)

// TestConfigurePIF: people configure a machine's interface by xe alone, put a tunnel on it, unplug
// and unconfigure it.
func TestConfigurePIF(t *testing.T) {
	t.Parallel()
	p := startPool(t, 1)
	host := p.lab.Hosts()[0]
	host.Space.MustIP(t, "link add spare type veth peer name spare2", "link set spare2 up")
	p.agents[0].stop(t)
	start(t, host.Space, p.agent(0, "--xen-interface", "spare")...)
	network := p.xe("network-create", "name-label=private")
	bridge := p.xe("network-param-get", "uuid="+network, "param-name=bridge")
	pif := ""
	p.until("the interface to be a PIF", func() bool {
		pif = p.xe("pif-list", "device=spare", "params=uuid", "--minimal")
		return pif != ""
	})
	param := func(name string) string { return p.xe("pif-param-get", "uuid="+pif, "param-name="+name) }
	if mode := param("IP-configuration-mode"); mode != "None" {
		t.Fatalf("the interface begins with mode %s", mode)
	}
	refuse(t, p.lab.Fabric, 1, "TRANSPORT_PIF_NOT_CONFIGURED", p.xeArgs("tunnel-create", "pif-uuid="+pif, "network-uuid="+network)...)

	p.xe("pif-reconfigure-ip", "uuid="+pif, "mode=static", "IP=192.0.2.5", "netmask=255.255.255.0")
	if got := addresses(t, host.Space, "spare"); !strings.Contains(got, "192.0.2.5/24") {
		t.Errorf("the interface has %s", got)
	}
	if param("IP") != "192.0.2.5" || param("IP-configuration-mode") != "Static" {
		t.Errorf("the PIF has %s, mode %s", param("IP"), param("IP-configuration-mode"))
	}
	p.xe("tunnel-create", "pif-uuid="+pif, "network-uuid="+network)
	if out, err := host.Vsctl("list-br"); err != nil || !strings.Contains(out, bridge) {
		t.Errorf("bridges %s, %v; want %s", out, err, bridge)
	}

	p.xe("pif-unplug", "uuid="+pif)
	if out, err := host.Vsctl("list-br"); err != nil || strings.Contains(out, bridge) {
		t.Errorf("bridges %s, %v after the transport was unplugged", out, err)
	}
	if got := addresses(t, host.Space, "spare"); !strings.Contains(got, "192.0.2.5/24") || param("currently-attached") != "false" {
		t.Errorf("unplugging took the interface's address: %s", got)
	}
	p.xe("pif-reconfigure-ip", "uuid="+pif, "mode=none")
	if got := addresses(t, host.Space, "spare"); strings.Contains(got, "192.0.2.5") || param("IP") != "" {
		t.Errorf("without configuration the interface has %s, the PIF %s", got, param("IP"))
	}
}

// TestVLANAsTransport: a VLAN that the pool makes on a machine gets an address and carries a
// tunnel; when the tunnel and the VLAN are destroyed nothing is left of them.
func TestVLANAsTransport(t *testing.T) {
	t.Parallel()
	p := startPool(t, 1)
	host := p.lab.Hosts()[0]
	tagged := p.xe("network-create", "name-label=tagged")
	bridge := p.xe("network-param-get", "uuid="+tagged, "param-name=bridge")
	pif := p.xe("vlan-create", "pif-uuid="+p.transport(host), "vlan=9", "network-uuid="+tagged)
	p.xe("pif-reconfigure-ip", "uuid="+pif, "mode=static", "IP=192.0.2.5", "netmask=255.255.255.0")
	if got := addresses(t, host.Space, bridge); !strings.Contains(got, "192.0.2.5/24") {
		t.Errorf("the VLAN's bridge has %s", got)
	}
	access := p.xe("tunnel-create", "pif-uuid="+pif, "network-uuid="+p.xe("network-create", "name-label=private"))
	if got := p.xe("tunnel-list", "access-PIF="+access, "params=transport-PIF", "--minimal"); got != pif {
		t.Errorf("the tunnel's transport is %s, want %s", got, pif)
	}
	refuse(t, p.lab.Fabric, 1, "PIF_TUNNEL_STILL_EXISTS", p.xeArgs("vlan-destroy", "uuid="+pif)...)
	p.xe("tunnel-destroy", "uuid="+p.xe("tunnel-list", "access-PIF="+access, "params=uuid", "--minimal"))
	p.xe("vlan-destroy", "uuid="+pif)
	if out, err := host.Vsctl("list-br"); err != nil || strings.TrimSpace(out) != "br-phy" {
		t.Errorf("bridges %s, %v", out, err)
	}
}

// addresses are those of an interface.
func addresses(t *testing.T, ns *netlab.Namespace, device string) string {
	t.Helper()
	out, err := ns.Output(context.Background(), "ip", "-4", "-o", "addr", "show", "dev", device)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
