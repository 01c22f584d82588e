package explain

import (
	"fmt"
	"testing"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// TestWorldFollowsSnapshots: a World answers for any snapshot, also for one before that of the last
// question, as a new one does, whether it knows what has changed in between or has to compare all.
func TestWorldFollowsSnapshots(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	web, db := c.twoTiers()
	g := create(c, c.SecurityGroups(), neutron.SecurityGroups, `{"name":"one"}`).ID
	update(c, c.Ports(), neutron.Ports, db.ID, fmt.Sprintf(`{"security_groups":[%q]}`, g))
	rule := `{"security_group_id":%q,"direction":"ingress","protocol":"tcp","port_range_min":%[2]d,"port_range_max":%[2]d}`
	snaps := []*records.Snap{c.view()}
	for port := range 3 {
		create(c, c.SecurityGroupRules(), neutron.SecurityGroupRules, rule, g, 7000+port)
		snaps = append(snaps, c.view())
	}
	for range 5000 { // more than snapshots know of
		c.commit(func(tx *records.Tx) error {
			return schema.HostStates.Put(tx, &topology.HostState{HostID: "id-h1"})
		})
	}
	update(c, c.Ports(), neutron.Ports, db.ID, `{"admin_state_up":false}`)
	snaps = append(snaps, c.view())
	for _, i := range []int{4, 0, 1, 3, 2, 4, 3} {
		for port := range 3 {
			q := operator.WhyRequest{From: web.ID, To: db.ID, Port: uint16(7000 + port)}
			want := map[bool]operator.Verdict{true: operator.Allowed, false: operator.Denied}[i > port && i < 4]
			a, err := c.world.Why(t.Context(), snaps[i], admin, &q, c.sources())
			if err != nil {
				t.Fatal(err)
			}
			if a.Verdict != want {
				t.Errorf("port %d after change %d: %q, want %s", q.Port, i, a.Verdict, want)
			}
		}
	}
}
