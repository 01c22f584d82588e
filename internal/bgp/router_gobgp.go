package bgp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	api "github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"heddle/internal/topology/routerbgp"
)

// routerBGP is gobgp with the sessions and networks of a router. Its methods but the callbacks are
// of one goroutine.
type routerBGP struct {
	port     uint16
	log      *slog.Logger
	attempts *attempts
	*events[sessionNews]

	server     *server.BgpServer // nil while it does not run
	stopWatch  context.CancelFunc
	asNumber   uint32
	routerID   netip.Addr
	filter     routerFilter
	filters    int           // made so far
	objects    filterObjects // of the filter
	neighbours map[netip.Addr]routerbgp.Neighbour
	announced  map[netip.Prefix]bool
	fresh      map[netip.Addr]bool // neighbours whose sessions have begun anew, until the caller clears it
}

// sessionNews is the state of a session, and why it has ended if it has.
type sessionNews struct{ state, reason string }

func newRouterBGP(o RouterOptions) *routerBGP {
	attempts := newAttempts()
	session := func(e *apiutil.WatchEventMessage_PeerEvent, before sessionNews) sessionNews {
		s := e.Peer.State
		return sessionNews{stateName(s.SessionState), cmp.Or(endOfSession(s.DisconnectReason, s.DisconnectMessage, attempts.takeSame(s.NeighborAddress)), before.reason)}
	}
	return &routerBGP{port: o.Port, log: o.Log, attempts: attempts, events: newEvents(session), fresh: map[netip.Addr]bool{}}
}

// apply makes gobgp as a plan has it. restarted: all sessions have begun anew, since the AS number
// is another.
func (b *routerBGP) apply(ctx context.Context, p *routerbgp.Plan) (restarted bool, err error) {
	if b.server != nil && b.asNumber != p.ASNumber {
		b.stop()
		restarted = true
	}
	if b.server == nil {
		if len(p.Neighbours) == 0 {
			return restarted, nil
		}
		if err := b.start(ctx, p, identifier(p)); err != nil {
			return restarted, err
		}
	}
	// What is announced comes first, so that a new neighbour receives it before the End-of-RIB.
	return restarted, errors.Join(b.setFilter(ctx, newRouterFilter(p)), b.announce(p.Networks), b.setNeighbours(ctx, p))
}

// identifier returns the BGP identifier to start with: the lowest address of the router that a
// session has. It stays while gobgp runs, even when that session goes, as another would end all
// sessions.
func identifier(p *routerbgp.Plan) netip.Addr {
	lowest := p.Neighbours[0].Local
	for _, n := range p.Neighbours[1:] {
		if n.Local.Less(lowest) {
			lowest = n.Local
		}
	}
	return lowest
}

// start starts gobgp without neighbours. If it fails nothing runs.
func (b *routerBGP) start(ctx context.Context, p *routerbgp.Plan, id netip.Addr) (err error) {
	log := slog.New(&attemptLog{Handler: b.log.Handler(), attempts: b.attempts})
	b.server = server.NewBgpServer(server.LoggerOption(log, nil))
	b.asNumber, b.routerID, b.filter, b.objects = p.ASNumber, id, routerFilter{}, filterObjects{}
	b.neighbours, b.announced = map[netip.Addr]routerbgp.Neighbour{}, map[netip.Prefix]bool{}
	go b.server.Serve()
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stopWatch = stop
	defer func() {
		if err != nil {
			b.stop()
			err = fmt.Errorf("start BGP as AS %d, %s: %w", p.ASNumber, id, err)
		}
	}()
	// The namespace is the router's own, so that its addresses may come and go under the listener.
	if err := b.server.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{Asn: p.ASNumber, RouterId: id.String(), ListenPort: int32(b.port),
		ListenAddresses: []string{"0.0.0.0"}, UseMultiplePaths: true}}); err != nil {
		return err
	}
	return b.server.WatchEvent(watching, b.events.callbacks(),
		server.WatchPeer(), server.WatchBestPath(true), server.WatchEor(true))
}

// stop ends all sessions, and tells the neighbours.
func (b *routerBGP) stop() {
	if b.server == nil {
		return
	}
	b.stopWatch()
	end := holdConnections(b.port, slices.Collect(maps.Keys(b.neighbours))...)
	b.server.Stop() // StopBgp before it would make it log an error
	end()
	b.server, b.neighbours, b.announced, b.objects = nil, nil, nil, filterObjects{}
	b.events.end()
}

// setFilter replaces what decides on what is learned and announced. Sessions go on.
func (b *routerBGP) setFilter(ctx context.Context, f routerFilter) error {
	if b.objects.imported != nil && reflect.DeepEqual(b.filter, f) {
		return nil
	}
	b.filters++
	next, last := f.objects(b.filters), b.objects
	// SetPolicies would do it in one call, but takes the subnets of next hops for single addresses.
	for _, set := range next.sets {
		if err := b.server.AddDefinedSet(ctx, &api.AddDefinedSetRequest{DefinedSet: set}); err != nil {
			return fmt.Errorf("set filter: %w", err)
		}
	}
	for _, p := range []*api.Policy{next.imported, next.announced} {
		if err := b.server.AddPolicy(ctx, &api.AddPolicyRequest{Policy: p}); err != nil {
			return fmt.Errorf("set filter: %w", err)
		}
	}
	for _, a := range next.assignments() {
		if err := b.server.SetPolicyAssignment(ctx, a); err != nil {
			return fmt.Errorf("set filter: %w", err)
		}
	}
	b.filter, b.objects = f, next
	if last.imported == nil {
		return nil
	}
	errs := []error{b.server.ResetPeer(ctx, &api.ResetPeerRequest{Address: "all", Soft: true, Direction: api.ResetPeerRequest_DIRECTION_BOTH}),
		b.server.DeletePolicy(ctx, &api.DeletePolicyRequest{Policy: &api.Policy{Name: last.imported.Name}, All: true}),
		b.server.DeletePolicy(ctx, &api.DeletePolicyRequest{Policy: &api.Policy{Name: last.announced.Name}, All: true})}
	for _, set := range last.sets {
		errs = append(errs, b.server.DeleteDefinedSet(ctx, &api.DeleteDefinedSetRequest{DefinedSet: &api.DefinedSet{DefinedType: set.DefinedType, Name: set.Name}, All: true}))
	}
	return errors.Join(errs...)
}

// announce announces these networks, and withdraws others.
func (b *routerBGP) announce(networks []netip.Prefix) error {
	desired := map[netip.Prefix]bool{}
	var added, gone []*apiutil.Path
	for _, n := range networks {
		if desired[n] = true; !b.announced[n] {
			added = append(added, ownPath(n))
		}
	}
	for n := range b.announced {
		if !desired[n] {
			gone = append(gone, ownPath(n))
		}
	}
	if len(gone) > 0 {
		if err := b.server.DeletePath(apiutil.DeletePathRequest{Paths: gone}); err != nil {
			return fmt.Errorf("withdraw %d networks: %w", len(gone), err)
		}
	}
	if len(added) > 0 {
		if _, err := b.server.AddPath(apiutil.AddPathRequest{Paths: added}); err != nil {
			return fmt.Errorf("announce %d networks: %w", len(added), err)
		}
	}
	b.announced = desired
	return nil
}

// ownPath returns a path to a network of the router. Without a next hop gobgp sets the address of
// each session.
func ownPath(dst netip.Prefix) *apiutil.Path {
	nlri := &bgp.IPAddrPrefix{IPAddrPrefixDefault: bgp.IPAddrPrefixDefault{Prefix: dst}}
	p := &apiutil.Path{Family: bgp.RF_IPv4_UC, Nlri: nlri, Attrs: []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP)}}
	if hop, err := bgp.NewPathAttributeNextHop(netip.IPv4Unspecified()); err == nil { // it is for an invalid address
		p.Attrs = append(p.Attrs, hop)
	}
	return p
}

// setNeighbours ends the sessions that are not in the plan or differ, and opens those it lacks. One
// that fails keeps no other from being opened.
func (b *routerBGP) setNeighbours(ctx context.Context, p *routerbgp.Plan) error {
	desired := map[netip.Addr]routerbgp.Neighbour{}
	for _, n := range p.Neighbours {
		desired[n.Address] = n
	}
	var errs []error
	for _, address := range slices.SortedFunc(maps.Keys(b.neighbours), netip.Addr.Compare) {
		if desired[address] == b.neighbours[address] {
			continue
		}
		err := endSessions(b.port, func() error {
			return b.server.DeletePeer(ctx, &api.DeletePeerRequest{Address: address.String()})
		}, address)
		if err != nil {
			errs = append(errs, fmt.Errorf("end the session with %s: %w", address, err))
			continue
		}
		if b.neighbours[address].Password != "" {
			errs = append(errs, clearSignature(b.port, address))
		}
		delete(b.neighbours, address)
		b.log.Info("session removed", "neighbour", address)
	}
	for _, n := range p.Neighbours {
		if _, exists := b.neighbours[n.Address]; exists {
			continue
		}
		if err := b.server.AddPeer(ctx, &api.AddPeerRequest{Peer: routerPeer(n, p.Restarting)}); err != nil {
			errs = append(errs, fmt.Errorf("open a session with %s: %w", n.Address, err))
			continue
		}
		b.neighbours[n.Address] = n
		b.fresh[n.Address] = true
		b.log.Info("session added", "neighbour", n.Address, "as", n.ASNumber, "from", n.Local)
	}
	return errors.Join(errs...)
}

// best returns the neighbours' best paths to destinations; none for the router's own networks.
func (b *routerBGP) best(destinations []netip.Prefix) (map[netip.Prefix][]learnedPath, error) {
	found := map[netip.Prefix][]learnedPath{}
	if b.server == nil {
		return found, nil
	}
	for some := range slices.Chunk(destinations, lookUp) {
		prefixes := make([]*apiutil.LookupPrefix, len(some))
		for i, dst := range some {
			prefixes[i] = &apiutil.LookupPrefix{Prefix: dst.String()}
		}
		err := b.server.ListPath(apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_GLOBAL, Family: bgp.RF_IPv4_UC, Prefixes: prefixes},
			func(_ bgp.NLRI, paths []*apiutil.Path) {
				for _, p := range paths {
					if hop := nextHop(p); p.Best && p.PeerAddress.IsValid() && !p.PeerAddress.IsUnspecified() && hop.IsValid() {
						found[prefixOf(p)] = append(found[prefixOf(p)], learnedPath{p.PeerAddress, hop})
					}
				}
			})
		if err != nil {
			return nil, fmt.Errorf("look up routes: %w", err)
		}
	}
	return found, nil
}

// counts are gobgp's numbers of what a neighbour announces.
type counts struct {
	received int    // destinations
	updates  uint64 // messages
}

func (b *routerBGP) counts(ctx context.Context) (map[netip.Addr]counts, error) {
	all := map[netip.Addr]counts{}
	err := b.server.ListPeer(ctx, &api.ListPeerRequest{}, func(p *api.Peer) {
		address, err := netip.ParseAddr(p.GetState().GetNeighborAddress())
		if err != nil {
			return
		}
		c := counts{updates: p.GetState().GetMessages().GetReceived().GetUpdate()}
		for _, f := range p.GetAfiSafis() {
			c.received += int(f.GetState().GetReceived())
		}
		all[address] = c
	})
	return all, err
}

// holdOff ends the session with a neighbour, or with false lets it begin again.
func (b *routerBGP) holdOff(ctx context.Context, neighbour netip.Addr, hold bool) error {
	if hold {
		return endSessions(b.port, func() error {
			return b.server.DisablePeer(ctx, &api.DisablePeerRequest{Address: neighbour.String(), Communication: "too many routes"})
		}, neighbour)
	}
	return b.server.EnablePeer(ctx, &api.EnablePeerRequest{Address: neighbour.String()})
}

// eachReceived calls f with all that a neighbour announces.
func (b *routerBGP) eachReceived(neighbour netip.Addr, f func(dst netip.Prefix, gateway netip.Addr)) error {
	return b.server.ListPath(apiutil.ListPathRequest{TableType: api.TableType_TABLE_TYPE_ADJ_IN, Name: neighbour.String(), Family: bgp.RF_IPv4_UC, EnableFiltered: true},
		func(_ bgp.NLRI, paths []*apiutil.Path) {
			for _, p := range paths {
				f(prefixOf(p), nextHop(p))
			}
		})
}
