package ovs

import (
	"slices"
	"strings"
	"sync"

	"heddle/internal/ovsdb"
)

// Snapshot is a database's contents between two transactions. It must not be changed.
type Snapshot struct {
	Root       *Root
	Bridges    map[ovsdb.UUID]*Bridge
	Ports      map[ovsdb.UUID]*Port
	Interfaces map[ovsdb.UUID]*Interface
	Managers   map[ovsdb.UUID]*Manager
	SSLs       map[ovsdb.UUID]*SSL
	// State is that of the connection. Until the database was heard first there is no Root.
	ovsdb.State

	once  sync.Once
	index index
}

// Root is the one row of the table Open_vSwitch.
type Root struct {
	UUID              ovsdb.UUID
	Bridges, Managers []ovsdb.UUID
	SSL               ovsdb.UUID // "" without
	NextCfg, CurCfg   int64      // what was asked for last, what the switch has done
	Version           string
	DatapathTypes     []string // that the switch supports; none where it does not report them
	InterfaceTypes    []string
	ExternalIDs       map[string]string
	OtherConfig       map[string]string
}

// Bridge is a switch.
type Bridge struct {
	UUID         ovsdb.UUID
	Name         string
	DatapathType string // "" = system
	FailMode     string // standalone, secure or "" (= standalone)
	Ports        []ovsdb.UUID
	FloodVLANs   []int64
	ExternalIDs  map[string]string
	OtherConfig  map[string]string
}

// Port is one of a bridge's, with one interface, or more when it is a bond.
type Port struct {
	UUID        ovsdb.UUID
	Name        string
	Interfaces  []ovsdb.UUID
	Tag         int64 // VLAN; -1 without
	Protected   bool  // no frame goes from one protected port to another
	ExternalIDs map[string]string
	OtherConfig map[string]string
}

// Interface is an interface of a port.
type Interface struct {
	UUID        ovsdb.UUID
	Name        string
	Type        string // "" = a device of the kernel, internal, patch, gre, vxlan, …
	Options     map[string]string
	ExternalIDs map[string]string
	OfPort      int64  // 0 = the switch has not come to it yet, -1 = it could not be made
	Error       string // why not, "" = it could
	AdminState  string // up, down or ""
	LinkState   string // up, down or ""
	MTU         int64  // bytes; 0 = unknown
	MTURequest  int64  // bytes; 0 = none
	MACInUse    string
	BFD         map[string]string
	BFDStatus   map[string]string
}

// Manager is an address at which the database listens, or to which it connects.
type Manager struct {
	UUID        ovsdb.UUID
	Target      string // such as pssl:6640:192.0.2.1
	IsConnected bool
	ExternalIDs map[string]string
}

// SSL is the database's certificate: names of files that its server can read.
type SSL struct {
	UUID                            ovsdb.UUID
	PrivateKey, Certificate, CACert string
	ExternalIDs                     map[string]string
}

// index finds rows by what they are called and who has them.
type index struct {
	bridges    map[string]*Bridge
	ports      map[string]*Port
	interfaces map[string]*Interface
	bridgeOf   map[ovsdb.UUID]*Bridge // by port
	portOf     map[ovsdb.UUID]*Port   // by interface
}

func (s *Snapshot) indexed() *index {
	s.once.Do(func() {
		x := index{map[string]*Bridge{}, map[string]*Port{}, map[string]*Interface{}, map[ovsdb.UUID]*Bridge{}, map[ovsdb.UUID]*Port{}}
		for _, b := range s.Bridges {
			x.bridges[b.Name] = b
			for _, p := range b.Ports {
				x.bridgeOf[p] = b
			}
		}
		for _, p := range s.Ports {
			x.ports[p.Name] = p
			for _, i := range p.Interfaces {
				x.portOf[i] = p
			}
		}
		for _, i := range s.Interfaces {
			x.interfaces[i.Name] = i
		}
		s.index = x
	})
	return &s.index
}

// Bridge finds a bridge by its name; nil when there is none.
func (s *Snapshot) Bridge(name string) *Bridge { return s.indexed().bridges[name] }

// Port finds a port by its name; nil when there is none.
func (s *Snapshot) Port(name string) *Port { return s.indexed().ports[name] }

// Interface finds an interface by its name; nil when there is none.
func (s *Snapshot) Interface(name string) *Interface { return s.indexed().interfaces[name] }

// BridgeOf is the bridge that a port is on; nil when it is on none.
func (s *Snapshot) BridgeOf(port ovsdb.UUID) *Bridge { return s.indexed().bridgeOf[port] }

// PortOf is the port that an interface belongs to; nil when it belongs to none.
func (s *Snapshot) PortOf(iface ovsdb.UUID) *Port { return s.indexed().portOf[iface] }

// PortsOf are a bridge's ports in the order of their names.
func (s *Snapshot) PortsOf(b *Bridge) []*Port {
	ports := make([]*Port, 0, len(b.Ports))
	for _, id := range b.Ports {
		if p := s.Ports[id]; p != nil {
			ports = append(ports, p)
		}
	}
	slices.SortFunc(ports, func(a, b *Port) int { return strings.Compare(a.Name, b.Name) })
	return ports
}

// InterfaceOf is a port's first interface; nil when it has none.
func (s *Snapshot) InterfaceOf(p *Port) *Interface {
	for _, id := range p.Interfaces {
		if i := s.Interfaces[id]; i != nil {
			return i
		}
	}
	return nil
}
