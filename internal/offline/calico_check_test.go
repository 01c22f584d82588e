package offline

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// checkedText runs a file of cases and returns what is printed, followed by the error if there is
// one.
func checkedText(t *testing.T, input string, opts CheckOptions) string {
	t.Helper()
	var out bytes.Buffer
	err := Check(t.Context(), strings.NewReader(input), opts, &out)
	var wrong *FileError
	switch {
	case err == nil:
	case errors.Is(err, ErrExpectation), errors.As(err, &wrong):
		out.WriteString("error: " + err.Error() + "\n")
	default:
		t.Fatal(err)
	}
	return out.String()
}

// corpusCases are the cases of all files, by file and id.
func corpusCases(t testing.TB) map[string]json.RawMessage {
	t.Helper()
	files, err := filepath.Glob("testdata/calico/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of cases: %v", err)
	}
	named := map[string]json.RawMessage{}
	for _, file := range files {
		var cases []json.RawMessage
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &cases)
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, c := range cases {
			var o struct{ ID string }
			if err := json.Unmarshal(c, &o); err != nil || o.ID == "" {
				t.Fatalf("%s: a case has no id: %v", file, err)
			}
			named[strings.TrimSuffix(filepath.Base(file), ".json")+"/"+o.ID] = c
		}
	}
	return named
}

// corpus runs f on every case.
func corpus(t *testing.T, f func(t *testing.T, policyCase []byte)) {
	for name, c := range corpusCases(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, c)
		})
	}
}

// checkCorpus holds every packet of the corpus against what it expects; each says what.
func checkCorpus(t *testing.T, opts CheckOptions) {
	corpus(t, func(t *testing.T, policyCase []byte) {
		var out bytes.Buffer
		if err := Check(context.Background(), bytes.NewReader(policyCase), opts, &out); err != nil {
			t.Errorf("%v\n%s", err, out.String())
		}
	})
}

// Real packets past the agent's rules in a kernel fare as the judge thinks.
func TestCheckCorpusInKernel(t *testing.T) {
	needRoot(t)
	checkCorpus(t, CheckOptions{Kernel: true})
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("makes network namespaces: run it as root")
	}
}

// Each statement of how a packet is judged has a case (docs/conformance/calico.md).
func TestCheckCorpus(t *testing.T) {
	t.Parallel()
	checkCorpus(t, CheckOptions{})
}

// Every packet of the corpus expects something, and something decides over it.
func TestCorpusExpects(t *testing.T) {
	t.Parallel()
	corpus(t, func(t *testing.T, policyCase []byte) {
		for i, p := range verdictsOf(t, policyCase, CheckOptions{JSON: true}) {
			if p.OK == nil || p.DecidedBy == "" {
				t.Errorf("packet %d: expects nothing, or nothing decided: %+v", i+1, p)
			}
		}
	})
}

// The table of statements names every case, and none that is not there.
func TestCorpusIsInTheTable(t *testing.T) {
	t.Parallel()
	table, err := os.ReadFile("../../docs/conformance/calico.md")
	if err != nil {
		t.Fatal(err)
	}
	cases := corpusCases(t)
	for name := range cases {
		if !bytes.Contains(table, []byte("`"+name+"`")) {
			t.Errorf("no statement names case %s", name)
		}
	}
	files := map[string]bool{}
	for name := range cases {
		file, _, _ := strings.Cut(name, "/")
		files[file] = true
	}
	for _, quoted := range regexp.MustCompile("`([a-z]+)/([a-z0-9-]+)`").FindAllStringSubmatch(string(table), -1) {
		if name := quoted[1] + "/" + quoted[2]; files[quoted[1]] && cases[name] == nil {
			t.Errorf("there is no case %s", name)
		}
	}
}

// oneWorkload is a case with a workload w that takes TCP 80; what stands in the places is added.
func oneWorkload(more, packet string) string {
	return `{"id": "one", "profiles": {"web": {"rules": {"inbound_rules": [{"protocol": "tcp", "dst_ports": [80]}], "outbound_rules": []}}},
		"endpoints": {"w": {"state": "active", "name": "cali-w", "ipv4_nets": ["10.65.0.1/32"], "profile_ids": ["web"]}}` + more + `, "packets": [` + packet + `]}`
}

const toPort80 = `{"from": "external", "to": "w", "src": "192.0.2.9", "dst": "10.65.0.1", "proto": "tcp", "dport": 80, "expect": "allow"}`

// What is not of the format is refused, naming case, object and field.
func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	packet := func(change, to string) string { return oneWorkload("", strings.Replace(toPort80, change, to, 1)) }
	for _, tt := range []struct{ name, input, want string }{
		{"not a file of this kind", `[1`, "neither YAML nor JSON"},
		{"a case that is no object", `[1]`, "case 1: 1 is not an object"},
		{"an empty file", ``, "case 1.endpoints: is missing"},
		{"null", `null`, "case 1.endpoints: is missing"},
		{"an empty case", `[{}]`, "case 1.endpoints: is missing"},
		{"no packets", `{"id": "x", "endpoints": {}}`, "case x.packets: is missing"},
		{"an unknown field of a case", `{"id": "x", "policie": {}}`, "case x.policie: unknown field; did you mean policies?"},
		{"a policy without a tier", oneWorkload(`, "policies": {"web": {}}`, ""), `case one.policies: "web" is not a tier, a slash and a name`},
		{"a tier that cannot be written", oneWorkload(`, "tiers": {"a/b": {}}`, ""), "case one.tiers.a/b: "},
		{"an unknown part of a profile", `{"id": "x", "profiles": {"p": {"rule": {}}}}`, "case x.profiles.p.rule: unknown field; did you mean rules?"},
		{"an endpoint that is no object", `{"id": "x", "endpoints": {"w": 1}}`, "case x.endpoints.w: 1 is not an object"},
		{"an endpoint named like another place", `{"id": "x", "endpoints": {"external": {}}}`, "case x.endpoints.external: this name stands for a place that is no endpoint"},
		{"a setting that stops the agent", oneWorkload(`, "config": {"DefaultEndpointToHostAction": "MAYBE"}`, ""), `case one.config: defaultendpointtohostaction = "MAYBE"`},
		{"an unknown place", packet(`"external"`, `"nowhere"`), `case one.packets[0].from: "nowhere" is not an endpoint's id, external or local-host`},
		{"no place", packet(`"to": "w", `, ``), "case one.packets[0].to: is missing"},
		{"no source", packet(`"src": "192.0.2.9", `, ``), "case one.packets[0].src: is missing"},
		{"a source that is no address", packet(`192.0.2.9`, `192.0.2.0/24`), `case one.packets[0].src: "192.0.2.0/24" is not an IP address`},
		{"two families", packet(`192.0.2.9`, `2001:db8::9`), "case one.packets[0].dst: 10.65.0.1 is of another family than src 2001:db8::9"},
		{"an unknown protocol", packet(`"tcp"`, `"ospf"`), `case one.packets[0].proto: "ospf" is not one of tcp, udp`},
		{"protocol 0", packet(`"tcp"`, `0`), "case one.packets[0].proto: 0 is not one of"},
		{"no protocol", packet(`"proto": "tcp", `, ``), "case one.packets[0].proto: is missing"},
		{"ports of ICMP", packet(`"tcp"`, `"icmp"`), "case one.packets[0].dport: protocol icmp has none"},
		{"a port out of range", packet(`80`, `65536`), "case one.packets[0].dport: 65536 is not a whole number from 0 to 65535"},
		{"an ICMP type of TCP", packet(`"dport"`, `"icmp_type": 8, "dport"`), "case one.packets[0].icmp_type: protocol tcp has none"},
		{"a MAC that is none", packet(`"dport"`, `"src_mac": "x", "dport"`), `case one.packets[0].src_mac: "x" is not a MAC address`},
		{"an unknown state", packet(`"dport"`, `"state": "related", "dport"`), `case one.packets[0].state: "related" is not one of new, established, invalid`},
		{"an unknown expectation", packet(`"allow"`, `"drop"`), `case one.packets[0].expect: "drop" is not one of allow, deny`},
		{"an unknown field of a packet", packet(`"dport"`, `"dst_port"`), "case one.packets[0].dst_port: unknown field; did you mean"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := checkedText(t, tt.input, CheckOptions{}); !strings.Contains(got, "error: "+tt.want) {
				t.Errorf("got %s\nwant error: %s", got, tt.want)
			}
		})
	}
}

// A case that cannot be judged is named in its place; the others are judged.
func TestCheckJudgesTheOthers(t *testing.T) {
	t.Parallel()
	input := `[{"id": "bad", "packets": [{}]}, ` + oneWorkload("", toPort80) + `]`
	got := checkedText(t, input, CheckOptions{JSON: true})
	for _, want := range []string{`"id": "bad"`, `"error": "case bad.packets[0].from: is missing`, `"id": "one"`, `"decided_by": "profile web inbound rule 1"`, "error: case bad"} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %s:\n%s", want, got)
		}
	}
}

// The answer has the members that programs rely on, and one case is a list of one.
func TestCheckJSON(t *testing.T) {
	t.Parallel()
	input := oneWorkload("", toPort80+`, `+strings.Replace(toPort80, `"dport": 80, "expect": "allow"`, `"dport": 81`, 1))
	want := `{
  "cases": [
    {
      "id": "one",
      "packets": [
        {
          "verdict": "allow",
          "ok": true,
          "decided_by": "profile web inbound rule 1"
        },
        {
          "verdict": "deny",
          "ok": null,
          "decided_by": "default deny: no profile of workload w matches"
        }
      ]
    }
  ]
}
`
	if diff := cmp.Diff(want, checkedText(t, input, CheckOptions{JSON: true})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// An expectation that is not met is an error of its own, and says why it was one.
func TestCheckExpectation(t *testing.T) {
	t.Parallel()
	got := checkedText(t, oneWorkload("", strings.Replace(toPort80, `"allow"`, `"deny", "why": "it is shut"`, 1)), CheckOptions{})
	for _, want := range []string{"allow by profile web inbound rule 1: NOT as expected (it is shut)", "0 of 1 expectations met", "error: an expectation failed"} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
}

// Operators of later versions are read when asked for; else the policy is invalid.
func TestCheckExtensions(t *testing.T) {
	t.Parallel()
	input := oneWorkload(`, "policies": {"default/p": {"selector": "!(name starts with 'x')", "inbound_rules": [{"action": "deny"}], "outbound_rules": []}}`, toPort80)
	if got := checkedText(t, input, CheckOptions{}); !strings.Contains(got, "invalid: policies.default/p: Policy: selector") || !strings.Contains(got, "1 of 1 expectations met") {
		t.Errorf("without extensions:\n%s", got)
	}
	if got := checkedText(t, input, CheckOptions{Extensions: true}); !strings.Contains(got, "deny by policy default/p inbound rule 1") {
		t.Errorf("with extensions:\n%s", got)
	}
}

// Settings that nobody knows, and endpoints whose interface cannot be theirs, are named.
func TestCheckNamesWhatDoesNotCount(t *testing.T) {
	t.Parallel()
	input := `{"id": "x", "config": {"Colour": "red", "DisableConntrackInvalidCheck": true},
		"endpoints": {"a": {"state": "active", "name": "cali-a", "ipv4_nets": ["10.65.0.1/32"]}, "b": {"state": "active", "name": "cali-a", "ipv4_nets": ["10.65.0.2/32"]},
			"c": {"state": "active", "name": "eth5", "ipv4_nets": ["10.65.0.3/32"]}},
		"packets": [{"from": "b", "to": "external", "src": "10.65.0.2", "dst": "192.0.2.9", "proto": "udp", "expect": "deny"},
			{"from": "c", "to": "external", "src": "10.65.0.3", "dst": "192.0.2.9", "proto": "udp", "expect": "deny"}]}`
	got := checkedText(t, input, CheckOptions{})
	for _, want := range []string{`invalid: config colour = "red": no such setting`, "invalid: endpoints.b: name: interface cali-a is that of endpoint a",
		`invalid: endpoints.c: name: "eth5" begins with none of the prefixes`, "deny by no valid endpoint b", "deny by no valid endpoint c"} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
}

// A packet that cannot be sent is named and keeps no other from being sent and judged; the file is
// wrong all the same.
func TestCheckKernelGoesOn(t *testing.T) {
	t.Parallel()
	needRoot(t)
	unsendable := `{"from": "external", "to": "w", "src": "192.0.2.9", "dst": "10.65.0.1", "proto": "icmp", "icmp_type": 3, "expect": "deny"}`
	input := oneWorkload("", unsendable+", "+toPort80)
	got := checkedText(t, input, CheckOptions{Kernel: true})
	for _, want := range []string{"not sendable: case one.packets[0]: --kernel: no connection begins with icmp type 3", "allow by profile web inbound rule 1: as expected",
		"1 of 1 expectations met", "error: case one.packets[0]: --kernel: no connection begins"} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
	got = checkedText(t, input, CheckOptions{Kernel: true, JSON: true})
	for _, want := range []string{`"verdict": "not-sendable"`, `"verdict": "allow"`} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
}

// What no kernel can be sent is refused, naming the packet.
func TestCheckKernelRefuses(t *testing.T) {
	t.Parallel()
	needRoot(t)
	for _, tt := range []struct{ packet, want string }{
		{`{"from": "external", "to": "w", "src": "192.0.2.9", "dst": "10.65.0.2", "proto": "tcp"}`, "dst 10.65.0.2 is not an address of w"},
		{`{"from": "external", "to": "local-host", "src": "192.0.2.9", "dst": "10.65.0.1", "proto": "tcp"}`, "dst 10.65.0.1 leads to w"},
		{`{"from": "external", "to": "w", "src": "192.0.2.9", "dst": "10.65.0.1", "proto": "icmp", "icmp_type": 3}`, "no connection begins with icmp type 3"},
		{`{"from": "local-host", "to": "w", "src": "203.0.113.9", "dst": "10.65.0.1", "proto": "icmp", "icmp_type": 8, "state": "invalid"}`, "a kernel trusts the checksums of what its own host sends, so icmp type 8 from there is never invalid"},
		{`{"from": "external", "to": "w", "src": "192.0.2.9", "dst": "10.65.0.1", "proto": "icmpv6"}`, "a kernel does not track icmpv6 between these addresses"},
		{`{"from": "external", "to": "w", "src": "192.0.2.9", "dst": "10.65.0.1", "proto": 47, "state": "invalid"}`, "of protocol 47 there is no such packet that is not new"},
	} {
		got := checkedText(t, oneWorkload("", tt.packet), CheckOptions{Kernel: true})
		if !strings.Contains(got, "error: case one.packets[0]: --kernel: "+tt.want) {
			t.Errorf("got %s\nwant %s", got, tt.want)
		}
	}
}

// No file makes Check panic.
func FuzzCheck(f *testing.F) {
	for _, c := range corpusCases(f) {
		f.Add([]byte(c))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		_ = Check(t.Context(), bytes.NewReader(file), CheckOptions{}, io.Discard)
	})
}
