package neutron

import "net/netip"

// BGPSpeaker is the BGP speaker of a router, which announces what is behind the router to its peers
// (services §6.1, neutron-api §9).
type BGPSpeaker struct {
	Standard
	LocalAS   uint32 `json:"local_as"`
	IPVersion int    `json:"ip_version"` // 4
	// RouterID is the router that it speaks for, "" while it waits for one. A router has one
	// speaker at most.
	RouterID string `json:"router_id,omitempty"`
	// AdvertisesFloatingIPs has the addresses of the router's floating IPs announced, if the
	// speaker has a gateway network.
	AdvertisesFloatingIPs bool `json:"advertise_floating_ip_host_routes"`
	// AdvertisesNetworks has the networks of machines announced that the router is on, and the
	// destinations of its extra routes.
	AdvertisesNetworks bool     `json:"advertise_tenant_networks"`
	PeerIDs            []string `json:"peers"` // differ in their addresses; none is another speaker's
	// NetworkIDs are its gateway networks. One that a router leads to gives the speaker that
	// router, and it gets no further ones.
	NetworkIDs []string `json:"networks"`
}

// Types of a BGPPeer's authentication.
const (
	BGPAuthNone = "none"
	BGPAuthMD5  = "md5" // RFC 2385
)

// BGPPeer is a router outside that a speaker has a session with (neutron-api §9). At most one
// speaker has it.
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

// CheckBGPSpeaker refuses what speakers cannot announce.
func CheckBGPSpeaker(b *BGPSpeaker) error {
	if b.IPVersion != 4 {
		return Errorf(Unsupported, "NotImplemented", "BGP speakers with ip_version %d are not supported: use 4.", b.IPVersion)
	}
	return nil
}

// CheckBGPSession refuses peers that speakers cannot have a session with.
func CheckBGPSession(p *BGPPeer) error {
	if !p.PeerIP.Is4() {
		return Errorf(Unsupported, "NotImplemented", "BGP peers with IPv6 addresses, such as %s of peer %s, are not supported.", p.PeerIP, p.ID)
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
