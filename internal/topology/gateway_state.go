package topology

import "time"

// GatewayState holds the state of a gateway device's switch, as the server that is connected to it
// reports it.
type GatewayState struct {
	HolderID  string    `json:"holderId"` // RemoteHolder
	DeviceID  string    `json:"deviceId"`
	Server    string    `json:"server"` // name of its machine
	Connected bool      `json:"connected"`
	Since     time.Time `json:"since,omitzero"` // when it was connected
	Switches  []string  `json:"switches,omitempty"`
	Ports     []string  `json:"ports,omitempty"`
	// Faults are, in words, why it is not connected, rows of the switch that cannot be read, and
	// what could not be set up there.
	Faults []string `json:"faults,omitempty"`
}
