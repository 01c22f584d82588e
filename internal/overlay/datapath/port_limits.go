package datapath

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"heddle/internal/hostnet"
	"heddle/internal/topology"
)

// Directions of a port's limits.
const (
	limitEgress = iota
	limitIngress
	limitDirections
)

// pacedWait is the time in ns that a frame to a machine may wait in the queue of its interface.
const pacedWait = 200_000_000

func limitLinkPrefix(direction int) string {
	return [limitDirections]string{"limit-egress-", "limit-ingress-"}[direction]
}

// portLimitName returns the name of a port's limit.
func portLimitName(port string, direction int) string {
	return [limitDirections]string{"port-egress-", "port-ingress-"}[direction] + port
}

// PortLimitName returns the name of the limits of a port: of what its machine sends, and receives.
func PortLimitName(port string) (egress, ingress string) {
	return portLimitName(port, limitEgress), portLimitName(port, limitIngress)
}

// needs reports whether limits need a program in the direction.
func (l *PortLimits) needs(direction int) bool {
	if direction == limitIngress {
		return l.Ingress != (topology.Limit{})
	}
	return l.Marks || l.Egress != (topology.Limit{})
}

// limit puts the limits of a port in force that is attached to its interface. It waits for the
// kernel, so other ports go on meanwhile.
func (s *portSet) limit(p *portState) error {
	if p.Limits == (PortLimits{}) {
		return errors.Join(s.forgetLimits(p), s.unlimit(p))
	}
	wait, err := s.pace(p)
	if err != nil {
		return err
	}
	var entry bpfLimited
	if entry.Egress, err = s.setPortLimit(p, limitEgress, p.Limits.Egress, 0); err != nil {
		return err
	}
	if entry.Ingress, err = s.setPortLimit(p, limitIngress, p.Limits.Ingress, wait); err != nil {
		return err
	}
	if p.Limits.Marks {
		entry.Marks, entry.Dscp = 1, p.Limits.DSCP&63
	}
	if p.Trunk {
		entry.Trunk = 1
	}
	if err := s.maps.Limited.Put(lanKey(p.Index, p.VLAN), entry); err != nil {
		return fmt.Errorf("write limits: %w", err)
	}
	return s.updateLimiting(p)
}

// pace has frames to the machine wait for their departure where the kernel can do that, and returns
// for how long they may.
func (s *portSet) pace(p *portState) (wait uint64, err error) {
	if !p.Limits.needs(limitIngress) {
		return 0, nil
	}
	err = s.net.PaceLink(p.Index)
	if errors.Is(err, hostnet.ErrUnsupported) {
		return 0, nil
	}
	return pacedWait, err
}

func (s *portSet) setPortLimit(p *portState, direction int, l topology.Limit, wait uint64) (uint16, error) {
	name := portLimitName(p.Name, direction)
	if l == (topology.Limit{}) {
		return 0, s.limits.RemoveLimit(name)
	}
	number, err := s.limits.SetLimit(name, l, wait)
	return uint16(number), err
}

// limitPrograms are the programs on the interfaces of limited ports. One serves a trunk's port and
// its subports.
type limitPrograms struct {
	mu    sync.Mutex // held while a program is attached or detached; taken before that of the ports
	links map[limitHook]link.Link
}

// limitHook is an interface, and a direction of a machine's frames there.
type limitHook struct{ ifindex, direction int }

func (h limitHook) name() string { return limitLinkPrefix(h.direction) + strconv.Itoa(h.ifindex) }

// needsLimiting reports whether a port at the hook needs its program.
func (s *portSet) needsLimiting(hook limitHook) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.ports {
		if p.Index == hook.ifindex && p.Limits.needs(hook.direction) {
			return true
		}
	}
	return false
}

// updateLimiting attaches the programs that a port needs, and detaches those that it needed and no
// port needs any more. Those of other interfaces stay as they are.
func (s *portSet) updateLimiting(p *portState) error {
	isLimited := p.Limits != (PortLimits{})
	if !isLimited && p.limitsIndex == 0 {
		return nil
	}
	x := &s.limiting
	x.mu.Lock()
	defer x.mu.Unlock()
	var errs []error
	for _, ifindex := range []int{p.limitsIndex, p.Index} {
		for direction := range limitDirections {
			errs = append(errs, s.updateHook(limitHook{ifindex, direction}))
		}
	}
	err := errors.Join(errs...)
	switch {
	case err != nil:
	case isLimited:
		p.limitsIndex = p.Index
	default:
		p.limitsIndex = 0
	}
	return err
}

// updateHook attaches or detaches the program of a hook. It needs the lock of the programs.
func (s *portSet) updateHook(hook limitHook) error {
	l := s.limiting.links[hook]
	switch needed := hook.ifindex != 0 && s.needsLimiting(hook); {
	case needed && (l == nil || linkInterface(l) == 0):
		return s.startLimiting(hook)
	case !needed && l != nil:
		return s.stopLimiting(hook, l)
	}
	return nil
}

func (s *portSet) stopLimiting(hook limitHook, l link.Link) error {
	if err := s.pins.detach(l, hook.name()); err != nil {
		return err
	}
	delete(s.limiting.links, hook)
	if hook.direction == limitIngress {
		return s.net.UnpaceLink(hook.ifindex)
	}
	return nil
}

// startLimiting attaches a program; that on an interface that has gone goes with its port.
func (s *portSet) startLimiting(hook limitHook) error {
	program, kind := s.limitProgram(hook.direction)
	return s.inNamespace(func() error {
		if _, err := net.InterfaceByIndex(hook.ifindex); err != nil {
			return nil
		}
		attached, err := s.pins.attachAt(hook.name(), program, hook.ifindex, kind, link.Head())
		if err != nil {
			return err
		}
		if s.limiting.links == nil {
			s.limiting.links = map[limitHook]link.Link{}
		}
		old := s.limiting.links[hook]
		s.limiting.links[hook] = attached
		return closeLinks(old)
	})
}

func (s *portSet) limitProgram(direction int) (*ebpf.Program, ebpf.AttachType) {
	if direction == limitIngress {
		return s.programs.LimitToWorkload, ebpf.AttachTCXEgress
	}
	return s.programs.LimitFromWorkload, ebpf.AttachTCXIngress
}

func (x *limitPrograms) close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return closeLinks(slices.Collect(maps.Values(x.links))...)
}

// unlimit removes the limits of a port, and the programs that no other needs. Its interface may be
// another port's by now.
func (s *portSet) unlimit(p *portState) error {
	var errs []error
	for direction := range limitDirections {
		errs = append(errs, s.limits.RemoveLimit(portLimitName(p.Name, direction)))
	}
	return errors.Join(append(errs, s.updateLimiting(p))...)
}

// forgetLimits removes the entry of the interface, or VLAN there, that the port is or was at.
func (s *portSet) forgetLimits(p *portState) error {
	return ignoreMissing(s.maps.Limited.Delete(lanKey(p.Index, p.VLAN)))
}

// limitsFound returns the limits of a port that an earlier agent put in force.
func (s *portSet) limitsFound(p *portState) (l PortLimits) {
	var entry bpfLimited
	if p.Localnet || p.Index == 0 || s.maps.Limited.Lookup(lanKey(p.Index, p.VLAN), &entry) != nil {
		return l
	}
	return PortLimits{Egress: s.limits.limit(portLimitName(p.Name, limitEgress)),
		Ingress: s.limits.limit(portLimitName(p.Name, limitIngress)), Marks: entry.Marks != 0, DSCP: entry.Dscp}
}

// adoptLimit takes over a program of an earlier agent. One whose interface has gone, or that no
// port needs, goes.
func (s *portSet) adoptLimit(l link.Link, direction int, index string, ifindex int) error {
	n, err := strconv.Atoi(index)
	hook := limitHook{n, direction}
	if err != nil || ifindex == 0 || ifindex != n || !s.needsLimiting(hook) {
		return s.pins.detach(l, limitLinkPrefix(direction)+index)
	}
	x := &s.limiting
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.links == nil {
		x.links = map[limitHook]link.Link{}
	}
	x.links[hook] = l
	program, _ := s.limitProgram(direction)
	return adoptInto(l, ifindex, program)
}
