package console

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"heddle/internal/api/hosts"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology/flow"
)

// StoreMember is a member of the store, as its server reports it.
type StoreMember struct {
	Name    string `json:"name"`
	Leader  bool   `json:"leader"`
	Size    int64  `json:"size"`  // bytes
	Quota   int64  `json:"quota"` // Size at which it accepts nothing more
	Problem string `json:"problem,omitempty"`
	Fix     string `json:"fix,omitempty"`
}

// ClusterMember is a server in a cluster of embedded stores.
type ClusterMember struct {
	Name    string `json:"name"` // "" = it was added and has never run
	PeerURL string `json:"peer_url"`
	Learner bool   `json:"learner"` // it is still copying the store, and has no vote
	Alive   bool   `json:"alive"`   // filled in by the console
	// Since has when this server first saw it as a learner. The zero Time: just now, or never.
	Since time.Time `json:"learner_since,omitzero"`
}

// catchingUp reports whether a member has begun to join a short time ago.
func (m ClusterMember) catchingUp(now time.Time) bool {
	return m.Learner && (m.Since.IsZero() || now.Sub(m.Since) < longestCatchUp)
}

// Certificate is a certificate of this server.
type Certificate struct {
	Name string    `json:"name"`
	End  time.Time `json:"end"`
	// Renewed: Heddle renews it by itself.
	Renewed bool `json:"renewed"`
	// Authority: it signs others, which end with it, and is to be exchanged early.
	Authority bool `json:"authority"`
}

// statusView is the status of all of Heddle: Problems first.
type statusView struct {
	Problems     []problem       `json:"problems"`
	Servers      []serverView    `json:"servers"`
	Cluster      []ClusterMember `json:"cluster"`
	Store        storeView       `json:"store"`
	Hosts        []hostStatus    `json:"hosts"`
	Ports        portsView       `json:"ports"`
	Certificates []Certificate   `json:"certificates"`
	// PhysicalNetworks lists the physical networks that the cloud uses.
	PhysicalNetworks []physicalNetworkView `json:"physical_networks"`
	// Journal is the cause for which the server that answers records no history; "" = it does.
	Journal string `json:"journal,omitempty"`
}

// physicalNetworkView is a physical network that the cloud uses.
type physicalNetworkView struct {
	Name     string   `json:"name"`
	Carriers int      `json:"carriers"` // live hosts that carry it
	Networks []string `json:"networks"` // names, or ids of those without one
}

// problem is something that an operator should mend.
type problem struct {
	What string `json:"what"`
	Fix  string `json:"fix"`
}

type serverView struct {
	Name    string    `json:"name"`
	Role    string    `json:"role"`
	Version string    `json:"version"`
	Started time.Time `json:"started_at"`
	// MissingKey: its file with the key of machines' metadata is missing.
	MissingKey *schema.MissingKey `json:"missing_key,omitempty"`
	// FullDisk: its disk is full, and it accepts no writes.
	FullDisk *schema.FullDisk `json:"full_disk,omitempty"`
}

// storeView is the store's members and its format.
type storeView struct {
	Members []StoreMember `json:"members"`
	Written int           `json:"written"` // format in use
	Newest  int           `json:"newest"`  // newest that a member writes
}

// hostStatus is a host, with what its agent reports if it does.
type hostStatus struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Alive    bool   `json:"alive"`
	Version  string `json:"version,omitempty"`
	CutOff   string `json:"cut_off,omitempty"` // why it was cut off from the store
	Ports    int    `json:"ports"`             // bound to it
	Overlay  bool   `json:"overlay"`           // its agent can report
	Answered bool   `json:"answered"`          // the agent reported what follows
	Unasked  string `json:"unasked,omitempty"` // why this server could not ask it
	// Displaced has the tunnel addresses of agents that yield to this one: they have its host's
	// identity, too.
	Displaced []netip.Addr `json:"displaced,omitempty"`
	Ahead     *int64       `json:"ahead_ms,omitempty"` // its clock, of this server's; nil within the time that the answer took
	*flow.HostReport
}

// portsView counts the ports that belong to machines of virtual networks.
type portsView struct {
	Bound   int        `json:"bound"` // to a host, and up by their owner's will
	Active  int        `json:"active"`
	Down    []portView `json:"down"`    // no interface yet, or the host is down
	Failing []portView `json:"failing"` // not attached, though the interface is there
	// BindingFailed has the ports that name a host that has not joined.
	BindingFailed []portView `json:"binding_failed"`
}

type portView struct {
	ID     string `json:"id"`
	Name   string `json:"name"` // or the first address
	Host   string `json:"host"`
	Reason string `json:"reason,omitempty"`
}

// status answers with the status of servers, store, hosts and ports, and what is wrong with them.
func (c *console) status(r *http.Request) (*statusView, error) {
	snap, err := c.DB.View(r.Context())
	if err != nil {
		return nil, err
	}
	v, err := c.findStatus(r.Context(), snap)
	if err != nil {
		return nil, err
	}
	return v, nil
}

// findStatus returns the status. Agents are asked for their part.
func (c *console) findStatus(ctx context.Context, snap *records.Snap) (*statusView, error) {
	known, err := c.hostsOf(ctx, snap)
	if err != nil {
		return nil, err
	}
	v := &statusView{Servers: servers(snap), Cluster: []ClusterMember{}, Hosts: known, Certificates: []Certificate{}}
	found, _, err := schema.ReadFormat(ctx, c.DB.Store())
	if err != nil {
		return nil, err
	}
	v.Store = storeView{Members: []StoreMember{}, Written: found.Written, Newest: schema.NewestFormat(found, schema.Members(snap))}
	if c.Cluster != nil {
		members, err := c.Cluster(ctx)
		if err != nil {
			return nil, err
		}
		v.addCluster(members)
	}
	if c.StoreMembers != nil {
		if v.Store.Members, err = c.StoreMembers(ctx); err != nil {
			return nil, err
		}
	}
	if c.Certificates != nil {
		v.Certificates = append(v.Certificates, c.Certificates()...)
	}
	if c.Journal != nil {
		v.Journal = c.Journal.Problem()
	}
	c.askHosts(ctx, v.Hosts)
	v.Ports = ports(snap, v.Hosts)
	v.PhysicalNetworks = physicalNetworks(snap)
	v.Problems = v.findProblems(time.Now())
	return v, nil
}

// addCluster adds the members of the cluster, and whether the server of each is alive.
func (v *statusView) addCluster(members []ClusterMember) {
	for _, m := range members {
		m.Alive = serves(v.Servers, m.Name)
		v.Cluster = append(v.Cluster, m)
	}
}

// serves reports whether one of the live servers is that of the cluster's member with a name.
func serves(up []serverView, name string) bool {
	return slices.ContainsFunc(up, func(s serverView) bool { return s.Role == "serve" && s.Name == name })
}

// servers returns the live servers. One that was killed and started again has left records whose
// leases have not ended: the latest counts.
func servers(r records.Reader) []serverView {
	type place struct{ role, name, urls string }
	latest := map[place]*schema.Server{}
	for s := range schema.Servers.All(r) {
		at := place{s.Role, s.Name, strings.Join(s.URLs, " ")}
		if known := latest[at]; known == nil || known.StartedAt.Before(s.StartedAt) {
			latest[at] = s
		}
	}
	all := []serverView{}
	for _, s := range latest {
		all = append(all, serverView{s.Name, s.Role, s.Version, s.StartedAt, s.MissingKey, s.FullDisk})
	}
	slices.SortFunc(all, func(a, b serverView) int {
		return cmp.Or(strings.Compare(a.Role, b.Role), strings.Compare(a.Name, b.Name), a.Started.Compare(b.Started))
	})
	return all
}

// hostsOf returns the hosts that have joined.
func (c *console) hostsOf(ctx context.Context, r records.Reader) ([]hostStatus, error) {
	displaced := map[string][]netip.Addr{}
	for d := range schema.DisplacedAgents.All(r) {
		displaced[d.HostID] = append(displaced[d.HostID], d.TunnelIP)
	}
	cutOff := map[string]string{}
	for c := range hosts.CutOffs(r) {
		cutOff[c.HostID] = c.Reason
	}
	all := []hostStatus{}
	for h := range schema.Hosts.All(r) {
		s := hostStatus{ID: h.ID, Name: h.Name, CutOff: cutOff[h.ID], Ports: schema.Ports.CountBy(r, "bound_host", h.ID), Displaced: displaced[h.ID]}
		if state, ok := schema.HostStates.Peek(r, h.ID); ok {
			s.Alive, s.Version, s.Overlay = true, state.Version, slices.Contains(state.Roles, "overlay")
		} else if state, ok := schema.PoolHosts.Peek(r, schema.XenRef(h.ID)); ok {
			s.Alive, s.Version = true, state.Version
		} else {
			var err error
			if s.Alive, err = schema.PolicyAlive(ctx, c.DB.Store(), r, h); err != nil {
				return nil, err
			}
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b hostStatus) int { return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID)) })
	return all, nil
}

// physicalNetworks returns the physical networks that networks are on.
func physicalNetworks(r records.Reader) []physicalNetworkView {
	users := map[string][]string{}
	for n := range schema.Networks.All(r) {
		if n.PhysicalNetwork != "" {
			users[n.PhysicalNetwork] = append(users[n.PhysicalNetwork], cmp.Or(n.Name, n.ID))
		}
	}
	carriers, all := schema.Carriers(r), []physicalNetworkView{}
	for _, name := range slices.Sorted(maps.Keys(users)) {
		slices.Sort(users[name])
		all = append(all, physicalNetworkView{name, carriers[name], users[name]})
	}
	return all
}

// mostAsked bounds the agents that are asked at the same time.
const mostAsked = 64

// askHosts fills in what the agents of live hosts report.
func (c *console) askHosts(ctx context.Context, hosts []hostStatus) {
	free := make(chan struct{}, mostAsked)
	var asking sync.WaitGroup
	for i := range hosts {
		if !hosts[i].Alive || !hosts[i].Overlay {
			continue
		}
		free <- struct{}{}
		asking.Go(func() {
			c.askHost(ctx, &hosts[i])
			<-free
		})
	}
	asking.Wait()
}

func (c *console) askHost(ctx context.Context, h *hostStatus) {
	asked := time.Now()
	answer, err := c.ask(ctx, flow.TraceRequest{HostID: h.ID, Report: true}, c.TraceWait)
	if err != nil || answer == nil || answer.Report == nil {
		c.Log.Warn("no report of a host", "host", h.Name, "err", err)
		if errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrUnavailable) {
			h.Unasked = err.Error()
		}
		return
	}
	h.Answered, h.HostReport = true, answer.Report
	h.Ahead = ahead(h.Time, asked, time.Now())
}

// ahead returns by how many milliseconds a clock that was read between two times of ours is ahead
// of ours, at the least; nil if it may be right.
func ahead(read, from, to time.Time) *int64 {
	var by time.Duration
	switch {
	case read.After(to):
		by = read.Sub(to)
	case read.Before(from):
		by = read.Sub(from)
	default:
		return nil
	}
	ms := by.Milliseconds()
	return &ms
}

// ports sorts the ports of virtual networks that are bound and should be up.
func ports(r records.Reader, hosts []hostStatus) portsView {
	v := portsView{Down: []portView{}, Failing: []portView{}, BindingFailed: []portView{}}
	byID := map[string]*hostStatus{}
	for i := range hosts {
		byID[hosts[i].ID] = &hosts[i]
	}
	joined := map[string]bool{}
	for _, h := range hosts {
		joined[h.Name] = true
	}
	for p := range schema.Ports.All(r) {
		if bindingFailed(p) && !joined[p.HostID] {
			v.BindingFailed = append(v.BindingFailed, portView{ID: p.ID, Name: portName(p), Host: p.HostID})
		}
		host := byID[p.BoundHostID]
		if network, ok := schema.Networks.Peek(r, p.NetworkID); host == nil || !p.AdminStateUp || !ok || network.Routed() {
			continue
		}
		v.Bound++
		one := portView{ID: p.ID, Name: portName(p), Host: host.Name}
		if host.HostReport != nil && host.Failing[p.ID] != "" {
			one.Reason = host.Failing[p.ID]
			v.Failing = append(v.Failing, one)
		} else if _, active := schema.PortStates.Peek(r, host.ID+"/"+p.ID); active {
			v.Active++
		} else {
			v.Down = append(v.Down, one)
		}
	}
	for _, list := range [][]portView{v.Down, v.Failing, v.BindingFailed} {
		slices.SortFunc(list, func(a, b portView) int { return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID)) })
	}
	return v
}

// bindingFailed reports whether a port that names a host is bound to none. Subports follow their
// parents, which are counted.
func bindingFailed(p *neutron.Port) bool {
	return p.HostID != "" && p.BoundHostID == "" && p.Profile != nil && p.SubportVLAN == 0
}

func portName(p *neutron.Port) string {
	if p.Name == "" && len(p.FixedIPs) > 0 {
		return p.FixedIPs[0].IPAddress.String()
	}
	return cmp.Or(p.Name, p.ID)
}
