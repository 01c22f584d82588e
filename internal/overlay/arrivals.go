package overlay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"heddle/internal/hostnet"
	"heddle/internal/reconcile"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// arrivals watch the taps of ports that may move to this host. A machine that migrates here has its
// tap open and sends nothing while its memory is copied; its first frame, which its monitor sends
// in its name when it runs, is reported, and a server binds the port to this host (decision 0045).
// They are the target of a reconciler whose keys are port ids.
type arrivals struct {
	net         *hostnet.Linux
	attachments *attachments
	reconciler  *reconcile.Reconciler[string, standby]

	mu        sync.Mutex
	listeners map[string]*listener // by port id
	names     map[string]string    // interfaces by port id
}

// standby is an interface that a port may move to.
type standby struct{ Interface, Network string }

// listener waits for the first frame that a machine sends by a tap.
type listener struct {
	standby standby
	index   int // of the interface
	socket  *os.File
	done    chan struct{}
}

var _ reconcile.Target[string, standby] = (*arrivals)(nil)

func newArrivals(net *hostnet.Linux, at *attachments, log *slog.Logger) *arrivals {
	x := &arrivals{net: net, attachments: at, listeners: map[string]*listener{}, names: map[string]string{}}
	x.reconciler = reconcile.New(reconcile.Options[string, standby]{Name: "arrivals", Target: x,
		Equal: func(a, b standby) bool { return a == b }, Log: log})
	return x
}

// Run keeps the listeners until ctx ends.
func (x *arrivals) Run(ctx context.Context) error {
	err := x.reconciler.Run(ctx)
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, l := range x.listeners {
		l.close()
	}
	return err
}

// rebind replaces the ports of one owner.
func (x *arrivals) rebind(before, after []topology.Port) {
	host := x.attachments.engine.host
	stands := func(p *topology.Port) bool { return p.StandbyOn(host) != "" }
	was, is := portsByID(before, stands), portsByID(after, stands)
	x.mu.Lock()
	for id := range was {
		delete(x.names, id)
	}
	for id, p := range is {
		x.names[id] = p.StandbyOn(host)
	}
	x.mu.Unlock()
	for id := range was {
		if is[id] == nil {
			x.reconciler.Unwant(id)
		}
	}
	for id, p := range is {
		x.reconciler.Want(id, standby{Interface: p.StandbyOn(host), Network: p.NetworkID})
	}
}

// linkChanged has the ports of an interface looked at again.
func (x *arrivals) linkChanged(l hostnet.Link) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, name := range x.names {
		if name == l.Name {
			x.reconciler.Kick(id)
		}
	}
}

// Found lists the ports that are listened for.
func (x *arrivals) Found(context.Context) (map[string]standby, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	found := map[string]standby{}
	for id, l := range x.listeners {
		found[id] = l.standby
	}
	return found, nil
}

// Set makes the tap of a port ready and listens there, or waits for a machine to open it. Other
// interfaces than taps are left alone.
func (x *arrivals) Set(ctx context.Context, id string, want standby) error {
	link, err := x.net.Link(want.Interface)
	if err == nil && link.Kind == hostnet.Tap {
		link, err = x.attachments.prepare(link, attachment{Interface: want.Interface, Network: want.Network})
	}
	if err != nil && !errors.Is(err, hostnet.ErrNotFound) {
		return err
	}
	opened := err == nil && link.Kind == hostnet.Tap && link.Running
	x.mu.Lock()
	before := x.listeners[id]
	x.mu.Unlock()
	if opened && before != nil && before.standby == want && before.index == link.Index {
		return nil
	}
	if err := x.Delete(ctx, id); err != nil {
		return err
	}
	if !opened {
		return fmt.Errorf("interface %s: %w for a machine to open it", want.Interface, reconcile.ErrWait)
	}
	return x.listen(id, want, link)
}

// Delete stops listening.
func (x *arrivals) Delete(_ context.Context, id string) error {
	x.mu.Lock()
	l := x.listeners[id]
	delete(x.listeners, id)
	x.mu.Unlock()
	if l != nil {
		l.close()
	}
	x.attachments.engine.reports.Delete(schema.PortArrivals.KeyOf(x.arrival(id)))
	return nil
}

func (x *arrivals) arrival(id string) *topology.PortArrival {
	return &topology.PortArrival{PortID: id, HostID: x.attachments.engine.host}
}

func (x *arrivals) listen(id string, want standby, link hostnet.Link) error {
	l := &listener{standby: want, index: link.Index, done: make(chan struct{})}
	var err error
	if l.socket, err = x.net.PacketSocket(link); err != nil {
		return fmt.Errorf("wait for a machine: %w", err)
	}
	x.mu.Lock()
	x.listeners[id] = l
	x.mu.Unlock()
	go func() {
		defer close(l.done)
		if _, err := l.socket.Read(make([]byte, 64)); err == nil { // else closed, or the interface has gone
			a := x.arrival(id)
			a.Since = time.Now().UTC()
			x.attachments.engine.reports.set(schema.PortArrivals.KeyOf(a), a)
		}
	}()
	return nil
}

func (l *listener) close() {
	l.socket.Close()
	<-l.done
}
