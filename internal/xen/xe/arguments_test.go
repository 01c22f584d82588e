package xe

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	t.Parallel()
	both := cmp.AllowUnexported(arguments{}, pair{})
	for line, want := range map[string]*arguments{
		"":                                       {connection: map[string]string{}},
		"pif-list":                               {command: "pif-list", connection: map[string]string{}},
		"pif-list a= b==c":                       {command: "pif-list", params: params{{"a", ""}, {"b", "=c"}}, connection: map[string]string{}},
		"pif-list other-config:a=b=c --minimal":  {command: "pif-list", params: params{{"other-config:a", "b=c"}, {"minimal", "true"}}, connection: map[string]string{}},
		"-s h -p 1 -u u -pw p=q pif-list -pwf f": {command: "pif-list", connection: map[string]string{"server": "h", "port": "1", "username": "u", "password": "p=q", "passwordfile": "f"}},
		"pif-list -h h server=g":                 {command: "pif-list", connection: map[string]string{"server": "g"}},
		"server=h username=u password= pif-list --nossl --debug": {command: "pif-list", connection: map[string]string{"server": "h", "username": "u", "password": "", "nossl": "true", "debug": "true"}},
		"help tunnel-create pif-list":                            {command: "help", words: []string{"tunnel-create", "pif-list"}, connection: map[string]string{}},
		"-version":                                               {version: true, connection: map[string]string{}},
		"--help":                                                 {help: true, connection: map[string]string{}},
		"event-wait class=vm name-label=/=x":                     {command: "event-wait", params: params{{"class", "vm"}, {"name-label", "/=x"}}, connection: map[string]string{}},
		"pool-join master-password=a,b:c ca=/x fingerprint=ab nossl=": {command: "pool-join", params: params{{"master-password", "a,b:c"}}, connection: map[string]string{"ca": "/x", "fingerprint": "ab", "nossl": ""}},
	} {
		got, err := parse(strings.Fields(line))
		if err != nil {
			t.Errorf("%q: %v", line, err)
			continue
		}
		if diff := cmp.Diff(want, got, both); diff != "" {
			t.Errorf("%q:\n%s", line, diff)
		}
	}
	for line, want := range map[string]string{
		"a=b pif-list": "comes first", "pif-list x": "neither", "pif-list -x": "unknown switch", "pif-list -pw": "needs a value", "pif-list =x": "no key",
	} {
		if _, err := parse(strings.Fields(line)); err == nil || !strings.HasPrefix(err.Error(), "Syntax error: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", line, err, want)
		}
	}
}

func TestExtraSettings(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]string{
		"":                                   nil,
		`server=h,password=a\,b\\c,port=443`: {"server": "h", "password": `a,b\c`, "port": "443"},
		"-s,h,-u,root,-pw,secret,--nossl":    {"server": "h", "username": "root", "password": "secret", "nossl": "true"},
		"username=root,password=,passwordfile=/f": {"username": "root", "password": "", "passwordfile": "/f"},
		`password=a\b`: {"password": `a\b`},
	} {
		got, err := extraSettings(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v\n%s", text, err, diff)
		}
	}
	for _, text := range []string{"pif-list", "colour=red", "-s", "pif-list,--minimal"} {
		if got, err := extraSettings(text); err == nil {
			t.Errorf("%q is taken as %v", text, got)
		}
	}
}

// FuzzParse: no command line is too odd, and what XE_EXTRA_ARGS escapes comes out as it was.
func FuzzParse(f *testing.F) {
	f.Add("pif-list\x00-s\x00h\x00a=b\x00--minimal")
	f.Add(`-pw` + "\x00" + `a\,b`)
	f.Fuzz(func(t *testing.T, line string) {
		a, err := parse(strings.Split(line, "\x00"))
		if (a == nil) == (err == nil) {
			t.Errorf("%q: %v, %v", line, a, err)
		}
		if line == "" {
			return
		}
		if got := splitEscaped(strings.NewReplacer(`\`, `\\`, `,`, `\,`).Replace(line)); len(got) != 1 || got[0] != line {
			t.Errorf("%q comes back as %q", line, got)
		}
	})
}
