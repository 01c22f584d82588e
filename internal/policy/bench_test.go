package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"heddle/internal/store"
)

// BenchmarkLabelChange is the time from a write to etcd until the kernel judges by it: one
// endpoint's label changes, by which it joins or leaves a set of 200,000 addresses. The kernel is
// asked by packets: a connection is tried until its answer changes, which is why a try costs
// little: a refusal comes back at once.
func BenchmarkLabelChange(b *testing.B) {
	l := newLab(b)
	const members = 200_000
	var ops []store.Op
	for i := range members {
		a := netip.AddrFrom4([4]byte{10, 128 + byte(i>>16), byte(i >> 8), byte(i)})
		ops = append(ops, store.Op{Key: fmt.Sprintf("/calico/v1/host/h%d/workload/o/w%d/endpoint/e", 2+i%1000, i),
			Value: fmt.Appendf(nil, `{"state": "active", "name": "cali%d", "ipv4_nets": ["%s/32"], "labels": {"role": "client"}, "profile_ids": ["open"]}`, i%10000, a)})
		if len(ops) == 10_000 {
			if _, err := l.st.Commit(b.Context(), nil, ops); err != nil {
				b.Fatal(err)
			}
			ops = ops[:0]
		}
	}
	s, c := l.machine(1), l.machine(2)
	l.put("/calico/v1/Ready", "true", "/calico/v1/policy/profile/open/rules", open,
		"/calico/v1/policy/tier/default/policy/p", `{"selector": "role == 'server'", "inbound_rules": [{"src_selector": "role == 'client'"}], "outbound_rules": [{}]}`,
		s.key(), s.endpoint(`{"role": "server"}`, `["open"]`), c.key(), c.endpoint(`{}`, `["open"]`))
	began := time.Now()
	l.start()
	b.Logf("from start to all in force: %v", time.Since(began))
	kernel, err := openRules(l.hostNS)
	if err != nil {
		b.Fatal(err)
	}
	defer kernel.Close()
	changed := make(chan struct{}, 1000)
	go kernel.Watch(b.Context(), func() { changed <- struct{}{} })
	<-changed
	quiet(changed)
	var took []time.Duration
	for i := 0; b.Loop(); i++ {
		label := []string{`{"role": "client"}`, `{}`}[i%2]
		began := time.Now()
		l.put(c.key(), c.endpoint(label, `["open"]`))
		<-changed
		took = append(took, time.Since(began))
		quiet(changed)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// quiet reads what else the kernel says about a commit, until it has said nothing for a while.
func quiet(changed <-chan struct{}) {
	for {
		select {
		case <-changed:
		case <-time.After(3 * time.Millisecond):
			return
		}
	}
}
