package xapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

const (
	// orderTimeout is how long a host has to carry an order out.
	orderTimeout = 10 * time.Second
	// joinTimeout is how long it has to join another pool: longer than its agent tries to, so that both agree on where the
	// host is.
	joinTimeout = time.Minute
)

// timeoutOf returns how long the host has for the order.
func timeoutOf(o *objects.Order) time.Duration {
	if o.Join != nil {
		return joinTimeout
	}
	return orderTimeout
}

// bell rings at each change of the server's view.
type bell struct {
	mu   sync.Mutex
	next chan struct{} // closed by the next ring
}

func newBell() *bell { return &bell{next: make(chan struct{})} }

func (b *bell) ring(replica.Update) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.next)
	b.next = make(chan struct{})
}

func (b *bell) rung() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.next
}

// await waits until f says that what it sees is so, or fails.
func (s *Server) await(ctx context.Context, f func(r records.Reader) (bool, error)) error {
	for {
		rung := s.bell.rung()
		if ok, err := f(s.now()); ok || err != nil {
			return err
		}
		select {
		case <-rung:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// bridgeOrder asks for a bridge that no object speaks of yet.
func bridgeOrder(host string, b objects.Bridge) *objects.Order {
	return &objects.Order{Host: host, ID: newUUID(), Bridge: b}
}

// fulfil has hosts carry orders out, and then commits what f writes together with the end of the orders. Whatever fails,
// nothing stays: the orders are withdrawn, and what hosts have made for them goes. Should this server die meanwhile the
// orders end with its lease. Without orders it only commits.
func (c *call) fulfil(orders []*objects.Order, f func(tx *records.Tx) error) error {
	if len(orders) == 0 {
		return c.update(f)
	}
	err := c.update(func(tx *records.Tx) error {
		for _, o := range orders {
			if err := objects.Orders.PutLeased(tx, o, c.server.lease.current()); err != nil {
				return err
			}
		}
		return nil
	})
	for _, o := range orders {
		if err == nil {
			err = c.server.carriedOut(c.ctx, o)
		}
	}
	if err == nil {
		err = c.update(func(tx *records.Tx) error {
			if err := f(tx); err != nil {
				return err
			}
			return withdraw(tx, orders)
		})
	}
	if err != nil {
		over, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), orderTimeout)
		defer cancel()
		left := c.server.update(over, func(tx *records.Tx) error { return withdraw(tx, orders) })
		if left != nil {
			c.server.opts.Log.Warn("orders not withdrawn: they end with the server's lease", "call", c.Name, "err", left)
		}
	}
	return err
}

func withdraw(tx *records.Tx, orders []*objects.Order) error {
	for _, o := range orders {
		absent := (*records.NotFoundError)(nil)
		if err := objects.Orders.Delete(tx, o.Host+"/"+o.ID); err != nil && !errors.As(err, &absent) {
			return err
		}
	}
	return nil
}

// carriedOut waits for the host's word on an order.
func (s *Server) carriedOut(ctx context.Context, o *objects.Order) error {
	limited, cancel := context.WithTimeout(ctx, timeoutOf(o))
	defer cancel()
	done := false
	err := s.await(limited, func(r records.Reader) (bool, error) {
		var said string
		if done, said = answered(r, o); said != "" {
			return false, model.OperationNotAllowed(said)
		}
		if !done {
			_, err := alive(r, o.Host)
			return false, err
		}
		return shown(r, o), nil
	})
	switch {
	case !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil:
		return err
	case done:
		return nil // the host has done it, whatever it shows
	}
	return model.CannotContactHost(o.Host)
}

// shown says whether the host's report shows what an order for an address has changed: until then it would contradict the
// PIF.
func shown(r records.Reader, o *objects.Order) bool {
	report, ok := objects.HostReports.Peek(r, o.Host)
	if o.Address == nil || !ok {
		return true
	}
	a := o.Address
	switch i := reported(report, objects.DeviceKey(a.Device, a.VLAN)); {
	case i == nil || a.Mode != "Static" && a.Mode != "None":
		return true
	case a.Family == 6:
		return slices.Equal(i.IPv6, a.IPv6)
	case a.Mode == "None":
		return i.Mode == "None"
	default:
		return i.IP == a.IP
	}
}

// answered says whether the host has carried the order out, or why it could not.
func answered(r records.Reader, o *objects.Order) (done bool, failure string) {
	name := "host"
	if h, ok := objects.Table("host").Peek(r, o.Host); ok {
		name = "host " + h.Text("name_label")
	}
	if o.Bridge.Name == "" {
		report, ok := objects.OrderReports.Peek(r, o.Host+"/"+o.ID)
		if ok && report.Error != "" {
			return false, fmt.Sprintf("%s: %s", name, report.Error)
		}
		return ok, ""
	}
	report, ok := objects.BridgeReports.Peek(r, o.Host+"/"+o.Bridge.Name)
	if !ok || !slices.Contains(report.Orders, o.ID) {
		return false, ""
	}
	if report.Error != "" {
		return false, fmt.Sprintf("%s cannot make the bridge %s: %s", name, o.Bridge.Name, report.Error)
	}
	return true, ""
}

// place is a bridge on a host.
type place struct{ host, bridge string }

// cleared waits until bridges that nobody wants any more are gone. The pool says already that they are: a host that is
// slow or dead holds the caller up for a while, and no longer.
func (c *call) cleared(places []place) {
	limited, cancel := context.WithTimeout(c.ctx, orderTimeout)
	defer cancel()
	err := c.server.await(limited, func(r records.Reader) (bool, error) {
		return !slices.ContainsFunc(places, func(p place) bool { return lingers(r, p) }), nil
	})
	if err != nil {
		c.server.opts.Log.Warn("a host has not taken its bridge away yet", "call", c.Name, "bridges", fmt.Sprint(places))
	}
}

// lingers says that the host still reports the bridge, which it should not.
func lingers(r records.Reader, p place) bool {
	if _, there := objects.BridgeReports.Peek(r, p.host+"/"+p.bridge); !there {
		return false
	}
	if _, reports := objects.HostReports.Peek(r, p.host); !reports {
		return false
	}
	wanted, _ := objects.Wanted(r, p.host)
	return !slices.ContainsFunc(wanted, func(b objects.Bridge) bool { return b.Name == p.bridge })
}
