package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/internal/netlab"
	"heddle/internal/netlab/guest"
)

// guide describes how to follow a page of the documentation on fresh machines.
type guide struct {
	// after lists the sections of other guides that the guide assumes, such as "install.md#The
	// server".
	after []string
	// machines lists the guide's machines with the last byte of their addresses in 192.0.2.0/24.
	// Blocks run on the first one by default; the others have heddle and its units from the start.
	machines []machineAt
	blocks   map[string]blockStep // by the first line of the block, or the heading before it
	// guests puts a kernel, an initramfs and a busybox for guests into /opt/heddle-shared.
	guests bool
}

type machineAt struct {
	name string
	last int
}

// blockStep overrides how one block is followed. Without one, it runs unchanged on the first
// machine.
type blockStep struct {
	on     []string          // machines to run it on, in parallel
	change map[string]string // replacements in its text; {machine} in them is the machine that the block runs on
	until  string            // run again until the output contains this
	notRun string            // why the block is not run
	// first and then are commands to run before and after it, for steps that the page describes in
	// words, such as copying files to another machine through /opt/heddle-shared, and to check the
	// result.
	first, then string
	token       string // host or server to make the block's join token for; {machine} is the machine that the block runs on
	file        string // file to write the block to, unless the preceding sentence ends with its name
}

// guides lists the pages to follow by file name.
var guides = map[string]guide{
	"install.md": {machines: []machineAt{{"cloud", 1}}, blocks: map[string]blockStep{
		"apt-get install ./heddle_*_amd64.deb": {notRun: "scripts/package follows it, under a real systemd"},
		"make setup build":                     {change: map[string]string{"make setup build\n": ""}}, // the test's own binary is bin/heddle
	}},
	"everyday.md": {after: install, machines: []machineAt{{"cloud", 1}}, blocks: map[string]blockStep{
		"kill $(ip netns pids web)            # its web server": {first: "ip netns exec web grep 192.0.2.53 /etc/resolv.conf",
			then: "fails grep . <(heddle port list -o name); fails grep ': tap' <(ip -o link)"},
	}},
	"podman.md": {after: install, machines: []machineAt{{"cloud", 1}}, blocks: map[string]blockStep{
		`{`: {file: "/etc/cni/net.d/blue.conflist"},
		"mkdir -p /srv/web/bin /srv/web/www": {first: podmanHere, change: podmanChange,
			then: "tc qdisc show | grep tbf; heddle port show web | grep ACTIVE"},
		"heddle sg create empty":         {change: map[string]string{"podman run": "fails podman run --ulimit host", " || echo refused": ""}},
		"podman rm --force --time 0 web": {then: "fails grep . <(heddle port list -o name); fails grep ': tap' <(ip -o link)"},
	}},
	"lxd.md": {after: install, machines: []machineAt{{"cloud", 1}}, guests: true, blocks: map[string]blockStep{
		"id=$(heddle port show web -o json | jq -r .id)": {first: ". /opt/heddle-source/cmd/heddle/testdata/guides/lxd",
			// A machine of namespaces may not map other users.
			change: map[string]string{"images:debian/12 web": "debian web -c security.privileged=true"}},
	}},
	"nova.md": {after: install, machines: []machineAt{{"cloud", 1}}, blocks: map[string]blockStep{
		"openstack user create --domain default --project service --password-prompt heddle": {
			notRun: "needs a Keystone whose catalog can be changed; the machine's own identity service takes its place"},
		"clouds:": {change: map[string]string{"https://keystone.example:5000/v3": "http://127.0.0.1:5000/v3", "username: heddle": "username: admin",
			"project_name: service": "project_name: admin"}, then: `sed -i "s/…/$OS_PASSWORD/" /etc/heddle/nova-clouds.yaml`},
		"chown heddle: /etc/heddle/nova-clouds.yaml": {first: "/opt/heddle-source/cmd/heddle/testdata/guides/nova &"},
		"serve:":                        {change: map[string]string{"https://nova.example": "http://127.0.0.1"}},
		"[neutron]":                     {file: "/etc/nova.conf"},
		"openstack network create blue": {then: "until grep \"network-vif-plugged $port\" /run/nova-events; do sleep 0.2; done"},
		"openstack port delete vm1":     {then: "until grep \"network-vif-deleted $port\" /run/nova-events; do sleep 0.2; done"},
	}},
	"metadata.md": {after: install, machines: []machineAt{{"cloud", 1}}, blocks: map[string]blockStep{
		"ip netns add web": {then: "ip netns exec web curl -sf http://169.254.169.254/openstack/latest/meta_data.json | grep '\"hostname\":\"web-1\\.'"},
	}},
	"hosts.md": {after: install, machines: []machineAt{{"cloud", 1}, {"h1", 11}}, blocks: map[string]blockStep{
		"install -d /etc/heddle":               {on: []string{"h1"}},
		"heddle host list":                     {until: "h1 "},
		"systemctl disable --now heddle-agent": {on: []string{"h1"}},
		"systemctl stop heddle-agent":          {on: []string{"h1"}, token: "h1"},
	}},
	"../../README.md": {machines: []machineAt{{"cloud", 1}}, blocks: map[string]blockStep{
		"make demo      # installs what it needs, builds, and runs the whole product on this machine with real traffic": {
			notRun: "continuous integration runs both in a root of their own"},
		"make setup build": {change: map[string]string{"make setup build\n": ""}},
		"bin/heddle xapi --agents-listen ADDRESS:2379 --operator-listen ADDRESS:9698 &          # the pool": {
			notRun: "an overview with the pool's UUIDs left out; xenapi.md has it at length"},
		"heddle serve        the control plane          heddle trace        follow one packet, live or offline": {notRun: "a list of commands, not to be run"},
	}},
	"tls.md": {after: install, machines: []machineAt{{"cloud", 1}}, blocks: map[string]blockStep{
		"heddle: --neutron-listen: neutron API: 192.0.2.1:9696 is not a loopback address and there is no TLS certificate: give --tls-cert and --tls-key, …": {
			notRun: "what the server says, not a command"},
		"export OS_AUTH_URL=https://cloud.example:5000/v3 OS_CACERT=/path/to/ca.crt": {change: map[string]string{"/path/to": "/etc/heddle/tls"}},
		"heddle serve --keystone-url https://keystone.example:5000/v3 --keystone-ca /etc/heddle/tls/keystone-ca.crt --keystone-user heddle --keystone-password-file /etc/heddle/keystone-password": {
			notRun: "needs a Keystone; the tests of internal/identity have one"},
	}},
	"calico.md": {
		after:    append(slices.Clone(install), "hosts.md#Open the server", "hosts.md#Join"),
		machines: []machineAt{{"cloud", 1}, {"h1", 11}},
		blocks: map[string]blockStep{
			"agent:":                         {on: []string{"h1"}},
			"systemctl restart heddle-agent": {on: []string{"h1"}},
			`c, err := client.New(client.Options{Endpoints: []string{"https://192.0.2.1:2379"}, CAFile: "ca.crt", CertFile: "client.crt", KeyFile: "client.key"})`: {
				notRun: "Go; the examples of calico/client run as tests"},
			"heddle calico sweep": {change: map[string]string{"sweep": "sweep --every 1s"}}, // not a minute
			`heddle calico key /calico/v1/policy/tier/default/policy/web      # {"kind": "Policy", "ids": {"tier": "default", "policy": "web"}}`: {
				first: `echo '{"kind": "Policy", "ids": {"tier": "default", "policy": "web"}}' > objects.jsonl
					echo '{"selector": "role == \"web\"", "order": 1, "inbound_rules": [], "outbound_rules": []}' > web.json`},
		}},
	"dhcp.md": {
		after:    append(slices.Clone(install), "hosts.md#Open the server", "hosts.md#Join"),
		machines: []machineAt{{"cloud", 1}, {"h1", 11}},
		blocks: map[string]blockStep{
			"apt-get install dnsmasq-base":   {on: []string{"h1"}, change: map[string]string{"apt-get install dnsmasq-base\n": ""}}, // scripts/setup has
			"agent:":                         {on: []string{"h1"}},
			"systemctl restart heddle-agent": {on: []string{"h1"}},
			"heddle agent --dhcp --policy":   {notRun: "by hand, instead of the unit that runs"},
			"ln -s /usr/local/bin/heddle /usr/local/bin/calico-dhcp-agent": {
				notRun: "the other way, for hosts set up for Neutron's own agent; other tests start it so"},
			"[calico]": {notRun: "of that other way; TestNeutronOptions reads it"},
			"openstack network create --provider-network-type routed lan": {then: "openstack port show vm1 -f value -c id -c mac_address > /opt/heddle-shared/vm1"},
			"plug() {                     # NAME ID MAC":                  {on: []string{"h1"}, change: map[string]string{"plug vm1 ID MAC ": "plug vm1 $(cat /opt/heddle-shared/vm1) "}},
			// dhclient goes to the background before it writes the file.
			"until ip -n vm1 -6 addr show dev eth0 scope link -tentative | grep -q inet6; do sleep 1; done": {on: []string{"h1"}, change: map[string]string{
				"kill": "until [ -s /tmp/vm1.pid ]; do sleep 0.1; done; kill"}},
			"ip netns delete vm1":             {on: []string{"h1"}},
			"kind: DHCPSubnet":                {file: "web.yaml", then: "heddle calico apply -f web.yaml"},
			"heddle calico get wep --host h1": {change: map[string]string{"h1/openstack/vm1/PORT-ID": "h1/vm/web1/eth0"}},
			`msg="endpoint is not served" key=/calico/v1/host/h1/workload/vm/web1/endpoint/eth0 reason="subnet \"apps\" is not known"`: {
				notRun: "a line of the log"},
			"tcpdump -e -n -v -i tap… 'udp port 67 or udp port 547 or icmp6'": {notRun: "a look at packets until Ctrl-C"},
			`msg=dnsmasq says="DHCPACK(ns-calico) 10.65.0.169 fa:16:3e:e5:1d:00 host-10-65-0-169" interface=tap55d5d364-6f`: {
				notRun: "a line of the log"},
			"systemctl disable --now heddle-agent": {on: []string{"h1"}},
		}},
	"operating.md": {
		after:    append(slices.Clone(install), "install.md#A network with two workloads"),
		machines: []machineAt{{"cloud", 1}},
		blocks: map[string]blockStep{
			"heddle status                        # first what is wrong, then servers, store, certificates, ports and hosts": {change: map[string]string{"--host h1": "--host cloud"}},
			"openstack port show vm1 -c status -c binding_host_id -c binding_vif_type":                                       {change: map[string]string{"PORT-ID": "$(openstack port show vm1 -f value -c id)"}},
			"apt-get install ./heddle_NEW_amd64.deb":                                                                         {notRun: "scripts/package upgrades a package, under a real systemd"},
			"install -m 755 heddle.new /usr/local/bin/heddle":                                                                {first: "cp bin/heddle heddle.new"},
			"systemctl stop heddle": {notRun: "scripts/package follows it, under a real systemd"},
			"heddle doctor --config /etc/heddle/heddle.yaml --peer 192.0.2.12": {change: map[string]string{"192.0.2.12": "192.0.2.1"}},
			`curl -f -X PUT -H "X-Auth-Token: $(openstack token issue -f value -c id)" -d '{"quota": {"port": 1000}}' https://cloud.example:9696/v2.0/quotas/PROJECT-ID`: {
				change: map[string]string{"https://cloud.example:9696": "http://127.0.0.1:9696", "PROJECT-ID": "$(openstack token issue -f value -c project_id)"}},
		}},
	"monitoring.md": {after: install, machines: []machineAt{{"cloud", 1}}, blocks: map[string]blockStep{
		"heddle status --host h1":    {change: map[string]string{"h1": "cloud"}},
		"apt-get install prometheus": {change: map[string]string{"apt-get install prometheus\n": ""}}, // scripts/setup has
		"promtool query instant http://127.0.0.1:9090 'up{job=\"heddle\"}'":     {change: both("promtool query instant http://127.0.0.1:9090 'up{job=\"heddle\"}'", "=> 1 ")},
		"promtool query instant http://127.0.0.1:9090 'ALERTS{job=\"heddle\"}'": {until: "HeddleBackupOld", then: "ls /etc/heddle/monitoring/grafana/overview.json"},
	}},
	"tracing.md": {after: install, machines: []machineAt{{"cloud", 1}}, blocks: map[string]blockStep{
		"heddle net create traced": {change: map[string]string{"curl -s": "until curl -s", "[1-9]'": "[1-9]'; do sleep 0.2; done"}, first: ". /var/lib/heddle/openrc"},
	}},
	"upgrade.md": {after: install, machines: []machineAt{{"cloud", 1}}, blocks: map[string]blockStep{
		"apt-get install ./heddle_NEW_amd64.deb":          {notRun: "scripts/package upgrades a package, under a real systemd"},
		"apt-get install ./heddle_NEW_amd64.deb (2)":      {notRun: "as on the servers"},
		"install -m 755 heddle.new /usr/local/bin/heddle": {first: "cp bin/heddle heddle.new"},
		"./heddle.new upgrade plan --max-unavailable 2":   {first: "cp bin/heddle heddle.new"},
		"heddle upgrade status":                           {until: "programs must know format", then: "heddle upgrade status | grep 'agent .*cloud.* ok'"},
		"heddle: format 2 cannot be used yet: agent on h1 (v0.1.0) reads format 1 and writes 1; upgrade or stop them first": {notRun: "what the command says"},
	}},
	"authority.md": {after: append(slices.Clone(install), "hosts.md#Open the server", "hosts.md#Join"), machines: []machineAt{{"cloud", 1}, {"h1", 11}}, blocks: map[string]blockStep{
		"heddle ca rotate": {then: "heddle ca status | grep -v h1.*former; until heddle host list | grep 'h1 .* up '; do sleep 0.2; done"},
	}},
	"cluster.md": {
		after:    append(slices.Clone(install), "hosts.md#Open the server", "hosts.md#Join"),
		machines: []machineAt{{"cloud", 1}, {"h1", 11}, {"s2", 2}, {"s3", 3}},
		blocks: map[string]blockStep{
			"install -d /etc/heddle": {on: twoServers, then: "adduser --quiet --system --group --no-create-home --home /var/lib/heddle heddle"},
			"serve: (2)":             {on: twoServers, then: `sed -i "s/192.0.2.2:/192.0.2.${HOSTNAME#s}:/" /etc/heddle/heddle.yaml`},
			"install -d -o heddle -g heddle -m 700 /var/lib/heddle": {on: twoServers, token: "{machine}"}, // at once, although the page says one at a time
			". /var/lib/heddle/openrc":                              {on: twoServers[1:], change: map[string]string{"heddle cluster list": "until [ $(heddle cluster list | grep -c ' up ') = 3 ]; do sleep 0.2; done"}},
			"heddle cluster remove s2":                              {change: map[string]string{"heddle cluster remove s2": "until heddle cluster remove s2; do sleep 0.5; done"}}, // it was up a moment ago
			"heddle cluster remove s3":                              {change: map[string]string{"heddle cluster remove s3": "until heddle cluster remove s3; do sleep 0.5; done"}},
		}},
	"etcd.md": {
		after:    append(slices.Clone(install), "tls.md#A certificate", "tls.md#The server", "hosts.md#Join"),
		machines: []machineAt{{"cloud", 1}, {"h1", 11}, {"e1", 21}, {"e2", 22}, {"e3", 23}, {"next", 2}},
		blocks: map[string]blockStep{
			"apt-get install etcd-client": {change: map[string]string{"apt-get install etcd-client\n": ""}}, // scripts/setup has
			"cd /root/etcd":               {then: "cp 192*.tar /opt/heddle-shared/"},
			"address=192.0.2.21 name=e1": {on: []string{"e1", "e2", "e3"}, change: map[string]string{
				"address=192.0.2.21 name=e1":    "name={machine} address=$(hostname | sed 's/e/192.0.2.2/'); cp /opt/heddle-shared/$address.tar /root/member.tar",
				"apt-get install etcd-server\n": ""}}, // scripts/setup has
			"heddle host list": {change: both("heddle host list", " up ")},
			"tar -cf /root/server.tar -C / etc/heddle/heddle.yaml etc/heddle/tls etc/heddle/etcd var/lib/heddle/secrets.key var/lib/heddle/tls/ca.crt var/lib/heddle/tls/ca.key": {
				then: "cp /root/server.tar /opt/heddle-shared/"},
			"adduser --system --group --no-create-home --home /var/lib/heddle heddle": {on: []string{"next"}, first: "cp /opt/heddle-shared/server.tar /root/"},
		}},
	"backup.md": {after: install, machines: []machineAt{{"cloud", 1}, {"new", 2}}, blocks: map[string]blockStep{
		"systemctl stop heddle": {then: "cp /var/backups/heddle/today.db /opt/heddle-shared/"},
		"install -d -o heddle -g heddle -m 700 /var/lib/heddle /var/backups/heddle": {on: []string{"new"},
			first: `adduser --quiet --system --group --no-create-home --home /var/lib/heddle heddle
				install -d /etc/heddle
				printf 'serve:\n  data: /var/lib/heddle\n' > /etc/heddle/heddle.yaml
				cp /opt/heddle-shared/today.db /root/`,
			change: map[string]string{"HEDDLE_ADMIN_PASSWORD=…": "HEDDLE_ADMIN_PASSWORD=a-new-password"}},
		"systemctl enable --now heddle": {on: []string{"new"}, then: ". /var/lib/heddle/openrc; heddle host list | grep cloud"},
		"ETCDCTL_API=3 etcdctl snapshot restore today.db --name e1 --initial-cluster e1=https://192.0.2.21:2380,e2=https://192.0.2.22:2380,e3=https://192.0.2.23:2380 --initial-advertise-peer-urls https://192.0.2.21:2380 --data-dir /var/lib/etcd/heddle": {
			notRun: "one member of three, which this guide does not have; the tests of internal/store restore a cluster"},
		"etcdutl snapshot restore today.db --bump-revision 1000000000 --mark-compacted --data-dir …": {
			notRun: "Debian 12's etcd has no etcdutl; the tests of internal/store restore a cluster"},
	}},
	"policy-agent.md": {after: install[:1], machines: []machineAt{{"h1", 11}}, blocks: map[string]blockStep{
		"heddle agent --policy":                       {notRun: "by hand, instead of the unit that runs"},
		"apt-get install etcd-server":                 {change: map[string]string{"apt-get install etcd-server": "systemctl start etcd"}}, // scripts/setup has it; installing starts it
		"export HEDDLE_ETCD_ENDPOINTS=127.0.0.1:2379": {first: "ip route add default via 192.0.2.1"},
		"heddle calico apply -f first.yaml":           {change: both("heddle calico get wepstatus", "up")},
		"ip netns exec web ping -c 1 -W 1 10.65.0.3":  {change: map[string]string{"ip netns": "fails ip netns"}},
		"systemctl disable --now heddle-agent":        {then: "fails grep . <(nft list ruleset; ip route show proto 79)"},
	}},
	"bgp.md": {
		after:    append(slices.Clone(install), "hosts.md#Open the server"),
		machines: []machineAt{{"cloud", 1}, {"h1", 11}, {"h2", 12}, {"router", 254}},
		blocks: map[string]blockStep{
			"install -d /etc/heddle":               {on: []string{"h1", "h2"}, token: "{machine}"},
			"ip route show proto 81":               {on: []string{"h1"}, until: "via 192.0.2.12"},
			"router id 192.0.2.254;":               {on: []string{"router"}, file: "/etc/bird/bird.conf"},
			"sysctl -w net.ipv4.ip_forward=1":      {on: []string{"router"}, change: both("birdc show route", "AS6460[12]i")},
			"ip route show proto 81 (2)":           {on: []string{"h1"}, until: "via 192.0.2.254", then: `curl -s http://127.0.0.1:9699/metrics | grep -F 'session_up{origin="global",peer="192.0.2.254"} 1'`},
			"ip route add 10.65.9.9/32 dev eth0":   {on: []string{"h1"}},
			"birdc show route":                     {on: []string{"router"}, until: "10.65.9.9/32", then: "fails grep 10.96.5.0 <(birdc show route)"},
			"birdc show route (2)":                 {on: []string{"router"}, until: "10.96.5.0/24", then: "until fails grep 10.65.9.9 <(birdc show route); do sleep 0.2; done"},
			"systemctl disable --now heddle-agent": {on: []string{"h1"}, then: "fails grep . <(ip route show proto 81; nft list ruleset)"},
		}},
	"outside.md": {
		after:    append(slices.Clone(install), "hosts.md#Open the server"),
		machines: []machineAt{{"cloud", 1}, {"h1", 11}, {"h2", 12}, {"router", 254}},
		blocks: map[string]blockStep{
			"install -d /etc/heddle": {on: twoHosts, token: "{machine}", change: map[string]string{"192.0.2.11": "192.0.2.1'${HOSTNAME#h}'"}},
			"openstack network agent show $(openstack network agent list --host h1 --agent-type open-vswitch -f value -c ID) -c configuration": {until: "eth0"},
			"openstack network create blue":              {then: "openstack port show vm1 -f value -c id -c mac_address > /opt/heddle-shared/vm1"},
			"plug() {                     # NAME ID MAC": {on: []string{"h2"}, change: map[string]string{"plug vm1 ID MAC": "plug vm1 $(cat /opt/heddle-shared/vm1)"}},
			"ping -c 3 192.0.2.180":                      {on: []string{"router"}},
			"systemctl stop heddle-agent":                {on: twoHosts},
		}},
	"libvirt.md": {
		after:    append(slices.Clone(install), "tls.md#A certificate", "tls.md#The server"),
		machines: []machineAt{{"cloud", 1}, {"h1", 11}, {"h2", 12}},
		guests:   true,
		blocks: map[string]blockStep{
			"heddle host token h1":              {then: "cp /etc/heddle/tls/ca.crt /var/lib/heddle/clouds.yaml /opt/heddle-shared/"},
			"install -d -m 755 /etc/heddle/tls": {on: twoHosts, token: "{machine}", change: map[string]string{"192.0.2.11": "192.0.2.1'${HOSTNAME#h}'"}},
			"scp cloud.example:/etc/heddle/tls/ca.crt /etc/heddle/tls/": {on: twoHosts, change: map[string]string{
				"scp cloud.example:/etc/heddle/tls/": "cp /opt/heddle-shared/", "scp cloud.example:/var/lib/heddle/": "cp /opt/heddle-shared/"}},
			"apt-get install libvirt-daemon-system libvirt-clients qemu-system-x86": {on: twoHosts, change: map[string]string{
				"apt-get install libvirt-daemon-system libvirt-clients qemu-system-x86\n":  "", // scripts/setup has
				"ln -s /usr/lib/heddle/bin/heddle-libvirt-hook /etc/libvirt/hooks/qemu.d/": "ln -s /usr/local/bin/heddle /etc/libvirt/hooks/qemu.d/heddle-libvirt-hook",
				"systemctl restart libvirtd": ". /opt/heddle-source/cmd/heddle/testdata/guides/libvirtd"}},
			"export OS_CLIENT_CONFIG_FILE=/etc/heddle/clouds.yaml OS_CLOUD=heddle": {on: twoHosts[:1]},
			// The guest is emulated: see internal/netlab/guest.
			"id=$(heddle port show web -o json | jq -r .id)": {on: twoHosts[:1], change: map[string]string{"type='kvm'": "type='qemu'", "MiB'>512": "MiB'>128",
				"</type></os>": "</type><kernel>/opt/heddle-shared/vmlinuz</kernel><initrd>/opt/heddle-shared/initrd.gz</initrd><cmdline>console=ttyS0 quiet</cmdline></os>",
				"    <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/srv/images/web.qcow2'/><target dev='vda' bus='virtio'/></disk>\n": ""}},
			`until heddle port show web -o json | jq -e '.status == "ACTIVE"'; do sleep 1; done`: {on: twoHosts[:1]},
			"ip netns add client":     {on: twoHosts[:1]},
			"heddle sg create closed": {on: twoHosts[:1], change: map[string]string{"! ip netns": "fails ip netns"}},
			"virsh migrate --live --p2p web qemu+ssh://h2/system": {on: twoHosts[:1], change: map[string]string{
				"qemu+ssh://h2/system": "'qemu+unix:///system?socket=/opt/heddle-shared/libvirt-h2/libvirt-sock'"}},
			`until heddle port show web -o json | jq -e '."binding:host_id" == "h2" and .status == "ACTIVE"'; do sleep 1; done`: {on: twoHosts[:1]},
			"virsh destroy web": {on: twoHosts[1:]},
			`until heddle port show web -o json | jq -e '."binding:host_id" == ""'; do sleep 1; done`: {on: twoHosts[:1],
				then: "[ \"$(heddle port show web -o json | jq -r .device_owner)\" = '' ]"},
		}},
	"machines.md": {after: install, machines: []machineAt{{"cloud", 1}}, guests: true, blocks: map[string]blockStep{
		"qemu-system-x86_64 -M microvm -enable-kvm -cpu host -m 512 -nodefaults -no-user-config -display none -serial file:/tmp/m1.log \\": {change: map[string]string{
			// The guest is emulated, and without a disk: see internal/netlab/guest.
			"-enable-kvm -cpu host -m 512": "-accel tcg -m 128",
			`-kernel vmlinux -append "console=ttyS0 root=/dev/vda rw"`: `-kernel /opt/heddle-shared/vmlinuz -initrd /opt/heddle-shared/initrd.gz ` +
				`-append "console=ttyS0 tsc_early_khz=2500000 lpj=4000000 no_timer_check"`,
			"  -drive id=root,file=root.img,format=raw,if=none -device virtio-blk-device,drive=root \\\n": ""}},
		`"network-interfaces": [{"iface_id": "eth0", "guest_mac": "MAC", "host_dev_name": "TAP"}]`: {notRun: "a part of Firecracker's configuration, which no package of Debian's has"},
		"kill %1": {then: `until heddle port show m1 -o json | jq -e '.status == "DOWN"'; do sleep 0.2; done`},
	}},
	"l2-gateways.md": {
		after:    append(slices.Clone(install), "install.md#A network with two workloads"),
		machines: []machineAt{{"cloud", 1}, {"tor", 30}},
		blocks: map[string]blockStep{
			"ip netns add rack": {change: map[string]string{"ip -n rack link add link eth0 name vlan101 mtu 1446 type vlan id 101": `
				ip netns exec rack /opt/heddle-source/cmd/heddle/testdata/guides/vlan eth0 vlan101 101 &
				until ip -n rack link set vlan101 mtu 1446; do sleep 0.1; done`}},
			"ip link add vx0 address 02:00:00:00:77:01 type vxlan id 77 dstport 4789 local 203.0.113.11 remote 203.0.113.5 noudpcsum": {
				first:  outsideUplink("203.0.113.11/24"),
				change: map[string]string{"ip link": "ip -n outside link", "ip addr": "ip -n outside addr", "ping": "ip netns exec outside ping"}},
			"mkdir -p /run/openvswitch":                              {on: []string{"tor"}},
			"openstack network agent list | grep 'L2 Gateway agent'": {change: map[string]string{"openstack network agent list | grep 'L2 Gateway agent'": "until openstack network agent list | grep 'L2 Gateway agent.*:-)'; do sleep 0.2; done"}},
			"vtep-ctl list-bindings tor1 eth7":                       {on: []string{"tor"}, until: "heddle-"},
		}},
	"../bgp-routers.md": {
		after:    install,
		machines: []machineAt{{"cloud", 1}},
		blocks: map[string]blockStep{
			"openstack router create edge": {change: map[string]string{"--host h1": "--host cloud"},
				first: "openstack network create blue; openstack subnet create blue --network blue --subnet-range 10.0.0.0/24"},
			"router id 203.0.113.1;": {file: "/etc/bird/bird.conf", then: outsideUplink("203.0.113.1/30") + "; ip netns exec outside bird -s /run/outside.ctl"},
			"heddle bgp show":        {until: "established", then: "until birdc -s /run/outside.ctl show route | grep 10.0.0.0/24; do sleep 0.2; done"},
			"openstack router create way-out": {
				first: "openstack network create --external public; openstack subnet create public --network public --subnet-range 198.51.100.0/24",
				then:  `[ "$(openstack bgp speaker show way-out -f json | jq '.networks | length')" = 1 ]`},
			"ROUTER  AS     HOST  SPEAKER  PEER         PEER AS  STATE        UP     RECEIVED  REFUSED  ADVERTISED  NOTE": {notRun: "what the command prints"},
		}},
	"../loadbalancer.md": {
		after:    install,
		machines: []machineAt{{"cloud", 1}},
		blocks: map[string]blockStep{
			"openstack loadbalancer member create --address 10.0.0.11 --protocol-port 80 web-pool": {
				then: "openstack loadbalancer status show web | jq -e '.loadbalancer.listeners[0].pools[0].members | length == 2'"},
		}},
	"xenapi.md": {
		after:    install[:1],
		machines: []machineAt{{"cloud", 1}, {"h1", 11}, {"h2", 12}},
		blocks: map[string]blockStep{
			// scripts/setup has it; installing starts it. It is in user space, whatever this
			// machine's kernel can do.
			"apt-get install openvswitch-switch": {on: twoHosts, first: "ln -sf /bin/true /usr/share/openvswitch/scripts/ovs-kmod-ctl", change: map[string]string{
				"apt-get install openvswitch-switch": "/usr/share/openvswitch/scripts/ovs-ctl --system-id=random --ovs-vswitchd-options=--disable-system start"}},
			"address=192.0.2.11 mac=02:00:00:00:01:0b": {on: twoHosts, change: map[string]string{
				"address=192.0.2.11 mac=02:00:00:00:01:0b": "n=${HOSTNAME#h} address=192.0.2.1$n mac=02:00:00:00:01:0$n", "GATEWAY": "192.0.2.1"}},
			"ethtool -K eth0 tx off": {on: []string{"cloud", "h1", "h2"}},
			"install -d /etc/heddle": {on: twoHosts, token: "{machine}", change: map[string]string{
				"192.0.2.11": "'$address'", "xen: true": "xen: true\n  xen-datapath: netdev\n  xen-interface: eth0"}}, // a veth is no card
			"xe host-list params=name-label,address,software-version,host-metrics-live": {change: both(
				"xe host-list params=name-label,address,software-version,host-metrics-live", "network_backend: openvswitch",
				"xe pif-list params=host-name-label,device,IP,MTU", "IP .*192.0.2.1[12]")},
			"xe tunnel-list params=status":                            {change: both("xe tunnel-list params=status", "active: true")},
			"xe network-param-get uuid=$N param-name=bridge":          {until: "xapi0"},
			"ip netns add m1":                                         {on: twoHosts, change: map[string]string{"m1": "m$n", "10.77.0.1": "10.77.0.$n"}},
			"ip netns exec m1 ethtool -K eth0 tx off tso off gso off": {on: twoHosts, change: map[string]string{"m1": "m$n"}},
			"ip netns exec m1 ping -c 3 10.77.0.2":                    {on: []string{"h1"}},
			"systemctl disable --now heddle-agent":                    {on: []string{"h2"}, then: "fails ovs-vsctl br-exists xapi0"},
			"xe pool-eject host-uuid=$(xe host-list name-label=h2 --minimal)": {
				first: "xe pool-designate-new-master host-uuid=$(xe host-list name-label=h1 --minimal)", then: "fails grep h2 <(xe host-list)"},
		}},
}

// podmanHere prepares a machine for podman. It has a control group of its own, and device files of
// its own, whose owner container runtimes change.
const podmanHere = `mount -t tmpfs -o mode=755 dev /dev
	mkdir /dev/pts /dev/shm /dev/net
	mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts /dev/pts
	ln -s pts/ptmx /dev/ptmx
	ln -s /proc/self/fd /dev/fd
	mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/zero c 1 5; mknod -m 666 /dev/full c 1 7
	mknod -m 666 /dev/random c 1 8; mknod -m 666 /dev/urandom c 1 9; mknod -m 666 /dev/tty c 5 0
	mount -t cgroup2 none /sys/fs/cgroup
	printf '%s\n' '[engine]' 'cgroup_manager="cgroupfs"' 'events_logger="file"' 'runtime="crun"' '[containers]' 'cgroups="disabled"' 'default_ulimits=[]' >> /etc/containers/containers.conf
	printf '%s\n' '[storage]' 'driver="vfs"' 'runroot="/run/storage"' 'graphroot="/var/lib/storage"' > /etc/containers/storage.conf`

// podmanChange leaves limits as they are, which a machine of namespaces may not raise.
var podmanChange = map[string]string{"podman run": "podman run --ulimit host"}

// outsideUplink returns commands that make the interface uplink1 of a host, and at its other end a
// machine with an address in a namespace called outside.
func outsideUplink(address string) string {
	return `ip netns add outside
		ip link add uplink1 type veth peer name eth0 netns outside
		ip link set uplink1 up
		ip -n outside addr add ` + address + ` dev eth0
		ip -n outside link set lo up
		ip -n outside link set eth0 up`
}

var (
	twoHosts   = []string{"h1", "h2"}
	twoServers = []string{"s2", "s3"}
)

// both returns changes by which commands run again until two lines that they print, one for each of
// two hosts, match a pattern of grep. Its arguments are commands, each followed by its pattern.
func both(commands ...string) map[string]string {
	changes := map[string]string{}
	for pair := range slices.Chunk(commands, 2) {
		changes[pair[0]] = fmt.Sprintf("until [ $(%s | tee /dev/stderr | grep -c '%s') = 2 ]; do sleep 0.2; done", pair[0], pair[1])
	}
	return changes
}

// install lists the sections that most guides assume.
var install = []string{"install.md#Build and install", "install.md#The server", "install.md#The agent"}

// TestGuidesFromNothing follows each guide on fresh machines, as a reader who pastes every block
// would.
func TestGuidesFromNothing(t *testing.T) {
	t.Parallel()
	for page, g := range guides {
		t.Run(filepath.Base(page), func(t *testing.T) {
			t.Parallel()
			follow(t, page, g)
		})
	}
}

// TestGuideBlocks requires every guide with commands to be followed, and every step to match a
// block.
func TestGuideBlocks(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob(pagePath("*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for page := range guides {
		if path := pagePath(page); !slices.Contains(pages, path) {
			pages = append(pages, path)
		}
	}
	for _, path := range pages {
		page, err := filepath.Rel(pagePath("."), path)
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, b := range blocks(t, page) {
			names[b.name] = true
		}
		g, followed := guides[page]
		if !followed && len(names) > 0 {
			t.Errorf("docs/guides/%s has commands, and no test follows it: add it to guides", page)
		}
		for name := range g.blocks {
			if !names[name] {
				t.Errorf("docs/guides/%s has no block that begins with %q", page, name)
			}
		}
	}
}

// block is a run of indented lines of a page.
type block struct {
	page, section string
	before        string // the paragraph before it
	name          string // the first line; of the second block with the same one " (2)" follows
	text          string
	line          int
}

var heading = regexp.MustCompile("^#+ (.*)")

// blocks returns the indented blocks of a page. A blank line ends a block.
func blocks(t *testing.T, page string) []block {
	t.Helper()
	raw, err := os.ReadFile(pagePath(page))
	if err != nil {
		t.Fatal(err)
	}
	var all []block
	var section string
	seen := map[string]int{}
	next := 0 // where the next paragraph begins
	for paragraph := range strings.SplitSeq(strings.ReplaceAll(string(raw), "\n\n", "\n\x00\n"), "\x00\n") {
		at := next
		next += len(paragraph) + len("\n")
		if m := heading.FindStringSubmatch(paragraph); m != nil {
			section = m[1]
		}
		lines := strings.Split(strings.TrimRight(paragraph, "\n"), "\n")
		indent := len(lines[0]) - len(strings.TrimLeft(lines[0], " "))
		if indent < 4 {
			continue
		}
		var text strings.Builder
		for _, line := range lines {
			text.WriteString(strings.TrimPrefix(line, strings.Repeat(" ", indent)) + "\n")
		}
		before := strings.TrimRight(string(raw)[:at], "\n")
		before = before[strings.LastIndex(before, "\n\n")+1:]
		name := strings.TrimSpace(lines[0])
		if seen[name]++; seen[name] > 1 {
			name += fmt.Sprintf(" (%d)", seen[name])
		}
		all = append(all, block{page: page, section: section, before: before, name: name, text: text.String(), line: 1 + strings.Count(string(raw)[:at], "\n")})
	}
	return all
}

// pagePath returns the path of a page, given its path relative to the guides.
func pagePath(page string) string {
	return filepath.Join("..", "..", "docs", "guides", page)
}

var (
	contentOfFile = regexp.MustCompile(`^(?:[a-z-]+:(?: |$)|\[\w+\]$|[A-Z_]+=\S+$)`)
	quoted        = regexp.MustCompile("`([^`\\s]*[./][^`\\s]*)`")
	joinToken     = regexp.MustCompile(`heddle-(?:join|server)-1\.[\w.-]+`)
	// staysRunning lists commands that run until Ctrl-C.
	staysRunning = regexp.MustCompile(`^(?:runuser .* -- (?:env \S+ )?)?(?:heddle|calico-dhcp-agent)(?: (?:agent|serve|xapi|tunnel-controller)(?: -|$)|.* watch| --config-file)[^|&]*$`)
)

// follower runs the blocks of a guide.
type follower struct {
	t        *testing.T
	lab      *netlab.Lab
	wire     *netlab.Namespace
	guide    guide
	machines map[string]*machine
	shared   string // /opt/heddle-shared of all machines
	token    string // the last join token that was printed
}

// machine is a shell on one of the guide's machines.
type machine struct {
	name  string
	shell *exec.Cmd
	in    *os.File
	lines chan string
	tmp   string
	count int
	log   strings.Builder
}

// follow runs all of a page's blocks.
func follow(t *testing.T, page string, g guide) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("makes machines of namespaces: run it as root")
	}
	f := &follower{t: t, lab: netlab.ForTest(t), guide: g, machines: map[string]*machine{}, shared: t.TempDir()}
	if g.guests {
		f.shareGuest()
	}
	f.wire = f.lab.MustNamespace(t, "wire")
	f.wire.MustIP(t, "link add underlay type bridge", "link set underlay up")
	for i, m := range g.machines {
		f.machines[m.name] = f.boot(m, i > 0)
	}
	for _, at := range g.after {
		page, section, _ := strings.Cut(at, "#")
		other := guides[page]
		found := false
		for _, b := range blocks(t, page) {
			if b.section == section {
				found = true
				f.run(b, other.blocks[b.name])
			}
		}
		if !found {
			t.Fatalf("%s has no blocks in a section %q", page, section)
		}
	}
	for _, b := range blocks(t, page) {
		f.run(b, g.blocks[b.name])
	}
}

// shareGuest puts what guests boot, and a busybox that needs no libraries, where all machines see
// it.
func (f *follower) shareGuest() {
	f.t.Helper()
	image, err := guest.Build(f.shared)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, name := range []string{"vmlinuz", "busybox"} {
		raw, err := os.ReadFile(filepath.Join(filepath.Dir(image.Kernel), name))
		if err == nil {
			err = os.WriteFile(filepath.Join(f.shared, name), raw, 0o755)
		}
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

// boot creates a machine from namespaces: see testdata/guides/machine.
func (f *follower) boot(at machineAt, installed bool) *machine {
	t := f.t
	t.Helper()
	ns := f.lab.MustNamespace(t, at.name)
	f.lab.MustVeth(t, f.wire, at.name, ns, "eth0")
	f.wire.MustIP(t, "link set "+at.name+" master underlay")
	ns.MustIP(t, fmt.Sprintf("addr add 192.0.2.%d/24 dev eth0", at.last))
	binary, err := filepath.Abs(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	source, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{name: at.name, tmp: t.TempDir(), lines: make(chan string)}
	m.shell = exec.Command("unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child=SIGKILL",
		"bash", filepath.Join("testdata", "guides", "machine"), at.name, m.tmp, binary, source, f.shared)
	if installed {
		m.shell.Env = append(os.Environ(), "INSTALLED=yes")
	}
	for _, folder := range []string{"machine", "blocks"} {
		if err := os.Mkdir(filepath.Join(m.tmp, folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	m.shell.Stdout, m.shell.Stderr = write, write
	commands, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	m.shell.Stdin, m.in = commands, in
	if err := ns.Start(m.shell); err != nil {
		t.Fatal(err)
	}
	write.Close()
	commands.Close()
	go func() {
		defer close(m.lines)
		for s := bufio.NewScanner(read); s.Scan(); {
			m.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		in.Close()
		_ = m.shell.Process.Kill() // and with it all that runs on the machine
		for range m.lines {
		}
		_ = m.shell.Wait()
		if t.Failed() || testing.Verbose() {
			t.Logf("on %s:\n%s", m.name, m.log.String())
		}
	})
	return m
}

// run follows one block.
func (f *follower) run(b block, s blockStep) {
	f.t.Helper()
	if s.notRun != "" {
		return
	}
	on := s.on
	if len(on) == 0 {
		on = []string{f.guide.machines[0].name}
	}
	var waits sync.WaitGroup
	failed := make([]error, len(on))
	for i, name := range on {
		m := f.machines[name]
		if m == nil {
			f.t.Fatalf("docs/guides/%s:%d: no machine %s", b.page, b.line, name)
		}
		if s.token != "" {
			kind := "host"
			if strings.Contains(b.text, "heddle-server-1.") {
				kind = "cluster"
			}
			if err := f.execute(f.machines[f.guide.machines[0].name], "heddle "+kind+" token "+strings.ReplaceAll(s.token, "{machine}", name), ""); err != nil {
				f.t.Fatal(err)
			}
		}
		script := f.script(b, s, name)
		waits.Go(func() {
			begin := time.Now()
			fmt.Fprintf(&m.log, "# %s:%d %s\n", b.page, b.line, b.name)
			if failed[i] = f.execute(m, script, s.until); failed[i] == nil && s.then != "" {
				failed[i] = f.execute(m, s.then, "")
			}
			fmt.Fprintf(&m.log, "# took %s\n", time.Since(begin).Round(time.Millisecond))
		})
	}
	waits.Wait()
	for i, err := range failed {
		if err != nil {
			f.t.Fatalf("docs/guides/%s:%d, on %s: %v\n%s", b.page, b.line, on[i], err, b.text)
		}
	}
}

// script returns the shell script of a block for a machine.
func (f *follower) script(b block, s blockStep, on string) string {
	f.t.Helper()
	text := b.text
	for from, to := range s.change {
		if !strings.Contains(text, from) {
			f.t.Fatalf("docs/guides/%s:%d: there is no %q in the block", b.page, b.line, from)
		}
		text = strings.ReplaceAll(text, from, strings.ReplaceAll(to, "{machine}", on))
	}
	for _, kind := range []string{"join", "server"} {
		text = strings.ReplaceAll(text, "heddle-"+kind+"-1.eyJz…", f.token)
	}
	text = strings.ReplaceAll(text, "--join TOKEN", "--join "+f.token)
	text = strings.ReplaceAll(text, "ADDRESS-OF-THIS-HOST", "192.0.2.1")
	if s.file != "" || contentOfFile.MatchString(strings.TrimSuffix(b.name, " (2)")) {
		file := s.file
		if file == "" {
			names := quoted.FindAllStringSubmatch(b.before, -1)
			if len(names) == 0 {
				f.t.Fatalf("docs/guides/%s:%d: the paragraph before this file does not name it:\n%s", b.page, b.line, b.before)
			}
			file = names[len(names)-1][1]
		}
		return "cat > " + file + " <<'END-OF-FILE'\n" + text + "END-OF-FILE\n"
	}
	var script strings.Builder
	for line := range strings.Lines(text) {
		if staysRunning.MatchString(strings.TrimSpace(line)) && !strings.Contains(line, "--cleanup") {
			line = "until_ctrl_c " + line
		}
		script.WriteString(line)
	}
	return untilCtrlC + s.first + "\n" + script.String()
}

// untilCtrlC defines a shell function that runs a command until it is ready, then interrupts it.
const untilCtrlC = `until_ctrl_c() {
    set -m # a process group of its own
    "$@" & running=$!
    set +m
    case " $* " in
    *" serve "*) port=9697 ;;
    *" agent "*) port=9699 ;;
    *" watch "*) port=; sleep 1 ;;
    *) echo "when is $* ready?"; return 1 ;;
    esac
    if [ -n "$port" ]; then
        for n in $(seq 300); do
            ! curl -sf http://127.0.0.1:$port/readyz || break
            kill -0 $running || return 1
            sleep 0.2
        done
    fi
    kill -INT -- -$running
    wait $running || [ $? = 130 ] # of runuser itself
}
`

// execute runs a script in the machine's shell and waits for its end.
func (f *follower) execute(m *machine, script, until string) error {
	end := time.Now().Add(2 * time.Minute)
	for {
		out, err := m.execute(script, end)
		if token := joinToken.FindString(out); token != "" && err == nil {
			f.token = token
		}
		if err != nil {
			return err
		}
		if strings.Contains(out, until) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the output lacks %q:\n%s", until, out)
		}
	}
}

func (m *machine) execute(script string, end time.Time) (string, error) {
	m.count++
	name := fmt.Sprintf("block%d", m.count)
	if err := os.WriteFile(filepath.Join(m.tmp, "blocks", name), []byte(script), 0o600); err != nil {
		return "", err
	}
	file := "/opt/heddle-blocks/" + name
	if _, err := fmt.Fprintln(m.in, file); err != nil {
		return "", err
	}
	var out strings.Builder
	timeout := time.After(time.Until(end))
	for {
		select {
		case line, more := <-m.lines:
			if !more {
				return out.String(), fmt.Errorf("the shell ended:\n%s", out.String())
			}
			if line == "done "+file {
				return out.String(), nil
			}
			out.WriteString(line + "\n")
			m.log.WriteString(line + "\n")
		case <-timeout:
			return out.String(), fmt.Errorf("no end within two minutes:\n%s", out.String())
		}
	}
}
