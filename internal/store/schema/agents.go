package schema

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"heddle/internal/store/records"
	"heddle/internal/topology"
)

// AgentFunction is a function of a host that Neutron's clients know as an agent of its own.
type AgentFunction string

// The functions of hosts: all but BGPAgent are those of every host.
const (
	L2Agent   AgentFunction = ""
	DHCPAgent AgentFunction = "dhcp"
	L3Agent   AgentFunction = "l3"
	BGPAgent  AgentFunction = "bgp" // of hosts that run speakers of routers
)

// agentFunctions returns the functions that a host may have.
func agentFunctions() []AgentFunction { return []AgentFunction{L2Agent, DHCPAgent, L3Agent, BGPAgent} }

// AgentFunctions returns the functions of a host.
func AgentFunctions(r records.Reader, hostID string) []AgentFunction {
	all := agentFunctions()
	if c, ok := ContainerHosts.Peek(r, hostID); !ok || !slices.Contains(c.Kinds, topology.ContainerBGP) {
		return all[:len(all)-1]
	}
	return all
}

// AgentID returns the id of a host's agent; that of L2 has the host's.
func AgentID(hostID string, f AgentFunction) string {
	if f == L2Agent {
		return hostID
	}
	host, _ := uuid.Parse(hostID) // another name space where ids are no UUIDs, as in scenarios
	return uuid.NewSHA1(host, []byte(string(f)+" agent of "+hostID)).String()
}

func agentsOf(h *topology.Host) []string {
	ids := make([]string, 0, len(agentFunctions()))
	for _, f := range agentFunctions() {
		ids = append(ids, AgentID(h.ID, f))
	}
	return ids
}

// HostOfAgent returns the host with this agent, and which one it is.
func HostOfAgent(r records.Reader, agentID string) (*topology.Host, AgentFunction, bool) {
	for h := range Hosts.By(r, "agent", agentID) {
		for _, f := range AgentFunctions(r, h.ID) {
			if AgentID(h.ID, f) == agentID {
				return h, f, true
			}
		}
	}
	return nil, "", false
}

// AgentSettings has operators' settings of an agent.
type AgentSettings struct {
	HostID       string        `json:"host_id"`
	Function     AgentFunction `json:"function,omitempty"`
	AdminStateUp bool          `json:"admin_state_up"`
	Description  string        `json:"description"`
}

// Agents has the settings that operators have made. They are deleted with the host.
var Agents = records.NewTable("agent", NeutronPrefix+"agents/", func(a *AgentSettings) string { return AgentID(a.HostID, a.Function) },
	records.Ref("host", Hosts, func(a *AgentSettings) []string { return []string{a.HostID} }, records.Cascade()),
)

// Scheduled has an operator's wish that a host's agent serves an object.
type Scheduled struct {
	HostID   string `json:"host_id"`
	ObjectID string `json:"object_id"`
}

// ScheduledNetworks have networks given to DHCP agents. Ids are "<network>/<host>".
var ScheduledNetworks = records.NewTable("scheduled-network", NeutronPrefix+"scheduled-networks/", scheduledID,
	records.Ref("host", Hosts, scheduledHost, records.Cascade()),
	records.Ref("network", Networks, scheduledObject, records.Cascade()),
)

// ScheduledRouters have routers given to L3 agents. Ids are "<router>/<host>".
var ScheduledRouters = records.NewTable("scheduled-router", NeutronPrefix+"scheduled-routers/", scheduledID,
	records.Ref("host", Hosts, scheduledHost, records.Cascade()),
	records.Ref("router", Routers, scheduledObject, records.Cascade()),
)

func scheduledID(s *Scheduled) string { return ScheduledID(s.ObjectID, s.HostID) }

// ScheduledID returns the id of the record that gives an object to a host's agent.
func ScheduledID(objectID, hostID string) string { return objectID + "/" + hostID }

func scheduledHost(s *Scheduled) []string { return []string{s.HostID} }

func scheduledObject(s *Scheduled) []string { return []string{s.ObjectID} }

// DefaultZone is the availability zone of hosts that name none.
const DefaultZone = "nova"

// MaxZoneName bounds the name of an availability zone, bytes.
const MaxZoneName = 255

// IsZoneName reports whether an availability zone can have a name. Hosts write it, and clients
// print it as it is, so it has nothing that a terminal would obey.
func IsZoneName(name string) bool {
	return name != "" && len(name) <= MaxZoneName && utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
}

// ZoneOf returns a host's availability zone: the default one also if what the host has written
// cannot be a name.
func ZoneOf(r records.Reader, hostID string) string {
	if u, ok := Underlays.Peek(r, hostID); ok {
		return zone(u)
	}
	return DefaultZone
}

func zone(u *topology.HostUnderlay) string {
	if !IsZoneName(u.AvailabilityZone) {
		return DefaultZone
	}
	return u.AvailabilityZone
}

// Zones returns the availability zones that hosts are in, sorted. Its cost follows their number.
func Zones(r records.Reader) []string {
	zones := []string{}
	for _, name := range Underlays.IndexValues(r, "zone") {
		if name != DefaultZone && HasZone(r, name) {
			zones = append(zones, name)
		}
	}
	if HasZone(r, DefaultZone) {
		zones = append(zones, DefaultZone)
		slices.Sort(zones)
	}
	return zones
}

// HasZone reports whether a host is in the availability zone. A host that has reported nothing is
// in the default one.
func HasZone(r records.Reader, name string) bool {
	for u := range Underlays.By(r, "zone", name) {
		if _, there := Hosts.Peek(r, u.HostID); there {
			return true
		}
	}
	return name == DefaultZone && Hosts.Count(r) > Underlays.Count(r)
}
