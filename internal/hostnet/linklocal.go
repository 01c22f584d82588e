package hostnet

import (
	"context"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// WatchLinkLocal sends the index of each link whose IPv6 link-local address has become usable, a
// second or two after the link appears, once duplicate address detection is over (RFC 4862 §5.4). 0
// means all links: events were missed, or the watch has just begun. The channel is closed when ctx
// ends or the namespace is gone.
func (l *Linux) WatchLinkLocal(ctx context.Context) (<-chan int, error) {
	return follow(ctx, l, addressUpdates, 0, true, func(update any) (link int, ok bool) {
		const not = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED
		u := update.(netlink.AddrUpdate)
		ip := u.LinkAddress.IP
		return u.LinkIndex, u.NewAddr && u.Flags&not == 0 && ip.To4() == nil && ip.IsLinkLocalUnicast()
	})
}
