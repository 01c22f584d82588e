package flow

import (
	"fmt"
	"slices"
)

// Code is the reason of an end in a closed set, for programs (explain §2). Its name is stable: it
// is in answers and docs/codes.md. The zero Code is none.
type Code uint8

// Codes of the ends of packets.
const (
	CodeNoRule            Code = iota + 1 // no rule of the port's security groups accepts it
	CodeAntiSpoofing                      // its source is no address of the port that it came from
	CodeFirewall                          // a rule of a firewall denies it
	CodeFirewallDefault                   // no rule of a firewall accepts it
	CodeFilter                            // a rule of another chain denies it
	CodePortDown                          // a port on its way is administratively down
	CodeNetworkDown                       // a network on its way is administratively down
	CodeRouterDown                        // a router on its way is administratively down
	CodeNotBound                          // no host has the port that it goes to
	CodeNoCarrier                         // no live host carries its physical network
	CodeNoPath                            // nothing in the network may be what it is addressed to
	CodeNoRoute                           // a router has no route to its destination
	CodeRouteBlackhole                    // its route discards packets
	CodeRouteReject                       // its route rejects packets
	CodeNoNeighbour                       // nothing answers for the next hop
	CodeTTLExceeded                       // it has passed too many routers
	CodeAddressScope                      // its addresses mean nothing in the network that it goes to
	CodeLinkScope                         // its addresses mean nothing beyond its link
	CodeNoForward                         // routers do not forward packets with what is in its header
	CodeNotForRouter                      // a router takes no such packets for itself
	CodeNATExhausted                      // there is no port or address to translate it to
	CodeLBSource                          // the load balancer admits no clients with its source
	CodeLBNoMember                        // the load balancer has no member for it
	CodeLBDown                            // the load balancer, or the VIP that answered before, is down or gone
	CodeLBLimit                           // the load balancer has as many connections as it may have
	CodeFragment                          // it is a fragment where only whole packets are taken
	CodeMalformed                         // it cannot be read
	CodeBadSourceMAC                      // its source is a group of machines
	CodeHairpin                           // its destination is where it came from
	CodeOtherWay                          // it takes another way, by which it arrives, too
	CodeVLAN                              // its VLAN tag is none that is taken here
	CodeLoop                              // it goes round in circles
	CodeNoTunnelZone                      // its hosts share no tunnel zone
	CodeVTEPNoPeer                        // no VTEP is known to have its destination
	CodeVTEPNoNetwork                     // no network has its VNI
	CodeMetadataOnly                      // the address takes requests for metadata alone
	CodeMetadataAway                      // no metadata service runs on the host
	CodeDHCP                              // it is a DHCP message without an answer
	CodeBadObject                         // an object on its way is missing, or contradicts itself
	CodePolicy                            // a rule of a policy or a profile denies it
	CodeDefaultDeny                       // no rule of the policies of a tier, or of profiles, lets it pass
	CodeMissingProfile                    // a profile of its endpoint has no valid rules
	CodeNoPolicyNoProfile                 // its endpoint has neither a policy that decides nor a profile
	CodeToHost                            // it is for a host itself, or for tunnels between hosts
	CodeInvalid                           // it fits no connection
	codes
)

var codeNames = [codes]string{
	CodeNoRule: "no-rule", CodeAntiSpoofing: "anti-spoofing", CodeFirewall: "firewall", CodeFirewallDefault: "firewall-default", CodeFilter: "filter",
	CodePortDown: "port-down", CodeNetworkDown: "network-down", CodeRouterDown: "router-down", CodeNotBound: "not-bound", CodeNoCarrier: "no-carrier",
	CodeNoPath: "no-path", CodeNoRoute: "no-route", CodeRouteBlackhole: "route-blackhole", CodeRouteReject: "route-reject", CodeNoNeighbour: "no-neighbour",
	CodeTTLExceeded: "ttl-exceeded", CodeAddressScope: "address-scope", CodeLinkScope: "link-scope", CodeNoForward: "no-forward", CodeNotForRouter: "not-for-router",
	CodeNATExhausted: "nat-exhausted", CodeLBSource: "lb-source", CodeLBNoMember: "lb-no-member", CodeLBDown: "lb-down", CodeLBLimit: "lb-limit",
	CodeFragment: "fragment", CodeMalformed: "malformed", CodeBadSourceMAC: "bad-source-mac", CodeHairpin: "hairpin", CodeOtherWay: "other-way", CodeVLAN: "vlan",
	CodeLoop: "loop", CodeNoTunnelZone: "no-tunnel-zone", CodeVTEPNoPeer: "vtep-no-peer", CodeVTEPNoNetwork: "vtep-no-network",
	CodeMetadataOnly: "metadata-only", CodeMetadataAway: "metadata-away", CodeDHCP: "dhcp", CodeBadObject: "bad-object",
	CodePolicy: "policy", CodeDefaultDeny: "default-deny", CodeMissingProfile: "missing-profile", CodeNoPolicyNoProfile: "no-policy-no-profile",
	CodeToHost: "to-host", CodeInvalid: "invalid",
}

// Codes returns all codes.
func Codes() []Code {
	all := make([]Code, 0, codes-1)
	for c := Code(1); c < codes; c++ {
		all = append(all, c)
	}
	return all
}

// OfPolicy reports whether routed hosts alone drop packets with the code.
func (c Code) OfPolicy() bool { return c >= CodePolicy && c <= CodeInvalid }

// String returns the code's name; "" for none.
func (c Code) String() string {
	if c >= codes {
		return fmt.Sprintf("code-%d", uint8(c))
	}
	return codeNames[c]
}

// MarshalText implements [encoding.TextMarshaler].
func (c Code) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. A name that only a later version knows is no
// code: the words beside it still say what happened.
func (c *Code) UnmarshalText(name []byte) error {
	*c = Code(max(0, slices.Index(codeNames[:], string(name))))
	return nil
}
