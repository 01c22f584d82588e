package routerbgp

import (
	"encoding/json"
	"strings"
	"testing"
)

const samplePlan = `{"version":3,"as":64512,"neighbours":[{"address":"203.0.113.1","local":"203.0.113.2","as":65001,"password":"secret","holdTime":9}],` +
	`"networks":["10.0.0.0/24"],"links":[{"subnet":"203.0.113.0/24"},{"subnet":"10.0.0.0/24","tenant":true}],"own":["10.0.0.1"],"lingerSeconds":15}`

func TestParsePlan(t *testing.T) {
	if p, err := ParsePlan([]byte(samplePlan)); err != nil || p.Neighbours[0].Password != "secret" || !p.Links[1].Tenant {
		t.Fatalf("ParsePlan = %+v, %v", p, err)
	}
	for _, c := range []struct{ old, new, want string }{
		{`"version":3`, `"version":4`, "version 4"},
		{`"as":64512`, `"as":0`, "AS number"},
		{`"as":64512`, `"as":4294967296`, "number"},
		{`"as":65001`, `"as":0`, "neighbour 203.0.113.1: no AS number"},
		{`"address":"203.0.113.1"`, `"address":"2001:db8::1"`, "IPv4"},
		{`"address":"203.0.113.1"`, `"address":"203.0.113.2"`, "neighbour 203.0.113.2: 203.0.113.2 is the router's own address"},
		{`"holdTime":9`, `"holdTime":2`, "3 to 65535"},
		{`"password":"secret"`, `"password":"` + strings.Repeat("x", 81) + `"`, "81 bytes"},
		{`"networks":["10.0.0.0/24"]`, `"networks":["10.0.0.1/24"]`, "network 10.0.0.1/24"},
		{`"subnet":"10.0.0.0/24"`, `"subnet":"10.0.0.1/24"`, "link 10.0.0.1/24"},
		{`"own":["10.0.0.1"]`, `"own":["::1"]`, "address ::1"},
		{`"lingerSeconds":15`, `"lingerSeconds":0`, "lingerSeconds"},
		{`"lingerSeconds":15`, `"lingerSeconds":15,"more":1`, "unknown field"},
		{`"lingerSeconds":15}`, `"lingerSeconds":15}{}`, "more than one value"},
	} {
		if _, err := ParsePlan([]byte(strings.Replace(samplePlan, c.old, c.new, 1))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("with %s: %v; want an error with %q", c.new, err, c.want)
		}
	}
}

func FuzzParsePlan(f *testing.F) {
	f.Add([]byte(samplePlan))
	f.Add([]byte(`{"version":3,"as":1,"neighbours":null,"networks":["0.0.0.0/0"],"links":[],"lingerSeconds":1}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		p, err := ParsePlan(line)
		if err != nil {
			return
		}
		again, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParsePlan(again); err != nil {
			t.Errorf("a plan that was read is refused when it is written again: %v\n%s", err, again)
		}
	})
}

func FuzzParseReport(f *testing.F) {
	f.Add([]byte(`{"full":true,"complete":true,"routes":[{"dst":"0.0.0.0/0","gateways":["203.0.113.1"]},{"dst":"198.51.100.0/24"}],` +
		`"peers":[{"address":"203.0.113.1","as":65001,"state":"ESTABLISHED","since":"2026-01-02T03:04:05Z","received":2,"refused":{"nextHop":1,"tenant":0,"invalid":0,"limit":0},"advertised":1}],"settled":true,"routerId":"203.0.113.2"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := ParseReport(line)
		if err != nil {
			return
		}
		for _, route := range r.Routes {
			if !route.Dst.Addr().Is4() || route.Dst.Masked() != route.Dst {
				t.Errorf("took destination %s", route.Dst)
			}
		}
		if again, err := json.Marshal(r); err != nil {
			t.Fatal(err)
		} else if _, err := ParseReport(again); err != nil {
			t.Errorf("a report that was read is refused when it is written again: %v\n%s", err, again)
		}
	})
}
