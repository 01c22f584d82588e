package hostnet

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// Fake is a network in memory that behaves like the kernel's: it refuses what the kernel refuses,
// deletes what goes with a link or an address, and answers for neighbours whose link is joined to
// it. Joined fakes (see LinkSpec.PeerNet) share one lock.
type Fake struct {
	world  *fakeWorld
	links  map[string]*fakeLink
	routes []Route
	next   int // index of the next link
	watch  []*fakeWatch
	// By full name; those of links go with them.
	settings    map[string]string
	connections []Connection
}

type fakeWorld struct{ mu sync.Mutex }

type fakeLink struct {
	Link
	addresses  []netip.Prefix
	neighbours map[netip.Addr]Neighbour
	proxies    map[netip.Addr]bool
	forwards   map[MAC]netip.Addr
	peer       *fakeLink
	home       *Fake
}

type fakeWatch struct {
	out  chan Event
	lost bool
}

var _ Net = (*Fake)(nil)

// NewFake makes a network with a loopback link only. To join fakes, pass one of them as other; else
// nil.
func NewFake(other *Fake) *Fake {
	f := &Fake{world: &fakeWorld{}, links: map[string]*fakeLink{}, next: 2, settings: map[string]string{}}
	if other != nil {
		f.world = other.world
	}
	f.links["lo"] = f.newLink(Link{Index: 1, Name: "lo", Kind: Loopback, MTU: 65536})
	return f
}

// Close does nothing.
func (f *Fake) Close() error { return nil }

func (f *Fake) lock() func() {
	f.world.mu.Lock()
	return f.world.mu.Unlock
}

func (f *Fake) Links() ([]Link, error) {
	defer f.lock()()
	out := make([]Link, 0, len(f.links))
	for _, l := range f.links {
		out = append(out, l.Link)
	}
	slices.SortFunc(out, func(a, b Link) int { return a.Index - b.Index })
	return out, nil
}

func (f *Fake) Link(name string) (link Link, err error) {
	err = f.change(name, func(l *fakeLink) { link = l.Link })
	return link, err
}

func (f *Fake) find(name string) (*fakeLink, error) {
	if l, ok := f.links[name]; ok {
		return l, nil
	}
	return nil, fmt.Errorf("link %s: %w", name, ErrNotFound)
}

// change does something to a link.
func (f *Fake) change(link string, do func(*fakeLink)) error {
	defer f.lock()()
	l, err := f.find(link)
	if err == nil {
		do(l)
	}
	return err
}

// remove is change for a deletion, which succeeds without the link.
func (f *Fake) remove(link string, do func(*fakeLink)) error {
	_ = f.change(link, do) // it only fails without the link
	return nil
}

func (f *Fake) AddLink(spec LinkSpec) (Link, error) {
	defer f.lock()()
	if err := f.mayAdd(spec.Name); err != nil {
		return Link{}, err
	}
	mtu := cmp.Or(spec.MTU, 1500)
	switch spec.Kind {
	case Veth:
		return f.addVeth(spec, mtu)
	case Tap, Bridge, Dummy, VXLAN, WireGuard:
	case IPIP:
		mtu = cmp.Or(spec.MTU, 1480)
	default:
		return Link{}, fmt.Errorf("link %s: cannot make one of kind %q: %w", spec.Name, spec.Kind, ErrInvalid)
	}
	l := f.put(spec.Name, spec.Kind, mtu, spec.MAC)
	if spec.Kind == VXLAN && spec.VNI != 0 {
		l.VXLAN = VXLANSpec{VNI: spec.VNI, Port: spec.Port, Local: spec.Local}
	}
	return l.Link, nil
}

func (f *Fake) newLink(l Link) *fakeLink {
	return &fakeLink{Link: l, neighbours: map[netip.Addr]Neighbour{}, proxies: map[netip.Addr]bool{}, forwards: map[MAC]netip.Addr{}, home: f}
}

func (f *Fake) addVeth(spec LinkSpec, mtu int) (Link, error) {
	home := f
	if spec.PeerNet != nil {
		other, ok := spec.PeerNet.(*Fake)
		if !ok || other.world != f.world {
			return Link{}, fmt.Errorf("link %s: peer %s in another kind of network: %w", spec.Name, spec.Peer, ErrInvalid)
		}
		home = other
	}
	if err := home.mayAdd(spec.Peer); err != nil {
		return Link{}, err
	}
	l := f.put(spec.Name, Veth, mtu, spec.MAC)
	l.peer = home.put(spec.Peer, Veth, mtu, MAC{})
	l.peer.peer = l
	l.Elsewhere, l.peer.Elsewhere = home != f, home != f
	return l.Link, nil
}

func (f *Fake) mayAdd(name string) error {
	if name == "" || len(name) > 15 || strings.ContainsAny(name, "/ \t\n") || name == "." || name == ".." {
		return fmt.Errorf("add link %q: %w", name, ErrInvalid)
	}
	if _, taken := f.links[name]; taken {
		return fmt.Errorf("add link %s: %w", name, ErrExists)
	}
	return nil
}

func (f *Fake) put(name string, kind Kind, mtu int, mac MAC) *fakeLink {
	l := f.newLink(Link{Index: f.next, Name: name, Kind: kind, MTU: mtu, MAC: mac})
	f.next++
	if mac == (MAC{}) {
		l.MAC[0] = 0x02
		binary.BigEndian.PutUint32(l.MAC[2:], uint32(l.Index))
		copy(l.MAC[1:2], name)
	}
	f.links[name] = l
	f.send(Event{Kind: LinkSet, Link: l.Link})
	return l
}

func (f *Fake) DeleteLink(name string) error {
	defer f.lock()()
	l, ok := f.links[name]
	switch {
	case !ok:
		return nil
	case l.Kind == Loopback:
		return fmt.Errorf("delete link %s: %w", name, ErrInvalid)
	}
	l.remove()
	if l.peer != nil {
		l.peer.remove()
	}
	return nil
}

func (l *fakeLink) remove() {
	l.Up = false
	l.home.dropRoutes(func(r Route) bool { return r.Link == l.Name })
	delete(l.home.links, l.Name)
	l.home.dropSettings(l.Name)
	l.home.send(Event{Kind: LinkGone, Link: l.Link})
}

func (f *Fake) SetUp(name string, up bool) error {
	return f.change(name, func(l *fakeLink) {
		if l.Up = up; up {
			l.connectRoutes()
		} else {
			f.dropRoutes(func(r Route) bool { return r.Link == name })
			clear(l.neighbours)
			clear(l.proxies)
		}
		l.carrier()
		if l.peer != nil {
			l.peer.carrier()
		}
	})
}

// carrier sets whether a link runs: a veth when both ends are up, a tap when it is open, other
// links when up.
func (l *fakeLink) carrier() {
	switch {
	case l.peer != nil:
		l.Running = l.Up && l.peer.Up
	case l.Kind == Tap || l.Kind == Bridge:
		l.Running = false
	default:
		l.Running = l.Up
	}
	l.home.send(Event{Kind: LinkSet, Link: l.Link})
}

func (f *Fake) SetMTU(name string, mtu int) error {
	defer f.lock()()
	l, err := f.find(name)
	if err != nil {
		return err
	}
	if mtu < 68 || mtu > 65535 {
		return fmt.Errorf("set MTU %d of link %s: %w", mtu, name, ErrInvalid)
	}
	l.MTU = mtu
	f.send(Event{Kind: LinkSet, Link: l.Link})
	return nil
}

func (f *Fake) Silence(name string) error { return f.change(name, func(*fakeLink) {}) }

func (f *Fake) Addresses(link string) (addresses []netip.Prefix, err error) {
	err = f.change(link, func(l *fakeLink) { addresses = slices.SortedFunc(slices.Values(l.addresses), netip.Prefix.Compare) })
	return addresses, err
}

func (f *Fake) AllAddresses() (map[int][]netip.Prefix, error) {
	defer f.lock()()
	out := map[int][]netip.Prefix{}
	for _, l := range f.links {
		if len(l.addresses) > 0 {
			out[l.Index] = slices.SortedFunc(slices.Values(l.addresses), netip.Prefix.Compare)
		}
	}
	return out, nil
}

func (f *Fake) LinkWith(address netip.Addr) (Link, error) {
	defer f.lock()()
	if l := f.owner(address); l != nil {
		return l.Link, nil
	}
	return Link{}, fmt.Errorf("link with address %s: %w", address, ErrNotFound)
}

func (f *Fake) AddAddress(link string, address netip.Prefix) error {
	return f.change(link, func(l *fakeLink) {
		if slices.Contains(l.addresses, address) {
			return
		}
		l.addresses = append(l.addresses, address)
		f.send(Event{Kind: AddressChanged, LinkIndex: l.Index, Address: address})
		l.connectRoutes()
	})
}

// connectRoutes adds the routes that the kernel makes for the addresses of a link that is up.
func (l *fakeLink) connectRoutes() {
	if !l.Up {
		return
	}
	for _, a := range l.addresses {
		if a.IsSingleIP() && a.Addr().Is4() {
			continue
		}
		r := Route{Dst: a.Masked(), Link: l.Name, Kernel: true, Protocol: byKernel}
		if a.Addr().Is4() {
			r.Source = a.Addr()
		}
		l.home.addRoute(r)
	}
}

func (f *Fake) DeleteAddress(link string, address netip.Prefix) error {
	return f.remove(link, func(l *fakeLink) {
		if !slices.Contains(l.addresses, address) {
			return
		}
		l.addresses = slices.DeleteFunc(l.addresses, func(a netip.Prefix) bool { return a == address })
		if !slices.ContainsFunc(l.addresses, func(a netip.Prefix) bool { return a.Masked() == address.Masked() }) {
			f.dropRoutes(func(r Route) bool { return r.Kernel && r.Link == link && r.Dst == address.Masked() })
		}
		f.send(Event{Kind: AddressChanged, LinkIndex: l.Index, Address: address, Removed: true})
	})
}

// send never waits: a reader with a full queue loses its place, and receives Lost once there is
// room.
func (f *Fake) send(e Event) {
	for _, w := range f.watch {
		if w.lost {
			select {
			case w.out <- Event{Kind: Lost}:
				w.lost = false
			default:
				continue
			}
		}
		select {
		case w.out <- e:
		default:
			w.lost = true
		}
	}
}

func (f *Fake) Watch(ctx context.Context) (<-chan Event, error) {
	defer f.lock()()
	w := &fakeWatch{out: make(chan Event, watchQueue)}
	f.watch = append(f.watch, w)
	context.AfterFunc(ctx, func() {
		defer f.lock()()
		f.watch = slices.DeleteFunc(f.watch, func(x *fakeWatch) bool { return x == w })
		close(w.out)
	})
	return w.out, nil
}
