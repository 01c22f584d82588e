package records_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"heddle/internal/store"
	"heddle/internal/store/backend"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/snapshot"
)

// A small world: shelves hold boxes, boxes hold things; things may carry labels, and boxes like
// other boxes.
type shelf struct{ ID, Room string }

type box struct {
	ID, Shelf string
	Likes     []string
	Number    int
}

type thing struct {
	ID, Box, Name string
	Labels        []string
}

type label struct{ ID string }

type world struct {
	shelves *records.Table[shelf]
	boxes   *records.Table[box]
	things  *records.Table[thing]
	labels  *records.Table[label]
}

func newWorld() world {
	var w world
	w.shelves = records.NewTable("shelf", "/t/shelves/", func(s *shelf) string { return s.ID },
		records.Index("room", func(s *shelf) []string { return []string{s.Room} }))
	w.labels = records.NewTable("label", "/t/labels/", func(l *label) string { return l.ID })
	w.boxes = records.NewTable("box", "/t/boxes/", func(b *box) string { return b.ID },
		records.Ref("shelf", w.shelves, func(b *box) []string { return []string{b.Shelf} }, records.Cascade()),
		records.Ref("likes", records.Self(), func(b *box) []string { return b.Likes }, records.ClearWith(func(b *box, target string) {
			b.Likes = slices.DeleteFunc(b.Likes, func(id string) bool { return id == target })
		})),
		records.Unique("number", func(b *box) []string {
			if b.Number == 0 {
				return nil
			}
			return []string{fmt.Sprint(b.Number)}
		}))
	w.things = records.NewTable("thing", "/t/things/", func(th *thing) string { return th.ID },
		records.Ref("box", w.boxes, func(th *thing) []string { return []string{th.Box} }, records.Refuse()),
		records.Ref("labels", w.labels, func(th *thing) []string { return th.Labels }, records.Refuse()),
		records.Unique("name", func(th *thing) []string {
			if th.Name == "" {
				return nil
			}
			return []string{th.Box + "/" + th.Name}
		}))
	return w
}

func (w world) tables() []snapshot.Table {
	return []snapshot.Table{w.shelves, w.boxes, w.things, w.labels}
}

// open returns a DB of the world over the store.
func open(t testing.TB, st store.Store) (world, *records.DB) {
	t.Helper()
	return openIn(t, t, st)
}

// openIn is open for a part of a test, which has a cleanup of its own.
func openIn(t testing.TB, part interface{ Cleanup(func()) }, st store.Store) (world, *records.DB) {
	t.Helper()
	w := newWorld()
	rep := replica.New(st, replica.Options{Watch: "/"}, w.tables()...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- rep.Run(ctx) }()
	part.Cleanup(func() {
		cancel()
		<-done
	})
	return w, records.NewDB(st, rep)
}

func embedded(t testing.TB, o backend.Embedded) *backend.Etcd {
	t.Helper()
	if o.DataDir == "" {
		o.DataDir = t.TempDir()
	}
	o.Tick = 10 * time.Millisecond
	s, err := backend.Open(t.Context(), backend.Options{Embedded: &o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func update(t testing.TB, db *records.DB, f func(tx *records.Tx) error) {
	t.Helper()
	if _, err := db.Update(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

// puts returns a transaction that puts each record into its table.
func (w world) puts(all ...any) func(tx *records.Tx) error {
	return func(tx *records.Tx) error {
		for _, r := range all {
			var err error
			switch r := r.(type) {
			case *shelf:
				err = w.shelves.Put(tx, r)
			case *box:
				err = w.boxes.Put(tx, r)
			case *thing:
				err = w.things.Put(tx, r)
			case *label:
				err = w.labels.Put(tx, r)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// keys are all keys of the store but the guards.
func keys(t testing.TB, st store.Store) []string {
	t.Helper()
	kvs, _, err := st.List(context.Background(), "/")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, kv := range kvs {
		if !strings.HasPrefix(kv.Key, "/heddle/guard/") {
			out = append(out, strings.TrimPrefix(kv.Key, "/heddle"))
		}
	}
	return out
}

func TestKeysOfRecords(t *testing.T) {
	st := store.NewMemory()
	w, db := open(t, st)
	update(t, db, w.puts(&shelf{ID: "s"}, &label{ID: "l"}, &label{ID: "m"}, &box{ID: "b", Shelf: "s", Number: 7, Likes: []string{"b"}},
		&thing{ID: "t", Box: "b", Name: "cup", Labels: []string{"l", "l", ""}}))
	want := []string{
		"/idx/box/b/box.likes/b", "/idx/box/b/thing.box/t", "/idx/label/l/thing.labels/t", "/idx/shelf/s/box.shelf/b",
		"/unique/box/number/7", "/unique/thing/name/b/cup",
		"/t/boxes/b", "/t/labels/l", "/t/labels/m", "/t/shelves/s", "/t/things/t",
	}
	if diff := cmp.Diff(want, keys(t, st)); diff != "" {
		t.Error("after creation:", diff)
	}
	update(t, db, w.puts(&thing{ID: "t", Box: "b", Name: "mug", Labels: []string{"m"}}))
	want[2], want[5] = "/idx/label/m/thing.labels/t", "/unique/thing/name/b/mug"
	if diff := cmp.Diff(want, keys(t, st)); diff != "" {
		t.Error("after an update:", diff)
	}
	update(t, db, func(tx *records.Tx) error {
		return errors.Join(w.things.Delete(tx, "t"), w.shelves.Delete(tx, "s"), w.labels.Delete(tx, "l"), w.labels.Delete(tx, "m"))
	})
	if left := keys(t, st); len(left) != 0 {
		t.Errorf("after deleting everything there are %q", left)
	}
}

func TestRefusals(t *testing.T) {
	st := store.NewMemory()
	w, db := open(t, st)
	update(t, db, w.puts(&shelf{ID: "s"}, &box{ID: "b", Shelf: "s", Number: 7}, &box{ID: "c", Shelf: "s"}, &thing{ID: "t", Box: "b", Name: "cup"}))
	before := keys(t, st)
	tests := []struct {
		name string
		f    func(tx *records.Tx) error
		want error
	}{
		{"get of a missing record", func(tx *records.Tx) error { _, err := w.boxes.Get(tx, "x"); return err }, &records.NotFoundError{Table: "box", ID: "x"}},
		{"need of a missing record", func(tx *records.Tx) error { _, err := w.boxes.Need(tx, "x"); return err }, &records.NotFoundError{Table: "box", ID: "x"}},
		{"delete of a missing record", func(tx *records.Tx) error { return w.boxes.Delete(tx, "x") }, &records.NotFoundError{Table: "box", ID: "x"}},
		{"missing target", w.puts(&thing{ID: "u", Box: "x"}), &records.NotFoundError{Table: "box", ID: "x"}},
		{"number taken", w.puts(&box{ID: "d", Shelf: "s", Number: 7}), &records.TakenError{Table: "box", Name: "number", Value: "7", By: "b"}},
		{"number taken within", w.puts(&box{ID: "d", Shelf: "s", Number: 8}, &box{ID: "e", Shelf: "s", Number: 8}),
			&records.TakenError{Table: "box", Name: "number", Value: "8", By: "d"}},
		{"in use", func(tx *records.Tx) error { return w.boxes.Delete(tx, "b") },
			&records.InUseError{Table: "box", ID: "b", ByTable: "thing", Field: "box", IDs: []string{"t"}}},
		{"in use below a cascade", func(tx *records.Tx) error { return w.shelves.Delete(tx, "s") },
			&records.InUseError{Table: "box", ID: "b", ByTable: "thing", Field: "box", IDs: []string{"t"}}},
		{"in use by what was just made", func(tx *records.Tx) error {
			return errors.Join(w.puts(&thing{ID: "u", Box: "c"})(tx), w.boxes.Delete(tx, "c"))
		}, &records.InUseError{Table: "box", ID: "c", ByTable: "thing", Field: "box", IDs: []string{"u"}}},
	}
	for _, tt := range tests {
		_, err := db.Update(t.Context(), tt.f)
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			err = joined.Unwrap()[0]
		}
		if diff := cmp.Diff(tt.want, err); diff != "" {
			t.Errorf("%s: %v\n%s", tt.name, err, diff)
		}
	}
	if diff := cmp.Diff(before, keys(t, st)); diff != "" {
		t.Error("something was written:", diff)
	}
}

func TestClearAndPassOn(t *testing.T) {
	st := store.NewMemory()
	w, db := open(t, st)
	update(t, db, w.puts(&shelf{ID: "s"}, &box{ID: "b", Shelf: "s", Number: 7}, &box{ID: "c", Shelf: "s", Number: 8}))
	update(t, db, w.puts(&box{ID: "c", Shelf: "s", Number: 8, Likes: []string{"b", "c"}}))
	update(t, db, func(tx *records.Tx) error {
		if err := w.boxes.Delete(tx, "b"); err != nil {
			return err
		}
		return w.boxes.Put(tx, &box{ID: "d", Shelf: "s", Number: 7})
	})
	snap, err := db.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := w.boxes.Get(snap, "c")
	if diff := cmp.Diff(&box{ID: "c", Shelf: "s", Number: 8, Likes: []string{"c"}}, c); diff != "" {
		t.Error(err, diff)
	}
	want := []string{"/idx/box/c/box.likes/c", "/idx/shelf/s/box.shelf/c", "/idx/shelf/s/box.shelf/d",
		"/unique/box/number/7", "/unique/box/number/8", "/t/boxes/c", "/t/boxes/d", "/t/shelves/s"}
	if diff := cmp.Diff(want, keys(t, st)); diff != "" {
		t.Error(diff)
	}
	if kv, _ := st.Get(t.Context(), "/heddle/unique/box/number/7"); string(kv.Value) != "d" {
		t.Errorf("number 7 belongs to %q, want d", kv.Value)
	}
}

// A transaction sees what it has written, in order, in every way of reading, and may write while it
// reads.
func TestReadsOwnWrites(t *testing.T) {
	w, db := open(t, store.NewMemory())
	update(t, db, w.puts(&shelf{ID: "b", Room: "x"}, &shelf{ID: "d", Room: "x"}, &shelf{ID: "f", Room: "y"}))
	list := func(r records.Reader) string {
		var out []string
		for s := range w.shelves.All(r) {
			out = append(out, s.ID+s.Room)
		}
		out = append(out, "|")
		for s := range w.shelves.By(r, "room", "x") {
			out = append(out, s.ID)
		}
		out = append(out, "|", fmt.Sprint(w.shelves.CountBy(r, "room", "x"), w.shelves.Count(r)))
		return strings.Join(out, " ")
	}
	update(t, db, func(tx *records.Tx) error {
		if got, want := list(tx), "bx dx fy | b d | 2 3"; got != want {
			t.Errorf("before: %s, want %s", got, want)
		}
		err := errors.Join(w.puts(&shelf{ID: "a", Room: "x"}, &shelf{ID: "c", Room: "y"}, &shelf{ID: "d", Room: "y"}, &shelf{ID: "g", Room: "x"})(tx),
			w.shelves.Delete(tx, "b"))
		if got, want := list(tx), "ax cy dy fy gx | a g | 2 5"; got != want {
			t.Errorf("after writing: %s, want %s", got, want)
		}
		for s := range w.shelves.All(tx) {
			err = errors.Join(err, w.shelves.Delete(tx, s.ID))
		}
		for s := range w.shelves.All(tx) {
			t.Errorf("%v was not deleted", s)
		}
		return err
	})
}

// Boxes made at once on one shelf must not conflict; deleting the shelf meanwhile wins or loses as
// a whole.
func TestConcurrentChildren(t *testing.T) {
	w, db := open(t, embedded(t, backend.Embedded{NoFsync: true}))
	update(t, db, w.puts(&shelf{ID: "s"}))
	runs := make([]int, 32)
	var all sync.WaitGroup
	for i := range runs {
		all.Go(func() {
			_, err := db.Update(t.Context(), func(tx *records.Tx) error {
				runs[i]++
				if _, err := w.shelves.Need(tx, "s"); err != nil {
					return err
				}
				return w.boxes.Put(tx, &box{ID: fmt.Sprint(i), Shelf: "s", Number: i + 1})
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if slices.Max(runs) != 1 {
		t.Errorf("runs of each transaction: %v, want one", runs)
	}
	snap, _ := db.View(t.Context())
	if n := w.boxes.CountBy(snap, "shelf", "s"); n != len(runs) {
		t.Errorf("%d boxes, want %d", n, len(runs))
	}
}

// Of those who want one number, one gets it and the others are told who.
func TestConcurrentUnique(t *testing.T) {
	st := embedded(t, backend.Embedded{NoFsync: true})
	w, db := open(t, st)
	w2, db2 := open(t, st)
	update(t, db, w.puts(&shelf{ID: "s"}))
	errs := make([]error, 16)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			w, db := w, db
			if i%2 == 1 {
				w, db = w2, db2
			}
			_, errs[i] = db.Update(t.Context(), w.puts(&box{ID: fmt.Sprint(i), Shelf: "s", Number: 7}))
		})
	}
	all.Wait()
	got := 0
	for _, err := range errs {
		var taken *records.TakenError
		switch {
		case err == nil:
			got++
		case !errors.As(err, &taken):
			t.Error(err)
		}
	}
	if got != 1 {
		t.Errorf("%d got the number, want one", got)
	}
}

// Touch makes read-and-count rules exact, in one process and across two.
func TestTouch(t *testing.T) {
	st := embedded(t, backend.Embedded{NoFsync: true})
	w, db := open(t, st)
	w2, db2 := open(t, st)
	const limit = 10
	full := errors.New("full")
	var all sync.WaitGroup
	for i := range 24 {
		all.Go(func() {
			w, db := w, db
			if i%2 == 1 {
				w, db = w2, db2
			}
			_, err := db.Update(t.Context(), func(tx *records.Tx) error {
				tx.Touch("room/x")
				if w.shelves.CountBy(tx, "room", "x") >= limit {
					return full
				}
				return w.shelves.Put(tx, &shelf{ID: fmt.Sprint(i), Room: "x"})
			})
			if err != nil && !errors.Is(err, full) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	snap, _ := db.View(t.Context())
	if n := w.shelves.CountBy(snap, "room", "x"); n != limit {
		t.Errorf("%d shelves, want exactly %d", n, limit)
	}
}

// Mark and Heed keep a rule exact while most transactions do not wait for each other: those far
// from the limit only let those near it know.
func TestMarkAndHeed(t *testing.T) {
	st := embedded(t, backend.Embedded{NoFsync: true})
	w, db := open(t, st)
	const limit, near = 40, 24
	full := errors.New("full")
	add := func(name string, n int) error {
		_, err := db.Update(t.Context(), func(tx *records.Tx) error {
			count := w.shelves.CountBy(tx, "room", "x") + n
			switch {
			case count > limit:
				tx.Heed("room/x")
				return full
			case n > 1 || count > limit-near:
				tx.Heed("room/x")
				tx.Touch("room/x/near")
			default:
				tx.Heed("room/x/near")
				tx.Mark("room/x/far")
			}
			for i := range n {
				if err := w.shelves.Put(tx, &shelf{ID: fmt.Sprint(name, "-", i), Room: "x"}); err != nil {
					return err
				}
			}
			return nil
		})
		return err
	}
	var all sync.WaitGroup
	for i := range 24 {
		all.Go(func() {
			n := 1
			if i%8 == 0 {
				n = 12
			}
			if err := add(fmt.Sprint(i), n); err != nil && !errors.Is(err, full) {
				t.Error(err)
			}
		})
	}
	all.Wait()
	snap, _ := db.View(t.Context())
	if n := w.shelves.CountBy(snap, "room", "x"); n > limit || n < limit-12 {
		t.Errorf("%d shelves of at most %d", n, limit)
	}
}

// A refusal on an old snapshot is checked against a new one: the other server has just deleted the
// last box.
func TestErrorsAreFresh(t *testing.T) {
	st := embedded(t, backend.Embedded{NoFsync: true})
	w, db := open(t, st)
	w2, db2 := open(t, st)
	update(t, db, w.puts(&shelf{ID: "s"}, &box{ID: "b", Shelf: "s"}))
	for i := range 50 {
		update(t, db, w.puts(&thing{ID: fmt.Sprint(i), Box: "b"}))
		update(t, db2, func(tx *records.Tx) error { return w2.things.Delete(tx, fmt.Sprint(i)) })
		update(t, db, func(tx *records.Tx) error { return w.boxes.Delete(tx, "b") })
		update(t, db2, w2.puts(&box{ID: "b", Shelf: "s"}))
	}
}

// A delete takes along what a transaction can hold, and is refused as a whole when there is more.
func TestLargeDelete(t *testing.T) {
	st := embedded(t, backend.Embedded{NoFsync: true})
	w, db := open(t, st)
	const n = 1200 // of three keys each
	made := 0
	fill := func() {
		update(t, db, func(tx *records.Tx) error {
			all := []any{&shelf{ID: "s"}}
			for i := range n {
				all = append(all, &box{ID: fmt.Sprint(made + i), Shelf: "s", Number: made + i + 1})
			}
			return w.puts(all...)(tx)
		})
		made += n
	}
	remove := func(tx *records.Tx) error { return w.shelves.Delete(tx, "s") }
	fill()
	update(t, db, remove)
	if left := keys(t, st); len(left) != 0 {
		t.Errorf("%d keys are left", len(left))
	}

	fill()
	fill()
	before := keys(t, st)
	if _, err := db.Update(t.Context(), remove); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("delete of %d boxes: %v, want ErrTooLarge", 2*n, err)
	}
	if after := keys(t, st); len(after) != len(before) {
		t.Errorf("the refused delete left %d of %d keys", len(after), len(before))
	}
}

func TestSplitPrefix(t *testing.T) {
	type state struct{ Host, Port string }
	ports := records.NewTable("state", "/t/state/*/ports/", func(s *state) string { return s.Host + "/" + s.Port })
	alive := records.NewTable("alive", "/t/state/*/alive", func(s *state) string { return s.Host })
	st := store.NewMemory()
	rep := replica.New(st, replica.Options{}, ports, alive)
	go rep.Run(t.Context())
	db := records.NewDB(st, rep)
	lease, _ := st.Grant(t.Context(), time.Minute)
	update(t, db, func(tx *records.Tx) error {
		return errors.Join(ports.PutLeased(tx, &state{"h", "1"}, lease), ports.PutLeased(tx, &state{"h", "2/3"}, lease), alive.PutLeased(tx, &state{Host: "h"}, lease))
	})
	if diff := cmp.Diff([]string{"/t/state/h/alive", "/t/state/h/ports/1", "/t/state/h/ports/2/3"}, keys(t, st)); diff != "" {
		t.Error(diff)
	}
	snap, _ := db.View(t.Context())
	if _, err := ports.Get(snap, "h/2/3"); err != nil || ports.Count(snap) != 2 || alive.Count(snap) != 1 {
		t.Errorf("%d ports, %d alive, %v", ports.Count(snap), alive.Count(snap), err)
	}
	if err := st.Revoke(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if snap, _ = db.View(t.Context()); ports.Count(snap)+alive.Count(snap) != 0 {
		t.Error("records outlive their lease")
	}
}

// Whatever many writers on two servers do at once, the keys between records stay in order.
func TestConcurrentRules(t *testing.T) {
	st := embedded(t, backend.Embedded{NoFsync: true})
	var all sync.WaitGroup
	for range 2 {
		w, db := open(t, st)
		for g := range 4 {
			all.Go(func() {
				gen := rapid.SliceOfN(steps(w), 1, 4)
				for i := range 60 {
					steps := gen.Example(g*1000 + i)
					_, err := db.Update(t.Context(), func(tx *records.Tx) error {
						for _, s := range steps {
							if err := s.tx(tx); err != nil && outcome(err) != notFound {
								return err
							}
						}
						return nil
					})
					switch outcome(err) {
					case fine, inUse, taken:
					default:
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	w := newWorld()
	if err := records.Verify(t.Context(), st, w.shelves, w.boxes, w.things, w.labels); err != nil {
		t.Error(err)
	}
}

func TestVerifyFindsFaults(t *testing.T) {
	st := store.NewMemory()
	w, db := open(t, st)
	update(t, db, w.puts(&shelf{ID: "s"}, &box{ID: "b", Shelf: "s", Number: 7}))
	for _, tt := range []struct {
		op   store.Op
		want string
	}{
		{store.Op{Key: "/heddle/unique/box/number/8", Value: []byte("b")}, "/heddle/unique/box/number/8 is left over"},
		{store.Op{Key: "/heddle/unique/box/number/7", Value: []byte("c")}, `/heddle/unique/box/number/7 is "c", want "b"`},
		{store.Op{Key: "/heddle/unique/box/number/7", Delete: true}, "/heddle/unique/box/number/7 is missing"},
		{store.Op{Key: "/heddle/idx/shelf/s/box.shelf/b", Delete: true}, "/heddle/idx/shelf/s/box.shelf/b is missing"},
		{store.Op{Key: "/t/shelves/s", Delete: true}, "box b refers to shelf s, which is not there"},
		{store.Op{Key: "/t/labels/x", Value: []byte("{")}, "/t/labels/x: unexpected end of JSON input"},
		{store.Op{Key: "/t/labels/x", Value: []byte(`{"ID":"y"}`)}, `/t/labels/x: the record says that its id is "y"`},
	} {
		bad := store.NewMemory()
		kvs, _, _ := st.List(t.Context(), "/")
		var ops []store.Op
		for _, kv := range kvs {
			if kv.Key != tt.op.Key {
				ops = append(ops, store.Op{Key: kv.Key, Value: kv.Value})
			}
		}
		if !tt.op.Delete {
			ops = append(ops, tt.op)
		}
		if _, err := bad.Commit(t.Context(), nil, ops); err != nil {
			t.Fatal(err)
		}
		if err := records.Verify(t.Context(), st, w.labels); err != nil {
			t.Error("other tables' keys:", err)
		}
		err := records.Verify(t.Context(), bad, w.shelves, w.boxes, w.things, w.labels)
		if err == nil || err.Error() != tt.want {
			t.Errorf("%v; want %s", err, tt.want)
		}
	}
}

// Keys of no table are part of their transaction: written with it, not without it, the last word
// winning.
func TestKeysOfNoTable(t *testing.T) {
	st := store.NewMemory()
	w, db := open(t, st)
	value := func(key string) string {
		kv, err := st.Get(t.Context(), key)
		if errors.Is(err, store.ErrNotFound) {
			return "-"
		}
		return string(kv.Value)
	}
	update(t, db, func(tx *records.Tx) error {
		tx.PutKey("/other/a", []byte("old"))
		tx.PutKey("/other/a", []byte("new"))
		tx.DeleteKey("/other/b")
		tx.PutKey("/other/b", []byte("b"))
		tx.PutKey("/other/c", []byte("c"))
		tx.DeleteKey("/other/c")
		return w.shelves.Put(tx, &shelf{ID: "s"})
	})
	if a, b, c := value("/other/a"), value("/other/b"), value("/other/c"); a != "new" || b != "b" || c != "-" {
		t.Errorf("written: %q, %q, %q", a, b, c)
	}
	refused := errors.New("refused")
	if _, err := db.Update(t.Context(), func(tx *records.Tx) error { tx.DeleteKey("/other/a"); return refused }); !errors.Is(err, refused) || value("/other/a") != "new" {
		t.Errorf("after a refusal: %v, %q", err, value("/other/a"))
	}
	runs := 0
	update(t, db, func(tx *records.Tx) error {
		runs++
		kv, err := st.Get(t.Context(), "/other/a")
		if err != nil {
			return err
		}
		if runs == 1 { // somebody else comes in between
			if _, err := st.Commit(t.Context(), nil, []store.Op{{Key: "/other/a", Value: []byte("theirs")}}); err != nil {
				return err
			}
		}
		tx.ExpectKey("/other/a", kv.ModRevision)
		tx.PutKey("/other/a", append([]byte("after "), kv.Value...))
		return nil
	})
	if got := value("/other/a"); got != "after theirs" || runs != 2 {
		t.Errorf("after %d runs: %q", runs, got)
	}
}
