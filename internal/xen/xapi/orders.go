package xapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

const (
	// orderTimeout bounds the time in which a host carries an order out.
	orderTimeout = 10 * time.Second
	// joinTimeout is orderTimeout for joining another pool: longer than the agent tries to, so that
	// both agree on where the host is.
	joinTimeout = time.Minute
)

// timeoutOf returns how long the host has for the order.
func timeoutOf(o *objects.Order) time.Duration {
	if o.Join != nil {
		return joinTimeout
	}
	return orderTimeout
}

// await waits until f returns true for the server's view, or an error.
func (s *Server) await(ctx context.Context, f func(r records.Reader) (bool, error)) error {
	for {
		rung := s.bell.Next()
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

// bridgeOrder returns an order for a bridge that no object needs yet.
func bridgeOrder(host string, b objects.Bridge) *objects.Order {
	return &objects.Order{Host: host, ID: newUUID(), Bridge: b}
}

// fulfil has hosts carry orders out, and then commits what f writes together with the end of the
// orders. Whatever fails, nothing stays: the orders are withdrawn, and hosts undo what they have
// made for them. Should this server die meanwhile the orders end with its lease. Without orders it
// only commits.
func (c *call) fulfil(orders []*objects.Order, f func(p *pool)) error {
	if len(orders) == 0 {
		return c.change(f)
	}
	withdraw := func(p *pool) {
		for _, o := range orders {
			discard(p, objects.Orders, o.Host+"/"+o.ID)
		}
	}
	err := c.change(func(p *pool) {
		for _, o := range orders {
			p.fail(objects.Orders.PutLeased(p.tx, o, c.server.lease.current()))
		}
	})
	for _, o := range orders {
		if err == nil {
			err = c.server.carriedOut(c.ctx, o)
		}
	}
	if err == nil {
		err = c.change(func(p *pool) {
			f(p)
			withdraw(p)
		})
	}
	if err != nil {
		over, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), orderTimeout)
		defer cancel()
		if left := c.server.update(over, changing(withdraw)); left != nil {
			c.server.opts.Log.Warn("orders not withdrawn: they end with the server's lease", "call", c.Name, "err", left)
		}
	}
	return err
}

// carriedOut waits for the host's answer to an order.
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
			p := over(r)
			p.alive(o.Host)
			return false, p.err
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

// shown reports whether the host's report has what an order for an address has changed: until then
// it would contradict the PIF.
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

// answered reports whether the host has carried the order out, or why it could not.
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

// cleared waits until bridges that are no longer needed are gone. In the pool they are already: a
// slow or dead host delays the call for a while only.
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

// lingers reports whether the host still reports a bridge that it should have removed.
func lingers(r records.Reader, p place) bool {
	if _, there := objects.BridgeReports.Peek(r, p.host+"/"+p.bridge); !there {
		return false
	}
	if !reports(r, p.host) {
		return false
	}
	wanted, _ := objects.Wanted(r, p.host)
	return !slices.ContainsFunc(wanted, func(b objects.Bridge) bool { return b.Name == p.bridge })
}
