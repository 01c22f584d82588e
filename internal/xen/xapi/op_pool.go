package xapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"heddle/internal/store/records"
	"heddle/internal/xen/client"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// Hosts let machines into this pool and out of it.
type Hosts struct {
	// Invite makes a token with which the agent of a host of that name joins this server's store;
	// nil: no host can join by pool.join.
	Invite func(ctx context.Context, name string) (token string, err error)
	// Expel ends a host's rights in the store, by its id, and its reports; nil: those are ignored.
	Expel func(ctx context.Context, id string) error
	// URL returns the URL of the pool at an address; nil, or "": that follows from the address.
	URL func(address string) string
	// TLS is for pool.join; nil: with the system's certificate authorities.
	TLS *tls.Config
}

func poolMessages() map[string]handler {
	return map[string]handler{
		"pool.join":                   poolJoin,
		"pool.join_force":             poolJoin,
		"pool.admit":                  poolAdmit,
		"pool.eject":                  poolEject,
		"pool.create_VLAN_from_PIF":   poolCreateVLANFromPIF,
		"pool.create_VLAN":            poolCreateVLAN,
		"pool.designate_new_master":   poolDesignateNewMaster,
		"pool.set_vswitch_controller": poolSetVswitchController,
	}
}

// broughtNetwork is a network that a joining host brings along.
type broughtNetwork struct {
	Name        string            `json:"name_label"`
	Description string            `json:"name_description"`
	MTU         int64             `json:"mtu"`
	Bridge      string            `json:"bridge"`
	Physical    bool              `json:"physical"` // an interface of the host is on it
	OtherConfig map[string]string `json:"other_config"`
}

// poolJoin has this pool's only host leave it for another one, whose coordinator it asks by the
// XenAPI:
//
//	this pool ── pool.admit: the host's name, its networks and interfaces ──▶ coordinator
//	          ◀── token ──
//	          ── order to join with the token ──▶ the host's agent, which joins there and says so
//	          then this server sends whoever logs in to the coordinator
//
// Tunnels of the host go, their networks arrive as internal ones (spec 7.10).
func poolJoin(c *call) (any, error) {
	p := c.look()
	host, report := p.joinable()
	if p.err != nil {
		return nil, p.err
	}
	there, err := c.logInAt(c.text("master_address"), c.text("master_username"), c.text("master_password"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = there.Close(context.WithoutCancel(c.ctx)) }()
	address, err := acceptable(c.ctx, p, there, host)
	if err != nil {
		return nil, err
	}
	if !imagined(p, host.Ref) {
		address = hostOf(there.URL()) // where the XenAPI answers: its server need not run on the coordinator
	}
	networks, interfaces := belongings(p, report)
	token, err := there.Call(c.ctx, "pool.admit", report.Name, networks, interfaces)
	if err != nil {
		return nil, err
	}
	order := &objects.Order{Host: host.Ref, ID: newUUID(), Join: &objects.Join{Token: token.(string)}}
	err = c.fulfil([]*objects.Order{order}, func(p *pool) {
		p.dropTunnels(host.Ref)
		putRecord(p, objects.Memberships, &objects.Membership{Coordinator: address})
	})
	if err == nil {
		c.seen(there, report.Name)
	}
	return nil, err
}

// joinable returns the host that may leave this pool: its only one, live and without VMs that run.
func (p *pool) joinable() (*objects.Object, *objects.HostReport) {
	hosts := slices.Collect(objects.Table("host").All(p))
	if len(hosts) != 1 {
		p.fail(model.OperationNotAllowed(fmt.Sprintf("this pool has %d hosts: only the single host of a pool can join another", len(hosts))))
		return nil, nil
	}
	host := hosts[0]
	report := p.alive(host.Ref)
	if vms := by(p, "VM", "resident_on", host.Ref); len(vms) > 0 {
		p.fail(model.OperationNotAllowed("VM " + vms[0].Text("name_label") + " runs on the host: shut it down before joining"))
	}
	p.able(host.Ref, objects.CanJoin, "its agent shares this server's own store: join it by hand with a token of `heddle host token` at the coordinator")
	return host, report
}

// logInAt logs in at another pool's coordinator. After a "#" the address may have the fingerprint
// of the certificate by which it is known.
func (c *call) logInAt(address, user, password string) (*client.Session, error) {
	limited, cancel := context.WithTimeout(c.ctx, orderTimeout)
	defer cancel()
	hosts := &c.server.opts.Hosts
	place, fingerprint, _ := strings.Cut(address, "#")
	s, err := client.Dial(limited, client.Options{URL: hosts.poolURL(place), User: user, Password: password, TLS: hosts.TLS, Fingerprint: fingerprint, Originator: "pool.join"})
	if err == nil {
		return s, nil
	}
	if known := (*model.Error)(nil); errors.As(err, &known) {
		return nil, err
	}
	if print := client.Presented(err); print != "" {
		return nil, model.OperationNotAllowed(fmt.Sprintf("the pool at %s has a certificate that this server does not trust; if it is known to you by the fingerprint %s, say %s#%s", place, print, place, print))
	}
	c.server.opts.Log.Warn("the pool to join does not answer", "address", place, "err", err)
	return nil, model.CannotContactHost(address)
}

// The ports of the XenAPI: with TLS, and plain on loopback.
const tlsPort, plainPort = "8443", "8080"

// poolURL returns the URL of a pool, which is given by an address with or without a port, or a URL.
func (h *Hosts) poolURL(address string) string {
	if h.URL != nil {
		if known := h.URL(address); known != "" {
			return known
		}
	}
	if strings.Contains(address, "://") {
		return address
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = strings.Trim(address, "[]"), ""
	}
	if client.Loopback(host) {
		return "http://" + net.JoinHostPort(host, cmp.Or(port, plainPort))
	}
	return "https://" + net.JoinHostPort(host, cmp.Or(port, tlsPort))
}

// hostOf returns the host of a URL; an IPv6 address is without brackets.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return u.Hostname()
}

// acceptable returns the address of the other pool's coordinator, if the host may join it.
func acceptable(ctx context.Context, r records.Reader, there *client.Session, host *objects.Object) (string, error) {
	pools, err := there.Records(ctx, "pool")
	if err != nil {
		return "", err
	}
	hosts, err := there.Records(ctx, "host")
	if err != nil {
		return "", err
	}
	own, err := thePool(r)
	if err != nil {
		return "", err
	}
	for _, pool := range pools {
		if pool["uuid"] == own.UUID() {
			return "", model.OperationNotAllowed("the host is the coordinator of that very pool")
		}
		master, _ := pool["master"].(string)
		coordinator := hosts[master]
		if coordinator == nil {
			return "", model.OperationNotAllowed("the pool to join has no coordinator yet: start an agent there first")
		}
		ours, theirs := apiVersion(host.Fields), apiVersion(coordinator)
		if ours != theirs {
			return "", model.PoolJoiningHostMustHaveSameAPIVersion(ours, theirs)
		}
		address, _ := coordinator["address"].(string)
		return address, nil
	}
	return "", model.OperationNotAllowed("the pool to join has no pool object")
}

func apiVersion(host model.Record) string {
	return fmt.Sprintf("%v.%v", host["API_version_major"], host["API_version_minor"])
}

// belongings returns the networks that a host brings along, as JSON texts by UUID, and the UUIDs of
// those that its interfaces are on.
func belongings(r records.Reader, report *objects.HostReport) (networks, interfaces map[string]string) {
	networks, interfaces = map[string]string{}, map[string]string{}
	for n := range objects.Table("network").All(r) {
		b := broughtNetwork{Name: n.Text("name_label"), Description: n.Text("name_description"), MTU: n.Int("MTU"), Bridge: n.Text("bridge"), OtherConfig: n.Map("other_config")}
		for _, pif := range by(r, "PIF", "network", n.Ref) {
			if tunnelOf(r, pif.Ref) != nil {
				continue
			}
			b.Physical = b.Physical || pif.Int("VLAN") < 0
			interfaces[deviceOf(pif)] = n.UUID()
		}
		text, err := json.Marshal(b)
		if err != nil {
			panic(err) // strings and numbers alone
		}
		networks[n.UUID()] = string(text)
	}
	return networks, interfaces
}

// seen waits, for a while, until the host lives in the pool that it has joined.
func (c *call) seen(there *client.Session, name string) {
	limited, cancel := context.WithTimeout(c.ctx, orderTimeout)
	defer cancel()
	arrived := errors.New("arrived")
	err := there.Follow(limited, []string{"host", "host_metrics"}, func(all client.Objects, _ []client.Event) error {
		for _, h := range all["host"] {
			metrics, _ := h["metrics"].(string)
			if h["hostname"] == name && all["host_metrics"][metrics]["live"] == true {
				return arrived
			}
		}
		return nil
	})
	if !errors.Is(err, arrived) {
		c.server.opts.Log.Warn("the host has joined, but does not report there yet", "host", name, "err", err)
	}
}

// poolAdmit is the coordinator's part of a join: the networks that the host brings along become
// this pool's, found by name, else those of interfaces by bridge, else new.
func poolAdmit(c *call) (any, error) {
	name, hosts := c.text("name"), c.server.opts.Hosts
	if hosts.Invite == nil {
		return nil, model.OperationNotAllowed("this server cannot make join tokens: hosts join with `heddle host token`")
	}
	brought := map[string]broughtNetwork{}
	for id, text := range c.pairs("networks") {
		var n broughtNetwork
		if err := json.Unmarshal([]byte(text), &n); err != nil {
			return nil, model.InvalidValue("networks", text)
		}
		brought[id] = n
	}
	err := c.change(func(p *pool) {
		for h := range objects.Table("host").All(p) {
			if h.Text("hostname") == name {
				p.fail(model.OperationNotAllowed("a host named " + name + " is in this pool already"))
			}
		}
		ours := map[string]string{}
		for _, id := range slices.Sorted(maps.Keys(brought)) {
			ours[id] = p.adopt(brought[id])
		}
		joiner := &objects.Joiner{Name: name, Networks: map[string]string{}}
		for device, id := range c.pairs("interfaces") {
			joiner.Networks[device] = ours[id]
		}
		putRecord(p, objects.Joining, joiner)
	})
	if err != nil {
		return nil, err
	}
	return hosts.Invite(c.ctx, name)
}

// adopt returns this pool's network for one that a host brings along.
func (p *pool) adopt(b broughtNetwork) string {
	if n := first(p, "network", "name_label", b.Name); n != nil && b.Name != "" {
		return n.Ref
	}
	taken := first(p, "network", "bridge", b.Bridge)
	if taken != nil && b.Physical {
		return taken.Ref
	}
	network := newObject("network", model.Record{"name_label": b.Name, "name_description": b.Description, "MTU": b.MTU, "bridge": b.Bridge})
	if b.OtherConfig != nil {
		network.Fields["other_config"] = b.OtherConfig
	}
	if b.Bridge == "" || taken != nil {
		network.Fields["bridge"] = p.freeBridge()
	}
	p.put(network)
	return network.Ref
}

// poolEject removes a host from the pool, with all that is on it.
func poolEject(c *call) (any, error) {
	return nil, c.leave(c.text("host"), func(p *pool, host *objects.Object) {
		if vms := by(p, "VM", "resident_on", host.Ref); len(vms) > 0 {
			p.fail(model.OperationNotAllowed("VM " + vms[0].Text("name_label") + " runs on host " + host.Text("name_label") + ": shut it down first"))
		}
	})
}

// poolCreateVLANFromPIF makes a VLAN on the PIF's network of every live host.
func poolCreateVLANFromPIF(c *call) (any, error) {
	p := c.look()
	pif := p.get("PIF", c.text("pif"))
	return c.createVLANs(p, by(p, "PIF", "network", pif.Text("network")))
}

// poolCreateVLAN makes a VLAN on the device of this name of every live host.
func poolCreateVLAN(c *call) (any, error) {
	p := c.look()
	var bases []*objects.Object
	for pif := range objects.Table("PIF").All(p) {
		if pif.Text("device") == c.text("device") && pif.Int("VLAN") < 0 {
			bases = append(bases, pif)
		}
	}
	return c.createVLANs(p, bases)
}

// createVLANs makes a VLAN on each of the PIFs whose hosts live, or on none.
func (c *call) createVLANs(p *pool, bases []*objects.Object) (any, error) {
	if p.err != nil {
		return nil, p.err
	}
	var vlans []string
	untagged := []string{}
	for _, base := range bases {
		if !reports(p, base.Text("host")) {
			continue
		}
		vlan, pif, err := c.vlanCreate(base.Ref, c.text("network"), c.number("VLAN"))
		if err != nil {
			for _, made := range vlans {
				err = errors.Join(err, c.vlanDestroy(made))
			}
			return nil, err
		}
		vlans, untagged = append(vlans, vlan), append(untagged, pif)
	}
	return untagged, nil
}

// syncVLANs gives a host the coordinator's VLANs that it lacks, on the same networks.
func syncVLANs(c *call) (any, error) {
	p := c.look()
	host := c.text("host")
	p.alive(host)
	for _, pif := range by(p, "PIF", "host", p.own().Text("master")) {
		vlan := vlanOf(p, pif.Ref)
		if vlan == nil || on(p, host, pif.Text("network")) != nil {
			continue
		}
		tagged := p.get("PIF", vlan.Text("tagged_PIF"))
		if base := on(p, host, tagged.Text("network")); p.err == nil && base != nil {
			_, _, err := c.vlanCreate(base.Ref, pif.Text("network"), vlan.Int("tag"))
			p.fail(err)
		}
	}
	return nil, p.err
}

// poolDesignateNewMaster makes another host the coordinator, whose tunnels those that join inherit.
func poolDesignateNewMaster(c *call) (any, error) {
	return nil, c.change(func(p *pool) {
		p.alive(c.text("host"))
		p.uses(c.text("host"))
		p.edit(p.own(), model.Record{"master": c.text("host")})
	})
}

// poolSetVswitchController is deprecated: the pool's tunnels have a controller of their own.
func poolSetVswitchController(c *call) (any, error) {
	if c.text("address") != "" {
		return nil, model.OperationNotAllowed("bridges are not given to an OpenFlow controller: heddle tunnel-controller keeps the tunnels")
	}
	return nil, nil
}
