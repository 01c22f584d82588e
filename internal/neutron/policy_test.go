package neutron_test

import (
	"errors"
	"testing"

	"heddle/internal/neutron"
)

func TestAuthorize(t *testing.T) {
	t.Parallel()
	reader := neutron.Caller{ProjectID: "p", Roles: []string{"reader"}}
	own := neutron.Owner{ProjectID: "p"}
	onOwn := neutron.Owner{ProjectID: "p", NetworkProjectID: "p"}
	onShared := neutron.Owner{ProjectID: "p", NetworkProjectID: "other", Shared: true}
	const onNet = `{"network_id":"` + uuid1 + `"`
	tests := []struct {
		name   string
		caller neutron.Caller
		res    neutron.Resource
		op     neutron.Op
		body   string // "" for delete
		owner  neutron.Owner
		want   string // rules that refuse; "" = allowed
	}{
		{"own network", member, neutron.Networks, neutron.Create, `{"name":"x","shared":false}`, own, ""},
		{"admin's own", admin, neutron.Networks, neutron.Create, `{"shared":true,"project_id":"p"}`, own, ""},
		{"reader", reader, neutron.Networks, neutron.Create, `{}`, own, "rule:create_network"},
		{"shared as member", member, neutron.Networks, neutron.Create, `{"shared":true}`, own, "(rule:create_network and rule:create_network:shared)"},
		{"external as member", member, neutron.Networks, neutron.Create, `{"router:external":true}`, own, "(rule:create_network and rule:create_network:router:external)"},
		{"provider as member", member, neutron.Networks, neutron.Create, `{"provider:network_type":"vlan"}`, own, "(rule:create_network and rule:create_network:provider:network_type)"},
		{"two forbidden", member, neutron.Networks, neutron.Create, `{"router:external":true,"shared":true}`, own,
			"((rule:create_network and rule:create_network:shared) and rule:create_network:router:external)"},
		{"an update counts defaults", member, neutron.Networks, neutron.Update, `{"shared":false}`, own, "(rule:update_network and rule:update_network:shared)"},
		{"foreign shared network", member, neutron.Networks, neutron.Update, `{"name":"x"}`, neutron.Owner{ProjectID: "other", Shared: true}, "rule:update_network"},
		{"foreign shared network, delete", member, neutron.Networks, neutron.Delete, "", neutron.Owner{ProjectID: "other", Shared: true}, "rule:delete_network"},
		{"subnet on a shared network", member, neutron.Subnets, neutron.Create, onNet + `,"ip_version":4}`, onShared, "rule:create_subnet"},
		{"subnet on the own network", member, neutron.Subnets, neutron.Create, onNet + `,"ip_version":4}`, onOwn, ""},
		{"port on a shared network", member, neutron.Ports, neutron.Create, onNet + `}`, onShared, ""},
		{"port with subnet on a shared network", member, neutron.Ports, neutron.Create, onNet + `,"fixed_ips":[{"subnet_id":"` + uuid2 + `"}]}`, onShared, ""},
		{"port with address on a shared network", member, neutron.Ports, neutron.Create, onNet + `,"fixed_ips":[{"ip_address":"10.20.0.90"}]}`, onShared,
			"(rule:create_port and (rule:create_port:fixed_ips and (rule:create_port:fixed_ips:ip_address)))"},
		{"port with both on a shared network", member, neutron.Ports, neutron.Create, onNet + `,"fixed_ips":[{"ip_address":"10.20.0.90","subnet_id":"` + uuid2 + `"}]}`, onShared,
			"(rule:create_port and (rule:create_port:fixed_ips and (rule:create_port:fixed_ips:subnet_id and rule:create_port:fixed_ips:ip_address)))"},
		{"pairs on a shared network", member, neutron.Ports, neutron.Create, onNet + `,"allowed_address_pairs":[{"ip_address":"10.20.0.90"}]}`, onShared,
			"(rule:create_port and (rule:create_port:allowed_address_pairs and (rule:create_port:allowed_address_pairs:ip_address)))"},
		{"address on the own network", member, neutron.Ports, neutron.Create, onNet + `,"fixed_ips":[{"ip_address":"10.20.0.90"}],"mac_address":"fa:16:3e:00:00:01"}`, onOwn, ""},
		{"network device on the own network", member, neutron.Ports, neutron.Create, onNet + `,"device_owner":"network:dhcp"}`, onOwn, ""},
		{"network device on a shared network", member, neutron.Ports, neutron.Create, onNet + `,"device_owner":"network:dhcp"}`, onShared,
			"(rule:create_port and rule:create_port:device_owner)"},
		{"other device on a shared network", member, neutron.Ports, neutron.Create, onNet + `,"device_owner":"compute:nova"}`, onShared, ""},
		{"binding as member", member, neutron.Ports, neutron.Create, onNet + `,"binding:host_id":"h"}`, onOwn, "(rule:create_port and rule:create_port:binding:host_id)"},
		{"mac update as owner of all", member, neutron.Ports, neutron.Update, `{"mac_address":"fa:16:3e:00:00:01"}`, onOwn, "(rule:update_port and rule:update_port:mac_address)"},
		{"foreign port on the own network", member, neutron.Ports, neutron.Update, `{"name":"x"}`, neutron.Owner{ProjectID: "other", NetworkProjectID: "p"}, "rule:update_port"},
		{"foreign port on the own network, delete", member, neutron.Ports, neutron.Delete, "", neutron.Owner{ProjectID: "other", NetworkProjectID: "p"}, ""},
		{"agent as member", member, neutron.Agents, neutron.Update, `{"description":"x"}`, neutron.Owner{}, "rule:update_agent"},
		{"agent as admin", admin, neutron.Agents, neutron.Update, `{"description":"x"}`, neutron.Owner{}, ""},
	}
	for _, tt := range tests {
		var v neutron.Values
		if tt.body != "" {
			var err error
			if v, err = neutron.Parse(tt.caller, tt.res, tt.op, decode(t, tt.body)); err != nil {
				t.Errorf("%s: %v", tt.name, err)
				continue
			}
		}
		checkRefusal(t, tt.name, neutron.Authorize(tt.caller, tt.res, tt.op, v, tt.owner), tt.want)
	}
	checkRefusal(t, "own quota", neutron.AuthorizeQuota(member, "get", "p"), "")
	checkRefusal(t, "foreign quota", neutron.AuthorizeQuota(member, "get", "q"), "rule:get_quota")
	checkRefusal(t, "all quotas", neutron.AuthorizeQuota(member, "get", ""), "rule:get_quota")
	checkRefusal(t, "own quota, update", neutron.AuthorizeQuota(member, "update", "p"), "rule:update_quota")
	checkRefusal(t, "foreign quota as admin", neutron.AuthorizeQuota(admin, "delete", "q"), "")
	checkRefusal(t, "tags of the own", neutron.AuthorizeTags(member, neutron.Networks, own), "")
	checkRefusal(t, "tags of a foreign", neutron.AuthorizeTags(member, neutron.Networks, neutron.Owner{ProjectID: "q", Shared: true}), "rule:update_networks_tags")
}

func checkRefusal(t *testing.T, name string, err error, rules string) {
	t.Helper()
	var got *neutron.Error
	switch {
	case rules == "" && err != nil:
		t.Errorf("%s: %v, want it allowed", name, err)
	case rules != "" && !errors.As(err, &got):
		t.Errorf("%s: allowed, want it refused by %s", name, rules)
	case rules != "" && (got.Type != "PolicyNotAuthorized" || got.Message != rules+" is disallowed by policy" || got.Kind != neutron.Forbidden):
		t.Errorf("%s:\n got %s: %s\nwant PolicyNotAuthorized: %s is disallowed by policy", name, got.Type, got.Message, rules)
	}
}

func TestCanSee(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		caller neutron.Caller
		res    neutron.Resource
		owner  neutron.Owner
		want   bool
	}{
		{"own", member, neutron.Networks, neutron.Owner{ProjectID: "p"}, true},
		{"foreign", member, neutron.Networks, neutron.Owner{ProjectID: "q"}, false},
		{"foreign shared", member, neutron.Networks, neutron.Owner{ProjectID: "q", Shared: true}, true},
		{"foreign as admin", admin, neutron.Networks, neutron.Owner{ProjectID: "q"}, true},
		{"nobody's", neutron.Caller{}, neutron.Networks, neutron.Owner{}, false},
		{"foreign port on the own network", member, neutron.Ports, neutron.Owner{ProjectID: "q", NetworkProjectID: "p"}, true},
		{"foreign port on a shared network", member, neutron.Ports, neutron.Owner{ProjectID: "q", NetworkProjectID: "r", Shared: true}, false},
		{"subnet of a shared network", member, neutron.Subnets, neutron.Owner{ProjectID: "q", NetworkProjectID: "q", Shared: true}, true},
		{"agent as member", member, neutron.Agents, neutron.Owner{}, false},
		{"agent as admin", admin, neutron.Agents, neutron.Owner{}, true},
	}
	for _, tt := range tests {
		if got := neutron.CanSee(tt.caller, tt.res, tt.owner); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
