package control_test

import (
	"testing"

	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store"
)

func TestQuotas(t *testing.T) {
	t.Parallel()
	w := open(t, store.NewMemory(), control.Options{Quotas: map[string]int{"network": 2, "security_group_rule": 7}})
	set := func(text string, checkLimit bool) error {
		v, err := parse(w.admin, neutron.Quotas, neutron.Update, text)
		if err != nil {
			return err
		}
		_, err = w.SetQuota(t.Context(), w.admin, "mine", v, checkLimit)
		return err
	}
	w.network(`{}`)
	w.network(`{}`)
	_, err := w.create(w.member, neutron.Networks, `{}`)
	w.expect(err, "OverQuota: Quota exceeded for resources: ['network'].")
	if err := set(`{"network":3}`, false); err != nil {
		t.Fatal(err)
	}
	_, err = w.create(w.member, neutron.Networks, `{}`, `{}`)
	w.expect(err, "OverQuota: Quota exceeded for resources: ['network'].")
	w.network(`{}`)
	w.expect(set(`{"network":2}`, true), "HTTPBadRequest: Quota limit 2 for network must be greater than or equal to already used 3")
	if err := set(`{"network":2,"port":-1}`, false); err != nil {
		t.Error(err)
	}

	// A group brings two rules, and the default one, which is there by now, has four.
	must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"a"}`)
	_, err = w.create(w.member, neutron.SecurityGroups, `{"name":"b"}`)
	w.expect(err, "OverQuota: Quota exceeded for resources: ['security_group_rule'].")

	q, err := w.Quota(t.Context(), w.member, "mine")
	if err != nil || q.Limits["network"] != 2 || q.Limits["port"] != -1 || q.Limits["router"] != 10 || len(q.Limits) != len(neutron.QuotaNames()) {
		t.Errorf("quota %+v, %v", q, err)
	}
	d, err := w.DefaultQuota(t.Context(), w.member, "mine")
	if err != nil || d.Limits["port"] != 500 {
		t.Errorf("default %+v, %v", d, err)
	}
	uses, err := w.QuotaDetails(t.Context(), w.member, "mine")
	if err != nil || uses["network"] != (neutron.QuotaUse{Limit: 2, Used: 3}) || uses["security_group_rule"].Used != 6 || uses["security_group"].Used != 2 {
		t.Errorf("use %+v, %v", uses, err)
	}
	if all, err := w.Quotas(t.Context(), w.admin); err != nil || len(all) != 1 || all[0].ProjectID != "mine" {
		t.Errorf("projects with limits of their own: %+v, %v", all, err)
	}
	if err := w.ResetQuota(t.Context(), w.admin, "mine"); err != nil {
		t.Error(err)
	}
	w.expect(w.ResetQuota(t.Context(), w.admin, "mine"), "TenantQuotaNotFound: Quota for tenant mine could not be found.")
	if q, _ := w.Quota(t.Context(), w.member, "mine"); q.Limits["port"] != 500 {
		t.Errorf("after reset %+v", q)
	}

	_, err = w.Quota(t.Context(), w.member, "other")
	w.expect(err, "PolicyNotAuthorized: rule:get_quota is disallowed by policy")
	_, err = w.Quotas(t.Context(), w.member)
	w.expect(err, "PolicyNotAuthorized: rule:get_quota is disallowed by policy")
	_, err = w.SetQuota(t.Context(), w.member, "mine", nil, false)
	w.expect(err, "PolicyNotAuthorized: rule:update_quota is disallowed by policy")
	w.expect(w.ResetQuota(t.Context(), w.member, "mine"), "PolicyNotAuthorized: rule:delete_quota is disallowed by policy")
	_, err = w.DefaultQuota(t.Context(), w.member, "other")
	w.expect(err, "PolicyNotAuthorized: rule:get_quota is disallowed by policy")
	_, err = w.QuotaDetails(t.Context(), w.member, "other")
	w.expect(err, "PolicyNotAuthorized: rule:get_quota is disallowed by policy")
}
