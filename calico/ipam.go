package calico

import "net/netip"

var ipamConfigTable = table[IPAMConfig]{
	columns: []column[IPAMConfig]{
		member("strict_affinity", func(c *IPAMConfig) *bool { return &c.StrictAffinity }, asBoolean),
		member("auto_allocate_blocks", func(c *IPAMConfig) *bool { return &c.AutoAllocateBlocks }, asBoolean),
	},
	unknown: func(c *IPAMConfig) *Unknown { return &c.Unknown },
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (c *IPAMConfig) Validate() error { return c.check(options{}).of(string(KindIPAMConfig)) }

func (c *IPAMConfig) check(options) *Error {
	if !c.StrictAffinity && !c.AutoAllocateBlocks {
		return refuse("auto_allocate_blocks", false, "want it true, or strict_affinity true")
	}
	return ipamConfigTable.checkUnknown(c)
}

func (c *IPAMConfig) write(w *writer) { ipamConfigTable.write(w, c) }

var handleTable = table[Handle]{
	columns: []column[Handle]{
		member("id", func(h *Handle) *string { return &h.ID }, asText),
		member("block", func(h *Handle) *map[netip.Prefix]int { return &h.Block },
			format[map[netip.Prefix]int]{(*reader).counts, (*writer).counts, nil}),
	},
	unknown: func(h *Handle) *Unknown { return &h.Unknown },
}

// counts reads how many addresses of each block there are.
func (r *reader) counts() (m map[netip.Prefix]int) {
	r.object(func(name string) {
		p, err := netip.ParsePrefix(name)
		n := r.integer(1, 1<<31-1, "want how many addresses of the block carry the handle, 1 or more")
		switch _, twice := m[p]; {
		case r.failed != nil:
		case err != nil || p != p.Masked() || familyOf(p.Addr()) == 0:
			r.fail(r.pos, "want a block's CIDR as the name")
		case twice:
			r.fail(r.pos, "is there twice, in another spelling")
		case m == nil:
			m = map[netip.Prefix]int{p: n}
		default:
			m[p] = n
		}
	})
	return m
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (h *Handle) Validate() error { return h.check(options{}).of(string(KindIPAMHandle)) }

func (h *Handle) check(options) *Error {
	for _, p := range sortedPrefixes(h.Block) {
		field := entry("block", p.String())
		if err := checkPrefix(field, p); err != nil {
			return err
		}
		if n := h.Block[p]; n < 1 {
			return refuse(field, n, "want how many addresses of the block carry the handle, 1 or more")
		}
	}
	return first(checkText("id", h.ID), handleTable.checkUnknown(h))
}

func (h *Handle) write(w *writer) { handleTable.write(w, h) }

func (w *writer) counts(m map[netip.Prefix]int) {
	w.open('{')
	for _, p := range sortedPrefixes(m) {
		w.name(p.String())
		w.number(m[p])
	}
	w.end('}')
}

func decodeBlockAffinity([]byte, options) (any, *Error) {
	return &BlockAffinity{}, nil // peers write {} or nothing
}

func (*BlockAffinity) check(options) *Error { return nil }

func (*BlockAffinity) write(w *writer) { w.text = append(w.text, "{}"...) }

func decodeIPAMHost(value []byte, o options) (any, *Error) {
	h := &IPAMHost{}
	if len(value) > 0 {
		return nil, h.check(o)
	}
	return h, nil
}

func (*IPAMHost) check(options) *Error {
	return &Error{Reason: "nothing is stored at this key, only below it"}
}

func (*IPAMHost) write(*writer) {}
