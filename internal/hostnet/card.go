package hostnet

import (
	"net/netip"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Leased returns the addresses that expire unless they are renewed, by index of the link: those
// from DHCP or router advertisements. Addresses set by hand do not expire.
func (l *Linux) Leased() (map[int][]netip.Prefix, error) {
	all, err := l.addresses(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, wrap(err, "leased addresses")
	}
	leased := all[:0]
	for _, a := range all {
		if a.Flags&unix.IFA_F_PERMANENT == 0 {
			leased = append(leased, a)
		}
	}
	return addressesByLink(leased), nil
}

// Speed is the speed of a network card's link.
type Speed struct {
	Megabits int // a second; 0: not known, or no link
	Duplex   bool
}

// ethtoolCommand is the kernel's struct ethtool_cmd, as ETHTOOL_GSET fills it.
type ethtoolCommand struct {
	Command, Supported, Advertising uint32
	SpeedLow                        uint16
	Duplex, _, _, _, _, _           uint8
	_, _                            uint32
	SpeedHigh                       uint16
	_, _                            uint8
	_                               uint32
	_                               [2]uint32
}

// ethtoolRequest is struct ifreq with a pointer.
type ethtoolRequest struct {
	Name    [unix.IFNAMSIZ]byte
	Command *ethtoolCommand
	_       [16]byte
}

// Speeds returns what the drivers of these links report; those that do not are left out.
func (l *Linux) Speeds(names ...string) (map[string]Speed, error) {
	all := map[string]Speed{}
	err := l.namespace.Do(func() error {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		for _, name := range names {
			c := &ethtoolCommand{Command: unix.ETHTOOL_GSET}
			r := ethtoolRequest{Command: c}
			copy(r.Name[:unix.IFNAMSIZ-1], name)
			if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(s), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&r))); e != 0 {
				continue
			}
			speed := uint32(c.SpeedHigh)<<16 | uint32(c.SpeedLow)
			if speed == uint32(0xffffffff) || speed == 0xffff {
				speed = 0
			}
			all[name] = Speed{int(speed), c.Duplex == 1}
		}
		return nil
	})
	return all, wrap(err, "speed of links")
}
