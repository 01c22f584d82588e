package hostnet

import (
	"io"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// squatName is the variable that has this program hold a name, and squatFull one that has it accept
// no connection.
const squatName, squatFull = "HEDDLE_TEST_SQUAT", "HEDDLE_TEST_SQUAT_FULL"

func TestMain(m *testing.M) {
	name := os.Getenv(squatName)
	if name == "" {
		os.Exit(m.Run())
	}
	l, err := net.Listen("unix", namePrefix+name)
	if err != nil {
		panic(err)
	}
	if os.Getenv(squatFull) != "" {
		fill(l)
	}
	os.Stdout.WriteString("held\n")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
}

// fill leaves no room for connections to a socket.
func fill(l net.Listener) {
	raw, err := l.(*net.UnixListener).SyscallConn()
	if err != nil {
		panic(err)
	}
	if err := raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) }); err != nil {
		panic(err)
	}
	for err == nil {
		_, err = net.Dial("unix", l.Addr().String())
	}
}

// TestAlone: who has a name keeps a second out, and lets the next in when he is gone.
func TestAlone(t *testing.T) {
	first := mustHold(t, "test-agent")
	mustNotHold(t, "test-agent")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	next := mustHold(t, "test-agent")
	checkHeld(t, "test-agent", true)
	checkHeld(t, "test", false)
	next.Close()
	checkHeld(t, "test-agent", false)
}

// TestAloneBesideOthers: another user's socket does not keep a process from a name, whether it
// answers or not, and one holder still keeps a second out, also once that socket is gone.
func TestAloneBesideOthers(t *testing.T) {
	for name, variables := range map[string][]string{"test-squat": nil, "test-full": {squatFull + "=1"}} {
		end := squat(t, name, variables...)
		checkHeld(t, name, false)
		first := mustHold(t, name)
		checkHeld(t, name, true)
		mustNotHold(t, name)
		end()
		mustNotHold(t, name)
		checkHeld(t, name, true)
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		checkHeld(t, name, false)
		mustHold(t, name).Close()
		path, err := lockPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
}

// TestAloneAfterAKill: the file of a process that was killed does not keep the next one out, and
// goes.
func TestAloneAfterAKill(t *testing.T) {
	path, err := lockPath("test-killed")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	checkHeld(t, "test-killed", false)
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", path, err)
	}
}

// squat has a process of another user hold a name until end is called.
func squat(t *testing.T, name string, variables ...string) (end func()) {
	t.Helper()
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{"squat"}, Dir: "/", Env: append(variables, squatName+"="+name), Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: UnprivilegedID, Gid: UnprivilegedID}}}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end = func() {
		if !ended {
			ended = true
			_ = in.Close()
			_ = cmd.Wait()
		}
	}
	t.Cleanup(end)
	if _, err := io.ReadFull(out, make([]byte, len("held\n"))); err != nil {
		t.Fatal(err)
	}
	return end
}

func mustHold(t *testing.T, name string) io.Closer {
	t.Helper()
	held, err := Alone(name)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

func mustNotHold(t *testing.T, name string) {
	t.Helper()
	if second, err := Alone(name); err == nil {
		second.Close()
		t.Fatalf("there are two that hold %s", name)
	}
}

func checkHeld(t *testing.T, name string, want bool) {
	t.Helper()
	if held, err := Held(name); err != nil || held != want {
		t.Errorf("%s is held: %t, %v, want %t", name, held, err, want)
	}
}
