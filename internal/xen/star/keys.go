package star

// MaxKey is the greatest key: it fits VXLAN's 24 bits as well as GRE's 32. 0 is never a key.
const MaxKey = 1<<24 - 1

// NextKey is the lowest free key above the one given last, from the beginning again after the last
// one; false when none is left. used must say yes to keys that are in quarantine too: somewhere a
// leg with it may be left.
func NextKey(last uint32, used func(uint32) bool) (uint32, bool) {
	for i := range uint32(MaxKey) {
		if key := (last+i)%MaxKey + 1; !used(key) {
			return key, true
		}
	}
	return 0, false
}
