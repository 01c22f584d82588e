package records_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/records"
)

// portLike puts what a port takes: its record, a derived one, and nine keys in all.
func portLike(w world, n int64) func(tx *records.Tx) error {
	id := fmt.Sprintf("%036d", n)
	return func(tx *records.Tx) error {
		if _, err := w.boxes.Need(tx, "box"); err != nil {
			return err
		}
		for _, l := range []string{"default", "web"} {
			if _, err := w.labels.Need(tx, l); err != nil {
				return err
			}
		}
		if err := w.things.Put(tx, &thing{ID: id, Box: "box", Name: id, Labels: []string{"default", "web"}}); err != nil {
			return err
		}
		return w.boxes.Put(tx, &box{ID: id, Shelf: "shelf", Number: int(n), Likes: []string{strings.Repeat("x", 0)}})
	}
}

func benchWorld(b *testing.B) (world, *records.DB) {
	w, db := open(b, embedded(b, backend.Embedded{}))
	update(b, db, w.puts(&shelf{ID: "shelf"}, &box{ID: "box", Shelf: "shelf"}, &label{ID: "default"}, &label{ID: "web"}))
	return w, db
}

// BenchmarkUpdate commits durably, one after another.
func BenchmarkUpdate(b *testing.B) {
	w, db := benchWorld(b)
	n := int64(0)
	for b.Loop() {
		n++
		update(b, db, portLike(w, n))
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
}

// BenchmarkUpdate16 has 16 writers.
func BenchmarkUpdate16(b *testing.B) {
	w, db := benchWorld(b)
	var n atomic.Int64
	b.SetParallelism(8) // times GOMAXPROCS
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := db.Update(b.Context(), portLike(w, n.Add(1))); err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
}

// BenchmarkUpdateTouch16 has 16 writers that must go one after another.
func BenchmarkUpdateTouch16(b *testing.B) {
	w, db := benchWorld(b)
	var n atomic.Int64
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			f := portLike(w, n.Add(1))
			_, err := db.Update(b.Context(), func(tx *records.Tx) error {
				tx.Touch("one")
				return f(tx)
			})
			if err != nil {
				b.Error(err)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
}

func BenchmarkView(b *testing.B) {
	_, db := benchWorld(b)
	for b.Loop() {
		if _, err := db.View(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkUpdateThenView is a client that looks at what it has just written.
func BenchmarkUpdateThenView(b *testing.B) {
	w, db := benchWorld(b)
	n := int64(0)
	for b.Loop() {
		n++
		update(b, db, portLike(w, n))
		if _, err := db.View(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkLargeTable updates a record of a table of 10,000, of which all have one value of an
// index.
func BenchmarkLargeTable(b *testing.B) {
	w, db := open(b, store.NewMemory())
	update(b, db, func(tx *records.Tx) error {
		for i := range 10_000 {
			if err := w.shelves.Put(tx, &shelf{ID: fmt.Sprint(i), Room: "x"}); err != nil {
				return err
			}
		}
		return nil
	})
	for b.Loop() {
		update(b, db, func(tx *records.Tx) error {
			s, err := w.shelves.Get(tx, "5000")
			if err != nil {
				return err
			}
			copied := *s
			return w.shelves.Put(tx, &copied)
		})
	}
}
