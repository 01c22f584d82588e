package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

const (
	workloadPort = "11111111-0000-4000-8000-000000000005"
	barePort     = "11111111-0000-4000-8000-000000000006"
	homelessPort = "11111111-0000-4000-8000-000000000007"
)

// addWorkloads makes ports for temporary workloads on a live host "h1", with an address and
// without, and on no host.
func (w *world) addWorkloads(t *testing.T) {
	t.Helper()
	mac := func(last byte) packet.MAC { return packet.MAC{0xfa, 0x16, 0x3e, 0, 1, last} }
	w.update(t, func(tx *records.Tx) error {
		subnet := &neutron.Subnet{Standard: neutron.Standard{ID: "subnet"}, NetworkID: network, CIDR: netip.MustParsePrefix("198.18.0.0/24")}
		subnet6 := &neutron.Subnet{Standard: neutron.Standard{ID: "subnet6"}, NetworkID: network, CIDR: netip.MustParsePrefix("2001:2::/64")}
		errs := []error{schema.Hosts.Put(tx, &topology.Host{ID: host, Name: "h1"}), schema.Subnets.Put(tx, subnet), schema.Subnets.Put(tx, subnet6),
			schema.HostStates.Put(tx, &topology.HostState{HostID: host, Version: "v0.0.9"})}
		for i, p := range []neutron.Port{
			{Standard: neutron.Standard{ID: workloadPort}, BoundHostID: host, InterfaceName: "tap11111111-00", FixedIPs: []neutron.FixedIP{{SubnetID: "subnet", IPAddress: netip.MustParseAddr("198.18.0.7")}, {SubnetID: "subnet6", IPAddress: netip.MustParseAddr("2001:2::7")}}},
			{Standard: neutron.Standard{ID: barePort}, BoundHostID: host},
			{Standard: neutron.Standard{ID: homelessPort}, FixedIPs: []neutron.FixedIP{{SubnetID: "subnet", IPAddress: netip.MustParseAddr("198.18.0.8")}}},
		} {
			p.NetworkID, p.DeviceOwner, p.MACAddress = network, topology.WorkloadOwner, mac(byte(i))
			errs = append(errs, schema.Ports.Put(tx, &p))
		}
		return errors.Join(errs...)
	})
}

// playAgent answers the next request to the host, and returns it.
func (w *world) playAgent(t *testing.T, answer flow.TraceAnswer) <-chan flow.TraceRequest {
	t.Helper()
	rev, err := w.db.Store().Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	changes, _ := w.db.Store().Watch(t.Context(), rev, schema.TraceRequestsPrefix+host+"/")
	asked := make(chan flow.TraceRequest, 1)
	go func() {
		var r flow.TraceRequest
		c := <-changes
		if err := json.Unmarshal(c.Events[0].Value, &r); err != nil {
			t.Error(err)
		}
		answer.ID, answer.HostID = r.ID, r.HostID
		if _, err := w.db.Update(context.Background(), func(tx *records.Tx) error { return schema.TraceAnswers.Put(tx, &answer) }); err != nil {
			t.Error(err)
		}
		asked <- r
	}()
	return asked
}

// TestWorkload: the agent of a port's host is asked with what the store knows of the port.
func TestWorkload(t *testing.T) {
	w := newWorld(t, time.Minute)
	w.addWorkloads(t)
	asked := w.playAgent(t, flow.TraceAnswer{Workload: &flow.WorkloadAnswer{Results: []flow.ProbeResult{{Passed: true, Detail: "leased"}}}})
	status, body := w.postTo(t, "/v1/workloads", "admin", `{"port": "`+workloadPort+`", "probes": [{"kind": "dhcp"}]}`)
	if status != http.StatusOK || !strings.Contains(body, `"leased"`) {
		t.Errorf("got %d %s", status, body)
	}
	r := (<-asked).Workload
	if r == nil || r.Address.String() != "198.18.0.7/24" || r.Address6.String() != "2001:2::7/64" || r.Interface != "tap11111111-00" || r.MAC.String() != "fa:16:3e:00:01:00" || len(r.Probes) != 1 || r.Remove {
		t.Errorf("the agent was asked for %+v", r)
	}
}

func TestWorkloadRefuses(t *testing.T) {
	w := newWorld(t, time.Second)
	w.addWorkloads(t)
	refuse := func(what, token, body string, status int, says string) {
		t.Helper()
		got, text := w.postTo(t, "/v1/workloads", token, body)
		if got != status || !strings.Contains(text, says) {
			t.Errorf("%s: got %d %s, want %d with %q", what, got, text, status, says)
		}
	}
	of := func(port string) string { return `{"port": "` + port + `"}` }
	refuse("a member", "member", of(workloadPort), 403, "role admin")
	refuse("no such port", "admin", of("nope"), 404, "port nope could not be found")
	refuse("a machine's port", "admin", of(boundPort), 409, "temporary workloads have ports with \\\"heddle:connectivity\\\" alone")
	refuse("a port without address", "admin", of(barePort), 409, "has no IPv4 address")
	refuse("a port without host", "admin", of(homelessPort), 409, "is bound to no host that has joined")
	refuse("no JSON", "admin", "{", 400, "")
	asked := w.playAgent(t, flow.TraceAnswer{Verdict: "drop", Error: "port  is not attached on this host"}) // as agents of before answer
	refuse("an agent of before", "admin", of(workloadPort), 501, "the agent of host h1 is of version v0.0.9, which has no temporary workloads: upgrade it")
	<-asked
	refuse("a silent agent", "admin", of(workloadPort), 504, "the agent of host h1 did not answer within 1s")
	w.update(t, func(tx *records.Tx) error { return schema.HostStates.Delete(tx, host) })
	refuse("a dead agent", "admin", of(workloadPort), 409, "host h1 is down")
}
