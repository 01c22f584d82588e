package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"heddle/internal/lab"
	"heddle/internal/netlab"
	"heddle/internal/services/plan"
	"heddle/internal/topology"
)

// TestLabCleanRemovesContainers: what a killed lab leaves goes, with a service container of its
// host whose speaker has a socket of the host's network and so keeps that.
func TestLabCleanRemovesContainers(t *testing.T) {
	inner := netlab.ForTest(t).MustNamespace(t, "container")
	t.Setenv(runMain, "1") // the lab starts its own program
	prefix, dir := fmt.Sprintf("ht%d-clean", os.Getpid()), filepath.Join(t.TempDir(), "lab")
	if err := os.MkdirAll(filepath.Join(dir, prefix+"-h1"), 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, prefix+"-h1", "host.json"), "{}") // of an agent that joined
	killed := netlab.New(prefix)
	t.Cleanup(func() { killed.Close() }) // reported below
	h1 := killed.MustNamespace(t, "h1")
	h1.MustIP(t, "link add hctclean type veth peer name eth0 netns "+inner.Name)
	var socket net.Listener
	if err := h1.Do(func() (err error) {
		socket, err = net.Listen("unix", filepath.Join(t.TempDir(), "socket"))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	speaker := exec.Command("sleep", "600")
	if err := inner.Start(speaker); err != nil {
		t.Fatal(err)
	}
	defer speaker.Process.Kill()
	container := netlab.Namespace{Name: plan.NamespacePrefix(topology.ContainerBGP) + prefix}
	if out, err := exec.Command("ip", "netns", "attach", container.Name, fmt.Sprint(speaker.Process.Pid)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	if err := lab.Clean(prefix, dir); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{container.Path(), h1.Path(), dir} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s after the cleanup: %v, want it gone", path, err)
		}
	}
	if !t.Failed() {
		if err := speaker.Wait(); err == nil {
			t.Error("what ran in the container ended by itself, want it killed")
		}
	}
}
