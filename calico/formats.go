package calico

import (
	"net/netip"
	"slices"
	"strings"

	"heddle/calico/selector"
)

// The formats of members that several objects have.
var (
	asText      = format[string]{(*reader).kept, (*writer).string, isZero[string]}
	asBoolean   = format[bool]{(*reader).boolean, (*writer).boolean, nil}
	asTrue      = format[bool]{(*reader).boolean, (*writer).boolean, isZero[bool]} // false is left out
	asOrder     = format[*float64]{(*reader).order, func(w *writer, f *float64) { w.float(*f) }, isZero[*float64]}
	asAddress   = format[netip.Addr]{(*reader).address, (*writer).address, isZero[netip.Addr]}
	asPrefix    = format[netip.Prefix]{(*reader).maskedPrefix, (*writer).prefix, nil}
	asPrefixes  = asList((*reader).prefix, (*writer).prefix)
	asTexts     = asList((*reader).kept, (*writer).string)
	asAddresses = omitEmpty(asList((*reader).address, (*writer).address))
	asMap       = format[map[string]string]{(*reader).stringMap, (*writer).stringMap, nil}
)

func isZero[V comparable](v V) bool {
	var zero V
	return v == zero
}

// asWord returns the format of a text that mostly is one of a few words.
func asWord(words ...string) format[string] {
	return format[string]{func(r *reader) string {
		text := r.text()
		if i := slices.Index(words, text); i >= 0 {
			return words[i]
		}
		return strings.Clone(text)
	}, (*writer).string, isZero[string]}
}

// asInteger returns the format of a number from low to high; 0 is left out.
func asInteger(low, high int, reason string) format[int] {
	return format[int]{func(r *reader) int { return r.integer(low, high, reason) }, (*writer).number, isZero[int]}
}

// asList returns the format of a list, given that of its entries. An empty one is written too.
func asList[V any](read func(r *reader) V, write func(w *writer, v V)) format[[]V] {
	return format[[]V]{
		read: func(r *reader) (list []V) {
			r.list(func(int) { list = append(list, read(r)) })
			return list
		},
		write: func(w *writer, list []V) { writeList(w, list, write) },
	}
}

// asObjects returns the format of a list of objects. An empty one is written too.
func asObjects[O any](t *table[O]) format[[]O] {
	return format[[]O]{
		read: func(r *reader) (list []O) {
			r.list(func(int) {
				list = append(list, t.start)
				t.read(r, &list[len(list)-1])
			})
			return list
		},
		write: t.writeList,
	}
}

// omitEmpty leaves out empty lists.
func omitEmpty[V any](f format[[]V]) format[[]V] {
	f.omit = func(list []V) bool { return len(list) == 0 }
	return f
}

// asSelector is the format of a selector. Empty text stands for everything that is managed.
var asSelector = format[string]{
	(*reader).selector,
	func(w *writer, text string) {
		if s, err := selector.Parse(text, w.options...); err == nil { // always: it has been checked
			text = s.String()
		}
		w.string(text)
	},
	isZero[string],
}
