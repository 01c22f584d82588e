package control_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/neutron"
)

// TestMetering: admins make labels with rules, their project sees them, and what they count is in
// the topology; when they are deleted, the store is as it was.
func TestMetering(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	before := w.dump()
	l := must[*neutron.MeteringLabel](w, w.admin, neutron.MeteringLabels, `{"name":"web","project_id":"`+w.member.ProjectID+`"}`)
	rule := func(text string) error {
		_, err := w.create(w.admin, neutron.MeteringLabelRules, `{"metering_label_id":"`+l.ID+`","direction":"ingress"`+text+`}`)
		return err
	}
	for _, text := range []string{`,"remote_ip_prefix":"10.0.0.0/24"`, `,"remote_ip_prefix":"10.0.0.7","excluded":true`, `,"source_ip_prefix":"2001:db8::/32"`} {
		if err := rule(text); err != nil {
			t.Fatal(err)
		}
	}
	m := w.bundle("metering-label", l.ID).Meters[0]
	if m.TenantID != w.member.ProjectID || m.Shared || len(m.Rules) != 3 {
		t.Errorf("meter %+v", m)
	}
	for text, want := range map[string]string{
		`,"remote_ip_prefix":"10.0.0.128/25"`: "MeteringLabelRuleOverlaps: Metering label rule with remote_ip_prefix '10.0.0.128/25' overlaps another.",
		``:                                    "Invalid: You must define at least one of the following parameters 'remote_ip_prefix', or 'source_ip_prefix' or 'destination_ip_prefix'.",
		`,"remote_ip_prefix":"10.1.0.0/24","source_ip_prefix":"10.0.0.0/8"`: "Invalid: Cannot use 'remote-ip-prefix' in conjunction with 'source-ip-prefix' or 'destination-ip-prefix'.",
		`,"remote_ip_prefix":"x"`: "HTTPBadRequest: Invalid input for remote_ip_prefix. Reason: 'x' is not a valid IP subnet.",
		`,"source_ip_prefix":"x"`: "Invalid: source_ip_prefix: x is invalid ['x' does not appear to be an IPv4 or IPv6 interface].",
	} {
		w.expect(rule(text), want)
	}
	_, err := w.create(w.member, neutron.MeteringLabels, `{}`)
	w.expect(err, "PolicyNotAuthorized: rule:create_metering_label is disallowed by policy")
	w.expect(w.remove(w.member, neutron.MeteringLabels, l.ID), "PolicyNotAuthorized: rule:delete_metering_label is disallowed by policy")
	w.expect(w.remove(w.other, neutron.MeteringLabels, l.ID), "MeteringLabelNotFound: Metering label '"+l.ID+"' does not exist.")
	for _, tt := range []struct {
		c    neutron.Caller
		want int
	}{{w.admin, 3}, {w.member, 3}, {w.other, 0}} {
		if rules, err := all(w.MeteringLabelRules().List(t.Context(), tt.c, neutron.Query{})); err != nil || len(rules) != tt.want {
			t.Errorf("%s sees %d rules, %v; want %d", tt.c.ProjectID, len(rules), err, tt.want)
		}
	}
	if err := w.remove(w.admin, neutron.MeteringLabels, l.ID); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, w.dump()); d != "" {
		t.Errorf("left in the store (+) or lost (-):\n%s", d)
	}
}
