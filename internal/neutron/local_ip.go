package neutron

import "net/netip"

// Modes of a local IP.
const (
	LocalIPTranslate   = "translate"
	LocalIPPassthrough = "passthrough"
)

// LocalIP is an address of a network that on each host stands for a port there (extension
// local_ip). Hosts without such a port reach the port that has the address.
type LocalIP struct {
	Standard
	LocalPortID string     `json:"local_port_id"` // has the address
	NetworkID   string     `json:"network_id"`
	Address     netip.Addr `json:"local_ip_address"` // IPv4
	Mode        string     `json:"ip_mode"`          // LocalIPTranslate or LocalIPPassthrough
}

// LocalIPAssociation makes a port the one that a local IP stands for on the port's host.
type LocalIPAssociation struct {
	LocalIPID   string     `json:"local_ip_id"`
	FixedPortID string     `json:"fixed_port_id"`
	FixedIP     netip.Addr `json:"fixed_ip"` // of the port, IPv4
}

// ID returns the id of the association, by the ids of the two.
func (a *LocalIPAssociation) ID() string { return LocalIPAssociationID(a.LocalIPID, a.FixedPortID) }

// LocalIPAssociationID returns the id of the association of a local IP with a port.
func LocalIPAssociationID(localIP, port string) string { return localIP + "_" + port }

// LocalIPAssociationView is an association with what it takes from its local IP and its port.
type LocalIPAssociationView struct {
	*LocalIPAssociation
	Address netip.Addr // of the local IP
	HostID  string     // name of the host that the port is bound to, "" for none
}

// AuthorizeLocalIPAssociation reports whether the caller may create or delete associations of a
// local IP of a project.
func AuthorizeLocalIPAssociation(c Caller, op Op, projectID string) error {
	if mayAct(c, LocalIPAssociations, op, Owner{ProjectID: projectID}) {
		return nil
	}
	return forbidden("rule:" + op.String() + "_local_ip_port_association")
}

// LocalIPAssociationNotFound is Neutron's error for a port that is not associated with a local IP.
func LocalIPAssociationNotFound(localIP, port string) *Error {
	return Errorf(NotFound, "LocalIPAssociationNotFound", "Local IP %s association with port %s could not be found.", localIP, port)
}
