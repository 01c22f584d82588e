package overlay

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/task"
	"heddle/internal/topology/packet"
)

// homes keeps the MAC addresses that this host stands for on the LANs of physical networks
// (decision 0016): the kernel takes in frames to them by the localnet port of their network. Where
// an address comes to be at home here, its LAN is told by a RARP request.
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
	changed  map[home]bool // whose home may be another since settle
	networks map[string]*homeNetwork
	moved    []home // to be announced
	work     task.Notice
}

// home is a MAC address of a network.
type home struct {
	network string
	mac     packet.MAC
}

// homeNetwork holds what is at home here of a network, and its localnet port, 0 while that is not
// attached.
type homeNetwork struct {
	macs map[packet.MAC]bool
	port datapath.Port
}

// Announcements of addresses that have come here: so many in each interval.
const (
	announceEvery = 10 * time.Millisecond
	announceBurst = 10
)

func newHomes(host string, net *virtualNetwork, dp *datapath.Datapath, log *slog.Logger) *homes {
	return &homes{host: host, net: net, dp: dp, log: log, changed: map[home]bool{}, networks: map[string]*homeNetwork{}, work: task.NewNotice()}
}

// homeChanged is called while a change is applied to the world.
func (h *homes) homeChanged(network string, mac packet.MAC) { h.changed[home{network, mac}] = true }

// settle has the kernel follow the changes applied to the world.
func (h *homes) settle() {
	for x := range h.changed {
		at, ok := h.net.world.Home(x.network, x.mac)
		h.move(x, ok && at == h.host)
	}
	clear(h.changed)
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
	h.moved = append(h.moved, x)
	h.work.Give()
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
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.work:
		}
		for h.announce(announceBurst) && ctx.Err() == nil {
			task.Pause(ctx, announceEvery)
		}
	}
}

// announce announces up to n addresses and reports whether there are more.
func (h *homes) announce(n int) (more bool) {
	type announcement struct {
		port datapath.Port
		mac  packet.MAC
	}
	var due []announcement
	h.net.mu.Lock()
	n = min(n, len(h.moved))
	for _, x := range h.moved[:n] {
		if at := h.networks[x.network]; at != nil && at.port != 0 && at.macs[x.mac] {
			due = append(due, announcement{at.port, x.mac})
		}
	}
	if h.moved = h.moved[n:]; len(h.moved) == 0 {
		h.moved = nil
	}
	more = len(h.moved) > 0
	h.net.mu.Unlock()
	for _, a := range due {
		if err := h.dp.Send(datapath.Output{Port: a.port}, rarpRequest(a.mac), datapath.Offload{}); err != nil {
			h.log.Debug("cannot announce an address on a LAN", "address", a.mac, "err", err)
		}
	}
	return more
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
