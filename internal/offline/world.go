package offline

import (
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"

	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// world is the server's operations over a store in memory, for one file. Its caller is an
// administrator without a project or quotas.
type world struct {
	ctx     context.Context // of the call that the world exists for
	db      *records.DB
	service *control.Service
	kinds   map[string]*kind // Neutron's resources by name
	now     time.Time        // of the next operation

	ownGateways map[string]string // L2 gateways that were made with a connection, by its id
}

// newWorld starts an empty world. Whoever asked for it calls end when it is no longer needed.
func newWorld(ctx context.Context) (w *world, end func(), err error) {
	st := store.NewMemory()
	w, leave, err := openWorld(ctx, st)
	if err != nil {
		return nil, nil, err
	}
	return w, func() {
		leave()
		_ = st.Close()
	}, nil
}

// openWorld starts a world over a store with what that holds already.
func openWorld(ctx context.Context, st store.Store) (w *world, end func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	rep := replica.New(st, replica.Options{Watch: schema.Root}, schema.All()...)
	w = &world{ctx: ctx, db: records.NewDB(st, rep), ownGateways: map[string]string{}}
	if w.service, err = control.New(w.db, w.options()); err != nil {
		cancel()
		return nil, nil, err
	}
	w.kinds = w.resources()
	ended := make(chan error, 1)
	go func() { ended <- rep.Run(ctx) }()
	select {
	case <-rep.Ready():
	case <-ctx.Done(): // the first operation says so
	}
	return w, func() {
		cancel()
		<-ended
	}, nil
}

// options are those of a server without quotas and default groups, whose choices are the same every
// time.
func (w *world) options() control.Options {
	var operations atomic.Uint64
	quotas := control.DefaultQuotas()
	for name := range quotas {
		quotas[name] = -1
	}
	return control.Options{
		Quotas: quotas, NoDefaultGroups: true, Ordered: true, AnyUnderlay: true, ServiceMACs: true,
		DNSDomain: ".", // none: files name no server
		Now:       func() time.Time { return w.now },
		// A seed of its own for each operation: with one for all, each network's search for a free
		// segment would begin with those that the networks before it have taken.
		Seed: func() (seed [32]byte) {
			binary.LittleEndian.PutUint64(seed[:], operations.Add(1))
			return seed
		},
	}
}

func administrator() neutron.Caller { return neutron.Caller{Roles: []string{"admin"}} }

// kind is a resource of Neutron with the server's operations on it.
type kind struct {
	neutron.Resource
	create func(v neutron.Values) error
	update func(id string, v neutron.Values) error
	remove func(id string) error
	show   func(id string) (map[string]any, error) // as the API answers it
}

func (w *world) resources() map[string]*kind {
	s, tables, kinds := w.service, neutron.NewTables(""), map[string]*kind{}
	for _, k := range []*kind{
		kindOf(w, tables.Networks, s.Networks()),
		kindOf(w, tables.AddressScopes, s.AddressScopes()),
		kindOf(w, tables.SubnetPools, s.SubnetPools()),
		kindOf(w, tables.Subnets, s.Subnets()),
		kindOf(w, tables.Ports, s.Ports()),
		kindOf(w, tables.SecurityGroups, s.SecurityGroups()),
		kindOf(w, tables.SecurityGroupRules, s.SecurityGroupRules()),
		kindOf(w, tables.Routers, s.Routers().Operations),
		kindOf(w, tables.FloatingIPs, s.FloatingIPs()),
		kindOf(w, tables.PortForwardings, s.PortForwardings("")),
		kindOf(w, tables.NDPProxies, s.NDPProxies()),
		kindOf(w, tables.Firewalls, s.Firewalls()),
		kindOf(w, tables.LoggingResources, s.LoggingResources()),
		kindOf(w, tables.FirewallLogs, s.FirewallLogs("")),
		kindOf(w, tables.FirewallGroupRules, s.FirewallGroupRules()),
		kindOf(w, tables.FirewallGroupPolicies, s.FirewallGroupPolicies()),
		kindOf(w, tables.FirewallGroups, s.FirewallGroups()),
		kindOf(w, tables.RBACPolicies, s.RBACPolicies()),
		kindOf(w, tables.Trunks, s.Trunks().Operations),
		kindOf(w, tables.AddressGroups, s.AddressGroups()),
		kindOf(w, tables.TapServices, s.TapServices()),
		kindOf(w, tables.TapFlows, s.TapFlows()),
		kindOf(w, tables.BGPSpeakers, s.BGPSpeakers().Operations),
		kindOf(w, tables.BGPPeers, s.BGPPeers()),
		kindOf(w, tables.GatewayDevices, s.GatewayDevices()),
		kindOf(w, tables.RemoteMACEntries, s.RemoteMACEntries("")),
		kindOf(w, tables.L2Gateways, s.L2Gateways()),
		kindOf(w, tables.L2GatewayConnections, s.L2GatewayConnections()),
	} {
		kinds[k.Name()] = k
	}
	return kinds
}

func kindOf[V any](w *world, table *neutron.Table[V], ops control.Operations[V]) *kind {
	return &kind{
		Resource: table.Resource,
		create: func(v neutron.Values) error {
			_, err := ops.Create(w.ctx, administrator(), []neutron.Values{v})
			return err
		},
		update: func(id string, v neutron.Values) error {
			_, err := ops.Update(w.ctx, administrator(), id, v, nil)
			return err
		},
		remove: func(id string) error { return ops.Delete(w.ctx, administrator(), id, nil) },
		show: func(id string) (map[string]any, error) {
			o, err := ops.Show(w.ctx, administrator(), id)
			if err != nil {
				return nil, err
			}
			n, err := parseText(table.Encoder(true, nil).Append(nil, o))
			if err != nil {
				return nil, err
			}
			answer, err := n.anyObject()
			return answer.fields, err
		},
	}
}

// replaceRules gives a group other rules.
func (w *world) replaceRules(group string, rules []neutron.Values) error {
	g, err := w.service.SecurityGroups().Show(w.ctx, administrator(), group)
	if err != nil {
		return err
	}
	for _, r := range g.Rules {
		if err := w.service.SecurityGroupRules().Delete(w.ctx, administrator(), r.ID, nil); err != nil {
			return err
		}
	}
	if len(rules) == 0 {
		return nil
	}
	_, err = w.service.SecurityGroupRules().Create(w.ctx, administrator(), rules)
	return err
}

// bundles returns what each object means to packets.
func (w *world) bundles() ([]*schema.Bundle, error) {
	snap, err := w.db.View(w.ctx)
	if err != nil {
		return nil, err
	}
	var bundles []*schema.Bundle
	for b := range schema.Bundles.All(snap) {
		bundles = append(bundles, b)
	}
	return bundles, nil
}

// hosts returns the hosts in order of ids, each with the tunnel addresses that it reports.
func (w *world) hosts() ([]topology.Host, error) {
	snap, err := w.db.View(w.ctx)
	if err != nil {
		return nil, err
	}
	var hosts []topology.Host
	for h := range schema.Hosts.All(snap) {
		if reached, ok := schema.HostWithTunnels(snap, h.ID); ok {
			hosts = append(hosts, *reached)
		}
	}
	return hosts, nil
}

// topology is the linked view of all that is there.
func (w *world) topology() (*topology.View, error) {
	owned, err := w.bundles()
	if err != nil {
		return nil, err
	}
	hosts, err := w.hosts()
	if err != nil {
		return nil, err
	}
	bundles := make([]topology.Bundle, len(owned))
	for i, b := range owned {
		bundles[i] = b.Bundle
	}
	view := topology.Link(bundles, hosts, nil)
	return view, w.addPasswords(view)
}

// addPasswords gives BGP peers the passwords of the model, which stored bundles lack.
func (w *world) addPasswords(view *topology.View) error {
	snap, err := w.db.View(w.ctx)
	if err != nil {
		return err
	}
	for id, p := range view.BgpPeers {
		if peer, ok := schema.BGPPeers.Peek(snap, id); ok {
			p.Password = peer.Password
		}
	}
	return nil
}

// bornAt stands for the time of the i-th step: objects are ordered by it.
func bornAt(i int) time.Time { return time.Unix(int64(i), 0).UTC() }

// refuse is the error of a step that is not the server's to refuse.
func refuse(k neutron.Kind, format string, args ...any) error {
	return neutron.Errorf(k, "", format, args...)
}

// refusal is the step's error as the output has it.
type refusal struct {
	Kind    string `json:"kind"`
	Message string `json:"message"`
}

// refusalOf returns the refusal that an error of apply is, nil for none; what is no refusal is an
// error of the command.
func refusalOf(err error) (*refusal, error) {
	var value *FileError
	var refused *neutron.Error
	switch {
	case err == nil:
		return nil, nil
	case errors.As(err, &value):
		return &refusal{Kind: "invalid", Message: err.Error()}, nil
	case !errors.As(err, &refused):
		return nil, err
	}
	r := &refusal{Kind: "invalid", Message: refused.Message}
	switch refused.Kind {
	case neutron.Conflict, neutron.Unavailable:
		r.Kind = "conflict"
	case neutron.NotFound:
		r.Kind = "notFound"
	case neutron.Unsupported:
		r.Kind = "unsupported"
	}
	return r, nil
}
