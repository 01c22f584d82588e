//go:build hosts

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// bootLimit bounds the boot of a Debian whose processor is emulated.
const bootLimit = 15 * time.Minute

// switched is a network namespace with a switch, which has the address of the LAN's router.
type switched struct {
	t    *testing.T
	name string
}

// newSwitch makes the namespace, which ends with the test.
func newSwitch(t *testing.T) *switched {
	t.Helper()
	s := &switched{t, fmt.Sprint("heddle-lan-", os.Getpid())}
	t.Cleanup(func() { host(t, "ip netns delete "+s.name) })
	host(t, "ip netns add "+s.name)
	s.run("ip link add lan type bridge; ip addr add 192.0.2.254/24 dev lan; ip link set lan up")
	return s
}

// connect connects machines with the switch.
func (s *switched) connect(machines ...*machine) {
	s.t.Helper()
	for _, m := range machines {
		pid, err := m.init()
		if err != nil {
			s.t.Fatal(err)
		}
		host(s.t, fmt.Sprintf("nsenter -t %d -n ip link set wire name %s netns %s", pid, m.name, s.name))
		s.run(fmt.Sprintf("ip link set %s master lan up", m.name))
	}
}

// run runs lines of shell in the namespace.
func (s *switched) run(lines string) string {
	s.t.Helper()
	return host(s.t, "exec ip netns exec "+s.name+" bash -euc '"+lines+"'")
}

// host runs lines of shell on this machine.
func host(t *testing.T, lines string) string {
	t.Helper()
	out, err := exec.Command("bash", "-euc", lines).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", lines, err, out)
	}
	return string(out)
}

// token matches what the guide has in place of a token that hosts join by.
var token = regexp.MustCompile(`heddle-join-1\.\S*…`)

// TestHosts follows the guides with packages from nothing: a server, two hosts that join it, a
// virtual machine of Debian on each, which reach each other and the outside, and are reached by a
// floating IP with the key that cloud-init has put in place.
//
// HEDDLE_GUEST is a directory with the disk, kernel and initrd of the virtual machines, as
// scripts/hosts makes it.
func TestHosts(t *testing.T) {
	images := os.Getenv("HEDDLE_GUEST")
	lan := newSwitch(t)
	cloud, h1, h2 := newMachine(t, "cloud", "192.0.2.1"), newMachine(t, "h1", "192.0.2.11"), newMachine(t, "h2", "192.0.2.12")
	lan.connect(cloud, h1, h2)
	deb := pack(t, "v0.1.0", heddle)
	for _, m := range []*machine{cloud, h1, h2} {
		m.put(deb, "/root/heddle_0.1.0_amd64.deb")
	}

	server(t, cloud)
	for _, h := range []*machine{h1, h2} {
		join(t, cloud, h)
	}

	const login = ". /var/lib/heddle/openrc\n"
	for _, block := range []string{"openstack network create --external --provider-network-type flat --provider-physical-network physnet1 world", "openstack network create blue"} {
		cloud.run(login + guideBlock(t, "outside.md", block))
	}
	cloud.run(login + "openstack port create --network blue --host h1 --device-owner compute:me vm2; heddle sg rule add default --direction ingress --protocol tcp --port 22")
	cloud.run(guideLine(t, "metadata.md", "ssh-keygen"))
	for _, port := range []string{"vm1", "vm2"} {
		cloud.run("heddle metadata set --ssh-key key.pub --hostname " + port + " --port " + port)
	}
	boot(t, cloud, h2, "vm1", images)
	boot(t, cloud, h1, "vm2", images)
	for port, h := range map[string]*machine{"vm1": h2, "vm2": h1} {
		h.within(bootLimit, "finished at", "cat /root/"+port+".log")
	}

	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(cloud.run("cat key")), 0o600); err != nil {
		t.Fatal(err)
	}
	vm2 := strings.TrimSpace(cloud.run("heddle port show vm2 -o json | jq -r .fixed_ips[0].ip_address"))
	lan.run("ping -c 3 192.0.2.180")
	said := lan.run("ssh -i " + key + " -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null debian@192.0.2.180 \"hostname; ping -c 3 " + vm2 + "; ping -c 3 192.0.2.254\"")
	if strings.Count(said, " 0% packet loss") != 2 || !strings.Contains(said, "vm1\n") {
		t.Errorf("the virtual machine says\n%s", said)
	}
}

// server makes a server that hosts can join.
func server(t *testing.T, m *machine) {
	t.Helper()
	m.run(guideBlock(t, "install.md", "apt-get install ./heddle_*_amd64.deb"))
	m.write("/etc/heddle/heddle.yaml", []byte(guideBlock(t, "hosts.md", "serve:")))
	m.run(guideBlock(t, "hosts.md", "systemctl restart heddle heddle-agent"))
}

// join makes a machine a host that carries the physical network.
func join(t *testing.T, server, m *machine) {
	t.Helper()
	given := strings.TrimSpace(server.run(strings.Replace(guideBlock(t, "outside.md", "heddle host token h1"), "h1", m.name, 1)))
	lines := token.ReplaceAllLiteralString(guideBlock(t, "outside.md", "install -d /etc/heddle"), given[strings.LastIndex(given, "heddle-join-1."):])
	m.run("apt-get install ./heddle_*_amd64.deb\n" + strings.Replace(lines, "192.0.2.11", m.address, 1))
	server.until(m.name, "heddle host list | grep ' up '")
}

// boot boots a virtual machine of a port on a host, whose serial console is NAME.log there.
func boot(t *testing.T, server, m *machine, port, images string) {
	t.Helper()
	ids := strings.Fields(server.run("heddle port show " + port + " -o json | jq -r '.id, .mac_address'"))
	m.run(fmt.Sprintf(`qemu-system-x86_64 -M q35 -accel tcg,thread=single -cpu max,-cx16 -m 512 -nodefaults -no-user-config -display none -serial file:/root/%[1]s.log \
		-kernel %[2]s/vmlinuz -initrd %[2]s/initrd -append "console=ttyS0 root=/dev/vda rw" -smbios type=1,product="OpenStack Nova" \
		-drive id=root,file=%[2]s/disk,format=raw,if=none,snapshot=on -device virtio-blk-pci,drive=root -device virtio-rng-pci \
		-netdev tap,id=n,ifname=tap%.11[3]s,script=no,downscript=no -device virtio-net-pci,netdev=n,mac=%[4]s,romfile= </dev/null >/root/qemu.log 2>&1 &`,
		port, images, ids[0], ids[1]))
}

// guideLine returns the line of a guide's commands that begins with a command.
func guideLine(t *testing.T, page, first string) string {
	t.Helper()
	_, rest, found := strings.Cut(readGuide(t, page), "\n    "+first)
	if !found {
		t.Fatalf("%s has no line that begins with %q", page, first)
	}
	rest, _, _ = strings.Cut(rest, "\n")
	return first + rest
}
