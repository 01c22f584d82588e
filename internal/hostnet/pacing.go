package hostnet

import (
	"errors"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// pacingHandle is the handle of the queues that PaceLink makes, which others do not have.
const pacingHandle = 0x4844 << 16

// pacingPackets is the number of frames that such a queue holds at most.
const pacingPackets = 10000

// PaceLink gives a link a queue that sends each frame at the time of departure it carries: the
// discipline fq. It returns ErrUnsupported for a kernel without that.
func (l *Linux) PaceLink(index int) error {
	q := netlink.NewFq(netlink.QdiscAttrs{LinkIndex: index, Handle: pacingHandle, Parent: netlink.HANDLE_ROOT})
	q.PacketLimit, q.FlowPacketLimit = pacingPackets, pacingPackets
	err := l.handle.QdiscReplace(q)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		return ErrUnsupported
	}
	return wrap(err, "pace link %d", index)
}

// UnpaceLink takes the queue of PaceLink away. That there is none, or no link, is no error.
func (l *Linux) UnpaceLink(index int) error {
	link, err := l.handle.LinkByIndex(index)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return wrap(err, "link %d", index)
	}
	all, err := listWhole(func() ([]netlink.Qdisc, error) { return l.handle.QdiscList(link) })
	if err != nil {
		return wrap(err, "queues of link %d", index)
	}
	for _, q := range all {
		if q.Attrs().Handle != pacingHandle || q.Type() != "fq" {
			continue
		}
		if err := l.handle.QdiscDel(q); err != nil && !errors.Is(err, unix.ENODEV) {
			return wrap(err, "stop pacing link %d", index)
		}
	}
	return nil
}
