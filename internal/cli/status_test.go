package cli

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestStatusOfLearners: a server that copies the store is told from one that was added and has not
// run.
func TestStatusOfLearners(t *testing.T) {
	t.Parallel()
	var v statusView
	answer := `{"cluster": [{"name": "s1", "alive": true}, {"name": "s2", "learner": true}, {"name": "", "peer_url": "https://192.0.2.3:2380", "learner": true}]}`
	if err := json.Unmarshal([]byte(answer), &v); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := printStatus(&out, v); err != nil {
		t.Fatal(err)
	}
	want := "server s2 is catching up, and has no vote yet\nserver at https://192.0.2.3:2380 was added and has not run yet\n"
	if !strings.Contains(out.String(), want) || strings.Count(out.String(), "server ") != 2 {
		t.Errorf("%s, want of the members:\n%s", &out, want)
	}
}

// TestStatusOfHosts: a host that was cut off is told from one that is down.
func TestStatusOfHosts(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := printStatusHosts(&out, []statusHost{{Name: "h1", CutOff: "it has more than 256 leases"}, {Name: "h2"}, {Name: "h3", Alive: true}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\nh1    cut off ", "\nh2    down ", "\nh3    up "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &out)
		}
	}
}

// TestStatusOfTwoServers: of a cluster that can lose no server though all are up, the status says
// so.
func TestStatusOfTwoServers(t *testing.T) {
	t.Parallel()
	const note = "the cluster has two servers, and stops when either is down"
	for members, want := range map[string]bool{
		`{"name": "s1"}`:                                                  false,
		`{"name": "s1"}, {"name": "s2"}`:                                  true,
		`{"name": "s1"}, {"learner": true}`:                               false,
		`{"name": "s1"}, {"name": "s2"}, {"name": "s3", "learner": true}`: true,
		`{"name": "s1"}, {"name": "s2"}, {"name": "s3"}`:                  false,
	} {
		var v statusView
		if err := json.Unmarshal([]byte(`{"cluster": [`+members+`]}`), &v); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := printStatus(&out, v); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), note) != want {
			t.Errorf("of %s the note is %t, want %t:\n%s", members, !want, want, &out)
		}
	}
}
