package explain

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/store/schema"
	"heddle/internal/topology/flow"
)

// tenant is a member of another project than the cloud's.
var tenant = neutron.Caller{UserID: "t", ProjectID: "tenant", Roles: []string{"member"}}

// asked asks as the tenant.
func (c *cloud) asked(q operator.WhyRequest) (*operator.WhyAnswer, error) {
	return c.world.Why(c.t.Context(), c.view(), tenant, &q, c.sources())
}

// shared makes a network of the operators that all projects use, with a port of theirs and one of
// the tenant's, and a network of the tenant's behind a router of theirs.
func (c *cloud) shared() (mine, theirs *neutron.PortView) {
	c.t.Helper()
	c.twoTiers()
	n := create(c, c.Networks(), neutron.Networks, `{"name":"commons","shared":true}`).ID
	s := create(c, c.Subnets(), neutron.Subnets, `{"network_id":%q,"ip_version":4,"cidr":"10.9.0.0/24"}`, n)
	if _, err := c.Routers().AddInterface(c.t.Context(), admin, c.router("r"), neutron.InterfaceRequest{SubnetID: s.ID}); err != nil {
		c.t.Fatal(err)
	}
	theirs = c.port(n, "secret", "h2", "")
	group := create(c, c.SecurityGroups(), neutron.SecurityGroups, `{"name":"mine","tenant_id":"tenant"}`).ID
	mine = c.port(n, "mine", "h1", fmt.Sprintf(`,"tenant_id":"tenant","security_groups":[%q]`, group))
	c.port(n, "mine2", "h2", fmt.Sprintf(`,"tenant_id":"tenant","security_groups":[%q]`, group))
	return mine, theirs
}

// TestTenant: a tenant gets answers about own ports, with own rules and remedies.
func TestTenant(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	mine, _ := c.shared()
	a, err := c.asked(operator.WhyRequest{From: "mine", To: "mine2", Port: 22})
	if err != nil || a.Verdict != operator.Denied || a.There.Trace.Code != flow.CodeNoRule || len(a.There.Nearest) != 1 || len(a.Remedies) != 1 {
		t.Fatalf("%+v, %v", a, err)
	}
	if by := a.There.By; len(by) != 2 || describe(&by[0]) != "security-group-rule  of security-group mine" || describe(&by[1]) != "port mine2" || a.Names[mine.ID].Name != "mine" {
		t.Errorf("by %+v, names %+v", by, a.Names)
	}
	c.do(a.Remedies[0])
	if a, err = c.asked(operator.WhyRequest{From: "mine", To: "mine2", Port: 22}); err != nil || a.Verdict != operator.Allowed || a.Back == nil || !a.Back.Allowed {
		t.Errorf("with the rule: %+v, %v", a, err)
	}
}

// TestTenantLearnsNothing: whatever a tenant asks, no id, name, host or address of others comes
// back that was not in the question, in answers or in errors.
func TestTenantLearnsNothing(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	mine, theirs := c.shared()
	c.firewallGroup()
	public := create(c, c.FloatingIPs(), neutron.FloatingIPs, `{"floating_network_id":%q,"port_id":%q}`, c.network("public"), theirs.ID).FloatingIPAddress.String()
	at := theirs.FixedIPs[0].IPAddress.String()
	web := the(c, schema.Ports, "name", "web")
	inside := web.FixedIPs[0].IPAddress.String() // on a network of theirs alone
	own := map[string]bool{}
	for _, name := range []string{"mine", "mine2"} {
		p := the(c, schema.Ports, "name", name)
		own[p.ID], own[p.FixedIPs[0].IPAddress.String()] = true, true
	}
	g := the(c, schema.SecurityGroups, "name", "mine")
	own[g.ID] = true
	for _, r := range g.Rules {
		own[r.ID] = true
	}
	names := []string{"secret", "commons", "front", "public", "h1", "h2", "id-h", "lonely", "web", "db", "tap", "closed"}
	uuid := regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	address := regexp.MustCompile(`\b[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+\b`)
	mac := regexp.MustCompile(`\b[0-9a-f]{2}(:[0-9a-f]{2}){5}\b`)
	derived := map[string]bool{} // chains and rules that are made of own objects
	for b := range schema.Bundles.All(c.view()) {
		if !own[b.Owner.ID] {
			continue
		}
		for _, ch := range b.Bundle.Chains {
			derived[ch.ID] = true
			for _, r := range ch.Rules {
				derived[r.ID] = true
			}
		}
	}
	gateway := "10.9.0.1" // of the subnet that the tenant's port is on: the API shows it
	var verdicts []string
	for _, from := range []string{"mine", mine.ID, at, theirs.ID, "secret", public, inside, "198.51.100.7", web.ID} {
		for _, to := range []string{"mine", "mine2", at, theirs.ID, "secret", public, inside, "198.51.100.7", web.ID, gateway, "10.9.0.77"} {
			for _, port := range []uint16{0, 22, 5432} {
				for _, reply := range []bool{false, true} {
					q := operator.WhyRequest{From: from, To: to, Port: port, Reply: reply}
					a, err := c.asked(q)
					text := ""
					switch {
					case err != nil:
						text = err.Error()
						var f *Fault
						if !errors.As(err, &f) {
							t.Fatalf("%+v: %v", q, err)
						}
						verdicts = append(verdicts, "refused")
					default:
						raw, err := json.Marshal(a)
						if err != nil {
							t.Fatal(err)
						}
						text = string(raw)
						verdicts = append(verdicts, string(a.Verdict))
						if a.Revision != 0 {
							t.Errorf("%+v: shows the revision", q)
						}
					}
					told := func(s string) bool { return strings.Contains(from+" "+to, s) || own[s] || derived[s] }
					for _, found := range slices.Concat(uuid.FindAllString(text, -1), address.FindAllString(text, -1)) {
						if !told(found) && found != gateway && !isUnspecified(found) {
							t.Fatalf("%+v shows %s:\n%s", q, found, text)
						}
					}
					for _, found := range mac.FindAllString(text, -1) {
						if found != mine.MACAddress.String() && found != the(c, schema.Ports, "name", "mine2").MACAddress.String() {
							t.Fatalf("%+v shows %s:\n%s", q, found, text)
						}
					}
					for _, name := range names {
						if !strings.Contains(from+" "+to, name) && regexp.MustCompile(`\b`+name+`\b`).MatchString(text) {
							t.Fatalf("%+v shows %s:\n%s", q, name, text)
						}
					}
				}
			}
		}
	}
	for _, verdict := range []string{string(operator.Allowed), string(operator.Denied), "refused"} {
		if !slices.Contains(verdicts, verdict) {
			t.Errorf("no question is %s", verdict)
		}
	}
}

func isUnspecified(text string) bool {
	a, err := netip.ParseAddr(text)
	return err == nil && a.IsUnspecified()
}
