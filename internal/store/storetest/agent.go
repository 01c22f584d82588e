package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"heddle/internal/store/backend"
)

// agentVariable holds the agentArguments (JSON) of a process that is an agent.
const agentVariable = "HEDDLE_STORETEST_AGENT"

// listeningFD is closed by an agent once it handles signals: an earlier one would kill it.
const listeningFD = 3

type agentArguments struct {
	DataDir string          // of the store that [Open] started
	Options json.RawMessage // the agent's own
}

// BeAgent makes this process an agent if [StartAgent] started it, and then never returns: it calls
// run with the test's store, until the process is stopped. Call it at the start of TestMain.
func BeAgent[Options any](run func(context.Context, *backend.Etcd, *slog.Logger, Options) error) {
	text := os.Getenv(agentVariable)
	if text == "" {
		return
	}
	go EndWithParent()
	if err := beAgent(text, run); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func beAgent[Options any](text string, run func(context.Context, *backend.Etcd, *slog.Logger, Options) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := os.NewFile(listeningFD, "listening").Close(); err != nil {
		return err
	}
	var a agentArguments
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return err
	}
	var o Options
	if err := json.Unmarshal(a.Options, &o); err != nil {
		return err
	}
	st, err := backend.OpenRunning(ctx, a.DataDir, nil)
	if ctx.Err() != nil {
		return nil // stopped before it began
	} else if err != nil {
		return err
	}
	defer st.Close()
	return run(ctx, st, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})), o)
}

// StartAgent starts this test binary as an agent with options, over the store in dataDir, logging
// to log. start starts the process, say in a network namespace. When StartAgent returns, SIGTERM
// stops the agent. It ends with the test's process at the latest.
func StartAgent(t testing.TB, start func(*exec.Cmd) error, dataDir string, options any, log io.Writer) *exec.Cmd {
	t.Helper()
	raw, err := json.Marshal(options)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(agentArguments{DataDir: dataDir, Options: raw})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), agentVariable+"="+string(text))
	cmd.Stderr = log
	if _, err := cmd.StdinPipe(); err != nil { // its end ends the process: see EndWithParent
		t.Fatal(err)
	}
	listening, child, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer listening.Close()
	cmd.ExtraFiles = []*os.File{child} // listeningFD
	if err := errors.Join(start(cmd), child.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, listening); err != nil {
		t.Fatal(err)
	}
	return cmd
}
