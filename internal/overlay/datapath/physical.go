package datapath

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/cilium/ebpf/link"

	"heddle/internal/hostnet"
	"heddle/internal/topology/packet"
)

// maxVLAN is the highest VLAN id (IEEE 802.1Q §9.6).
const maxVLAN = 4094

// tagOf returns a VLAN as the programs have it.
func tagOf(vlan uint16) uint16 {
	if vlan == 0 {
		return 0
	}
	return 0x1000 | vlan
}

func lanKey(ifindex int, vlan uint16) bpfLanKey {
	return bpfLanKey{Ifindex: uint32(ifindex), Vlan: uint32(vlan)}
}

// physicalSet holds the programs on the interfaces into physical networks. Such an interface is
// promiscuous while it has one, since the MAC addresses at home here are not its own.
type physicalSet struct {
	*kernel

	mu    sync.Mutex // held while a program is attached or detached; taken before that of the ports
	links map[int]link.Link
}

// attach has the interface serve localnet ports.
func (s *physicalSet) attach(ifindex int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.pins.setPromiscuous(s.net, ifindex); err != nil {
		return err
	}
	if old := s.links[ifindex]; old != nil && linkInterface(old) == ifindex {
		return nil
	}
	return s.inNamespace(func() error {
		attached, err := s.pins.attach(physicalName(ifindex), s.programs.FromPhysical, ifindex)
		if err != nil {
			return err
		}
		old := s.links[ifindex]
		s.links[ifindex] = attached
		return closeLinks(old)
	})
}

func physicalName(ifindex int) string { return physicalLinkPrefix + strconv.Itoa(ifindex) }

// adopt takes over a program of an earlier agent. One whose interface has gone, or has no port,
// goes.
func (s *physicalSet) adopt(l link.Link, name string, ifindex int, used bool) error {
	index, err := strconv.Atoi(name[len(physicalLinkPrefix):])
	if err != nil || ifindex == 0 || !used {
		return errors.Join(s.pins.detach(l, name), s.pins.resetPromiscuous(s.net, index))
	}
	s.links[ifindex] = l
	return adoptInto(l, ifindex, s.programs.FromPhysical)
}

// detachUnusedPhysical gives interfaces without a localnet port back to the host alone.
func (s *portSet) detachUnusedPhysical() error {
	p := s.physical
	p.mu.Lock()
	defer p.mu.Unlock()
	used := s.physicalInterfaces()
	for ifindex, l := range p.links {
		if used[ifindex] {
			continue
		}
		if err := errors.Join(s.pins.detach(l, physicalName(ifindex)), s.pins.resetPromiscuous(s.net, ifindex)); err != nil {
			return err
		}
		delete(p.links, ifindex)
	}
	return nil
}

// physicalInterfaces returns the indexes of the interfaces with localnet ports.
func (s *portSet) physicalInterfaces() map[int]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := map[int]bool{}
	for _, p := range s.ports {
		if p.Localnet {
			used[p.Index] = true
		}
	}
	return used
}

func (s *physicalSet) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return closeLinks(slices.Collect(maps.Values(s.links))...)
}

// forgetLan removes the entry of a localnet port's VLAN, unless that is another port's by now.
func (s *portSet) forgetLan(p *portState) error {
	key := lanKey(p.Index, p.VLAN)
	var found bpfLan
	if err := s.maps.Lans.Lookup(key, &found); err != nil || found.Port != uint32(p.Port) {
		return ignoreMissing(err)
	}
	return ignoreMissing(s.maps.Lans.Delete(key))
}

// SetHomes has unicast frames to MAC addresses come in by a localnet port.
func (s *portSet) SetHomes(p Port, macs ...packet.MAC) error {
	for _, mac := range macs {
		if err := orTableFull(s.maps.Homes.Put(bpfHomeKey{Port: uint32(p), Mac: mac}, uint8(1))); err != nil {
			return fmt.Errorf("take in frames to %s: %w", mac, err)
		}
	}
	return nil
}

// DeleteHomes reverses SetHomes. Addresses that are not there are no error.
func (s *portSet) DeleteHomes(p Port, macs ...packet.MAC) error {
	for _, mac := range macs {
		if err := ignoreMissing(s.maps.Homes.Delete(bpfHomeKey{Port: uint32(p), Mac: mac})); err != nil {
			return fmt.Errorf("take no frames to %s: %w", mac, err)
		}
	}
	return nil
}

// Homes lists the MAC addresses of a localnet port.
func (s *portSet) Homes(p Port) ([]packet.MAC, error) {
	var all []packet.MAC
	err := eachEntry(s.maps.Homes, func(keys []bpfHomeKey, _ []uint8) bool {
		for i := range keys {
			if keys[i].Port == uint32(p) {
				all = append(all, keys[i].Mac)
			}
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("list the addresses at home: %w", err)
	}
	return all, nil
}

func (s *portSet) deleteHomesOf(p Port) error {
	macs, err := s.Homes(p)
	if err != nil {
		return err
	}
	return s.DeleteHomes(p, macs...)
}

// setPromiscuous has an interface take in frames to any MAC address, and notes that if it did not.
func (p pins) setPromiscuous(n *hostnet.Linux, ifindex int) error {
	was, err := n.SetPromiscuous(ifindex, true)
	if err != nil || was {
		return err
	}
	if err := os.MkdirAll(filepath.Join(p.promiscuous(), strconv.Itoa(ifindex)), 0o700); err != nil {
		return fmt.Errorf("note that interface %d was not promiscuous: %w", ifindex, err)
	}
	return nil
}

// resetPromiscuous reverses setPromiscuous, also of an earlier agent.
func (p pins) resetPromiscuous(n *hostnet.Linux, ifindex int) error {
	note := filepath.Join(p.promiscuous(), strconv.Itoa(ifindex))
	if _, err := os.Stat(note); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if _, err := n.SetPromiscuous(ifindex, false); err != nil && !errors.Is(err, hostnet.ErrNotFound) {
		return err
	}
	return os.Remove(note)
}

// resetAllPromiscuous is resetPromiscuous for all interfaces.
func (p pins) resetAllPromiscuous(n *hostnet.Linux) error {
	entries, err := os.ReadDir(p.promiscuous())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("look for promiscuous interfaces: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if ifindex, err := strconv.Atoi(e.Name()); err == nil {
			errs = append(errs, p.resetPromiscuous(n, ifindex))
		}
	}
	return errors.Join(errs...)
}
