package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/gophercloud/gophercloud/v2"
	"golang.org/x/sys/unix"

	"heddle/internal/netlab"
	"heddle/internal/topology/packet"
)

// showTap has a monitor on another host see what a1 sends and gets.
func (d *demo) showTap(ctx context.Context, c *cast) (err error) {
	network := c.a1.Port.NetworkID
	p, err := c.blue.Port(ctx, "monitor", network, d.lab.Hosts[1].Name, []string{"10.0.0.15"}, []string{c.web})
	if err != nil {
		return err
	}
	// Copies leave by the monitor's port, and would meet its group.
	open := map[string]any{"port": map[string]any{"port_security_enabled": false, "security_groups": []string{}}}
	if _, err := c.blue.API.Put(ctx, c.blue.API.ServiceURL("ports", p.ID), open, nil, &gophercloud.RequestOpts{OkCodes: []int{http.StatusOK}}); err != nil {
		return fmt.Errorf("monitor: %w", err)
	}
	monitor, err := d.plug("monitor", d.lab.Hosts[1], p, "")
	if err != nil {
		return err
	}
	if _, err := c.blue.WaitStatus(ctx, p.ID, "ACTIVE"); err != nil {
		return fmt.Errorf("monitor: %w", err)
	}
	service, remove, err := c.create(ctx, "tap_service", []string{"taas", "tap_services"}, map[string]any{"name": "monitor", "port_id": p.ID})
	if err != nil {
		return err
	}
	// The service takes its flow along.
	defer func() { err = errors.Join(err, remove(context.WithoutCancel(ctx))) }()
	if _, _, err := c.create(ctx, "tap_flow", []string{"taas", "tap_flows"},
		map[string]any{"name": "a1", "tap_service_id": service, "source_port": c.a1.Port.ID, "direction": "BOTH"}); err != nil {
		return err
	}
	seen, err := monitor.capture()
	if err != nil {
		return err
	}
	defer seen.close()
	d.check("tap: a monitor on h2 sees a1's ping to a2 on h1, and the answer", "request and answer", func() (string, error) {
		return seen.echo(ctx, c.a1, c.a2)
	})
	return nil
}

// capture holds a socket that gets all frames that come to a workload.
type capture struct{ fd int }

// capture opens a socket for the frames that come to the workload, also those for others.
func (w *workload) capture() (capture, error) {
	c := capture{-1}
	err := w.NS.Do(func() error {
		eth0, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		all := uint16(unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8)
		if c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(all)); err != nil {
			return err
		}
		return unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: eth0.Index})
	})
	return c, err
}

func (c capture) close() { _ = unix.Close(c.fd) }

// echo pings until copies of an echo request and of its answer have come.
func (c capture) echo(ctx context.Context, from, to *workload) (string, error) {
	request, answer := false, false
	a, b := from.Address(false), to.Address(false)
	err := netlab.Until(ctx, "copies", func() (bool, error) {
		if got, err := from.ping(ctx, b); err != nil || got != answered {
			return false, err
		}
		buf := make([]byte, 2048)
		for {
			n, _, err := unix.Recvfrom(c.fd, buf, 0)
			if errors.Is(err, unix.EAGAIN) {
				return request && answer, nil
			}
			if err != nil {
				return false, err
			}
			var f packet.Frame
			if packet.Decode(buf[:n], &f) != nil || !f.Echo {
				continue
			}
			request = request || f.SrcIP.String() == a && f.DstIP.String() == b
			answer = answer || f.SrcIP.String() == b && f.DstIP.String() == a
		}
	})
	if err != nil {
		return fmt.Sprintf("request: %t, answer: %t", request, answer), nil
	}
	return "request and answer", nil
}
