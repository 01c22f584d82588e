package bgp

import (
	"strings"
	"testing"

	"heddle/internal/bgp/plan"
)

// TestUnreadableASNumber: the last readable AS number of a key stays in use, until the key is
// deleted.
func TestUnreadableASNumber(t *testing.T) {
	const global, own = "/calico/bgp/v1/global/as_num", "/calico/bgp/v1/host/h1/as_num"
	n := asNumbers{}
	settle := func(want string, problem string, values ...string) {
		t.Helper()
		var entries []plan.Entry
		for i, path := range []string{global, own} {
			if values[i] != "" {
				entries = append(entries, plan.Entry{Path: path, Value: []byte(values[i])})
			}
		}
		problems := n.settle(entries)
		var got []string
		for _, e := range entries {
			got = append(got, string(e.Value))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: in use are %q, want %q", values, got, want)
		}
		if (problem != "") != (len(problems) == 1) || problem != "" && problems[0].Key != problem {
			t.Errorf("%q: problems %+v, want one of %q", values, problems, problem)
		}
	}
	settle(`{"x" 65001`, "", `{"x"`, "65001")      // never readable: the plan reports it
	settle("65010 65001", "", "65010", "65001")    //
	settle("65010 65001", global, `{"x"`, "65001") // kept
	settle("65010 65001", own, "65010", "none")    //
	settle("65020", "", "65020", "")               // the host's own is deleted
	settle("65020 none", "", "65020", "none")      // and forgotten
}
