package hostnet

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// Fake is a network in memory that behaves like the kernel's: it refuses what the kernel refuses, deletes what goes
// with a link or an address, and answers for neighbours whose link is joined to it. Joined fakes (see LinkSpec.PeerNet)
// share one lock.
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

// NewFake makes an empty network: a loopback link and nothing else. A fake made with the fakes it will be joined to
// passes one of them as other; else nil.
func NewFake(other *Fake) *Fake {
	f := &Fake{world: &fakeWorld{}, links: map[string]*fakeLink{}, next: 2, settings: map[string]string{}}
	if other != nil {
		f.world = other.world
	}
	f.links["lo"] = f.newLink(Link{Index: 1, Name: "lo", Kind: Loopback, MTU: 65536})
	return f
}

// Close forgets nothing: a fake lives as long as it is referred to.
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

func (f *Fake) Link(name string) (Link, error) {
	defer f.lock()()
	l, err := f.find(name)
	if err != nil {
		return Link{}, err
	}
	return l.Link, nil
}

func (f *Fake) find(name string) (*fakeLink, error) {
	if l, ok := f.links[name]; ok {
		return l, nil
	}
	return nil, fmt.Errorf("link %s: %w", name, ErrNotFound)
}

func (f *Fake) AddLink(spec LinkSpec) (Link, error) {
	defer f.lock()()
	if err := f.mayAdd(spec.Name); err != nil {
		return Link{}, err
	}
	mtu := spec.MTU
	if mtu == 0 {
		mtu = 1500
	}
	switch spec.Kind {
	case Veth:
		return f.addVeth(spec, mtu)
	case Tap, Bridge, Dummy, VXLAN, WireGuard:
	case IPIP:
		if spec.MTU == 0 {
			mtu = 1480
		}
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
	f.tell(Event{Kind: LinkSet, Link: l.Link})
	return l
}

func (f *Fake) DeleteLink(name string) error {
	defer f.lock()()
	l, ok := f.links[name]
	if !ok {
		return nil
	}
	if l.Kind == Loopback {
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
	l.home.tell(Event{Kind: LinkGone, Link: l.Link})
}

func (f *Fake) SetUp(name string, up bool) error {
	defer f.lock()()
	l, err := f.find(name)
	if err != nil {
		return err
	}
	l.Up = up
	if up {
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
	return nil
}

// carrier: a veth runs when both ends are up, a tap when something has it open, other links when up.
func (l *fakeLink) carrier() {
	switch {
	case l.peer != nil:
		l.Running = l.Up && l.peer.Up
	case l.Kind == Tap || l.Kind == Bridge:
		l.Running = false
	default:
		l.Running = l.Up
	}
	l.home.tell(Event{Kind: LinkSet, Link: l.Link})
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
	f.tell(Event{Kind: LinkSet, Link: l.Link})
	return nil
}

func (f *Fake) Silence(name string) error {
	defer f.lock()()
	_, err := f.find(name)
	return err
}

func (f *Fake) Addresses(link string) ([]netip.Prefix, error) {
	defer f.lock()()
	l, err := f.find(link)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(l.addresses)
	slices.SortFunc(out, netip.Prefix.Compare)
	return out, nil
}

func (f *Fake) AllAddresses() (map[int][]netip.Prefix, error) {
	defer f.lock()()
	out := map[int][]netip.Prefix{}
	for _, l := range f.links {
		if len(l.addresses) > 0 {
			out[l.Index] = slices.Clone(l.addresses)
			slices.SortFunc(out[l.Index], netip.Prefix.Compare)
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
	defer f.lock()()
	l, err := f.find(link)
	if err != nil {
		return err
	}
	if slices.Contains(l.addresses, address) {
		return nil
	}
	l.addresses = append(l.addresses, address)
	f.tell(Event{Kind: AddressChanged, LinkIndex: l.Index, Address: address})
	l.connectRoutes()
	return nil
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
	defer f.lock()()
	l, ok := f.links[link]
	if !ok || !slices.Contains(l.addresses, address) {
		return nil
	}
	l.addresses = slices.DeleteFunc(l.addresses, func(a netip.Prefix) bool { return a == address })
	still := slices.ContainsFunc(l.addresses, func(a netip.Prefix) bool { return a.Masked() == address.Masked() })
	if !still {
		f.dropRoutes(func(r Route) bool { return r.Kernel && r.Link == link && r.Dst == address.Masked() })
	}
	f.tell(Event{Kind: AddressChanged, LinkIndex: l.Index, Address: address, Removed: true})
	return nil
}

// tell never waits: a reader whose queue is full has lost its place, and is told so when there is room again.
func (f *Fake) tell(e Event) {
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
