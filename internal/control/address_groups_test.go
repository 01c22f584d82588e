package control_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"heddle/internal/control"
	"heddle/internal/neutron"
	"heddle/internal/store"
	"heddle/internal/store/schema"
)

func (w *world) addressGroup(addresses ...string) *neutron.AddressGroupView {
	w.t.Helper()
	return must[*neutron.AddressGroupView](w, w.member, neutron.AddressGroups, `{"name":"ag","addresses":`+quoted(addresses)+`}`)
}

func prefixesOf(texts ...string) []netip.Prefix {
	list := make([]netip.Prefix, len(texts))
	for i, s := range texts {
		list[i] = netip.MustParsePrefix(s)
	}
	return list
}

func (w *world) membersOf(id string) []netip.Prefix {
	w.t.Helper()
	g, err := w.AddressGroups().Show(context.Background(), w.member, id)
	if err != nil {
		w.t.Fatal(err)
	}
	return g.Addresses
}

// contributed returns what the bundles contribute to an address group.
func (w *world) contributed(t fataler, id string) []netip.Prefix {
	snap, err := w.db.View(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	var all []netip.Prefix
	for b := range schema.Bundles.All(snap) {
		for _, s := range b.Bundle.MemberSets {
			if s.GroupID == id {
				all = append(all, s.Prefixes...)
			}
		}
	}
	slices.SortFunc(all, neutron.ComparePrefixes)
	return all
}

func TestAddressGroups(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	before := w.dump()
	g := w.addressGroup("10.10.10.3/32", "192.168.0.10/24", "2001:db8::f00/64", "192.168.0.11/24")
	want := prefixesOf("10.10.10.3/32", "192.168.0.0/24", "2001:db8::/64")
	if !slices.Equal(g.Addresses, want) || g.Name != "ag" || g.ProjectID != w.member.ProjectID {
		t.Fatalf("made %+v with %v", g.AddressGroup, g.Addresses)
	}
	added, err := w.AddAddresses(t.Context(), w.member, g.ID, prefixesOf("10.20.30.40/32"))
	if err != nil || len(added.Addresses) != 4 || added.RevisionNumber <= g.RevisionNumber {
		t.Errorf("added: %+v, %v", added, err)
	}
	_, err = w.AddAddresses(t.Context(), w.member, g.ID, prefixesOf("10.10.10.3/32", "10.0.0.0/8", "10.20.30.40/32"))
	w.expect(err, "AddressesAlreadyExist: Addresses ['10.10.10.3/32', '10.20.30.40/32'] already exist in the address group "+g.ID+".")
	_, err = w.RemoveAddresses(t.Context(), w.member, g.ID, prefixesOf("10.10.10.3/32", "10.0.0.0/8"))
	w.expect(err, "AddressesNotFound: Addresses ['10.0.0.0/8'] not found in the address group "+g.ID+".")
	if _, err = w.RemoveAddresses(t.Context(), w.member, g.ID, prefixesOf("192.168.0.0/24")); err != nil {
		t.Fatal(err)
	}
	if got, want := w.membersOf(g.ID), prefixesOf("10.10.10.3/32", "10.20.30.40/32", "2001:db8::/64"); !slices.Equal(got, want) || !slices.Equal(w.contributed(t, g.ID), want) {
		t.Errorf("members %v, in the topology %v, want %v", got, w.contributed(t, g.ID), want)
	}
	if v, err := w.change(w.member, neutron.AddressGroups, g.ID, `{"description":"new"}`); err != nil || len(v.(*neutron.AddressGroupView).Addresses) != 3 {
		t.Errorf("described %+v, %v", v, err)
	}
	w.expect(w.remove(w.other, neutron.AddressGroups, g.ID), "AddressGroupNotFound: Address group "+g.ID+" could not be found.")
	if err := w.remove(w.member, neutron.AddressGroups, g.ID); err != nil {
		t.Fatal(err)
	}
	if after := w.dump(); !slices.Equal(after, before) {
		t.Errorf("left in the store: %v", after)
	}
}

func TestAddressGroupRefusals(t *testing.T) {
	t.Parallel()
	w := inMemory(t)
	for addresses, want := range map[string]string{
		`["10.20.30.40"]`:             "HTTPBadRequest: Invalid input for addresses. Reason: '10.20.30.40' isn't a recognized IP subnet cidr, '10.20.30.40/32' is recommended.",
		`["nonsense"]`:                "HTTPBadRequest: Invalid input for addresses. Reason: 'nonsense' is not a valid IP subnet.",
		`"10.0.0.0/8"`:                "HTTPBadRequest: Invalid input for addresses. Reason: '10.0.0.0/8' is not a list.",
		`["10.0.0.0/8","10.0.0.0/8"]`: "HTTPBadRequest: Invalid input for addresses. Reason: Duplicate items in the list: '10.0.0.0/8'.",
		`[5]`:                         "HTTPBadRequest: Invalid input for addresses. Reason: '5' is not a valid IP subnet.",
	} {
		_, err := w.create(w.member, neutron.AddressGroups, `{"addresses":`+addresses+`}`)
		w.expect(err, want)
	}
	g := w.addressGroup()
	_, err := w.change(w.member, neutron.AddressGroups, g.ID, `{"addresses":[]}`)
	w.expect(err, "HTTPBadRequest: Cannot update read-only attribute addresses")
	_, err = w.AddAddresses(t.Context(), w.other, g.ID, prefixesOf("10.0.0.0/8"))
	w.expect(err, "AddressGroupNotFound: Address group "+g.ID+" could not be found.")

	sg := must[*neutron.SecurityGroupView](w, w.member, neutron.SecurityGroups, `{"name":"g"}`)
	rule := func(c neutron.Caller, sg, rest string) error {
		_, err := w.create(c, neutron.SecurityGroupRules, `{"security_group_id":"`+sg+`","direction":"ingress","remote_address_group_id":"`+g.ID+`"`+rest+`}`)
		return err
	}
	if err := rule(w.member, sg.ID, ""); err != nil {
		t.Fatal(err)
	}
	again := problem(rule(w.member, sg.ID, ""))
	if !strings.HasPrefix(again, "SecurityGroupRuleExists: ") {
		t.Errorf("the same rule again: %s", again)
	}
	for _, other := range []string{`,"remote_ip_prefix":"10.0.0.0/8"`, `,"remote_group_id":"` + sg.ID + `"`} {
		w.expect(rule(w.member, sg.ID, other),
			"SecurityGroupMultipleRemoteEntites: Only one of remote_ip_prefix or remote_group_id or remote_address_group_id may be provided.")
	}
	foreign := must[*neutron.SecurityGroupView](w, w.other, neutron.SecurityGroups, `{"name":"f"}`)
	w.expect(rule(w.other, foreign.ID, ""), "AddressGroupNotFound: Address group "+g.ID+" could not be found.")
	w.expect(w.remove(w.member, neutron.AddressGroups, g.ID), "AddressGroupInUse: Address group "+g.ID+" is in use on one or more security group rules.")
	found, err := all(w.SecurityGroupRules().List(t.Context(), w.member, neutron.Query{RemoteAddressGroupIDs: []string{g.ID}}))
	if err != nil || len(found) != 1 {
		t.Fatalf("rules that name the group: %v, %v", found, err)
	}
	condition := w.bundle("security-group", sg.ID).Chains[1].Rules[0].Condition
	if condition.IPAddrGroupIDSrc != g.ID {
		t.Errorf("condition in the topology: %+v", condition)
	}
	if err := w.remove(w.member, neutron.SecurityGroupRules, found[0].ID); err != nil {
		t.Error(err)
	}
	if err := w.remove(w.member, neutron.AddressGroups, g.ID); err != nil {
		t.Error(err)
	}
}

// TestLargeAddressGroup: ten thousand members come and go by one commit, and one more costs what it
// is.
func TestLargeAddressGroup(t *testing.T) {
	t.Parallel()
	st := &countingStore{Store: store.NewMemory()}
	w := open(t, st, control.Options{})
	addresses := make([]string, 10_000)
	for i := range addresses {
		addresses[i] = fmt.Sprintf("10.%d.%d.1/32", i/250, i%250)
	}
	g := w.addressGroup(addresses...)
	if st.commits != 1 || len(g.Addresses) != len(addresses) {
		t.Errorf("%d commits for %d addresses", st.commits, len(g.Addresses))
	}
	st.reset()
	if _, err := w.AddAddresses(t.Context(), w.member, g.ID, prefixesOf("192.0.2.1/32")); err != nil {
		t.Fatal(err)
	}
	if st.operations > 8 || st.bytes > 16<<10 {
		t.Errorf("one more address: %d operations of %d bytes", st.operations, st.bytes)
	}
	many := make([]netip.Prefix, neutron.MaxAddresses-10_000)
	for i := range many {
		many[i] = netip.PrefixFrom(netip.AddrFrom4([4]byte{172, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
	}
	_, err := w.AddAddresses(t.Context(), w.member, g.ID, many)
	w.expect(err, "InvalidInput: Invalid input for operation: address group "+g.ID+" would have 100001 addresses; it may have 100000.")
	st.reset()
	if err := w.remove(w.member, neutron.AddressGroups, g.ID); err != nil || st.commits != 1 {
		t.Errorf("deleted in %d commits: %v", st.commits, err)
	}
}

// countingStore counts what is committed.
type countingStore struct {
	store.Store
	commits, operations, bytes int
}

func (s *countingStore) reset() { s.commits, s.operations, s.bytes = 0, 0, 0 }

func (s *countingStore) Commit(ctx context.Context, conds []store.Cond, ops []store.Op) (int64, error) {
	s.commits++
	s.operations += len(ops)
	for _, op := range ops {
		s.bytes += len(op.Value)
	}
	return s.Store.Commit(ctx, conds, ops)
}

// TestAddressGroupIsASet: whatever is added and removed, the group and the topology have what a set
// would, and each refusal changes nothing.
func TestAddressGroupIsASet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := inMemory(t)
		id := w.addressGroup().ID
		set := map[netip.Prefix]bool{}
		some := rapid.Custom(func(rt *rapid.T) netip.Prefix {
			if rapid.Bool().Draw(rt, "v4") {
				a := netip.AddrFrom4([4]byte{10, 0, rapid.Byte().Draw(rt, "c") % 4, rapid.Byte().Draw(rt, "d")})
				return netip.PrefixFrom(a, rapid.IntRange(20, 32).Draw(rt, "bits")).Masked()
			}
			a := netip.AddrFrom16([16]byte{0xfd, 15: rapid.Byte().Draw(rt, "last")})
			return netip.PrefixFrom(a, rapid.IntRange(118, 128).Draw(rt, "bits")).Masked()
		})
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			list := rapid.SliceOfNDistinct(some, 1, 20, rapid.ID[netip.Prefix]).Draw(rt, "addresses")
			add := rapid.Bool().Draw(rt, "add")
			change, fits := w.RemoveAddresses, true
			if add {
				change = w.AddAddresses
			}
			for _, p := range list {
				fits = fits && set[p] != add
			}
			if _, err := change(t.Context(), w.member, id, list); (err == nil) != fits {
				rt.Fatalf("add %v %v to %v: %v", add, list, set, err)
			}
			for _, p := range list {
				switch {
				case fits && add:
					set[p] = true
				case fits:
					delete(set, p)
				}
			}
			want := slices.SortedFunc(maps.Keys(set), neutron.ComparePrefixes)
			if got := w.membersOf(id); !slices.Equal(got, want) {
				rt.Fatalf("members %v, want %v", got, want)
			}
			if got := w.contributed(rt, id); !slices.Equal(got, want) {
				rt.Fatalf("in the topology %v, want %v", got, want)
			}
		}
		w.checkDerived(rt)
		w.verifyStore()
	})
}
