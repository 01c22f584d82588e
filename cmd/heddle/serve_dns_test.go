package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"heddle/internal/netlab"
)

// TestDNSUpdates: the name of a floating IP is on a DNS server, with its reverse, while it exists.
func TestDNSUpdates(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("knotd"); err != nil {
		t.Skip("needs knotd: run scripts/setup")
	}
	const secret = "c2VjcmV0IG9mIHRoZSB0ZXN0cyBvZiBIZWRkbGUhISE="
	ns, data, dir := netlab.ForTest(t).MustNamespace(t, "dns"), t.TempDir(), t.TempDir()
	ns.MustIP(t, "link set lo up")
	writeFile(t, filepath.Join(dir, "zone"), "@ 60 SOA ns admin 1 60 60 60 1\n@ 60 NS ns.example.net.\n")
	writeFile(t, filepath.Join(dir, "secret"), secret+"\n")
	writeFile(t, filepath.Join(dir, "conf"), fmt.Sprintf(`server:
  rundir: %[1]s
  listen: 127.0.0.1@53
database:
  storage: %[1]s
key:
  - id: heddle.
    algorithm: hmac-sha512
    secret: %s
acl:
  - id: update
    key: heddle.
    action: update
template:
  - id: default
    storage: %[1]s
    file: zone
    zonefile-sync: -1
    acl: update
zone:
  - domain: example.org.
  - domain: 113.0.203.in-addr.arpa.
`, dir, secret))
	knot := exec.Command("knotd", "--config", filepath.Join(dir, "conf"))
	knot.Stderr = t.Output()
	if err := ns.Start(knot); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = knot.Process.Signal(os.Interrupt)
		_ = knot.Wait()
	})
	server := start(t, ns, "serve", "--data", data, "--dns-update-server", "127.0.0.1", "--dns-update-zone", "example.org,113.0.203.in-addr.arpa",
		"--dns-update-key", "heddle", "--dns-update-secret-file", filepath.Join(dir, "secret"), "--dns-update-algorithm", "hmac-sha512")

	openstack := func(args ...string) { t.Helper(); server.openstack(t, data, args...) }
	openstack("network", "create", "--external", "out")
	openstack("subnet", "create", "--network", "out", "--subnet-range", "203.0.113.0/24", "--no-dhcp", "out")
	openstack("floating", "ip", "create", "--floating-ip-address", "203.0.113.9", "--dns-name", "www", "--dns-domain", "example.org.", "out")
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (c net.Conn, err error) {
		err = ns.Do(func() error {
			var d net.Dialer
			c, err = d.DialContext(ctx, "tcp", "127.0.0.1:53")
			return err
		})
		return c, err
	}}
	await := func(what string, look func(context.Context, string) ([]string, error), of string, want ...string) {
		t.Helper()
		within(t, fmt.Sprintf("%s of %s to be %q", what, of, want), func() bool {
			got, _ := look(t.Context(), of) // a name without records is an error
			return slices.Equal(got, want)
		})
	}
	await("address", r.LookupHost, "www.example.org.", "203.0.113.9")
	await("name", r.LookupAddr, "203.0.113.9", "www.example.org.")
	openstack("floating", "ip", "delete", "203.0.113.9")
	await("address", r.LookupHost, "www.example.org.")
	await("name", r.LookupAddr, "203.0.113.9")
}
