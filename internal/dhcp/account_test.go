package dhcp

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// identity holds the credentials of a process.
func identity(t *testing.T, pid int) (uids, capabilities string) {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(string(raw), "\n") {
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.Join(strings.Fields(value), " "); name {
		case "Uid":
			uids = value
		case "CapEff":
			capabilities = value
		}
	}
	return uids, capabilities
}

// resolverProcess is the number of the dnsmasq that answers DNS.
func (l *lab) resolverProcess() int {
	l.t.Helper()
	raw, err := os.ReadFile(filepath.Join(l.options.Plan.Dir, resolverPID))
	if err != nil {
		l.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		l.t.Fatal(err)
	}
	return pid
}

// The capabilities that dnsmasq may keep: CAP_NET_BIND_SERVICE, CAP_NET_ADMIN and CAP_NET_RAW.
const kept = 1<<10 | 1<<12 | 1<<13

// TestUnprivileged: both dnsmasq run as a user that is not root, with no capability but those for
// the network, and read what the agent writes later. Nobody but their group can read the agent's
// files, whatever the umask of the agent.
func TestUnprivileged(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	first, second := l.machine(1), l.machine(2)
	l.put(subnet("a", "10.65.0.0/24", "10.65.0.1", ""))
	l.put(first.endpoint("10.65.0.7", "a"))
	if err := os.Chmod(filepath.Dir(l.options.Plan.Dir), 0o700); err != nil { // as systemd makes the state directory
		t.Fatal(err)
	}
	l.start()
	l.serving(1)
	l.logged("dnsmasq answers DNS", 1)
	account, err := lookUp("")
	if err != nil {
		t.Fatal(err)
	}
	for name, pid := range map[string]int{"DHCP": l.pid(), "DNS": l.resolverProcess()} {
		uids, capabilities := identity(t, pid)
		if id := account.Uid; uids != strings.Join([]string{id, id, id, id}, " ") || id == "0" {
			t.Errorf("%s: runs as users %s, want %s", name, uids, id)
		}
		set, err := strconv.ParseUint(capabilities, 16, 64)
		if err != nil || set&^kept != 0 {
			t.Errorf("%s: has capabilities %s, want at most %x", name, capabilities, kept)
		}
	}
	first.wantLease("10.65.0.7")
	pid := l.pid()
	l.put(second.endpoint("10.65.0.8", "a")) // its file comes when root is long given up
	l.read(2)
	second.wantLease("10.65.0.8")
	if l.pid() != pid {
		t.Error("dnsmasq started anew for a new endpoint")
	}
	leases := ""
	for _, name := range leaseFiles() {
		raw, _ := os.ReadFile(filepath.Join(l.options.Plan.Dir, name)) // not all are there
		leases += string(raw)
	}
	if !strings.Contains(leases, "10.65.0.8") {
		t.Errorf("leases that it writes:\n%s", leases)
	}
	info, err := os.Stat(l.options.Plan.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if gid := strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Gid)); info.Mode().Perm() != 0o750 || gid != account.Gid {
		t.Errorf("the directory has mode %v and group %s, want 0750 and %s", info.Mode(), gid, account.Gid)
	}
}

// TestFromRoot: the dnsmasq of an earlier build, which ran as root, is adopted and another takes
// over that does not. It keeps the leases.
func TestFromRoot(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := l.machine(1)
	l.put(subnet("a", "10.65.0.0/24", "10.65.0.1", ""))
	l.put(m.endpoint("10.65.0.7", "a"))
	l.options.Plan.User = "root"
	l.start()
	l.serving(1)
	m.wantLease("10.65.0.7")
	was := l.pid()
	if uids, _ := identity(t, was); uids != "0 0 0 0" {
		t.Fatalf("the one before runs as %s", uids)
	}
	l.kill()
	l.options.Plan.User = ""
	l.start()
	l.logged("adopted the dnsmasq that runs", 1)
	l.serving(2)
	uids, _ := identity(t, l.pid())
	if l.pid() == was || strings.HasPrefix(uids, "0 ") {
		t.Errorf("process %d, after %d, runs as %s", l.pid(), was, uids)
	}
	l.until("the resolver to run as another", func() bool {
		pid := l.resolverProcess()
		if !alive(pid) {
			return false
		}
		uids, _ := identity(t, pid)
		return !strings.HasPrefix(uids, "0 ")
	})
	m.wantLease("10.65.0.7")
}

// TestConfigFile: a file of the operator's that root alone can read is in force, and so is a
// changed one once another agent starts. An agent that lacks the file ends, and names it.
func TestConfigFile(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	m := l.machine(1)
	m.with("10.65.0.7")
	l.put(subnet("a", "10.65.0.0/24", "10.65.0.1", ""))
	l.put(m.endpoint("10.65.0.7", "a"))
	file := filepath.Join(t.TempDir(), "dnsmasq.conf")
	l.options.Plan.ConfigFile = file
	for n, address := range []string{"192.0.2.7", "192.0.2.8"} {
		l.kill()
		if err := os.WriteFile(file, []byte("address=/corp.example/"+address+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		l.start()
		l.serving(n + 1)
		m.wantName("10.65.0.1", "www.corp.example", address)
	}
	copies, err := filepath.Glob(filepath.Join(l.options.Plan.Dir, "operator-*.conf"))
	if err != nil || len(copies) != 1 {
		t.Errorf("copies of the file %v, %v, want the last", copies, err)
	}
	l.kill()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	l.start()
	if err := l.cmd.Wait(); err == nil {
		t.Error("without the file the agent ended well")
	}
	l.logged("further configuration of dnsmasq: open "+file, 1)
}

func TestAccounts(t *testing.T) {
	t.Parallel()
	if a, err := lookUp(""); err != nil || a.Username != accounts[0] && a.Username != accounts[1] {
		t.Errorf("lookUp gives %+v, %v", a, err)
	}
	if _, err := lookUp("no-such-user"); err == nil || !strings.Contains(err.Error(), "no-such-user") {
		t.Errorf("of an unknown user: %v", err)
	}
	if _, err := user.Lookup(accounts[1]); err != nil {
		t.Errorf("the user that every system has: %v", err)
	}
}
