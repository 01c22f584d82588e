package control

import (
	"errors"

	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// Kinds of owners of bundles.
const (
	kindNetwork = "network"
	kindSubnet  = "subnet"
	kindPort    = "port"
	kindGroup   = "security-group"
	kindRouter  = "router"

	kindRouterGateway   = "router-gateway"   // by the id of the port
	kindRouterInterface = "router-interface" // likewise

	kindFloatingIP     = "floating-ip"
	kindPortForwarding = "port-forwarding"
	kindNDPProxy       = "ndp-proxy"
	kindMeteringLabel  = "metering-label"
	kindLog            = "log"
	kindTapService     = "tap-service"
	kindTapFlow        = "tap-flow"
	kindFirewall       = "firewall"

	kindGatewayDevice       = "gateway-device"
	kindRemoteMACEntry      = "remote-mac-entry"
	kindL2GatewayConnection = "l2-gateway-connection"

	kindLoggingResource = "logging-resource"
	kindFirewallLog     = "firewall-log"

	kindFirewallGroup       = "firewall-group"
	kindFirewallGroupPolicy = "firewall-group-policy"

	kindQoSPolicy = "qos-policy"

	kindLoadBalancer  = "load-balancer"
	kindListener      = "listener"
	kindLBPool        = "lb-pool"
	kindLBMember      = "lb-member"
	kindHealthMonitor = "health-monitor"
	kindVIP           = "vip"
	kindRouterLB      = "router-lb" // by the id of the router

	kindAddressGroup = "address-group"
	kindAddressBlock = "address-block"
)

// putBundle stores what an owner means to packets in place of what it meant before.
func (o *operation) putBundle(kind, id string, b topology.Bundle) error {
	return schema.Bundles.Put(o.tx, &schema.Bundle{Owner: topology.Owner{Kind: kind, ID: id}, Bundle: b})
}

// dropBundle deletes an owner's bundle.
func (o *operation) dropBundle(kind, id string) error {
	err := schema.Bundles.Delete(o.tx, schema.BundleID(topology.Owner{Kind: kind, ID: id}))
	var none *records.NotFoundError
	if errors.As(err, &none) {
		return nil
	}
	return err
}
