package xapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"

	"heddle/internal/api/credentials"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/store/replica"
	"heddle/internal/store/schema"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// RootAccount is the name of the account that the first start makes.
const RootAccount = "root"

// account is an account that may log in. Clients see its object of class user.
type account struct {
	Name   string     `json:"name"`
	Hash   string     `json:"hash"` // of the password
	Role   model.Role `json:"role"`
	User   string     `json:"user"`   // ref of the user's object
	Serial int        `json:"serial"` // counts passwords: sessions of an older one are over
}

// accounts are found by name. No host may read them.
var accounts = records.NewTable("xen-account", schema.XenPrefix+"accounts/", func(a *account) string { return a.Name })

// Account is the public part of an account.
type Account struct {
	Name string
	Role model.Role
}

// Accounts administers the accounts of the pool in a store, with or without a server beside it.
type Accounts struct{ db *records.DB }

// WithAccounts calls f with the accounts of the pool in the store.
func WithAccounts(ctx context.Context, st store.Store, log *slog.Logger, f func(ctx context.Context, a *Accounts) error) error {
	rep := replica.New(st, replica.Options{Log: log, Watch: schema.XenPrefix}, accounts, objects.Table("user"))
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- rep.Run(running) }()
	select {
	case <-rep.Ready():
	case <-ctx.Done():
		stop()
		return errors.Join(ctx.Err(), <-done)
	}
	err := f(ctx, &Accounts{records.NewDB(st, rep)})
	stop()
	return errors.Join(err, <-done)
}

// List returns the accounts in order of their names.
func (a *Accounts) List(ctx context.Context) ([]Account, error) {
	snap, err := a.db.View(ctx)
	if err != nil {
		return nil, err
	}
	var all []Account
	for one := range accounts.All(snap) {
		all = append(all, Account{one.Name, one.Role})
	}
	return all, nil
}

// Add makes an account. The name must be free.
func (a *Accounts) Add(ctx context.Context, name, password string, role model.Role) error {
	if err := checkAccount(name, role); err != nil {
		return err
	}
	hash, err := hashPassword(password)
	if err != nil {
		return fmt.Errorf("account %s: %w", name, err)
	}
	_, err = a.db.Update(ctx, func(tx *records.Tx) error {
		if _, err := accounts.Get(tx, name); err == nil {
			return fmt.Errorf("account %s is there already; give it another password or role instead", name)
		}
		return putAccount(tx, name, hash, role)
	})
	return err
}

// hashPassword returns what is stored of a password.
func hashPassword(password string) (string, error) {
	if password == "" || len(password) > credentials.MaxPassword {
		return "", fmt.Errorf("a password has 1 to %d bytes", credentials.MaxPassword)
	}
	return credentials.DefaultCost().Hash(password), nil
}

// checkAccount refuses names that do not fit the store or a log, and unknown roles.
func checkAccount(name string, role model.Role) error {
	odd := func(r rune) bool { return r <= ' ' || r == '/' || r == 0x7f }
	if name == "" || len(name) > 255 || strings.ContainsFunc(name, odd) {
		return fmt.Errorf("account %q: a name has 1 to 255 characters without spaces and slashes", name)
	}
	if !slices.Contains(model.Roles(), role) {
		return fmt.Errorf("account %s: there is no role %q; roles are %v", name, role, model.Roles())
	}
	return nil
}

// putAccount makes an account and its user.
func putAccount(tx *records.Tx, name, hash string, role model.Role) error {
	user := newObject("user", model.Record{"short_name": name, "fullname": name})
	if err := put(tx, user); err != nil {
		return err
	}
	return accounts.Put(tx, &account{Name: name, Hash: hash, Role: role, User: user.Ref})
}

// SetPassword gives an account another password and ends its sessions.
func (a *Accounts) SetPassword(ctx context.Context, name, password string) error {
	hash, err := hashPassword(password)
	if err != nil {
		return fmt.Errorf("account %s: %w", name, err)
	}
	return a.edit(ctx, name, func(one *account) { one.Hash, one.Serial = hash, one.Serial+1 })
}

// SetRole gives an account another role, from its next call on. The last pool-admin keeps his.
func (a *Accounts) SetRole(ctx context.Context, name string, role model.Role) error {
	if err := checkAccount(name, role); err != nil {
		return err
	}
	return a.edit(ctx, name, func(one *account) { one.Role = role })
}

func (a *Accounts) edit(ctx context.Context, name string, change func(*account)) error {
	_, err := a.db.Update(ctx, func(tx *records.Tx) error {
		old, err := accountNamed(tx, name)
		if err != nil {
			return err
		}
		one := *old
		change(&one)
		if err := accounts.Put(tx, &one); err != nil {
			return err
		}
		return keepAdmin(tx, name)
	})
	return err
}

// Delete takes an account away and ends its sessions. The last pool-admin stays.
func (a *Accounts) Delete(ctx context.Context, name string) error {
	_, err := a.db.Update(ctx, func(tx *records.Tx) error {
		one, err := accountNamed(tx, name)
		if err != nil {
			return err
		}
		if err := remove(tx, "user", one.User); err != nil {
			return err
		}
		if err := accounts.Delete(tx, name); err != nil {
			return err
		}
		return keepAdmin(tx, name)
	})
	return err
}

func accountNamed(tx *records.Tx, name string) (*account, error) {
	one, err := accounts.Get(tx, name)
	if absent := (*records.NotFoundError)(nil); errors.As(err, &absent) {
		return nil, fmt.Errorf("there is no account %s", name)
	}
	return one, err
}

// keepAdmin refuses to remove the last pool administrator. Changes of accounts happen one
// after another for it.
func keepAdmin(tx *records.Tx, name string) error {
	tx.Touch("xen-accounts")
	for one := range accounts.All(tx) {
		if one.Role == model.PoolAdmin {
			return nil
		}
	}
	return fmt.Errorf("account %s is the last with the role %s: make another first", name, model.PoolAdmin)
}

// errSeeded is the error when another server made the first account meanwhile.
var errSeeded = errors.New("there are accounts already")

// seed makes what a new pool lacks: the roles' objects, and the account root with a random password
// in RootPasswordFile.
func (s *Server) seed(ctx context.Context) error {
	if err := s.update(ctx, seedRoles); err != nil {
		return fmt.Errorf("roles of the pool: %w", err)
	}
	file := s.opts.RootPasswordFile
	if file == "" || accounts.Count(s.now()) > 0 {
		return nil
	}
	password, made, err := firstPassword(file)
	if err != nil {
		return fmt.Errorf("password of %s: %w", RootAccount, err)
	}
	hash, err := hashPassword(password)
	if err != nil {
		return fmt.Errorf("password of %s in %s: %w", RootAccount, file, err)
	}
	err = s.update(ctx, func(tx *records.Tx) error {
		tx.Touch("xen-accounts")
		if accounts.Count(tx) > 0 {
			return errSeeded
		}
		return putAccount(tx, RootAccount, hash, model.PoolAdmin)
	})
	switch {
	case errors.Is(err, errSeeded) && made:
		return os.Remove(file) // its password is no longer valid
	case errors.Is(err, errSeeded):
		return nil
	case err == nil:
		s.opts.Log.Info("the first account is there; its password is in the file", "account", RootAccount, "file", file)
	}
	return err
}

// firstPassword writes a random password to a file that its owner alone may read. A file that is
// there, from a start that was cut off, has the password already. The file comes before the
// account, so that no user is locked out.
func firstPassword(file string) (password string, made bool, err error) {
	found, err := os.ReadFile(file)
	if err == nil && len(strings.TrimSpace(string(found))) > 0 {
		return strings.TrimSpace(string(found)), false, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", false, err
	}
	password = rand.Text()
	part := file + ".new"
	f, err := os.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return "", false, err
	}
	_, err = f.WriteString(password + "\n")
	err = errors.Join(err, f.Chmod(0o600), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(part, file)
	}
	return password, true, err
}
