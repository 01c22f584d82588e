package hostnet

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// watchQueue bounds the events that wait for the reader. When it is full the kernel's buffer
	// fills, and when that is full the watch loses its place.
	watchQueue = 256
	// watchBuffer is the kernel's buffer for one kind of updates, bytes.
	watchBuffer = 4 << 20
)

// updates names kinds of the kernel's updates.
type updates uint8

const (
	linkUpdates updates = 1 << iota
	addressUpdates
	routeUpdates
	neighbourUpdates
)

// subscription is one life of a watch: until it is closed, or the kernel ends one of its channels
// because the reader was too slow. The channels of other updates are nil.
type subscription struct {
	done       chan struct{}
	links      <-chan netlink.LinkUpdate
	addresses  <-chan netlink.AddrUpdate
	routes     <-chan netlink.RouteUpdate
	neighbours <-chan netlink.NeighUpdate
}

func (l *Linux) subscribe(to updates) (*subscription, error) {
	s := &subscription{done: make(chan struct{})}
	ns := &l.namespace.handle
	failed := func(error) {} // its channel is closed
	var err error
	s.links = subscribed(to&linkUpdates != 0, &err, func(c chan netlink.LinkUpdate) error {
		return netlink.LinkSubscribeWithOptions(c, s.done, netlink.LinkSubscribeOptions{Namespace: ns, ErrorCallback: failed, ReceiveBufferSize: watchBuffer})
	})
	s.addresses = subscribed(to&addressUpdates != 0, &err, func(c chan netlink.AddrUpdate) error {
		return netlink.AddrSubscribeWithOptions(c, s.done, netlink.AddrSubscribeOptions{Namespace: ns, ErrorCallback: failed, ReceiveBufferSize: watchBuffer})
	})
	s.routes = subscribed(to&routeUpdates != 0, &err, func(c chan netlink.RouteUpdate) error {
		return netlink.RouteSubscribeWithOptions(c, s.done, netlink.RouteSubscribeOptions{Namespace: ns, ErrorCallback: failed, ReceiveBufferSize: watchBuffer})
	})
	s.neighbours = subscribed(to&neighbourUpdates != 0, &err, func(c chan netlink.NeighUpdate) error {
		return netlink.NeighSubscribeWithOptions(c, s.done, netlink.NeighSubscribeOptions{Namespace: ns, ErrorCallback: failed, ReceiveBufferSize: watchBuffer})
	})
	if err != nil {
		s.close()
		return nil, fmt.Errorf("watch network namespace %s: %w", l.namespace, err)
	}
	return s, nil
}

// subscribed returns the channel of a subscription, nil for one that is not wanted or that fails.
func subscribed[T any](wanted bool, err *error, subscribe func(chan T) error) <-chan T {
	if !wanted || *err != nil {
		return nil
	}
	c := make(chan T)
	if *err = subscribe(c); *err != nil {
		return nil
	}
	return c
}

// close ends the subscription, and waits for its end.
func (s *subscription) close() {
	close(s.done)
	drain(s.links)
	drain(s.addresses)
	drain(s.routes)
	drain(s.neighbours)
}

func drain[T any](c <-chan T) {
	if c == nil {
		return
	}
	for range c {
	}
}

// next waits for an update. false: ctx has ended, or a channel.
func (s *subscription) next(ctx context.Context) (update any, ok bool) {
	select {
	case <-ctx.Done():
	case update, ok = <-s.links:
	case update, ok = <-s.addresses:
	case update, ok = <-s.routes:
	case update, ok = <-s.neighbours:
	}
	return update, ok
}

// follow sends the kernel's updates as events of a watch. After a failed subscription it opens
// another and sends lost; with lostFirst also at the beginning. The channel is closed when ctx ends
// or the namespace is gone.
func follow[E any](ctx context.Context, l *Linux, to updates, lost E, lostFirst bool, event func(update any) (E, bool)) (<-chan E, error) {
	s, err := l.subscribe(to)
	if err != nil {
		return nil, err
	}
	out := make(chan E, watchQueue)
	go func() {
		defer close(out)
		for e, send := lost, lostFirst; s != nil; e, send = lost, true {
			for ok := true; ok; {
				if send {
					select {
					case out <- e:
					case <-ctx.Done():
					}
				}
				var update any
				if update, ok = s.next(ctx); ok {
					e, send = event(update)
				}
			}
			s.close()
			if s = nil; ctx.Err() == nil {
				s, _ = l.subscribe(to) // it fails when the namespace is gone
			}
		}
	}()
	return out, nil
}

func (l *Linux) Watch(ctx context.Context) (<-chan Event, error) {
	return follow(ctx, l, linkUpdates|addressUpdates|routeUpdates|neighbourUpdates, Event{Kind: Lost}, false, eventOf)
}

// eventOf returns the event of an update, if it is one. A link that left for another namespace is
// gone.
func eventOf(update any) (e Event, ok bool) {
	switch u := update.(type) {
	case netlink.LinkUpdate:
		e = Event{Kind: LinkSet, Link: linkOf(u.Link)}
		if u.Header.Type == unix.RTM_DELLINK {
			e.Kind = LinkGone
		}
		return e, true
	case netlink.AddrUpdate:
		p, _ := prefixOf(&u.LinkAddress)
		return Event{Kind: AddressChanged, LinkIndex: u.LinkIndex, Address: p, Removed: !u.NewAddr}, true
	case netlink.RouteUpdate:
		return Event{Kind: RouteChanged, LinkIndex: u.LinkIndex, Route: routeOf(u.Route), Removed: u.Type == unix.RTM_DELROUTE}, u.Table == unix.RT_TABLE_MAIN
	case netlink.NeighUpdate:
		e = Event{Kind: NeighbourSet, LinkIndex: u.LinkIndex}
		if u.Type == unix.RTM_DELNEIGH {
			e.Kind = NeighbourGone
		}
		e.Neighbour, ok = neighbourOf(u.Neigh)
	}
	return e, ok
}
