package translate

import (
	"crypto/sha1"
	"strconv"

	"github.com/google/uuid"
)

// Roles of derived objects (midonet-translations §2). The last group is ours: a rule without a role
// there is named after the chain's owner, its place, and its subject.
const (
	roleChainIn        = "chain.in"
	roleChainOut       = "chain.out"
	roleChainAntiSpoof = "chain.antispoof"
	roleL2GWNetPort    = "port.l2gw.net" // of the network of a connection
	roleL2GWPort       = "port.l2gw.gw"  // likewise, that of its gateway
	rolePortLocalnet   = "port.localnet" // of a network
	roleSGNonHeader    = "rule.sg.nonheader"
	roleJumpAntiSpoof  = "rule.antispoof.jump"

	// Of a router.
	roleChainForward        = "chain.fwd" // also of a firewall
	roleChainSkipSNAT       = "chain.skipsnat"
	roleChainFloatExact     = "chain.floatsnatexact"
	roleChainFloat          = "chain.floatsnat"
	roleJumpSkipSNAT        = "rule.router.jump.skipsnat"
	roleJumpFloatExact      = "rule.router.jump.floatsnatexact"
	roleJumpFloat           = "rule.router.jump.floatsnat"
	roleSkipAccept          = "rule.skipsnat.accept"
	rolePortGroupStateful   = "portgroup.stateful"
	rolePortGroupInterfaces = "portgroup.rif"
	roleRouteExtra          = "route.extra"

	// Of its gateway.
	rolePortGateway    = "port.gw"
	roleRouteLocal     = "route.local" // also of an interface
	roleRouteGateway   = "route.gw"
	roleRouteConnected = "route.connected" // of a gateway after the first
	roleSNATOut        = "rule.snat.out"
	roleSNATRewritten  = "rule.snat.dstrewritten"
	roleSNATDropFrag   = "rule.snat.dropfrag"
	roleSNATReverse    = "rule.snat.rev"
	roleSNATDropWrong  = "rule.snat.dropwrong"
	roleSNATSkipOut    = "rule.snat.skip.out"
	roleSNATSkipIn     = "rule.snat.skip.in"

	// Of its interfaces.
	rolePortInterface     = "port.rif"
	roleRouteInterface    = "route.rif"
	roleRouteMetadata     = "route.metadata"
	roleSameSubnetSNAT    = "rule.samesubnet.snat"
	roleSameSubnetReverse = "rule.samesubnet.rev"

	// Of a floating IP.
	roleFloatingDNAT    = "rule.fip.dnat"
	roleFloatingSNAT    = "rule.fip.snat"
	roleFloatingRoute   = "route.fip"
	roleFloatingExact   = "rule.fip.snatexact"
	roleFloatingSkipOut = "rule.fip.skip.out"
	roleFloatingSkipIn  = "rule.fip.skip.in"

	// Of a port forwarding.
	roleForwardingDNAT     = "rule.pf.dnat"    // and + type of ICMP
	roleForwardingReverse  = "rule.pf.reverse" // likewise
	roleForwardingSkipOut  = "rule.pf.skip.out"
	roleForwardingSkipIn   = "rule.pf.skip.in"
	roleForwardingWhole    = "rule.pf.whole"
	roleForwardingOwn      = "rule.pf.own"
	roleForwardingDropFrag = "rule.pf.dropfrag"

	// Of the NDP proxies of a router.
	roleChainNDPProxy  = "chain.ndpproxy"
	roleNDPProxyDrop   = "rule.ndpproxy.drop"   // + router
	roleNDPProxyInside = "rule.ndpproxy.inside" // + port + address of an interface
	roleNDPProxyReturn = "rule.ndpproxy.return" // + proxy

	// Of an association of a local IP, with its port and the address of that.
	roleLocalIP = "localip"

	// Of a firewall.
	roleFirewallJump   = "rule.fw.jump"
	roleFirewallDown   = "rule.fw.down"
	roleFirewallReturn = "rule.fw.return"
	roleFirewallDrop   = "rule.fw.drop"
	roleFirewallShared = "rule.fw.shared"

	// Of a firewall group, and of its policies.
	roleGroupDeny    = "chain.fwg.deny"
	roleGroupEgress  = "rule.fwg.egress"  // + group + port
	roleGroupIngress = "rule.fwg.ingress" // likewise
	roleGroupPolicy  = "chain.fwg.policy"
	roleGroupRule    = "rule.fwg"        // + policy + rule
	roleGroupReturn  = "rule.fwg.return" // + chain
	roleGroupDrop    = "rule.fwg.drop"   // likewise

	// Of load balancers, LBaaS v1's among them.
	roleLBRouter        = "router.lbv2"
	roleLBV1            = "lb.v1"
	roleLBContainer     = "container.lb"
	roleLBContainerPort = "port.lbc"
	roleLBSNAT          = "rule.lb.snat"
	roleLBReverse       = "rule.lb.rev"
	roleLBRoute         = "route.lb"     // + port + destination
	roleLBVIPRoute      = "route.lb.vip" // + port + address

	roleAntiSpoof = "rule.antispoof"  // + port + index in the chain
	roleInbound   = "rule.port.in"    // + port + index, or group of a jump
	roleOutbound  = "rule.port.out"   // + port + index, or group of a jump
	roleSNATIPv6  = "rule.snat.ipv6"  // + router
	roleSNATScope = "rule.snat.scope" // likewise
)

// Derive returns the id of the object that plays role for the objects of: UUIDv5 in Heddle's name
// space over role and ids joined by bars (midonet-translations §2). Ids must be in lower case.
func Derive(role string, of ...string) string {
	name := make([]byte, 0, 128)
	name = append(name, 0xd0, 0x1b, 0x70, 0xfd, 0xc6, 0x37, 0x4b, 0x6a, 0xaa, 0x93, 0x53, 0xeb, 0xa3, 0x0b, 0x14, 0x4d)
	name = append(name, role...)
	for _, id := range of {
		name = append(append(name, '|'), id...)
	}
	sum := sha1.Sum(name) // what UUIDv5 is made of (RFC 9562 §5.5)
	id := uuid.UUID(sum[:16])
	id[6] = id[6]&0x0f | 5<<4
	id[8] = id[8]&0x3f | 0x80
	return id.String()
}

// deriveAt returns the id of the i-th thing of a kind that x has.
func deriveAt(role, x string, i int) string { return Derive(role, x, strconv.Itoa(i)) }
