package calico

import (
	"net/netip"
	"strings"
	"testing"
)

func TestRule(t *testing.T) {
	// Each case is the one inbound rule of a profile.
	var cases []valueCase
	add := func(name, in, want, err string) {
		c := valueCase{name: name, in: `{"inbound_rules":[` + in + `]}`, err: err}
		if err != "" && !strings.HasPrefix(err, "inbound_rules") {
			c.err = "inbound_rules[0]." + err
		}
		if want != "" {
			c.want = `{"inbound_rules":[` + want + `],"outbound_rules":[]}`
		}
		cases = append(cases, c)
	}
	same := func(name, rule string) { add(name, rule, rule, "") }

	add("no members", `{}`, `{"action":"allow"}`, "")
	add("null members", `{"action":null,"ip_version":null,"protocol":null,"!protocol":null,"src_net":null,"dst_nets":null,"src_tag":null,"src_selector":null,
		"!dst_selector":null,"src_ports":null,"icmp_type":null,"!icmp_code":null,"log_prefix":null}`, `{"action":"allow"}`, "")
	add("unknown member", `{"src_netz":"10.0.0.0/8"}`, "", `src_netz: unknown member`)
	add("member of later versions", `{"http":null}`, "", `http: unknown member`)
	add("case of a member", `{"Protocol":"tcp"}`, "", `Protocol: unknown member`)
	add("member twice", `{"src_tag":"a","src_tag":"a"}`, "", `src_tag: is there twice`)
	add("no object", `null`, "", `inbound_rules[0]: null: want an object`)

	for _, action := range []string{"allow", "deny", "log", "next-tier"} {
		same("action "+action, `{"action":"`+action+`"}`)
	}
	add("action empty", `{"action":""}`, `{"action":"allow"}`, "")
	add("action pass", `{"action":"pass"}`, `{"action":"next-tier"}`, "")
	add("action's case", `{"action":"Allow"}`, "", `action: "Allow": want allow, deny, log or next-tier`)
	add("action no string", `{"action":1}`, "", `action: 1: want a string`)

	same("IPv4", `{"action":"allow","ip_version":4}`)
	same("IPv6", `{"action":"allow","ip_version":6}`)
	add("IPv5", `{"ip_version":5}`, "", `ip_version: 5: want 4 or 6`)
	add("version as text", `{"ip_version":"4"}`, "", `ip_version: "4": want 4 or 6`)
	add("version 4.0", `{"ip_version":4.0}`, "", `ip_version: 4.0: want 4 or 6`)

	for name, canonical := range map[string]string{
		`"tcp"`: `"tcp"`, `"udp"`: `"udp"`, `"icmp"`: `"icmp"`, `"icmpv6"`: `"icmpv6"`, `"sctp"`: `"sctp"`, `"udplite"`: `"udplite"`,
		`6`: `"tcp"`, `"6"`: `"tcp"`, `17`: `"udp"`, `1`: `"icmp"`, `"58"`: `"icmpv6"`, `132`: `"sctp"`, `136`: `"udplite"`,
		`47`: `47`, `"47"`: `47`, `255`: `255`,
	} {
		add("protocol "+name, `{"protocol":`+name+`}`, `{"action":"allow","protocol":`+canonical+`}`, "")
		add("not protocol "+name, `{"!protocol":`+name+`}`, `{"action":"allow","!protocol":`+canonical+`}`, "")
	}
	for _, bad := range []string{`0`, `"0"`, `256`, `-1`, `6.0`, `"TCP"`, `"gre"`, `""`, `"+6"`, `true`, `["tcp"]`} {
		add("protocol "+bad, `{"protocol":`+bad+`}`, "", `protocol: `+bad+`: want tcp, udp`)
		add("not protocol "+bad, `{"!protocol":`+bad+`}`, "", `!protocol: `+bad+`: want tcp, udp`)
	}

	for _, side := range []string{"src", "dst", "!src", "!dst"} {
		same(side+"_net", `{"action":"allow","`+side+`_net":"10.1.2.3/8"}`) // host bits as stored
		add(side+"_net bare", `{"`+side+`_net":"2001:DB8::1"}`, `{"action":"allow","`+side+`_net":"2001:db8::1/128"}`, "")
		add(side+"_net bad", `{"`+side+`_net":"10.0.0.0/33"}`, "", side+`_net: "10.0.0.0/33": want a CIDR`)
		add(side+"_net empty", `{"`+side+`_net":""}`, "", side+`_net: "": want a CIDR`)
		add(side+"_net a list", `{"`+side+`_net":["10.0.0.0/8"]}`, "", side+`_net: ["10.0.0.0/8"]: want a string`)
		same(side+"_nets", `{"action":"allow","`+side+`_nets":["10.0.0.0/8","2001:db8::/32"]}`)
		add(side+"_nets of one", `{"`+side+`_nets":["10.0.0.0/8"]}`, `{"action":"allow","`+side+`_net":"10.0.0.0/8"}`, "")
		add(side+"_nets of none", `{"`+side+`_nets":[]}`, `{"action":"allow"}`, "")
		add(side+"_nets merged", `{"`+side+`_nets":["10.0.0.0/8","11.0.0.0/8"],"`+side+`_net":"9.0.0.0/8"}`, `{"action":"allow","`+side+`_nets":["9.0.0.0/8","10.0.0.0/8","11.0.0.0/8"]}`, "")
		add(side+"_nets bad", `{"`+side+`_nets":["10.0.0.0/8",null]}`, "", side+`_nets[1]: null: want a string`)
		add(side+"_net of the other family", `{"ip_version":6,"`+side+`_net":"10.0.0.0/8"}`, "", side+`_net: "10.0.0.0/8": with ip_version 6, want a CIDR of that family`)
		add(side+"_nets of the other family", `{"ip_version":4,"`+side+`_nets":["10.0.0.0/8","2001:db8::/32"]}`, "", side+`_nets[1]: "2001:db8::/32": with ip_version 4`)

		same(side+"_tag", `{"action":"allow","`+side+`_tag":"A.b_c-1"}`)
		add(side+"_tag bad", `{"`+side+`_tag":"a b"}`, "", side+`_tag: "a b": want a tag`)
		add(side+"_tag empty", `{"`+side+`_tag":""}`, "", side+`_tag: "": want a tag`)

		add(side+"_selector", `{"`+side+`_selector":" a=='b' "}`, `{"action":"allow","`+side+`_selector":"a == \"b\""}`, "")
		add(side+"_selector empty", `{"`+side+`_selector":""}`, `{"action":"allow","`+side+`_selector":"all()"}`, "") // it must not vanish
		add(side+"_selector bad", `{"`+side+`_selector":"a"}`, "", side+`_selector: "a": `)

		for protocol, canonical := range map[string]string{`"tcp"`: `"tcp"`, `"udp"`: `"udp"`, `6`: `"tcp"`, `"17"`: `"udp"`} {
			add(side+"_ports of "+protocol, `{"protocol":`+protocol+`,"`+side+`_ports":[80,"443","1000:2000","7:7",1,65535]}`,
				`{"action":"allow","protocol":`+canonical+`,"`+side+`_ports":[80,443,"1000:2000",7,1,65535]}`, "")
		}
		add(side+"_ports empty", `{"`+side+`_ports":[]}`, `{"action":"allow"}`, "")
		add(side+"_ports without protocol", `{"`+side+`_ports":[80]}`, "", side+`_ports: only some protocols have ports; want protocol tcp or udp`)
		for _, protocol := range []string{`"icmp"`, `"sctp"`, `"udplite"`, `47`} {
			add(side+"_ports of "+protocol, `{"protocol":`+protocol+`,"`+side+`_ports":[80]}`, "", side+`_ports: only some protocols`)
		}
		add(side+"_ports of a negated protocol", `{"!protocol":"tcp","`+side+`_ports":[80]}`, "", side+`_ports: only some protocols`)
		for _, bad := range []string{`0`, `65536`, `-1`, `80.0`, `"0"`, `"0:80"`, `"80:70"`, `"80:"`, `":80"`, `"1:2:3"`, `"80:65536"`, `"http"`, `""`, `" 80"`, `"+80"`, `null`, `[80]`, `true`} {
			add(side+"_ports "+bad, `{"protocol":"tcp","`+side+`_ports":[1,`+bad+`]}`, "", side+`_ports[1]: `+bad+`: want a port`)
		}
		add(side+"_ports no list", `{"protocol":"tcp","`+side+`_ports":80}`, "", side+`_ports: 80: want a list`)
	}

	for _, not := range []string{"", "!"} {
		same(not+"icmp_type", `{"action":"allow","protocol":"icmp","`+not+`icmp_type":0}`)
		same(not+"icmp_type of IPv6", `{"action":"allow","protocol":"icmpv6","`+not+`icmp_type":254}`)
		same(not+"icmp_code", `{"action":"allow","protocol":"icmp","`+not+`icmp_type":8,"`+not+`icmp_code":255}`)
		add(not+"icmp_type by number", `{"protocol":"58","`+not+`icmp_type":128}`, `{"action":"allow","protocol":"icmpv6","`+not+`icmp_type":128}`, "")
		add(not+"icmp_code alone", `{"protocol":"icmp","`+not+`icmp_code":0}`, "", not+`icmp_code: 0: want `+not+`icmp_type beside it`)
		add(not+"icmp_type 255", `{"protocol":"icmp","`+not+`icmp_type":255}`, "", not+`icmp_type: 255: want a number from 0 to 254`)
		add(not+"icmp_type -1", `{"protocol":"icmp","`+not+`icmp_type":-1}`, "", not+`icmp_type: -1: want a number`)
		add(not+"icmp_type as text", `{"protocol":"icmp","`+not+`icmp_type":"8"}`, "", not+`icmp_type: "8": want a number`)
		add(not+"icmp_code 256", `{"protocol":"icmp","`+not+`icmp_type":8,"`+not+`icmp_code":256}`, "", not+`icmp_code: 256: want a number from 0 to 255`)
		add(not+"icmp_type without protocol", `{"`+not+`icmp_type":8}`, "", not+`icmp_type: 8: want protocol icmp or icmpv6 beside it`)
		add(not+"icmp_type of tcp", `{"protocol":"tcp","`+not+`icmp_type":8}`, "", not+`icmp_type: 8: want protocol icmp or icmpv6`)
		add(not+"icmp_type of a negated protocol", `{"!protocol":"icmp","`+not+`icmp_type":8}`, "", not+`icmp_type: 8: want protocol`)
	}

	add("icmp in IPv6", `{"protocol":"icmp","ip_version":6}`, "", `protocol: "icmp": with ip_version 6, want icmpv6`)
	add("icmpv6 in IPv4", `{"protocol":58,"ip_version":4}`, "", `protocol: "icmpv6": with ip_version 4, want icmp`)
	same("not icmp in IPv6", `{"action":"allow","ip_version":6,"!protocol":"icmp"}`)
	same("a CIDR of each family", `{"action":"allow","src_net":"10.0.0.0/8","dst_net":"2001:db8::/32"}`)
	same("both forms of a criterion", `{"action":"deny","protocol":"tcp","!protocol":"udp","src_net":"10.0.0.0/8","!src_net":"10.1.0.0/16"}`)

	same("log_prefix", `{"action":"deny","log_prefix":"aZ09_:-"}`)
	add("log_prefix cleaned", `{"log_prefix":"a b\té<x>"}`, `{"action":"allow","log_prefix":"a_b___x_"}`, "")
	add("log_prefix cut", `{"log_prefix":"`+strings.Repeat("x", 40)+`"}`, `{"action":"allow","log_prefix":"`+strings.Repeat("x", 27)+`"}`, "")
	add("log_prefix empty", `{"log_prefix":""}`, `{"action":"allow"}`, "")
	add("log_prefix no string", `{"log_prefix":1}`, "", `log_prefix: 1: want a string`)

	checkValues(t, KindProfileRules, cases)
	for i := range cases { // a policy's rules are the same
		c := &cases[i]
		c.in = `{"selector":"all()",` + c.in[1:]
		if c.want != "" {
			c.want = `{"selector":"all()",` + c.want[1:]
		}
	}
	checkValues(t, KindPolicy, cases)
}

// TestGoRule shows what is refused of a rule that a program makes.
func TestGoRule(t *testing.T) {
	big := uint8(255)
	for name, c := range map[string]struct {
		rule Rule
		want string
	}{
		"action":     {Rule{Action: "pass"}, `outbound_rules[0].action: "pass"`},
		"version":    {Rule{IPVersion: 5}, `ip_version: 5`},
		"net":        {Rule{SrcNets: make([]netip.Prefix, 2)}, `src_nets[0]: is missing`},
		"tag":        {Rule{NotDstTag: "a b"}, `!dst_tag: "a b"`},
		"selector":   {Rule{SrcSelector: "a ="}, `src_selector: "a ="`},
		"text":       {Rule{SrcSelector: "a == '\xff'"}, `src_selector: `},
		"ports":      {Rule{Protocol: ProtocolTCP, DstPorts: []Ports{{90, 80}}}, `dst_ports[0]: "90:80"`},
		"port 0":     {Rule{Protocol: ProtocolTCP, DstPorts: []Ports{{}}}, `dst_ports[0]: "0"`},
		"type 255":   {Rule{Protocol: ProtocolICMP, ICMPType: &big}, `icmp_type: 255`},
		"code alone": {Rule{Protocol: ProtocolICMP, NotICMPCode: &big}, `!icmp_code: 255: want !icmp_type`},
	} {
		p := &ProfileRules{OutboundRules: []Rule{c.rule}}
		_, encoding := Encode(ProfileRulesKey{Profile: "p"}, p)
		for _, err := range []error{p.Validate(), encoding} {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error %v; want one that says %q", name, err, c.want)
			}
		}
	}
	text, err := Encode(ProfileRulesKey{Profile: "p"}, &ProfileRules{InboundRules: []Rule{{SrcSelector: " a == 'b'", LogPrefix: "a b"}}})
	if want := `{"inbound_rules":[{"action":"allow","src_selector":"a == \"b\"","log_prefix":"a_b"}],"outbound_rules":[]}`; err != nil || string(text) != want {
		t.Errorf("a rule not in canonical form is written as %s, %v; want %s", text, err, want)
	}
}
