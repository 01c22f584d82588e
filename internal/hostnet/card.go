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

// ethtoolRequest is struct ifreq with a pointer to a command of ethtool.
type ethtoolRequest struct {
	Name    [unix.IFNAMSIZ]byte
	Command unsafe.Pointer
	_       [16]byte
}

// ethtool asks the driver of a link. It reports whether the driver has answered.
func ethtool(socket int, name string, command unsafe.Pointer) bool {
	r := ethtoolRequest{Command: command}
	copy(r.Name[:unix.IFNAMSIZ-1], name)
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(socket), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&r)))
	return e == 0
}

// withSocket calls f with a socket of the namespace, for ioctl.
func (l *Linux) withSocket(f func(socket int)) error {
	return l.namespace.Do(func() error {
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(s)
		f(s)
		return nil
	})
}

// Speeds returns what the drivers of these links report; those that do not are left out.
func (l *Linux) Speeds(names ...string) (map[string]Speed, error) {
	all := map[string]Speed{}
	err := l.withSocket(func(socket int) {
		for _, name := range names {
			c := &ethtoolCommand{Command: unix.ETHTOOL_GSET}
			if !ethtool(socket, name, unsafe.Pointer(c)) {
				continue
			}
			speed := uint32(c.SpeedHigh)<<16 | uint32(c.SpeedLow)
			if speed == uint32(0xffffffff) || speed == 0xffff {
				speed = 0
			}
			all[name] = Speed{int(speed), c.Duplex == 1}
		}
	})
	return all, wrap(err, "speed of links")
}

// mostFeatures bounds the features that a kernel knows; there are 64 in Linux 6.12.
const mostFeatures = 256

// featureNames is struct ethtool_gstrings, as ETHTOOL_GSTRINGS fills it with ETH_SS_FEATURES.
type featureNames struct {
	Command, Set, Length uint32
	Names                [mostFeatures][32]byte
}

// featureStates is struct ethtool_gfeatures. A feature is a bit of a block.
type featureStates struct {
	Command, Size uint32
	Blocks        [mostFeatures / 32]struct{ Available, Requested, Active, NeverChanged uint32 }
}

// Offloads returns the driver of a link, and the features of it that are on, as `ethtool -i` and
// `ethtool -k` name them; "" and none if it does not say.
func (l *Linux) Offloads(name string) (driver string, on map[string]bool, err error) {
	const featureSet = 4 // ETH_SS_FEATURES
	on = map[string]bool{}
	err = l.withSocket(func(socket int) {
		names := &featureNames{Command: unix.ETHTOOL_GSTRINGS, Set: featureSet} // some kernels take another length than their own for a mistake
		states := &featureStates{Command: unix.ETHTOOL_GFEATURES, Size: mostFeatures / 32}
		info, err := unix.IoctlGetEthtoolDrvinfo(socket, name)
		if err != nil || !ethtool(socket, name, unsafe.Pointer(names)) || !ethtool(socket, name, unsafe.Pointer(states)) {
			return
		}
		driver = unix.ByteSliceToString(info.Driver[:])
		for i := range min(names.Length, mostFeatures) {
			if states.Blocks[i/32].Active&(1<<(i%32)) != 0 {
				on[unix.ByteSliceToString(names.Names[i][:])] = true
			}
		}
	})
	return driver, on, wrap(err, "offloads of link %s", name)
}
