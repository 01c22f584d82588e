package hostnet

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// AddGateway makes or finds a link that joins nothing and only carries addresses, and sets it up: a
// dummy or, if the kernel lacks these, a bridge without ports or a veth whose other end stays here.
func (l *Linux) AddGateway(name string, mac MAC) (Link, error) {
	found, err := l.Link(name)
	if err == nil {
		return found, l.SetUp(name, true)
	}
	if !errors.Is(err, ErrNotFound) {
		return Link{}, err
	}
	for _, kind := range []Kind{Dummy, Bridge, Veth} {
		spec := LinkSpec{Name: name, Kind: kind, MAC: mac}
		if kind == Veth {
			spec.Peer = peerOf(name)
		}
		made, err := l.AddLink(spec)
		if errors.Is(err, ErrUnsupported) {
			continue
		}
		if err != nil {
			return Link{}, err
		}
		if kind == Veth {
			if err := l.SetUp(spec.Peer, true); err != nil {
				return Link{}, err
			}
		}
		return made, l.SetUp(name, true)
	}
	return Link{}, fmt.Errorf("link %s: no kind of link that carries addresses: dummy, bridge, veth: %w", name, ErrUnsupported)
}

func peerOf(name string) string { return name[:min(len(name), 14)] + "-" }

// AddAddressAlone gives a link an address without the kernel's route to its network.
func (l *Linux) AddAddressAlone(link string, address netip.Prefix) error {
	return l.addAddress(link, address, unix.IFA_F_NOPREFIXROUTE)
}
