package model

import (
	"strings"
	"testing"
)

// TestCalls: the calls of the seed and those that each class implies, with how many parameters they
// need and who may make them.
func TestCalls(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct {
		params, required int
		role             Role
		verb             Verb
	}{
		"tunnel.create":                 {3, 2, PoolOperator, Do},
		"tunnel.destroy":                {1, 1, PoolOperator, Do},
		"tunnel.get_all":                {0, 0, ReadOnly, GetAll},
		"tunnel.get_all_records":        {0, 0, ReadOnly, GetAllRecords},
		"tunnel.get_all_records_where":  {1, 1, ReadOnly, GetAllRecordsWhere},
		"tunnel.get_record":             {1, 1, ReadOnly, GetRecord},
		"tunnel.get_by_uuid":            {1, 1, ReadOnly, GetByUUID},
		"tunnel.get_status":             {1, 1, ReadOnly, GetField},
		"tunnel.set_status":             {2, 2, TunnelController, SetField},
		"tunnel.add_to_status":          {3, 3, TunnelController, AddTo},
		"tunnel.remove_from_status":     {2, 2, TunnelController, RemoveFrom},
		"tunnel.set_other_config":       {2, 2, PoolOperator, SetField},
		"PIF.get_tunnel_access_PIF_of":  {1, 1, ReadOnly, GetField},
		"PIF.introduce":                 {4, 3, PoolOperator, Do},
		"network.create":                {1, 1, VMAdmin, Create},
		"network.add_tags":              {2, 2, VMAdmin, Add},
		"network.remove_tags":           {2, 2, VMAdmin, Remove},
		"network.get_by_name_label":     {1, 1, ReadOnly, GetByNameLabel},
		"VIF.create":                    {1, 1, VMAdmin, Create},
		"VIF.set_locking_mode":          {2, 2, PoolOperator, SetField},
		"VM.start":                      {3, 3, VMOperator, Do},
		"session.login_with_password":   {4, 2, ReadOnly, Do},
		"session.get_this_host":         {1, 1, ReadOnly, GetField},
		"session.logout":                {0, 0, ReadOnly, Do},
		"event.from":                    {3, 3, ReadOnly, Do},
		"system.listMethods":            {0, 0, ReadOnly, Do},
		"host.get_management_interface": {1, 1, ReadOnly, Do},
		"pool.add_to_other_config":      {3, 3, PoolOperator, AddTo},
	} {
		c := Calls()[name]
		if c == nil {
			t.Errorf("there is no %s", name)
			continue
		}
		if len(c.Params) != want.params || c.Required != want.required || c.Role != want.role || c.Verb != want.verb {
			t.Errorf("%s takes %d params, %d of them required, for %s, verb %d; want %v", name, len(c.Params), c.Required, c.Role, c.Verb, want)
		}
	}
	for _, name := range []string{"tunnel.create", "tunnel.destroy", "PIF.plug", "PIF.unplug", "network.destroy", "VLAN.create", "VLAN.destroy", "Bond.create", "Bond.destroy", "pool.join"} {
		if !Calls()[name].Async {
			t.Errorf("there is no Async.%s", name)
		}
	}
	for _, name := range []string{"tunnel.set_access_PIF", "tunnel.set_protocol", "tunnel.set_uuid", "PIF.set_currently_attached", "PIF.add_tunnel_access_PIF_of", "tunnel.get_by_name_label",
		"session.get_all", "session.get_all_records", "event.get_all", "event.get_record", "event.get_snapshot", "event_batch.get_record", "Tunnel.create", "system.get_record"} {
		if Calls()[name] != nil {
			t.Errorf("there is %s", name)
		}
	}
}

// TestCallNames: clients find the classes by the names that end in get_all_records.
func TestCallNames(t *testing.T) {
	t.Parallel()
	listed := 0
	for _, name := range CallNames() {
		class, found := strings.CutSuffix(name, ".get_all_records")
		if c := Lookup(class); found && (c == nil || c.NoList) {
			t.Errorf("%s: there are no such objects", name)
		}
		if found {
			listed++
		}
	}
	if listed != len(Classes())-2 { // all but session and event
		t.Errorf("%d classes are listed", listed)
	}
}

func TestRoles(t *testing.T) {
	t.Parallel()
	for i, r := range ladder {
		for j, need := range ladder {
			if r.Includes(need) != (i <= j) {
				t.Errorf("%s includes %s: %t", r, need, r.Includes(need))
			}
		}
		if r.Includes(TunnelController) != (r == PoolAdmin) {
			t.Errorf("%s may write a tunnel's status: %t", r, r.Includes(TunnelController))
		}
		if TunnelController.Includes(r) != (r == ReadOnly) {
			t.Errorf("the controller includes %s: %t", r, TunnelController.Includes(r))
		}
		if Role("king").Includes(r) {
			t.Errorf("an unknown role includes %s", r)
		}
	}
	if !TunnelController.Includes(TunnelController) {
		t.Error("the controller may not write a tunnel's status")
	}
	if roles := Roles(); len(roles) != 7 || roles[0] != PoolAdmin || roles[6] != TunnelController {
		t.Errorf("roles %v", roles)
	}
}
