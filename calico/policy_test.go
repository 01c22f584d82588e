package calico

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"heddle/calico/selector"
)

func TestProfileParts(t *testing.T) {
	checkValues(t, KindProfileRules, []valueCase{
		{"missing lists", `{}`, `{"inbound_rules":[],"outbound_rules":[]}`, ""},
		{"null lists", `{"inbound_rules":null}`, `{"inbound_rules":[],"outbound_rules":[]}`, ""},
		{"unknown member", `{"inbound_rules":[],"id":"x"}`, "", `id: unknown member`},
		{"one bad rule", `{"outbound_rules":[{},{"action":"drop"}]}`, "", `outbound_rules[1].action: "drop": want allow, deny, log or next-tier`},
		{"no object", `[]`, "", "[]: want an object"},
		{"null", `null`, "", "null: want an object"},
	})
	checkValues(t, KindProfileTags, []valueCase{
		{"tags", `["b","a.b_c-1"]`, "", ""},
		{"none", `[]`, "", ""},
		{"empty tag", `["a",""]`, "", `[1]: "": want a tag`},
		{"characters", `["a/b"]`, "", `[0]: "a/b": want a tag`},
		{"type", `["a",1]`, "", `[1]: 1: want a string`},
		{"no list", `{"a":"b"}`, "", `{"a":"b"}: want a list`},
		{"null", `null`, "", `null: want a list`},
	})
	checkValues(t, KindProfileLabels, []valueCase{
		{"labels", `{"a/b":"","c":"d"}`, "", ""},
		{"none", `{}`, "", ""},
		{"name", `{"a b":"c"}`, "", `["a b"]: want a label's name`},
		{"type", `{"a":{}}`, "", `a: {}: want a string`},
		{"no object", `null`, "", `null: want an object`},
	})
}

func TestPolicy(t *testing.T) {
	form := func(before, after string) string {
		return `{"selector":` + before + `,"inbound_rules":[],"outbound_rules":[]` + after + `}`
	}
	checkValues(t, KindPolicy, []valueCase{
		{"least", `{"selector":"all()"}`, form(`"all()"`, ""), ""},
		{"canonical selector", `{"selector":"a=='b'&&c in {'y','x'}"}`, form(`"(a == \"b\" && c in {\"x\", \"y\"})"`, ""), ""},
		{"empty selector", `{"selector":""}`, form(`"all()"`, ""), ""},
		{"selector missing", `{"order":1}`, "", `selector: is missing; "all()" selects everything`},
		{"selector null", `{"selector":null}`, "", `selector: is missing`},
		{"selector no string", `{"selector":{}}`, "", `selector: {}: want a string`},
		{"selector bad", `{"selector":"a = 'b'"}`, "", `selector: "a = 'b'": `},
		{"selector of later versions", `{"selector":"a contains 'b'"}`, "", `extension`},
		{"order", `{"selector":"all()","order":10}`, form(`"all()","order":10`, ""), ""},
		{"order 10.0", `{"selector":"all()","order":10.0}`, form(`"all()","order":10`, ""), ""},
		{"order with a fraction", `{"selector":"all()","order":-1.5e1}`, form(`"all()","order":-15`, ""), ""},
		{"order tiny", `{"selector":"all()","order":0.25}`, form(`"all()","order":0.25`, ""), ""},
		{"order huge", `{"selector":"all()","order":1e300}`, form(`"all()","order":1e+300`, ""), ""},
		{"order -0", `{"selector":"all()","order":-0.0}`, form(`"all()","order":0`, ""), ""},
		{"order default", `{"selector":"all()","order":"default"}`, form(`"all()"`, ""), ""},
		{"order null", `{"selector":"all()","order":null}`, form(`"all()"`, ""), ""},
		{"order as text", `{"selector":"all()","order":"10"}`, "", `order: "10": want a number, "default" or null`},
		{"order true", `{"selector":"all()","order":true}`, "", `order: true: want a number`},
		{"order too large", `{"selector":"all()","order":1e999}`, "", `order: 1e999: is too large`},
		{"order NaN", `{"selector":"all()","order":NaN}`, "", `order: not JSON at byte 29: want a value`},
		{"order Infinity", `{"selector":"all()","order":Infinity}`, "", `not JSON`},
		{"untracked", `{"selector":"all()","untracked":true}`, form(`"all()"`, `,"untracked":true`), ""},
		{"not untracked", `{"selector":"all()","untracked":false}`, form(`"all()"`, ""), ""},
		{"untracked as text", `{"selector":"all()","untracked":"true"}`, "", `untracked: "true": want true or false`},
		{"pre_dnat", `{"selector":"all()","pre_dnat":true}`, form(`"all()"`, `,"pre_dnat":true`), ""},
		{"pre_dnat and untracked", `{"selector":"all()","pre_dnat":true,"untracked":true}`, "", `pre_dnat: true: a policy is untracked or before DNAT, not both`},
		{"pre_dnat with outbound rules", `{"selector":"all()","pre_dnat":true,"outbound_rules":[{}]}`, "", `outbound_rules: a policy before DNAT`},
		{"types", `{"selector":"all()","types":["egress","ingress"]}`, form(`"all()"`, `,"types":["ingress","egress"]`), ""},
		{"no types", `{"selector":"all()","types":[]}`, form(`"all()"`, ""), ""},
		{"types twice", `{"selector":"all()","types":["egress","egress"]}`, "", `types[1]: "egress": is there twice`},
		{"types unknown", `{"selector":"all()","types":["Ingress"]}`, "", `types[0]: "Ingress": want ingress or egress`},
		{"annotations", `{"selector":"all()","annotations":{"b":"1","a":"2"}}`, form(`"all()"`, `,"annotations":{"a":"2","b":"1"}`), ""},
		{"annotations of another type", `{"selector":"all()","annotations":{"b":1}}`, "", `annotations.b: 1: want a string`},
		{"unknown member", `{"selector":"all()","tier":"x"}`, "", `tier: unknown member`},
		{"labels", `{"selector":"all()","labels":{"a":"b"}}`, "", `labels: unknown member`},
		{"tags", `{"selector":"all()","tags":["a"]}`, "", `tags: unknown member`},
		{"a bad rule", `{"selector":"all()","inbound_rules":[{"src_selector":"a =="}]}`, "", `inbound_rules[0].src_selector: "a ==": `},
	})
	checkValues(t, KindTier, []valueCase{
		{"order", `{"order":10.5}`, "", ""},
		{"default", `{"order":"default"}`, `{}`, ""},
		{"absent", `{}`, "", ""},
		{"null", `{"order":null}`, `{}`, ""},
		{"as text", `{"order":"1"}`, "", `order: "1"`},
		{"unknown member", `{"x":[1, "a b"]}`, `{"x":[1,"a b"]}`, ""},
	})
}

// TestSelectorExtensions shows the operators of later versions, where they are asked for.
func TestSelectorExtensions(t *testing.T) {
	for _, c := range []struct {
		key  Key
		in   string
		want string
	}{
		{PolicyKey{"t", "p"}, `{"selector":"a starts with 'b'"}`, `{"selector":"a starts with \"b\"","inbound_rules":[],"outbound_rules":[]}`},
		{ProfileRulesKey{Profile: "p"}, `{"inbound_rules":[{"src_selector":"a contains 'b'"}]}`,
			`{"inbound_rules":[{"action":"allow","src_selector":"a contains \"b\""}],"outbound_rules":[]}`},
	} {
		if _, err := Decode(c.key, []byte(c.in)); err == nil {
			t.Errorf("%s is taken without extensions", c.in)
		}
		object, err := Decode(c.key, []byte(c.in), SelectorExtensions())
		if err != nil {
			t.Error(err)
			continue
		}
		if text, err := Encode(c.key, object, SelectorExtensions()); err != nil || string(text) != c.want {
			t.Errorf("%s is written as %s, %v; want %s", c.in, text, err, c.want)
		}
		if text, err := Encode(c.key, object); err == nil {
			t.Errorf("%s is written as %s without extensions", c.in, text)
		}
	}
}

// TestSelectorLimits: a selector that is too large is refused wherever one may stand, with its
// field, by Decode and Encode.
func TestSelectorLimits(t *testing.T) {
	t.Parallel()
	long, deep := `has(a)`+strings.Repeat(" ", selector.MaxLength), strings.Repeat("(", 1000)
	for _, text := range []string{long, deep} {
		for field, p := range map[string]*Policy{
			"selector":                        {Selector: text},
			"inbound_rules[0].src_selector":   {Selector: "all()", InboundRules: []Rule{{SrcSelector: text}}},
			"outbound_rules[0].!dst_selector": {Selector: "all()", OutboundRules: []Rule{{NotDstSelector: text}}},
		} {
			key := PolicyKey{Tier: "default", Policy: "p"}
			w := map[string]any{"selector": p.Selector, "inbound_rules": []any{}, "outbound_rules": []any{}}
			if len(p.InboundRules) > 0 {
				w["inbound_rules"] = []any{map[string]string{"src_selector": text}}
			}
			if len(p.OutboundRules) > 0 {
				w["outbound_rules"] = []any{map[string]string{"!dst_selector": text}}
			}
			raw, err := json.Marshal(w)
			if err != nil {
				t.Fatal(err)
			}
			_, read := Decode(key, raw)
			_, written := Encode(key, p)
			for name, err := range map[string]error{"Decode": read, "Encode": written} {
				var e *Error
				if !errors.As(err, &e) || e.Field != field || !strings.Contains(e.Reason, "than") || len(err.Error()) > 500 {
					t.Errorf("%s of a selector of %d bytes in %s: %.300v", name, len(text), field, err)
				}
			}
		}
	}
}
