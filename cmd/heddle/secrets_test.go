package main

import (
	"crypto/rand"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// wantKeyProblem requires the status of a server to have a problem with these words, or none of the
// key of machines' metadata for "".
func (m *serverMachine) wantKeyProblem(t *testing.T, words string) {
	t.Helper()
	withinLease(t, "the status to say of the key: "+words, func() bool {
		text, _ := output(t, m.ns, "status", "--data", m.data)
		if words == "" {
			return strings.Contains(text, "server "+m.name+" (serve)") && !strings.Contains(text, "the key of machines' metadata")
		}
		return strings.Contains(text, words)
	})
}

// TestMissingSecretsKey: a server whose secrets.key is missing while it runs says so and goes on;
// started without it, it refuses metadata until the file is back, and makes another key only if
// nothing is sealed and it is alone in its cluster. A key that is lost for good can be replaced.
func TestMissingSecretsKey(t *testing.T) {
	t.Parallel()
	s := newClusterSite(t, 2)
	s1, s2 := s.servers[0], s.servers[1]
	file, joined := filepath.Join(s1.data, secretsKeyFile), filepath.Join(s2.data, secretsKeyFile)
	s1.start(t, s1.alone("--cluster")...)
	network := login(t, s1.ns, "127.0.0.1", s1.data).mustCreate(t, "network", map[string]any{"name": "blue"})
	succeed(t, s1.ns, "port", "create", "vm1", "--network", network.ID, "--data", s1.data)
	userData := filepath.Join(t.TempDir(), "user-data")
	writeFile(t, userData, "#cloud-config\n")
	metadata := func(verb string, more ...string) []string {
		return append([]string{"metadata", verb, "--port", "vm1", "--data", s1.data}, more...)
	}
	succeed(t, s1.ns, metadata("set", "--user-data", userData)...)
	s1.wantKeyProblem(t, "")
	key, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	remove := func(m *serverMachine) {
		t.Helper()
		if err := os.Remove(filepath.Join(m.data, secretsKeyFile)); err != nil {
			t.Fatal(err)
		}
	}
	restart := func(m *serverMachine) {
		t.Helper()
		m.run.stop(t)
		m.start(t, m.member()...)
	}
	withoutKey := func(m *serverMachine) string {
		return "server " + m.name + " works without the key of machines' metadata, " + filepath.Join(m.data, secretsKeyFile)
	}

	remove(s1)
	s1.wantKeyProblem(t, "server s1: "+file+", the key of machines' metadata, is missing: the server works with what it has read")
	succeed(t, s1.ns, metadata("show")...)

	restart(s1)
	s1.run.waitLog(t, file)
	s1.wantKeyProblem(t, withoutKey(s1))
	refuse(t, s1.ns, 1, "copy the file secrets.key", metadata("show")...)
	refuse(t, s1.ns, 1, "copy the file secrets.key", metadata("set", "--user-data", userData)...)
	succeed(t, s1.ns, "port", "list", "--data", s1.data)
	writeFile(t, file, string(key))
	s1.wantKeyProblem(t, withoutKey(s1)) // it reads the file when it starts
	restart(s1)
	s1.wantKeyProblem(t, "")
	if text := succeed(t, s1.ns, metadata("show")...); !strings.Contains(text, "14 bytes") {
		t.Errorf("with the file again: %s", text)
	}

	// No server has it any more.
	remove(s1)
	restart(s1)
	succeed(t, s1.ns, metadata("unset")...)
	restart(s1)
	s1.wantKeyProblem(t, "")
	succeed(t, s1.ns, metadata("set", "--user-data", userData)...)
	succeed(t, s1.ns, metadata("unset")...)

	// In a cluster no server makes another one, and each names the servers that lack it.
	s2.join(t, s1)
	s1.waitMembers(t, "s1", "s2")
	remove(s2)
	restart(s2)
	if _, err := os.Stat(joined); err == nil {
		t.Error("a server of a cluster has made a key of its own")
	}
	s1.wantKeyProblem(t, withoutKey(s2))
	random := make([]byte, 32)
	rand.Read(random)
	for _, f := range []string{file, joined} {
		writeFile(t, f, base64.StdEncoding.EncodeToString(random)+"\n")
	}
	for _, m := range s.servers {
		restart(m)
		m.waitMembers(t, "s1", "s2")
	}
	s2.wantKeyProblem(t, "")
	succeed(t, s1.ns, metadata("set", "--user-data", userData)...)
	if text := succeed(t, s2.ns, "metadata", "show", "--port", "vm1", "--data", s2.data); !strings.Contains(text, "14 bytes") {
		t.Errorf("by the other server, which has the same key: %s", text)
	}
}
