package overlay

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/task"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// homes keeps the MAC addresses that this host stands for on the LANs of physical networks
// (decision 0016): the kernel takes in frames to them by the localnet port of their network. Where
// an address comes to be at home here, its LAN is told by a RARP request; and again when another
// machine there has spoken for it. An IP address that gets a MAC address at home here is announced,
// too: machines there may send to the one that had it before.
type homes struct {
	host string
	net  *virtualNetwork
	dp   interface {
		Homes(datapath.Port) ([]packet.MAC, error)
		SetHomes(datapath.Port, ...packet.MAC) error
		DeleteHomes(datapath.Port, ...packet.MAC) error
		Send(datapath.Output, []byte, datapath.Offload) error
	}
	log *slog.Logger

	// The rest is guarded by the write lock of net.
	changed   map[home]bool         // whose home may be another since settle
	changedIP map[homeIP]bool       // that may have another MAC address since settleAddresses
	owners    map[homeIP]packet.MAC // that have a home, here or elsewhere
	networks  map[string]*homeNetwork
	due       []announcement
	repeats   map[announcement]int // in the last repeatEvery; how many more are to follow
	repeated  []repetition         // of repeats, in order of time
	work      task.Notice
}

// home is a MAC address of a network.
type home struct {
	network string
	mac     packet.MAC
}

// homeIP is an IP address of a network.
type homeIP struct {
	network string
	ip      netip.Addr
}

// announcement is an address at home here, to be announced on its LAN: a MAC address, or an IP
// address that has it.
type announcement struct {
	home
	ip netip.Addr
}

// repetition is an announcement that may be repeated, made at a time.
type repetition struct {
	announcement
	at time.Time
}

// homeNetwork holds what is at home here of a network, and its localnet port, 0 while that is not
// attached.
type homeNetwork struct {
	macs map[packet.MAC]bool
	port datapath.Port
}

const (
	// Announcements are sent so many in each interval.
	announceEvery = 10 * time.Millisecond
	announceBurst = 10
	// repeatEvery is the least time between two announcements of an address, after conflicts and
	// when it is new here. A new one is announced newRepeats more times: machines may miss the
	// first, or ignore it as too soon after another (locktime of Linux).
	repeatEvery = time.Second
	newRepeats  = 2
)

func newHomes(host string, net *virtualNetwork, dp *datapath.Datapath, log *slog.Logger) *homes {
	return &homes{host: host, net: net, dp: dp, log: log, changed: map[home]bool{}, changedIP: map[homeIP]bool{},
		owners: map[homeIP]packet.MAC{}, networks: map[string]*homeNetwork{}, repeats: map[announcement]int{}, work: task.NewNotice()}
}

// homeChanged is called while a change is applied to the world.
func (h *homes) homeChanged(network string, mac packet.MAC) { h.changed[home{network, mac}] = true }

// neighbourChanged is called while a change is applied to the world.
func (h *homes) neighbourChanged(network string, ip netip.Addr) {
	if h.net.world.OnLAN(network) {
		h.changedIP[homeIP{network, ip}] = true
	}
}

// settle has the kernel follow the changes applied to the world.
func (h *homes) settle() {
	for x := range h.changed {
		at, ok := h.net.world.Home(x.network, x.mac)
		h.move(x, ok && at == h.host)
	}
	clear(h.changed)
}

// settleAddresses has addresses announced that have another MAC address than before, which is at
// home here. It follows on all changes of a snapshot, since an address may come before the home.
func (h *homes) settleAddresses() {
	for x := range h.changedIP {
		mac, _ := h.net.world.SeededNeighbour(x.network, x.ip)
		_, ok := h.net.world.Home(x.network, mac)
		switch {
		case !ok:
			delete(h.owners, x)
		case h.owners[x] != mac:
			h.owners[x] = mac
			h.announceNew(x, mac)
		}
	}
	clear(h.changedIP)
}

// announceNew has an address announced whose MAC address is at home here.
func (h *homes) announceNew(x homeIP, mac packet.MAC) {
	if n := h.networks[x.network]; n != nil && n.port != 0 && n.macs[mac] {
		h.repeat(announcement{home{x.network, mac}, x.ip}, newRepeats)
	}
}

// move notes whether an address is at home here.
func (h *homes) move(x home, here bool) {
	n := h.network(x.network)
	switch {
	case here == n.macs[x.mac]:
	case !here:
		delete(n.macs, x.mac)
		h.failed(h.dp.DeleteHomes(n.port, x.mac))
	default:
		n.macs[x.mac] = true
		if n.port != 0 {
			h.enter(n, x)
		}
	}
	h.tidy(x.network)
}

func (h *homes) network(id string) *homeNetwork {
	n := h.networks[id]
	if n == nil {
		n = &homeNetwork{macs: map[packet.MAC]bool{}}
		h.networks[id] = n
	}
	return n
}

func (h *homes) tidy(id string) {
	if n := h.networks[id]; n != nil && n.port == 0 && len(n.macs) == 0 {
		delete(h.networks, id)
	}
}

// enter has the kernel take in frames to an address that has come here.
func (h *homes) enter(n *homeNetwork, x home) {
	h.failed(h.dp.SetHomes(n.port, x.mac))
	h.due = append(h.due, announcement{home: x})
	h.work.Give()
}

// defend has addresses announced for which another machine on their LAN speaks: at once, and for
// conflicts within repeatEvery of that once more when it is over.
func (h *homes) defend(conflicts []flow.Conflict) {
	if len(conflicts) == 0 {
		return
	}
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	for _, c := range conflicts {
		h.repeat(announcement{home{c.NetworkID, c.MAC}, c.IP}, 0)
	}
}

// repeat has an address announced and as many more times, repeatEvery apart, or if that was done
// within repeatEvery, at least once more when it is over.
func (h *homes) repeat(a announcement, more int) {
	if left, isRecent := h.repeats[a]; isRecent {
		h.repeats[a] = max(left, more, 1)
		return
	}
	h.repeats[a] = more
	h.due = append(h.due, a)
	h.work.Give()
}

// repeatDue has those addresses announced again that are to be and were repeatEvery ago. It returns
// when to look again, zero for never.
func (h *homes) repeatDue(now time.Time) (next time.Time) {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	for len(h.repeated) > 0 {
		r := h.repeated[0]
		if over := r.at.Add(repeatEvery); now.Before(over) {
			return over
		}
		h.repeated = h.repeated[1:]
		if h.repeats[r.announcement] > 0 {
			h.repeats[r.announcement]--
			h.due = append(h.due, r.announcement)
		} else {
			delete(h.repeats, r.announcement)
		}
	}
	h.repeated = nil
	return time.Time{}
}

func (h *homes) failed(err error) {
	if err != nil {
		h.log.Error("the kernel does not follow which addresses this host stands for on a LAN", "err", err)
	}
}

// attached takes over what an earlier agent left of a network's localnet port, and announces the
// rest.
func (h *homes) attached(network string, port datapath.Port) {
	n := h.network(network)
	if n.port == port {
		return
	}
	n.port = port
	found, err := h.dp.Homes(port)
	h.failed(err)
	for _, mac := range found {
		if !n.macs[mac] {
			h.failed(h.dp.DeleteHomes(port, mac))
		}
	}
	for mac := range n.macs {
		if !slices.Contains(found, mac) {
			h.enter(n, home{network, mac})
		}
	}
	for _, ip := range h.net.world.NeighbourAddrs(network) {
		if mac, ok := h.net.world.SeededNeighbour(network, ip); ok && !slices.Contains(found, mac) {
			h.announceNew(homeIP{network, ip}, mac)
		}
	}
}

// homeCount returns the number of addresses that this host stands for.
func (n *virtualNetwork) homeCount() (sum int) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for _, x := range n.homes.networks {
		sum += len(x.macs)
	}
	return sum
}

// detached notes that a network's localnet port has gone.
func (h *homes) detached(network string) {
	if n := h.networks[network]; n != nil {
		n.port = 0
		h.tidy(network)
	}
}

// Run announces addresses until ctx ends.
func (h *homes) Run(ctx context.Context) error {
	alarm := task.NewAlarm()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.work:
		case <-alarm.C:
		}
		next := h.repeatDue(time.Now())
		for h.announce(announceBurst, time.Now()) && ctx.Err() == nil {
			task.Pause(ctx, announceEvery)
		}
		if next.IsZero() {
			next = h.repeatDue(time.Now())
		}
		alarm.Set(next)
	}
}

// announce announces up to n addresses at a time and reports whether there are more.
func (h *homes) announce(n int, now time.Time) (more bool) {
	type packed struct {
		announcement
		port  datapath.Port
		frame []byte
	}
	var all []packed
	h.net.mu.Lock()
	n = min(n, len(h.due))
	for _, a := range h.due[:n] {
		if at := h.networks[a.network]; at != nil && at.port != 0 && at.macs[a.mac] {
			if frame := h.frame(a); frame != nil {
				all = append(all, packed{a, at.port, frame})
			}
		}
		if _, ok := h.repeats[a]; ok {
			h.repeated = append(h.repeated, repetition{a, now})
		}
	}
	if h.due = h.due[n:]; len(h.due) == 0 {
		h.due = nil
	}
	more = len(h.due) > 0
	h.net.mu.Unlock()
	for _, p := range all {
		if err := h.dp.Send(datapath.Output{Port: p.port}, p.frame, datapath.Offload{}); err != nil {
			h.log.Debug("cannot announce an address on a LAN", "address", p.mac, "ip", p.ip, "err", err)
		}
	}
	return more
}

// frame builds an announcement to all: of a MAC address by RARP, of an IP address by gratuitous ARP
// (RFC 5227 §2.4) or an unsolicited advertisement (RFC 4861 §7.2.6). It is nil if the IP address
// has another MAC address by now.
func (h *homes) frame(a announcement) []byte {
	if !a.ip.IsValid() {
		return rarpRequest(a.mac)
	}
	mac, router, ok := h.net.world.Neighbour(a.network, a.ip)
	if !ok || mac != a.mac {
		return nil
	}
	if a.ip.Is4() {
		return packet.ARPRequestFor(a.ip, a.mac, a.ip)
	}
	flags := packet.NDOverride
	if router {
		flags |= packet.NDRouter
	}
	allNodes := netip.IPv6LinkLocalAllNodes()
	return packet.NeighborAdvert(packet.MulticastMAC(allNodes), a.mac, allNodes, a.ip, flags)
}

// typeRARP is the EtherType of RARP, and rarpReverse its request's operation (RFC 903).
const (
	typeRARP    = 0x8035
	rarpReverse = 3
)

// rarpRequest is the frame by which the switches of a LAN learn the place of an address.
func rarpRequest(mac packet.MAC) []byte {
	b := packet.Ethernet{Dst: packet.Broadcast, Src: mac, Type: typeRARP}.Append(make([]byte, 0, 60))
	b = packet.ARP{Op: rarpReverse, SHA: mac, THA: mac}.Append(b)
	return append(b, make([]byte, 60-len(b))...)
}
