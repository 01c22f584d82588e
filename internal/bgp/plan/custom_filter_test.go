package plan

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// verdict of a filter on a prefix: + accepted, - rejected, . not decided on.
func verdict(f Filter, p netip.Prefix) string {
	for _, r := range f {
		if r.Set.Contains(p) && r.Accept {
			return "+"
		} else if r.Set.Contains(p) {
			return "-"
		}
	}
	return "."
}

func TestCustomFilters(t *testing.T) {
	t.Parallel()
	at := prefixes("0.0.0.0/0 10.0.0.0/8 10.1.0.0/16 10.1.2.0/24 10.1.2.3/32 192.168.0.0/16")
	for text, want := range map[string]string{
		"":                                  "......",
		"accept;":                           "++++++",
		"reject; accept;":                   "------",
		"if net ~ 10.1.0.0/16 then reject;": "..---.",
		"if (net ~ 10.1.0.0/16) then { accept; }":                                                            "..+++.",
		"if net !~ 10.1.0.0/16 then reject; accept;":                                                         "--+++-",
		"if net = 10.1.0.0/16 then accept; else reject;":                                                     "--+---",
		"if net != 10.1.0.0/16 then { reject; } else { accept; }":                                            "--+---",
		"if net ~ [ 10.1.0.0/16, 192.168.0.0/16+ ] then accept;":                                             "..+..+",
		"if net ~ [ 10.1.0.0/16+ ] then accept;":                                                             "..+++.",
		"if net ~ [ 10.1.2.0/24- ] then accept;":                                                             "++++..",
		"if net ~ [ 10.1.2.0/24{8,16} ] then accept;":                                                        ".++...",
		"if net ~ [ 10.0.0.0/8{16,24} ] then accept;":                                                        "..++..",
		"if net.len > 24 then reject;":                                                                       "....-.",
		"if net.len != 16 then reject;":                                                                      "--.--.",
		"if net.len >= 8 && net.len <= 16 && net ~ 10.0.0.0/8 then accept;":                                  ".++...",
		"if net.len < 8 || net.len = 32 then accept;":                                                        "+...+.",
		"if ! (net ~ 10.0.0.0/8 && net.len = 24) then accept;":                                               "+++.++",
		"if true then if false then accept; else reject;":                                                    "------",
		"if net ~ 10.0.0.0/8 then { if net.len = 32 then accept; reject; } # the rest goes on\n/* or not */": ".---+.",
		";;": "......",
	} {
		f, err := parseCustom(IPv4, text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		got := ""
		for _, p := range at {
			got += verdict(f, p)
		}
		if got != want {
			t.Errorf("%q\ngot  %s\nwant %s of %v", text, got, want, at)
		}
	}
}

// TestCustomFiltersUnreadable: what cannot be read is said, and lets nothing out; what rejects
// beside it counts.
func TestCustomFiltersUnreadable(t *testing.T) {
	t.Parallel()
	inside, outside := netip.MustParsePrefix("10.1.2.0/24"), netip.MustParsePrefix("192.168.0.0/16")
	for text, want := range map[string]string{
		"what":                             "..",
		"print \"x\"; accept;":             "..",
		"accept":                           "..",
		"} accept;":                        "..",
		"if source = RTS_BGP then accept;": "..",
		"if source = RTS_BGP then { accept; } else reject; if net ~ 10.0.0.0/8 then reject;": "-.",
		"if net ~ 10.0.0.0/8 then { reject; nonsense; } accept;":                             "-.",
		"if net ~ 10.0.0.0/8 then { nonsense; } reject;":                                     "--",
		"if net ~ 10.0.0.1/8 then accept;":                                                   "..",
		"if net ~ fd00::/8 then accept;":                                                     "..",
		"if net ~ [ 10.0.0.0/8{8,33} ] then accept;":                                         "..",
		"if net ~ [ 10.0.0.0/8 then accept;":                                                 "..",
		"if net.len ~ 8 then accept;":                                                        "..",
		"accept; \x00":                                                                       "..",
		strings.Repeat("{", 1000) + "accept;":                                                "..",
		"if " + strings.Repeat("!", 1000) + "true then accept;":                              "..",
		strings.Repeat("if true then ", 1000) + "accept;":                                    "..",
		strings.Repeat("}", 1000):                                                            "..",
	} {
		f, err := parseCustom(IPv4, text)
		if err == nil {
			t.Errorf("%.80q is read", text)
		}
		if got := verdict(f, inside) + verdict(f, outside); got != want {
			t.Errorf("%.80q: %s, want %s", text, got, want)
		}
	}
}

// TestSets compares the algebra of sets with asking each set.
func TestSets(t *testing.T) {
	t.Parallel()
	prefix := rapid.Custom(func(t *rapid.T) netip.Prefix {
		a := netip.AddrFrom4([4]byte{rapid.Byte().Draw(t, "a") & 0xc0, rapid.Byte().Draw(t, "b") & 0xc0})
		return netip.PrefixFrom(a, rapid.IntRange(0, 12).Draw(t, "bits")).Masked()
	})
	set := rapid.Custom(func(t *rapid.T) Set {
		var s Set
		for range rapid.IntRange(0, 4).Draw(t, "ranges") {
			p := prefix.Draw(t, "prefix")
			low := rapid.IntRange(p.Bits(), 14).Draw(t, "low")
			s = append(s, Range{p, low, rapid.IntRange(low, 32).Draw(t, "high")})
		}
		return s
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b, p := set.Draw(t, "a"), set.Draw(t, "b"), prefix.Draw(t, "p")
		if got, want := a.intersect(b).Contains(p), a.Contains(p) && b.Contains(p); got != want {
			t.Fatalf("%v and %v have %s: %v, want %v", a, b, p, got, want)
		}
		rest := everything(IPv4)
		for _, r := range b {
			rest = rest.without(r)
		}
		if got, want := rest.Contains(p), !b.Contains(p); got != want {
			t.Fatalf("all but %v has %s: %v, want %v", b, p, got, want)
		}
		for _, r := range rest {
			if r.Prefix != r.Prefix.Masked() || r.Min < r.Prefix.Bits() || r.Max < r.Min || r.Max > 32 {
				t.Fatalf("all but %v has the range %v", b, r)
			}
		}
	})
}

// FuzzParseCustom: no text stops the reader, and one that cannot be read lets nothing out.
func FuzzParseCustom(f *testing.F) {
	f.Add("if net ~ [ 10.0.0.0/8{16,24}, 10.1.0.0/16+ ] && ! net.len > 24 then { reject; } else accept;")
	f.Add("if ( net ~ 10.0.0.0/8 ) then { accept; } # x\n/* y */ what; }")
	f.Fuzz(func(t *testing.T, text string) {
		filter, err := parseCustom(IPv4, text)
		for _, r := range filter {
			if err != nil && r.Accept {
				t.Errorf("%q cannot be read (%v) but lets out %v", text, err, r.Set)
			}
			for _, x := range r.Set {
				if x.Min < x.Prefix.Bits() || x.Max < x.Min || x.Max > 32 {
					t.Errorf("%q: range %v", text, x)
				}
			}
		}
	})
}
