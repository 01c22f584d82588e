package explain

import (
	"errors"
	"iter"
	"net/netip"

	"heddle/internal/api/operator"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
)

// Turn is the verdict of a question, and the one that it had before, as the server simulates it:
// connections of the past are not recorded.
type Turn struct {
	Verdict operator.Verdict
	// Before is the verdict in the last snapshot that was looked at, "" if there was no answer,
	// which Fault explains. It is Verdict if no other one was found.
	Before operator.Verdict
	Fault  string
	Looked int // number of earlier snapshots
}

// Turned reports whether another verdict was found.
func (t *Turn) Turned() bool { return t.Before != t.Verdict }

// Since follows a question back from a snapshot through earlier ones, the newest first, until it
// has another verdict or earlier ends: in each, because verdicts may have turned more than once,
// and an answer costs less than the way to a snapshot. What names stand for is that of the first
// one. An error is a [Fault] of the question about that.
func (w *World) Since(snap *records.Snap, caller neutron.Caller, q *operator.WhyRequest, earlier iter.Seq[*records.Snap]) (*Turn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.apply(snap)
	x, err := newInquiry(w.world, snap, caller, q)
	if err != nil {
		return nil, err
	}
	steady := *q
	steady.From, steady.To = x.from.steady(q.From), x.to.steady(q.To)
	t := &Turn{Verdict: x.verdict()}
	t.Before = t.Verdict
	for before := range earlier {
		t.Looked++
		w.apply(before)
		x, err := newInquiry(w.world, before, caller, &steady)
		var f *Fault
		switch {
		case errors.As(err, &f):
			t.Before, t.Fault = "", f.Text
		case err != nil:
			return nil, err
		default:
			t.Before = x.verdict()
		}
		if t.Turned() {
			break
		}
	}
	return t, nil
}

// steady returns the text by which an end is the same port in snapshots where it has another name.
func (e *end) steady(text string) string {
	if _, err := netip.ParseAddr(text); err == nil || e.port == nil {
		return text
	}
	return e.port.ID
}

// verdict simulates both directions.
func (x *inquiry) verdict() operator.Verdict {
	there, back := x.legs()
	return x.answer(there, back).Verdict
}
