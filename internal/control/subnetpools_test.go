package control_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"heddle/internal/control"
	"heddle/internal/control/addresses"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/schema"
)

func (w *world) pool(c neutron.Caller, rest string) *neutron.SubnetPoolView {
	w.t.Helper()
	return must[*neutron.SubnetPoolView](w, c, neutron.SubnetPools, `{"name":"p",`+rest+`}`)
}

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

func TestSubnetPoolRanges(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	p := w.pool(w.member, `"prefixes":["10.1.0.0/24","10.0.0.0/24"],"min_prefixlen":24,"default_prefixlen":26,"max_prefixlen":30`)
	six := w.pool(w.member, `"prefixes":["fd00::/48"]`)
	for _, tt := range []struct{ request, cidr, gateway string }{
		{`"ip_version":4,"subnetpool_id":"` + p.ID + `"`, "10.0.0.0/26", "10.0.0.1"},
		{`"ip_version":4,"subnetpool_id":"` + p.ID + `","prefixlen":24`, "10.1.0.0/24", "10.1.0.1"},
		{`"ip_version":4,"subnetpool_id":"` + p.ID + `","cidr":"10.0.0.240/28"`, "10.0.0.240/28", "10.0.0.241"},
		{`"ip_version":4,"subnetpool_id":"` + p.ID + `","prefixlen":28`, "10.0.0.224/28", "10.0.0.225"}, // where it leaves the most
		{`"ip_version":4,"subnetpool_id":"` + p.ID + `","gateway_ip":null`, "10.0.0.64/26", ""},
		{`"ip_version":6,"subnetpool_id":"` + six.ID + `"`, "fd00::/64", "fd00::1"},
		{`"ip_version":6,"subnetpool_id":"` + six.ID + `","cidr":"fd00:0:0:1::/64"`, "fd00:0:0:1::/64", "fd00:0:0:1::"},
	} {
		s := w.subnet(w.network(`{}`).ID, tt.request)
		gateway := ""
		if s.GatewayIP != nil {
			gateway = s.GatewayIP.String()
		}
		if s.CIDR.String() != tt.cidr || gateway != tt.gateway {
			t.Errorf("%s: got %s by %q, want %s by %q", tt.request, s.CIDR, gateway, tt.cidr, tt.gateway)
		}
	}
}

func TestSubnetPoolRefusals(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	foreign := w.pool(w.admin, `"prefixes":["10.9.0.0/16"]`)
	p := w.pool(w.member, `"prefixes":["10.0.0.0/24"],"min_prefixlen":24,"max_prefixlen":28,"default_quota":64`)
	scope := must[*neutron.AddressScopeView](w, w.member, neutron.AddressScopes, `{"name":"a","ip_version":4}`)
	shared := must[*neutron.AddressScopeView](w, w.admin, neutron.AddressScopes, `{"name":"s","ip_version":4,"shared":true}`)
	six := must[*neutron.AddressScopeView](w, w.member, neutron.AddressScopes, `{"name":"a6","ip_version":6}`)
	scoped := w.pool(w.member, `"prefixes":["10.5.0.0/16"],"address_scope_id":"`+scope.ID+`"`)
	inShared := w.pool(w.member, `"prefixes":["10.6.0.0/16"],"address_scope_id":"`+shared.ID+`"`)
	w.pool(w.admin, `"prefixes":["10.7.0.0/16"],"is_default":true`)
	plain, pooled, inScope := w.network(`{}`).ID, w.network(`{}`).ID, w.network(`{}`).ID
	w.subnet(plain, `"ip_version":4,"cidr":"172.16.0.0/24"`)
	w.subnet(pooled, `"ip_version":4,"subnetpool_id":"`+p.ID+`","prefixlen":27`)
	w.subnet(inScope, `"ip_version":4,"subnetpool_id":"`+scoped.ID+`","prefixlen":24`)
	subnet := func(network, rest string) string {
		return `{"network_id":"` + network + `","ip_version":4,` + rest + `}`
	}
	from := func(id string) string { return `"subnetpool_id":"` + id + `"` }
	for _, tt := range []struct {
		r          neutron.Resource
		text, want string
	}{
		{neutron.SubnetPools, `{"name":"p","prefixes":[]}`, "EmptySubnetPoolPrefixList: Empty subnet pool prefix list."},
		{neutron.SubnetPools, `{"name":"p","prefixes":["10.0.0.0/8","fd00::/8"]}`, "PrefixVersionMismatch: Cannot mix IPv4 and IPv6 prefixes in a subnet pool."},
		{neutron.SubnetPools, `{"name":"p","prefixes":["10.0.0.0/8"],"max_prefixlen":33}`, "IllegalSubnetPoolPrefixBounds: Illegal prefix bounds: max_prefixlen=33, ip_version_max=32."},
		{neutron.SubnetPools, `{"name":"p","prefixes":["10.0.0.0/8"],"default_prefixlen":4}`, "IllegalSubnetPoolPrefixBounds: Illegal prefix bounds: default_prefixlen=4, min_prefixlen=8."},
		{neutron.SubnetPools, `{"name":"p","prefixes":["10.0.0.0/8"],"default_prefixlen":28,"max_prefixlen":24}`, "IllegalSubnetPoolPrefixBounds: Illegal prefix bounds: default_prefixlen=28, max_prefixlen=24."},
		{neutron.SubnetPools, `{"name":"p","prefixes":["10.5.1.0/24"],"address_scope_id":"` + scope.ID + `"}`, "AddressScopePrefixConflict: Failed to associate address scope: subnetpools within an address scope must have unique prefixes."},
		{neutron.SubnetPools, `{"name":"p","prefixes":["10.8.1.0/24"],"address_scope_id":"99999999-1111-1111-1111-111111111111"}`, "AddressScopeNotFound: Address scope 99999999-1111-1111-1111-111111111111 could not be found."},
		{neutron.SubnetPools, `{"name":"p","prefixes":["10.5.1.0/24"],"is_default":true}`, "PolicyNotAuthorized: (rule:create_subnetpool and rule:create_subnetpool:is_default) is disallowed by policy"},
		{neutron.Subnets, subnet(plain, from(foreign.ID)), "SubnetPoolNotFound: Subnet pool " + foreign.ID + " could not be found."},
		{neutron.Subnets, subnet(plain, from(p.ID)), "SubnetPoolQuotaExceeded: Per-tenant subnet pool prefix quota exceeded."},
		{neutron.Subnets, subnet(plain, from(p.ID)+`,"prefixlen":29`), "MaxPrefixSubnetAllocationError: Unable to allocate subnet with prefix length 29, maximum allowed prefix is 28."},
		{neutron.Subnets, subnet(plain, from(p.ID)+`,"prefixlen":12`), "MinPrefixSubnetAllocationError: Unable to allocate subnet with prefix length 12, minimum allowed prefix is 24."},
		{neutron.Subnets, subnet(plain, from(p.ID)+`,"prefixlen":28`), "NetworkSubnetPoolAffinityError: Subnets hosted on the same network must be allocated from the same subnet pool."},
		{neutron.Subnets, subnet(pooled, `"cidr":"172.16.0.0/24"`), "NetworkSubnetPoolAffinityError: Subnets hosted on the same network must be allocated from the same subnet pool."},
		{neutron.Subnets, subnet(inScope, from(p.ID)+`,"prefixlen":28`), "NetworkAddressScopeAffinityError: Subnets of the same address family hosted on the same network must all participate in the same address scope."},
		{neutron.Subnets, subnet(pooled, from(p.ID)+`,"cidr":"10.0.0.0/28"`), "SubnetAllocationError: Failed to allocate subnet: Cannot allocate requested subnet from the available set of prefixes."},
		{neutron.Subnets, subnet(pooled, from(p.ID)+`,"cidr":"10.0.0.0/28","prefixlen":28`), "BadRequest: Bad subnets request: cidr and prefixlen must not be supplied together."},
		{neutron.Subnets, subnet(pooled, from(p.ID)+`,"use_default_subnetpool":true`), "BadRequest: Bad subnets request: subnetpool_id and use_default_subnetpool cannot both be specified."},
		{neutron.Subnets, `{"network_id":"` + plain + `","ip_version":6,"use_default_subnetpool":true}`, "BadRequest: Bad subnets request: No default subnetpool found for IPv6."},
		{neutron.Subnets, `{"network_id":"` + plain + `","ip_version":6,` + from(p.ID) + `}`, "BadRequest: Bad subnets request: Cannot allocate IPv6 subnet from IPv4 subnet pool."},
		{neutron.Subnets, subnet(plain, from(p.ID)+`,"allocation_pools":[{"start":"10.0.0.2","end":"10.0.0.3"}]`), "BadRequest: Bad subnets request: allocation_pools allowed only for specific subnet requests."},
		{neutron.Subnets, `{"network_id":"` + plain + `","ip_version":6,"subnetpool_id":"prefix_delegation"}`, "BadRequest: Bad subnets request: this server has no prefix delegation; name a subnet pool or a cidr."},
	} {
		if _, err := w.create(w.member, tt.r, tt.text); problem(err) != tt.want {
			t.Errorf("create %s %s: %s; want %s", tt.r, tt.text, problem(err), tt.want)
		}
	}
	for _, tt := range []struct {
		r              neutron.Resource
		id, text, want string
	}{
		{neutron.SubnetPools, p.ID, `{"prefixes":["10.0.0.0/25"]}`, "IllegalSubnetPoolPrefixUpdate: Illegal update to prefixes: Existing prefixes must be a subset of the new prefixes."},
		{neutron.SubnetPools, p.ID, `{"address_scope_id":"` + six.ID + `"}`, "IllegalSubnetPoolIpVersionAssociationToAddressScope: Illegal subnetpool association: subnetpool " + p.ID + " cannot associate with address scope " + six.ID + " because subnetpool ip_version is not 6."},
		{neutron.SubnetPools, scoped.ID, `{"prefixes":["10.4.0.0/15","10.6.0.0/16"]}`, ""},
		{neutron.SubnetPools, scoped.ID, `{"address_scope_id":"` + shared.ID + `"}`, "AddressScopePrefixConflict: Failed to associate address scope: subnetpools within an address scope must have unique prefixes."},
		{neutron.SubnetPools, inShared.ID, `{"name":"x"}`, "IllegalSubnetPoolUpdate: Illegal subnetpool update : subnetpool " + inShared.ID + " cannot be updated when associated with shared address scope " + shared.ID + "."},
		{neutron.AddressScopes, scope.ID, `{"shared":true}`, "PolicyNotAuthorized: (rule:update_address_scope and rule:update_address_scope:shared) is disallowed by policy"},
	} {
		if _, err := w.change(w.member, tt.r, tt.id, tt.text); problem(err) != tt.want {
			t.Errorf("update %s %s: %s; want %s", tt.r, tt.text, problem(err), tt.want)
		}
	}
	if _, err := w.change(w.admin, neutron.AddressScopes, shared.ID, `{"shared":false}`); problem(err) !=
		"AddressScopeUpdateError: Unable to update address scope "+shared.ID+" : Shared address scope can't be unshared." {
		t.Error(problem(err))
	}
	if _, err := w.change(w.admin, neutron.SubnetPools, p.ID, `{"is_default":true}`); problem(err) !=
		"InvalidInput: Invalid input for operation: A default subnetpool for this IP family has already been set. Only one default may exist per IP family." {
		t.Error(problem(err))
	}
	if err := w.remove(w.member, neutron.SubnetPools, p.ID); problem(err) != "SubnetPoolDeleteError: Unable to delete subnet pool: Subnet pool has existing allocations." {
		t.Error(problem(err))
	}
	if err := w.remove(w.member, neutron.AddressScopes, scope.ID); problem(err) !=
		"AddressScopeInUse: Unable to complete operation on address scope "+scope.ID+". There are one or more subnet pools in use on the address scope." {
		t.Error(problem(err))
	}
	if _, err := w.RemovePrefixes(context.Background(), w.member, p.ID, prefixes("10.0.0.0/28")); problem(err) !=
		"IllegalSubnetPoolPrefixUpdate: Illegal update to prefixes: One or more the prefixes to be removed is in use by a subnet." {
		t.Error(problem(err))
	}
	if _, err := w.AddPrefixes(context.Background(), w.other, p.ID, prefixes("10.0.0.0/28")); problem(err) != "SubnetPoolNotFound: Subnet pool "+p.ID+" could not be found." {
		t.Error(problem(err))
	}
}

// TestSubnetPoolAnySequence changes a pool and makes and deletes subnets in any order: what is
// free are the prefixes without the subnets', which are apart; and deleting all leaves the store as
// it was.
func TestSubnetPoolAnySequence(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := inMemory(t)
		n := w.network(`{}`).ID
		before := w.dump(schema.Networks.Key(n))
		p := w.pool(w.member, `"prefixes":["10.0.0.0/26"],"min_prefixlen":24`)
		rest := func(bits int) netip.Prefix {
			at := byte(rapid.IntRange(0, 255).Draw(rt, "at"))
			return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, at}), bits).Masked()
		}
		bits := rapid.IntRange(25, 31)
		var made []*neutron.SubnetView
		create := func(rt *rapid.T, request string) {
			views, err := w.create(w.member, neutron.Subnets, `{"network_id":"`+n+`","ip_version":4,"enable_dhcp":false,"subnetpool_id":"`+p.ID+`",`+request+`}`)
			if err == nil {
				made = append(made, views[0].(*neutron.SubnetView))
			} else if problem(err)[:21] != "SubnetAllocationError" {
				rt.Fatal(err)
			}
		}
		change := func(f func(context.Context, neutron.Caller, string, []netip.Prefix) ([]netip.Prefix, error)) func(*rapid.T) {
			return func(rt *rapid.T) {
				left, err := f(context.Background(), w.member, p.ID, []netip.Prefix{rest(bits.Draw(rt, "bits"))})
				if err == nil {
					p.SubnetPool = &neutron.SubnetPool{Standard: p.Standard, Prefixes: left}
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"":      func(rt *rapid.T) { w.checkPool(rt, p.Prefixes, made) },
			"any":   func(rt *rapid.T) { create(rt, fmt.Sprintf(`"prefixlen":%d`, bits.Draw(rt, "bits"))) },
			"named": func(rt *rapid.T) { create(rt, fmt.Sprintf(`"cidr":"%s"`, rest(bits.Draw(rt, "bits")))) },
			"delete": func(rt *rapid.T) {
				if len(made) == 0 {
					return
				}
				i := rapid.IntRange(0, len(made)-1).Draw(rt, "subnet")
				if err := w.remove(w.member, neutron.Subnets, made[i].ID); err != nil {
					rt.Fatal(err)
				}
				made = slices.Delete(made, i, i+1)
			},
			"add":    change(w.AddPrefixes),
			"remove": change(w.RemovePrefixes),
		})
		for _, s := range made {
			if err := w.remove(w.member, neutron.Subnets, s.ID); err != nil {
				rt.Fatal(err)
			}
		}
		if err := w.remove(w.member, neutron.SubnetPools, p.ID); err != nil {
			rt.Fatal(err)
		}
		if d := cmp.Diff(before, w.dump(schema.Networks.Key(n))); d != "" {
			rt.Fatalf("the store is not as it was: -before +after\n%s", d)
		}
	})
}

// checkPool holds the only pool's free ranges against its prefixes and its subnets.
func (w *world) checkPool(t *rapid.T, has []netip.Prefix, subnets []*neutron.SubnetView) {
	snap, err := w.db.View(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var used, free []netip.Prefix
	for _, s := range subnets {
		for _, other := range used {
			if s.CIDR.Overlaps(other) {
				t.Fatalf("subnets %s and %s overlap", s.CIDR, other)
			}
		}
		if !slices.ContainsFunc(has, func(p netip.Prefix) bool { return addresses.Within(s.CIDR, p) }) {
			t.Fatalf("subnet %s is not of the pool's %v", s.CIDR, has)
		}
		used = append(used, s.CIDR)
	}
	for f := range schema.FreeRanges.All(snap) {
		free = append(free, f.Range)
	}
	if want := addresses.Without(has, used); !slices.Equal(free, want) {
		t.Fatalf("free %v, want %v", free, want)
	}
}

// TestSubnetPoolAtOnce has two servers take all of a pool at once, for networks of several
// projects: no request fails, and no range is given twice.
func TestSubnetPoolAtOnce(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	one, two := open(t, st, control.Options{}), open(t, st, control.Options{})
	p := one.pool(one.admin, `"prefixes":["10.0.0.0/24"],"shared":true,"default_quota":128,"default_prefixlen":28`)
	var wg sync.WaitGroup
	ranges := make([]string, 16)
	for i := range ranges {
		w, c := []*world{one, two}[i%2], []neutron.Caller{one.member, one.other}[i/2%2]
		n := must[*neutron.NetworkView](w, c, neutron.Networks, `{}`).ID
		wg.Go(func() {
			views, err := w.create(c, neutron.Subnets, `{"network_id":"`+n+`","ip_version":4,"subnetpool_id":"`+p.ID+`"}`)
			if err != nil {
				t.Error(err)
				return
			}
			ranges[i] = views[0].(*neutron.SubnetView).CIDR.String()
		})
	}
	wg.Wait()
	slices.Sort(ranges)
	if got := slices.Compact(ranges); len(got) != 16 {
		t.Errorf("16 subnets have the ranges %v", got)
	}
	n := one.network(`{}`).ID
	_, err := one.create(one.member, neutron.Subnets, `{"network_id":"`+n+`","ip_version":4,"subnetpool_id":"`+p.ID+`"}`)
	if got := problem(err); got != "SubnetPoolQuotaExceeded: Per-tenant subnet pool prefix quota exceeded." {
		t.Errorf("a subnet beyond the project's share: %s", got)
	}
}

// TestSharedSubnetPool shares pools and address scopes by policies.
func TestSharedSubnetPool(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	scope := must[*neutron.AddressScopeView](w, w.member, neutron.AddressScopes, `{"name":"a","ip_version":4}`)
	p := w.pool(w.member, `"prefixes":["10.0.0.0/16"],"default_prefixlen":24,"address_scope_id":"`+scope.ID+`"`)
	share := func(typ neutron.Resource, id, with string) (string, string) {
		views, err := w.create(w.member, neutron.RBACPolicies,
			`{"object_type":"`+typ.Name()+`","object_id":"`+id+`","action":"access_as_shared","target_tenant":"`+with+`"}`)
		if err != nil {
			return "", problem(err)
		}
		return views[0].(*neutron.RBACPolicy).ID, ""
	}
	n := must[*neutron.NetworkView](w, w.other, neutron.Networks, `{}`)
	request := `{"network_id":"` + n.ID + `","ip_version":4,"subnetpool_id":"` + p.ID + `"}`
	if _, err := w.create(w.other, neutron.Subnets, request); problem(err) != "SubnetPoolNotFound: Subnet pool "+p.ID+" could not be found." {
		t.Error("before it is shared:", problem(err))
	}
	if _, got := share(neutron.SubnetPools, p.ID, "other"); got != "RbacPolicyInitError: Failed to create RBAC policy on object "+p.ID+
		" because target project doesn't have access to associated address scope.." {
		t.Error("without the scope:", got)
	}
	if _, got := share(neutron.AddressScopes, scope.ID, "other"); got != "" {
		t.Fatal(got)
	}
	policy, got := share(neutron.SubnetPools, p.ID, "other")
	if got != "" {
		t.Fatal(got)
	}
	s := must[*neutron.SubnetView](w, w.other, neutron.Subnets, request)
	pools, err := all(w.SubnetPools().List(context.Background(), w.other, neutron.Query{OnlyShared: true}))
	if err != nil || len(pools) != 1 || !pools[0].Shared || pools[0].ID != p.ID {
		t.Errorf("the other project lists %v, %v", pools, err)
	}
	views, err := all(w.Networks().List(context.Background(), w.other, neutron.Query{}))
	if err != nil || len(views) != 1 || views[0].AddressScopes != (neutron.AddressScopeIDs{IPv4: scope.ID}) {
		t.Errorf("the network shows %v, %v", views, err)
	}
	if err := w.remove(w.member, neutron.RBACPolicies, policy); problem(err)[:15] != "RbacPolicyInUse" {
		t.Error("while it is used:", problem(err))
	}
	if err := w.remove(w.other, neutron.Subnets, s.ID); err != nil {
		t.Fatal(err)
	}
	if err := w.remove(w.member, neutron.RBACPolicies, policy); err != nil {
		t.Error(err)
	}
}

// BenchmarkSubnetFromPool takes one more range of a pool that has given many.
func BenchmarkSubnetFromPool(b *testing.B) {
	for _, given := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("given=%d", given), func(b *testing.B) {
			w := open(b, store.NewMemory(), control.Options{Quotas: map[string]int{"network": -1, "subnet": -1}})
			p := w.pool(w.member, `"prefixes":["10.0.0.0/8"],"default_prefixlen":26`)
			request := func() string {
				return `{"network_id":"` + w.network(`{}`).ID + `","ip_version":4,"subnetpool_id":"` + p.ID + `"}`
			}
			for range given {
				must[*neutron.SubnetView](w, w.member, neutron.Subnets, request())
			}
			for b.Loop() {
				b.StopTimer()
				text := request()
				b.StartTimer()
				must[*neutron.SubnetView](w, w.member, neutron.Subnets, text)
			}
		})
	}
}
