package xapi

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// aPool is a host with a PIF on a network, and a tunnel's two PIFs.
func aPool(t testing.TB, s *Server) (host, network, transport, access, tunnel *objects.Object) {
	t.Helper()
	metrics := newObject("host_metrics", nil)
	host = newObject("host", model.Record{"name_label": "h1", "metrics": metrics.Ref})
	network = newObject("network", model.Record{"name_label": "n1", "bridge": "xenbr0", "MTU": int64(1500)})
	private := newObject("network", model.Record{"name_label": "private", "bridge": "xapi0", "MTU": int64(1500)})
	transport = newObject("PIF", model.Record{"device": "eth0", "host": host.Ref, "network": network.Ref, "VLAN": int64(-1)})
	access = newObject("PIF", model.Record{"device": "tunnel0", "host": host.Ref, "network": private.Ref, "VLAN": int64(-1)})
	tunnel = newObject("tunnel", model.Record{"access_PIF": access.Ref, "transport_PIF": transport.Ref})
	made(t, s, metrics, host, network, private, transport, access, tunnel)
	change(t, s, func(tx *records.Tx) error {
		for pool := range objects.Table("pool").All(tx) {
			return put(tx, edited(pool, model.Record{"master": host.Ref}))
		}
		return errors.New("there is no pool")
	})
	return host, network, transport, access, tunnel
}

// TestRecords: what is read of an object, in each way there is, with its far sides.
func TestRecords(t *testing.T) {
	t.Parallel()
	s, c := served(t)
	host, network, transport, access, tunnel := aPool(t, s)
	for _, json := range []bool{false, true} {
		c := *c
		c.json = json
		all := c.records("PIF")
		if got := len(all); got != 2 {
			t.Fatalf("%d PIFs", got)
		}
		one := c.must("PIF.get_record", transport.Ref).(map[string]any)
		if diff := cmp.Diff(all[transport.Ref], any(one)); diff != "" {
			t.Error(diff)
		}
		for _, f := range model.Lookup("PIF").Fields {
			if diff := cmp.Diff(one[f.Name], c.must("PIF.get_"+f.Name, transport.Ref)); diff != "" {
				t.Errorf("%s: %s", f.Name, diff)
			}
		}
		if len(one) != len(model.Lookup("PIF").Fields) {
			t.Errorf("%d fields", len(one))
		}
		far := map[string]any{"tunnel_transport_PIF_of": one["tunnel_transport_PIF_of"], "tunnel_access_PIF_of": one["tunnel_access_PIF_of"], "VLAN_master_of": one["VLAN_master_of"]}
		want := map[string]any{"tunnel_transport_PIF_of": []any{tunnel.Ref}, "tunnel_access_PIF_of": []any{}, "VLAN_master_of": model.NullRef}
		if diff := cmp.Diff(want, far); diff != "" {
			t.Error(diff)
		}
		if got := c.must("PIF.get_tunnel_access_PIF_of", access.Ref); !cmp.Equal(got, []any{tunnel.Ref}) {
			t.Error(got)
		}
		pifs := c.must("host.get_PIFs", host.Ref).([]any)
		if !slices.Contains(pifs, any(transport.Ref)) || !slices.Contains(pifs, any(access.Ref)) || len(pifs) != 2 {
			t.Error(pifs)
		}
		if got := c.must("network.get_by_uuid", network.UUID()); got != network.Ref {
			t.Error(got)
		}
		if got := c.must("network.get_by_name_label", "n1"); !cmp.Equal(got, []any{network.Ref}) {
			t.Error(got)
		}
		if got := c.must("network.get_by_name_label", "nowhere"); !cmp.Equal(got, []any{}) {
			t.Error(got)
		}
		if got := c.must("tunnel.get_all"); !cmp.Equal(got, []any{tunnel.Ref}) {
			t.Error(got)
		}
		if got := c.must("tunnel_get_all"); !cmp.Equal(got, []any{tunnel.Ref}) {
			t.Error(got)
		}
		if got := c.must("tunnel.get_status", tunnel.Ref); !cmp.Equal(got, any(map[string]any{"active": "false"})) {
			t.Error(got)
		}
		if got := c.must("PIF.get_all_records_where", `field "device" = "eth0" and not false`).(map[string]any); len(got) != 1 || got[transport.Ref] == nil {
			t.Error(got)
		}
		if got := c.must("PIF.get_all_records_where", "true").(map[string]any); len(got) != 2 {
			t.Error(got)
		}
		if got := len(c.records("role")); got != len(model.Roles()) {
			t.Errorf("%d roles", got)
		}
		if got := c.must("host_metrics.get_live", host.Text("metrics")); got != false {
			t.Error(got)
		}
	}
}

// TestCallErrors: what is wrong with a call, by the reference's codes.
func TestCallErrors(t *testing.T) {
	t.Parallel()
	s, c := served(t)
	_, network, transport, _, tunnel := aPool(t, s)
	tests := []struct {
		code   string
		params []string
		method string
		args   []any
	}{
		{"HANDLE_INVALID", []string{"PIF", "OpaqueRef:x"}, "PIF.get_record", []any{"OpaqueRef:x"}},
		{"HANDLE_INVALID", []string{"PIF", network.Ref}, "PIF.get_device", []any{network.Ref}},
		{"HANDLE_INVALID", []string{"network", model.NullRef}, "network.set_name_label", []any{model.NullRef, "x"}},
		{"HANDLE_INVALID", []string{"PIF", tunnel.Ref}, "PIF.add_to_other_config", []any{tunnel.Ref, "k", "v"}},
		{"HANDLE_INVALID", []string{"SR", "OpaqueRef:sr"}, "pool.set_default_SR", []any{anyPool(c), "OpaqueRef:sr"}},
		{"UUID_INVALID", []string{"tunnel", "1-2"}, "tunnel.get_by_uuid", []any{"1-2"}},
		{"MESSAGE_METHOD_UNKNOWN", []string{"PIF.set_MAC"}, "PIF.set_MAC", []any{transport.Ref, "x"}},
		{"MESSAGE_METHOD_UNKNOWN", []string{"pif.get_all"}, "pif.get_all", nil},
		{"MESSAGE_METHOD_UNKNOWN", []string{"tunnel.set_protocol"}, "tunnel.set_protocol", []any{tunnel.Ref, "vxlan"}},
		{"MESSAGE_METHOD_UNKNOWN", []string{"Async.PIF.get_all"}, "Async.PIF.get_all", nil},
		{"MESSAGE_METHOD_UNKNOWN", []string{"session.get_all"}, "session.get_all", nil},
		{"MESSAGE_PARAMETER_COUNT_MISMATCH", []string{"PIF.get_record", "1", "0"}, "PIF.get_record", nil},
		{"MESSAGE_PARAMETER_COUNT_MISMATCH", []string{"PIF.get_record", "1", "2"}, "PIF.get_record", []any{transport.Ref, "x"}},
		{"MESSAGE_PARAMETER_COUNT_MISMATCH", []string{"tunnel.create", "2", "1"}, "tunnel.create", []any{transport.Ref}},
		{"MAP_DUPLICATE_KEY", []string{"tunnel", "status", tunnel.Ref, "active"}, "tunnel.add_to_status", []any{tunnel.Ref, "active", "true"}},
		{"FIELD_TYPE_ERROR", []string{"MTU"}, "network.set_MTU", []any{network.Ref, "many"}},
		{"FIELD_TYPE_ERROR", []string{"self"}, "network.get_record", []any{map[string]string{}}},
		{"FIELD_TYPE_ERROR", []string{"other_config"}, "network.set_other_config", []any{network.Ref, "x"}},
		{"INVALID_VALUE", []string{"MTU", "0"}, "network.set_MTU", []any{network.Ref, int64(0)}},
		{"FIELD_TYPE_ERROR", []string{"MTU"}, "network.create", []any{map[string]any{"MTU": "many"}}},
		{"INVALID_VALUE", []string{"default_locking_mode", "open"}, "network.set_default_locking_mode", []any{network.Ref, "open"}},
		{"INVALID_VALUE", []string{"protocol", "ipip"}, "tunnel.create", []any{transport.Ref, network.Ref, "ipip"}},
	}
	for _, tt := range tests {
		for _, json := range []bool{false, true} {
			c := *c
			c.json = json
			before := s.now().Revision()
			if diff := cmp.Diff(tt.params, c.fails(tt.code, tt.method, tt.args...)); diff != "" {
				t.Errorf("%s %v: %s", tt.method, tt.args, diff)
			}
			if after := s.now().Revision(); after != before {
				t.Errorf("%s %v failed and has changed something", tt.method, tt.args)
			}
		}
	}
}

func anyPool(c *clientOf) string {
	return c.must("pool.get_all").([]any)[0].(string)
}

// TestWrites: fields that clients write, whole or a part at a time.
func TestWrites(t *testing.T) {
	t.Parallel()
	s, c := served(t)
	_, network, _, _, _ := aPool(t, s)
	n := network.Ref
	steps := []struct {
		method string
		args   []any
		field  string
		want   any
	}{
		{"set_name_label", []any{n, "blau"}, "name_label", "blau"},
		{"set_MTU", []any{n, "1400"}, "MTU", "1400"},
		{"set_other_config", []any{n, map[string]string{"a": "1"}}, "other_config", map[string]any{"a": "1"}},
		{"add_to_other_config", []any{n, "b", ""}, "other_config", map[string]any{"a": "1", "b": ""}},
		{"remove_from_other_config", []any{n, "a"}, "other_config", map[string]any{"b": ""}},
		{"remove_from_other_config", []any{n, "never"}, "other_config", map[string]any{"b": ""}},
		{"set_tags", []any{n, []string{"x", "y"}}, "tags", []any{"x", "y"}},
		{"add_tags", []any{n, "z"}, "tags", []any{"x", "y", "z"}},
		{"add_tags", []any{n, "z"}, "tags", []any{"x", "y", "z"}},
		{"remove_tags", []any{n, "x"}, "tags", []any{"y", "z"}},
		{"remove_tags", []any{n, "never"}, "tags", []any{"y", "z"}},
	}
	for _, step := range steps {
		if got := c.must("network."+step.method, step.args...); got != "" {
			t.Errorf("%s answers %q", step.method, got)
		}
		if diff := cmp.Diff(step.want, c.must("network.get_"+step.field, n)); diff != "" {
			t.Errorf("%s %v: %s", step.method, step.args, diff)
		}
	}
	before := s.now().Revision()
	c.must("network.set_name_label", n, "blau")
	if s.now().Revision() != before {
		t.Error("what is so already was written again")
	}
}

// TestListMethods: every call, and the classes by get_all_records.
func TestListMethods(t *testing.T) {
	t.Parallel()
	_, c := served(t)
	status, _, reply := c.post("/", "text/xml", []byte(xmlCall("system.listMethods")))
	if want := `<?xml version="1.0"?><methodResponse><params><param><value><array>`; status != 200 || !strings.HasPrefix(string(reply), want) {
		t.Fatalf("HTTP %d: %.200s", status, reply)
	}
	names := c.must("system.listMethods").([]any)
	for _, want := range []string{"tunnel.create", "tunnel.get_all_records", "event.inject", "session.login_with_password"} {
		if !slices.Contains(names, any(want)) {
			t.Errorf("no %s among %d", want, len(names))
		}
	}
}
