package bgp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"syscall"
	"time"

	api "github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"heddle/internal/bgp/plan"
)

const (
	standardPort = 179
	// multihopTTL lets sessions reach peers behind routers (spec §12).
	multihopTTL = 255
	// addPathMax bounds the paths to one destination that are sent to a peer with ADD-PATH.
	addPathMax = 8
	// deferral bounds the time for which a restarting speaker delays its exports until its peers
	// have announced all, so that its End-of-RIB includes what it passes on. Another gobgp opens a
	// session again after 5 s.
	deferral = 10 * time.Second
	// lookUp bounds the destinations that are looked up at once; sessions wait meanwhile.
	lookUp = 256
)

// speakerOptions hold the common settings of sessions.
type speakerOptions struct {
	port                  uint16
	holdTime, restartTime time.Duration
	log                   *slog.Logger
}

// speaker wraps gobgp: it carries out plans, and collects events of peers. Its methods but the
// callbacks are called from one goroutine.
type speaker struct {
	opts speakerOptions
	*events[peerStatus]

	server    *server.BgpServer // nil while it does not run
	log       *quiet            // of the server
	stopWatch context.CancelFunc
	settings  settings
	sessions  map[netip.Addr]plan.Session
	export    map[plan.Family]plan.Filter
	announced map[netip.Prefix]bool
}

// settings are fixed while the speaker runs.
type settings struct {
	asNumber  uint32
	routerID  netip.Addr
	addresses []netip.Addr
}

// peerStatus is the state of a session.
type peerStatus struct {
	up     bool
	reason string // why it is not up, if that is known
}

func newSpeaker(o speakerOptions) *speaker {
	return &speaker{opts: o, events: newEvents(func(e *apiutil.WatchEventMessage_PeerEvent, _ peerStatus) peerStatus {
		return peerStatus{up: e.Peer.State.SessionState == bgp.BGP_FSM_ESTABLISHED, reason: e.Peer.State.DisconnectMessage}
	})}
}

// start starts a speaker without sessions. If it fails nothing runs.
func (s *speaker) start(ctx context.Context, want settings) error {
	listen := make([]string, len(want.addresses))
	for i, a := range want.addresses {
		listen[i] = a.String()
	}
	s.log = newQuiet(s.opts.log)
	s.server = server.NewBgpServer(server.LoggerOption(slog.New(s.log), nil))
	s.settings, s.sessions, s.export, s.announced = want, map[netip.Addr]plan.Session{}, nil, map[netip.Prefix]bool{}
	go s.server.Serve()
	port := int32(s.opts.port)
	if len(listen) == 0 {
		port = -1 // no address is its own, so it has no sessions
	}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stopWatch = stop
	err := s.server.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{Asn: want.asNumber, RouterId: want.routerID.String(),
		ListenPort: port, ListenAddresses: listen, UseMultiplePaths: true}})
	if err == nil {
		err = s.server.SetPolicies(ctx, policies(nil))
	}
	if err == nil {
		err = s.server.SetPolicyAssignment(ctx, assignment())
	}
	if err == nil {
		err = s.server.WatchEvent(watching, s.events.callbacks(),
			server.WatchPeer(), server.WatchBestPath(true), server.WatchEor(true))
	}
	if err == nil {
		return nil
	}
	s.stop(ctx)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("start BGP: %w: stop the other BGP speaker of this host, or give another port on all hosts (--bgp-port)", err)
	}
	return fmt.Errorf("start BGP on %v port %d: %w", listen, s.opts.port, err)
}

// stop ends the speaker. Peers with graceful restart keep its routes for the restart time.
func (s *speaker) stop(ctx context.Context) {
	if s.server == nil {
		return
	}
	s.stopWatch()
	if err := s.server.StopBgp(ctx, &api.StopBgpRequest{AllowGracefulRestart: true}); err != nil {
		s.opts.log.Warn("the speaker did not stop as it should", "err", err)
	}
	s.log.mute()
	s.server.Stop() // its other parts; it complains that BGP has stopped already
	s.server = nil
	s.events.end()
}

// apply sets the plan's filters and sessions. restarting announces to new peers that this host
// still forwards by the routes of an earlier life. Unchanged sessions go on.
func (s *speaker) apply(ctx context.Context, p *plan.Plan, restarting bool) error {
	s.log.show(p.Debug, p.Verbose)
	var errs []error
	if !reflect.DeepEqual(s.export, p.Export) {
		if err := s.filter(ctx, p.Export); err != nil {
			errs = append(errs, err)
		}
	}
	wanted := map[netip.Addr]plan.Session{}
	for _, w := range p.Sessions {
		wanted[w.Peer] = w
	}
	for _, peer := range slices.SortedFunc(maps.Keys(s.sessions), netip.Addr.Compare) {
		if !same(wanted[peer], s.sessions[peer]) {
			errs = append(errs, s.remove(ctx, peer))
		}
	}
	for _, w := range p.Sessions {
		if _, there := s.sessions[w.Peer]; !there {
			errs = append(errs, s.add(ctx, w, restarting))
		} else {
			s.sessions[w.Peer] = w // its origin may differ
		}
	}
	return errors.Join(errs...)
}

// same reports whether a session can go on as it is.
func same(a, b plan.Session) bool {
	return a.Peer == b.Peer && a.Local == b.Local && a.ASNumber == b.ASNumber && a.Passive == b.Passive &&
		(a.Origin == plan.Mesh) == (b.Origin == plan.Mesh)
}

// filter sets the export filters, and sends peers the difference.
func (s *speaker) filter(ctx context.Context, export map[plan.Family]plan.Filter) error {
	err := s.server.SetPolicies(ctx, policies(export))
	if err == nil {
		err = s.server.ResetPeer(ctx, &api.ResetPeerRequest{Address: "all", Soft: true, Direction: api.ResetPeerRequest_DIRECTION_OUT})
	}
	if err != nil {
		return fmt.Errorf("set export filter: %w", err)
	}
	s.export = export
	return nil
}

// remove ends a session. The peer withdraws what it has learned.
func (s *speaker) remove(ctx context.Context, peer netip.Addr) error {
	err := endSessions(s.opts.port, func() error {
		return s.server.DeletePeer(ctx, &api.DeletePeerRequest{Address: peer.String()})
	}, peer)
	if err != nil {
		return fmt.Errorf("end session with %s: %w", peer, err)
	}
	delete(s.sessions, peer)
	s.opts.log.Info("session removed", "peer", peer)
	return nil
}

func (s *speaker) add(ctx context.Context, w plan.Session, restarting bool) error {
	if err := s.server.AddPeer(ctx, &api.AddPeerRequest{Peer: s.peer(w, restarting)}); err != nil {
		return fmt.Errorf("open session with %s: %w", w.Peer, err)
	}
	s.sessions[w.Peer] = w
	s.opts.log.Info("session added", "peer", w.Peer, "as", w.ASNumber, "from", w.Local, "origin", w.Origin.String())
	return nil
}

// peer translates a session for gobgp.
func (s *speaker) peer(w plan.Session, restarting bool) *api.Peer {
	port := uint32(standardPort)
	if w.Origin == plan.Mesh {
		port = uint32(s.opts.port) // other hosts listen where this one does
	}
	hold := uint64(s.opts.holdTime / time.Second)
	family := &api.Family{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST}
	if w.Peer.Is6() {
		family.Afi = api.Family_AFI_IP6
	}
	return &api.Peer{
		Conf:         &api.PeerConf{NeighborAddress: w.Peer.String(), PeerAsn: w.ASNumber},
		Transport:    &api.Transport{LocalAddress: w.Local.String(), RemotePort: port, PassiveMode: w.Passive},
		EbgpMultihop: &api.EbgpMultihop{Enabled: true, MultihopTtl: multihopTTL},
		Timers: &api.Timers{Config: &api.TimersConfig{ConnectRetry: 2, HoldTime: hold, KeepaliveInterval: max(1, hold/3),
			IdleHoldTimeAfterReset: 1}},
		GracefulRestart: &api.GracefulRestart{Enabled: true, RestartTime: uint32(s.opts.restartTime / time.Second),
			DeferralTime: uint32(deferral / time.Second), LocalRestarting: restarting},
		AfiSafis: []*api.AfiSafi{{
			Config:            &api.AfiSafiConfig{Family: family, Enabled: true},
			MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: true}},
			AddPaths:          &api.AddPaths{Config: &api.AddPathsConfig{Receive: true, SendMax: addPathMax}},
		}},
	}
}

// announce announces the destinations with true as this host's own, as far as the filters accept
// them. Those with false are for withdraw: where one route replaces another, the new one comes
// first.
func (s *speaker) announce(desired map[netip.Prefix]bool) error {
	paths := s.pathsTo(desired, true)
	if len(paths) == 0 {
		return nil
	}
	if _, err := s.server.AddPath(apiutil.AddPathRequest{Paths: paths}); err != nil {
		return fmt.Errorf("announce %d routes: %w", len(paths), err)
	}
	for _, p := range paths {
		s.announced[prefixOf(p)] = true
	}
	return nil
}

// withdraw withdraws the destinations with false.
func (s *speaker) withdraw(desired map[netip.Prefix]bool) error {
	paths := s.pathsTo(desired, false)
	if len(paths) == 0 {
		return nil
	}
	if err := s.server.DeletePath(apiutil.DeletePathRequest{Paths: paths}); err != nil {
		return fmt.Errorf("withdraw %d routes: %w", len(paths), err)
	}
	for _, p := range paths {
		delete(s.announced, prefixOf(p))
	}
	return nil
}

// pathsTo returns the paths to announce or to withdraw. Without an address of this host in the
// family of a destination there is none: no peer could use it.
func (s *speaker) pathsTo(desired map[netip.Prefix]bool, announce bool) (paths []*apiutil.Path) {
	for dst, want := range desired {
		if want == announce && s.announced[dst] != announce && s.ownAddress(dst).IsValid() {
			paths = append(paths, s.own(dst))
		}
	}
	return paths
}

// ownAddress returns this host's address in a destination's family.
func (s *speaker) ownAddress(dst netip.Prefix) netip.Addr {
	for _, a := range s.settings.addresses {
		if a.Is4() == dst.Addr().Is4() {
			return a
		}
	}
	return netip.Addr{}
}

// own returns a path to a destination of this host.
func (s *speaker) own(dst netip.Prefix) *apiutil.Path {
	nlri := &bgp.IPAddrPrefix{IPAddrPrefixDefault: bgp.IPAddrPrefixDefault{Prefix: dst}}
	p := &apiutil.Path{Family: familyOf(dst), Nlri: nlri, Attrs: []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP)}}
	hop := s.ownAddress(dst)
	// The errors below are for invalid addresses and empty lists.
	if dst.Addr().Is4() {
		if a, err := bgp.NewPathAttributeNextHop(hop); err == nil {
			p.Attrs = append(p.Attrs, a)
		}
	} else if a, err := bgp.NewPathAttributeMpReachNLRI(p.Family, []bgp.PathNLRI{{NLRI: nlri}}, hop); err == nil {
		p.Attrs = append(p.Attrs, a)
	}
	return p
}

func familyOf(dst netip.Prefix) bgp.Family {
	if dst.Addr().Is4() {
		return bgp.RF_IPv4_UC
	}
	return bgp.RF_IPv6_UC
}

// prefixOf returns the destination of a path, the zero Prefix for one that is no unicast route.
func prefixOf(p *apiutil.Path) netip.Prefix {
	if n, ok := p.Nlri.(*bgp.IPAddrPrefix); ok {
		return n.Prefix
	}
	return netip.Prefix{}
}

// learned returns the next hops of the destinations in order; none for those of this host and those
// without a path.
func (s *speaker) learned(destinations []netip.Prefix) (map[netip.Prefix][]netip.Addr, error) {
	found := map[netip.Prefix][]netip.Addr{}
	byFamily := map[bgp.Family][]*apiutil.LookupPrefix{}
	for _, dst := range destinations {
		byFamily[familyOf(dst)] = append(byFamily[familyOf(dst)], &apiutil.LookupPrefix{Prefix: dst.String()})
	}
	for family, all := range byFamily {
		for some := range slices.Chunk(all, lookUp) {
			err := s.server.ListPath(apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: family, Prefixes: some},
				func(_ bgp.NLRI, paths []*apiutil.Path) {
					if len(paths) > 0 {
						found[prefixOf(paths[0])] = nextHops(paths)
					}
				})
			if err != nil {
				return nil, fmt.Errorf("look up routes: %w", err)
			}
		}
	}
	return found, nil
}

// nextHops returns those of the best paths, each once. Paths of this host's own need none.
func nextHops(paths []*apiutil.Path) []netip.Addr {
	var hops []netip.Addr
	for _, p := range paths {
		if !p.Best {
			continue
		}
		if !p.PeerAddress.IsValid() || p.PeerAddress.IsUnspecified() {
			return nil
		}
		if hop := nextHop(p); hop.IsValid() && !slices.Contains(hops, hop) {
			hops = append(hops, hop)
		}
	}
	slices.SortFunc(hops, netip.Addr.Compare)
	return hops
}

func nextHop(p *apiutil.Path) netip.Addr {
	for _, a := range p.Attrs {
		switch a := a.(type) {
		case *bgp.PathAttributeNextHop:
			return a.Value
		case *bgp.PathAttributeMpReachNLRI:
			return a.Nexthop
		}
	}
	return netip.Addr{}
}
