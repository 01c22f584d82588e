package console

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

// TestTracesFollowTheStore: each trace by a server is in the virtual network as the store has it
// then, with what hosts have seen where they have ports, and with no more.
func TestTracesFollowTheStore(t *testing.T) {
	w := newWorld(t, time.Second)
	const p2, p3, h2 = "p2", "p3", "host-2"
	outputs := func(want ...string) {
		t.Helper()
		status, body := w.post(t, "admin", request(t, boundPort, frame()))
		var a flow.TraceAnswer
		if err := json.Unmarshal([]byte(body), &a); err != nil || status != 200 {
			t.Fatalf("got %d %s: %v", status, body, err)
		}
		var got []string
		for _, o := range a.Outputs {
			got = append(got, o.PortID)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("got outputs %v, want %v: %s", got, want, body)
		}
	}
	port := func(id, host string, up bool) func(tx *records.Tx) error {
		return func(tx *records.Tx) error {
			return schema.Bundles.Put(tx, &schema.Bundle{Owner: topology.Owner{Kind: "port", ID: id}, Bundle: topology.Bundle{
				Ports: []topology.Port{{ID: id, NetworkID: network, AdminStateUp: up, HostID: host, InterfaceName: "tap" + id}}}})
		}
	}
	seen := &topology.LearnedMAC{HostID: h2, NetworkID: network, MAC: packet.MAC{0xfa, 0x16, 0x3e, 0, 0, 9}, PortID: p3}
	outputs()
	w.update(t, port(p2, host, true))
	outputs(p2)
	w.update(t, port(p3, host, true))
	w.update(t, func(tx *records.Tx) error { return schema.LearnedMACs.Put(tx, seen) })
	outputs(p2, p3) // the host that has seen it does not have the port
	w.update(t, port(p3, h2, true))
	outputs(p3)
	w.update(t, func(tx *records.Tx) error { return schema.LearnedMACs.Delete(tx, schema.LearnedMACs.ID(seen)) })
	outputs(p2, p3)
	w.update(t, port(p3, h2, false))
	outputs(p2)
	w.update(t, func(tx *records.Tx) error { return schema.Bundles.Delete(tx, "port/"+p2) })
	outputs()
	w.update(t, func(tx *records.Tx) error { return schema.Bundles.Delete(tx, "port/"+boundPort) })
	if status, body := w.post(t, "admin", request(t, boundPort, frame())); status != 200 || !strings.Contains(body, "bad-object") {
		t.Errorf("by a port that has gone: %d %s", status, body)
	}
}
