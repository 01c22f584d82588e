// Package connectivity tests whether workloads on several hosts reach what they should: it makes
// temporary workloads on a temporary network, over the APIs that any administrator's program has,
// and has the hosts' agents probe from them.
package connectivity

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"

	"heddle/internal/cloud"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

const (
	// name and description are those of all objects of a test, by which leftovers are found.
	name        = "heddle-connectivity"
	description = "Temporary, of `heddle connectivity`, which removes it"
	// addressRange and addressRange6 are those of the temporary subnets: set aside for tests (RFC
	// 2544, RFC 5180).
	addressRange  = "198.18.0.0/24"
	addressRange6 = "2001:2::/64"
)

// MostHosts bounds the hosts of a test.
const MostHosts = 16

// Host is a host to put a workload on.
type Host struct {
	Name     string     `json:"name"`
	Alive    bool       `json:"alive"`
	TunnelIP netip.Addr `json:"tunnel_ip"`
	Roles    []string   `json:"roles"`
}

// Overlay reports whether the host has virtual networks.
func (h Host) Overlay() bool { return slices.Contains(h.Roles, "overlay") }

// Test is a test of connectivity whose network and ports exist.
type Test struct {
	session *cloud.Session
	api     *cloud.Neutron
	network string // id; "" = there is none
	group   string // likewise: the security group
	ends    []*end
}

// end is a workload of a test.
type end struct {
	host     Host
	port     string // id
	mac      packet.MAC
	address  netip.Addr
	address6 netip.Addr
	targets  []*end         // that it tries to reach
	hasIPv6  bool           // the workload has address6
	received map[string]int // UDP datagrams by the sender's address; nil: unknown
	down     bool           // nothing can be tried from or to it
}

// Prepare makes the network and the ports of a test on hosts: one on each, two if it is one host.
// What it has made is removed by [Test.Remove], also after an error.
func Prepare(ctx context.Context, s *cloud.Session, hosts []Host) (t *Test, err error) {
	t = &Test{session: s}
	if t.api, err = s.Neutron(); err != nil {
		return t, err
	}
	if len(hosts) == 1 {
		hosts = append(hosts, hosts[0])
	}
	made, err := t.api.Create(ctx, cloud.Network, map[string]any{"name": name, "description": description})
	if err != nil {
		return t, err
	}
	t.network = made.ID()
	for _, subnet := range []struct {
		version int
		cidr    string
	}{{4, addressRange}, {6, addressRange6}} {
		if _, err := t.api.Create(ctx, cloud.Subnet,
			map[string]any{"network_id": t.network, "ip_version": subnet.version, "cidr": subnet.cidr, "gateway_ip": nil, "name": name}); err != nil {
			return t, err
		}
	}
	if err := t.createGroup(ctx); err != nil {
		return t, err
	}
	for _, h := range hosts {
		e, err := t.createEnd(ctx, h)
		if err != nil {
			return t, err
		}
		t.ends = append(t.ends, e)
	}
	t.pair()
	return t, nil
}

// createGroup makes the security group, with no other rules than the test's.
func (t *Test) createGroup(ctx context.Context) error {
	made, err := t.api.Create(ctx, cloud.SecurityGroup, map[string]any{"name": name, "description": description})
	if err != nil {
		return err
	}
	t.group = made.ID()
	var rules []cloud.Object
	if err := t.api.List(ctx, cloud.SecurityGroupRule, url.Values{"security_group_id": {t.group}, "fields": {"id"}}, &rules); err != nil {
		return err
	}
	for _, r := range rules {
		if err := t.api.Delete(ctx, cloud.SecurityGroupRule, r.ID()); err != nil {
			return err
		}
	}
	const port = topology.WorkloadOpenPort
	for ethertype, icmp := range map[string]string{"IPv4": "icmp", "IPv6": "ipv6-icmp"} {
		for _, rule := range []map[string]any{
			{"direction": "egress"},
			{"direction": "ingress", "protocol": icmp},
			{"direction": "ingress", "protocol": "tcp", "port_range_min": port, "port_range_max": port},
			{"direction": "ingress", "protocol": "udp", "port_range_min": port, "port_range_max": port},
		} {
			rule["security_group_id"], rule["ethertype"] = t.group, ethertype
			if _, err := t.api.Create(ctx, cloud.SecurityGroupRule, rule); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *Test) createEnd(ctx context.Context, h Host) (*end, error) {
	made, err := t.api.Create(ctx, cloud.Port, map[string]any{"network_id": t.network, "name": name, "device_owner": topology.WorkloadOwner,
		"security_groups": []string{t.group}, "binding:host_id": h.Name})
	if err != nil {
		return nil, err
	}
	var port struct {
		MAC      packet.MAC `json:"mac_address"`
		FixedIPs []struct {
			Address netip.Addr `json:"ip_address"`
		} `json:"fixed_ips"`
	}
	if err := t.api.Get(ctx, cloud.Port, made.ID(), &port, "mac_address", "fixed_ips"); err != nil {
		return nil, err
	}
	e := &end{host: h, port: made.ID(), mac: port.MAC, down: !h.Alive}
	for _, f := range port.FixedIPs {
		if f.Address.Is4() {
			e.address = f.Address
		} else {
			e.address6 = f.Address
		}
	}
	if len(port.FixedIPs) != 2 || !e.address.IsValid() || !e.address6.IsValid() {
		return nil, fmt.Errorf("port %s has the addresses %v, want one of each version of IP", made.ID(), port.FixedIPs)
	}
	return e, nil
}

// pair has each workload and the next one try to reach each other, in a ring.
func (t *Test) pair() {
	for i, e := range t.ends {
		next := t.ends[(i+1)%len(t.ends)]
		if !slices.Contains(e.targets, next) {
			e.targets = append(e.targets, next)
		}
		if !slices.Contains(next.targets, e) {
			next.targets = append(next.targets, e)
		}
	}
}

// work is a request to the agent of a port's host, as the operators' API has it.
type work struct {
	Port   string           `json:"port"`
	Remove bool             `json:"remove,omitempty"`
	Probes []topology.Probe `json:"probes,omitempty"`
}

// ask has the agent of a port's host do work.
func ask(ctx context.Context, s *cloud.Session, w work) (*flow.WorkloadAnswer, error) {
	var answer flow.WorkloadAnswer
	if err := s.Operator(ctx, http.MethodPost, "/v1/workloads", w, &answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, errors.New(answer.Error)
	}
	if len(answer.Results) != len(w.Probes) {
		return nil, fmt.Errorf("%d results of %d probes", len(answer.Results), len(w.Probes))
	}
	return &answer, nil
}
