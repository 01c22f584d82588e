package nova

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
)

// The names of events, as Nova has them.
const (
	vifPlugged     = "network-vif-plugged"
	vifUnplugged   = "network-vif-unplugged"
	vifDeleted     = "network-vif-deleted"
	networkChanged = "network-changed"
)

// Event is an event of Nova's API os-server-external-events.
type Event struct {
	Name     string `json:"name"`
	ServerID string `json:"server_uuid"`
	PortID   string `json:"tag"`
	Status   string `json:"status"` // completed
}

// reported holds what was last reported to Nova of a port.
type reported struct {
	ServerID string `json:"serverId"`
	Host     string `json:"host,omitempty"` // on which it was plugged; "": on none
	// Addresses are those of the port and its floating IPs, which Nova keeps a copy of.
	Addresses string `json:"addresses"`
}

// serverOf returns the id of the server that a port is an interface of, "" if it is none of Nova's.
func serverOf(p *neutron.Port) string {
	if !strings.HasPrefix(p.DeviceOwner, "compute:") || uuid.Validate(p.DeviceID) != nil {
		return ""
	}
	return p.DeviceID
}

// current returns what Nova should know of a port, nil for one that is none of Nova's.
func current(r records.Reader, p *neutron.Port, status string) *reported {
	server := serverOf(p)
	if server == "" {
		return nil
	}
	now := &reported{ServerID: server, Addresses: addresses(r, p)}
	if status == "ACTIVE" {
		now.Host = p.HostID
	}
	return now
}

// addresses returns the MAC address, the addresses and the floating IPs of a port as one text.
func addresses(r records.Reader, p *neutron.Port) string {
	all := []string{p.MACAddress.String()}
	for _, f := range p.FixedIPs {
		all = append(all, f.IPAddress.String())
	}
	fixed := len(all)
	for f := range schema.FloatingIPs.By(r, "port", p.ID) {
		all = append(all, fmt.Sprintf("%s=%s", f.FixedIPAddress, f.FloatingIPAddress))
	}
	slices.Sort(all[fixed:])
	return strings.Join(all, " ")
}

// eventsBetween returns the events that lead from what Nova knows of a port to what it should know.
// Either is nil for nothing.
func eventsBetween(portID string, before, now *reported) []Event {
	event := func(name, server string) []Event { return []Event{{name, server, portID, "completed"}} }
	switch {
	case now == nil:
		return nil // taken from its server, by Nova itself
	case before == nil || before.ServerID != now.ServerID:
		if now.Host == "" {
			return nil
		}
		return event(vifPlugged, now.ServerID)
	}
	var all []Event
	switch {
	case before.Host == now.Host:
	case now.Host == "":
		all = event(vifUnplugged, now.ServerID)
	default: // on another host, too
		all = event(vifPlugged, now.ServerID)
	}
	if before.Addresses != now.Addresses {
		all = append(all, event(networkChanged, now.ServerID)...)
	}
	return all
}

// eventsOfDeletion returns the events after a port was deleted.
func eventsOfDeletion(portID string, before reported) []Event {
	return []Event{{vifDeleted, before.ServerID, portID, "completed"}}
}
