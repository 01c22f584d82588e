package records_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"heddle/internal/store"
	"heddle/internal/store/records"
)

// model is the world as plain maps, with the rules spelled out by hand.
type model struct {
	shelves map[string]shelf
	boxes   map[string]box
	things  map[string]thing
	labels  map[string]label
}

func newModel() model {
	return model{map[string]shelf{}, map[string]box{}, map[string]thing{}, map[string]label{}}
}

func (m model) clone() model {
	return model{maps.Clone(m.shelves), maps.Clone(m.boxes), maps.Clone(m.things), maps.Clone(m.labels)}
}

// Outcomes that the model predicts.
const (
	fine     = "fine"
	notFound = "not found"
	taken    = "taken"
	inUse    = "in use"
)

func outcome(err error) string {
	var n *records.NotFoundError
	var t *records.TakenError
	var u *records.InUseError
	switch {
	case err == nil:
		return fine
	case errors.As(err, &n):
		return notFound
	case errors.As(err, &t):
		return taken
	case errors.As(err, &u):
		return inUse
	}
	return err.Error()
}

func (m model) putBox(b box) string {
	for id, other := range m.boxes {
		if id != b.ID && b.Number != 0 && other.Number == b.Number {
			return taken
		}
	}
	if _, ok := m.shelves[b.Shelf]; !ok && b.Shelf != "" {
		return notFound
	}
	for _, l := range b.Likes {
		if _, ok := m.boxes[l]; !ok && l != b.ID && l != "" {
			return notFound
		}
	}
	m.boxes[b.ID] = b
	return fine
}

func (m model) putThing(t thing) string {
	for id, other := range m.things {
		if id != t.ID && t.Name != "" && other.Name == t.Name && other.Box == t.Box {
			return taken
		}
	}
	if _, ok := m.boxes[t.Box]; !ok && t.Box != "" {
		return notFound
	}
	for _, l := range t.Labels {
		if _, ok := m.labels[l]; !ok && l != "" {
			return notFound
		}
	}
	m.things[t.ID] = t
	return fine
}

func (m model) deleteShelf(id string) string {
	if _, ok := m.shelves[id]; !ok {
		return notFound
	}
	var gone []string
	for _, b := range m.boxes {
		if b.Shelf == id {
			gone = append(gone, b.ID)
		}
	}
	for _, t := range m.things {
		if slices.Contains(gone, t.Box) {
			return inUse
		}
	}
	delete(m.shelves, id)
	m.dropBoxes(gone)
	return fine
}

func (m model) deleteBox(id string) string {
	if _, ok := m.boxes[id]; !ok {
		return notFound
	}
	for _, t := range m.things {
		if t.Box == id {
			return inUse
		}
	}
	m.dropBoxes([]string{id})
	return fine
}

func (m model) dropBoxes(gone []string) {
	for _, id := range gone {
		delete(m.boxes, id)
	}
	for id, b := range m.boxes {
		b.Likes = slices.DeleteFunc(slices.Clone(b.Likes), func(l string) bool { return slices.Contains(gone, l) })
		m.boxes[id] = b
	}
}

func (m model) deleteLabel(id string) string {
	if _, ok := m.labels[id]; !ok {
		return notFound
	}
	for _, t := range m.things {
		if slices.Contains(t.Labels, id) {
			return inUse
		}
	}
	delete(m.labels, id)
	return fine
}

// keys are those that the store should have.
func (m model) keys() []string {
	set := map[string]bool{}
	for id := range m.shelves {
		set["/t/shelves/"+id] = true
	}
	for id := range m.labels {
		set["/t/labels/"+id] = true
	}
	for id, b := range m.boxes {
		set["/t/boxes/"+id] = true
		if b.Shelf != "" {
			set["/idx/shelf/"+b.Shelf+"/box.shelf/"+id] = true
		}
		for _, l := range b.Likes {
			set["/idx/box/"+l+"/box.likes/"+id] = true
		}
		if b.Number != 0 {
			set[fmt.Sprintf("/unique/box/number/%d", b.Number)] = true
		}
	}
	for id, t := range m.things {
		set["/t/things/"+id] = true
		if t.Box != "" {
			set["/idx/box/"+t.Box+"/thing.box/"+id] = true
		}
		for _, l := range t.Labels {
			set["/idx/label/"+l+"/thing.labels/"+id] = true
		}
		if t.Name != "" {
			set["/unique/thing/name/"+t.Box+"/"+t.Name] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// step is one operation, on the model and in a transaction.
type step struct {
	text  string
	model func(model) string
	tx    func(*records.Tx) error
}

func steps(w world) *rapid.Generator[step] {
	id := rapid.SampledFrom([]string{"a", "b", "c"})
	maybe := rapid.SampledFrom([]string{"a", "b", "c", ""})
	ids := rapid.SliceOfNDistinct(id, 0, 2, rapid.ID[string])
	return rapid.Custom(func(t *rapid.T) step {
		switch rapid.IntRange(0, 7).Draw(t, "op") {
		case 0:
			r := shelf{ID: id.Draw(t, "id"), Room: maybe.Draw(t, "room")}
			return step{fmt.Sprintf("put %+v", r), func(m model) string { m.shelves[r.ID] = r; return fine }, w.puts(&r)}
		case 1:
			r := label{ID: id.Draw(t, "id")}
			return step{fmt.Sprintf("put label %+v", r), func(m model) string { m.labels[r.ID] = r; return fine }, w.puts(&r)}
		case 2:
			r := box{ID: id.Draw(t, "id"), Shelf: maybe.Draw(t, "shelf"), Number: rapid.IntRange(0, 3).Draw(t, "number"), Likes: ids.Draw(t, "likes")}
			return step{fmt.Sprintf("put %+v", r), func(m model) string { return m.putBox(r) }, w.puts(&r)}
		case 3:
			r := thing{ID: id.Draw(t, "id"), Box: maybe.Draw(t, "box"), Name: maybe.Draw(t, "name"), Labels: ids.Draw(t, "labels")}
			return step{fmt.Sprintf("put %+v", r), func(m model) string { return m.putThing(r) }, w.puts(&r)}
		case 4:
			r := id.Draw(t, "id")
			return step{"delete shelf " + r, func(m model) string { return m.deleteShelf(r) }, func(tx *records.Tx) error { return w.shelves.Delete(tx, r) }}
		case 5:
			r := id.Draw(t, "id")
			return step{"delete box " + r, func(m model) string { return m.deleteBox(r) }, func(tx *records.Tx) error { return w.boxes.Delete(tx, r) }}
		case 6:
			r := id.Draw(t, "id")
			return step{"delete label " + r, func(m model) string { return m.deleteLabel(r) }, func(tx *records.Tx) error { return w.labels.Delete(tx, r) }}
		default:
			r := id.Draw(t, "id")
			return step{"delete thing " + r, func(m model) string {
				if _, ok := m.things[r]; !ok {
					return notFound
				}
				delete(m.things, r)
				return fine
			}, func(tx *records.Tx) error { return w.things.Delete(tx, r) }}
		}
	})
}

// Any sequence of transactions leaves the keys that the rules say, refuses what they refuse, and
// reads alike within a transaction and after it.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		st := store.NewMemory()
		w, db := openIn(t, rt, st)
		m := newModel()
		gen := rapid.SliceOfN(steps(w), 1, 6)
		for n := rapid.IntRange(1, 12).Draw(rt, "transactions"); n > 0; n-- {
			all := gen.Draw(rt, "steps")
			next := m.clone()
			var log []string
			keep := rapid.Bool().Draw(rt, "carry on after a refusal")
			_, err := db.Update(t.Context(), func(tx *records.Tx) error {
				next, log = m.clone(), nil
				for _, s := range all {
					err := s.tx(tx)
					want := s.model(next)
					log = append(log, s.text+": "+outcome(err))
					if got := outcome(err); got != want {
						rt.Fatalf("%s\nwant the last to be %s (%v)", strings.Join(log, "\n"), want, err)
					}
					if diff := cmp.Diff(next.text(), textOf(w, tx)); diff != "" {
						rt.Fatalf("within the transaction\n%s\n%s", strings.Join(log, "\n"), diff)
					}
					if err != nil && !keep {
						return err
					}
				}
				return nil
			})
			if err == nil {
				m = next
			}
			if diff := cmp.Diff(m.keys(), slices.Sorted(slices.Values(keys(t, st)))); diff != "" {
				rt.Fatalf("%s\n%s", strings.Join(log, "\n"), diff)
			}
			snap, err := db.View(t.Context())
			if err != nil {
				rt.Fatal(err)
			}
			if diff := cmp.Diff(m.text(), textOf(w, snap)); diff != "" {
				rt.Fatalf("after the transaction\n%s\n%s", strings.Join(log, "\n"), diff)
			}
		}
	})
}

// text is all records and what the indexes find.
func (m model) text() string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(m.boxes)) {
		fmt.Fprintf(&b, "%+v\n", m.boxes[id])
	}
	for _, id := range slices.Sorted(maps.Keys(m.things)) {
		fmt.Fprintf(&b, "%+v\n", m.things[id])
	}
	for _, v := range []string{"a", "b", "c"} {
		var on, likes, in []string
		rooms := 0
		for id, x := range m.boxes {
			if x.Shelf == v {
				on = append(on, id)
			}
			if slices.Contains(x.Likes, v) {
				likes = append(likes, id)
			}
		}
		for id, x := range m.things {
			if x.Box == v {
				in = append(in, id)
			}
		}
		for _, x := range m.shelves {
			if x.Room == v {
				rooms++
			}
		}
		slices.Sort(on)
		slices.Sort(likes)
		slices.Sort(in)
		fmt.Fprintf(&b, "%s: on %v likes %v in %v rooms %d\n", v, on, likes, in, rooms)
	}
	rooms := map[string]bool{}
	for _, x := range m.shelves {
		rooms[x.Room] = true
	}
	fmt.Fprintf(&b, "%d shelves in %q %d labels\n", len(m.shelves), slices.Sorted(maps.Keys(rooms)), len(m.labels))
	return b.String()
}

func textOf(w world, r records.Reader) string {
	var b strings.Builder
	for x := range w.boxes.All(r) {
		fmt.Fprintf(&b, "%+v\n", *x)
	}
	for x := range w.things.All(r) {
		fmt.Fprintf(&b, "%+v\n", *x)
	}
	for _, v := range []string{"a", "b", "c"} {
		fmt.Fprintf(&b, "%s: on %v likes %v in %v rooms %d\n", v, w.boxes.Referrers(r, "shelf", v), w.boxes.Referrers(r, "likes", v),
			w.things.Referrers(r, "box", v), w.shelves.CountBy(r, "room", v))
	}
	fmt.Fprintf(&b, "%d shelves in %q %d labels\n", w.shelves.Count(r), w.shelves.IndexValues(r, "room"), w.labels.Count(r))
	return b.String()
}
