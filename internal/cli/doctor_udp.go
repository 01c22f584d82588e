package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"time"
)

// tunnelPort is the UDP port by which hosts send each other packets and state.
const tunnelPort = 6677

// Bounds of the datagrams that the doctor sends to a peer.
const (
	udpTries = 3
	udpWait  = 300 * time.Millisecond
)

// udpChecks returns the checks of both directions between the tunnel ports of this host and another
// one. Agents drop datagrams without a secret silently, so that only their own hellos tell what
// arrives; what this host or another one refuses is found without them.
func udpChecks(s *sockets, peer netip.Addr) []Check {
	port, host := strconv.Itoa(tunnelPort), peer.String()
	fix := "start heddle agent on both hosts, and let UDP " + port + " pass the firewalls of both and between them; heddle connectivity tries it with workloads"
	return []Check{{
		Name: "UDP " + port + " to " + host, For: "overlay: tunnels", Fix: fix,
		Run: func(ctx context.Context) error {
			if err := refusedUDP(ctx, netip.AddrPortFrom(peer, tunnelPort)); err != nil {
				return err
			}
			t, err := s.tunnelTo(ctx, peer)
			if err != nil {
				return err
			}
			return decide(t.Out, "nothing arrives there by the tunnel, as its agent says")
		},
	}, {
		Name: "UDP " + port + " from " + host, For: "overlay: tunnels", Fix: fix,
		Run: func(ctx context.Context) error {
			t, err := s.tunnelTo(ctx, peer)
			if err != nil {
				return err
			}
			return decide(t.In, "nothing arrives from there by the tunnel, though its agent is alive")
		},
	}}
}

// refusedUDP returns the error with which this host or another one refuses datagrams, if one does.
func refusedUDP(ctx context.Context, to netip.AddrPort) error {
	c, err := new(net.Dialer).DialContext(ctx, "udp4", to.String())
	if err != nil {
		return describeRefusal(err)
	}
	defer c.Close()
	for range udpTries {
		if _, err := c.Write(make([]byte, 8)); err != nil {
			return describeRefusal(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(udpWait)); err != nil {
			return err
		}
		var timeout net.Error
		if _, err := c.Read(make([]byte, 1)); err != nil && !(errors.As(err, &timeout) && timeout.Timeout()) {
			return describeRefusal(err)
		}
	}
	return nil
}

func describeRefusal(err error) error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("refused: no agent runs there, or a firewall rejects it")
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return fmt.Errorf("a firewall on this host or on the way rejects it: %w", err)
	}
	return err
}
