package xapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/task"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// Simulation serves pools whose hosts exist in a file alone, for testing clients: everything answers as on a real pool,
// and what is asked of a host has worked at once. It is a task.
type Simulation struct {
	log   *slog.Logger
	now   func() time.Time
	pools []*poolOfFile
	ready chan struct{}

	mu     sync.Mutex
	tokens map[string]*poolOfFile            // with which a host may join a pool
	asleep map[string]*objects.HostReport    // of dead hosts, by ref: what they will report when they live again
	homes  map[string]map[string]*poolOfFile // by a host's name and its ref, where it is
}

// poolOfFile is one pool: a server over a store in memory, and the hosts that answer it.
type poolOfFile struct {
	file   simulatedPool
	server *Server
	url    string
}

// SimulatedPool says where a pool answers.
type SimulatedPool struct{ Name, URL string }

// NewSimulation reads a file of pools (docs/xenapi.md), YAML or JSON; errors name the place. A nil log logs nothing.
func NewSimulation(file []byte, log *slog.Logger) (*Simulation, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	pools, err := parseSimulated(file)
	if err != nil {
		return nil, err
	}
	s := &Simulation{log: log, now: time.Now, ready: make(chan struct{}), tokens: map[string]*poolOfFile{}, asleep: map[string]*objects.HostReport{},
		homes: map[string]map[string]*poolOfFile{}}
	for _, p := range pools {
		one := &poolOfFile{file: p}
		one.server = New(Options{Store: store.NewMemory(), Log: log.With("pool", p.Name), Hosts: Hosts{
			Invite: func(context.Context, string) (string, error) { return s.invite(one), nil },
			Expel:  func(ctx context.Context, id string) error { return s.expel(ctx, one, id) },
			URL:    s.urlOf,
		}})
		s.pools = append(s.pools, one)
	}
	return s, nil
}

func (s *Simulation) String() string { return "simulation" }

// Ready is closed when all pools answer.
func (s *Simulation) Ready() <-chan struct{} { return s.ready }

// Pools are the pools in the file's order, once they answer.
func (s *Simulation) Pools() []SimulatedPool {
	var all []SimulatedPool
	for _, p := range s.pools {
		all = append(all, SimulatedPool{p.file.Name, p.url})
	}
	return all
}

// Run serves the pools, on loopback addresses, until ctx ends.
func (s *Simulation) Run(ctx context.Context) error {
	var parts []task.Task
	for _, p := range s.pools {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		p.url = "http://" + listener.Addr().String()
		parts = append(parts, p.server, &simulatedHosts{simulation: s, pool: p, ready: make(chan struct{})},
			&httpPart{server: &http.Server{Handler: p.server.Handler(), ReadHeaderTimeout: 10 * time.Second}, listener: listener, ready: make(chan struct{})}, p.server.Polls())
	}
	return task.Run(ctx, append(parts, &answering{s.ready})...)
}

// answering comes after the pools.
type answering struct{ ready chan struct{} }

func (a *answering) String() string         { return "simulated pools" }
func (a *answering) Ready() <-chan struct{} { return a.ready }
func (a *answering) Run(ctx context.Context) error {
	close(a.ready)
	<-ctx.Done()
	return nil
}

// httpPart serves HTTP.
type httpPart struct {
	server   *http.Server
	listener net.Listener
	ready    chan struct{}
}

func (p *httpPart) String() string         { return "HTTP at " + p.listener.Addr().String() }
func (p *httpPart) Ready() <-chan struct{} { return p.ready }
func (p *httpPart) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	go func() { failed <- p.server.Serve(p.listener) }()
	close(p.ready)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	over, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if p.server.Shutdown(over) != nil {
		_ = p.server.Close() // clients that keep their connections busy do not keep the process
	}
	<-failed
	return nil
}

// Control carries out a line of the control file: "host NAME live" or "host NAME dead".
func (s *Simulation) Control(ctx context.Context, line string) error {
	words := strings.Fields(line)
	if len(words) == 0 {
		return nil
	}
	if len(words) != 3 || words[0] != "host" || words[2] != "live" && words[2] != "dead" {
		return fmt.Errorf("%q: want host NAME live|dead", line)
	}
	s.mu.Lock()
	homes := maps.Clone(s.homes[words[1]])
	s.mu.Unlock()
	if len(homes) == 0 {
		return fmt.Errorf("%q: no pool has a host %s", line, words[1])
	}
	for ref, p := range homes {
		if err := s.setLive(ctx, p, ref, words[2] == "live"); err != nil {
			return err
		}
	}
	return nil
}

// setLive has a host begin or cease to report. One that begins has started anew.
func (s *Simulation) setLive(ctx context.Context, p *poolOfFile, ref string, live bool) error {
	return p.server.update(ctx, func(tx *records.Tx) error {
		report, reports := objects.HostReports.Peek(tx, ref)
		switch {
		case reports == live:
			return nil
		case !live:
			s.mu.Lock()
			s.asleep[ref] = report
			s.mu.Unlock()
			return silence(tx, ref)
		}
		s.mu.Lock()
		again := *s.asleep[ref]
		s.mu.Unlock()
		again.Started = s.now()
		return objects.HostReports.Put(tx, &again)
	})
}

// silence takes all away that a host reports.
func silence(tx *records.Tx, ref string) error {
	if _, reports := objects.HostReports.Peek(tx, ref); reports {
		if err := objects.HostReports.Delete(tx, ref); err != nil {
			return err
		}
	}
	for b := range objects.BridgeReports.By(tx, "host", ref) {
		if err := objects.BridgeReports.Delete(tx, ref+"/"+b.Bridge.Name); err != nil {
			return err
		}
	}
	return nil
}

// at notes where a host is; nil: nowhere.
func (s *Simulation) at(name, ref string, p *poolOfFile) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.homes[name] == nil {
		s.homes[name] = map[string]*poolOfFile{}
	}
	if p == nil {
		delete(s.homes[name], ref)
	} else {
		s.homes[name][ref] = p
	}
}

func (s *Simulation) invite(p *poolOfFile) string {
	token := rand.Text()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = p
	return token
}

// urlOf is where a pool answers that is named by the address of one of its hosts; "": no pool of the file has it.
func (s *Simulation) urlOf(address string) string {
	for _, p := range s.pools {
		for h := range objects.Table("host").All(p.server.now()) {
			if h.Text("address") == address {
				return p.url
			}
		}
	}
	return ""
}

// expel silences a host that has left its pool.
func (s *Simulation) expel(ctx context.Context, p *poolOfFile, id string) error {
	ref := refPrefix + id
	s.mu.Lock()
	for name := range s.homes {
		delete(s.homes[name], ref)
	}
	s.mu.Unlock()
	return p.server.update(ctx, func(tx *records.Tx) error { return silence(tx, ref) })
}

// simulatedHosts are the hosts of a pool: they report, and have done whatever is asked of them. It is a task.
type simulatedHosts struct {
	simulation *Simulation
	pool       *poolOfFile
	ready      chan struct{}
}

func (h *simulatedHosts) String() string         { return "hosts of pool " + h.pool.file.Name }
func (h *simulatedHosts) Ready() <-chan struct{} { return h.ready }

func (h *simulatedHosts) Run(ctx context.Context) error {
	if err := h.simulation.build(ctx, h.pool); err != nil {
		return err
	}
	close(h.ready)
	server := h.pool.server
	for {
		rung := server.bell.rung()
		if err := h.answer(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-rung:
		case <-ctx.Done():
			return nil
		}
	}
}

// answer has every live host report the bridges that are wanted of it, and join where it is told to.
func (h *simulatedHosts) answer(ctx context.Context) error {
	server := h.pool.server
	if err := server.update(ctx, reportBridges); err != nil {
		return err
	}
	for o := range objects.Orders.All(server.now()) {
		if _, said := objects.OrderReports.Peek(server.now(), o.Host+"/"+o.ID); o.Join != nil && !said {
			if err := h.simulation.move(ctx, h.pool, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// reportBridges has the reports say what is wanted, and nothing of orders that are gone.
func reportBridges(tx *records.Tx) error {
	due := map[string]*objects.BridgeReport{}
	for host := range objects.HostReports.All(tx) {
		wanted, orders := objects.Wanted(tx, host.Host)
		for _, b := range wanted {
			due[host.Host+"/"+b.Name] = &objects.BridgeReport{Host: host.Host, Bridge: b, Orders: orders[b.Name]}
		}
	}
	for there := range objects.BridgeReports.All(tx) {
		id := there.Host + "/" + there.Bridge.Name
		if due[id] == nil {
			if err := objects.BridgeReports.Delete(tx, id); err != nil {
				return err
			}
		} else if same(there, due[id]) {
			delete(due, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(due)) {
		if err := objects.BridgeReports.Put(tx, due[id]); err != nil {
			return err
		}
	}
	for said := range objects.OrderReports.All(tx) {
		id := said.Host + "/" + said.ID
		if _, there := objects.Orders.Peek(tx, id); !there {
			if err := objects.OrderReports.Delete(tx, id); err != nil {
				return err
			}
		}
	}
	return nil
}

// move takes a host to the pool that its token is for.
func (s *Simulation) move(ctx context.Context, from *poolOfFile, o *objects.Order) error {
	s.mu.Lock()
	to := s.tokens[o.Join.Token]
	delete(s.tokens, o.Join.Token)
	s.mu.Unlock()
	answer := &objects.OrderReport{Host: o.Host, ID: o.ID}
	report, _ := objects.HostReports.Peek(from.server.now(), o.Host)
	if to == nil || report == nil {
		answer.Error = "the join token is used, expired or unknown"
		return from.server.update(ctx, func(tx *records.Tx) error { return objects.OrderReports.Put(tx, answer) })
	}
	moved := *report
	moved.Started = s.now()
	moved.Interfaces = interfacesOf(from.server.now(), o.Host)
	management := managementOf(from.server.now(), o.Host)
	err := to.server.update(ctx, func(tx *records.Tx) error {
		if err := objects.HostReports.Put(tx, &moved); err != nil {
			return err
		}
		if err := keepHost(tx, o.Host, "", s.now()); err != nil {
			return err
		}
		for _, pif := range by(tx, "PIF", "host", o.Host) {
			manages := management != nil && deviceOf(pif) == deviceOf(management)
			if _, err := renew(tx, pif, model.Record{"management": manages}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.at(report.Name, o.Host, to)
	return from.server.update(ctx, func(tx *records.Tx) error {
		if err := silence(tx, o.Host); err != nil {
			return err
		}
		return objects.OrderReports.Put(tx, answer)
	})
}

// interfacesOf are the interfaces of a host that exists in a file alone: what its PIFs say.
func interfacesOf(r records.Reader, host string) []objects.Interface {
	var all []objects.Interface
	for _, pif := range by(r, "PIF", "host", host) {
		if tunnelOf(r, pif.Ref) != nil || pif.Int("VLAN") == 0 {
			continue // a report has no place for VLAN 0
		}
		i := objects.Interface{Device: pif.Text("device"), VLAN: int(max(0, pif.Int("VLAN"))), MAC: pif.Text("MAC"), MTU: int(pif.Int("MTU")), Physical: pif.Bool("physical"),
			Carrier: true, Duplex: true, Speed: simulatedSpeed, Mode: pif.Text("ip_configuration_mode"), IP: pif.Text("IP"), Netmask: pif.Text("netmask"), Gateway: pif.Text("gateway"),
			DNS: pif.Text("DNS"), IPv6Mode: pif.Text("ipv6_configuration_mode")}
		if b := first(r, "Bond", "master", pif.Ref); b != nil {
			for _, m := range by(r, "PIF", "bond_slave_of", b.Ref) {
				i.Members = append(i.Members, m.Text("device"))
			}
			primary := first(r, "PIF", "bond_slave_of", b.Ref)
			if p, ok := objects.Table("PIF").Peek(r, b.Text("primary_slave")); ok {
				primary = p
			}
			slices.SortStableFunc(i.Members, func(a, b string) int {
				return cmp.Compare(rank(a, primary), rank(b, primary))
			})
		}
		all = append(all, i)
	}
	return all
}

// rank has the primary member come first.
func rank(device string, primary *objects.Object) int {
	if device == primary.Text("device") {
		return 0
	}
	return 1
}

const (
	simulatedSpeed  = 10_000 // Mbit/s
	simulatedMemory = 64 << 30
)

// build makes a pool's objects of its file.
func (s *Simulation) build(ctx context.Context, p *poolOfFile) error {
	hash, err := hashPassword(p.file.Password)
	if err != nil {
		return fmt.Errorf("pool %s: password: %w", p.file.Name, err)
	}
	refs := newRefs(p.file)
	err = p.server.update(ctx, func(tx *records.Tx) error { return s.buildPool(tx, p.file, hash, refs) })
	for name, ref := range refs {
		s.at(name, ref, p)
	}
	return err
}

// newRefs are references for a pool's hosts, by name.
func newRefs(p simulatedPool) map[string]string {
	refs := map[string]string{}
	for _, h := range p.Hosts {
		refs[h.Name] = refPrefix + newUUID()
	}
	return refs
}

// buildPool makes a pool's objects; refs are those of its hosts, by name.
func (s *Simulation) buildPool(tx *records.Tx, p simulatedPool, hash string, refs map[string]string) error {
	pool, err := thePool(tx)
	if err != nil {
		return err
	}
	if err := putAccount(tx, RootAccount, hash, model.PoolAdmin); err != nil {
		return err
	}
	if err := put(tx, edited(pool, model.Record{"name_label": p.Name})); err != nil {
		return err
	}
	for _, h := range p.Hosts {
		if err := s.buildHost(tx, h, refs[h.Name]); err != nil {
			return fmt.Errorf("host %s: %w", h.Name, err)
		}
	}
	if err := buildVMs(tx, p, refs); err != nil {
		return err
	}
	if pool, err = thePool(tx); err != nil {
		return err
	}
	return put(tx, edited(pool, model.Record{"ha_enabled": p.HA}))
}

// buildHost makes a host and its PIFs.
func (s *Simulation) buildHost(tx *records.Tx, h simulatedHost, ref string) error {
	report := &objects.HostReport{Host: ref, ID: strings.TrimPrefix(ref, refPrefix), Name: h.Name, Address: h.Address, Backend: h.Backend, Version: "simulated", Started: s.now(),
		Memory: [2]int64{simulatedMemory, simulatedMemory / 2}, Can: []string{objects.CanVLAN, objects.CanJoin, objects.Imagined}}
	for _, pif := range h.PIFs {
		bridge, err := namedNetwork(tx, pif)
		if err != nil {
			return err
		}
		report.Interfaces = append(report.Interfaces, objects.Interface{Device: pif.Device, VLAN: pif.VLAN, Members: pif.BondSlaves, MAC: strings.ToLower(pif.MAC), MTU: defaultMTU,
			Bridge: bridge, Carrier: true, Speed: simulatedSpeed, Duplex: true, Physical: pif.VLAN == 0 && len(pif.BondSlaves) == 0, Mode: pif.Mode, IP: pif.IP, Netmask: pif.Netmask, Gateway: pif.Gateway})
	}
	if err := objects.HostReports.Put(tx, report); err != nil {
		return err
	}
	if err := keepHost(tx, ref, "", s.now()); err != nil {
		return err
	}
	for _, pif := range h.PIFs {
		made := first(tx, "PIF", "host_device", hostDevice(ref, pif.Device))
		if pif.VLAN > 0 {
			made = first(tx, "PIF", "host_device", fmt.Sprintf("%s/%s/%d", ref, pif.Device, pif.VLAN))
		}
		if made == nil {
			return errors.New("PIF " + pif.Device + " was not made")
		}
		attached := pif.Attached == nil || *pif.Attached
		if _, err := renew(tx, made, model.Record{"management": pif.Management, "currently_attached": attached}); err != nil {
			return err
		}
	}
	if h.Live == nil || *h.Live {
		return nil
	}
	s.mu.Lock()
	s.asleep[ref] = report
	s.mu.Unlock()
	return silence(tx, ref)
}

// namedNetwork is the bridge of a PIF's network, which is made when it is first named.
func namedNetwork(tx *records.Tx, pif simulatedPIF) (string, error) {
	if pif.Network == "" {
		return pif.Bridge, nil
	}
	if n := first(tx, "network", "name_label", pif.Network); n != nil {
		return n.Text("bridge"), nil
	}
	bridge := pif.Bridge
	if bridge == "" && pif.VLAN == 0 && len(pif.BondSlaves) == 0 {
		bridge = bridgeOf(pif.Device)
	}
	if taken := first(tx, "network", "bridge", bridge); bridge == "" || taken != nil && pif.Bridge == "" {
		bridge = freeBridge(tx)
	}
	n := newObject("network", model.Record{"name_label": pif.Network, "bridge": bridge})
	return bridge, put(tx, n)
}

func buildVMs(tx *records.Tx, p simulatedPool, refs map[string]string) error {
	for _, vm := range p.VMs {
		fields := model.Record{"name_label": vm.Name, "power_state": vm.PowerState}
		host := refs[cmp.Or(vm.Host, p.Hosts[0].Name)]
		switch {
		case vm.PowerState == "Running" || vm.PowerState == "Paused":
			fields["resident_on"], fields["domid"] = host, freeDomain(tx, host)
		case vm.Host != "":
			fields["affinity"] = host
		}
		if err := put(tx, newObject("VM", fields)); err != nil {
			return err
		}
	}
	return nil
}
