package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"heddle/internal/api/operator"
	"heddle/internal/control"
	"heddle/internal/explain"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

// questionedCloud is a cloud in memory of which questions are asked: one router between networks,
// and ports that are each in one of the groups of the port's network.
type questionedCloud struct {
	ctx     context.Context // of the part that the cloud exists for
	db      *records.DB
	service *control.Service
	world   *explain.World
	end     func()
	groups  []string
	ports   []string
	rules   int // that were added
}

type cloudSize struct{ networks, groups, rules, ports int }

// newCloud makes a cloud. Call end afterwards.
func newCloud(ctx context.Context, size cloudSize) (*questionedCloud, error) {
	st := store.NewMemory()
	rep := replica.New(st, replica.Options{Watch: schema.Root}, schema.All()...)
	q := &questionedCloud{ctx: ctx, db: records.NewDB(st, rep), world: explain.NewWorld()}
	quotas := control.DefaultQuotas()
	for name := range quotas {
		quotas[name] = -1
	}
	var err error
	if q.service, err = control.New(q.db, control.Options{Quotas: quotas}); err != nil {
		return nil, err
	}
	following, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- rep.Run(following) }()
	q.end = func() {
		stop()
		<-ended
	}
	select {
	case <-rep.Ready():
	case <-ctx.Done(): // the first operation says so
	}
	if err := q.fill(size); err != nil {
		q.end()
		return nil, fmt.Errorf("make a cloud of %d ports: %w", size.ports, err)
	}
	return q, nil
}

func (q *questionedCloud) fill(size cloudSize) error {
	if _, err := q.db.Update(q.ctx, putHosts); err != nil {
		return err
	}
	service := q.service
	router, err := makeOne(q, service.Routers().Operations, neutron.Routers, `{"name":"r"}`)
	if err != nil {
		return err
	}
	var networks []string
	for i := range size.networks {
		n, err := makeOne(q, service.Networks(), neutron.Networks, `{"name":"n%d"}`, i)
		if err != nil {
			return err
		}
		s, err := makeOne(q, service.Subnets(), neutron.Subnets, `{"network_id":%q,"ip_version":4,"cidr":"10.%d.0.0/16"}`, n.ID, i)
		if err != nil {
			return err
		}
		if _, err := service.Routers().AddInterface(q.ctx, owner(), router.ID, neutron.InterfaceRequest{SubnetID: s.ID}); err != nil {
			return err
		}
		networks = append(networks, n.ID)
	}
	for i := range size.groups {
		g, err := makeOne(q, service.SecurityGroups(), neutron.SecurityGroups, `{"name":"g%d"}`, i)
		if err != nil {
			return err
		}
		q.groups = append(q.groups, g.ID)
		for j := range size.rules {
			prefix := "0.0.0.0/0"
			if j%2 == 1 {
				prefix = fmt.Sprintf("10.%d.%d.0/24", i%size.networks, 64*(j/2%4))
			}
			if err := q.addRule(g.ID, 1000+j, prefix); err != nil {
				return err
			}
		}
	}
	for i := range size.ports {
		p, err := makeOne(q, service.Ports(), neutron.Ports, `{"network_id":%q,"binding:host_id":"h%d","security_groups":[%q]}`,
			networks[i%size.networks], 1+i/size.networks%2, q.groups[i%size.groups])
		if err != nil {
			return err
		}
		q.ports = append(q.ports, p.ID)
	}
	return nil
}

// putHosts puts the two hosts of the ports, which share a tunnel zone.
func putHosts(tx *records.Tx) error {
	errs := []error{schema.TunnelZones.Put(tx, &topology.TunnelZone{ID: topology.DefaultTunnelZone, Name: "default", Type: "VXLAN"})}
	for i := range 2 {
		id := fmt.Sprint("h", i+1)
		tunnel := topology.HostTunnel{ZoneID: topology.DefaultTunnelZone, IP: netip.AddrFrom4([4]byte{192, 0, 2, byte(i + 1)})}
		errs = append(errs, schema.Hosts.Put(tx, &topology.Host{ID: id, Name: id}), schema.HostStates.Put(tx, &topology.HostState{HostID: id}),
			schema.Underlays.Put(tx, &topology.HostUnderlay{HostID: id, Tunnels: []topology.HostTunnel{tunnel}}))
	}
	return errors.Join(errs...)
}

// owner is the administrator whose project has the cloud.
func owner() neutron.Caller { return neutron.Caller{ProjectID: "cloud", Roles: []string{"admin"}} }

// makeOne creates an object from attributes in JSON.
func makeOne[V any](q *questionedCloud, ops control.Operations[V], r neutron.Resource, format string, args ...any) (made V, err error) {
	d := json.NewDecoder(strings.NewReader(fmt.Sprintf(format, args...)))
	d.UseNumber()
	body := map[string]any{}
	if err := d.Decode(&body); err != nil {
		return made, err
	}
	v, err := neutron.Parse(owner(), r, neutron.Create, body)
	if err != nil {
		return made, err
	}
	all, err := ops.Create(q.ctx, owner(), []neutron.Values{v})
	if err != nil {
		return made, err
	}
	return all[0], nil
}

func (q *questionedCloud) addRule(group string, port int, prefix string) error {
	_, err := makeOne(q, q.service.SecurityGroupRules(), neutron.SecurityGroupRules,
		`{"security_group_id":%q,"direction":"ingress","protocol":"tcp","port_range_min":%[2]d,"port_range_max":%[2]d,"remote_ip_prefix":%q}`, group, port, prefix)
	return err
}

// changeRule adds a rule to one of the groups, another one each time.
func (q *questionedCloud) changeRule() error {
	q.rules++
	return q.addRule(q.groups[q.rules%len(q.groups)], 20_000+q.rules, "0.0.0.0/0")
}

// why asks about one connection between two ports, by their numbers.
func (q *questionedCloud) why(from, to int) error {
	snap, err := q.db.View(q.ctx)
	if err != nil {
		return err
	}
	noAgent := func(context.Context, *explain.Probe) (*flow.TraceAnswer, error) { return nil, nil }
	_, err = q.world.Why(q.ctx, snap, owner(), &operator.WhyRequest{From: q.ports[from], To: q.ports[to], Port: 1000}, explain.Sources{Ask: noAgent})
	return err
}

// pair asks about the connections of one service from one port to another.
func (q *questionedCloud) pair(from, to int) error {
	return q.reach(&operator.ReachRequest{From: q.ports[from], To: q.ports[to], Port: 1000})
}

// whoReaches asks about the connections of one service to a port.
func (q *questionedCloud) whoReaches(to int) error {
	return q.reach(&operator.ReachRequest{To: q.ports[to], Port: 1000})
}

// matrix asks about all pairs by one service.
func (q *questionedCloud) matrix() error {
	return q.reach(&operator.ReachRequest{By: "network", Port: 1000})
}

func (q *questionedCloud) reach(r *operator.ReachRequest) error {
	snap, err := q.db.View(q.ctx)
	if err != nil {
		return err
	}
	a, err := q.world.Reach(q.ctx, snap, r)
	if err == nil && len(a.Reaches)+len(a.Pairs) == 0 {
		return errors.New("nothing is reached: the cloud is not what it should be")
	}
	return err
}
