package tunnel

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"heddle/internal/xen/client"
	"heddle/internal/xen/model"
	"heddle/internal/xen/star"
)

// classes lists the classes that the controller follows.
var classes = []string{"tunnel", "PIF", "network", "host", "host_metrics"}

// pool is the state of the pool in the XenAPI.
type pool struct {
	objects  client.Objects
	networks map[string]string          // ref by UUID
	uuids    map[string]string          // of networks, by ref
	tunnels  map[string]map[string]bool // refs of tunnels by network's ref
	home     map[string]string          // network's ref by tunnel's ref
	onPIF    map[string]map[string]bool // refs of tunnels by PIF's ref, as access or transport
}

func newPool() *pool {
	p := &pool{objects: client.Objects{}, networks: map[string]string{}, uuids: map[string]string{}, tunnels: map[string]map[string]bool{},
		home: map[string]string{}, onPIF: map[string]map[string]bool{}}
	for _, class := range classes {
		p.objects[class] = map[string]model.Record{}
	}
	return p
}

// apply applies events. It returns the networks concerned, by UUID, and whether hosts are.
func (p *pool) apply(events []client.Event) (networks map[string]bool, hosts bool) {
	networks = map[string]bool{}
	for _, e := range events {
		before := p.objects[e.Class][e.Ref]
		switch e.Class {
		case "tunnel":
			p.note(networks, e.Ref)
			p.unlink(e.Ref, before)
			p.keep(e)
			p.link(e.Ref, e.Record)
			p.note(networks, e.Ref)
		case "PIF":
			p.keep(e)
			for tunnel := range p.onPIF[e.Ref] {
				p.note(networks, tunnel)
				p.settle(tunnel)
				p.note(networks, tunnel)
			}
		case "network":
			p.keep(e)
			p.name(e, text(before, "uuid"), text(e.Record, "uuid"))
			networks[cmp.Or(text(e.Record, "uuid"), text(before, "uuid"))] = true
		case "host", "host_metrics":
			p.keep(e)
			hosts = true
		}
	}
	delete(networks, "")
	return networks, hosts
}

func (p *pool) keep(e client.Event) {
	if e.Operation == client.Del {
		delete(p.objects[e.Class], e.Ref)
	} else {
		p.objects[e.Class][e.Ref] = e.Record
	}
}

func (p *pool) name(e client.Event, before, after string) {
	delete(p.networks, before)
	delete(p.uuids, e.Ref)
	if after != "" {
		p.networks[after], p.uuids[e.Ref] = e.Ref, after
	}
}

// note adds a tunnel's network.
func (p *pool) note(networks map[string]bool, tunnel string) {
	networks[p.uuids[p.home[tunnel]]] = true
}

func (p *pool) link(tunnel string, r model.Record) {
	if r == nil {
		return
	}
	for _, field := range []string{"access_PIF", "transport_PIF"} {
		pif := text(r, field)
		if p.onPIF[pif] == nil {
			p.onPIF[pif] = map[string]bool{}
		}
		p.onPIF[pif][tunnel] = true
	}
	p.settle(tunnel)
}

func (p *pool) unlink(tunnel string, r model.Record) {
	for _, field := range []string{"access_PIF", "transport_PIF"} {
		remove(p.onPIF, text(r, field), tunnel)
	}
	remove(p.tunnels, p.home[tunnel], tunnel)
	delete(p.home, tunnel)
}

// settle finds a tunnel's network by its access PIF. Objects may come before those they refer to.
func (p *pool) settle(tunnel string) {
	network := text(p.objects["PIF"][text(p.objects["tunnel"][tunnel], "access_PIF")], "network")
	if old := p.home[tunnel]; old != network {
		remove(p.tunnels, old, tunnel)
	}
	p.home[tunnel] = network
	if p.tunnels[network] == nil {
		p.tunnels[network] = map[string]bool{}
	}
	p.tunnels[network][tunnel] = true
}

func remove(sets map[string]map[string]bool, key, member string) {
	delete(sets[key], member)
	if len(sets[key]) == 0 {
		delete(sets, key)
	}
}

// everything returns all objects as events, referred ones first.
func everything(all client.Objects) []client.Event {
	var events []client.Event
	for _, class := range []string{"host_metrics", "host", "network", "PIF", "tunnel"} {
		for ref, r := range all[class] {
			events = append(events, client.Event{Class: class, Operation: client.Add, Ref: ref, Record: r})
		}
	}
	return events
}

// missing returns the deletions of objects that are not among all there are.
func (p *pool) missing(all []client.Event) []client.Event {
	there := map[string]bool{}
	for _, e := range all {
		there[e.Ref] = true
	}
	var gone []client.Event
	for class, objects := range p.objects {
		for ref := range objects {
			if !there[ref] {
				gone = append(gone, client.Event{Class: class, Operation: client.Del, Ref: ref})
			}
		}
	}
	return gone
}

// hostInfo is the state of a host in the XenAPI.
type hostInfo struct {
	name, address              string
	live, enabled, openVSwitch bool
}

// hosts are all of them, by UUID.
func (p *pool) hosts() map[string]hostInfo {
	all := make(map[string]hostInfo, len(p.objects["host"]))
	for _, r := range p.objects["host"] {
		versions, _ := r["software_version"].(map[string]string)
		all[text(r, "uuid")] = hostInfo{
			name: text(r, "name_label"), address: text(r, "address"), enabled: truth(r, "enabled"),
			live:        truth(p.objects["host_metrics"][text(r, "metrics")], "live"),
			openVSwitch: versions["network_backend"] == "openvswitch",
		}
	}
	return all
}

// tunnelsOn are the networks (by UUID) that a host, by UUID, has tunnels on.
func (p *pool) tunnelsOn(host string) []string {
	var networks []string
	for tunnel, network := range p.home {
		if p.hostOf(tunnel) == host && p.uuids[network] != "" {
			networks = append(networks, p.uuids[network])
		}
	}
	return networks
}

// hostOf is the UUID of a tunnel's host.
func (p *pool) hostOf(tunnel string) string {
	access := p.objects["PIF"][text(p.objects["tunnel"][tunnel], "access_PIF")]
	return text(p.objects["host"][text(access, "host")], "uuid")
}

// tunnelled reports whether the network has any tunnel.
func (p *pool) tunnelled(network string) bool { return len(p.tunnels[p.networks[network]]) > 0 }

// network returns the state of a network in the XenAPI, with a member for each tunnel, by host, and
// the tunnels' refs in the same order. Of each member it says what the XenAPI knows of its tunnel.
func (p *pool) network(uuid string) (*star.Network, []string) {
	r := p.objects["network"][p.networks[uuid]]
	config, _ := r["other_config"].(map[string]string)
	n := &star.Network{UUID: uuid, MTU: number(r, "MTU"), AutoRevert: config["heddle:auto-revert"] == "true",
		Preferred: cmp.Or(config["heddle:preferred-center"], config["xo:sdn-controller:preferred-center"])}
	set := p.tunnels[p.networks[uuid]]
	byHost := make(map[string]string, len(set))
	for tunnel := range set {
		host := p.hostOf(tunnel)
		if other, taken := byHost[host]; host != "" && (!taken || tunnel < other) {
			byHost[host] = tunnel
		}
	}
	var refs []string
	for _, host := range slices.Sorted(maps.Keys(byHost)) {
		tunnel := byHost[host]
		t := p.objects["tunnel"][tunnel]
		transport := p.objects["PIF"][text(t, "transport_PIF")]
		n.Members = append(n.Members, star.Member{
			Host: host, Tunnel: true, Attached: truth(p.objects["PIF"][text(t, "access_PIF")], "currently_attached"),
			Address: addressOf(transport), TransportMTU: number(transport, "MTU"), Protocol: cmp.Or(text(t, "protocol"), "gre"),
		})
		refs = append(refs, tunnel)
	}
	return n, refs
}

// status is tunnel.status.
func (p *pool) status(tunnel string) map[string]string {
	m, _ := p.objects["tunnel"][tunnel]["status"].(map[string]string)
	return m
}

// addressOf is a PIF's primary address, "" without a configured one.
func addressOf(pif model.Record) string {
	if text(pif, "primary_address_type") == "IPv6" {
		addresses, _ := pif["IPv6"].([]string)
		if text(pif, "ipv6_configuration_mode") == "None" || len(addresses) == 0 {
			return ""
		}
		address, _, _ := strings.Cut(addresses[0], "/")
		return address
	}
	if text(pif, "ip_configuration_mode") == "None" {
		return ""
	}
	return text(pif, "IP")
}

func text(r model.Record, field string) string { s, _ := r[field].(string); return s }
func truth(r model.Record, field string) bool  { b, _ := r[field].(bool); return b }

// number is an integer that fits an int, 0 otherwise.
func number(r model.Record, field string) int {
	n, _ := r[field].(int64)
	if n < 0 || strconv.IntSize == 32 && n > 1<<31-1 {
		return 0
	}
	return int(n)
}
