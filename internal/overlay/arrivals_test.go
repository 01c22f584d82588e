package overlay

import (
	"errors"
	"testing"

	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// TestArrivalOfAMachine: the first frame by the tap of a port that may move here is reported, and
// no longer once the port may not.
func TestArrivalOfAMachine(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n := l.network("blue")
	g := l.group(everything()...)
	l.start()
	from, to := l.hosts[0], l.hosts[1]
	m := n.machine(from, g)
	standBy := func(on bool) {
		t.Helper()
		m.port.OtherBindings = nil
		if on {
			m.port.OtherBindings = []neutron.PortBinding{{HostID: "h2", BoundHostID: to.id}}
		}
		m.bind()
	}
	key := schema.PortArrivals.KeyOf(&topology.PortArrival{HostID: to.id, PortID: m.port.ID})
	reported := func() bool {
		t.Helper()
		_, err := l.st.Get(t.Context(), key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	}
	standBy(true)
	to.ns.MustIP(t, "tuntap add dev "+m.port.InterfaceName+" mode tap")
	there := *m
	there.host = to
	v := openVM(t, &there, false)
	listening := func() bool {
		found, err := to.agent.arrivals.Found(t.Context())
		_, is := found[m.port.ID]
		return err == nil && is
	}
	l.wait("the tap to be listened to", listening)
	if reported() {
		t.Error("a machine that has sent nothing is reported")
	}
	v.send(packet.Ethernet{Dst: packet.Broadcast, Src: v.mac, Type: 0x8035}.Append(nil)) // RARP, as QEMU does
	l.wait("the machine to be reported", reported)

	standBy(false)
	l.wait("the report to be withdrawn", func() bool { return !reported() && !listening() })
	standBy(true)
	l.wait("the tap to be listened to again", listening)
	v.close()
	l.wait("a closed tap to be let go", func() bool { return !listening() })
}
