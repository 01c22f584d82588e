package hostnet

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestNamedNamespace: a namespace with a name outlives its handle and is found by its name, and
// processes in it are found and ended.
func TestNamedNamespace(t *testing.T) {
	ns := kernel(t).namespace
	name := "hostnet-test-" + strings.ToLower(t.Name())
	t.Cleanup(func() { must(t, Unname(name)) })
	must(t, ns.Name(name))
	again, err := OpenNamespace(name)
	must(t, err)
	defer again.Close()
	same, err := ns.Same(again)
	must(t, err)
	if !same {
		t.Error("the name is another namespace's")
	}
	other, err := NewNamespace()
	must(t, err)
	defer other.Close()
	must(t, other.Name(name)) // takes the name over
	again.Close()
	again, err = OpenNamespace(name)
	must(t, err)
	if same, err = other.Same(again); err != nil || !same {
		t.Errorf("the name is not the other namespace's, %v", err)
	}
	names, err := NamedNamespaces("hostnet-test-")
	must(t, err)
	if !slices.Contains(names, name) {
		t.Errorf("named namespaces: %v", names)
	}

	sleeper := exec.Command("sleep", "1000")
	must(t, other.Do(sleeper.Start))
	pids, err := other.Processes()
	must(t, err)
	if !slices.Equal(pids, []int{sleeper.Process.Pid}) {
		t.Errorf("processes %v, want %d", pids, sleeper.Process.Pid)
	}
	must(t, EndProcess(sleeper.Process.Pid))
	if err := sleeper.Wait(); err == nil {
		t.Error("the process has ended by itself")
	}
	must(t, EndProcess(sleeper.Process.Pid)) // it is gone
	if err := syscall.Kill(sleeper.Process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the process is there: %v", err)
	}
	must(t, Unname(name))
	must(t, Unname(name))
	_, err = OpenNamespace(name)
	wantErr(t, "open", err, ErrNotFound)
}
