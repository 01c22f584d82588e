package hostnet

import (
	"context"
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// watchQueue bounds the events that wait for the reader; behind it the kernel's buffer fills, and then Lost is told.
	watchQueue = 256
	// watchBuffer is the kernel's buffer for one kind of events, bytes.
	watchBuffer = 4 << 20
)

func (l *Linux) Watch(ctx context.Context) (<-chan Event, error) {
	w := &watcher{net: l, out: make(chan Event, watchQueue), ctx: ctx}
	first, err := w.open()
	if err != nil {
		return nil, err
	}
	go w.run(first)
	return w.out, nil
}

type watcher struct {
	net *Linux
	out chan Event
	ctx context.Context
}

// feed is one life of the four subscriptions: until ctx ends or one of them fails.
type feed struct {
	done       chan struct{}
	links      chan netlink.LinkUpdate
	addresses  chan netlink.AddrUpdate
	routes     chan netlink.RouteUpdate
	neighbours chan netlink.NeighUpdate
}

func (w *watcher) open() (*feed, error) {
	f := &feed{done: make(chan struct{}), links: make(chan netlink.LinkUpdate), addresses: make(chan netlink.AddrUpdate),
		routes: make(chan netlink.RouteUpdate), neighbours: make(chan netlink.NeighUpdate)}
	ns := w.net.namespace.handle
	ignore := func(error) {} // a failed feed closes its channel
	subscribe := []func() error{
		func() error {
			return netlink.LinkSubscribeWithOptions(f.links, f.done, netlink.LinkSubscribeOptions{Namespace: &ns, ErrorCallback: ignore, ReceiveBufferSize: watchBuffer})
		},
		func() error {
			return netlink.AddrSubscribeWithOptions(f.addresses, f.done, netlink.AddrSubscribeOptions{Namespace: &ns, ErrorCallback: ignore, ReceiveBufferSize: watchBuffer})
		},
		func() error {
			return netlink.RouteSubscribeWithOptions(f.routes, f.done, netlink.RouteSubscribeOptions{Namespace: &ns, ErrorCallback: ignore, ReceiveBufferSize: watchBuffer})
		},
		func() error {
			return netlink.NeighSubscribeWithOptions(f.neighbours, f.done, netlink.NeighSubscribeOptions{Namespace: &ns, ErrorCallback: ignore, ReceiveBufferSize: watchBuffer})
		},
	}
	for i, s := range subscribe {
		if err := s(); err != nil {
			close(f.done)
			f.drain(i)
			return nil, fmt.Errorf("watch network namespace %s: %w", w.net.namespace, err)
		}
	}
	return f, nil
}

// drain waits for the first n subscriptions to end.
func (f *feed) drain(n int) {
	var wg sync.WaitGroup
	for _, ended := range []func(){
		func() { drain(f.links) }, func() { drain(f.addresses) }, func() { drain(f.routes) }, func() { drain(f.neighbours) },
	}[:n] {
		wg.Go(ended)
	}
	wg.Wait()
}

func drain[T any](c <-chan T) {
	for range c {
	}
}

// run forwards events; when a subscription fails (the reader was too slow), all are opened anew and Lost is told.
func (w *watcher) run(f *feed) {
	defer close(w.out)
	for {
		again := w.forward(f)
		close(f.done)
		f.drain(4)
		if !again {
			return
		}
		var err error
		if f, err = w.open(); err != nil {
			return // the namespace's handle is gone: nothing to watch any more
		}
		if !w.tell(Event{Kind: Lost}) {
			close(f.done)
			f.drain(4)
			return
		}
	}
}

// forward returns true when the feed failed and false when ctx ended.
func (w *watcher) forward(f *feed) bool {
	for {
		var e Event
		select {
		case <-w.ctx.Done():
			return false
		case u, ok := <-f.links:
			if !ok {
				return true
			}
			e = linkEvent(u)
		case u, ok := <-f.addresses:
			if !ok {
				return true
			}
			p, _ := prefixOf(&u.LinkAddress)
			e = Event{Kind: AddressChanged, LinkIndex: u.LinkIndex, Address: p, Removed: !u.NewAddr}
		case u, ok := <-f.routes:
			if !ok {
				return true
			}
			if u.Table != unix.RT_TABLE_MAIN {
				continue
			}
			e = Event{Kind: RouteChanged, LinkIndex: u.LinkIndex, Route: routeOf(u.Route), Removed: u.Type == unix.RTM_DELROUTE}
		case u, ok := <-f.neighbours:
			if !ok {
				return true
			}
			x, known := neighbourOf(u.Neigh)
			if !known {
				continue
			}
			e = Event{Kind: NeighbourSet, LinkIndex: u.LinkIndex, Neighbour: x}
			if u.Type == unix.RTM_DELNEIGH {
				e.Kind = NeighbourGone
			}
		}
		if !w.tell(e) {
			return false
		}
	}
}

func (w *watcher) tell(e Event) bool {
	select {
	case w.out <- e:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// linkEvent: a link that left for another namespace is told as gone.
func linkEvent(u netlink.LinkUpdate) Event {
	e := Event{Kind: LinkSet, Link: linkOf(u.Link)}
	if u.Header.Type == unix.RTM_DELLINK {
		e.Kind = LinkGone
	}
	return e
}
