package dhcp

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strconv"

	"heddle/internal/dhcp/plan"
)

// accounts lists the users that dnsmasq may run as, the best first: Debian's package makes the one,
// every system has the other.
var accounts = [...]string{"dnsmasq", "nobody"}

// credentials is the user and group of a dnsmasq.
type credentials struct{ uid, gid uint32 }

// chooseUser chooses the user and group that dnsmasq runs as.
func (a *Agent) chooseUser() error {
	o := &a.opts.Plan
	account, err := lookUp(o.User)
	if err != nil {
		return err
	}
	group, err := user.LookupGroupId(account.Gid)
	if o.Group != "" {
		group, err = user.LookupGroup(o.Group)
	}
	if err != nil {
		return fmt.Errorf("group of user %s, as which dnsmasq runs: %w", account.Username, err)
	}
	o.User, o.Group = account.Username, group.Name
	uid, err1 := strconv.ParseUint(account.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(group.Gid, 10, 32)
	chosen := credentials{uint32(uid), uint32(gid)}
	a.server.user, a.resolver.user = chosen, chosen
	return errors.Join(err1, err2)
}

// lookUp returns the user of a name or, without one, the first of accounts that exists.
func lookUp(name string) (*user.User, error) {
	if name != "" {
		return user.Lookup(name)
	}
	for _, candidate := range accounts {
		account, err := user.Lookup(candidate)
		if err == nil {
			return account, nil
		}
		if unknown := user.UnknownUserError(""); !errors.As(err, &unknown) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("no user for dnsmasq: neither %s nor %s exists; `adduser --system %[1]s` makes one", accounts[0], accounts[1])
}

// makeDirectories makes the state directory, which only dnsmasq's group may read, with those for
// files in it, and lets dnsmasq's user reach them.
func makeDirectories(dir string, gid uint32, log *slog.Logger) error {
	for _, sub := range []string{plan.HostsDir, plan.OptionsDir, plan.NamesDir} {
		path := filepath.Join(dir, sub)
		if err := cmp.Or(os.MkdirAll(path, 0o755), os.Chmod(path, 0o755)); err != nil {
			return err
		}
	}
	if err := cmp.Or(os.Chown(dir, 0, int(gid)), os.Chmod(dir, 0o750)); err != nil {
		return err
	}
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if err != nil {
			return err
		}
		if mode := info.Mode().Perm(); mode&0o001 == 0 {
			if err := os.Chmod(parent, mode|0o001); err != nil {
				return fmt.Errorf("let dnsmasq's user pass through: %w", err)
			}
			log.Info("dnsmasq's user may pass through a directory from now on, though not list it", "directory", parent)
		}
		if parent == filepath.Dir(parent) {
			return nil
		}
	}
}
