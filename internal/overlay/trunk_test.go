package overlay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/netlab"
)

// trunkVM is a machine with one interface, a tap on its host, behind which there is a namespace for
// each of its networks: it tags and untags as a machine with VLAN devices does.
type trunkVM struct {
	t     *testing.T
	tap   *os.File
	sides map[uint16]*os.File // by VLAN, 0 for the parent's
}

// openTap opens a tap of a namespace, and makes it if need be.
func openTap(t *testing.T, ns *netlab.Namespace, name string) *os.File {
	t.Helper()
	var tap *os.File
	err := ns.Do(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		request, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			unix.Close(fd)
			return err
		}
		tap = os.NewFile(uintptr(fd), name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tap
}

// openTrunkVM starts a machine with the tap of the parent port; its networks are those of the
// ports.
func openTrunkVM(t *testing.T, parent *machine, subports ...*machine) *trunkVM {
	t.Helper()
	v := &trunkVM{t: t, tap: openTap(t, parent.host.ns, parent.port.InterfaceName), sides: map[uint16]*os.File{}}
	for _, m := range append(subports, parent) {
		m.Namespace = m.lab.MustNamespace(t, fmt.Sprintf("vm-%s", m.net.net.Name))
		v.sides[m.port.SubportVLAN] = openTap(t, m.Namespace, "eth0")
		m.MustIP(t, fmt.Sprintf("link set eth0 address %s mtu 1450 up", m.port.MACAddress),
			fmt.Sprintf("addr add %s/24 dev eth0", m.v4), fmt.Sprintf("addr add %s/64 dev eth0 nodad", m.v6))
	}
	ended := make(chan struct{}, len(v.sides)+1)
	start := func(from *os.File, pass func(frame []byte)) {
		go func() {
			defer func() { ended <- struct{}{} }()
			b := make([]byte, 1<<16)
			for {
				n, err := from.Read(b)
				if err != nil {
					return
				}
				pass(b[:n])
			}
		}()
	}
	start(v.tap, v.in)
	for vlan, side := range v.sides {
		start(side, func(frame []byte) { v.out(vlan, frame) })
	}
	t.Cleanup(func() {
		v.tap.Close()
		for _, side := range v.sides {
			side.Close()
		}
		for range len(v.sides) + 1 {
			<-ended
		}
	})
	return v
}

// in gives a frame from the interface to the network of its tag.
func (v *trunkVM) in(frame []byte) {
	vlan := uint16(0)
	if binary.BigEndian.Uint16(frame[12:]) == 0x8100 {
		vlan = binary.BigEndian.Uint16(frame[14:]) & 0xfff
		frame = append(frame[:12:12], frame[16:]...)
	}
	side := v.sides[vlan]
	if side == nil {
		v.t.Errorf("the machine got a frame in VLAN %d", vlan)
		return
	}
	v.write(side, frame)
}

// out sends a frame of a network.
func (v *trunkVM) out(vlan uint16, frame []byte) {
	if vlan != 0 {
		frame = append(binary.BigEndian.AppendUint16(append(frame[:12:12], 0x81, 0), vlan), frame[12:]...)
	}
	v.write(v.tap, frame)
}

// write writes a frame; what an interface that is down or full loses, it loses.
func (v *trunkVM) write(to *os.File, frame []byte) {
	if _, err := to.Write(frame); err != nil && !errors.Is(err, os.ErrClosed) && !errors.Is(err, unix.EIO) {
		v.t.Errorf("write tap: %v", err)
	}
}

// subport puts a port into the trunk of a parent on the same host.
func (m *machine) subport(parent *machine, vlan uint16) *machine {
	m.port.DeviceOwner, m.port.SubportVLAN, m.port.InterfaceName = "trunk:subport", vlan, parent.port.InterfaceName
	return m
}

// unbind takes a subport out of its trunk.
func (m *machine) unbind() {
	m.lab.t.Helper()
	p := m.port
	m.port.SubportVLAN, m.port.InterfaceName, m.port.BoundHostID = 0, "", ""
	m.bind()
	m.port = p
}

func (h *testHost) tagDrops(t *testing.T) uint64 {
	t.Helper()
	c, err := h.agent.engine.dp.Counters()
	if err != nil {
		t.Fatal(err)
	}
	return c.Drops["VLAN tag of no subport"]
}

// TestTrunk: a machine has three networks on one interface, each with machines on its own host and
// on another one. A subport comes and goes while a connection of another goes on, and so does the
// agent. A tag that is no subport's leads nowhere.
func TestTrunk(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	nets := []*network{l.networkAt("n0", "10.0.0.0/24"), l.networkAt("n5", "10.0.5.0/24"), l.networkAt("n6", "10.0.6.0/24")}
	group := l.group(everything()...)
	l.start()
	h := l.hosts[0]
	parent := nets[0].port(h, group)
	parent.port.TrunkID = "a trunk"
	five, six := nets[1].port(h, group).subport(parent, 5), nets[2].port(h, group).subport(parent, 6)
	vm := openTrunkVM(t, parent, five, six)
	five.bind() // the subport first: it waits for its parent
	parent.bind()
	six.bind()
	ports := []*machine{parent, five, six}
	var near, far []*machine
	for i, m := range ports {
		m.served()
		near, far = append(near, nets[i].machine(h, group)), append(far, nets[i].machine(l.hosts[1], group))
		for _, other := range []*machine{near[i], far[i]} {
			other.listen("tcp4", 80)
			talk(t, m, other)
			if err := other.ping(m.v6, 3); err != nil {
				t.Errorf("from %s by IPv6: %v", other.Name, err)
			}
		}
		m.listen("tcp4", 80)
		talk(t, far[i], m)
		m.leases()
	}
	if five.answers(far[2].v4) {
		t.Error("a subport reaches another network")
	}

	// One subport goes and comes while another one works.
	c, err := five.dial(far[1].v4, 80, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	six.unbind()
	l.wait("the subport to be gone", func() bool {
		for _, p := range h.agent.engine.dp.Ports() {
			if p.Name == six.port.ID {
				return false
			}
		}
		return !six.answers(near[2].v4)
	})
	before := h.tagDrops(t)
	if six.answers(near[2].v4) || h.tagDrops(t) == before {
		t.Error("frames with a removed subport's tag were not dropped for it")
	}
	six.bind()
	six.served()
	if err := six.ping(far[2].v4, 3); err != nil {
		t.Errorf("after it was added again: %v", err)
	}
	if err := exchange(c, 1<<20, 20*time.Second); err != nil {
		t.Errorf("a connection of the other subport: %v", err)
	}

	// The agent's restart and its kill lose nothing.
	h.stop()
	if err := exchange(c, 1<<20, 20*time.Second); err != nil {
		t.Errorf("without an agent: %v", err)
	}
	h.start()
	h.waitReady()
	for i, m := range ports {
		m.served()
		if err := m.ping(far[i].v4, 3); err != nil {
			t.Errorf("after a restart, network %d: %v", i, err)
		}
	}
	if err := exchange(c, 1<<20, 20*time.Second); err != nil {
		t.Errorf("after a restart: %v", err)
	}

	// The interface goes and comes: all its ports with it.
	vm.tap.Close()
	l.wait("the ports to be gone", func() bool { return len(h.agent.engine.dp.Ports()) == len(near) })
}

// TestTrunkMoves: the ports of a trunk move to another host with their interface, and connections
// go on: while the host before serves them, and when it has been forgotten.
func TestTrunkMoves(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n0, n5 := l.networkAt("n0", "10.0.0.0/24"), l.networkAt("n5", "10.0.5.0/24")
	group := l.group(allow("egress", "IPv4", "", 0)) // replies pass because their connections are known
	l.start()
	h1, h2 := l.hosts[0], l.hosts[1]
	parent := n0.port(h1, group)
	parent.port.TrunkID = "a trunk"
	five := n5.port(h1, group).subport(parent, 5)
	openTrunkVM(t, parent, five)
	trunk := []*machine{parent, five}
	var streams []net.Conn
	for i, n := range []*network{n0, n5} {
		m := trunk[i]
		m.bind()
		m.served()
		for _, host := range l.hosts {
			other := n.machine(host)
			other.listen("tcp4", 80)
			c, err := m.dial(other.v4, 80, 10*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			streams = append(streams, c)
		}
	}
	each := func(do func(m *machine)) {
		for _, m := range trunk {
			do(m)
		}
	}
	through := func(when string) {
		t.Helper()
		for i, c := range streams {
			if err := exchange(c, 20000, 20*time.Second); err != nil {
				l.logs()
				t.Fatalf("connection %d, %s: %v", i, when, err)
			}
		}
	}
	each(func(m *machine) { m.moveTo(h2) })
	each((*machine).follows)
	through("while the host before serves them")
	h1.ns.MustIP(t, fmt.Sprintf("link set %s netns %s", parent.port.InterfaceName, h2.ns.Name))
	each((*machine).arrived)
	each((*machine).follows)
	through("on the next host")
	each((*machine).settled)
	each((*machine).follows)
	through("when the host before is forgotten")
	l.wait("the host before to have its own ports alone", func() bool { return len(h1.agent.engine.dp.Ports()) == 2 })
}
