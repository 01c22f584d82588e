package calico

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// pathWriter writes the path of a key. In list mode it stops at the first missing part, which
// leaves the prefix of all matching keys; otherwise a missing part is an error.
type pathWriter struct {
	text   []byte
	list   bool // stop at what is missing
	family int  // of an address that is missing, in list mode: 4 or 6
	over   bool
	err    error
}

func (w *pathWriter) put(text string) {
	if !w.over && w.err == nil {
		w.text = append(w.text, text...)
	}
}

func (w *pathWriter) missing(what string) {
	if !w.list && w.err == nil {
		w.err = errors.New(what + " is missing")
	}
	w.over = true
}

// plain writes a name that is never escaped.
func (w *pathWriter) plain(what, name string) {
	switch {
	case w.over || w.err != nil:
	case name == "":
		w.missing(what)
	case strings.Contains(name, "/"):
		w.err = fmt.Errorf("%s %q: a slash cannot be written in it", what, name)
	default:
		w.put(name)
	}
}

// escaped writes a name in which % and / have an escape.
func (w *pathWriter) escaped(what, name string) {
	if name == "" {
		w.missing(what)
		return
	}
	if w.over || w.err != nil {
		return
	}
	for i := range len(name) {
		switch c := name[i]; c {
		case '%':
			w.text = append(w.text, "%25"...)
		case '/':
			w.text = append(w.text, "%2f"...)
		default:
			w.text = append(w.text, c)
		}
	}
}

func (w *pathWriter) fail(format string, args ...any) {
	if !w.over && w.err == nil {
		w.err = fmt.Errorf(format, args...)
	}
}

// digit writes the 4 or 6 of an address family.
func (w *pathWriter) digit(ip netip.Addr) {
	switch {
	case ip.Is4In6():
		w.fail("address %s: an IPv4 address cannot be written as one of IPv6", ip)
	case ip.Is4(), !ip.IsValid() && w.family == 4:
		w.put("4")
	case ip.Is6(), w.family == 6:
		w.put("6")
	default:
		w.missing("address")
	}
}

func (w *pathWriter) ip(ip netip.Addr) {
	switch {
	case !ip.IsValid():
		w.missing("address")
	case ip.Zone() != "":
		w.fail("address %s: a zone cannot be written", ip)
	case !w.over && w.err == nil:
		w.text = ip.AppendTo(w.text)
	}
}

// cidr writes a prefix with a dash in place of its slash.
func (w *pathWriter) cidr(p netip.Prefix) {
	switch {
	case !p.IsValid():
		w.missing("CIDR")
	case p != p.Masked():
		w.fail("CIDR %s: has bits beyond its length; want %s", p, p.Masked())
	case !w.over && w.err == nil:
		w.text = p.Addr().AppendTo(w.text)
		w.text = fmt.Appendf(w.text, "-%d", p.Bits())
	}
}

// write writes the path of some parts along a pattern. find is the inverse.
func (w *pathWriter) write(p *parts, pieces []piece) {
	address := p.ip
	if p.cidr.IsValid() {
		address = p.cidr.Addr()
	}
	w.put(root)
	for _, next := range pieces {
		w.put(next.text)
		name := p.names[next.index]
		switch next.form {
		case formFamily:
			w.digit(address)
		case formCIDR:
			w.cidr(p.cidr)
		case formIP:
			w.ip(p.ip)
		case formPlain:
			w.plain(next.name, name)
		case formEscaped:
			w.escaped(next.name, name)
		case formSetting:
			w.setting(p.kind, name)
		case formFixed:
			if name != "" && name != next.fixed {
				w.fail("name %q: want %s", name, next.fixed)
			}
			w.put(next.fixed)
		}
	}
}

// setting writes a name, unless the path would then be read as one of another kind.
func (w *pathWriter) setting(kind Kind, name string) {
	switch {
	case name == "":
		w.missing("name")
	case !isConfigName(kind, name):
		w.fail("name %q: is none of a %s", name, kind)
	default:
		w.put(name)
	}
}

func path(key Key) (string, error) {
	w, p := pathWriter{text: make([]byte, 0, 128)}, partsOf(key)
	if w.write(&p, piecesOf(key, p.legacy, false)); w.err != nil {
		return "", fmt.Errorf("key of a %s: %w", p.kind, w.err)
	}
	return string(w.text), nil
}

// Alias returns the second path at which an object may lie, because seed 001 contradicts itself
// (spec 2.3). Readers read both and prefer the key's own path; writers write only that and delete
// both. Most keys have none.
func Alias(key Key) (path string, ok bool) {
	pieces := piecesOf(key, false, true)
	if pieces == nil {
		return "", false
	}
	w, p := pathWriter{}, partsOf(key)
	if w.write(&p, pieces); w.err != nil {
		return "", false
	}
	return string(w.text), true
}

// Prefixes returns the narrowest prefixes below which all keys lie that agree with partial: a key
// of their type in which any part may be missing. With no part missing they are paths. Other keys
// may lie there too: [Matches] tells them apart. The prefixes of aliases come last.
//
//	Prefixes(WorkloadEndpointKey{Host: "h"}) = ["/calico/v1/host/h/workload/"]
//	Prefixes(PoolKey{}) = ["/calico/v1/ipam/v4/pool/", "/calico/v1/ipam/v6/pool/"]
func Prefixes(partial Key) ([]string, error) {
	p := partsOf(partial)
	var all []string
	for _, alias := range []bool{false, true} {
		pieces := piecesOf(partial, p.legacy, alias)
		if pieces == nil {
			continue
		}
		for _, family := range []int{4, 6} {
			w := pathWriter{list: true, family: family}
			w.write(&p, pieces)
			if w.err != nil && !alias {
				return nil, fmt.Errorf("keys of kind %s: %w", p.kind, w.err)
			}
			if text := string(w.text); w.err == nil && !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	}
	return all, nil
}

// Matches reports whether a key agrees with a partial one, as [Prefixes] takes it: it is of the
// same type, legacy or not, and equal wherever partial has a part.
func Matches(partial, key Key) bool {
	p, k := partsOf(partial), partsOf(key)
	same := p.kind == k.kind && p.legacy == k.legacy && agree(p.cidr, k.cidr) && agree(p.ip, k.ip)
	for i, name := range p.names {
		same = same && agree(name, k.names[i])
	}
	return same
}

func agree[T comparable](partial, part T) bool {
	var missing T
	return partial == missing || partial == part
}
