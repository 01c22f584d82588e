package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"heddle/internal/netlab"
)

// monitor is a connection to QEMU's monitor, which speaks QMP.
type monitor struct {
	conn    net.Conn
	answers chan answer

	mu     sync.Mutex
	events []string // names of the events that have come
}

// answer is a message of QEMU: the answer to a command, or an event.
type answer struct {
	Event  string
	Return json.RawMessage
	Error  *struct{ Desc string }
}

func newMonitor(c net.Conn) (*monitor, error) {
	m := &monitor{conn: c, answers: make(chan answer, 1)}
	go m.receive()
	_, err := m.execute("qmp_capabilities", nil)
	return m, err
}

func (m *monitor) receive() {
	defer close(m.answers)
	for d := json.NewDecoder(m.conn); ; {
		var a answer
		if d.Decode(&a) != nil {
			return // QEMU has ended
		}
		switch {
		case a.Event != "":
			m.mu.Lock()
			m.events = append(m.events, a.Event)
			m.mu.Unlock()
		case a.Return != nil || a.Error != nil: // else its greeting
			m.answers <- a
		}
	}
}

func (m *monitor) close() {
	m.conn.Close()
	for range m.answers {
	}
}

// execute sends a command and returns what it answers. One command is under way at a time.
func (m *monitor) execute(command string, arguments any) (json.RawMessage, error) {
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	if err := json.NewEncoder(m.conn).Encode(request); err != nil {
		return nil, err
	}
	a, ok := <-m.answers
	switch {
	case !ok:
		return nil, errors.New("QEMU has ended")
	case a.Error != nil:
		return nil, fmt.Errorf("QEMU: %s: %s", command, a.Error.Desc)
	}
	return a.Return, nil
}

// await waits for an event.
func (m *monitor) await(ctx context.Context, event string) error {
	return netlab.Until(ctx, "event "+event+" of QEMU", func() (bool, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return slices.Contains(m.events, event), nil
	})
}
