package datapath

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"heddle/internal/hostnet"
)

// leadsElsewhere says whether the link is a veth whose other end is in another network namespace. Only across namespaces
// may a frame be handed straight to the other end.
func (d *Datapath) leadsElsewhere(l hostnet.Link) (bool, error) {
	if l.Kind != hostnet.Veth {
		return false, nil
	}
	var dump []byte
	err := d.inNamespace(func() (err error) {
		dump, err = syscall.NetlinkRIB(unix.RTM_GETLINK, unix.AF_UNSPEC)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("where the other end of %s is: %w", l.Name, err)
	}
	messages, err := syscall.ParseNetlinkMessage(dump)
	if err != nil {
		return false, fmt.Errorf("where the other end of %s is: %w", l.Name, err)
	}
	for _, m := range messages {
		// struct ifinfomsg: the index is its second 32-bit word.
		if m.Header.Type != unix.RTM_NEWLINK || len(m.Data) < unix.SizeofIfInfomsg ||
			int(binary.NativeEndian.Uint32(m.Data[4:])) != l.Index {
			continue
		}
		attrs, err := syscall.ParseNetlinkRouteAttr(&m)
		if err != nil {
			return false, fmt.Errorf("where the other end of %s is: %w", l.Name, err)
		}
		for _, a := range attrs {
			if a.Attr.Type == unix.IFLA_LINK_NETNSID {
				return true, nil
			}
		}
		return false, nil
	}
	return false, fmt.Errorf("interface %s: %w", l.Name, hostnet.ErrNotFound)
}
