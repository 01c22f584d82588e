package neutron

import "net/netip"

// BGPSpeaker is a BGP process of a cloud, which announces what is behind its gateway networks to
// its peers (neutron-api §9). JSON names are those of services §6.
type BGPSpeaker struct {
	Standard
	LocalAS   uint32 `json:"local_as"`
	IPVersion int    `json:"ip_version"` // of what it announces
	// AdvertisesFloatingIPs has the addresses of floating IPs announced, which are of IPv4.
	AdvertisesFloatingIPs bool `json:"advertise_floating_ip_host_routes"`
	// AdvertisesNetworks has the subnets announced that are in the address scope of a gateway
	// network.
	AdvertisesNetworks bool     `json:"advertise_tenant_networks"`
	PeerIDs            []string `json:"peers"`    // differ in their addresses
	NetworkIDs         []string `json:"networks"` // the gateway networks
}

// Types of a BGPPeer's authentication.
const (
	BGPAuthNone = "none"
	BGPAuthMD5  = "md5" // RFC 2385
)

// BGPPeer is a router that speakers have sessions with (neutron-api §9). Any number of speakers may
// have it.
type BGPPeer struct {
	Standard
	PeerIP   netip.Addr `json:"peer_ip"`
	RemoteAS uint32     `json:"remote_as"`
	AuthType string     `json:"auth_type"`
	// Password is that of md5, else "". No answer has it.
	Password string `json:"password,omitempty"`
}

// BGPRoute is a destination that a speaker announces, and the router's address that it is reached
// by.
type BGPRoute struct {
	Destination netip.Prefix `json:"destination"`
	NextHop     netip.Addr   `json:"next_hop"`
}

// Append appends the route as JSON.
func (r BGPRoute) Append(b []byte) []byte {
	b = appendPrefix(append(b, `{"destination":`...), r.Destination)
	b = appendString(append(b, `,"next_hop":`...), r.NextHop.String())
	return append(b, '}')
}

// NewBGPPeer makes a peer of a request, and refuses md5 without a password. Without md5 a password
// is of no use, and is not kept.
func NewBGPPeer(v Values) (*BGPPeer, error) {
	ip, _ := v["peer_ip"].(netip.Addr)
	p := &BGPPeer{PeerIP: ip, RemoteAS: uint32(*v.Number("remote_as")), AuthType: v.Text("auth_type")}
	if p.AuthType != BGPAuthMD5 {
		return p, nil
	}
	p.Password = v.Text("password")
	return p, p.checkPassword()
}

// SetPassword changes the password of a peer with md5; one without it takes none.
func (p *BGPPeer) SetPassword(v Values) error {
	switch {
	case p.AuthType == BGPAuthMD5:
		p.Password = v.Text("password")
		return p.checkPassword()
	case v["password"] != nil:
		return Errorf(NotFound, "BgpPeerNotAuthenticated", "BGP peer %s not authenticated.", p.ID)
	}
	return nil
}

func (p *BGPPeer) checkPassword() error {
	if p.Password == "" {
		return Errorf(Invalid, "InvalidBgpPeerMd5Authentication", "A password must be supplied when using auth_type md5.")
	}
	return nil
}

// BGPReference reads the id that a request about a speaker's peers or gateway networks names.
func BGPReference(name string, value any, given bool) (string, error) {
	if !given {
		return "", badSpeaker("%s must be specified", name)
	}
	id, err := uuid(value)
	if err != nil {
		return "", badSpeaker("%s", err)
	}
	return id.(string), nil
}

func badSpeaker(format string, args ...any) *Error {
	return Errorf(Invalid, "BadRequest", "Bad bgp-speaker request: "+format+".", args...)
}
