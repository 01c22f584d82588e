package hostnet

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// WatchLinkLocal tells the index of each link whose IPv6 link-local address has become usable, which takes a new link a
// second or two: others are asked first whether they have it (RFC 4862 §5.4). 0 means all links: events were missed, or the
// watch has just begun. It ends with ctx; the channel is then closed, as it is when the namespace is gone.
func (l *Linux) WatchLinkLocal(ctx context.Context) (<-chan int, error) {
	addresses, unsubscribe, err := l.subscribeAddresses()
	if err != nil {
		return nil, err
	}
	out := make(chan int, watchQueue)
	go func() {
		defer close(out)
		for addresses != nil {
			again := forwardLinkLocal(ctx, addresses, out)
			close(unsubscribe)
			drain(addresses)
			if addresses = nil; again {
				addresses, unsubscribe, _ = l.subscribeAddresses() // it fails when the namespace is gone
			}
		}
	}()
	return out, nil
}

func (l *Linux) subscribeAddresses() (chan netlink.AddrUpdate, chan struct{}, error) {
	addresses, done := make(chan netlink.AddrUpdate), make(chan struct{})
	ns := l.namespace.handle
	ignore := func(error) {} // a failed feed closes its channel
	err := netlink.AddrSubscribeWithOptions(addresses, done, netlink.AddrSubscribeOptions{Namespace: &ns, ErrorCallback: ignore, ReceiveBufferSize: watchBuffer})
	if err != nil {
		return nil, nil, fmt.Errorf("watch addresses of network namespace %s: %w", l.namespace, err)
	}
	return addresses, done, nil
}

// forwardLinkLocal returns true when the subscription failed and false when ctx ended.
func forwardLinkLocal(ctx context.Context, addresses <-chan netlink.AddrUpdate, out chan<- int) bool {
	link := 0
	for {
		select {
		case out <- link:
		case <-ctx.Done():
			return false
		}
		for usable := false; !usable; {
			select {
			case <-ctx.Done():
				return false
			case u, ok := <-addresses:
				if !ok {
					return true
				}
				const not = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED
				ip := u.LinkAddress.IP
				link, usable = u.LinkIndex, u.NewAddr && u.Flags&not == 0 && ip.To4() == nil && ip.IsLinkLocalUnicast()
			}
		}
	}
}
