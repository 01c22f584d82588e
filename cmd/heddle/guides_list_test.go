package main

import (
	"fmt"
	"slices"
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

// guides lists the pages to follow by file name, and sections that are followed by themselves, as
// PAGE#SECTION.
var guides = map[string]guide{
	"install.md": {machines: []machineAt{{"cloud", 1}}, blocks: map[string]blockStep{
		"apt-get install ./heddle_*_amd64.deb": {notRun: "scripts/package follows it, under a real systemd"},
		"make setup build":                     {change: map[string]string{"make setup build\n": ""}}, // the test's own binary is bin/heddle
	}},
	"everyday.md": {after: install, machines: []machineAt{{"cloud", 1}}, blocks: map[string]blockStep{
		"heddle why --from client --to web:22": {change: map[string]string{"heddle why": "fails heddle why"},
			then: "(heddle why --from client --to web:22 || true) | grep 'nearest in group .* (security group web): ingress IPv4 tcp 80: its ports are 80, not 22'"},
		"heddle why --from client:40122 --to web:80 --reply --steps": {change: map[string]string{"heddle why": "fails heddle why"}, // there is no such connection
			then: "(heddle why --from client:40122 --to web:80 --reply || true) | grep 'back  denied (no-rule)'"},
		"cat > routed.yaml <<'END'": {change: map[string]string{"heddle why": "fails heddle why"},
			then: "(heddle why --from front --to 10.65.0.2:81 || true) | grep 'there denied (policy): on host h2: policy default/db inbound rule 1'; heddle calico delete -f routed.yaml"},
		"kill $(ip netns pids web)            # its web server": {first: "ip netns exec web grep 192.0.2.53 /etc/resolv.conf",
			then: "fails grep . <(heddle port list -o name); fails grep ': tap' <(ip -o link)"},
	}},
	"podman.md": {after: install, machines: []machineAt{{"cloud", 1}}, blocks: map[string]blockStep{
		`{`: {file: "/etc/cni/net.d/blue.conflist"},
		"mkdir -p /srv/web/bin /srv/web/www": {first: podmanHere, change: podmanChange,
			then: "tc qdisc show | grep tbf; heddle port show web | grep ACTIVE"},
		"heddle sg create empty": {change: map[string]string{"podman run": "podman run --ulimit host", "|| echo refused": "| tee -a answers || echo refused | tee -a answers"},
			then: `[ "$(cat answers)" = $'refused\nhello' ]`},
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
			"systemctl stop heddle.socket heddle":                                                                            {notRun: "scripts/package follows it, under a real systemd"},
			"install -d /etc/systemd/system/heddle.socket.d":                                                                 {notRun: "scripts/package follows it, under a real systemd"},
			"journalctl -t heddle -p warning --since -1h":                                                                    {notRun: "scripts/package looks records up by fields, in a real journal"},
			"systemctl stop heddle.target         # returns when all have ended":                                             {notRun: "scripts/package follows it, under a real systemd"},
			"heddle doctor --peer 192.0.2.12":                                                                                {change: map[string]string{"192.0.2.12": "192.0.2.1"}},
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
		"store: written in format 2, programs must know format 2":                                                           {notRun: "what the command says"},
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
			". /var/lib/heddle/openrc": {on: twoServers[1:], change: map[string]string{"heddle cluster list": "until [ $(heddle cluster list | grep -c ' up ') = 3 ]; do sleep 0.2; done"},
				then: `cp -r /var/lib/heddle/tls /opt/heddle-shared/stolen # for when it is stolen
					printf 'agent:\n  server-data: /var/lib/heddle\n  tunnel-ip: 192.0.2.3\n' >> /etc/heddle/heddle.yaml
					systemctl enable --now heddle-agent`},
			"heddle cluster remove s2": {change: map[string]string{"heddle cluster remove s2": "until heddle cluster remove s2; do sleep 0.5; done"}}, // it was up a moment ago
			"heddle cluster remove s3": {change: map[string]string{"heddle cluster remove s3": "until heddle cluster remove s3; do sleep 0.5; done"}},
			"(umask 077; printf '%s\\n' heddle-join-1.eyJz… > /etc/heddle/join-token)": {on: twoServers[1:], token: "s3",
				first: "sed -i 's|server-data: .*|join-file: /etc/heddle/join-token|' /etc/heddle/heddle.yaml",
				then:  "until curl -sf http://127.0.0.1:9699/readyz; do sleep 0.2; done; test -e /var/lib/heddle-agent/host.json"},
			"heddle cluster remove s3 (2)":                      {notRun: stolenFollowed},
			"until heddle ca rotate --retire; do sleep 1; done": {notRun: stolenFollowed},
			"systemctl restart heddle (2)":                      {notRun: stolenFollowed},
			"heddle ca status --wait 1m":                        {notRun: stolenFollowed},
			"systemctl stop heddle.socket heddle":               {notRun: stolenFollowed},
			"systemctl start heddle":                            {notRun: stolenFollowed},
		}},
	"cluster.md#A server was stolen": {
		after:    append(slices.Clone(install), "hosts.md#Open the server", "hosts.md#Join", "cluster.md#The first server", "cluster.md#Each further server"),
		machines: []machineAt{{"cloud", 1}, {"h1", 11}, {"s2", 2}, {"s3", 3}},
		blocks: map[string]blockStep{
			// Stolen while a rotation waits for a program: with the authority that signs by then.
			"heddle cluster remove s3 (2)": {
				first: `heddle calico access p1 --dir /root/p1; heddle ca rotate
					until grep 'does not sign any more' <(heddle ca status) && fails grep 'server .* has no certificate' <(heddle ca status); do sleep 0.2; done
					cp -rT /var/lib/heddle/tls /opt/heddle-shared/stolen
					. /opt/heddle-source/cmd/heddle/testdata/guides/thief; opens_store stolen.crt stolen.key`,
				change: map[string]string{"heddle cluster remove s3": "until heddle cluster remove s3; do sleep 0.5; done"},
			},
			"until heddle ca rotate --retire; do sleep 1; done": {on: []string{"cloud", "s2"}, // at once, although the page says one at a time
				first: ". /opt/heddle-source/cmd/heddle/testdata/guides/thief; systemctl restart heddle",
				then:  "fails opens_store stolen.crt stolen.key; forge; fails opens_store forged.crt forged.key"},
			"systemctl restart heddle (2)": {on: []string{"cloud", "s2"}}, // at once, although the page says one at a time
			"systemctl stop heddle.socket heddle": {first: "former_password=$OS_PASSWORD",
				change: map[string]string{"HEDDLE_ADMIN_PASSWORD=…": "HEDDLE_ADMIN_PASSWORD=a-new-password"}},
			"systemctl start heddle": {then: "fails env OS_PASSWORD=$former_password heddle host list; until heddle host list | grep 'h1 .* up '; do sleep 0.2; done"},
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
			"systemctl stop heddle.socket heddle (2)": {on: []string{"cloud", "next"},
				first: "install -m 644 /opt/heddle-source/docs/guides/files/heddle.socket /etc/systemd/system/"}, // further machines have services alone
			"systemctl disable --now etcd": {on: []string{"e1", "e2", "e3"}},
			"heddle host list (2)": {first: "until ss -Htn state established 'sport = :2379' | grep 192.0.2.11; do sleep 0.2; done", // its lease of before may last
				change: both("heddle host list", " up ")},
		}},
	"backup.md": {after: install, machines: []machineAt{{"cloud", 1}, {"new", 2}}, blocks: map[string]blockStep{
		"systemctl stop heddle.socket heddle": {then: "cp /var/backups/heddle/today.db /var/lib/heddle/secrets.key /opt/heddle-shared/"},
		"install -d -o heddle -g heddle -m 700 /var/lib/heddle /var/backups/heddle": {on: []string{"new"},
			first: `adduser --quiet --system --group --no-create-home --home /var/lib/heddle heddle
				install -d /etc/heddle
				printf 'serve:\n  data: /var/lib/heddle\n' > /etc/heddle/heddle.yaml
				cp /opt/heddle-shared/{today.db,secrets.key} /root/`,
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

// podmanHere prepares a machine for podman.
const podmanHere = `. /opt/heddle-source/cmd/heddle/testdata/guides/container-host
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
// stolenFollowed is why the page about clusters is followed without a section.
const stolenFollowed = "followed by itself, where three servers are up: see cluster.md#A server was stolen"

var install = []string{"install.md#Build and install", "install.md#The server", "install.md#The agent"}
