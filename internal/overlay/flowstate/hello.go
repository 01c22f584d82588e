package flowstate

import (
	"encoding/binary"
	"time"
)

// Hello is a message by which a host shows that a tunnel carries its frames, and says which of the
// receiver's hellos have arrived.
type Hello struct {
	Run    uint32        // random, another one each time that the sender numbers from 1
	Number uint32        // rises by one with each hello to this receiver, from 1
	Every  time.Duration // between two of the sender's hellos to this receiver, whole milliseconds
	// Echo has the run and number of the newest hello of the receiver that has arrived; Number 0
	// is none. Bit i of Arrived is set if the hello i before that one has arrived, too.
	EchoRun, Echo, Arrived uint32
	// Packets and Bytes are those that flows of the sender have sent to the receiver since the
	// sender's agent started.
	Packets, Bytes uint64
}

const (
	// helloSize is the size of an encoded hello in bytes:
	//
	//	 0  run, number
	//	 8  milliseconds between two
	//	12  run and number of the newest of the receiver's, those that arrived before it
	//	24  packets, bytes
	helloSize = 40

	isHello = 0xE1 // first byte of a body; agents of earlier versions reject it
)

func (h *Hello) append(b []byte) []byte {
	for _, n := range []uint32{h.Run, h.Number, uint32(h.Every.Milliseconds()), h.EchoRun, h.Echo, h.Arrived} {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	b = binary.BigEndian.AppendUint64(b, h.Packets)
	return binary.BigEndian.AppendUint64(b, h.Bytes)
}

// parseHello reads the helloSize bytes of a hello.
func parseHello(b []byte) (Hello, error) {
	word := func(at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }
	return Hello{Run: word(0), Number: word(4), Every: time.Duration(word(8)) * time.Millisecond,
		EchoRun: word(12), Echo: word(16), Arrived: word(20),
		Packets: binary.BigEndian.Uint64(b[24:]), Bytes: binary.BigEndian.Uint64(b[32:])}, nil
}
