package offline

import (
	"net/netip"
	"slices"

	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// The ports of service containers are ports of a scenario: frames come in and go out there. A
// container's interface has the name of its port, such as LB.health, and the router's side of the
// link has "-gw" behind it.

// containerAddresses has the addresses at both ends of a service container's link.
type containerAddresses struct {
	IP      netip.Addr `json:"ip"`
	Gateway netip.Addr `json:"gateway"`
}

// addContainer has a host run a service container, and gives its port a name.
func (s *scenario) addContainer(name, container string) error {
	host, iface := s.bindingOf(name)
	if err := s.addHost(host); err != nil {
		return err
	}
	port, err := s.bindContainer(container, host, iface)
	if err != nil {
		return err
	}
	s.ports.ids[name], s.nameOf[port.ID] = port.ID, name
	s.containers[name] = container
	return nil
}

// bindContainer binds a container with its port to an interface of a host, in place of a scheduler.
func (s *scenario) bindContainer(id string, host topology.Host, iface string) (port topology.Port, err error) {
	_, err = s.world.db.Update(s.world.ctx, func(tx *records.Tx) error {
		old, err := schema.Bundles.Get(tx, schema.ContainerBundleID(id))
		if err != nil {
			return err
		}
		to := &topology.ContainerBinding{ContainerID: id, HostID: host.ID, InterfaceName: iface}
		b := *old
		b.Bundle.Ports = append([]topology.Port(nil), b.Bundle.Ports...)
		schema.BindContainer(&b.Bundle, &old.Bundle, to)
		port = b.Bundle.Ports[0]
		if err := schema.Bundles.Put(tx, &b); err != nil {
			return err
		}
		return schema.ContainerBindings.Put(tx, to)
	})
	return port, err
}

// ranBefore has the reports of a host count for a container that no host of the scenario runs.
func (s *scenario) ranBefore(container, host string) error {
	_, err := s.world.db.Update(s.world.ctx, func(tx *records.Tx) error {
		old, err := schema.Bundles.Get(tx, schema.ContainerBundleID(container))
		if err != nil {
			return err
		}
		b := *old
		c := b.Bundle.ServiceContainers[0]
		c.FormerHostIDs = append(slices.Clone(c.FormerHostIDs), host)
		b.Bundle.ServiceContainers = []topology.ServiceContainer{c}
		return schema.Bundles.Put(tx, &b)
	})
	return err
}

// containerPort returns the router's port of a container, as it is now; nil if it is gone.
func (s *scenario) containerPort(id string) (*topology.Port, error) {
	snap, err := s.world.db.View(s.world.ctx)
	if err != nil {
		return nil, err
	}
	if b, ok := schema.Bundles.Peek(snap, schema.ContainerBundleID(id)); ok {
		return &b.Bundle.Ports[0], nil
	}
	return nil, nil
}

// containerMACs adds the MAC addresses at both ends of containers' links.
func (s *scenario) containerMACs(macs map[string]string) error {
	for name, id := range s.containers {
		p, err := s.containerPort(id)
		if err != nil {
			return err
		}
		if p != nil {
			macs[name], macs[name+"-gw"] = topology.ContainerMAC(p.PortMAC).String(), p.PortMAC.String()
		}
	}
	return nil
}

// containerLinks returns the addresses of containers by the names of their ports, nil for none.
func (s *scenario) containerLinks() (links map[string]containerAddresses, err error) {
	for name, id := range s.containers {
		p, err := s.containerPort(id)
		if err != nil {
			return nil, err
		}
		if p == nil {
			continue
		}
		if links == nil {
			links = map[string]containerAddresses{}
		}
		links[name] = containerAddresses{IP: p.PortAddress.Next(), Gateway: p.PortAddress}
	}
	return links, nil
}
