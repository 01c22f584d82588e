package neutron_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"heddle/internal/neutron"
)

var update = flag.Bool("update", false, "write the attribute tables into docs/neutron.md, and the golden files")

// document is docs/neutron.md, whose last part is made of the attribute tables.
const (
	document = "../../docs/neutron.md"
	marker   = "<!-- Made by go test ./internal/neutron -update; do not edit below. -->\n"
)

// TestDocument holds the attribute tables of docs/neutron.md against the code.
func TestDocument(t *testing.T) {
	raw, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, found, ok := strings.Cut(string(raw), marker)
	if !ok {
		t.Fatalf("%s has no line %q", document, marker)
	}
	want := attributeTables()
	if *update {
		if err := os.WriteFile(document, []byte(before+marker+want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if found != want {
		t.Errorf("the attribute tables of %s are not those of the code: run go test ./internal/neutron -run TestDocument -update", document)
	}
}

func attributeTables() string {
	var b strings.Builder
	for _, r := range neutron.Resources() {
		if strings.HasPrefix(r.Collection(), "alias_") {
			continue // as the rules below policies
		}
		fmt.Fprintf(&b, "\n### %s\n\n| attribute | type | create | update | default | set by | seen by | filter, sort | |\n|---|---|---|---|---|---|---|---|---|\n", title(r))
		for _, a := range r.Attributes() {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %s | %s | %s |\n", a.Name, a.Type, mark(a.Create, "yes"), mark(a.Update, "yes"),
				defaultText(a), setBy(a), seenBy(a), strings.TrimSpace(mark(a.Filter, "filter")+" "+mark(a.Sort, "sort")), notes(a))
		}
	}
	return b.String()
}

// title returns the name of a resource's section: FWaaS v2 has some names of v1, and QoS some that
// say little.
func title(r neutron.Resource) string {
	switch {
	case r >= neutron.QoSPolicies && r <= neutron.QoSRuleTypeNames:
		return "qos/" + r.Collection()
	case r >= neutron.FirewallGroups && r <= neutron.FirewallGroupRules:
		return "fwaas/" + r.Collection()
	}
	switch r {
	case neutron.LoadBalancers, neutron.Listeners, neutron.LBPools, neutron.HealthMonitors:
		return "lbaas/" + r.Collection()
	case neutron.LBMembers:
		return "lbaas/pools/ID/" + r.Collection()
	case neutron.VIPs, neutron.V1Pools, neutron.V1Members, neutron.V1HealthMonitors:
		return "lb/" + r.Collection()
	case neutron.PortForwardings:
		return "floatingips/ID/" + r.Collection()
	case neutron.LocalIPAssociations:
		return "local_ips/ID/" + r.Collection()
	}
	return r.Collection()
}

func mark(yes bool, text string) string {
	if yes {
		return text
	}
	return ""
}

func defaultText(a *neutron.Attribute) string {
	if !a.Create {
		return ""
	}
	if d := a.DefaultText(); d != "" && d != "required" {
		return "`" + d + "`"
	}
	return a.DefaultText()
}

func setBy(a *neutron.Attribute) string {
	switch {
	case a.Create && a.Update && a.CreateBy != a.UpdateBy:
		return fmt.Sprintf("%s; update: %s", a.CreateBy, a.UpdateBy)
	case a.Create && a.CreateBy != neutron.Everyone:
		return a.CreateBy.String()
	case a.Update && a.UpdateBy != neutron.Everyone:
		return a.UpdateBy.String()
	}
	return ""
}

func seenBy(a *neutron.Attribute) string {
	switch {
	case a.Hidden:
		return "nobody"
	case a.See != neutron.Everyone:
		return a.See.String()
	}
	return ""
}

func notes(a *neutron.Attribute) string {
	if a.Later == "" {
		return a.Doc
	}
	return strings.TrimPrefix(a.Doc+"; ", "; ") + "only the default: " + a.Later
}
