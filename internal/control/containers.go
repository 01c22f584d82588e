package control

import (
	"errors"

	"heddle/internal/control/addresses"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

// putContainer stores the bundle of a service container: the container, its port, and whatever
// belongs to them, such as routes. The port is bound to the host that the scheduler has chosen, and
// keeps its tunnel key and its MAC address; a new one gets them here.
func (o *operation) putContainer(b topology.Bundle) error {
	id := b.ServiceContainers[0].ID
	var old *topology.Bundle
	var before map[string]topology.Port
	stored, err := schema.Bundles.Get(o.tx, schema.ContainerBundleID(id))
	if err == nil {
		old, before = &stored.Bundle, portsByID(stored.Bundle.Ports)
	} else if !errors.As(err, new(*records.NotFoundError)) {
		return err
	}
	for i := range b.Ports {
		p := &b.Ports[i]
		if was, ok := before[p.ID]; ok {
			p.TunnelKey, p.PortMAC = was.TunnelKey, was.PortMAC
		} else if err := o.nameContainerPort(p); err != nil {
			return err
		}
	}
	to, err := schema.ContainerBindings.Get(o.tx, id)
	if err != nil && !errors.As(err, new(*records.NotFoundError)) {
		return err
	}
	schema.BindContainer(&b, old, to)
	return o.putBundle(topology.ContainerOwner, id, b)
}

// dropContainer deletes a service container, its port and its binding.
func (o *operation) dropContainer(id string) error { return o.dropBundle(topology.ContainerOwner, id) }

// nameContainerPort gives a container's port a MAC address and a tunnel key.
func (o *operation) nameContainerPort(p *topology.Port) (err error) {
	free := func(packet.MAC) (bool, error) { return false, nil } // it is alone on its link
	if p.PortMAC, err = addresses.MAC(p.RouterID, free, o.random); err != nil {
		return err
	}
	key, err := o.freeTunnelKey(0, func(key uint32) (bool, error) {
		return schema.Bundles.CountBy(o.tx, "container_key", schema.TunnelKey(addresses.ContainerKeys+key)) > 0, nil
	})
	p.TunnelKey = addresses.ContainerKeys + key
	return err
}

func portsByID(ports []topology.Port) map[string]topology.Port {
	byID := make(map[string]topology.Port, len(ports))
	for _, p := range ports {
		byID[p.ID] = p
	}
	return byID
}
