package calico

import "net/netip"

func readIPAMConfig(r *reader) *IPAMConfig {
	c := &IPAMConfig{}
	r.members(c, &c.Unknown)
	return c
}

func (c *IPAMConfig) member(r *reader, name string) bool {
	switch name {
	case "strict_affinity":
		c.StrictAffinity = r.boolean()
	case "auto_allocate_blocks":
		c.AutoAllocateBlocks = r.boolean()
	default:
		return false
	}
	return true
}

// Validate refuses what [Encode] refuses, which calls it: the error is an [Error].
func (c *IPAMConfig) Validate() error { return c.check().of(string(KindIPAMConfig)) }

func (c *IPAMConfig) check() *Error {
	if !c.StrictAffinity && !c.AutoAllocateBlocks {
		return refuse("auto_allocate_blocks", false, "want it true, or strict_affinity true")
	}
	return checkUnknown[IPAMConfig](c.Unknown)
}

func (c *IPAMConfig) write(w *writer) {
	w.open('{')
	w.boolMember("strict_affinity", c.StrictAffinity)
	w.boolMember("auto_allocate_blocks", c.AutoAllocateBlocks)
	w.unknown(c.Unknown)
	w.end('}')
}

func readHandle(r *reader) *Handle {
	h := &Handle{}
	r.members(h, &h.Unknown)
	return h
}

func (h *Handle) member(r *reader, name string) bool {
	switch name {
	case "id":
		h.ID = r.kept()
	case "block":
		h.Block = r.counts()
	default:
		return false
	}
	return true
}

// counts reads how many addresses of each block there are.
func (r *reader) counts() (m map[netip.Prefix]int) {
	if r.null() {
		return nil
	}
	r.object(func(name string) {
		p, err := netip.ParsePrefix(name)
		n := r.integerEntry(1, 1<<31-1, "want how many addresses of the block carry the handle, 1 or more")
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
func (h *Handle) Validate() error { return h.check().of(string(KindIPAMHandle)) }

func (h *Handle) check() *Error {
	for _, p := range sortedPrefixes(h.Block) {
		field := entry("block", p.String())
		if err := checkPrefix(field, p); err != nil {
			return err
		}
		if n := h.Block[p]; n < 1 {
			return refuse(field, n, "want how many addresses of the block carry the handle, 1 or more")
		}
	}
	return first(checkText("id", h.ID), checkUnknown[Handle](h.Unknown))
}

func (h *Handle) write(w *writer) {
	w.open('{')
	w.optional("id", h.ID)
	w.name("block")
	w.open('{')
	for _, p := range sortedPrefixes(h.Block) {
		w.intMember(p.String(), h.Block[p])
	}
	w.end('}')
	w.unknown(h.Unknown)
	w.end('}')
}
