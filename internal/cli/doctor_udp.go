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

// udpCheck sends datagrams to another host's tunnel port. An agent drops them silently, since they
// have no secret, so that silence is no finding.
func udpCheck(peer string) Check {
	return Check{
		Name: "UDP " + strconv.Itoa(tunnelPort) + " to " + peer, For: "overlay: tunnels",
		Fix: "start heddle agent on " + peer + ", and let UDP " + strconv.Itoa(tunnelPort) + " pass the firewalls of both and between them; heddle connectivity tries it in both directions",
		Run: func(ctx context.Context) error {
			address, err := netip.ParseAddr(peer)
			if err != nil || !address.Is4() {
				return nil // the other check of the peer says so
			}
			return refusedUDP(ctx, netip.AddrPortFrom(address, tunnelPort))
		},
	}
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
