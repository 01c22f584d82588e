package bgp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

// TestRemovedSession: a peer that sends more than the speaker has read sees the notification of a
// session that is removed, and no reset.
func TestRemovedSession(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	h, peer := l.host("h"), l.machine("peer")
	keys := map[netip.Addr]string{peer.ip: "peer_v4", peer.v6: "peer_v6"}
	talkers := map[netip.Addr]*talker{}
	for address, key := range keys {
		talkers[address] = peer.talker(address)
		l.put("/calico/bgp/v1/host/h/"+key+"/"+address.String(), fmt.Sprintf(`{"ip": %q, "as_num": "65001"}`, address))
	}
	h.start()
	for address, talker := range talkers {
		talker.open(t)
		go talker.talk()
		l.put("/calico/bgp/v1/host/h/"+keys[address]+"/"+address.String(), "")
		if err := talker.readToEnd(t); err != nil {
			t.Errorf("the end of the session with %s: %v", address, err)
		}
	}
}

// talker is a BGP speaker that sends messages without a pause.
type talker struct {
	listener net.Listener
	conn     net.Conn
}

func (m *machine) talker(address netip.Addr) *talker {
	m.lab.t.Helper()
	k := &talker{}
	err := m.ns.Do(func() (err error) {
		k.listener, err = net.Listen("tcp", netip.AddrPortFrom(address, standardPort).String())
		return err
	})
	if err != nil {
		m.lab.t.Fatal(err)
	}
	m.lab.t.Cleanup(func() { k.listener.Close() })
	return k
}

// open accepts a session.
func (k *talker) open(t *testing.T) {
	t.Helper()
	conn, err := k.listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	k.conn = conn
	open, err := bgp.NewBGPOpenMessage(65001, 240, netip.MustParseAddr("192.0.2.250"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []*bgp.BGPMessage{open, bgp.NewBGPKeepAliveMessage()} {
		if err := k.send(m); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []uint8{bgp.BGP_MSG_OPEN, bgp.BGP_MSG_KEEPALIVE} {
		if got, err := k.read(); err != nil || got != want {
			t.Fatalf("a message of type %d (%v), want %d", got, err, want)
		}
	}
}

func (k *talker) send(m *bgp.BGPMessage) error {
	b, err := m.Serialize()
	if err == nil {
		_, err = k.conn.Write(b)
	}
	return err
}

// read reads a message, and returns its type.
func (k *talker) read() (kind uint8, err error) {
	header := make([]byte, bgp.BGP_HEADER_LENGTH)
	if _, err := io.ReadFull(k.conn, header); err != nil {
		return 0, err
	}
	var h bgp.BGPHeader
	if err := h.DecodeFromBytes(header); err != nil {
		return 0, err
	}
	_, err = io.CopyN(io.Discard, k.conn, int64(h.Len)-bgp.BGP_HEADER_LENGTH)
	return h.Type, err
}

// talk sends messages until the connection ends.
func (k *talker) talk() {
	for k.send(bgp.NewBGPKeepAliveMessage()) == nil {
	}
}

// readToEnd reads all that comes, and returns an error unless the last of it is a notification and
// the connection ends in order.
func (k *talker) readToEnd(t *testing.T) error {
	t.Helper()
	defer k.conn.Close()
	last := uint8(0)
	for {
		kind, err := k.read()
		switch {
		case errors.Is(err, io.EOF) && last == bgp.BGP_MSG_NOTIFICATION:
			return nil
		case err != nil:
			return fmt.Errorf("%w after a message of type %d, want the end after a notification (type %d)", err, last, bgp.BGP_MSG_NOTIFICATION)
		}
		last = kind
	}
}
