package datapath

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// maxLocals is the number of tunnel addresses that one host can have, as in bpf/maps.h.
const maxLocals = 4

// underlaySet holds the programs by which tunnelled frames come in.
type underlaySet struct {
	*kernel

	mu        sync.Mutex
	underlays map[int]*underlayLinks // by interface index
	wireguard link.Link              // nil: no such device is attached
}

// underlayLinks are the programs on one interface of the underlay.
type underlayLinks struct {
	name    string // of the pin of in
	in, out link.Link
}

// AttachUnderlay accepts tunnelled frames to this host's tunnel addresses from the interface; other
// traffic passes untouched. It may be called for several interfaces, with the same addresses, but
// not twice at once.
func (s *underlaySet) AttachUnderlay(ifname string, locals ...netip.Addr) error {
	if len(locals) == 0 || len(locals) > maxLocals {
		return fmt.Errorf("underlay %s: %d tunnel addresses: want 1 to %d", ifname, len(locals), maxLocals)
	}
	var words [maxLocals]uint32
	for i, a := range locals {
		if err := checkUnderlayAddress(a); err != nil {
			return fmt.Errorf("underlay %s: %w", ifname, err)
		}
		words[i] = word4(a)
	}
	l, err := s.net.Link(ifname)
	if err != nil {
		return fmt.Errorf("underlay: %w", err)
	}
	if err := s.configure(func(c *bpfConfig) { c.Local = words }); err != nil {
		return fmt.Errorf("underlay %s: %w", ifname, err)
	}
	s.mu.Lock()
	u := &underlayLinks{name: underlayLink + "-" + strconv.Itoa(l.Index)}
	old := s.underlays[l.Index]
	if old != nil {
		u.name = old.name
	}
	s.mu.Unlock()
	err = s.inNamespace(func() (err error) {
		if u.in, err = s.pins.attach(u.name, s.programs.FromUnderlay, l.Index); err != nil {
			return err
		}
		u.out, err = s.pins.attachAt(stampLinkPrefix+strconv.Itoa(l.Index), s.programs.ToUnderlay, l.Index, ebpf.AttachTCXEgress, nil)
		return err
	})
	if err != nil {
		return errors.Join(fmt.Errorf("underlay %s: %w", ifname, err), closeLinks(u.in, u.out))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.underlays[l.Index] = u
	if old != nil {
		return closeLinks(old.in, old.out)
	}
	return nil
}

// DetachUnderlay accepts no more tunnelled frames from an interface.
func (s *underlaySet) DetachUnderlay(ifindex int) error {
	s.mu.Lock()
	u := s.underlays[ifindex]
	delete(s.underlays, ifindex)
	s.mu.Unlock()
	if u == nil {
		return nil
	}
	if err := errors.Join(s.pins.detach(u.in, u.name), s.pins.detach(u.out, stampLinkPrefix+strconv.Itoa(ifindex))); err != nil {
		return fmt.Errorf("let go of underlay interface %d: %w", ifindex, err)
	}
	return nil
}

// AttachWireguard accepts tunnelled frames that the device has decrypted, of peers that may send
// them. There is one such device; another one takes its place.
func (s *underlaySet) AttachWireguard(ifname string) error {
	l, err := s.net.Link(ifname)
	if err != nil {
		return fmt.Errorf("WireGuard device: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wireguard != nil && linkInterface(s.wireguard) == l.Index {
		return nil
	}
	var attached link.Link
	if err := s.inNamespace(func() (err error) {
		attached, err = s.pins.attach(wireguardLink, s.programs.FromWireguard, l.Index)
		return err
	}); err != nil {
		return fmt.Errorf("WireGuard device %s: %w", ifname, err)
	}
	old := s.wireguard
	s.wireguard = attached
	return closeLinks(old)
}

// Underlays lists the indexes of the underlay's interfaces.
func (s *underlaySet) Underlays() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.underlays))
}

// adoptUnderlay takes over a program of the underlay or of the WireGuard device. If its interface
// has gone, so does the program.
func (s *underlaySet) adoptUnderlay(l link.Link, name string, ifindex int) error {
	if ifindex == 0 {
		return s.pins.detach(l, name)
	}
	if name == wireguardLink {
		s.wireguard = l
		return adoptInto(l, ifindex, s.programs.FromWireguard)
	}
	u := s.underlays[ifindex]
	if u == nil {
		u = &underlayLinks{name: underlayLink + "-" + strconv.Itoa(ifindex)}
		s.underlays[ifindex] = u
	}
	if strings.HasPrefix(name, stampLinkPrefix) {
		u.out = l
		return adoptInto(l, ifindex, s.programs.ToUnderlay)
	}
	u.name, u.in = name, l
	return adoptInto(l, ifindex, s.programs.FromUnderlay)
}

func (s *underlaySet) closeUnderlays() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := []error{closeLinks(s.wireguard)}
	for _, u := range s.underlays {
		errs = append(errs, closeLinks(u.in, u.out))
	}
	return errors.Join(errs...)
}

func checkUnderlayAddress(a netip.Addr) error {
	if a.Is4() {
		return nil
	}
	if !a.IsValid() {
		return errors.New("no tunnel address")
	}
	return fmt.Errorf("tunnel address %s is not IPv4: tunnels over IPv6 are not supported, give the host an IPv4 tunnel address", a)
}
