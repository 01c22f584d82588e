package control

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"heddle/internal/neutron"
	"heddle/internal/sealing"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/store/snapshot"
	"heddle/internal/task"
	"heddle/internal/topology"
)

// Instances gives each host what its metadata service answers the machines behind its ports, and
// takes it away from hosts that a port has left. It is a task.
//
//	replica ──something that an instance is made of changed──▶ marks ports ──▶ Run ──▶ store
//
// Like [Bindings] it compares states, so every server may run one.
type Instances struct {
	task.Part
	service *Service
	objects *replica.Replica
	log     *slog.Logger
	marked  *marks[struct{}] // ids of ports
}

// instancesAtOnce bounds the ports of one transaction: an instance with user data has up to 90 KB.
const instancesAtOnce = 16

// mostLinks bounds the interfaces of an instance.
const mostLinks = 32

// NewInstances returns the task, which follows the service's replica from when that runs.
func NewInstances(s *Service, r *replica.Replica, log *slog.Logger) *Instances {
	t := &Instances{Part: task.NewPart("instances"), service: s, objects: r, log: log, marked: newMarks[struct{}]()}
	r.OnChange(t.notice)
	return t
}

// notice marks the ports whose instances a change may concern.
func (t *Instances) notice(u snapshot.Update) {
	r, ids := records.Over(u.Next), map[string]struct{}{}
	for _, c := range u.Changed {
		for _, record := range []any{c.Old, c.New} {
			markInstances(ids, r, record)
		}
	}
	if len(ids) > 0 {
		t.marked.addAll(ids)
	}
}

// markInstances adds the ports to whose instances a record contributes.
func markInstances(ids map[string]struct{}, r records.Reader, record any) {
	add := func(index, value string) {
		for p := range schema.Ports.By(r, index, value) {
			ids[p.ID] = struct{}{}
		}
	}
	switch x := record.(type) {
	case *neutron.Port:
		ids[x.ID] = struct{}{}
		if x.DeviceID != "" {
			add("device_id", x.DeviceID)
		}
	case *neutron.Subnet:
		add("subnet", x.ID)
	case *neutron.Network:
		add("network", x.ID)
	case *neutron.SecurityGroup:
		add("security_group", x.ID)
	case *neutron.FloatingIP:
		ids[x.PortID] = struct{}{}
	case *schema.PortMetadata:
		if p, ok := schema.Ports.Peek(r, x.PortID); ok {
			markInstances(ids, r, p)
		}
	case *topology.MetadataKey:
		add("bound_host", x.HostID)
	case *topology.HostUnderlay:
		add("bound_host", x.HostID)
	case *topology.Instance:
		ids[x.PortID] = struct{}{}
	}
}

// Run writes what is marked until ctx ends.
func (t *Instances) Run(ctx context.Context) error {
	t.BeReady()
	t.marked.follow(ctx, t.log, "cannot give hosts the metadata of ports", t.pass)
	return nil
}

// pass writes the instances of marked ports and returns the last error. Ports that failed stay
// marked.
func (t *Instances) pass(ctx context.Context) error {
	r := records.Over(t.objects.Snapshot())
	var differ []string
	for _, id := range slices.Sorted(maps.Keys(t.marked.take())) {
		if t.service.instancesDiffer(r, id) {
			differ = append(differ, id)
		}
	}
	var last error
	for part := range slices.Chunk(differ, instancesAtOnce) {
		if err := t.service.putInstances(ctx, part); err != nil {
			last = err
			for _, id := range part {
				t.marked.keep(id, struct{}{})
			}
		}
	}
	return last
}

// instancesDiffer reports whether a port's instances in the store are not as they should be.
func (s *Service) instancesDiffer(r records.Reader, port string) bool {
	desired := s.instances(r, port)
	n := 0
	for actual := range schema.Instances.By(r, "port", port) {
		if want := desired[actual.HostID]; want == nil || !sameInstance(want, actual) {
			return true
		}
		n++
	}
	return n != len(desired)
}

// sameInstance reports whether two instances are equal, whatever the boxes of their secrets look
// like: no two are equal, though what is in them is.
func sameInstance(a, b *topology.Instance) bool {
	return slices.Equal(withoutBox(a), withoutBox(b))
}

// withoutBox returns an instance as it is stored, but for the box of its secrets.
func withoutBox(i *topology.Instance) []byte {
	x := *i
	if x.Secrets != nil {
		x.Secrets = &topology.SealedForAHost{Key: i.Secrets.Key, Digest: i.Secrets.Digest}
	}
	text, err := json.Marshal(&x)
	if err != nil {
		panic(err) // texts, numbers and addresses can always be written
	}
	return text
}

// putInstances makes the instances of ports what they should be, in one transaction.
func (s *Service) putInstances(ctx context.Context, ports []string) error {
	return perform(ctx, s, neutron.Caller{}, func(o *operation) error {
		for _, port := range ports {
			desired := s.instances(o.tx, port)
			for actual := range schema.Instances.By(o.tx, "port", port) {
				if desired[actual.HostID] == nil {
					if err := schema.Instances.Delete(o.tx, schema.Instances.ID(actual)); err != nil {
						return err
					}
				}
			}
			for _, host := range slices.Sorted(maps.Keys(desired)) {
				if err := o.putInstance(desired[host]); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// putInstance stores an instance, with its secrets sealed for the host.
func (o *operation) putInstance(i *topology.Instance) error {
	id := schema.Instances.ID(i)
	old, err := find(schema.Instances, o.tx, id)
	if err != nil || old != nil && sameInstance(i, old) {
		return err
	}
	if i.Secrets != nil && i.Secrets.Key != "" && i.Secrets.Box == nil {
		if i.Secrets.Box, err = o.boxFor(i); err != nil {
			return err
		}
	}
	return schema.Instances.Put(o.tx, i)
}

// boxFor seals the secrets of a port for a host that has published its key.
func (o *operation) boxFor(i *topology.Instance) ([]byte, error) {
	key, err := schema.MetadataKeys.Get(o.tx, i.HostID)
	if err != nil {
		return nil, err
	}
	secret, err := o.secretOf(o.metadataRecord(o.tx, i.PortID))
	if err != nil {
		return nil, err
	}
	return sealing.SealForHost(key.Key, schema.Instances.ID(i), secret)
}

// instances returns what hosts should have of a port, by the host's id: nothing of a port that is
// not bound, or that is no machine's.
func (s *Service) instances(r records.Reader, port string) map[string]*topology.Instance {
	p, ok := schema.Ports.Peek(r, port)
	if !ok || p.BoundHostID == "" || strings.HasPrefix(p.DeviceOwner, ownerNetworkPrefix) || strings.HasPrefix(p.DeviceOwner, ownerVIP) {
		return nil
	}
	hosts := []string{p.BoundHostID}
	if p.PreviousInterface != "" {
		hosts = append(hosts, p.PreviousHostID)
	}
	all := map[string]*topology.Instance{}
	for _, host := range hosts {
		i := s.instance(r, p)
		i.HostID, i.Zone = host, schema.ZoneOf(r, host)
		i.Secrets = s.secretsFor(r, port, host)
		all[host] = i
	}
	return all
}

// instance returns the facts about the machine behind a port.
func (s *Service) instance(r records.Reader, p *neutron.Port) *topology.Instance {
	i := &topology.Instance{PortID: p.ID, DeviceID: p.DeviceID, ProjectID: p.ProjectID, Name: cmp.Or(p.DNSName, p.Name), Domain: s.opts.DNSDomain}
	for _, id := range p.SecurityGroups {
		if g, ok := schema.SecurityGroups.Peek(r, id); ok {
			i.Groups = append(i.Groups, g.Name)
		}
	}
	for _, own := range portsOfMachine(r, p) {
		i.Links = append(i.Links, instanceLink(r, own))
	}
	for f := range schema.FloatingIPs.By(r, "port", p.ID) {
		i.Floating = append(i.Floating, f.FloatingIPAddress)
	}
	slices.SortFunc(i.Floating, netip.Addr.Compare)
	return i
}

// portsOfMachine returns a port and the others of its project with the same device, oldest first.
func portsOfMachine(r records.Reader, p *neutron.Port) []*neutron.Port {
	ports := []*neutron.Port{p}
	if p.DeviceID == "" {
		return ports
	}
	for other := range schema.Ports.By(r, "device_id", p.DeviceID) {
		if other.ID != p.ID && other.ProjectID == p.ProjectID && len(ports) < mostLinks {
			ports = append(ports, other)
		}
	}
	slices.SortFunc(ports, func(a, b *neutron.Port) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID, b.ID))
	})
	return ports
}

// instanceLink returns a port as an interface of its machine.
func instanceLink(r records.Reader, p *neutron.Port) topology.InstanceLink {
	l := topology.InstanceLink{PortID: p.ID, MAC: p.MACAddress, NetworkID: p.NetworkID}
	if n, ok := schema.Networks.Peek(r, p.NetworkID); ok {
		l.MTU = n.MTU
	}
	for _, ip := range p.FixedIPs {
		sub, ok := schema.Subnets.Peek(r, ip.SubnetID)
		if !ok {
			continue
		}
		s := topology.InstanceSubnet{Address: netip.PrefixFrom(ip.IPAddress, sub.CIDR.Bits()), DNS: sub.DNSNameservers, Mode: sub.IPv6AddressMode, DHCP: sub.EnableDHCP}
		if sub.GatewayIP != nil {
			s.Gateway = *sub.GatewayIP
		}
		for _, route := range sub.HostRoutes {
			s.Routes = append(s.Routes, topology.Opt121Route{DstSubnet: route.Destination, Gateway: route.Nexthop})
		}
		l.Subnets = append(l.Subnets, s)
	}
	return l
}

// secretsFor returns the seal on a port's secrets for a host; nil if the port has none. It has no
// box unless that is already stored. Until the host has published its key, nothing is sealed, and a
// server that cannot read the secrets leaves to others what they have sealed.
func (s *Service) secretsFor(r records.Reader, port, host string) *topology.SealedForAHost {
	record := s.metadataRecord(r, port)
	if record == nil {
		return nil
	}
	secret, err := s.secretOf(record)
	if err != nil {
		if i, ok := schema.Instances.Peek(r, host+"/"+port); ok && i.Secrets != nil {
			return i.Secrets
		}
		return &topology.SealedForAHost{}
	}
	key, ok := schema.MetadataKeys.Peek(r, host)
	if !ok {
		return &topology.SealedForAHost{}
	}
	return &topology.SealedForAHost{Key: sealing.Fingerprint(key.Key), Digest: s.opts.SecretsKey.Digest(secret)}
}

// secretOf returns the text that is sealed in a record.
func (s *Service) secretOf(record *schema.PortMetadata) ([]byte, error) {
	m, err := s.openMetadata(record)
	if err != nil {
		return nil, err
	}
	return json.Marshal(m)
}

// metadataRecord returns the record of the machine behind a port, which may be that of another port
// of the machine; nil if there is none.
func (s *Service) metadataRecord(r records.Reader, port string) *schema.PortMetadata {
	if m, ok := schema.PortMetadatas.Peek(r, port); ok {
		return m
	}
	p, ok := schema.Ports.Peek(r, port)
	if !ok {
		return nil
	}
	for _, other := range portsOfMachine(r, p) {
		if m, ok := schema.PortMetadatas.Peek(r, other.ID); ok {
			return m
		}
	}
	return nil
}
