package offline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"time"

	"heddle/calico"
	"heddle/internal/hostnet"
	"heddle/internal/netlab"
	"heddle/internal/policy"
	"heddle/internal/policy/judge"
	"heddle/internal/store"
	"heddle/internal/topology/packet"
)

// kernelLab is a host made for one case: a namespace in which the agent works, with the interfaces
// of all endpoints and one more for the network outside, and a namespace that holds their other
// ends.
//
//	checked                      far
//	  cali-a  (workload a) ──────── p0   machines: they send the frames of the case,
//	  eth0    (host endpoint) ───── p1   and answer nothing
//	  outside0 ──────────────────── p2
type kernelLab struct {
	spaces    *netlab.Lab
	host, far *netlab.Namespace
	ports     map[string]*kernelPort // by interface of the host
	listeners map[listening]*netlab.Host
	owned     map[netip.Addr]bool // addresses of the host itself
	sent      int                 // packets so far: each is marked with its number
}

// kernelPort is an interface of the host.
type kernelPort struct {
	near, far *netlab.Wire
	workload  bool
	mac       packet.MAC // of the host's end
	machine   packet.MAC // of the other
}

// listening identifies a kind of packets that a program of the host can listen to.
type listening struct {
	protocol calico.Protocol
	six      bool
}

// externalInterface is the host's interface to the network outside, which no endpoint governs.
const externalInterface = "outside0"

// answer is the kernel's verdict on a packet.
type answer struct {
	judge.Verdict
	unsent error // why it could not be sent; nil: it was
}

// ask sends the packets of a case through a kernel that the agent has programmed, and returns the
// verdicts. One that differs from the calculated verdict says so. A packet that cannot be sent does
// not keep the others from being sent.
func (w *policyWorld) ask(ctx context.Context, c *policyCase, calculated []judge.Verdict) (answers []answer, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("--kernel makes network namespaces: run it as root")
	}
	answers = make([]answer, len(c.packets))
	for i := range c.packets {
		answers[i].unsent = w.deliverable(&c.packets[i])
	}
	if !slices.ContainsFunc(answers, func(a answer) bool { return a.unsent == nil }) {
		return answers, nil
	}
	lab, err := newKernelLab(w)
	if lab != nil {
		defer func() { err = errors.Join(err, lab.close()) }()
	}
	if err != nil {
		return nil, err
	}
	stop, err := lab.program(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	err = lab.far.OnOneCore(func() error {
		for i := range c.packets {
			if answers[i].unsent != nil {
				continue
			}
			arrived, err := lab.try(w, &c.packets[i])
			var refused *sendError
			switch {
			case errors.As(err, &refused):
				answers[i].unsent = fileErrorf(c.packets[i].place, "--kernel: the kernel does not send it: %v", refused.err)
			case err != nil:
				return fmt.Errorf("%s: %w", c.packets[i].place, err)
			default:
				answers[i].Verdict = fromKernel(arrived, calculated[i])
			}
		}
		return nil
	})
	return answers, err
}

// sendError is the kernel's refusal to send a packet.
type sendError struct{ err error }

func (e *sendError) Error() string { return "send: " + e.err.Error() }
func (e *sendError) Unwrap() error { return e.err }

// fromKernel returns the kernel's verdict, with the calculated reason if they agree.
func fromKernel(arrived bool, calculated judge.Verdict) judge.Verdict {
	if arrived == calculated.Allowed {
		return calculated
	}
	word := "it does not arrive"
	if arrived {
		word = "it arrives"
	}
	return judge.Verdict{Allowed: arrived, By: "the kernel: " + word + ", although decided by " + calculated.By, Walk: calculated.Walk}
}

// newKernelLab makes the namespaces and interfaces. What was made before an error is the lab's to
// close.
func newKernelLab(w *policyWorld) (*kernelLab, error) {
	lab := &kernelLab{spaces: netlab.NewRandom("hc"), ports: map[string]*kernelPort{}, listeners: map[listening]*netlab.Host{}, owned: map[netip.Addr]bool{}}
	var err error
	if lab.host, err = lab.spaces.Namespace("host"); err != nil {
		return lab, err
	}
	if lab.far, err = lab.spaces.Namespace("far"); err != nil {
		return lab, err
	}
	// The far ends say nothing of their own. The host itself takes any source, so that only policy
	// is left to refuse one.
	for _, s := range []struct {
		ns          *netlab.Namespace
		name, value string
	}{
		{lab.far, "net/ipv6/conf/all/disable_ipv6", "1"}, {lab.far, "net/ipv6/conf/default/disable_ipv6", "1"},
		{lab.host, "net/ipv4/ip_forward", "1"}, {lab.host, "net/ipv6/conf/all/forwarding", "1"},
		{lab.host, "net/ipv6/conf/default/accept_dad", "0"}, {lab.host, "net/ipv6/conf/all/accept_dad", "0"},
		{lab.host, "net/ipv4/conf/all/rp_filter", "0"}, {lab.host, "net/ipv4/conf/default/rp_filter", "0"},
		{lab.host, "net/ipv4/conf/all/accept_local", "1"}, {lab.host, "net/ipv4/conf/all/send_redirects", "0"},
	} {
		if err := s.ns.Sysctl(s.name, s.value); err != nil {
			return lab, err
		}
	}
	for _, i := range w.interfaces {
		if err := lab.plug(i); err != nil {
			return lab, err
		}
		for _, a := range i.addresses {
			if err := lab.own(a, i.name); err != nil {
				return lab, err
			}
		}
	}
	return lab, nil
}

// plug makes an interface of the host and its other end.
func (lab *kernelLab) plug(i *hostInterface) error {
	name, number := i.name, len(lab.ports)
	p := &kernelPort{workload: i.workload, mac: packet.MAC{2, 0x68, 0, 0, byte(number >> 8), byte(number)}, machine: packet.MAC{2, 0x6d, 0, 0, byte(number >> 8), byte(number)}}
	if i.mac != nil {
		p.machine = packet.MAC(*i.mac)
	}
	lab.ports[name] = p
	far := fmt.Sprintf("p%d", number)
	if err := lab.host.IP(fmt.Sprintf("link add %s address %s type veth peer name %s address %s netns %s", name, p.mac, far, p.machine, lab.far.Name)); err != nil {
		return err
	}
	if err := errors.Join(lab.far.IP("link set "+far+" arp off up"), lab.host.IP("link set "+name+" up")); err != nil {
		return err
	}
	var err error
	if p.near, err = lab.host.Wire(name); err != nil {
		return err
	}
	p.far, err = lab.far.Wire(far)
	return err
}

// own gives the host an address, which is in use when it returns: of IPv6 the kernel takes its
// time.
func (lab *kernelLab) own(a netip.Addr, link string) error {
	if lab.owned[a] {
		return nil
	}
	lab.owned[a] = true
	if a.Is4() {
		return lab.host.IP(fmt.Sprintf("addr replace %s/32 dev %s", a, link))
	}
	if err := lab.host.IP(fmt.Sprintf("addr replace %s/128 dev %s nodad", a, link)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), ownTimeout)
	defer cancel()
	return netlab.Until(ctx, a.String()+" to be the host's", func() (bool, error) {
		routes, err := lab.host.Output(ctx, "ip", "-6", "route", "show", "table", "local", a.String())
		return routes != "", err
	})
}

// ownTimeout bounds how long the kernel takes to add an address.
const ownTimeout = 5 * time.Second

// program starts an agent over a store that holds the case, and waits until what it asks for is in
// force.
func (lab *kernelLab) program(ctx context.Context, c *policyCase) (stop func() error, err error) {
	st := store.NewMemory()
	ops := []store.Op{{Key: "/calico/v1/Ready", Value: []byte("true")}}
	for name, value := range c.config {
		ops = append(ops, store.Op{Key: "/calico/v1/config/" + name, Value: []byte(value)})
	}
	for _, o := range c.objects {
		path, err := o.key.Path()
		if err != nil {
			return nil, err
		}
		ops = append(ops, store.Op{Key: path, Value: o.value})
	}
	if _, err := st.Commit(ctx, nil, ops); err != nil {
		return nil, err
	}
	ns, err := hostnet.OpenNamespace(lab.host.Name)
	if err != nil {
		return nil, err
	}
	var log bytes.Buffer
	agent := policy.New(policy.Options{Host: checkedHost, Store: st, Namespace: ns, Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx) }()
	stop = func() error {
		cancel()
		return errors.Join(<-ended, ns.Close(), st.Close())
	}
	select {
	case <-agent.Ready():
		return stop, nil
	case <-time.After(agentTimeout):
		err = fmt.Errorf("the agent of the namespace has not got its rules in force after %s", agentTimeout)
	case end := <-ended:
		ended <- nil
		err = fmt.Errorf("the agent of the namespace has ended: %w", end)
	}
	err = errors.Join(err, stop())
	return nil, fmt.Errorf("%w; what it said:\n%s", err, log.String()) // it has ended: no more writes to log
}

// agentTimeout bounds how long the agent takes for a case.
const agentTimeout = time.Minute

func (lab *kernelLab) close() error {
	for _, p := range lab.ports {
		if p.near != nil {
			p.near.Close()
		}
		if p.far != nil {
			p.far.Close()
		}
	}
	for _, l := range lab.listeners {
		l.Close()
	}
	return lab.spaces.Close()
}

// try sends one packet into the host and says whether it came out where it was to.
func (lab *kernelLab) try(w *policyWorld, p *policyPacket) (arrived bool, err error) {
	in, out := w.way(p)
	if err := lab.prepare(w, p, in, out); err != nil {
		return false, err
	}
	listener, err := lab.listener(p)
	if err != nil {
		return false, err
	}
	if p.packet.Dst.IsMulticast() && p.packet.Dst.Is6() && in != "" {
		if err := listener.Join(lab.host, in, p.packet.Dst); err != nil {
			return false, err
		}
	}
	lab.sent++
	mark, behind := fmt.Appendf(nil, "heddle packet %08d", lab.sent), fmt.Appendf(nil, "heddle behind %08d", lab.sent)
	if in == "" {
		if err := listener.Send(p.ip(mark), p.packet.Dst); err != nil {
			return false, &sendError{err}
		}
	} else {
		from := lab.ports[in]
		if err := from.far.Send(p.frame(lab.source(p, from), from.mac, mark)); err != nil {
			return false, &sendError{err}
		}
		if err := from.far.Send(probe(from, behind)); err != nil {
			return false, err
		}
		// The probe came behind the packet, so the kernel is done with the packet.
		if _, err := from.near.Until(behind, mark); err != nil {
			return false, err
		}
	}
	if out == "" {
		return listener.Has(mark)
	}
	to := lab.ports[out]
	if err := to.near.Send(probe(to, behind)); err != nil {
		return false, err
	}
	return to.far.Until(behind, mark)
}

// probe returns a frame that only this test uses (IEEE 802 local experimental EtherType).
func probe(p *kernelPort, mark []byte) []byte {
	frame := packet.Ethernet{Dst: p.mac, Src: p.machine, Type: 0x88b5}.Append(nil)
	return append(append(frame, mark...), make([]byte, 60)...)
}

// source is the MAC that the packet comes from.
func (lab *kernelLab) source(p *policyPacket, from *kernelPort) packet.MAC {
	if p.packet.SrcMAC != nil {
		return packet.MAC(*p.packet.SrcMAC)
	}
	return from.machine
}

// listener is the host's program for packets of this kind.
func (lab *kernelLab) listener(p *policyPacket) (*netlab.Host, error) {
	kind := listening{p.packet.Protocol, p.packet.Src.Is6()}
	if l := lab.listeners[kind]; l != nil {
		return l, nil
	}
	l, err := lab.host.Host(uint8(kind.protocol), kind.six)
	if err == nil {
		lab.listeners[kind] = l
	}
	return l, err
}

// prepare gives the host what the packet takes for granted: routes and neighbours outside of what
// the agent cares for, addresses of its own, and the connection that the packet belongs to.
func (lab *kernelLab) prepare(w *policyWorld, p *policyPacket, in, out string) error {
	src, dst := p.packet.Src, w.rules.Translated(p.packet.Dst)
	if dst == metadataAddress() && w.config.Metadata.IsValid() {
		dst = w.config.Metadata.Addr()
	}
	if in == "" {
		if err := lab.own(src, "lo"); err != nil {
			return err
		}
	}
	if err := lab.lead(p, dst, in, out); err != nil {
		return err
	}
	if err := lab.host.ForgetConnections(); err != nil || p.packet.State != judge.Established {
		return err
	}
	return lab.host.Establish(p.connection(w))
}

// lead makes the host deliver the packet where the agent does not: to itself, or out of an
// interface.
func (lab *kernelLab) lead(p *policyPacket, dst netip.Addr, in, out string) error {
	switch {
	case out == "" && (dst.IsMulticast() || dst.IsLoopback() || dst == broadcast()):
		return nil
	case out == "" && dst.Is6() && dst.IsLinkLocalUnicast():
		return lab.own(dst, in)
	case out == "":
		return lab.own(dst, "lo")
	}
	var lines []string
	if !lab.ports[out].workload { // the routes to workloads are the agent's affair
		lines = append(lines, fmt.Sprintf("route replace %s/%d dev %s", dst, dst.BitLen(), out))
	}
	for _, a := range []netip.Addr{dst, p.packet.Dst} { // what belongs to no connection is not translated
		lines = append(lines, fmt.Sprintf("neigh replace %s lladdr %s dev %s nud permanent", a, lab.ports[out].machine, out))
	}
	return lab.host.IP(lines...)
}

// connection is the connection that the packet belongs to, as its first packet looked.
func (p *policyPacket) connection(w *policyWorld) netlab.Connection {
	q := &p.packet
	c := netlab.Connection{Protocol: uint8(q.Protocol), Src: netip.AddrPortFrom(q.Src, q.SrcPort), Dst: netip.AddrPortFrom(q.Dst, q.DstPort)}
	if q.Protocol == calico.ProtocolICMP || q.Protocol == calico.ProtocolICMPv6 {
		c.Src = netip.AddrPortFrom(q.Src, uint16(q.ICMPType)<<8|uint16(q.ICMPCode))
		c.Dst = netip.AddrPortFrom(q.Dst, echoID)
	}
	if to := w.rules.Translated(q.Dst); to != q.Dst {
		c.Translated = to
	}
	return c
}

// way is the names of the interfaces by which the packet enters and leaves; empty: the host itself.
func (w *policyWorld) way(p *policyPacket) (in, out string) {
	from, to := w.rules.Way(w.placed(p))
	if i := w.interfaces[from]; i != nil {
		in = i.name
	}
	if i := w.interfaces[to]; i != nil {
		out = i.name
	}
	return in, out
}

// metadataAddress returns the address at which workloads ask for metadata.
func metadataAddress() netip.Addr { return netip.AddrFrom4([4]byte{169, 254, 169, 254}) }

// broadcast returns the address of all hosts on a link.
func broadcast() netip.Addr { return netip.AddrFrom4([4]byte{255, 255, 255, 255}) }

// deliverable refuses a packet whose addresses lead elsewhere than it says: a kernel goes by
// addresses.
func (w *policyWorld) deliverable(p *policyPacket) error {
	if err := p.sendable(); err != nil {
		return err
	}
	owner := w.owners[w.rules.Translated(p.packet.Dst)]
	from, to := w.rules.Way(w.placed(p))
	switch {
	case !w.plugged(from) || !w.plugged(to):
		return fileErrorf(p.place, "--kernel: the agent refuses an endpoint of this packet, so its interface is not one of its own")
	case from == judge.LocalHost() && p.spoils():
		return fileErrorf(p.place, "--kernel: a kernel trusts the checksums of what its own host sends, so icmp type %d from there is never invalid", p.packet.ICMPType)
	case owner != "" && owner != p.to:
		return fileErrorf(p.place, "--kernel: dst %s leads to %s, so no packet to it arrives at %s", p.packet.Dst, owner, p.to)
	case owner == "" && w.active(p.to):
		return fileErrorf(p.place, "--kernel: dst %s is not an address of %s, so no packet to it arrives there", p.packet.Dst, p.to)
	}
	return nil
}

// plugged reports whether the place has an interface, or is the host itself.
func (w *policyWorld) plugged(p judge.Place) bool {
	return p == judge.LocalHost() || w.interfaces[p] != nil
}

// active reports whether the place is a workload that owns addresses.
func (w *policyWorld) active(place string) bool {
	for _, id := range w.owners {
		if id == place {
			return true
		}
	}
	return false
}
