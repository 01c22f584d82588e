package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func readGuide(t *testing.T, page string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("../../docs/guides", page))
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// guideBlock returns the block of commands of a guide that begins with a command.
func guideBlock(t *testing.T, page, first string) string {
	t.Helper()
	_, rest, found := strings.Cut(readGuide(t, page), "\n\n    "+first+"\n")
	if !found {
		t.Fatalf("%s has no block that begins with %q", page, first)
	}
	block, _, _ := strings.Cut(first+"\n"+rest, "\n\n")
	return strings.ReplaceAll(block, "\n    ", "\n") + "\n"
}

// TestPackageUnderSystemd follows the guide on a machine with a real systemd: the package starts
// nothing by itself, keeps what an operator wrote, starts again what hangs or dies, goes on over an
// upgrade and a reboot, refuses no client meanwhile, and leaves what it says when it is removed.
func TestPackageUnderSystemd(t *testing.T) {
	m := newMachine(t, "machine", "192.0.2.1")
	m.put(pack(t, "v0.1.0", heddle), "/root/heddle_0.1.0_amd64.deb")

	m.run("mkdir /etc/heddle; echo '# mine' >/etc/heddle/heddle.yaml; dpkg -i heddle_0.1.0_amd64.deb </dev/null")
	m.run("grep -qx '# mine' /etc/heddle/heddle.yaml; fails systemctl is-active heddle heddle-agent; fails systemctl is-enabled heddle heddle-agent")
	// A drop-in may be another package's.
	m.run("echo '# another' >/etc/heddle/conf.d/site.yaml; dpkg --purge heddle; grep -qx '# another' /etc/heddle/conf.d/site.yaml; fails test -e /etc/heddle/heddle.yaml; rm -r /etc/heddle")
	m.run("dpkg -i heddle_0.1.0_amd64.deb </dev/null; dpkg --purge heddle; fails test -e /etc/heddle")

	// apt, too, must not ask; what the package recommends is there, so that it needs no network.
	m.run(guideBlock(t, "install.md", "apt-get install ./heddle_*_amd64.deb"))
	m.run(`test "$(stat -c '%U %a' /var/lib/heddle)" = "heddle 700"; test "$(stat -c '%U' /etc/heddle/heddle.yaml)" = root; test "$(stat -c '%U %a' /etc/heddle/conf.d)" = "root 755"`)
	m.run("systemctl is-active heddle heddle-agent; systemctl show -P StatusText heddle | grep -x ready")
	m.until(" up ", "heddle host list")
	if said := m.run("dpkg -L heddle | grep ^/lib/systemd/system/ | xargs systemd-analyze verify --man=no"); said != "" {
		t.Errorf("systemd says of the units\n%s", said)
	}
	m.run(guideBlock(t, "tracing.md", "install -m 600 /dev/null /etc/default/heddle"))
	m.run("for unit in heddle heddle-agent; do grep -zq '^OTEL_EXPORTER_OTLP_HEADERS=Authorization=Bearer%20TOKEN$' /proc/$(systemctl show -P MainPID $unit)/environ; done")
	m.run(`for unit in heddle heddle-agent; do systemctl show -P ControlGroup $unit | grep "^/system.slice/system-heddle.slice/$unit.service$"; done
		systemctl show -P LimitNOFILE heddle | grep -x 1048576; systemctl show -P OOMScoreAdjust heddle-agent | grep -x -- -500
		systemctl set-property heddle MemoryHigh=2G; systemctl show -P MemoryHigh heddle | grep -x 2147483648; systemctl revert heddle`)
	m.run("systemctl reload heddle heddle-agent; systemctl is-active heddle heddle-agent; journalctl -u heddle | grep 'msg=reloaded'; journalctl -u heddle-agent | grep 'msg=reloaded'")
	m.run(`test "$(stat -c '%U %G %a' /run/heddle /run/heddle/serve.sock | tr '\n' ' ')" = "root heddle 1770 heddle heddle 600 "; heddle log-level --role serve`)
	m.run(`heddle support --timeout 2m --output-file /tmp/support.tar.gz; cd /tmp; tar -xzf support.tar.gz; rm support.tar.gz
		grep 'ExecStart=/usr/bin/heddle serve' support/units.txt; grep 'ExecStart=/usr/bin/heddle agent' support/units.txt; grep -x Id=heddle-agent.service support/units-state.txt`)
	m.run(`printf 'serve:\n  log-level: debug\n' >/etc/heddle/conf.d/50-debug.yaml; systemctl reload heddle; heddle log-level --role serve | grep 'debug as configured'
		id=$(curl -sS -o /tmp/answer -D - http://127.0.0.1:9696/v2.0/networks | sed -nE 's/^X-Openstack-Request-Id: (.*)\r$/\1/ip'); journalctl --sync
		journalctl -o json REQUEST_ID="$id" | grep '"_SYSTEMD_UNIT":"heddle.service"'
		heddle config show serve | grep /etc/heddle/conf.d/50-debug.yaml:2:; heddle config check; rm /etc/heddle/conf.d/50-debug.yaml; systemctl reload heddle`)
	m.run(`journalctl --sync; journalctl -o json -t heddle -p info MESSAGE_ID=6bd8f61fb3f144a3a76bdd296ded1d73 | grep '"_SYSTEMD_UNIT":"heddle-agent.service"' | grep '"PRIORITY":"6"' | grep '"_TRANSPORT":"journal"' | grep '"MESSAGE":"level=INFO msg=reloaded '`)
	// A journal that hangs, then is away and comes back, holds up no server.
	m.run(`server=$(systemctl show -P MainPID heddle); journal=$(systemctl show -P MainPID systemd-journald)
		kill -STOP $journal; for i in $(seq 20); do heddle log-level debug --role serve; done; kill -CONT $journal; journalctl --sync
		test $(journalctl -u heddle -g 'log level changed' | grep -c 'level=INFO') -ge 20
		journals="systemd-journald.socket systemd-journald-dev-log.socket systemd-journald-audit.socket systemd-journald.service"
		systemctl stop $journals; heddle log-level debug --role serve; systemctl start $journals || systemctl start systemd-journald
		heddle log-level default --role serve; journalctl --sync; journalctl -o json -n 1 -u heddle -g 'log level changed' | grep '"_TRANSPORT":"journal"'
		test $server = $(systemctl show -P MainPID heddle); curl -sSf http://127.0.0.1:9697/readyz`)
	m.run("man heddle-serve heddle.yaml >/dev/null 2>&1 || zcat /usr/share/man/man5/heddle.yaml.5.gz | grep -q neutron-listen") // man is not everywhere

	// The unit of the nightly backup verifies it. Of a store that was moved it fails, and says
	// where that is.
	m.run("systemctl start heddle-backup; ls /var/backups/heddle/*.db; test -e /var/lib/heddle/backup-verified")
	m.run(`systemctl stop heddle.socket heddle
		etcd --data-dir /tmp/etcd --max-txn-ops 8192 --max-request-bytes 67108864 >/tmp/etcd.log 2>&1 & etcd=$!
		until curl -sf http://127.0.0.1:2379/health; do sleep 0.1; done
		runuser -u heddle -- heddle move --data /var/lib/heddle --etcd-endpoints 127.0.0.1:2379
		kill $etcd
		fails systemctl start heddle-backup
		systemctl is-failed heddle-backup
		journalctl -u heddle-backup | grep 'was moved on .* to the etcd cluster at 127.0.0.1:2379'
		runuser -u heddle -- heddle move --undo --data /var/lib/heddle
		systemctl reset-failed heddle-backup; systemctl start heddle; test "$(systemctl is-active heddle.socket)" = inactive; systemctl is-active heddle-agent`)
	m.until(" up ", "heddle host list")

	for unit, port := range map[string]string{"heddle": "9697", "heddle-agent": "9699"} {
		main := func() string { return strings.TrimSpace(m.run("systemctl show -P MainPID " + unit)) }
		before := main()
		m.run("kill -ABRT " + before)
		m.until("ready", "test $(systemctl show -P MainPID "+unit+") != "+before+"; curl -sf http://127.0.0.1:"+port+"/readyz")
		// The watchdog's time is shortened; what is stopped does not feed it.
		m.run("mkdir -p /run/systemd/system/" + unit + ".service.d; printf '[Service]\\nWatchdogSec=2\\nTimeoutAbortSec=1\\n' >/run/systemd/system/" + unit + ".service.d/test.conf; systemctl daemon-reload; systemctl restart " + unit)
		before = main()
		m.run("kill -STOP " + before)
		m.until("ready", "test $(systemctl show -P MainPID "+unit+") != "+before+"; curl -sf http://127.0.0.1:"+port+"/readyz")
		m.run("rm -r /run/systemd/system/" + unit + ".service.d; systemctl daemon-reload; systemctl restart " + unit)
	}

	m.put(pack(t, "v0.1.1", heddle), "/root/heddle_0.1.1_amd64.deb")
	m.run(guideBlock(t, "operating.md", "systemctl stop heddle.socket heddle"))
	m.run("systemctl is-active heddle.socket")
	// Stopped as before a restore, the server is not started by a client; then both are.
	m.run(`systemctl stop heddle.socket heddle; if curl -sS http://127.0.0.1:9696/; then exit 1; fi
		test "$(systemctl is-active heddle.socket heddle | tr '\n' ' ')" = "inactive inactive "
		systemctl start heddle; systemctl is-active heddle.socket; curl -sSf http://127.0.0.1:9696/`)
	const ready = "for port in 9697 9699; do curl -sSf http://127.0.0.1:$port/readyz; done"
	const stopped = `test "$(systemctl is-active heddle.socket heddle heddle-agent | sort -u)" = inactive`
	m.run("systemctl stop heddle.target; " + stopped + "\n" + guideBlock(t, "operating.md", "systemctl stop heddle.target         # returns when all have ended") + "systemctl list-dependencies heddle.target | grep heddle-agent.service")
	m.until("ready", ready)
	m.run(`systemctl is-active heddle.target heddle.socket; test "$(systemctl is-active heddle-xapi heddle-backup.timer | sort -u)" = inactive
		systemctl enable --now heddle-backup.timer; systemctl stop heddle.target; test "$(systemctl is-active heddle-backup.timer)" = inactive; ` + stopped + `
		systemctl disable heddle-backup.timer; systemctl start heddle heddle-agent`)
	m.run(`touch /tmp/load; while [ -e /tmp/load ]; do curl -sSf -o /dev/null http://127.0.0.1:9696/ || touch /tmp/refused; done & load=$!
		for i in 1 2 3; do systemctl restart heddle; done
		dpkg -i heddle_0.1.1_amd64.deb </dev/null
		rm /tmp/load; wait $load; fails test -e /tmp/refused`)
	m.run("systemctl is-active heddle heddle-agent; dpkg-query -W -f '${Version}' heddle | grep -x 0.1.1")

	m.run("touch /var/lib/heddle/kept /var/backups/heddle/kept.db; systemctl reboot || true")
	m.waitRebooted()
	m.start()
	m.run("systemctl is-active heddle.socket heddle heddle-agent")
	m.until(" up ", "heddle host list")

	m.run(`dpkg --remove heddle | tee /tmp/said; grep -q 'heddle agent --cleanup' /tmp/said; fails systemctl is-active heddle.socket heddle heddle-agent; test -e /sys/fs/bpf/heddle/machine`)
	m.run("dpkg -i heddle_0.1.1_amd64.deb </dev/null; heddle agent --cleanup --config /etc/heddle/heddle.yaml; fails test -e /sys/fs/bpf/heddle")
	m.run("mkdir -p /var/log/heddle/security_group; echo {} >/var/log/heddle/security_group/LOG.log")
	m.run("dpkg --purge heddle | tee /tmp/said; fails grep 'agent --cleanup' /tmp/said; fails test -e /etc/heddle; fails test -e /var/lib/heddle-agent; test -e /var/lib/heddle/kept")
	left := m.run(`find /etc /usr /lib/systemd /var /run -xdev -name '*heddle*' ! -path '/usr/local/*' ! -path '/var/tmp/*' ! -path '/var/log/journal/*' ! -path '/var/cache/man/*' ! -path '/run/systemd/*'`)
	if want := "/var/backups/heddle\n/var/lib/heddle\n"; left != want {
		t.Errorf("a purge leaves\n%s, want the store and its backups:\n%s", left, want)
	}
}

// TestSocketUnderSystemd: a client that waits at heddle.socket starts a server with settings that
// it refuses a few times, until systemd gives up. With the socket's addresses as the guide has
// them, it serves.
func TestSocketUnderSystemd(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "sockets", "192.0.2.1")
	m.put(pack(t, "v0.1.0", heddle), "/root/heddle_0.1.0_amd64.deb")
	m.run("dpkg -i heddle_0.1.0_amd64.deb </dev/null")
	m.run(`printf 'serve:\n  agents-listen: 192.0.2.1:2379\n  operator-listen: 192.0.2.1:9698\n' >/etc/heddle/conf.d/open.yaml
		fails systemctl enable --now heddle.socket heddle
		journalctl --sync; journalctl -t heddle | grep 'listens on 127.0.0.1:9698, where no API is served: give heddle.socket and heddle.yaml the same addresses'`)
	m.run("while curl -s -o /dev/null --max-time 60 http://127.0.0.1:9696/ || test $? != 7; do :; done; systemctl is-failed heddle.socket heddle")
	if starts := strings.Count(m.run("journalctl --sync; journalctl -o cat -t heddle"), "where no API is served"); starts > 12 {
		t.Errorf("a client has started a server without use %d times, want a few", starts)
	}
	m.run(guideBlock(t, "operating.md", "install -d /etc/systemd/system/heddle.socket.d"))
	m.run(guideBlock(t, "operating.md", "systemctl stop heddle.socket heddle"))
	m.run(`systemctl is-active heddle.socket heddle; ss -Hltnp 'sport = :9876 or sport = :9698' | grep -c '"systemd"' | grep -x 2
		curl -sSf http://127.0.0.1:9876/; . /var/lib/heddle/openrc; heddle host list`)
}

// TestUpgradeDoesNotWait: a package is configured, and agents start again, also while a server
// waits for its store or ends at its start.
func TestUpgradeDoesNotWait(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "machine", "192.0.2.1")
	m.put(pack(t, "v0.1.0", heddle), "/root/heddle_0.1.0_amd64.deb")
	m.run(guideBlock(t, "install.md", "apt-get install ./heddle_*_amd64.deb"))
	for _, flags := range []string{"--etcd-endpoints 127.0.0.1:1", "--no-such-flag"} {
		m.run("mkdir -p /run/systemd/system/heddle.service.d; printf '[Service]\\nExecStart=\\nExecStart=/usr/bin/heddle serve " + flags + "\\n' >/run/systemd/system/heddle.service.d/test.conf")
		agent := strings.TrimSpace(m.run("systemctl show -P MainPID heddle-agent"))
		said := m.run("dpkg -i heddle_0.1.0_amd64.deb </dev/null 2>&1")
		if !strings.Contains(said, "heddle: not all of heddle.service ") || strings.Contains(said, "heddle: not all of heddle-agent.service ") {
			t.Errorf("with %s dpkg says\n%s", flags, said)
		}
		m.run("dpkg-query -W -f '${Status}' heddle | grep -x 'install ok installed'; fails systemctl is-active heddle; systemctl is-active heddle-agent; test $(systemctl show -P MainPID heddle-agent) != " + agent)
	}
	m.run("rm -r /run/systemd/system/heddle.service.d; systemctl daemon-reload; systemctl restart heddle; systemctl is-active heddle")
}

// TestRolesUnderSystemd: with its unit, an agent with a role of a guide becomes ready, and nothing
// that it does is refused.
func TestRolesUnderSystemd(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "h1", "192.0.2.11")
	m.put(pack(t, "v0.1.0", heddle), "/root/heddle_0.1.0_amd64.deb")
	m.run("apt-get install ./heddle_0.1.0_amd64.deb")
	m.write("/root/mesh.yaml", []byte(guideBlock(t, "bgp.md", "kind: BGPNodeConfig")))
	const server = "serve: {data: /var/lib/heddle, etcd-listen: '127.0.0.1:2379'}\n"
	m.write("/etc/heddle/heddle.yaml", []byte(server))
	m.run("systemctl start heddle; . /var/lib/heddle/openrc; heddle calico apply -f mesh.yaml")
	for _, role := range []string{"policy", "dhcp", "bgp"} {
		m.write("/etc/heddle/heddle.yaml", []byte(server+"agent: {server-data: /var/lib/heddle, "+role+": true}\n"))
		m.run("systemctl restart heddle-agent; systemctl is-active heddle-agent; curl -sSf http://127.0.0.1:9699/readyz")
		if said := m.run("journalctl -o cat -u heddle-agent | grep -E 'not permitted|denied| lacks ' || true"); said != "" {
			t.Errorf("of the agent with %s, what it does is refused:\n%s", role, said)
		}
	}
	m.run("ss -Hltn 'sport = :179' | grep 192.0.2.11; systemctl show -P LimitNICE heddle-agent | grep -x 30") // nice -10
}

// TestDHCPUnderSystemd: the units of agents leave them the rights that they need for DHCP: machines
// get leases from a dnsmasq whose sockets hold the requests of many, and the next agent adopts it.
func TestDHCPUnderSystemd(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{"calico-dhcp-agent", "heddle-agent"} {
		t.Run(unit, func(t *testing.T) {
			t.Parallel()
			tryDHCP(t, unit)
		})
	}
}

func tryDHCP(t *testing.T, unit string) {
	m := newMachine(t, "h1", "192.0.2.11")
	m.put(pack(t, "v0.1.0", heddle), "/root/heddle_0.1.0_amd64.deb")
	m.run("apt-get install ./heddle_0.1.0_amd64.deb; mkdir -p /etc/neutron/plugins/ml2; printf '[DEFAULT]\\nhost = h1\\n' >/etc/neutron/neutron.conf; echo '[calico]' >/etc/neutron/plugins/ml2/ml2_conf.ini")
	m.write("/etc/heddle/heddle.yaml", []byte("serve: {data: /var/lib/heddle, etcd-listen: '127.0.0.1:2379'}\nagent: {server-data: /var/lib/heddle, policy: true, dhcp: true}\n"))
	m.write("/root/web.yaml", []byte(guideBlock(t, "dhcp.md", "kind: DHCPSubnet")))
	m.run(`systemctl start heddle; . /var/lib/heddle/openrc; heddle calico apply -f web.yaml
		ip netns add web1; ip link add tap-web1 type veth peer name eth0 netns web1 address fa:16:3e:00:00:21
		ip link set tap-web1 up; ip -n web1 link set eth0 up
		systemctl start ` + unit)
	const lease = "nsenter --net=/run/netns/web1 udhcpc -i eth0 -f -n -q -t 1 -T 1 -s /bin/true 2>&1 || true"
	m.until("lease of 10.66.0.21 obtained", lease)
	const serving = "ss -Hunlp 'sport = :67' | grep -oP 'pid=\\K[0-9]+'"
	first := m.run(serving)
	m.run("systemctl restart " + unit)
	m.run(`. /var/lib/heddle/openrc; sed -i 's/10.66.0.21/10.66.0.22/; s/10.66.0.1/10.66.0.2/' web.yaml; heddle calico apply -f web.yaml`)
	m.until("lease of 10.66.0.22 obtained", lease)
	if now := m.run(serving); now != first {
		t.Errorf("the dnsmasq %s serves, want that of the first agent, %s", now, first)
	}
	m.run("ss -unlm 'sport = :67' | grep rb4194304")
	if said := m.run("journalctl -o cat -u " + unit + " | grep -E 'level=(WARN|ERROR).* part=dhcp' || true"); said != "" {
		t.Errorf("the agent warns\n%s", said)
	}
}
