package wire

import (
	"maps"
	"math"
	"slices"
	"strconv"

	"heddle/internal/xen/model"
)

// timeLayout is the layout of the XenAPI's times, in UTC.
const timeLayout = "20060102T15:04:05Z"

// sortedKeys puts a map in order: people and tests compare text.
func sortedKeys[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }

// inOrder are the fields of a record by name; nil when it does not hold those of the class that t
// names, all of them and no others, as snapshots in events do, whose type names no class.
func inOrder(t model.Type, r model.Record) []*model.Field {
	c := model.Lookup(t.Class)
	if c == nil || t.Kind != model.RecordOf || len(c.Fields) != len(r) {
		return nil
	}
	fields := c.Sorted()
	for _, f := range fields {
		if _, ok := r[f.Name]; !ok {
			return nil
		}
	}
	return fields
}

// elem is the type of the elements of t, where t is known.
func elem(t model.Type) model.Type {
	if t.Elem == nil {
		return model.Type{}
	}
	return *t.Elem
}

// appendFloat appends a number that both formats know; there are none for what is not finite.
func appendFloat(b []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		f = 0
	}
	return strconv.AppendFloat(b, f, 'f', -1, 64)
}

// maxReserve bounds in bytes what is reserved at once.
const maxReserve = 4 << 20

// reserve makes room for more parts as long as the one that has been written since start, so that a
// long answer is not copied each time it doubles.
func reserve(b []byte, start, more int) []byte {
	return slices.Grow(b, min((len(b)-start)*more, maxReserve))
}
