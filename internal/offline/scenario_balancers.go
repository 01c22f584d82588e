package offline

import (
	"encoding/json"
	"fmt"
	"time"

	"heddle/internal/control/translate"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// balancing is the load balancers of a scenario (services §11).
type balancing struct {
	balancers map[string]*scenarioLB
	vipPorts  map[string]string // ids of the ports that the scenario makes for VIPs, by name
}

func newBalancing() balancing {
	return balancing{balancers: map[string]*scenarioLB{}, vipPorts: map[string]string{}}
}

// scenarioLB is a load balancer of LBaaS v2, or a pool of LBaaS v1 with its VIP. What is below it
// is found by name; of LBaaS v1 the names are "pool" and "vip".
type scenarioLB struct {
	name      string
	v1        bool
	id        string // of the load balancer; of LBaaS v1 of its router
	listeners map[string]string
	pools     map[string]string
	members   map[string]scenarioMember
	monitored map[string]bool // pools with a health monitor
	down      bool            // of LBaaS v1, whose API has no such switch
}

// scenarioMember is a member with its pool.
type scenarioMember struct{ id, pool string }

// types returns the types of steps of what is below a load balancer.
func (b *scenarioLB) types() (vip, pool, member, monitor string) {
	if b.v1 {
		return typeVIP, typeV1Pool, typeV1Member, typeV1Monitor
	}
	return typeListener, typeLBPool, typeLBMember, typeLBMonitor
}

// checkingHost returns the host that checks members: of LBaaS v2 that of the container, whose port
// is one of the scenario's.
func (s *scenario) checkingHost(b *scenarioLB) string {
	if b.v1 {
		return s.derive("host", b.name+".health")
	}
	host, _ := s.bindingOf(b.name + ".health")
	return host.ID
}

// make makes an object of load balancing that has a name.
func (s *scenario) make(n node, typ, name string, body map[string]any, names ...string) (id string, err error) {
	id = s.derive(typ, append(names, name)...)
	s.nameOf[id] = name
	s.world.now = bornAt(len(s.nameOf))
	return id, s.at(n, s.world.createBalancing(typ, id, object{n, body}))
}

// newBalancer begins a load balancer with the name that o has.
func (s *scenario) newBalancer(o object, v1 bool) (*scenarioLB, error) {
	name, err := o.get("name").text()
	switch {
	case err != nil:
		return nil, err
	case name == "":
		return nil, fileErrorf(o.under("name"), "is missing")
	case s.balancers[name] != nil:
		return nil, fileErrorf(o.under("name"), "there are two of name %q", name)
	}
	b := &scenarioLB{name: name, v1: v1, listeners: map[string]string{}, pools: map[string]string{}, members: map[string]scenarioMember{}, monitored: map[string]bool{}}
	s.balancers[name] = b
	return b, nil
}

// readUp reads whether an object is up: up, or admin_state_up.
func readUp(o object, body map[string]any) error {
	for _, name := range []string{"up", "admin_state_up"} {
		if o.get(name).null() {
			continue
		}
		up, err := o.get(name).flag(true)
		if err != nil {
			return err
		}
		body["admin_state_up"] = up
	}
	return nil
}

// readPersistence reads SOURCE_IP, {type: SOURCE_IP}, or null for none.
func readPersistence(o object, body map[string]any) error {
	n := o.get("session_persistence")
	if !o.has("session_persistence") {
		return nil
	}
	if _, isText := n.value.(string); isText || n.null() {
		text, err := n.text()
		if body["session_persistence"] = any(nil); text != "" {
			body["session_persistence"] = map[string]any{"type": text}
		}
		return err
	}
	persistence, err := n.object("type")
	body["session_persistence"] = persistence.fields
	return err
}

// addBalancerV2 makes a load balancer of LBaaS v2 with its port and with all that is below it.
func (s *scenario) addBalancerV2(n node) error {
	o, err := n.object("name", "subnet", "vip_address", "vip_port", "vip_security_groups", "up", "admin_state_up", "listeners", "pools")
	if err != nil {
		return err
	}
	b, err := s.newBalancer(o, false)
	if err != nil {
		return err
	}
	b.id = s.derive(typeLoadBalancer, b.name)
	port, address, err := s.vipPort(o, b)
	if err != nil {
		return err
	}
	body := map[string]any{"vip_port_id": port, "vip_address": address}
	if err := readUp(o, body); err != nil {
		return err
	}
	if _, err := s.make(n, typeLoadBalancer, b.name, body); err != nil {
		return err
	}
	if err := s.nameLBPort(o, b); err != nil {
		return err
	}
	if err := s.addContainer(b.name+".health", translate.LBContainer(translate.LBRouter(b.id))); err != nil {
		return err
	}
	listeners, err := o.get("listeners").list()
	if err != nil {
		return err
	}
	for _, n := range listeners {
		if err := s.addListener(n, b); err != nil {
			return err
		}
	}
	pools, err := o.get("pools").list()
	if err != nil {
		return err
	}
	for _, n := range pools {
		if err := s.addLBPool(n, b); err != nil {
			return err
		}
	}
	for _, n := range listeners {
		if err := s.setDefaultPool(n, b); err != nil {
			return err
		}
	}
	return nil
}

// nameLBPort names the router of a load balancer, and its port.
func (s *scenario) nameLBPort(o object, b *scenarioLB) error {
	s.nameOf[translate.LBRouter(b.id)] = b.name
	snap, err := s.world.db.View(s.world.ctx)
	if err != nil {
		return err
	}
	made, ok := schema.Bundles.Peek(snap, schema.BundleID(topology.Owner{Kind: "load-balancer", ID: b.id}))
	if !ok || len(made.Bundle.Ports) == 0 {
		return fileErrorf(o.place, "load balancer %q has no port", b.name)
	}
	p := &made.Bundle.Ports[0]
	s.nameOf[p.ID] = b.name + "/" + s.nameOf[p.PeerID]
	return nil
}

// vipPort returns the port of a load balancer, and its address: a port of the scenario, or a new
// one. Without groups a new one is open, as Octavia makes it.
func (s *scenario) vipPort(o object, b *scenarioLB) (id, address string, err error) {
	ip, err := o.get("vip_address").addr()
	if err != nil {
		return "", "", err
	}
	name, err := o.get("vip_port").text()
	if err != nil {
		return "", "", err
	}
	if id := s.ports.ids[name]; name != "" && id != "" {
		return id, ip.String(), nil
	}
	subnet, err := s.subnets.find(o.get("subnet"))
	if err != nil {
		return "", "", err
	}
	sub, err := s.world.service.Subnets().Show(s.world.ctx, administrator(), subnet)
	if err != nil {
		return "", "", err
	}
	if name == "" {
		name = b.name + ".vip"
	}
	body := map[string]any{
		"network_id": sub.NetworkID, "device_owner": "neutron:LOADBALANCERV2", "device_id": b.id,
		"fixed_ips": []any{map[string]any{"subnet_id": subnet, "ip_address": ip.String()}},
	}
	if o.get("vip_security_groups").null() {
		body["port_security_enabled"] = false
	} else if body["security_groups"], err = listOf(s.groups.id)(o.get("vip_security_groups")); err != nil {
		return "", "", err
	}
	id = s.derive("vip port", name)
	s.vipPorts[name], s.nameOf[id] = id, name
	s.world.now = bornAt(len(s.nameOf))
	return id, ip.String(), s.at(o.node, s.world.create(s.ports.kind, id, object{o.node, body}))
}

func (s *scenario) addListener(n node, b *scenarioLB) error {
	o, err := n.object("name", "protocol", "protocol_port", "up", "admin_state_up", "connection_limit", "pool")
	if err != nil {
		return err
	}
	name, err := o.get("name").text()
	if err != nil {
		return err
	}
	body := map[string]any{"loadbalancer_id": b.id, "protocol_port": o.get("protocol_port").value}
	for _, attribute := range []string{"protocol", "connection_limit"} {
		if !o.get(attribute).null() {
			body[attribute] = o.get(attribute).value
		}
	}
	if err := readUp(o, body); err != nil {
		return err
	}
	if name == "" {
		name = fmt.Sprint("listener ", body["protocol_port"])
	}
	if b.listeners[name] != "" {
		return fileErrorf(o.under("name"), "there are two of name %q", name)
	}
	b.listeners[name], err = s.make(n, typeListener, name, body, b.name)
	return err
}

// setDefaultPool gives a listener the pool that it names.
func (s *scenario) setDefaultPool(n node, b *scenarioLB) error {
	o, err := n.anyObject()
	if err != nil || o.get("pool").null() {
		return err
	}
	listener, err := findBelow(o.get("name"), "listener", b.listeners)
	if err != nil {
		return err
	}
	pool, err := findBelow(o.get("pool"), "pool", b.pools)
	if err != nil {
		return err
	}
	return s.at(n, s.world.updateBalancing(typeListener, listener, object{n, map[string]any{"default_pool_id": pool}}))
}

// findBelow returns the id of the object below a load balancer that a name stands for.
func findBelow(n node, what string, ids map[string]string) (string, error) {
	name, err := n.text()
	if err == nil && ids[name] == "" {
		err = fileErrorf(n.place, "the load balancer has no %s %q", what, name)
	}
	return ids[name], err
}

func (s *scenario) addLBPool(n node, b *scenarioLB) error {
	o, err := n.object("name", "listener", "protocol", "method", "session_persistence", "up", "admin_state_up", "members")
	if err != nil {
		return err
	}
	body := map[string]any{"loadbalancer_id": b.id}
	if !o.get("listener").null() {
		if body["listener_id"], err = findBelow(o.get("listener"), "listener", b.listeners); err != nil {
			return err
		}
	}
	return s.addPoolWith(n, o, b, "lb_algorithm", body)
}

// addPoolWith makes a pool with its members.
func (s *scenario) addPoolWith(n node, o object, b *scenarioLB, method string, body map[string]any) error {
	name := "pool"
	if !b.v1 {
		var err error
		if name, err = o.get("name").text(); err != nil {
			return err
		}
	}
	if name == "" || b.pools[name] != "" {
		return fileErrorf(o.under("name"), "want a name that no other pool has")
	}
	for field, attribute := range map[string]string{"protocol": "protocol", "method": method} {
		if !o.get(field).null() {
			body[attribute] = o.get(field).value
		}
	}
	if err := readUp(o, body); err != nil {
		return err
	}
	if !b.v1 {
		if err := readPersistence(o, body); err != nil {
			return err
		}
	}
	_, typ, _, _ := b.types()
	id, err := s.make(n, typ, name, body, b.name)
	if err != nil {
		return err
	}
	b.pools[name] = id
	members, err := o.get("members").list()
	for _, n := range members {
		if err == nil {
			err = s.addMember(n, b, id)
		}
	}
	return err
}

// addMember makes a member, which is called ADDRESS:PORT if it has no name.
func (s *scenario) addMember(n node, b *scenarioLB, pool string) error {
	o, err := n.object("name", "address", "protocol_port", "weight", "up", "admin_state_up", "status")
	if err != nil {
		return err
	}
	name, err := o.get("name").text()
	if err != nil {
		return err
	}
	if name == "" {
		name = fmt.Sprintf("%v:%v", o.get("address").value, o.get("protocol_port").value)
	}
	if b.members[name].id != "" {
		return fileErrorf(o.under("name"), "there are two of name %q", name)
	}
	body := map[string]any{"pool_id": pool, "address": o.get("address").value, "protocol_port": o.get("protocol_port").value}
	if !o.get("weight").null() {
		body["weight"] = o.get("weight").value
	}
	if err := readUp(o, body); err != nil {
		return err
	}
	_, _, typ, _ := b.types()
	id, err := s.make(n, typ, name, body, b.name)
	if err != nil {
		return err
	}
	b.members[name] = scenarioMember{id, pool}
	return s.setStatus(o.get("status"), b, b.members[name])
}

// setStatus enters what checks say of a member, null for nothing. A pool whose members have a
// status has a health monitor.
func (s *scenario) setStatus(n node, b *scenarioLB, m scenarioMember) error {
	status, err := n.oneOf(topology.MemberActive, topology.MemberInactive)
	if err != nil || status == "" && !b.monitored[m.pool] {
		return err
	}
	if !b.monitored[m.pool] {
		if err := s.addMonitor(n, b, m.pool); err != nil {
			return err
		}
	}
	h := &topology.MemberHealth{MemberID: m.id, HostID: s.checkingHost(b), Status: status, Since: s.world.now}
	_, err = s.world.db.Update(s.world.ctx, func(tx *records.Tx) error {
		if status == "" {
			if _, err := schema.MemberHealths.Get(tx, schema.MemberHealths.ID(h)); err != nil {
				return nil // there is none
			}
			return schema.MemberHealths.Delete(tx, schema.MemberHealths.ID(h))
		}
		return schema.MemberHealths.Put(tx, h)
	})
	return err
}

// addMonitor gives a pool a health monitor.
func (s *scenario) addMonitor(n node, b *scenarioLB, pool string) error {
	_, typ, _, monitorType := b.types()
	body := map[string]any{"type": neutron.MonitorTCP, "delay": json.Number("5"), "timeout": json.Number("3"), "max_retries": json.Number("2")}
	if !b.v1 {
		body["pool_id"] = pool
	}
	id, err := s.make(n, monitorType, "monitor of "+s.nameOf[pool], body, b.name, pool)
	if err != nil {
		return err
	}
	b.monitored[pool] = true
	if !b.v1 {
		return nil
	}
	if err := s.world.updateBalancing(typ, pool, object{n, map[string]any{"health_monitors": []any{id}}}); err != nil {
		return s.at(n, err)
	}
	return s.ranBefore(translate.LBContainer(b.id), s.checkingHost(b))
}

// addBalancerV1 makes a pool of LBaaS v1 with its VIP.
func (s *scenario) addBalancerV1(n node) error {
	o, err := n.object("name", "up", "admin_state_up", "pool", "vip")
	if err != nil {
		return err
	}
	b, err := s.newBalancer(o, true)
	if err != nil {
		return err
	}
	pool, err := o.get("pool").object("router", "subnet", "protocol", "method", "up", "admin_state_up", "members")
	if err != nil {
		return err
	}
	if b.id, err = s.routing.routers.find(pool.get("router")); err != nil {
		return err
	}
	s.nameOf[translate.LBOfRouter(b.id)] = s.nameOf[b.id]
	body := map[string]any{"router_id": b.id}
	if !pool.get("subnet").null() {
		if body["subnet_id"], err = s.subnets.find(pool.get("subnet")); err != nil {
			return err
		}
	}
	if err := s.addPoolWith(pool.node, pool, b, "lb_method", body); err != nil {
		return err
	}
	if !o.get("vip").null() {
		if err := s.addVIP(o.get("vip"), b); err != nil {
			return err
		}
	}
	return s.switchV1(o, b)
}

func (s *scenario) addVIP(n node, b *scenarioLB) error {
	o, err := n.object("subnet", "address", "protocol", "protocol_port", "session_persistence", "connection_limit", "up", "admin_state_up")
	if err != nil {
		return err
	}
	body := map[string]any{"pool_id": b.pools["pool"], "protocol_port": o.get("protocol_port").value, "address": o.get("address").value}
	if body["subnet_id"], err = s.subnets.find(o.get("subnet")); err != nil {
		return err
	}
	for _, attribute := range []string{"protocol", "connection_limit"} {
		if !o.get(attribute).null() {
			body[attribute] = o.get(attribute).value
		}
	}
	if err := readUp(o, body); err != nil {
		return err
	}
	if err := readPersistence(o, body); err != nil {
		return err
	}
	b.listeners["vip"], err = s.make(n, typeVIP, "vip", body, b.name)
	return err
}

// switchV1 takes a load balancer of LBaaS v1 down or up, which no request can.
func (s *scenario) switchV1(o object, b *scenarioLB) error {
	body := map[string]any{}
	if err := readUp(o, body); err != nil {
		return err
	}
	if up, given := body["admin_state_up"].(bool); given {
		b.down = !up
	}
	id := schema.BundleID(topology.Owner{Kind: "router-lb", ID: b.id})
	_, err := s.world.db.Update(s.world.ctx, func(tx *records.Tx) error {
		old, err := schema.Bundles.Get(tx, id)
		if err != nil {
			return err
		}
		changed := *old
		changed.Bundle.LoadBalancers = append([]topology.LoadBalancer(nil), old.Bundle.LoadBalancers...)
		for i := range changed.Bundle.LoadBalancers {
			changed.Bundle.LoadBalancers[i].AdminStateUp = !b.down
		}
		return schema.Bundles.Put(tx, &changed)
	})
	return err
}

// updateBalancer changes a load balancer, or what is below it.
func (s *scenario) updateBalancer(n node) error {
	o, err := n.object("lb", "member", "pool", "vip", "listener", "up", "admin_state_up", "weight", "status", "session_persistence", "method", "connection_limit")
	if err != nil {
		return err
	}
	name, err := o.get("lb").text()
	if err != nil {
		return err
	}
	b := s.balancers[name]
	if b == nil {
		return fileErrorf(o.under("lb"), "there is no load balancer %q", name)
	}
	s.world.now = s.world.now.Add(time.Second) // each change is later than the one before
	if err := s.updateBelow(o, b); err != nil || !b.v1 {
		return err
	}
	return s.switchV1(object{n, map[string]any{}}, b) // what was derived again is up
}

// updateBelow changes the object that an update names.
func (s *scenario) updateBelow(o object, b *scenarioLB) error {
	vip, pool, _, _ := b.types()
	body := map[string]any{}
	if err := readUp(o, body); err != nil {
		return err
	}
	if err := readPersistence(o, body); err != nil {
		return err
	}
	if !o.get("connection_limit").null() {
		body["connection_limit"] = o.get("connection_limit").value
	}
	change := func(typ string, n node, what string, ids map[string]string) error {
		id, err := findBelow(n, what, ids)
		if err != nil || len(body) == 0 {
			return err
		}
		return s.at(o.node, s.world.updateBalancing(typ, id, object{o.node, body}))
	}
	switch {
	case o.has("member"):
		return s.updateMember(o, b, body)
	case o.has("listener"):
		if o.has("pool") {
			var err error
			if body["default_pool_id"], err = findBelow(o.get("pool"), "pool", b.pools); err != nil {
				return err
			}
		}
		return change(vip, o.get("listener"), "listener", b.listeners)
	case o.has("vip"):
		return change(vip, o.get("vip"), "vip", b.listeners)
	case o.has("pool"):
		if !o.get("method").null() {
			body[map[bool]string{true: "lb_method", false: "lb_algorithm"}[b.v1]] = o.get("method").value
		}
		return change(pool, o.get("pool"), "pool", b.pools)
	case b.v1:
		return s.switchV1(o, b)
	}
	return s.at(o.node, s.world.updateBalancing(typeLoadBalancer, b.id, object{o.node, body}))
}

// updateMember changes a member, and what checks say of it.
func (s *scenario) updateMember(o object, b *scenarioLB, body map[string]any) error {
	name, err := o.get("member").text()
	if err != nil {
		return err
	}
	m, ok := b.members[name]
	if !ok {
		return fileErrorf(o.under("member"), "the load balancer has no member %q", name)
	}
	if !o.get("weight").null() {
		body["weight"] = o.get("weight").value
	}
	_, _, typ, _ := b.types()
	if len(body) > 0 {
		if err := s.at(o.node, s.world.updateBalancing(typ, m.id, object{o.node, body})); err != nil {
			return err
		}
	}
	if !o.has("status") {
		return nil
	}
	return s.setStatus(o.get("status"), b, m)
}

// portOrVIP reads the name of a port of the scenario, or of one that it has made for a VIP.
func (s *scenario) portOrVIP(n node) (any, error) {
	if name, ok := n.value.(string); ok && s.vipPorts[name] != "" {
		return s.vipPorts[name], nil
	}
	return s.ports.id(n)
}

// applyHealth gives the simulator what checks say of members.
func (y *system) applyHealth() error {
	snap, err := y.world.db.View(y.world.ctx)
	if err != nil {
		return err
	}
	for _, b := range y.balancers {
		host := y.checkingHost(b)
		for _, m := range b.members {
			h, _ := schema.MemberHealths.Peek(snap, host+"/"+m.id)
			y.topology.ApplyMemberHealth(host, m.id, h)
		}
	}
	return nil
}
