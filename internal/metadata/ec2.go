package metadata

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"

	"heddle/internal/topology"
)

// ec2Versions returns versions of EC2's metadata, oldest first. All have the same tree here, as
// clients ask for what they know.
func ec2Versions() []string {
	return []string{
		"2009-04-04", "2011-01-01", "2011-05-01", "2012-01-12", "2014-02-25", "2014-11-05", "2015-10-20", "2016-04-19", "2016-06-30", "2016-09-02",
		"2018-03-28", "2018-08-17", "2018-09-24", "2019-10-01", "2020-10-27", "2021-01-03", "2021-03-23",
	}
}

// ec2 returns the tree below a version of EC2's metadata.
func (m *Machine) ec2() entry {
	data := m.ec2Data()
	data.listed = "meta-data"
	tree := map[string]entry{"meta-data": data}
	if len(m.UserData) > 0 {
		tree["user-data"] = entry{content: m.userData()}
	}
	return directory(tree)
}

func (m *Machine) userData() content { return content{"application/octet-stream", m.UserData} }

// ec2Data returns the tree meta-data. Facts that Heddle does not know, such as the image, are left
// out.
func (m *Machine) ec2Data() entry {
	hostname := m.hostname()
	data := map[string]entry{
		"ami-launch-index": file("0"),
		"hostname":         file(hostname),
		"instance-action":  file("none"),
		"instance-id":      file(ec2ID("i", m.uuid())),
		"local-hostname":   file(hostname),
		"placement":        directory(map[string]entry{"availability-zone": file(m.Zone)}),
		"reservation-id":   file(ec2ID("r", m.uuid())),
		"network":          directory(map[string]entry{"interfaces": directory(map[string]entry{"macs": m.ec2Interfaces()})}),
	}
	own := m.ownLink()
	data["mac"] = file(own.MAC.String())
	for _, s := range own.Subnets {
		name := "local-ipv4"
		if s.Address.Addr().Is6() {
			name = "ipv6"
		}
		if _, there := data[name]; !there {
			data[name] = file(s.Address.Addr().String())
		}
	}
	if len(m.Floating) > 0 {
		data["public-hostname"], data["public-ipv4"] = file(hostname), file(m.Floating[0].String())
	}
	if len(m.Groups) > 0 {
		data["security-groups"] = lines(m.Groups)
	}
	if len(m.SSHKeys) > 0 {
		data["public-keys"] = m.ec2Keys()
	}
	return directory(data)
}

// ec2Keys returns the tree public-keys, whose list has the keys' names beside their numbers.
func (m *Machine) ec2Keys() entry {
	keys := map[string]entry{}
	for i, k := range m.keys() {
		n := strconv.Itoa(i)
		key := directory(map[string]entry{"openssh-key": file(k.data)})
		key.listed = n + "=" + k.name
		keys[n] = key
	}
	return directory(keys)
}

func (m *Machine) ec2Interfaces() entry {
	macs := map[string]entry{}
	for i := range m.Links {
		macs[m.Links[i].MAC.String()] = directory(m.ec2Interface(i, &m.Links[i]))
	}
	return directory(macs)
}

func (m *Machine) ec2Interface(number int, l *topology.InstanceLink) map[string]entry {
	e := map[string]entry{
		"device-number":  file(strconv.Itoa(number)),
		"interface-id":   file(ec2ID("eni", l.PortID)),
		"local-hostname": file(m.hostname()),
		"mac":            file(l.MAC.String()),
		"owner-id":       file(m.ProjectID),
		"vpc-id":         file(ec2ID("vpc", l.NetworkID)),
	}
	if len(m.Groups) > 0 && l.PortID == m.PortID {
		e["security-groups"] = lines(m.Groups)
	}
	var v4, v6, cidrs6 []string
	for _, s := range l.Subnets {
		if s.Address.Addr().Is6() {
			v6, cidrs6 = append(v6, s.Address.Addr().String()), append(cidrs6, s.Address.Masked().String())
			continue
		}
		if v4 = append(v4, s.Address.Addr().String()); len(v4) == 1 {
			e["subnet-ipv4-cidr-block"] = file(s.Address.Masked().String())
		}
	}
	if len(v4) > 0 {
		e["local-ipv4s"] = lines(v4)
	}
	if len(v6) > 0 {
		e["ipv6s"], e["subnet-ipv6-cidr-blocks"] = lines(v6), lines(cidrs6)
	}
	return e
}

// ec2ID returns an id as EC2 writes them, with 17 hexadecimal digits, for one of OpenStack's.
func ec2ID(prefix, id string) string {
	sum := sha256.Sum256([]byte(id))
	return prefix + "-" + hex.EncodeToString(sum[:])[:17]
}

// uuid returns the machine's id: that of its device, or of its port if it has none.
func (m *Machine) uuid() string {
	if m.DeviceID != "" {
		return m.DeviceID
	}
	return m.PortID
}

// ownLink returns the interface of the port that the machine is asking by.
func (m *Machine) ownLink() *topology.InstanceLink {
	for i := range m.Links {
		if m.Links[i].PortID == m.PortID {
			return &m.Links[i]
		}
	}
	return &topology.InstanceLink{PortID: m.PortID}
}

// firstAddress returns the port's first address, of IPv4 if it has one.
func (m *Machine) firstAddress() (first netip.Addr) {
	for _, s := range m.ownLink().Subnets {
		if a := s.Address.Addr(); !first.IsValid() || a.Is4() && first.Is6() {
			first = a
		}
	}
	return first
}

// hostname returns the machine's name in its domain.
func (m *Machine) hostname() string {
	name := m.Hostname
	if name == "" {
		name = hostLabel(m.Name)
	}
	if a := m.firstAddress(); name == "" && a.IsValid() {
		name = "host-" + strings.NewReplacer(".", "-", ":", "-").Replace(a.String())
	}
	if name == "" {
		name = "host-" + m.PortID
	}
	if m.Domain == "" || strings.Contains(name, ".") {
		return name
	}
	return name + "." + strings.TrimSuffix(m.Domain, ".")
}

// hostLabel makes a host's name of any text, as Nova does: in lower case, with dashes for spaces
// and underscores, without what cannot be in a name; "" if nothing is left.
func hostLabel(text string) string {
	label := strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '-', c == '.':
			return c
		case c == ' ' || c == '_':
			return '-'
		}
		return -1
	}, strings.ToLower(text))
	return strings.Trim(label[:min(len(label), 63)], "-.")
}

// sshKey is a public key with its name.
type sshKey struct{ name, data string }

// keys returns the machine's keys. A key's name is its comment, or its number.
func (m *Machine) keys() []sshKey {
	var all []sshKey
	taken := map[string]bool{}
	for i, line := range m.SSHKeys {
		name := "key-" + strconv.Itoa(i)
		if f := strings.Fields(line); len(f) > 2 && !strings.ContainsAny(f[len(f)-1], "=/") && !taken[f[len(f)-1]] {
			name = f[len(f)-1]
		}
		taken[name] = true
		all = append(all, sshKey{name, line})
	}
	return all
}
