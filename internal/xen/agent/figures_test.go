package agent

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// quantiles reports the median and the 99th percentile.
func quantiles(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[(len(took)*99)/100].Microseconds())/1000, "p99-ms")
	b.ReportMetric(0, "ns/op")
}

// await waits until so many of the bridges are reported.
func (h *host) await(b *testing.B, prefix string, n int) {
	b.Helper()
	_, rev, err := h.lab.st.List(b.Context(), objects.BridgeReports.Key(h.ref+"/"))
	if err != nil {
		b.Fatal(err)
	}
	changes, failed := h.lab.st.Watch(b.Context(), rev, objects.BridgeReports.Key(h.ref+"/"))
	for {
		there := 0
		for r := range objects.BridgeReports.By(h.lab.view(), "host", h.ref) {
			if r.Error == "" && len(r.Bridge.Name) >= len(prefix) && r.Bridge.Name[:len(prefix)] == prefix {
				there++
			}
		}
		if there == n {
			return
		}
		if _, ok := <-changes; !ok {
			b.Fatal(failed())
		}
	}
}

func order(h *host, bridge string) *objects.Order {
	return &objects.Order{Host: h.ref, ID: uuid.NewString(), Bridge: objects.Bridge{Name: bridge, NetworkUUID: uuid.NewString(), MAC: "02:00:00:00:aa:01", MTU: 1400, FailMode: "standalone"}}
}

// BenchmarkOrder is the time from an order's commit until the host's report of the bridge is in the
// store, on a host that has so many others.
func BenchmarkOrder(b *testing.B) {
	for _, others := range []int{0, 100} {
		b.Run(fmt.Sprintf("others=%d", others), func(b *testing.B) {
			l := newLab(b, 1)
			h := l.hosts[0]
			h.ready()
			l.write(func(tx *records.Tx) error {
				for i := range others {
					if err := objects.Orders.Put(tx, order(h, fmt.Sprintf("other%d", i))); err != nil {
						return err
					}
				}
				return nil
			})
			h.await(b, "other", others)
			var took []time.Duration
			for b.Loop() {
				o := order(h, "xapi0")
				began := time.Now()
				l.write(func(tx *records.Tx) error { return objects.Orders.Put(tx, o) })
				h.await(b, "xapi", 1)
				took = append(took, time.Since(began))
				l.write(func(tx *records.Tx) error { return objects.Orders.Delete(tx, o.Host+"/"+o.ID) })
				h.await(b, "xapi", 0)
			}
			quantiles(b, took)
		})
	}
}

// BenchmarkTwenty is the time from the commit of 20 orders on one host until all 20 bridges are
// reported.
func BenchmarkTwenty(b *testing.B) {
	l := newLab(b, 1)
	h := l.hosts[0]
	h.ready()
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		l.write(func(tx *records.Tx) error {
			for i := range 20 {
				if err := objects.Orders.Put(tx, order(h, fmt.Sprintf("xapi%d", i))); err != nil {
					return err
				}
			}
			return nil
		})
		h.await(b, "xapi", 20)
		took = append(took, time.Since(began))
		l.write(func(tx *records.Tx) error {
			for o := range objects.Orders.By(tx, "host", h.ref) {
				if err := objects.Orders.Delete(tx, o.Host+"/"+o.ID); err != nil {
					return err
				}
			}
			return nil
		})
		h.await(b, "xapi", 0)
	}
	quantiles(b, took)
}

// BenchmarkPlan measures the planning at each change, with so many tunnel networks.
func BenchmarkPlan(b *testing.B) {
	const networks, host = 1000, "OpaqueRef:h"
	st := store.NewMemory()
	rep := replica.New(st, replica.Options{Watch: "/heddle/xen/"}, objects.Tables()...)
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- rep.Run(ctx) }()
	b.Cleanup(func() { stop(); <-done; st.Close() })
	<-rep.Ready()
	l := &lab{t: b, db: records.NewDB(st, rep)}
	l.write(func(tx *records.Tx) error {
		for i := range networks {
			n := l.object("network", model.Record{"bridge": fmt.Sprintf("xapi%d", i), "MTU": int64(1500)})
			access := l.object("PIF", model.Record{"device": fmt.Sprintf("tunnel%d", i), "network": n.Ref, "host": host, "currently_attached": true})
			for _, o := range []*objects.Object{n, access, l.object("tunnel", model.Record{"access_PIF": access.Ref})} {
				if err := objects.Table(o.Class).Put(tx, o); err != nil {
					return err
				}
			}
		}
		return nil
	})
	r := l.view()
	for b.Loop() {
		if w := plan(r, host, func(string) string { return "" }); len(w.bridges) != networks {
			b.Fatalf("%d bridges", len(w.bridges))
		}
	}
}
