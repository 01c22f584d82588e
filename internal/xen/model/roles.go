package model

import "slices"

// ladder are the roles of which each includes all after it.
var ladder = []Role{PoolAdmin, PoolOperator, VMPowerAdmin, VMAdmin, VMOperator, ReadOnly}

// Roles are all of them, the mightiest first; TunnelController, which stands beside the others, is the last.
func Roles() []Role { return append(slices.Clone(ladder), TunnelController) }

// Includes says whether an account with role r may do what needs the role need. A role that is not known may do nothing.
func (r Role) Includes(need Role) bool {
	if r == TunnelController || need == TunnelController {
		return r == need || r == PoolAdmin || need == ReadOnly
	}
	has, needs := slices.Index(ladder, r), slices.Index(ladder, need)
	return has >= 0 && needs >= 0 && has <= needs
}
