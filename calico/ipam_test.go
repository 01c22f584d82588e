package calico

import (
	"errors"
	"strings"
	"testing"
)

func TestPool(t *testing.T) {
	form := func(cidr, rest string) string {
		return `{"cidr":"` + cidr + `",` + rest + `}`
	}
	const defaults = `"masquerade":false,"ipam":true,"disabled":false`
	checkValues(t, KindIPPool, []valueCase{
		{"least", `{"cidr":"10.0.0.0/16"}`, form("10.0.0.0/16", defaults), ""},
		{"all", `{"disabled":true,"ipam":false,"masquerade":true,"ipip_mode":"cross-subnet","ipip":"tunl0","cidr":"10.0.0.0/16"}`,
			form("10.0.0.0/16", `"ipip":"tunl0","ipip_mode":"cross-subnet","masquerade":true,"ipam":false,"disabled":true`), ""},
		{"empty ipip", `{"cidr":"10.0.0.0/16","ipip":"","ipip_mode":""}`, form("10.0.0.0/16", defaults), ""},
		{"null members", `{"cidr":"10.0.0.0/16","ipip":null,"ipam":null,"masquerade":null}`, form("10.0.0.0/16", defaults), ""},
		{"IPv6", `{"cidr":"FD80:24E2:F998:72D6::/64"}`, form("fd80:24e2:f998:72d6::/64", defaults), ""},
		{"VXLAN", `{"cidr":"10.0.0.0/16","ipip":"vxlan.calico"}`, form("10.0.0.0/16", `"ipip":"vxlan.calico",`+defaults), ""},
		{"always", `{"cidr":"10.0.0.0/16","ipip":"tunl0","ipip_mode":"always"}`, form("10.0.0.0/16", `"ipip":"tunl0","ipip_mode":"always",`+defaults), ""},
		{"one block", `{"cidr":"10.0.0.0/26"}`, form("10.0.0.0/26", defaults), ""},
		{"one IPv6 block", `{"cidr":"fd80::/122"}`, form("fd80::/122", defaults), ""},
		{"less than a block", `{"cidr":"10.0.0.0/27"}`, "", `cidr: "10.0.0.0/27": want at least one block of 64 addresses, /26 or shorter`},
		{"less than an IPv6 block", `{"cidr":"fd80::/123"}`, "", `cidr: "fd80::/123"`},
		{"less than a block, not for IPAM", `{"cidr":"10.0.0.1/32","ipam":false}`, form("10.0.0.1/32", `"masquerade":false,"ipam":false,"disabled":false`), ""},
		{"less than a block, disabled", `{"cidr":"10.0.0.0/27","disabled":true}`, form("10.0.0.0/27", `"masquerade":false,"ipam":true,"disabled":true`), ""},
		{"cidr missing", `{}`, "", "cidr: is missing"},
		{"not masked", `{"cidr":"10.0.0.1/16"}`, "", `cidr: "10.0.0.1/16": has bits beyond its length; want 10.0.0.0/16`},
		{"no length", `{"cidr":"10.0.0.0"}`, "", `cidr: "10.0.0.0": want a CIDR`},
		{"link-local", `{"cidr":"169.254.0.0/17"}`, "", `cidr: "169.254.0.0/17": want no link-local addresses`},
		{"around link-local", `{"cidr":"169.0.0.0/8"}`, "", `want no link-local addresses`},
		{"IPv6 link-local", `{"cidr":"fe80::/64"}`, "", `want no link-local addresses`},
		{"ipip in IPv6", `{"cidr":"fd80::/64","ipip":"tunl0"}`, "", `ipip: "tunl0": want none in an IPv6 pool`},
		{"ipip no device", `{"cidr":"10.0.0.0/16","ipip":"a/b"}`, "", `ipip: "a/b": want the name of an interface`},
		{"ipip true", `{"cidr":"10.0.0.0/16","ipip":true}`, "", `ipip: true: want a string`},
		{"ipip_mode", `{"cidr":"10.0.0.0/16","ipip_mode":"sometimes"}`, "", `ipip_mode: "sometimes": want always, cross-subnet or none`},
		{"masquerade as text", `{"cidr":"10.0.0.0/16","masquerade":"true"}`, "", `masquerade: "true": want true or false`},
		{"unknown member", `{"cidr":"10.0.0.0/16","vxlan":{}}`, form("10.0.0.0/16", defaults+`,"vxlan":{}`), ""},
	})
}

// allocations returns a list of 64 entries that begins with those given.
func allocations(first ...string) string {
	list := make([]string, BlockSize)
	for i := range list {
		list[i] = "null"
		if i < len(first) {
			list[i] = first[i]
		}
	}
	return "[" + strings.Join(list, ",") + "]"
}

// ordinals returns a list of numbers from first to last.
func ordinals(first, last int) string {
	var b strings.Builder
	w := writer{text: []byte("[")}
	for i := first; i <= last; i++ {
		w.comma()
		w.number(i)
	}
	b.Write(append(w.text, ']'))
	return b.String()
}

func TestBlock(t *testing.T) {
	form := func(affinity, allocations, unallocated, attributes, strict string) string {
		return `{"cidr":"10.0.0.0/26","affinity":` + affinity + `,"allocations":` + allocations + `,"unallocated":` + unallocated +
			`,"attributes":[` + attributes + `],"strictAffinity":` + strict + `}`
	}
	in := func(members string) string { return `{"cidr":"10.0.0.0/26",` + members + `}` }
	free := `"allocations":` + allocations() + `,"unallocated":` + ordinals(0, 63) + `,"attributes":[]`
	checkValues(t, KindIPAMBlock, []valueCase{
		{"canonical", form(`"host:h"`, allocations("0", "0", "1"), ordinals(3, 63), `{"handle_id":"a","secondary":null},{"handle_id":null,"secondary":{"x":"y"}}`, "true"), "", ""},
		{"affinity empty", in(`"affinity":"",` + free), form("null", allocations(), ordinals(0, 63), "", "false"), ""},
		{"affinity absent", in(free), form("null", allocations(), ordinals(0, 63), "", "false"), ""},
		{"affinity by the deprecated member", in(`"hostAffinity":"h",` + free), form(`"host:h"`, allocations(), ordinals(0, 63), "", "false"), ""},
		{"affinity by the deprecated member beside null", in(`"affinity":null,"hostAffinity":"h",` + free), form(`"host:h"`, allocations(), ordinals(0, 63), "", "false"), ""},
		{"both affinities", in(`"hostAffinity":"g","affinity":"host:h",` + free), form(`"host:h"`, allocations(), ordinals(0, 63), "", "false"), ""},
		{"another affinity", in(`"affinity":"rack:1",` + free), "", `affinity: "rack:1": want host: and the name of a host`},
		{"affinity of no host", in(`"affinity":"host:",` + free), "", `affinity: "host:"`},
		{"Python's strict_affinity", in(`"strict_affinity":true,` + free), form("null", allocations(), ordinals(0, 63), "", "true"), ""},
		{"both spellings", in(`"strictAffinity":false,"strict_affinity":true,` + free), form("null", allocations(), ordinals(0, 63), "", "false"), ""},
		{"unallocated rebuilt", in(`"allocations":` + allocations("null", "0", "null") + `,"attributes":[{"handle_id":"a"}]`),
			form("null", allocations("null", "0"), `[0,`+ordinals(2, 63)[1:], `{"handle_id":"a","secondary":null}`, "false"), ""},
		{"order of unallocated kept", in(`"allocations":` + allocations() + `,"unallocated":[63,` + ordinals(0, 62)[1:]), form("null", allocations(), `[63,`+ordinals(0, 62)[1:], "", "false"), ""},
		{"primary", in(`"allocations":` + allocations("0") + `,"attributes":[{"primary":"a","secondary":{"k":"v"},"later":[1, 2]}]`),
			form("null", allocations("0"), ordinals(1, 63), `{"handle_id":"a","secondary":{"k":"v"},"later":[1,2]}`, "false"), ""},
		{"handle_id over primary", in(`"allocations":` + allocations("0") + `,"attributes":[{"primary":"a","handle_id":"b","secondary":{}}]`),
			form("null", allocations("0"), ordinals(1, 63), `{"handle_id":"b","secondary":{}}`, "false"), ""},
		{"unknown member", in(`"sequenceNumber":5,` + free), strings.Replace(form("null", allocations(), ordinals(0, 63), "", "false"), `false}`, `false,"sequenceNumber":5}`, 1), ""},
		{"not masked", `{"cidr":"10.0.0.1/26"}`, "", `cidr: "10.0.0.1/26": has bits beyond`},
		{"cidr missing", `{` + free + `}`, "", `cidr: is missing`},
		{"negative index", in(`"allocations":[-1]`), "", `allocations[0]: -1: want a number from 0`},
		{"index no number", in(`"allocations":["0"]`), "", `allocations[0]: "0": want a number from 0`},
		{"seed's nil", in(`"allocations":[nil]`), "", `allocations[0]: not JSON`},
		{"unallocated no number", in(`"unallocated":[null]`), "", `unallocated[0]: null: want a number`},
		{"attribute no object", in(`"attributes":["a"]`), "", `attributes[0]: "a": want an object`},
		{"handle no string", in(`"attributes":[{"handle_id":5}]`), "", `attributes[0].handle_id: 5: want a string`},
		{"secondary no strings", in(`"attributes":[{"secondary":{"a":1}}]`), "", `attributes[0].secondary.a: 1: want a string`},
	})
}

// TestBlockInvariants shows that a broken block is read and written as it is, and reported.
func TestBlockInvariants(t *testing.T) {
	const a, b = `{"handle_id":"a","secondary":{"k":"v"}}`, `{"handle_id":"b"}`
	for _, c := range []struct{ name, in, want string }{
		{"sound", `{"cidr":"10.0.0.0/26","allocations":` + allocations("0", "1", "0") + `,"unallocated":` + ordinals(3, 63) + `,"attributes":[` + a + `,` + b + `]}`, ""},
		{"sound IPv6", `{"cidr":"fd80::40/122","allocations":` + allocations() + `}`, ""},
		{"size", `{"cidr":"10.0.0.0/24","allocations":` + allocations() + `}`, `cidr: "10.0.0.0/24": want a block of 64 addresses, a /26`},
		{"IPv6 size", `{"cidr":"fd80::/120","allocations":` + allocations() + `}`, `cidr: "fd80::/120": want a block of 64 addresses, a /122`},
		{"entries", `{"cidr":"10.0.0.0/26","allocations":[null]}`, `allocations: want 64 entries, not 1`},
		{"index", `{"cidr":"10.0.0.0/26","allocations":` + allocations("0", "2") + `,"attributes":[` + a + `,` + b + `]}`, `allocations[1]: 2: want the index of one of 2 attributes`},
		{"unused attribute", `{"cidr":"10.0.0.0/26","allocations":` + allocations("0") + `,"attributes":[` + a + `,` + b + `]}`, `attributes[1]: no allocation refers to it`},
		{"taken in unallocated", `{"cidr":"10.0.0.0/26","allocations":` + allocations("0") + `,"unallocated":` + ordinals(0, 63) + `,"attributes":[` + a + `]}`, `unallocated[0]: 0: allocations[0] is taken`},
		{"free not in unallocated", `{"cidr":"10.0.0.0/26","allocations":` + allocations() + `,"unallocated":` + ordinals(0, 62) + `}`, `unallocated: ordinal 63 is missing`},
		{"twice in unallocated", `{"cidr":"10.0.0.0/26","allocations":` + allocations() + `,"unallocated":[5,` + ordinals(0, 63)[1:] + `}`, `unallocated[6]: 5: is there twice`},
		{"beyond in unallocated", `{"cidr":"10.0.0.0/26","allocations":` + allocations() + `,"unallocated":[64]}`, `unallocated[0]: 64: want an ordinal below 64`},
		{"twins", `{"cidr":"10.0.0.0/26","allocations":` + allocations("0", "1") + `,"attributes":[` + a + `,` + a + `]}`, `attributes[1]: has the handle and the secondary of attributes[0]`},
		{"no twins", `{"cidr":"10.0.0.0/26","allocations":` + allocations("0", "1", "2") + `,"attributes":[{"handle_id":"a"},{"handle_id":null},{"handle_id":"a","secondary":{"k":"v"}}]}`, ""},
	} {
		object, err := DecodeAs(KindIPAMBlock, []byte(c.in))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		err = object.(*Block).Check()
		var refused *Error
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (!errors.As(err, &refused) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v; want one that says %q", c.name, err, c.want)
		}
		text, err := EncodeAs(KindIPAMBlock, object)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if again, err := DecodeAs(KindIPAMBlock, text); err != nil || (again.(*Block).Check() == nil) != (c.want == "") {
			t.Errorf("%s: a block is repaired, or broken, by writing it: %s, %v", c.name, text, err)
		}
	}
}

func TestHandle(t *testing.T) {
	checkValues(t, KindIPAMHandle, []valueCase{
		{"all", `{"id":"x","block":{"2001:ABCD:DEF0::/122":3,"192.168.10.0/26":4}}`, `{"id":"x","block":{"192.168.10.0/26":4,"2001:abcd:def0::/122":3}}`, ""},
		{"without id", `{"block":{"192.168.10.0/26":4}}`, "", ""},
		{"of the seed's blocks", `{"id":"x","block":{"192.168.10.0/24":4}}`, "", ""},
		{"unknown member", `{"id":"x","block":{},"deleted":false}`, "", ""},
		{"count", `{"block":{"192.168.10.0/26":0}}`, "", `block["192.168.10.0/26"]: 0: want how many addresses`},
		{"count as text", `{"block":{"192.168.10.0/26":"4"}}`, "", `block["192.168.10.0/26"]: "4": want how many addresses`},
		{"no CIDR", `{"block":{"192.168.10.0":4}}`, "", `want a block's CIDR as the name`},
		{"not masked", `{"block":{"192.168.10.1/26":4}}`, "", `want a block's CIDR as the name`},
		{"twice", `{"block":{"fd80::/122":4,"FD80::/122":4}}`, "", `is there twice, in another spelling`},
		{"id no string", `{"id":4}`, "", `id: 4: want a string`},
	})
	object, err := Decode(HandleKey{"x"}, []byte(`{"block":{"192.168.10.0/26":4}}`))
	if err != nil || object.(*Handle).ID != "x" {
		t.Errorf("a handle without id reads as %+v, %v; want the id of its key", object, err)
	}
	if text, err := Encode(HandleKey{"y"}, &Handle{}); err != nil || string(text) != `{"id":"y","block":{}}` {
		t.Errorf("a handle without ID is written as %s, %v; want the id of its key", text, err)
	}
}

func TestIPAMConfig(t *testing.T) {
	checkValues(t, KindIPAMConfig, []valueCase{
		{"both", `{"strict_affinity":true,"auto_allocate_blocks":true}`, "", ""},
		{"absent reads as false", `{"auto_allocate_blocks":true}`, `{"strict_affinity":false,"auto_allocate_blocks":true}`, ""},
		{"absent reads as false here too", `{"strict_affinity":true}`, `{"strict_affinity":true,"auto_allocate_blocks":false}`, ""},
		{"neither", `{}`, "", `auto_allocate_blocks: false: want it true, or strict_affinity true`},
		{"type", `{"strict_affinity":1}`, "", `strict_affinity: 1: want true or false`},
		{"unknown member", `{"x":1,"strict_affinity":true}`, `{"strict_affinity":true,"auto_allocate_blocks":false,"x":1}`, ""},
	})
	checkValues(t, KindIPAMBlockAffinity, []valueCase{
		{"Go's", `{}`, "", ""}, {"Python's", ``, `{}`, ""}, {"any", `pending`, `{}`, ""},
	})
	if _, err := DecodeAs(KindIPAMHost, []byte("x")); err == nil {
		t.Error("a value of an IPAMHost is taken; nothing is stored there")
	}
	if _, err := Encode(IPAMHostKey{"h"}, &IPAMHost{}); err == nil {
		t.Error("an IPAMHost can be written; nothing is stored there")
	}
}

// TestObjectAgainstKey refuses what lies under another's key.
func TestObjectAgainstKey(t *testing.T) {
	for _, c := range []struct {
		key         Key
		value, want string
	}{
		{PoolKey{cidr("10.0.0.0/8")}, `{"cidr":"10.0.0.0/16"}`, `cidr: "10.0.0.0/16": the key is that of 10.0.0.0/8`},
		{BlockKey{cidr("10.0.0.0/26")}, `{"cidr":"10.0.0.64/26"}`, `cidr: "10.0.0.64/26": the key is that of 10.0.0.0/26`},
		{HandleKey{"a"}, `{"id":"b"}`, `id: "b": the key is that of "a"`},
		{BGPGlobalPeerKey{addr("192.0.2.1")}, `{"ip":"192.0.2.2","as_num":"1"}`, `ip: "192.0.2.2": the key is that of 192.0.2.1`},
		{BGPNodePeerKey{"h", addr("2001:db8::1")}, `{"ip":"192.0.2.2","as_num":"1"}`, `ip: "192.0.2.2"`},
	} {
		if object, err := Decode(c.key, []byte(c.value)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %s reads as %v, %v; want an error that says %q", c.key, c.value, object, err, c.want)
		}
		object, err := DecodeAs(c.key.Kind(), []byte(c.value))
		if err != nil {
			t.Error(err)
		}
		if text, err := Encode(c.key, object); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %s is written as %s, %v; want an error that says %q", c.key, c.value, text, err, c.want)
		}
	}
}

func TestBlockOf(t *testing.T) {
	for ip, want := range map[string]string{"10.0.0.127": "10.0.0.64/26", "10.0.1.0": "10.0.1.0/26", "fd80::7f": "fd80::40/122"} {
		if got := BlockOf(addr(ip)); got != cidr(want) {
			t.Errorf("BlockOf(%s) = %s; want %s", ip, got, want)
		}
	}
	b := Block{Affinity: HostAffinity("h")}
	if host, ok := b.Host(); !ok || host != "h" {
		t.Errorf("a block of host h is one of %q, %v", host, ok)
	}
}
