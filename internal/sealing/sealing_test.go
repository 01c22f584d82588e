package sealing

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestServerKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	load := func(name string) *ServerKey {
		t.Helper()
		k, err := LoadServerKey(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	k, other := load("a"), load("b")
	secret := []byte("user data")
	sealed := k.Seal("port-a", secret)
	if bytes.Contains(sealed, secret) || bytes.Equal(sealed, k.Seal("port-a", secret)) {
		t.Error("what is sealed shows the secret, or that two are equal")
	}
	if again := load("a"); again.ID() != k.ID() || !bytes.Equal(again.Digest(secret), k.Digest(secret)) {
		t.Error("the key read again is another")
	} else if got, err := again.Open("port-a", sealed); err != nil || !bytes.Equal(got, secret) {
		t.Errorf("opened as %q, %v", got, err)
	}
	if other.ID() == k.ID() || bytes.Equal(other.Digest(secret), k.Digest(secret)) {
		t.Error("two keys have the same name or digests")
	}
	changed := bytes.Clone(sealed)
	changed[len(changed)-1] ^= 1
	for name, open := range map[string]func() ([]byte, error){
		"another owner":  func() ([]byte, error) { return k.Open("port-b", sealed) },
		"another key":    func() ([]byte, error) { return other.Open("port-a", sealed) },
		"a byte changed": func() ([]byte, error) { return k.Open("port-a", changed) },
		"nothing":        func() ([]byte, error) { return k.Open("port-a", nil) },
	} {
		if got, err := open(); err == nil || !strings.Contains(err.Error(), "port-") {
			t.Errorf("%s: opened as %q, %v; want an error that names the owner", name, got, err)
		}
	}
}

func TestHostKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, err := LoadHostKey(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := LoadHostKey(filepath.Join(dir, "b"))
	if err != nil {
		t.Fatal(err)
	}
	secret := []byte("user data")
	box, err := SealForHost(a.Public(), "host-a/port", secret)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := a.Open("host-a/port", box); err != nil || !bytes.Equal(got, secret) {
		t.Errorf("opened as %q, %v", got, err)
	}
	if bytes.Contains(box, secret) || Fingerprint(a.Public()) == Fingerprint(b.Public()) {
		t.Error("the box shows the secret, or two keys have one name")
	}
	for name, open := range map[string]func() ([]byte, error){
		"another host":  func() ([]byte, error) { return b.Open("host-a/port", box) },
		"another owner": func() ([]byte, error) { return a.Open("host-a/other", box) },
		"half of it":    func() ([]byte, error) { return a.Open("host-a/port", box[:len(box)/2]) },
		"nothing":       func() ([]byte, error) { return a.Open("host-a/port", nil) },
	} {
		if got, err := open(); err == nil || !strings.Contains(err.Error(), "host-a/") {
			t.Errorf("%s: opened as %q, %v; want an error that names the owner", name, got, err)
		}
	}
	for name, key := range map[string][]byte{"short": a.Public()[1:], "none": nil, "of low order": make([]byte, keySize)} {
		if _, err := SealForHost(key, "x", secret); err == nil {
			t.Errorf("sealed for a public key that is %s", name)
		}
	}
}

func TestKeyFiles(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	keys := make([]*ServerKey, 8) // of servers that start at once
	var starting sync.WaitGroup
	for i := range keys {
		starting.Go(func() { keys[i], _ = LoadServerKey(file) })
	}
	starting.Wait()
	for _, k := range keys {
		if k == nil || k.ID() != keys[0].ID() {
			t.Fatalf("servers that start at once have different keys, or none: %v", keys)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(file), ".*")); len(left) > 0 {
		t.Errorf("files left: %v", left)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v, %v; want mode 0600", info, err)
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadServerKey(file); err == nil || !strings.Contains(err.Error(), "chmod 600 "+file) {
		t.Errorf("key that a group may read: %v", err)
	}
	for _, content := range []string{"", "x", "AAAA\n"} {
		if err := errors.Join(os.Chmod(file, 0o600), os.WriteFile(file, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadHostKey(file); err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "remove it") {
			t.Errorf("key file with %q: %v, want an error that names it and what to do", content, err)
		}
		// A server would go on with a key that no other has, and leave what is sealed unreadable.
		if _, err := LoadServerKey(file); err == nil || !strings.Contains(err.Error(), "put it back from a copy") || strings.Contains(err.Error(), "remove it") {
			t.Errorf("servers' key file with %q: %v, want an error that says to put it back, and not to remove it", content, err)
		}
	}
	if _, err := LoadServerKey(filepath.Join(file, "x")); err == nil {
		t.Error("a key below a file")
	}
}

// TestKeyFileOfAnother: a key that root has copied for a server of another user is refused, with
// the chown that it needs.
func TestKeyFileOfAnother(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("reads as another user: run it as root")
	}
	file := filepath.Join(t.TempDir(), "key")
	if _, err := LoadServerKey(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(filepath.Dir(file)), 0o711); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // which ends with the goroutine, and its rights with it
		_, err := unix.SetfsuidRetUid(65534)
		if err == nil {
			_, err = LoadServerKey(file)
		}
		failed <- err
	}()
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "chown 0 "+file) {
		t.Errorf("%v, want an error that says to chown the file", err)
	}
}
