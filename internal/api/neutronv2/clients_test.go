package neutronv2_test

import (
	"net/http"
	"testing"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/agents"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/attributestags"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/quotas"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/groups"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/networks"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/subnets"
	"github.com/gophercloud/gophercloud/v2/pagination"

	"heddle/internal/control"
)

// client is gophercloud with a caller's token.
func (s *server) client(who string) *gophercloud.ServiceClient {
	return &gophercloud.ServiceClient{
		ProviderClient: &gophercloud.ProviderClient{TokenID: who},
		Endpoint:       s.url + "/", ResourceBase: s.url + "/v2.0/",
	}
}

// must fails the test on an error.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// count returns the number of objects on all pages of a list.
func count[T any](t *testing.T, pager pagination.Pager, extract func(pagination.Page) ([]T, error)) int {
	t.Helper()
	return len(must[[]T](t)(extract(must[pagination.Page](t)(pager.AllPages(t.Context())))))
}

// TestGophercloud: an outside client creates, lists in pages, updates and deletes every resource.
func TestGophercloud(t *testing.T) {
	t.Parallel()
	s := newServer(t, control.Options{})
	s.addHost(t, "99999999-0000-0000-0000-000000000002", "host-2")
	ctx, c, admin := t.Context(), s.client("member"), s.client("admin")
	yes, no, name := true, false, "renamed"

	n := must[*networks.Network](t)(networks.Create(ctx, c, networks.CreateOpts{Name: "n", AdminStateUp: &yes}).Extract())
	must[*networks.Network](t)(networks.Create(ctx, c, networks.CreateOpts{Name: "other"}).Extract())
	n = must[*networks.Network](t)(networks.Update(ctx, c, n.ID, networks.UpdateOpts{Name: &name, RevisionNumber: &n.RevisionNumber}).Extract())
	if n.Name != name || n.Status != "ACTIVE" || n.ProjectID != memberProject || n.CreatedAt.IsZero() {
		t.Errorf("network: %+v", n)
	}
	if got := count(t, networks.List(c, networks.ListOpts{Limit: 1}), networks.ExtractNetworks); got != 2 {
		t.Errorf("%d networks in pages of one, want 2", got)
	}

	sub := must[*subnets.Subnet](t)(subnets.Create(ctx, c, subnets.CreateOpts{NetworkID: n.ID, IPVersion: 4, CIDR: "10.0.0.0/24",
		DNSNameservers: []string{"192.0.2.1"}, HostRoutes: []subnets.HostRoute{{DestinationCIDR: "10.1.0.0/16", NextHop: "10.0.0.9"}}}).Extract())
	sub = must[*subnets.Subnet](t)(subnets.Update(ctx, c, sub.ID, subnets.UpdateOpts{Name: &name, EnableDHCP: &no}).Extract())
	if sub.GatewayIP != "10.0.0.1" || sub.EnableDHCP || len(sub.HostRoutes) != 1 || len(sub.AllocationPools) != 1 {
		t.Errorf("subnet: %+v", sub)
	}
	if got := count(t, subnets.List(c, subnets.ListOpts{NetworkID: n.ID, CIDR: "10.0.0.0/24"}), subnets.ExtractSubnets); got != 1 {
		t.Errorf("%d subnets, want 1", got)
	}

	g := must[*groups.SecGroup](t)(groups.Create(ctx, c, groups.CreateOpts{Name: "g"}).Extract())
	g = must[*groups.SecGroup](t)(groups.Update(ctx, c, g.ID, groups.UpdateOpts{Name: name}).Extract())
	r := must[*rules.SecGroupRule](t)(rules.Create(ctx, c, rules.CreateOpts{SecGroupID: g.ID, Direction: rules.DirIngress,
		EtherType: rules.EtherType4, Protocol: rules.ProtocolTCP, PortRangeMin: 80, PortRangeMax: 90}).Extract())
	if got := count(t, rules.List(c, rules.ListOpts{SecGroupID: g.ID}), rules.ExtractRules); got != 3 || r.PortRangeMax != 90 {
		t.Errorf("%d rules, want 3; made %+v", got, r)
	}

	p := must[*ports.Port](t)(ports.Create(ctx, c, ports.CreateOpts{NetworkID: n.ID, SecurityGroups: &[]string{g.ID},
		FixedIPs:            []ports.IP{{SubnetID: sub.ID, IPAddress: "10.0.0.50"}},
		AllowedAddressPairs: []ports.AddressPair{{IPAddress: "10.0.0.0/24"}}}).Extract())
	p = must[*ports.Port](t)(ports.Update(ctx, c, p.ID, ports.UpdateOpts{Name: &name, SecurityGroups: &[]string{}}).Extract())
	if p.Name != name || p.FixedIPs[0].IPAddress != "10.0.0.50" || len(p.SecurityGroups) != 0 || p.AllowedAddressPairs[0].MACAddress != p.MACAddress {
		t.Errorf("port: %+v", p)
	}
	if got := count(t, ports.List(c, ports.ListOpts{FixedIPs: []ports.FixedIPOpts{{IPAddressSubstr: "0.0.5"}}}), ports.ExtractPorts); got != 1 {
		t.Errorf("%d ports, want 1", got)
	}

	must[[]string](t)(attributestags.ReplaceAll(ctx, c, "networks", n.ID, attributestags.ReplaceAllOpts{Tags: []string{"a", "b"}}).Extract())
	noError(t, attributestags.Add(ctx, c, "networks", n.ID, "c").ExtractErr())
	if has := must[bool](t)(attributestags.Confirm(ctx, c, "networks", n.ID, "c").Extract()); !has {
		t.Error("the tag is not there")
	}
	if got := count(t, networks.List(c, networks.ListOpts{Tags: "a,c"}), networks.ExtractNetworks); got != 1 {
		t.Errorf("%d networks with two tags, want 1", got)
	}

	limit := 7
	q := must[*quotas.Quota](t)(quotas.Update(ctx, admin, memberProject, quotas.UpdateOpts{Network: &limit}).Extract())
	if detail := must[*quotas.QuotaDetailSet](t)(quotas.GetDetail(ctx, c, memberProject).Extract()); q.Network != 7 || detail.Network.Used != 2 {
		t.Errorf("quota %+v, %+v", q, detail)
	}
	if got := count(t, agents.List(admin, agents.ListOpts{Host: "host-2", AgentType: "Open vSwitch agent"}), agents.ExtractAgents); got != 1 {
		t.Errorf("%d agents, want 1", got)
	}

	noError(t, ports.Delete(ctx, c, p.ID).ExtractErr())
	noError(t, rules.Delete(ctx, c, r.ID).ExtractErr())
	noError(t, groups.Delete(ctx, c, g.ID).ExtractErr())
	noError(t, subnets.Delete(ctx, c, sub.ID).ExtractErr())
	noError(t, networks.Delete(ctx, c, n.ID).ExtractErr())
	if _, err := networks.Get(ctx, c, n.ID).Extract(); !gophercloud.ResponseCodeIs(err, http.StatusNotFound) {
		t.Errorf("after the delete: %v", err)
	}
}
