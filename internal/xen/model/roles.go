package model

import "slices"

// ladder are the roles of which each includes all after it.
var ladder = []Role{PoolAdmin, PoolOperator, VMPowerAdmin, VMAdmin, VMOperator, ReadOnly}

// Roles returns all of them, the mightiest first, and TunnelController, which is apart, last.
func Roles() []Role { return append(slices.Clone(ladder), TunnelController) }

// Includes reports whether r permits all that need does. An unknown role permits nothing.
func (r Role) Includes(need Role) bool {
	if r == TunnelController || need == TunnelController {
		return r == need || r == PoolAdmin || need == ReadOnly
	}
	has, needs := slices.Index(ladder, r), slices.Index(ladder, need)
	return has >= 0 && needs >= 0 && has <= needs
}
