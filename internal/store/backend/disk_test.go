package backend

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"heddle/internal/store"
)

// diskVariable makes a process of this test the one that has a small disk mounted.
const diskVariable = "HEDDLE_STORE_TEST_DISK"

// fillDisk takes the disk of a directory to its last byte, and returns a function that gives it
// back.
func fillDisk(t *testing.T, dir, name string) (free func()) {
	t.Helper()
	name = filepath.Join(dir, name)
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for size := 1 << 20; size > 0; size /= 16 {
		chunk := make([]byte, size)
		for {
			if _, err = f.Write(chunk); err != nil {
				break
			}
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal("the disk cannot be filled:", err)
	}
	return func() {
		if err := errors.Join(f.Close(), os.Remove(name)); err != nil {
			t.Fatal(err)
		}
	}
}

// Another program fills the disk to its last byte. The server reads on, also for agents, and what
// etcd writes by itself happens; writes are refused with the reason. A server that starts then does
// the same. All is well once there is space.
func TestFullDisk(t *testing.T) {
	dir := os.Getenv(diskVariable)
	if dir == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
		cmd.Env = append(os.Environ(), diskVariable+"="+t.TempDir())
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestFullDisk") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("heddle-test", dir, "tmpfs", 0, "size=768m,mode=700"); err != nil {
		t.Fatal(err)
	}
	t.Chdir("/")

	o := Embedded{DataDir: filepath.Join(dir, "data"), Agents: "127.0.0.1:0", Reserve: true}
	server := openTest(t, o)
	ctx := t.Context()
	agent, err := connect(t, server, joined(t, server, "h1"))
	if err != nil {
		t.Fatal(err)
	}
	value := strings.Repeat("x", 64<<10)
	for i := range 100 { // so that the database has a size
		mustCommit(t, server, put(fmt.Sprint("/heddle/topology/", i), value))
	}
	await(t, "the reserve", func() error {
		info, err := os.Stat(filepath.Join(o.DataDir, "reserve"))
		if err == nil && info.Size() != diskReserve {
			err = fmt.Errorf("it has %d bytes", info.Size())
		}
		return err
	})
	mustCommit(t, server, put("/heddle/topology/x", "before"))
	var leased []store.Op
	for i := range 100 {
		l, err := server.Grant(ctx, 2*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		leased = append(leased, store.Op{Key: fmt.Sprint("/heddle/topology/leased/", i), Lease: l, Value: []byte(value[:1<<10])})
	}
	rev := mustCommit(t, server, leased...)
	changes, failed := agent.Watch(ctx, rev, "/heddle/topology/leased/")

	for round := range 3 {
		frees := []func(){fillDisk(t, dir, "of-another-program")}
		// It takes what the reserve has released, too.
		await(t, "release of the reserve", func() error {
			info, err := os.Stat(filepath.Join(o.DataDir, "reserve"))
			if err == nil && info.Size() > 0 {
				err = fmt.Errorf("it has %d bytes", info.Size())
			}
			return err
		})
		frees = append(frees, fillDisk(t, dir, "more-of-it"))
		for name, write := range map[string]func() error{
			"put": func() error { _, err := server.Commit(ctx, nil, []store.Op{put("/heddle/a", "b")}); return err },
			"delete": func() error {
				_, err := server.Commit(store.WithReserve(ctx), nil, []store.Op{{Key: "/heddle/a", Delete: true}})
				return err
			},
			"lease": func() error { _, err := server.Grant(ctx, time.Minute); return err },
		} {
			if err := write(); !errors.Is(err, store.ErrFull) || !strings.Contains(err.Error(), "the disk of "+o.DataDir+" has") ||
				!strings.Contains(err.Error(), "once 168 MiB are free") && !strings.Contains(err.Error(), "once 248 MiB are free") {
				t.Errorf("round %d: %s on a full disk: %v, want ErrFull with the directory", round, name, err)
			}
		}
		if free, needed, ok := server.FullDisk(); !ok || free >= diskStop || needed>>20 != 168 && needed>>20 != 248 { // with the reserve, and once it is released
			t.Errorf("round %d: the full disk is %v, %d free, %d needed", round, ok, free, needed)
		}
		if _, err := server.Commit(store.WithLastReserve(ctx), nil, []store.Op{put("/heddle/report", "full")}); err != nil {
			t.Errorf("round %d: a report of the full disk: %v", round, err)
		}
		for i := range 2000 { // more than would fit into what is held
			if _, err := server.Commit(ctx, nil, []store.Op{put(fmt.Sprint("/heddle/topology/more/", i), value)}); !errors.Is(err, store.ErrFull) {
				t.Fatalf("round %d: write %d on a full disk: %v", round, i, err)
			}
		}
		if _, err := agent.Commit(ctx, nil, []store.Op{put("/heddle/state/h1/alive", "{}")}); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("round %d: an agent writes: %v, want ErrUnavailable", round, err)
		}
		if round == 0 {
			for ended := 0; ended < len(leased); { // a hundred commits of etcd's own
				c, ok := <-changes
				if !ok {
					t.Fatal("the agent's watch ended:", failed())
				}
				ended += len(c.Events)
			}
		}
		for who, s := range map[string]*Etcd{"server": server, "agent": agent} {
			if kv, err := s.Get(ctx, "/heddle/topology/x"); err != nil || string(kv.Value) != "before" {
				t.Errorf("round %d: the %s reads %q, %v", round, who, kv.Value, err)
			}
		}
		if round == 1 { // with the disk full
			server.Close()
			o.Agents = server.Endpoint()
			server = openTest(t, o)
			if _, err := server.Get(ctx, "/heddle/topology/x"); err != nil {
				t.Error("a server started on a full disk reads:", err)
			}
		}
		for _, free := range frees {
			free()
		}
		await(t, "writing when there is space again", func() error {
			_, err := server.Commit(ctx, nil, []store.Op{put("/heddle/a", "b")})
			return err
		})
		await(t, "an agent's writing when there is space again", func() error {
			bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			_, err := agent.Commit(bounded, nil, []store.Op{put("/heddle/state/h1/alive", "{}")})
			return err
		})
	}

	// It stops before it fills the disk itself, and deletions go on then.
	full := false
	for i := 0; i < 1<<14 && !full; i++ {
		_, err := server.Commit(ctx, nil, []store.Op{put(fmt.Sprint("/heddle/topology/own/", i), value)})
		if full = errors.Is(err, store.ErrFull); err != nil && !full {
			t.Fatal(err)
		}
	}
	if !full {
		t.Error("a GiB fits onto a disk of half a GiB")
	}
	if _, err := server.Commit(store.WithReserve(ctx), nil, []store.Op{{Key: "/heddle/topology/own/0", Delete: true}, put("/heddle/guard/x/", "")}); err != nil {
		t.Error("deletion on a disk that the store has filled:", err)
	}
	if _, err := agent.Get(ctx, "/heddle/topology/x"); err != nil {
		t.Error("reading on a disk that the store has filled:", err)
	}
}
