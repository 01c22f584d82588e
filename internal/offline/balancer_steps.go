package offline

import (
	"maps"
	"reflect"
	"slices"

	"heddle/internal/neutron"
	"heddle/internal/store/schema"
)

// Objects of load balancing are in the form in which Neutron's plugins give them to a driver
// (midonet-translations §12, §13): they name ports that steps of their own have made, pools name
// their routers, and what is below a load balancer names it in lists such as loadbalancers.

// Types of steps of load balancing. Those without a version are of LBaaS v1.
const (
	typeV1Pool    = "pool"
	typeV1Member  = "member"
	typeVIP       = "vip"
	typeV1Monitor = "health_monitor"

	typeLoadBalancer = "loadbalancer_v2"
	typeListener     = "listener_v2"
	typeLBPool       = "pool_v2"
	typeLBMember     = "member_v2"
	typeLBMonitor    = "health_monitor_v2"
)

// balancerResources returns the resources by types of steps.
func balancerResources() map[string]neutron.Resource {
	return map[string]neutron.Resource{
		typeV1Pool: neutron.V1Pools, typeV1Member: neutron.V1Members, typeVIP: neutron.VIPs, typeV1Monitor: neutron.V1HealthMonitors,
		typeLoadBalancer: neutron.LoadBalancers, typeListener: neutron.Listeners, typeLBPool: neutron.LBPools,
		typeLBMember: neutron.LBMembers, typeLBMonitor: neutron.HealthMonitors,
	}
}

// driverFields returns the fields that drivers get of these objects beside the attributes of the
// API.
func driverFields() []string {
	return []string{"router_id", "pool_id", "loadbalancer_id", "listener_id", "listeners", "pools", "members", "l7policies", "l7_policies", "provisioning_status", "operating_status"}
}

// balancerKind returns the resource of a type of step with the server's operations; members of
// LBaaS v2 are those of a pool.
func (w *world) balancerKind(typ, pool string) *kind {
	tables, v1, v2 := neutron.NewTables(""), w.service.LoadBalancingV1(), w.service.LoadBalancing()
	switch typ {
	case typeV1Pool:
		return kindOf(w, tables.V1Pools, v1.Pools())
	case typeV1Member:
		return kindOf(w, tables.V1Members, v1.Members())
	case typeVIP:
		return kindOf(w, tables.VIPs, v1.VIPs())
	case typeV1Monitor:
		return kindOf(w, tables.V1HealthMonitors, v1.HealthMonitors())
	case typeLoadBalancer:
		return kindOf(w, tables.LoadBalancers, v2.LoadBalancers())
	case typeListener:
		return kindOf(w, tables.Listeners, v2.Listeners())
	case typeLBPool:
		return kindOf(w, tables.LBPools, v2.Pools())
	case typeLBMember:
		return kindOf(w, tables.LBMembers, v2.Members(pool))
	case typeLBMonitor:
		return kindOf(w, tables.HealthMonitors, v2.HealthMonitors())
	}
	return nil
}

// checkBalancing refuses unknown fields of an object of load balancing.
func checkBalancing(r neutron.Resource, data object) error {
	known := driverFields()
	for _, a := range r.Attributes() {
		if a.InBody() {
			known = append(known, a.Name)
		}
	}
	_, err := data.object(known...)
	return err
}

// applyBalancing carries out a step about an object of load balancing.
func (w *world) applyBalancing(s *step) error {
	id, err := idOf(s.data.get("id"))
	if err != nil {
		return err
	}
	switch s.op {
	case "create":
		return w.createBalancing(s.typ, id, s.data)
	case "update":
		return w.updateBalancing(s.typ, id, s.data)
	}
	return ignoreMissing(w.deleteBalancing(s.typ, id))
}

// poolOfMember returns the pool that a member of LBaaS v2 is in, "" if it is not there.
func (w *world) poolOfMember(id string) (string, error) {
	snap, err := w.db.View(w.ctx)
	if err != nil {
		return "", err
	}
	m, ok := schema.LBMembers.Peek(snap, id)
	if !ok || m.V1 {
		return "", nil
	}
	return m.PoolID, nil
}

// deleteBalancing deletes an object with all that the model says goes with it: pools with a load
// balancer, members with a pool of LBaaS v2.
func (w *world) deleteBalancing(typ, id string) error {
	lb := w.service.LoadBalancing()
	switch typ {
	case typeLoadBalancer:
		return lb.DeleteTree(w.ctx, administrator(), id)
	case typeLBPool:
		return lb.DeletePool(w.ctx, administrator(), id)
	case typeV1Pool:
		if err := w.detachVIP(id); err != nil {
			return err
		}
	}
	pool := ""
	if typ == typeLBMember {
		var err error
		if pool, err = w.poolOfMember(id); err != nil {
			return err
		}
	}
	return w.balancerKind(typ, pool).remove(id)
}

// detachVIP leaves the VIP of a pool of LBaaS v1 without a pool.
func (w *world) detachVIP(pool string) error {
	snap, err := w.db.View(w.ctx)
	if err != nil {
		return err
	}
	for v := range schema.VIPs.By(snap, "pool", pool) {
		return w.balancerKind(typeVIP, "").update(v.ID, neutron.Values{"pool_id": ""})
	}
	return nil
}

// balancingRequest is a request for an object of load balancing that a step turns into.
type balancingRequest struct {
	data   object
	fields map[string]any // attributes as a client would send them
	values neutron.Values // what no client can send
}

// noObject stands in a request for a reference that the API needs and a file may leave out.
const noObject = "00000000-0000-0000-0000-000000000000"

// mayLack lets a reference be missing that the API needs.
func (q *balancingRequest) mayLack(name string) {
	if q.fields[name] == nil {
		q.fields[name], q.values[name] = noObject, ""
	}
}

// absent gives an attribute a value if the file gives it none.
func (q *balancingRequest) absent(name string, value any) {
	if q.fields[name] == nil {
		q.fields[name] = value
	}
}

// reference reads the id in a field, or the only one of a list of {id}, "" for none.
func (q *balancingRequest) reference(name, list string) (string, error) {
	var ids []string
	if n := q.data.get(name); !n.null() {
		id, err := idOf(n)
		if err != nil {
			return "", err
		}
		ids = append(ids, id)
	}
	more, err := each(q.data.get(list), func(n node) (string, error) {
		o, err := n.object("id")
		if err != nil {
			return "", err
		}
		return idOf(o.get("id"))
	})
	if err != nil {
		return "", err
	}
	for _, id := range more {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	switch len(ids) {
	case 0:
		return "", nil
	case 1:
		return ids[0], nil
	}
	return "", refuse(neutron.Invalid, "%s: names %d, and only one can be", q.data.under(list), len(ids))
}

// refer sets an attribute to the object that a field or a list names, which has to be there.
func (q *balancingRequest) refer(name, list string) error {
	id, err := q.reference(name, list)
	if err == nil && id == "" {
		err = refuse(neutron.Invalid, "%s is missing", q.data.under(list))
	}
	q.fields[name] = id
	return err
}

// createBalancing makes an object of load balancing.
func (w *world) createBalancing(typ, id string, data object) error {
	q := &balancingRequest{data: data, fields: cloneFields(data), values: neutron.Values{}}
	pool, err := w.complement(typ, q)
	if err != nil {
		return err
	}
	k := w.balancerKind(typ, pool)
	v, err := w.newValues(k, id, object{data.node, withoutDriverFields(k, q.fields)})
	if err != nil {
		return err
	}
	maps.Copy(v, q.values)
	return k.create(v)
}

// complement turns what a driver gets about a new object into what a client sends, and returns the
// pool of a member of LBaaS v2.
func (w *world) complement(typ string, q *balancingRequest) (pool string, err error) {
	switch typ {
	case typeV1Pool:
		return "", q.complementV1Pool()
	case typeV1Member:
		q.mayLack("pool_id")
	case typeVIP:
		return "", w.complementVIP(q)
	case typeV1Monitor:
		q.absent("type", neutron.MonitorTCP)
		if pools, err := q.data.get("pools").list(); err != nil || len(pools) > 0 {
			return "", refuse(neutron.Invalid, "%s: a health monitor is given to pools by health_monitors of the pools", q.data.under("pools"))
		}
	case typeLoadBalancer:
		return "", w.complementLoadBalancer(q)
	case typeListener:
		q.absent("protocol", neutron.LBTCP)
		return "", q.refer("loadbalancer_id", "loadbalancers")
	case typeLBPool:
		return "", q.complementPool()
	case typeLBMember:
		return w.complementMember(q)
	case typeLBMonitor:
		q.absent("type", neutron.MonitorTCP)
		if q.fields["pool_id"], err = q.reference("pool_id", "pools"); q.fields["pool_id"] == "" {
			q.fields["pool_id"] = nil
		}
		q.mayLack("pool_id")
	}
	return "", err
}

// complementV1Pool: a driver gets the router that balances.
func (q *balancingRequest) complementV1Pool() error {
	q.absent("protocol", neutron.LBTCP)
	q.absent("lb_method", neutron.LBRoundRobin)
	if n := q.data.get("router_id"); !n.null() {
		router, err := idOf(n)
		if err != nil {
			return err
		}
		q.values["router_id"] = router
		q.mayLack("subnet_id")
	} else if q.data.get("subnet_id").null() {
		return refuse(neutron.Invalid, "%s is missing", q.data.under("router_id"))
	}
	return nil
}

// complementVIP: the port of a VIP is there already, or has no topology that counts.
func (w *world) complementVIP(q *balancingRequest) error {
	q.absent("protocol", neutron.LBTCP)
	q.mayLack("pool_id")
	q.values["port_id"] = ""
	if n := q.data.get("port_id"); !n.null() {
		port, f, err := w.addressOf(n, q.data.get("address"))
		if err != nil {
			return err
		}
		q.values["port_id"] = port
		q.absent("address", f.IPAddress.String())
		q.absent("subnet_id", f.SubnetID)
	}
	if q.fields["address"] == nil {
		return refuse(neutron.Invalid, "%s is missing", q.data.under("address"))
	}
	return nil
}

// complementLoadBalancer: the VIP's port is there already, and tells the subnet.
func (w *world) complementLoadBalancer(q *balancingRequest) error {
	for _, name := range []string{"vip_port_id", "vip_address"} {
		if q.data.get(name).null() {
			return refuse(neutron.Invalid, "%s is missing: create the port of the VIP, and name it and its address here", q.data.under(name))
		}
	}
	port, f, err := w.addressOf(q.data.get("vip_port_id"), q.data.get("vip_address"))
	if err != nil {
		return err
	}
	q.values["vip_port_id"] = port
	q.absent("vip_subnet_id", f.SubnetID)
	return nil
}

// addressOf returns a port's id with the address that a file gives, or with its first.
func (w *world) addressOf(port, address node) (id string, f neutron.FixedIP, err error) {
	if id, err = idOf(port); err != nil {
		return id, f, err
	}
	p, err := w.service.Ports().Show(w.ctx, administrator(), id)
	if err != nil {
		return id, f, err
	}
	i := slices.IndexFunc(p.FixedIPs, func(f neutron.FixedIP) bool { return address.null() || f.IPAddress.String() == address.value })
	if i < 0 {
		return id, f, refuse(neutron.Invalid, "%s: port %s has no address %s", port.place, id, address)
	}
	return id, p.FixedIPs[i], nil
}

// complementPool: the API maps HTTP and HTTPS to TCP before a driver gets a pool (services §4.4).
func (q *balancingRequest) complementPool() (err error) {
	q.absent("protocol", neutron.LBTCP)
	q.absent("lb_algorithm", neutron.LBRoundRobin)
	switch q.fields["protocol"] {
	case neutron.LBHTTP, neutron.LBHTTPS:
		return refuse(neutron.Unsupported, "%s: pools of protocol %s are TCP to the translation", q.data.under("protocol"), q.fields["protocol"])
	}
	if err := q.refer("loadbalancer_id", "loadbalancers"); err != nil {
		return err
	}
	if q.fields["listener_id"], err = q.reference("listener_id", "listeners"); err != nil {
		return err
	}
	if q.fields["listener_id"] == "" {
		delete(q.fields, "listener_id")
	}
	if n := q.data.get("healthmonitor_id"); !n.null() {
		q.values["healthmonitor_id"], err = idOf(n)
	}
	return err
}

// complementMember: a driver gets the pool, and needs no subnet.
func (w *world) complementMember(q *balancingRequest) (pool string, err error) {
	if pool, err = idOf(q.data.get("pool_id")); err != nil {
		return "", err
	}
	q.mayLack("subnet_id")
	return pool, nil
}

// withoutDriverFields returns the fields that are attributes of the API's.
func withoutDriverFields(k *kind, fields map[string]any) map[string]any {
	kept := maps.Clone(fields)
	for _, name := range driverFields() {
		if !slices.ContainsFunc(k.Attributes(), func(a *neutron.Attribute) bool { return a.Name == name && a.InBody() }) {
			delete(kept, name)
		}
	}
	return kept
}

// updateBalancing changes an object of load balancing.
func (w *world) updateBalancing(typ, id string, data object) (err error) {
	pool := ""
	if typ == typeLBMember {
		if pool, err = w.poolOfMember(id); err != nil {
			return err
		}
	}
	k := w.balancerKind(typ, pool)
	stored, err := k.show(id)
	if err != nil {
		return err
	}
	q := &balancingRequest{data: data, fields: withoutDriverFields(k, cloneFields(data)), values: neutron.Values{}}
	switch typ {
	case typeV1Pool:
		if err := w.associate(id, data, stored); err != nil {
			return err
		}
		delete(q.fields, "health_monitors")
	case typeV1Member:
		if err := q.moveMember(); err != nil {
			return err
		}
	case typeV1Monitor:
		if data.has("pools") && !reflect.DeepEqual(data.get("pools").value, stored["pools"]) {
			return refuse(neutron.Invalid, "%s: a health monitor is given to pools by health_monitors of the pools", data.under("pools"))
		}
	case typeListener, typeLBPool, typeLBMonitor:
		for _, name := range []string{"loadbalancer_id", "listener_id", "pool_id"} {
			delete(q.fields, name) // what an object is below, which does not change
		}
	}
	if typ == typeVIP || typ == typeV1Member {
		if data.has("pool_id") && data.get("pool_id").null() {
			q.mayLack("pool_id")
		}
	}
	v, err := neutron.Parse(administrator(), k.Resource, neutron.Update, request(k, neutron.Update, q.fields, stored))
	if err != nil {
		return err
	}
	maps.Copy(v, q.values)
	return k.update(id, v)
}

// moveMember: a driver may get another address and port of a member, which the API does not take.
func (q *balancingRequest) moveMember() error {
	if n := q.data.get("address"); !n.null() {
		a, err := n.addr()
		if err != nil {
			return err
		}
		q.values["address"] = a
	}
	if n := q.data.get("protocol_port"); !n.null() {
		port, _, err := n.number(1, 1<<16-1)
		if err != nil {
			return err
		}
		q.values["protocol_port"] = port
	}
	delete(q.fields, "address")
	delete(q.fields, "protocol_port")
	return nil
}

// associate gives a pool of LBaaS v1 the health monitor that an update names, and takes away
// others.
func (w *world) associate(pool string, data object, stored map[string]any) error {
	if !data.has("health_monitors") {
		return nil
	}
	want, err := each(data.get("health_monitors"), idOf)
	if err != nil {
		return err
	}
	if len(want) > 1 {
		return refuse(neutron.Invalid, "%s: a pool has one health monitor at most", data.under("health_monitors"))
	}
	v1 := w.service.LoadBalancingV1()
	has, _ := stored["health_monitors"].([]any)
	for _, id := range has {
		if id, _ := id.(string); !slices.Contains(want, id) {
			if err := v1.Dissociate(w.ctx, administrator(), pool, id); err != nil {
				return err
			}
		}
	}
	for _, id := range want {
		if slices.Contains(has, any(id)) {
			continue
		}
		if _, err := v1.Associate(w.ctx, administrator(), pool, id); err != nil {
			return err
		}
	}
	return nil
}
