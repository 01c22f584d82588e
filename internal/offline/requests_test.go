package offline

import (
	"context"
	"strings"
	"testing"

	"heddle/internal/store/schema"
)

// TestMACAddressesFollowFromIDs: a port without a MAC address has one that follows from its id, and
// another one where a port of its network has that already.
func TestMACAddressesFollowFromIDs(t *testing.T) {
	t.Parallel()
	const id = "90000000-0000-4000-8000-000000000001"
	// macOf is the MAC address that the port gets after the other steps.
	macOf := func(steps ...string) string {
		t.Helper()
		w, end, err := newWorld(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer end()
		file := `{"steps":[` + strings.Join(append([]string{stepAbout("create", "network", '1', `{}`)}, steps...), ",") +
			`,{"op":"create","type":"port","data":{"id":"` + id + `","network_id":"` + uuidNamed('1') + `"}}]}`
		all, err := parseSteps(strings.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			if err := w.apply(&all[i]); err != nil {
				t.Fatal(err)
			}
		}
		snap, err := w.db.View(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p, err := schema.Ports.Get(snap, id)
		if err != nil {
			t.Fatal(err)
		}
		return p.MACAddress.String()
	}
	mac := macOf()
	if !strings.HasPrefix(mac, "fa:16:3e:") || macOf() != mac {
		t.Errorf("%s, and another time %s", mac, macOf())
	}
	onNetwork := func(network byte) string {
		return stepAbout("create", "port", '3', `{"network_id":"`+uuidNamed(network)+`","mac_address":"`+mac+`"}`)
	}
	if got := macOf(onNetwork('1')); got == mac || !strings.HasPrefix(got, "fa:16:3e:") {
		t.Errorf("%s where a port of the network has %s", got, mac)
	}
	if got := macOf(stepAbout("create", "network", '2', `{}`), onNetwork('2')); got != mac {
		t.Errorf("%s where a port of another network has %s", got, mac)
	}
}
