package lab

import (
	"net/netip"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/ports"

	"heddle/internal/netlab"
)

// Workload is a simulated machine: a namespace whose eth0 is joined to a port's interface on a
// host.
type Workload struct {
	Name   string
	NS     *netlab.Namespace
	Host   *Host
	Port   *ports.Port
	Device string // its interface on the host; empty: as Neutron's clients and agents agree on
}

// NewWorkload makes a port's workload, without an interface.
func (l *Lab) NewWorkload(name string, host *Host, port *ports.Port) (*Workload, error) {
	ns, err := l.Spaces.Namespace(name)
	if err == nil {
		err = useAddressesAtOnce(ns)
	}
	return &Workload{Name: name, NS: ns, Host: host, Port: port}, err
}

// useAddressesAtOnce turns off the kernel's duplicate address detection, which takes two seconds.
func useAddressesAtOnce(ns *netlab.Namespace) error {
	return ns.Sysctl("net/ipv6/conf/default/accept_dad", "0")
}

// PlugIn makes the workload's interface and its other end on the host, as a hypervisor would.
func (l *Lab) PlugIn(w *Workload) error {
	if err := l.Spaces.Veth(w.NS, "eth0", w.Host.NS, w.Tap()); err != nil {
		return err
	}
	return w.NS.IP("link set eth0 down", "link set eth0 address "+w.Port.MACAddress, "link set eth0 up") // the link-local address follows
}

// Tap returns the name of the interface on the host.
func (w *Workload) Tap() string {
	if w.Device != "" {
		return w.Device
	}
	return "tap" + w.Port.ID[:11]
}

// Address returns the port's address of the family, or "".
func (w *Workload) Address(six bool) string {
	for _, f := range w.Port.FixedIPs {
		if a, err := netip.ParseAddr(f.IPAddress); err == nil && a.Is6() == six {
			return f.IPAddress
		}
	}
	return ""
}
