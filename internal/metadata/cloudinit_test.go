package metadata

import (
	"bytes"
	"context"
	_ "embed"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"heddle/internal/netlab"
)

//go:embed testdata/cloud-init.sh
var cloudInitScript string

// TestCloudInit boots Debian's cloud-init, without a machine around it, against this host's
// answers: a namespace has the interface that the metadata describes, and mounts of its own for
// what cloud-init writes. Each data source asks for what it knows; what must be in place in the end
// is the same.
func TestCloudInit(t *testing.T) {
	t.Parallel()
	m := machine()
	m.Links = m.Links[:1]
	m.Name = "db"
	mac := m.Links[0].MAC.String()
	m.PasswordHash = "$6$saltsalt$qFmFH.bQmmtXzyBY0s9v7Oicd2z4XSIecDzlB5KiA2/jctKu9YterLp8wwnSq.qc.eoxqOmSuNp2xS0ktL3nh/"
	m.UserData = []byte("#cloud-config\nwrite_files:\n- {path: /etc/heddle-test, content: written}\n")
	lab := netlab.ForTest(t)
	host, machineNet := lab.MustNamespace(t, "host"), lab.MustNamespace(t, "vm")
	lab.MustVeth(t, host, "vm", machineNet, "eth0")
	host.MustIP(t, "addr add 169.254.169.254/32 dev vm", "route add 10.0.0.0/24 dev vm")
	machineNet.MustIP(t, "link set eth0 address "+mac, "addr add 10.0.0.5/24 dev eth0", "route add 169.254.169.254 dev eth0")
	var l net.Listener
	if err := host.Do(func() (err error) {
		l, err = net.Listen("tcp", "169.254.169.254:80")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s := own(t, m)
	server := &http.Server{ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServeMetadata(w, r, Client{Port: portA, Addr: netip.MustParseAddr("10.0.0.5")})
	})}
	go func() { _ = server.Serve(l) }() // until it is closed
	defer server.Close()
	for source, wants := range map[string][]string{
		"OpenStack": {
			"source: openstack", "instance: 9d2f6f40-0000-4000-8000-000000000001", "hostname: db", "key: ssh-ed25519 AAAAC3Nz ann@example.org", "file: written",
			"password: " + m.PasswordHash, "MACAddress=" + mac, "DHCP=ipv4",
		},
		"Ec2": {"source: ec2", "instance: " + ec2ID("i", m.DeviceID), "hostname: db", "key: ssh-ed25519 AAAAC3Nz ann@example.org", "file: written", "MACAddress=" + mac, "DHCP=yes"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
		cmd := exec.CommandContext(ctx, "unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "env", "-i",
			"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "container=lab", "product_name=OpenStack Nova", "sh", "-euc", cloudInitScript, "boot", source)
		var output bytes.Buffer
		cmd.Stdout, cmd.Stderr = &output, &output
		err := machineNet.Start(cmd)
		if err == nil {
			err = cmd.Wait()
		}
		cancel()
		for _, want := range wants {
			if !strings.Contains(output.String(), want+"\n") {
				t.Errorf("%s: no %q", source, want)
			}
		}
		if err != nil || t.Failed() {
			t.Fatalf("%s: %v\n%s", source, err, output.String())
		}
	}
}
