package cli

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"heddle/calico"
	"heddle/calico/client"
	"heddle/internal/command"
)

// stored has an object of every kind as it lies in the store, by path, with members that Heddle
// does not know.
var stored = map[string]string{
	"/calico/v1/host/h/workload/o/w%2f1/endpoint/e":     `{"state":"active","name":"tap1","mac":"fa:16:3e:00:00:01","profile_ids":["p"],"ipv4_nets":["10.0.0.1/32"],"labels":{"a":"true","b":"1"},"colour":{"deep":[1.5,null]}}`,
	"/calico/v1/host/h/endpoint/e":                      `{"name":"eth0","expected_ipv4_addrs":["192.0.2.1"],"profile_ids":[]}`,
	"/calico/v1/policy/profile/p/rules":                 `{"inbound_rules":[{"action":"deny","!protocol":47,"log_prefix":"no: way"}],"outbound_rules":[{"src_ports":[1,"2:3"],"protocol":"tcp"}]}`,
	"/calico/v1/policy/profile/p/tags":                  `["a","1","true"]`,
	"/calico/v1/policy/profile/p/labels":                `{"a":"","b":"null"}`,
	"/calico/policy/profile/p/refcount":                 `18446744073709551615`,
	"/calico/v1/policy/tier/t/metadata":                 `{"order":-1.5,"x":1}`,
	"/calico/v1/policy/tier/t/policy/p%25":              `{"selector":"a == 'b'","order":1e3,"inbound_rules":[],"outbound_rules":[],"types":["ingress"]}`,
	"/calico/v1/ipam/v4/pool/10.0.0.0-8":                `{"cidr":"10.0.0.0/8","ipip":"tunl0","masquerade":true,"x":[]}`,
	"/calico/v1/host/h/metadata":                        `{}`,
	"/calico/v1/host/h/bird_ip":                         `192.0.2.1`,
	"/calico/v1/host/h/orchestrator_refs":               `[{"orchestrator":"k8s","nodeName":"n"}]`,
	"/calico/v1/Ready":                                  `true`,
	"/calico/v1/config/A/b":                             "line one\nline two ",
	"/calico/v1/host/h/config/IpInIpEnabled":            `false`,
	"/calico/bgp/v1/global/as_num":                      `64512`,
	"/calico/bgp/v1/global/node_mesh":                   `{"enabled":false}`,
	"/calico/bgp/v1/global/custom_filters/v4/mine":      `if net ~ 10.0.0.0/8 then accept;`,
	"/calico/bgp/v1/host/h/ip_addr_v4":                  ``,
	"/calico/bgp/v1/host/h/network_v6":                  `2001:db8::/64`,
	"/calico/bgp/v1/global/peer_v6/2001:db8::1":         `{"ip":"2001:db8::1","as_num":"64512"}`,
	"/calico/bgp/v1/host/h/peer_v4/192.0.2.1":           `{"ip":"192.0.2.1","as_num":"4294967295"}`,
	"/calico/dhcp/v1/subnet/s":                          `{"cidr":"10.0.0.0/24","gateway_ip":"10.0.0.1"}`,
	"/calico/ipam/v2/config":                            `{"strict_affinity":true,"auto_allocate_blocks":true}`,
	"/calico/ipam/v2/assignment/ipv4/block/10.0.0.0-26": `{"cidr":"10.0.0.0/26","allocations":[` + strings.Repeat("null,", 63) + `null],"attributes":[]}`,
	"/calico/ipam/v2/host/h/ipv6/block/2001:db8::-122":  `{}`,
	"/calico/ipam/v2/handle/x":                          `{"block":{"10.0.0.0/26":2}}`,
	"/calico/felix/v1/host/h/status":                    `{"time":"2016-01-01T00:00:00Z","uptime":1.5,"first_update":true}`,
	"/calico/felix/v1/host/h/last_reported_status":      `{"time":"2016-01-01T00:00:00Z","uptime":1,"first_update":false}`,
	"/calico/felix/v1/host/h/workload/o/w/endpoint/e":   `{"status":"up"}`,
	"/calico/felix/v1/host/h/endpoint/e":                `{"status":"down"}`,
	"/calico/openstack/v1/neutron_election":             `server:123`,
}

// TestDocumentsRoundTrip: what get prints of any kind of object, as YAML or JSON, apply reads as
// the same object.
func TestDocumentsRoundTrip(t *testing.T) {
	t.Parallel()
	kinds := map[calico.Kind]bool{}
	for path, value := range stored {
		key, ok := calico.ParseKey(path)
		if !ok {
			t.Fatalf("%s is no key", path)
		}
		kinds[key.Kind()] = true
		object, err := calico.Decode(key, []byte(value))
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		k, err := findKind(string(key.Kind()))
		if err != nil {
			t.Fatal(err)
		}
		doc := documentOf(k, client.Entry{Key: key, Object: object, Raw: []byte(value)})
		var asYAML, asJSON bytes.Buffer
		if err := writeYAML(&asYAML, []document{doc}); err != nil {
			t.Fatal(err)
		}
		if err := command.PrintJSON(&asJSON, doc); err != nil {
			t.Fatal(err)
		}
		want, err := calico.Encode(key, object)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{asYAML.String(), asJSON.String()} {
			read, err := readManifests("file", []byte(text))
			if err != nil || len(read) != 1 {
				t.Errorf("%s: %v in\n%s", path, err, text)
				continue
			}
			got, err := calico.Encode(read[0].key, read[0].object)
			if err != nil || read[0].key != key || !bytes.Equal(got, want) {
				t.Errorf("%s: %s, %v; want %s from\n%s", path, got, err, want, text)
			}
		}
	}
	for _, k := range calicoKinds() {
		if !kinds[k.kind] && k.kind != profileKind && k.kind != calico.KindIPAMHost { // which has no value
			t.Errorf("no object of kind %s was tried", k.kind)
		}
	}
}

// TestKindsAndIDs holds the kinds and their ids against those that `heddle calico key` has.
func TestKindsAndIDs(t *testing.T) {
	t.Parallel()
	for path := range stored {
		key, _ := calico.ParseKey(path)
		k, err := findKind(strings.ToUpper(string(key.Kind())) + "S")
		if err != nil {
			t.Fatal(err)
		}
		again, err := k.key(idsOf(key), false)
		if err != nil || again != key {
			t.Errorf("%s: ids %v make %v, %v", path, idsOf(key), again, err)
		}
	}
	names := map[string]calico.Kind{}
	for _, k := range calicoKinds() {
		own := strings.ToLower(string(k.kind))
		for _, name := range append(strings.Fields(k.aliases), own, own+"s") {
			if other, twice := names[name]; twice {
				t.Errorf("%s names %s and %s", name, other, k.kind)
			}
			names[name] = k.kind
		}
	}
}

// TestNamesRoundTrip: every object has a name that the command line takes for it, and for no other.
func TestNamesRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		k := rapid.SampledFrom(calicoKinds()).Draw(t, "kind")
		if len(k.ids) == 0 {
			return
		}
		ids := make([]string, len(k.ids))
		for i, id := range k.ids {
			switch id {
			case "cidr":
				ids[i] = rapid.SampledFrom([]string{"10.0.0.0/8", "2001:db8::/32"}).Draw(t, id)
			case "ip":
				ids[i] = rapid.SampledFrom([]string{"10.0.0.1", "2001:db8::1"}).Draw(t, id)
			default:
				ids[i] = rapid.StringMatching(`[a-z%/2f5 ]{1,6}`).Draw(t, id)
			}
		}
		got, err := k.parseName(k.name(ids))
		if err != nil || !slices.Equal(got, ids) {
			t.Fatalf("%s %q is named %q, which is read as %q, %v", k.kind, ids, k.name(ids), got, err)
		}
	})
}

func TestLabelsOf(t *testing.T) {
	t.Parallel()
	inherited := map[string]calico.ProfileLabels{"first": {"a": "first", "b": "first"}, "second": {"b": "second", "c": "second"}}
	got := labelsOf(&calico.WorkloadEndpoint{ProfileIDs: []string{"first", "none", "second"}, Labels: map[string]string{"a": "own"}}, inherited)
	want := map[string]string{"a": "own", "b": "first", "c": "second"}
	if !maps.Equal(map[string]string(got), want) {
		t.Errorf("%v, want %v", got, want)
	}
	if labelsOf(&calico.Policy{}, inherited) != nil {
		t.Error("a policy has labels")
	}
}

// TestDocumentsInStreams: every way to put several documents into a file, none of which may lose
// one.
func TestDocumentsInStreams(t *testing.T) {
	t.Parallel()
	tier := func(name string) string {
		return `{"kind":"Tier","metadata":{"tier":"` + name + `"},"spec":{"order":1}}`
	}
	for _, text := range []string{
		tier("a") + "\n---\n" + tier("b"),
		"---\n" + tier("a") + "\n--- # the other\n" + tier("b") + "\n",
		"--- " + tier("a") + "\n--- " + tier("b"),
		"%YAML 1.1\n---\n" + tier("a") + "\n...\n%YAML 1.1\n---\n" + tier("b") + "\n...\n",
		tier("a") + "\r\n---\r\n" + tier("b") + "\r\n",
		tier("a") + tier("b"),
		tier("a") + "\n" + tier("b") + "\n",
		"[" + tier("a") + "]\n[" + tier("b") + "]",
		"- " + tier("a") + "\n- " + tier("b"),
	} {
		read, err := readManifests("file", []byte(text))
		if err != nil || len(read) != 2 || read[0].key != (calico.TierKey{Tier: "a"}) || read[1].key != (calico.TierKey{Tier: "b"}) {
			t.Errorf("%q is read as %v, %v", text, read, err)
		}
	}
	for _, text := range []string{
		"{kind: Tier, metadata: {tier: a}, spec: {}}\n{kind: Tier, metadata: {tier: b}, spec: {}}",
		tier("a") + "\n" + `{"kind":"Tier","metadata":{"tier":"b"},"spec":{"order":1}`,
		tier("a") + tier("b") + " 42",
	} {
		if read, err := readManifests("file", []byte(text)); err == nil {
			t.Errorf("%q is read as %v", text, read)
		}
	}
	// What looks like a marker within a text is none.
	read, err := readManifests("file", []byte("kind: GlobalConfig\nmetadata: {name: a}\nspec: |\n  ---\n  ...\n  x\n"))
	if err != nil || len(read) != 1 || read[0].object != "---\n...\nx\n" {
		t.Errorf("%v, %v", read, err)
	}
}

// FuzzDocuments reads whatever comes, and prints what it has read so that it is read as the same.
func FuzzDocuments(f *testing.F) {
	f.Add([]byte("kind: Tier\nmetadata: {tier: t}\nspec: {order: 1}\n---\n- {kind: Ready, spec: true}\n"))
	f.Add([]byte(`[{"kind":"Profile","metadata":{"profile":"p"},"spec":{"tags":["a"]}}]`))
	f.Add([]byte("kind: GlobalConfig\nmetadata: {name: a/b}\nspec: \"---\\n- x\"\n"))
	f.Add([]byte("kind: policy\nmetadata: {policy: 1, version: 4}\nspec: null\ninvalid: x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		read, err := readManifests("file", text)
		if err != nil {
			return
		}
		for _, m := range read {
			if m.profile != nil {
				continue
			}
			value, err := calico.Encode(m.key, m.object)
			if err != nil {
				t.Fatalf("%s was read and cannot be written: %v", m, err)
			}
			var out bytes.Buffer
			if err := writeYAML(&out, []document{documentOf(m.kind, client.Entry{Key: m.key, Object: m.object, Raw: value})}); err != nil {
				t.Fatal(err)
			}
			again, err := readManifests("again", out.Bytes())
			if err != nil || len(again) != 1 || again[0].key != m.key || !same(m.key, again[0].object, m.object) {
				t.Fatalf("%s was printed as\n%s\nand read as %v, %v", m, out.String(), again, err)
			}
		}
	})
}

// TestDemoObjects: the objects that the demo applies, and that the README points to, are valid.
func TestDemoObjects(t *testing.T) {
	t.Parallel()
	const file = "../demo/routed_host.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	objects, err := readManifests(file, text)
	if err != nil {
		t.Fatal(err)
	}
	if len(objects) != 11 {
		t.Errorf("%d objects, want 11: %v", len(objects), objects)
	}
}
