// Package plug gives workloads that are no virtual machines of a cloud the interface of a port: a
// veth pair into a network namespace, or a tap. It makes the interface, binds the port to this host
// over the Neutron API and waits until the host's agent serves it.
//
// A file for each plugged port in the agent's state directory says what was made. It is written
// before anything else and removed after everything else, so that an interrupted plug can be
// finished or undone.
package plug

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"heddle/internal/cloud"
	"heddle/internal/hostnet"
)

// undoTimeout bounds the undoing of what failed, which goes on when the command is interrupted.
const undoTimeout = 10 * time.Second

// Plugger plugs ports on one host.
type Plugger struct {
	API  *cloud.Neutron
	Net  *hostnet.Linux // of the host
	Dir  string         // directory of the records, see [RecordsDir]
	Host string         // name by which ports are bound to this host
	// Wait bounds the time from the binding until the port is ACTIVE, as the deadline of Plug's
	// context does; 0: Plug does not wait.
	Wait time.Duration
}

// Result describes a plugged port.
type Result struct {
	PortID      string         `json:"port_id"`
	Name        string         `json:"name"`
	Host        string         `json:"host"`
	Device      string         `json:"device"` // the interface on the host
	Place       Place          `json:"place"`
	MACAddress  string         `json:"mac_address"`
	MTU         int            `json:"mtu"`
	Addresses   []netip.Prefix `json:"addresses"` // of the port; on a tap the machine sets them
	Routes      []Route        `json:"routes"`
	Nameservers []string       `json:"nameservers"` // of the port's subnets
	Status      string         `json:"status"`
	Notes       []string       `json:"notes"` // what was left as it is, and why
}

// Route is a route by a port's interface.
type Route struct {
	Destination netip.Prefix
	Gateway     netip.Addr // invalid: on the link itself
}

// String returns the route in the words of `ip route`.
func (r Route) String() string {
	text := r.Destination.String()
	if r.Destination.Bits() == 0 {
		text = "default"
	}
	if r.Gateway.IsValid() {
		text += " via " + r.Gateway.String()
	}
	return text
}

// MarshalText implements [encoding.TextMarshaler].
func (r Route) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Plug gives a port, by id or name, an interface at a place and binds it to the host. A port that
// is there already gets what it lacks. On failure the host and the port are as before.
func (p *Plugger) Plug(ctx context.Context, idOrName string, at Place) (*Result, error) {
	id, err := p.API.Find(ctx, cloud.Port, idOrName)
	if err != nil {
		return nil, err
	}
	alone, err := claim(id)
	if err != nil {
		return nil, err
	}
	defer alone.Close()
	port, err := p.readPort(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := p.checkHost(ctx, port); err != nil {
		return nil, err
	}
	wired, err := p.wiring(ctx, port)
	if err != nil {
		return nil, err
	}
	target, err := p.open(at)
	if err != nil {
		return nil, err
	}
	defer target.close()
	r, err := p.begin(port, target)
	if err != nil {
		return nil, err
	}
	result, err := p.finish(ctx, port, wired, target, r)
	if err == nil || r.Complete {
		return result, err
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	if back := p.remove(undo, r, r.Before); back != nil {
		return nil, fmt.Errorf("%w; what was made could not all be removed, try `heddle unplug %s`: %w", err, id, back)
	}
	return nil, err
}

// claim keeps other processes of this host from the port until it is closed.
func claim(id string) (interface{ Close() error }, error) {
	alone, err := hostnet.Alone("plug-" + id)
	if err != nil {
		return nil, fmt.Errorf("port %s: another heddle plug or unplug is at work on it", id)
	}
	return alone, nil
}

// begin writes the record of a port that is about to be plugged, or returns that of one which is at
// this place already.
func (p *Plugger) begin(port *port, t *target) (*record, error) {
	r, err := p.load(port.ID)
	if err != nil {
		return nil, err
	}
	if r != nil {
		there, err := p.isThere(r)
		if err != nil {
			return nil, err
		}
		if there && !r.Place.same(t.place) {
			return nil, fmt.Errorf("port %s is plugged into %s, as %s: first `heddle unplug %s`", port, r.Place, r.Device, port.ID)
		}
		r.Complete = r.Complete && there
	}
	device := t.place.device(port)
	if r == nil {
		if _, err := p.Net.Link(device); err == nil {
			return nil, fmt.Errorf("interface %s exists on this host, and heddle plug did not make it: the port has its workload already, or delete it with `ip link delete %[1]s`", device)
		} else if !errors.Is(err, hostnet.ErrNotFound) {
			return nil, err
		}
		r = &record{PortID: port.ID, Name: port.Name, Host: p.Host, Device: device, Before: binding{port.host(), port.Profile}}
	}
	if err := t.refuseOthers(p.Net, r); err != nil {
		return nil, err
	}
	r.Place = t.place
	return r, p.save(r)
}

// isThere reports whether a recorded port still has its interface. What is left of one whose
// namespace has lost its name, or whose process has ended, is removed.
func (p *Plugger) isThere(r *record) (bool, error) {
	_, err := p.Net.Link(r.Device)
	if errors.Is(err, hostnet.ErrNotFound) {
		return false, nil
	}
	if err != nil || r.Place.current() {
		return true, err
	}
	return false, p.Net.DeleteLink(r.Device)
}

// finish does what is missing of a port with a record.
func (p *Plugger) finish(ctx context.Context, port *port, w *wiring, t *target, r *record) (*Result, error) {
	result := &Result{
		PortID: port.ID, Name: port.Name, Host: p.Host, Device: r.Device, Place: t.place, MACAddress: port.MACAddress,
		MTU: w.mtu, Addresses: append([]netip.Prefix{}, w.addresses...), Routes: []Route{}, Nameservers: append([]string{}, w.nameservers...), Notes: []string{},
	}
	if err := t.connect(p.Net, r, w, result); err != nil {
		return nil, err
	}
	if err := p.writeResolver(r, w, result); err != nil {
		return nil, err
	}
	if err := p.bind(ctx, port, r); err != nil {
		return nil, err
	}
	status, err := p.await(ctx, port.ID, r.Device)
	if err != nil {
		return nil, err
	}
	result.Status = status
	if r.Place.Tap && status != statusActive {
		result.Notes = append(result.Notes, "the port is "+status+" until a machine opens the tap")
	}
	r.Complete = true
	return result, p.save(r)
}
