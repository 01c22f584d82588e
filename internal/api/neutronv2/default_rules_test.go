package neutronv2_test

import (
	"net/http"
	"strings"
	"testing"

	"heddle/internal/control"
)

// TestDefaultRulesOverHTTP: the initial default rules are listed as the reference has them; others
// are made, found by filters, shown, deleted and not updated.
func TestDefaultRulesOverHTTP(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	const path = "/default-security-group-rules"
	ids := func(query string) []string {
		return s.must(t, http.StatusOK, "member", http.MethodGet, path+query, nil).ids("default_security_group_rules")
	}
	for query, want := range map[string]int{
		"": 4, "?direction=egress": 2, "?remote_group_id=PARENT": 2, "?used_in_non_default_sg=False": 2, "?used_in_default_sg=true&ethertype=IPv6": 2,
		"?limit=3": 3, "?sort_key=ethertype&sort_dir=desc": 4, "?id=x": 0,
	} {
		if got := ids(query); len(got) != want {
			t.Errorf("list%s: %v, want %d", query, got, want)
		}
	}
	page := ids("?limit=1")
	for len(page) < 4 {
		page = append(page, ids("?limit=1&marker="+page[len(page)-1])...)
	}
	if all := ids(""); strings.Join(page, " ") != strings.Join(all, " ") {
		t.Errorf("pages %v, list %v", page, all)
	}
	s.refused(t, http.StatusOK, "reader", http.MethodGet, path+"?direction=ingress&ethertype=IPv6", "",
		`"description":"","remote_group_id":"PARENT","direction":"ingress","protocol":null,"port_range_min":null,"port_range_max":null,"ethertype":"IPv6",`+
			`"remote_ip_prefix":null,"remote_address_group_id":null,"used_in_default_sg":true,"used_in_non_default_sg":false}]}`)

	made := s.create(t, "admin", "default-security-group-rules", `{"default_security_group_rule":{"direction":"ingress","protocol":"TCP","port_range_min":"80","port_range_max":81}}`)
	if made["protocol"] != "tcp" || made["port_range_min"] != 80.0 || made["used_in_default_sg"] != false || made["used_in_non_default_sg"] != true || made["project_id"] != nil {
		t.Errorf("made %v", made)
	}
	item := path + "/" + made["id"].(string)
	s.refused(t, http.StatusOK, "none", http.MethodGet, item, "", `{"default_security_group_rule":{"id":"`+made["id"].(string)+`"`)
	s.refused(t, http.StatusMethodNotAllowed, "admin", http.MethodPut, item, `{"default_security_group_rule":{"description":"x"}}`, "")
	s.refused(t, http.StatusBadRequest, "admin", http.MethodPost, path, `{"default_security_group_rule":{}}`, "'direction' not specified")
	s.refused(t, http.StatusConflict, "admin", http.MethodPost, path,
		`{"default_security_group_rule":{"direction":"ingress","protocol":6,"port_range_min":80,"port_range_max":81}}`, "Rule id is "+made["id"].(string))

	group := s.create(t, "member", "security-groups", `{"security_group":{"name":"g"}}`)
	if rules := list(group["security_group_rules"]); len(rules) != 3 {
		t.Errorf("rules %v", rules)
	}
	s.must(t, http.StatusNoContent, "admin", http.MethodDelete, item, nil)
	s.refused(t, http.StatusNotFound, "admin", http.MethodDelete, item, "", "DefaultSecurityGroupRuleNotFound")
	bulk := `{"default_security_group_rules":[{"direction":"ingress","protocol":"udp"},{"direction":"ingress","protocol":"sctp"}]}`
	s.refused(t, http.StatusForbidden, "member", http.MethodPost, path, bulk, "rule:create_default_security_group_rule")
	s.must(t, http.StatusCreated, "admin", http.MethodPost, path, bulk)
	if all := ids(""); len(all) != 6 {
		t.Errorf("list %v", all)
	}
	s.refused(t, http.StatusOK, "member", http.MethodGet, "/extensions/security-groups-default-rules", "", `"name":"Default rules for security groups"`)
}
