package main

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestStatus: operators see that nothing is wrong, what servers and agents report, and then what
// is wrong.
func TestStatus(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(t)
	h := s.addHost(t, "h1", "192.0.2.11")
	agent := start(t, h.ns, h.agent("--join", s.token(t))...)

	text := succeed(t, s.ctl, "status", "--wait", "1m", "--data", s.data)
	for _, words := range []string{"nothing is wrong", "(serve) unknown, since ", "store  the embedded store, the leader: ", "certificate of the store's server: until ", "ports  0 bound, 0 active, 0 down, 0 failing", "flows 0%"} {
		if !strings.Contains(text, words) {
			t.Errorf("the status lacks %q:\n%s", words, text)
		}
	}
	var v struct {
		Hosts []struct {
			Name           string
			Answered       bool
			Tunnels        *int
			CertificateEnd string
		}
		Problems     []struct{ What, Fix string }
		Certificates []struct{ Authority *bool } // which is not printed
	}
	if err := json.Unmarshal([]byte(succeed(t, s.ctl, "status", "-o", "json", "--data", s.data)), &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Hosts) != 1 || v.Hosts[0].Name != h.name || !v.Hosts[0].Answered || v.Hosts[0].CertificateEnd == "" || len(v.Certificates) == 0 || v.Certificates[0].Authority == nil {
		t.Errorf("got %+v", v)
	}

	s.makePort(t, h)
	if text := succeed(t, s.ctl, "status", "--host", h.name, "--data", s.data); !strings.Contains(text, "TUNNEL  ADDRESS") || !strings.Contains(text, "NETWORK  ID") {
		t.Errorf("the traffic of a host is:\n%s", text)
	}
	refuse(t, s.ctl, 1, "host elsewhere could not be found", "status", "--host", "elsewhere", "--data", s.data)
	agent.stop(t)
	s.waitGone(t, h)
	refuse(t, s.ctl, 1, "WRONG  host "+h.name+" is down, and with it its ports: 1\n       to do: start its agent", "status", "--data", s.data)
	refuse(t, s.ctl, 1, "1 bound, 0 active, 1 down (vm1 on "+h.name+")", "status", "--wait", "2s", "--data", s.data)
	refuse(t, s.ctl, 2, `output format "xml": want text or json`, "status", "--data", s.data, "-o", "xml")
}

// makePort makes a network with a port on a host.
func (s *site) makePort(t *testing.T, h *host) {
	t.Helper()
	ctl := shell{s.ctl, s.data}
	ctl.run(t, "net create blue")
	ctl.run(t, "subnet create blue4 --network blue --range 10.0.0.0/24")
	ctl.run(t, "port create vm1 --network blue --host "+h.name)
}
