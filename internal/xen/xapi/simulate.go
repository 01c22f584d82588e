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

// Simulation serves pools whose hosts exist in a file alone, for testing clients: everything
// answers as on a real pool, and what is asked of a host has worked at once. It is a task,
// ready when all pools answer.
type Simulation struct {
	task.Part
	log   *slog.Logger
	now   func() time.Time
	pools []*poolOfFile

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

// NewSimulation reads a file of pools (docs/xenapi.md). A nil log logs nothing.
func NewSimulation(file []byte, log *slog.Logger) (*Simulation, error) {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	pools, err := parseSimulated(file)
	if err != nil {
		return nil, err
	}
	s := &Simulation{Part: task.NewPart("simulation"), log: log, now: time.Now, tokens: map[string]*poolOfFile{}, asleep: map[string]*objects.HostReport{},
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
		parts = append(parts, p.server, s.hosts(p), serveHTTP(listener, p.server.Handler()), p.server.Polls())
	}
	return task.Run(ctx, append(parts, task.New("simulated pools", func(ctx context.Context, ready func()) error {
		s.BeReady()
		ready()
		<-ctx.Done()
		return nil
	}))...)
}

// serveHTTP returns a part that serves HTTP.
func serveHTTP(listener net.Listener, handler http.Handler) task.Task {
	return task.New("HTTP at "+listener.Addr().String(), func(ctx context.Context, ready func()) error {
		server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
		failed := make(chan error, 1)
		go func() { failed <- server.Serve(listener) }()
		ready()
		select {
		case err := <-failed:
			return err
		case <-ctx.Done():
		}
		over, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(over) != nil {
			_ = server.Close() // clients that keep their connections busy do not keep the process
		}
		<-failed
		return nil
	})
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

// setLive has a host begin or cease to report. One that begins has started again.
func (s *Simulation) setLive(ctx context.Context, from *poolOfFile, ref string, live bool) error {
	return from.server.update(ctx, changing(func(p *pool) {
		report, reports := objects.HostReports.Peek(p, ref)
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case reports == live:
		case live:
			again := *s.asleep[ref]
			again.Started = s.now()
			putRecord(p, objects.HostReports, &again)
		default:
			s.asleep[ref] = report
			p.silence(ref)
		}
	}))
}

// silence deletes all that a host reports.
func (p *pool) silence(ref string) {
	discard(p, objects.HostReports, ref)
	for b := range objects.BridgeReports.By(p, "host", ref) {
		discard(p, objects.BridgeReports, ref+"/"+b.Bridge.Name)
	}
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

// urlOf returns the URL of the pool with a host of this address; "" if no pool of the file has one.
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
	return p.server.update(ctx, changing(func(p *pool) { p.silence(ref) }))
}

// hosts returns a part that plays a pool's hosts: they report, and carry out every order at once.
func (s *Simulation) hosts(p *poolOfFile) task.Task {
	return task.New("hosts of pool "+p.file.Name, func(ctx context.Context, ready func()) error {
		if err := s.build(ctx, p); err != nil {
			return err
		}
		ready()
		for {
			rung := p.server.bell.Next()
			if err := s.answer(ctx, p); err != nil && ctx.Err() == nil {
				return err
			}
			select {
			case <-rung:
			case <-ctx.Done():
				return nil
			}
		}
	})
}

// answer has every live host of a pool report the bridges that it should have, and join another
// pool if it is ordered to.
func (s *Simulation) answer(ctx context.Context, p *poolOfFile) error {
	if err := p.server.update(ctx, changing(reportBridges)); err != nil {
		return err
	}
	for o := range objects.Orders.All(p.server.now()) {
		if _, said := objects.OrderReports.Peek(p.server.now(), o.Host+"/"+o.ID); o.Join != nil && !said {
			if err := s.move(ctx, p, o); err != nil {
				return err
			}
		}
	}
	return nil
}

// reportBridges has the hosts report the bridges that they should have, and no orders that are
// gone.
func reportBridges(p *pool) {
	due := map[string]*objects.BridgeReport{}
	for host := range objects.HostReports.All(p) {
		desired, orders := objects.Wanted(p, host.Host)
		for _, b := range desired {
			due[host.Host+"/"+b.Name] = &objects.BridgeReport{Host: host.Host, Bridge: b, Orders: orders[b.Name]}
		}
	}
	for there := range objects.BridgeReports.All(p) {
		id := there.Host + "/" + there.Bridge.Name
		if due[id] == nil {
			discard(p, objects.BridgeReports, id)
		} else if same(there, due[id]) {
			delete(due, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(due)) {
		putRecord(p, objects.BridgeReports, due[id])
	}
	for said := range objects.OrderReports.All(p) {
		id := said.Host + "/" + said.ID
		if _, there := objects.Orders.Peek(p, id); !there {
			discard(p, objects.OrderReports, id)
		}
	}
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
		return from.server.update(ctx, changing(func(p *pool) { putRecord(p, objects.OrderReports, answer) }))
	}
	moved := *report
	moved.Started = s.now()
	moved.Interfaces = interfacesOf(from.server.now(), o.Host)
	management := managementOf(from.server.now(), o.Host)
	err := to.server.update(ctx, changing(func(p *pool) {
		putRecord(p, objects.HostReports, &moved)
		p.keepHost(o.Host, "", s.now())
		for _, pif := range by(p, "PIF", "host", o.Host) {
			p.renew(pif, model.Record{"management": management != nil && deviceOf(pif) == deviceOf(management)})
		}
	}))
	if err != nil {
		return err
	}
	s.at(report.Name, o.Host, to)
	return from.server.update(ctx, changing(func(p *pool) {
		p.silence(o.Host)
		putRecord(p, objects.OrderReports, answer)
	}))
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

// build makes a pool's objects from its file.
func (s *Simulation) build(ctx context.Context, to *poolOfFile) error {
	hash, err := hashPassword(to.file.Password)
	if err != nil {
		return fmt.Errorf("pool %s: password: %w", to.file.Name, err)
	}
	refs := newRefs(to.file)
	err = to.server.update(ctx, changing(func(p *pool) { s.buildPool(p, to.file, hash, refs) }))
	for name, ref := range refs {
		s.at(name, ref, to)
	}
	return err
}

// newRefs returns references for a pool's hosts, by name.
func newRefs(p simulatedPool) map[string]string {
	refs := map[string]string{}
	for _, h := range p.Hosts {
		refs[h.Name] = refPrefix + newUUID()
	}
	return refs
}

func (s *Simulation) buildPool(p *pool, file simulatedPool, hash string, refs map[string]string) {
	p.fail(putAccount(p.tx, RootAccount, hash, model.PoolAdmin))
	p.edit(p.own(), model.Record{"name_label": file.Name})
	for _, h := range file.Hosts {
		if p.err != nil {
			return
		}
		if s.buildHost(p, h, refs[h.Name]); p.err != nil {
			p.err = fmt.Errorf("host %s: %w", h.Name, p.err)
		}
	}
	for _, vm := range file.VMs {
		fields := model.Record{"name_label": vm.Name, "power_state": vm.PowerState}
		host := refs[cmp.Or(vm.Host, file.Hosts[0].Name)]
		switch {
		case vm.PowerState == "Running" || vm.PowerState == "Paused":
			fields["resident_on"], fields["domid"] = host, p.freeDomain(host)
		case vm.Host != "":
			fields["affinity"] = host
		}
		p.put(newObject("VM", fields))
	}
	p.edit(p.own(), model.Record{"ha_enabled": file.HA})
}

// buildHost makes a host and its PIFs.
func (s *Simulation) buildHost(p *pool, h simulatedHost, ref string) {
	report := &objects.HostReport{Host: ref, ID: strings.TrimPrefix(ref, refPrefix), Name: h.Name, Address: h.Address, Backend: h.Backend, Version: "simulated", Started: s.now(),
		Memory: [2]int64{simulatedMemory, simulatedMemory / 2}, Can: []string{objects.CanVLAN, objects.CanJoin, objects.Imagined}}
	for _, pif := range h.PIFs {
		report.Interfaces = append(report.Interfaces, objects.Interface{Device: pif.Device, VLAN: pif.VLAN, Members: pif.BondSlaves, MAC: strings.ToLower(pif.MAC), MTU: defaultMTU,
			Bridge: p.namedNetwork(pif), Carrier: true, Speed: simulatedSpeed, Duplex: true, Physical: pif.VLAN == 0 && len(pif.BondSlaves) == 0, Mode: pif.Mode, IP: pif.IP, Netmask: pif.Netmask, Gateway: pif.Gateway})
	}
	putRecord(p, objects.HostReports, report)
	p.keepHost(ref, "", s.now())
	for _, pif := range h.PIFs {
		device := hostDevice(ref, pif.Device)
		if pif.VLAN > 0 {
			device = fmt.Sprintf("%s/%s/%d", ref, pif.Device, pif.VLAN)
		}
		made := first(p, "PIF", "host_device", device)
		if made == nil {
			p.fail(errors.New("PIF " + pif.Device + " was not made"))
			return
		}
		p.renew(made, model.Record{"management": pif.Management, "currently_attached": pif.Attached == nil || *pif.Attached})
	}
	if h.Live != nil && !*h.Live {
		s.mu.Lock()
		s.asleep[ref] = report
		s.mu.Unlock()
		p.silence(ref)
	}
}

// namedNetwork returns the bridge of a PIF's network, which is made when it is first named.
func (p *pool) namedNetwork(pif simulatedPIF) string {
	if pif.Network == "" {
		return pif.Bridge
	}
	if n := first(p, "network", "name_label", pif.Network); n != nil {
		return n.Text("bridge")
	}
	bridge := pif.Bridge
	if bridge == "" && pif.VLAN == 0 && len(pif.BondSlaves) == 0 {
		bridge = bridgeOf(pif.Device)
	}
	if taken := first(p, "network", "bridge", bridge); bridge == "" || taken != nil && pif.Bridge == "" {
		bridge = p.freeBridge()
	}
	p.put(newObject("network", model.Record{"name_label": pif.Network, "bridge": bridge}))
	return bridge
}
