package tunnel

import (
	"fmt"
	"strings"
	"testing"

	"heddle/internal/store/backend"
	"heddle/internal/store/storetest"
)

// TestStoreSetBack restores the etcd to an older state, under a controller that runs and before one
// starts: it leads again by itself, and the switches obey it although they obeyed leaders with
// later terms, which the store has forgotten.
func TestStoreSetBack(t *testing.T) {
	t.Parallel()
	for name, running := range map[string]bool{"while one leads": true, "before one starts": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 2)
			network, tunnels := l.star("gre")
			etcd := storetest.StartSingle(t)
			open := func() *backend.Etcd {
				t.Helper()
				st, err := backend.Open(t.Context(), backend.Options{Cluster: &backend.Cluster{Endpoints: []string{etcd.Endpoint}, SkipLimits: true}})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { st.Close() })
				return st
			}
			controller := func() (stop func()) {
				_, stop = l.controller(open())
				return stop
			}
			stop := controller()
			l.active(tunnels, 0, 1)
			stop()
			restore := etcd.Save(t)
			old := open()
			for i := range 100 {
				storetest.Put(t, old, "/filler", fmt.Sprint(i))
			}
			stop = controller()
			l.active(tunnels, 0, 1)
			before := l.sign()
			if !running {
				stop()
			}
			restore()
			if !running {
				controller()
			}
			l.until("a switch obeys a leader of the restored store", func() bool {
				identity, _, _ := strings.Cut(before, "/")
				now := l.sign()
				return now != "" && !strings.HasPrefix(now, identity+"/")
			})
			l.vsctl(l.hosts[0], "del-port", l.ourPort(l.hosts[0]))
			l.until("the port is back", func() bool { return l.ourPort(l.hosts[0]) != "" })
			l.reach()
			l.call("tunnel.destroy", tunnels[1])
			l.until("no ports of "+network, func() bool { return l.ourPort(l.hosts[0]) == "" && l.ourPort(l.hosts[1]) == "" })
			said := l.log.String()
			if want := "the store was replaced or restored to an older state"; running && !strings.Contains(said, want) {
				t.Errorf("the log does not say: %s", want)
			}
			if want := "its terms begin anew"; !strings.Contains(said, want) {
				t.Errorf("the log does not say: %s", want)
			}
		})
	}
}

// sign returns the sign that the first host's switch obeys; "" if it obeys none or that just
// changes.
func (l *lab) sign() string {
	out, err := l.hosts[0].Vsctl("--if-exists", "get", "Open_vSwitch", ".", "external_ids:"+signKey)
	if err != nil {
		return ""
	}
	return strings.Trim(strings.TrimSpace(out), `"`)
}
