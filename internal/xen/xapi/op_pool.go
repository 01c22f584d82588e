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
	// Invite makes a token with which the agent of a host of that name joins this server's store; nil: no host can join
	// by pool.join.
	Invite func(ctx context.Context, name string) (token string, err error)
	// Expel takes away what a host of that id may do in the store, and what it reported; nil: its reports are ignored.
	Expel func(ctx context.Context, id string) error
	// URL is where the pool at an address given to pool.join answers; nil, or an answer of "": as addresses say themselves.
	URL func(address string) string
	// TLS is how pool.join knows the pool that it is to join; nil: by the system's certificate authorities.
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

// poolJoin has this pool's only host leave it for another one, whose coordinator it asks by the XenAPI:
//
//	this pool ── pool.admit: the host's name, its networks and which interface is on which ──▶ coordinator
//	          ◀── token ──
//	          ── order to join with the token ──▶ the host's agent, which joins there and says so
//	          then this server sends whoever logs in to the coordinator
//
// Tunnels of the host go, their networks arrive as internal ones (spec 7.10).
func poolJoin(c *call) (any, error) {
	r, err := c.view()
	if err != nil {
		return nil, err
	}
	host, report, err := joinable(r)
	if err != nil {
		return nil, err
	}
	there, err := c.logInAt(c.text("master_address"), c.text("master_username"), c.text("master_password"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = there.Close(context.WithoutCancel(c.ctx)) }()
	address, err := acceptable(c.ctx, r, there, host)
	if err != nil {
		return nil, err
	}
	if !imagined(r, host.Ref) {
		address = hostOf(there.URL()) // where the XenAPI answers: its server need not run on the coordinator
	}
	networks, interfaces := belongings(r, report)
	token, err := there.Call(c.ctx, "pool.admit", report.Name, networks, interfaces)
	if err != nil {
		return nil, err
	}
	order := &objects.Order{Host: host.Ref, ID: newUUID(), Join: &objects.Join{Token: token.(string)}}
	err = c.fulfil([]*objects.Order{order}, func(tx *records.Tx) error {
		if err := dropTunnels(tx, host.Ref); err != nil {
			return err
		}
		return objects.Memberships.Put(tx, &objects.Membership{Coordinator: address})
	})
	if err == nil {
		c.seen(there, report.Name)
	}
	return nil, err
}

// joinable is the host that may leave this pool: its only one, live and without VMs that run.
func joinable(r records.Reader) (*objects.Object, *objects.HostReport, error) {
	hosts := slices.Collect(objects.Table("host").All(r))
	if len(hosts) != 1 {
		return nil, nil, model.OperationNotAllowed(fmt.Sprintf("this pool has %d hosts: only the single host of a pool can join another", len(hosts)))
	}
	host := hosts[0]
	report, err := alive(r, host.Ref)
	if err != nil {
		return nil, nil, err
	}
	if vms := by(r, "VM", "resident_on", host.Ref); len(vms) > 0 {
		return nil, nil, model.OperationNotAllowed("VM " + vms[0].Text("name_label") + " runs on the host: shut it down before joining")
	}
	return host, report, able(r, host.Ref, objects.CanJoin, "its agent shares this server's own store: join it by hand with a token of `heddle host token` at the coordinator")
}

// logInAt logs in at another pool's coordinator. After a "#" the address may have the fingerprint of the certificate by
// which it is known.
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

// poolURL is where a pool answers: an address with or without a port, or a URL.
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

// hostOf is the host of a URL; an IPv6 address is without brackets.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	return u.Hostname()
}

// acceptable says whether the host may join the pool there, and returns its coordinator's address.
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

// belongings are the networks that a host brings along, as JSON texts by UUID, and the UUIDs of those that its interfaces
// are on.
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

// poolAdmit is the coordinator's part of a join: the networks that the host brings along become this pool's, found by
// name, else those of interfaces by bridge, else new.
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
	err := c.update(func(tx *records.Tx) error {
		for h := range objects.Table("host").All(tx) {
			if h.Text("hostname") == name {
				return model.OperationNotAllowed("a host named " + name + " is in this pool already")
			}
		}
		ours := map[string]string{}
		for _, id := range slices.Sorted(maps.Keys(brought)) {
			n, err := adopt(tx, brought[id])
			if err != nil {
				return err
			}
			ours[id] = n
		}
		joiner := &objects.Joiner{Name: name, Networks: map[string]string{}}
		for device, id := range c.pairs("interfaces") {
			joiner.Networks[device] = ours[id]
		}
		return objects.Joining.Put(tx, joiner)
	})
	if err != nil {
		return nil, err
	}
	return hosts.Invite(c.ctx, name)
}

// adopt is this pool's network for one that a host brings along.
func adopt(tx *records.Tx, b broughtNetwork) (string, error) {
	if n := first(tx, "network", "name_label", b.Name); n != nil && b.Name != "" {
		return n.Ref, nil
	}
	if n := first(tx, "network", "bridge", b.Bridge); n != nil && b.Physical {
		return n.Ref, nil
	}
	network := newObject("network", model.Record{"name_label": b.Name, "name_description": b.Description, "MTU": b.MTU, "bridge": b.Bridge})
	if b.OtherConfig != nil {
		network.Fields["other_config"] = b.OtherConfig
	}
	if b.Bridge == "" || first(tx, "network", "bridge", b.Bridge) != nil {
		network.Fields["bridge"] = freeBridge(tx)
	}
	return network.Ref, put(tx, network)
}

// poolEject takes a host out of the pool, with all that is on it.
func poolEject(c *call) (any, error) {
	var id string
	err := c.update(func(tx *records.Tx) error {
		host, err := object(tx, "host", c.text("host"))
		if err != nil {
			return err
		}
		if err := removable(tx, host); err != nil {
			return err
		}
		if vms := by(tx, "VM", "resident_on", host.Ref); len(vms) > 0 {
			return model.OperationNotAllowed("VM " + vms[0].Text("name_label") + " runs on host " + host.Text("name_label") + ": shut it down first")
		}
		id = host.UUID()
		return removeHost(tx, host)
	})
	if err != nil {
		return nil, err
	}
	return nil, c.server.expel(c.ctx, id)
}

// expel shuts a host out of the store.
func (s *Server) expel(ctx context.Context, id string) error {
	if s.opts.Hosts.Expel == nil {
		return nil
	}
	return s.opts.Hosts.Expel(ctx, id)
}

// poolCreateVLANFromPIF makes a VLAN on the PIF's network of every live host.
func poolCreateVLANFromPIF(c *call) (any, error) {
	r, err := c.view()
	if err != nil {
		return nil, err
	}
	pif, err := object(r, "PIF", c.text("pif"))
	if err != nil {
		return nil, err
	}
	return c.createVLANs(r, by(r, "PIF", "network", pif.Text("network")))
}

// poolCreateVLAN makes a VLAN on the device of this name of every live host.
func poolCreateVLAN(c *call) (any, error) {
	r, err := c.view()
	if err != nil {
		return nil, err
	}
	var bases []*objects.Object
	for pif := range objects.Table("PIF").All(r) {
		if pif.Text("device") == c.text("device") && pif.Int("VLAN") < 0 {
			bases = append(bases, pif)
		}
	}
	return c.createVLANs(r, bases)
}

// createVLANs makes a VLAN on each of the PIFs whose hosts live, or on none.
func (c *call) createVLANs(r records.Reader, bases []*objects.Object) (any, error) {
	var vlans []string
	untagged := []string{}
	for _, base := range bases {
		if _, err := alive(r, base.Text("host")); err != nil {
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

// syncVLANs gives a host the coordinator's VLANs that it lacks, by the identity of the networks.
func (c *call) syncVLANs() error {
	r, err := c.view()
	if err != nil {
		return err
	}
	host := c.text("host")
	if _, err := alive(r, host); err != nil {
		return err
	}
	pool, err := thePool(r)
	if err != nil {
		return err
	}
	for _, pif := range by(r, "PIF", "host", pool.Text("master")) {
		vlan := vlanOf(r, pif.Ref)
		if vlan == nil || on(r, host, pif.Text("network")) != nil {
			continue
		}
		tagged, err := object(r, "PIF", vlan.Text("tagged_PIF"))
		if err != nil {
			return err
		}
		if base := on(r, host, tagged.Text("network")); base != nil {
			if _, _, err := c.vlanCreate(base.Ref, pif.Text("network"), vlan.Int("tag")); err != nil {
				return err
			}
		}
	}
	return nil
}

// poolDesignateNewMaster makes another host the coordinator, whose tunnels those that join inherit.
func poolDesignateNewMaster(c *call) (any, error) {
	return nil, c.update(func(tx *records.Tx) error {
		if _, err := alive(tx, c.text("host")); err != nil {
			return err
		}
		pool, err := thePool(tx)
		if err != nil {
			return err
		}
		uses(tx, c.text("host"))
		return put(tx, edited(pool, model.Record{"master": c.text("host")}))
	})
}

// poolSetVswitchController is deprecated: the pool's tunnels have a controller of their own.
func poolSetVswitchController(c *call) (any, error) {
	if c.text("address") != "" {
		return nil, model.OperationNotAllowed("bridges are not given to an OpenFlow controller: heddle tunnel-controller keeps the tunnels")
	}
	return nil, nil
}
