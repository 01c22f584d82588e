package schema

import (
	"heddle/internal/store/records"
	"heddle/internal/topology"
)

// GatewaysKey is held by the server that is connected to the switches of gateway devices.
const GatewaysKey = Root + "gateways"

// GatewayStates are "servers/<gateway device>", under the lease of that server.
var GatewayStates = records.NewDerivedTable("gateway-state", StatePrefix+"*/gateways/",
	func(s *topology.GatewayState) string { return s.HolderID + "/" + s.DeviceID })
