package plug

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"

	"heddle/internal/cloud"
	"heddle/internal/hostnet"
)

// ContainerOwner is the device_owner of ports that were made for containers, and are deleted with
// them.
const ContainerOwner = "container:cni"

// attachmentKey is the key of binding:profile with the attachment that a port was made for.
const attachmentKey = "cni"

// Attachment identifies an interface that a container runtime asks for.
type Attachment struct {
	Network     string `json:"network"` // name in the runtime's configuration
	ContainerID string `json:"container_id"`
	Interface   string `json:"interface"` // in the container
}

// Device returns the name of the attachment's interface on the host. It follows from the
// container's id and the interface, so that what a failed start has left is found without a record.
func (a Attachment) Device() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", a.ContainerID, a.Interface))
	return "tap" + hex.EncodeToString(sum[:])[:11]
}

// Claim keeps other processes of this host from the attachment until it is closed.
func (a Attachment) Claim() (interface{ Close() error }, error) {
	alone, err := hostnet.Alone("attachment-" + a.Device())
	if err != nil {
		return nil, fmt.Errorf("interface %s of container %s: another process is at work on it", a.Interface, a.ContainerID)
	}
	return alone, nil
}

// CreatePort makes a port for an attachment, bound to this host, and returns its id. attributes are
// those of the port that do not follow from the attachment.
func (p *Plugger) CreatePort(ctx context.Context, a Attachment, attributes map[string]any) (id string, err error) {
	switch _, err := p.Net.Link(a.Device()); {
	case err == nil:
		return "", fmt.Errorf("container %s has its interface %s already: detach it first", a.ContainerID, a.Interface)
	case !errors.Is(err, hostnet.ErrNotFound):
		return "", err
	}
	attributes["device_id"] = a.ContainerID
	attributes["device_owner"] = ContainerOwner
	attributes["binding:host_id"] = p.Host
	attributes["binding:profile"] = map[string]any{interfaceName: a.Device(), attachmentKey: a}
	made, err := p.API.Create(ctx, cloud.Port, attributes)
	return made.ID(), err
}

// DeletePort deletes a port that was made for a container and is plugged nowhere.
func (p *Plugger) DeletePort(ctx context.Context, id string) error {
	if err := p.API.Delete(ctx, cloud.Port, id); err != nil && !cloud.IsGone(err) {
		return fmt.Errorf("delete port %s: %w", id, err)
	}
	return nil
}

// Release removes what was made for an attachment, of which any part may be gone already: its
// interface, and its port if that was made for it; another port is unbound. It can be repeated
// after a failure.
func (p *Plugger) Release(ctx context.Context, a Attachment) error {
	if err := p.Net.DeleteLink(a.Device()); err != nil {
		return err
	}
	records, err := p.recordsOf(a)
	if err != nil {
		return err
	}
	for _, r := range records {
		if err := p.release(ctx, r); err != nil {
			return err
		}
	}
	ports, err := p.madePorts(ctx, url.Values{"device_id": {a.ContainerID}})
	if err != nil {
		return err
	}
	for _, port := range ports { // without a record: the start failed right after the port was made
		if port.Profile.Device != a.Device() {
			continue
		}
		if err := p.DeletePort(ctx, port.ID); err != nil {
			return err
		}
	}
	return nil
}

// release removes what a record lists, and the port if it was made for a container.
func (p *Plugger) release(ctx context.Context, r *record) error {
	alone, err := claim(r.PortID)
	if err != nil {
		return err
	}
	defer alone.Close()
	var now port
	switch err := p.API.Get(ctx, cloud.Port, r.PortID, &now, "device_owner"); {
	case err != nil && !cloud.IsGone(err):
		return err
	case err == nil && now.DeviceOwner == ContainerOwner:
		if err := p.DeletePort(ctx, r.PortID); err != nil {
			return err
		}
	}
	return p.remove(ctx, r, binding{Profile: withoutInterface(r)})
}

// recordsOf returns the records of an attachment: one, or none.
func (p *Plugger) recordsOf(a Attachment) ([]*record, error) {
	all, err := p.loadAll()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(r *record) bool { return r.Place.Attachment == nil || r.Device != a.Device() }), nil
}

// madePort is a port that was made for a container of this host.
type madePort struct {
	ID      string `json:"id"`
	HostID  string `json:"binding:host_id"`
	Profile struct {
		Device     string      `json:"interface_name"`
		Attachment *Attachment `json:"cni"`
	} `json:"binding:profile"`
}

// madePorts returns the ports that were made for containers of this host and match a query.
func (p *Plugger) madePorts(ctx context.Context, query url.Values) ([]madePort, error) {
	query.Set("device_owner", ContainerOwner)
	query["fields"] = []string{"id", "binding:host_id", "binding:profile"}
	var all []madePort
	if err := p.API.List(ctx, cloud.Port, query, &all); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(m madePort) bool { return m.HostID != p.Host }), nil
}

// Attachments returns this host's attachments to a network of the runtime's configuration.
func (p *Plugger) Attachments(ctx context.Context, network string) ([]Attachment, error) {
	records, err := p.loadAll()
	if err != nil {
		return nil, err
	}
	ports, err := p.madePorts(ctx, url.Values{"binding:host_id": {p.Host}})
	if err != nil {
		return nil, err
	}
	var all []Attachment
	add := func(a *Attachment) {
		if a != nil && a.Network == network && !slices.Contains(all, *a) {
			all = append(all, *a)
		}
	}
	for _, r := range records {
		add(r.Place.Attachment)
	}
	for _, port := range ports {
		add(port.Profile.Attachment)
	}
	return all, nil
}
