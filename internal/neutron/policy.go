package neutron

// Owner is what a policy decision needs to know of an object and of the network it is on.
type Owner struct {
	ProjectID        string
	NetworkProjectID string // subnets and ports: the project of the network; else ""
	Shared           bool   // the caller may see it, or for subnets and ports the network, because it is shared
}

// CanSee says whether the caller may see an object: an admin and its project's users, the network's owner for what is on
// the network, everyone for a shared or external network, its subnets, and a shared group. Who may not gets
// Resource.NotFound.
func CanSee(c Caller, r Resource, o Owner) bool {
	switch {
	case r == Agents:
		return c.Admin()
	case c.Owns(o.ProjectID):
		return true
	case r == Ports:
		return c.Owns(o.NetworkProjectID)
	case r == Subnets:
		return o.Shared || c.Owns(o.NetworkProjectID)
	}
	return o.Shared
}
