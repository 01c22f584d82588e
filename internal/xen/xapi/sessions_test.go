package xapi

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/api/credentials"
	"heddle/internal/store"
	"heddle/internal/store/records"
	"heddle/internal/xen/model"
	"heddle/internal/xen/objects"
)

// withAccounts changes the accounts of a server's pool as the command does, beside the server.
func withAccounts(t testing.TB, s *Server, f func(context.Context, *Accounts) error) {
	t.Helper()
	var rev int64
	err := WithAccounts(t.Context(), s.opts.Store, s.opts.Log, func(ctx context.Context, a *Accounts) (err error) {
		if err := f(ctx, a); err != nil {
			return err
		}
		rev, err = s.opts.Store.Revision(ctx)
		return err
	})
	if err == nil {
		_, err = s.replica.At(t.Context(), rev)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestSession: logging in, what a session says of itself, and its end.
func TestSession(t *testing.T) {
	t.Parallel()
	s, c := served(t)
	withAccounts(t, s, func(ctx context.Context, a *Accounts) error { return a.Add(ctx, "ada", "secret", model.ReadOnly) })
	for _, args := range [][]any{{"ada", "secret"}, {"ada", "secret", "1.1"}, {"ada", "secret", "1.1", "xe"}, {"ada", "secret", "2.0", "xe", "more"}} {
		ref := c.must("session.login_with_password", args...).(string)
		own := &clientOf{t: t, url: c.url, session: ref}
		r := own.must("session.get_record", ref).(map[string]any)
		originator := ""
		if len(args) > 3 {
			originator = args[3].(string)
		}
		if len(r) != len(model.Lookup("session").Fields) || r["auth_user_name"] != "ada" || r["originator"] != originator || r["is_local_superuser"] != false {
			t.Error(r)
		}
		if got := own.must("session.get_this_user", ref); own.must("user.get_by_uuid", strings.TrimPrefix(got.(string), refPrefix)) != got {
			t.Errorf("user %v", got)
		}
		if got := own.must("session.get_uuid", ref); own.must("session.get_by_uuid", got) != ref {
			t.Error(got)
		}
		own.must("session.add_to_other_config", ref, "k", "v")
		own.fails("MAP_DUPLICATE_KEY", "session.add_to_other_config", ref, "k", "v")
		if got := own.must("session.get_other_config", ref); !cmp.Equal(got, any(map[string]any{"k": "v"})) {
			t.Error(got)
		}
		own.fails("HANDLE_INVALID", "session.get_record", c.session)
		if got := c.must("session.get_originator", ref); got != originator {
			t.Errorf("a pool-admin sees %v", got)
		}
		own.must("session.logout")
		// A dead session wins over every other error.
		for _, m := range []string{"session.logout", "PIF.get_record", "no.such_call", "pool.get_all"} {
			if diff := cmp.Diff([]string{ref}, own.fails("SESSION_INVALID", m)); diff != "" {
				t.Errorf("%s: %s", m, diff)
			}
		}
	}
	for _, args := range [][]any{{"ada", "wrong"}, {"ada", ""}, {"nobody", "secret"}, {"", ""}} {
		if got := c.fails("SESSION_AUTHENTICATION_FAILED", "session.login_with_password", args...); got[0] != args[0] || got[1] == "" {
			t.Errorf("%v: %v", args, got)
		}
	}
	c.fails("MESSAGE_PARAMETER_COUNT_MISMATCH", "session.login_with_password", "ada")
}

// TestSessionsEnd: those that are idle, too many, or of an account that is not what it was.
func TestSessionsEnd(t *testing.T) {
	t.Parallel()
	var shift atomic.Int64
	st := store.NewMemory()
	t.Cleanup(func() { st.Close() })
	file := filepath.Join(t.TempDir(), "root")
	s := started(t, Options{Store: st, RootPasswordFile: file, Now: func() time.Time { return time.Now().Add(time.Duration(shift.Load())) }})
	password, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the password's file: %v, %v", info, err)
	}
	root := strings.TrimSpace(string(password))
	c := connect(t, s, RootAccount, root)
	shift.Add(int64(sessionIdle - time.Minute))
	c.must("pool.get_all")
	shift.Add(int64(sessionIdle - time.Minute))
	c.must("pool.get_all")
	shift.Add(int64(sessionIdle + time.Minute))
	c.fails("SESSION_INVALID", "pool.get_all")

	withAccounts(t, s, func(ctx context.Context, a *Accounts) error { return a.Add(ctx, "ada", "one", model.VMAdmin) })
	ada := connect(t, s, "ada", "one")
	withAccounts(t, s, func(ctx context.Context, a *Accounts) error { return a.SetRole(ctx, "ada", model.ReadOnly) })
	ada.fails("RBAC_PERMISSION_DENIED", "network.set_other_config", "x", map[string]string{})
	withAccounts(t, s, func(ctx context.Context, a *Accounts) error { return a.SetPassword(ctx, "ada", "two") })
	ada.fails("SESSION_INVALID", "pool.get_all")
	ada = connect(t, s, "ada", "two")
	withAccounts(t, s, func(ctx context.Context, a *Accounts) error { return a.Delete(ctx, "ada") })
	ada.fails("SESSION_INVALID", "pool.get_all")

	first := connect(t, s, RootAccount, root)
	account, _ := accounts.Peek(s.now(), RootAccount)
	for range maxSessions {
		shift.Add(int64(time.Millisecond))
		s.sessions.begin(s, account, "")
	}
	first.fails("SESSION_INVALID", "pool.get_all")
	if n := len(s.sessions.byRef); n != maxSessions {
		t.Errorf("%d sessions", n)
	}
}

// TestAccounts: what is refused, and that somebody may always do everything.
func TestAccounts(t *testing.T) {
	t.Parallel()
	s, _ := served(t)
	withAccounts(t, s, func(ctx context.Context, a *Accounts) error {
		for what, err := range map[string]error{
			"a name twice":          a.Add(ctx, RootAccount, "x", model.ReadOnly),
			"an empty name":         a.Add(ctx, "", "x", model.ReadOnly),
			"a name with a slash":   a.Add(ctx, "a/b", "x", model.ReadOnly),
			"no password":           a.Add(ctx, "ada", "", model.ReadOnly),
			"a long password":       a.Add(ctx, "ada", strings.Repeat("x", credentials.MaxPassword+1), model.ReadOnly),
			"an unknown role":       a.Add(ctx, "ada", "x", "king"),
			"the last admin's role": a.SetRole(ctx, RootAccount, model.PoolOperator),
			"the last admin":        a.Delete(ctx, RootAccount),
			"nobody":                a.Delete(ctx, "nobody"),
			"nobody's password":     a.SetPassword(ctx, "nobody", "x"),
		} {
			if err == nil {
				t.Errorf("%s was not refused", what)
			}
		}
		if err := a.Add(ctx, "ada", "x", model.PoolAdmin); err != nil {
			return err
		}
		if err := a.Delete(ctx, RootAccount); err != nil {
			return err
		}
		all, err := a.List(ctx)
		if diff := cmp.Diff([]Account{{"ada", model.PoolAdmin}}, all); diff != "" {
			t.Error(diff)
		}
		return err
	})
	if got := objects.Table("user").Count(s.now()); got != 1 {
		t.Errorf("%d users", got)
	}
}

// TestFirstStart: several servers that start at once over one store agree on one password, and
// later ones change nothing.
func TestFirstStart(t *testing.T) {
	t.Parallel()
	st := store.NewMemory()
	t.Cleanup(func() { st.Close() })
	dir := t.TempDir()
	servers := make(chan *Server, 4)
	for i := range 4 {
		go func() { servers <- started(t, Options{Store: st, RootPasswordFile: filepath.Join(dir, fmt.Sprint(i))}) }()
	}
	for range 4 {
		<-servers
	}
	files, err := filepath.Glob(dir + "/*")
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	password, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	later := started(t, Options{Store: st, RootPasswordFile: filepath.Join(dir, "later")})
	connect(t, later, RootAccount, strings.TrimSpace(string(password)))
	if files, _ := filepath.Glob(dir + "/*"); len(files) != 1 {
		t.Error(files)
	}
}

// TestCoordinatorElsewhere: once this pool's host has joined another, clients are sent there.
func TestCoordinatorElsewhere(t *testing.T) {
	t.Parallel()
	s, c := served(t)
	err := s.update(t.Context(), func(tx *records.Tx) error {
		return objects.Memberships.Put(tx, &objects.Membership{Coordinator: "192.0.2.7"})
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.fails("HOST_IS_SLAVE", "session.login_with_password", "root", "whatever"); got[0] != "192.0.2.7" {
		t.Error(got)
	}
	eventually(t, "sessions end", func() bool {
		_, err := c.call("pool.get_all")
		return err != nil && strings.HasPrefix(err.Error(), "SESSION_INVALID")
	})
}

// TestRoles: who may do what, tunnel.status above all.
func TestRoles(t *testing.T) {
	t.Parallel()
	s, root := served(t)
	_, network, transport, _, tunnel := aPool(t, s)
	by := map[model.Role]*clientOf{model.PoolAdmin: root}
	withAccounts(t, s, func(ctx context.Context, a *Accounts) error {
		for _, r := range model.Roles()[1:] {
			if err := a.Add(ctx, string(r), "x", r); err != nil {
				return err
			}
		}
		return nil
	})
	for _, r := range model.Roles()[1:] {
		by[r] = connect(t, s, string(r), "x")
	}
	tests := []struct {
		method string
		args   []any
		may    []model.Role
	}{
		{"tunnel.get_all_records", nil, model.Roles()},
		{"tunnel.set_status", []any{tunnel.Ref, map[string]string{"active": "false"}}, []model.Role{model.PoolAdmin, model.TunnelController}},
		{"tunnel.add_to_status", []any{tunnel.Ref, "key", "7"}, []model.Role{model.PoolAdmin, model.TunnelController}},
		{"tunnel.remove_from_status", []any{tunnel.Ref, "key"}, []model.Role{model.PoolAdmin, model.TunnelController}},
		{"tunnel.set_other_config", []any{tunnel.Ref, map[string]string{}}, []model.Role{model.PoolAdmin, model.PoolOperator}},
		{"PIF.set_other_config", []any{transport.Ref, map[string]string{}}, []model.Role{model.PoolAdmin, model.PoolOperator}},
		{"network.set_name_label", []any{network.Ref, "x"}, []model.Role{model.PoolAdmin, model.PoolOperator, model.VMPowerAdmin, model.VMAdmin}},
		{"tunnel.create", []any{"x"}, []model.Role{model.PoolAdmin, model.PoolOperator}},
	}
	for _, tt := range tests {
		may := map[model.Role]bool{}
		for _, r := range tt.may {
			may[r] = true
		}
		for r, c := range by {
			_, err := c.call(tt.method, tt.args...)
			denied := err != nil && strings.HasPrefix(err.Error(), "RBAC_PERMISSION_DENIED: "+tt.method+", ")
			if denied == may[r] {
				t.Errorf("%s as %s: %v", tt.method, r, err)
			}
			if r == model.PoolAdmin || r == model.TunnelController { // leave no key for the next one to stumble over
				root.must("tunnel.remove_from_status", tunnel.Ref, "key")
			}
		}
	}
}

// BenchmarkLogin measures a log-in, most of which is the password's hash.
func BenchmarkLogin(b *testing.B) {
	s, c := served(b)
	withAccounts(b, s, func(ctx context.Context, a *Accounts) error { return a.Add(ctx, "ada", "x", model.ReadOnly) })
	for b.Loop() {
		c.must("session.login_with_password", "ada", "x")
	}
}

// TestPasswordOfAnotherCost: an account whose password was hashed when that cost less logs in.
func TestPasswordOfAnotherCost(t *testing.T) {
	t.Parallel()
	s, _ := served(t)
	hash := credentials.Cost{Memory: 64, Passes: 1, Threads: 1}.Hash("of old")
	change(t, s, func(tx *records.Tx) error { return putAccount(tx, "ada", hash, model.ReadOnly) })
	connect(t, s, "ada", "of old").must("network.get_all")
}
