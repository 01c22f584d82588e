// Package libvirt binds ports to the hosts of libvirt's virtual machines, as its hook for QEMU
// (https://libvirt.org/hooks.html). The metadata of a domain names the ports of its interfaces.
package libvirt

import (
	"encoding/xml"
	"fmt"
	"io"
	"net"
)

// Namespace is the XML namespace of our elements in the metadata of domains.
const Namespace = "https://heddle.invalid/libvirt"

// maxDomain bounds the description of a domain, bytes.
const maxDomain = 4 << 20

// Domain is a virtual machine as its XML describes it: the ports, and the interfaces for them.
type Domain struct {
	Name, UUID string
	Ports      []string // ids, as the metadata lists them
	Interfaces []Interface
}

// Interface is a network interface of a domain.
type Interface struct {
	MAC    string // in lower case
	Device string // on the host; "" while libvirt has not chosen it, or no more
}

// domainXML holds the elements of a domain that are read. Libvirt allows one element of each
// namespace in the metadata: a port, or a list of them.
type domainXML struct {
	XMLName  xml.Name `xml:"domain"`
	Name     string   `xml:"name"`
	UUID     string   `xml:"uuid"`
	Metadata struct {
		Port  []portXML `xml:"https://heddle.invalid/libvirt port"`
		Ports []struct {
			Port []portXML `xml:"https://heddle.invalid/libvirt port"`
		} `xml:"https://heddle.invalid/libvirt ports"`
	} `xml:"metadata"`
	Interfaces []struct {
		MAC struct {
			Address string `xml:"address,attr"`
		} `xml:"mac"`
		Target struct {
			Device string `xml:"dev,attr"`
		} `xml:"target"`
	} `xml:"devices>interface"`
}

type portXML struct {
	ID string `xml:"id,attr"`
}

// ReadDomain reads the XML of a domain.
func ReadDomain(from io.Reader) (*Domain, error) {
	limited := &io.LimitedReader{R: from, N: maxDomain}
	var x domainXML
	if err := xml.NewDecoder(limited).Decode(&x); err != nil {
		if limited.N == 0 {
			return nil, fmt.Errorf("the domain's XML is longer than %d bytes", maxDomain)
		}
		return nil, fmt.Errorf("the domain's XML: %w", err)
	}
	d := &Domain{Name: x.Name, UUID: x.UUID}
	ports := x.Metadata.Port
	for _, list := range x.Metadata.Ports {
		ports = append(ports, list.Port...)
	}
	for _, p := range ports {
		if p.ID == "" {
			return nil, fmt.Errorf("domain %s: a heddle:port in its metadata has no id: write <heddle:port id='PORT-ID'/>", d.Name)
		}
		d.Ports = append(d.Ports, p.ID)
	}
	for _, i := range x.Interfaces {
		mac, err := net.ParseMAC(i.MAC.Address)
		if err != nil {
			continue // of a kind without one
		}
		d.Interfaces = append(d.Interfaces, Interface{MAC: mac.String(), Device: i.Target.Device})
	}
	return d, nil
}

// interfaceOf returns the interface with a MAC address.
func (d *Domain) interfaceOf(mac string) (Interface, bool) {
	for _, i := range d.Interfaces {
		if i.MAC == mac {
			return i, true
		}
	}
	return Interface{}, false
}
