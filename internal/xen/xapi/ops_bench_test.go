package xapi

import (
	"fmt"
	"slices"
	"testing"

	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/storetest"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// BenchmarkTunnels makes and destroys 20 networks with a tunnel on each of 8 hosts, whose agents
// answer at once: what the pool itself takes of the time from tunnel.create to ping.
func BenchmarkTunnels(b *testing.B) {
	const hosts, networks = 8, 20
	s := started(b, Options{Store: storetest.Open(b, b.TempDir())})
	var transports []string
	for n := range hosts {
		m := machine(n + 1)
		report(b, s, m)
		transports = append(transports, pifOf(s, m.Host, "ens3").Ref)
	}
	agent(b, s, changing(reportBridges))
	for b.Loop() {
		each(b, networks, func(n int) error {
			_, err := called(s, "network.create", map[string]any{"args": model.Record{"name_label": fmt.Sprint(n)}})
			return err
		})
		var made []*objects.Object
		for n := range networks {
			made = append(made, first(s.now(), "network", "name_label", fmt.Sprint(n)))
		}
		each(b, networks*hosts, func(n int) error {
			_, err := called(s, "tunnel.create", map[string]any{"transport_PIF": transports[n%hosts], "network": made[n/hosts].Ref, "protocol": "gre"})
			return err
		})
		b.StopTimer()
		tunnels := slices.Collect(objects.Table("tunnel").All(s.now()))
		each(b, len(tunnels), func(n int) error {
			_, err := called(s, "tunnel.destroy", map[string]any{"self": tunnels[n].Ref})
			return err
		})
		each(b, networks, func(n int) error {
			_, err := called(s, "network.destroy", map[string]any{"self": made[n].Ref})
			return err
		})
		b.StartTimer()
	}
}

// each makes n calls at once.
func each(t testing.TB, n int, f func(n int) error) {
	t.Helper()
	done := make(chan error, n)
	for i := range n {
		go func() { done <- f(i) }()
	}
	for range n {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkKeeper takes in the report of one host of a hundred, of which something has changed.
func BenchmarkKeeper(b *testing.B) {
	st := store.NewMemory()
	defer st.Close()
	s := started(b, Options{Store: st})
	for n := range 100 {
		m := machine(n % 10)
		m.ID = fmt.Sprintf("00000000-0000-0000-0000-%012d", n)
		m.Host, m.Name = refPrefix+m.ID, fmt.Sprint("m", n)
		report(b, s, m)
	}
	m := machine(1)
	n := int64(0)
	for b.Loop() {
		n++
		again := *m
		again.Memory[1] = n
		if err := s.update(b.Context(), func(tx *records.Tx) error { return objects.HostReports.Put(tx, &again) }); err != nil {
			b.Fatal(err)
		}
		host, _ := objects.Table("host").Peek(s.now(), m.Host)
		err := s.await(b.Context(), func(r records.Reader) (bool, error) {
			metrics, ok := objects.Table("host_metrics").Peek(r, host.Text("metrics"))
			return ok && metrics.Int("memory_free") == n, nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
