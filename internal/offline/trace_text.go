package offline

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// text writes the outcome for people.
func (f *tracedFile) text(out io.Writer) error {
	var l lines
	failed, total := 0, 0
	for _, t := range f.Scenarios {
		if t.ID != nil || t.title != "" {
			l.add("scenario %s", strings.TrimSpace(fmt.Sprint(orEmpty(t.ID), " ", t.title)))
		}
		if t.Error != "" {
			l.add("  cannot be built: %s", t.Error)
			continue
		}
		for i, s := range t.Steps {
			l.tracedStep(i+1, &s)
			if s.OK != nil {
				total++
				if !*s.OK {
					failed++
				}
			}
		}
	}
	l.add("%d of %d expectations met", total-failed, total)
	return l.writeTo(out)
}

func orEmpty(v any) any {
	if v == nil {
		return ""
	}
	return v
}

func (l *lines) tracedStep(number int, s *tracedStep) {
	verdict := ""
	if s.OK != nil {
		verdict = ": as expected"
		if !*s.OK {
			verdict = ": NOT as expected"
		}
	}
	l.add("step %d: %s%s", number, s.what, verdict)
	for _, w := range s.Walk {
		where := w.Device
		if w.Chain != "" {
			where += ", " + w.Chain
		}
		if w.Rule != "" {
			where += " " + w.Rule
		}
		l.add("  %s: %s", where, w.Text)
	}
	for _, d := range s.Deliveries {
		l.add("  delivered to %s: %s", d.Port, d.Frame)
	}
	for _, d := range s.Drops {
		l.add("  dropped by %s: %s", d.Device, d.Reason)
	}
	for _, r := range s.Logs {
		l.add("  logged by %s", r)
	}
	for _, want := range s.unmet {
		l.add("  unmet: %s", want)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Captured)) {
		l.add("  $%s = %v", name, s.Captured[name])
	}
}

// String lists the fields of a frame in the order of their names, type first.
func (f fields) String() string {
	names := slices.Sorted(maps.Keys(f))
	if i := slices.Index(names, "type"); i > 0 {
		names = append([]string{"type"}, slices.Delete(names, i, i+1)...)
	}
	var words []string
	for _, name := range names {
		switch v := f[name].(type) {
		case fields:
			words = append(words, fmt.Sprintf("%s {%s}", name, v))
		default:
			words = append(words, fmt.Sprintf("%s %v", name, v))
		}
	}
	return strings.Join(words, ", ")
}
