package main

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"heddle/internal/netlab"
	"heddle/internal/store"
	"heddle/internal/store/backend"
)

// TestCalicoScripts runs the terminal sessions of testdata/calico, each with a server of its own.
// The server's sockets are files, so that the commands need no flag but its data directory. Beside
// the commands of TestScripts there are
//
//	stored KEY [VALUE]    writes a key as another program would; without VALUE prints it
//	await FILE REGEXP     waits until a file has a line
func TestCalicoScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "calico", "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			_, data := startServer(t)
			p := scripts()
			p.Files = []string{file}
			setup := p.Setup
			p.Setup = func(e *testscript.Env) error {
				e.Setenv("HEDDLE_DATA", data)
				return setup(e)
			}
			p.Cmds = maps.Clone(p.Cmds)
			p.Cmds["stored"], p.Cmds["await"] = stored, await
			testscript.Run(t, p)
		})
	}
}

func stored(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: stored KEY [VALUE]")
	}
	ctx := context.Background()
	st, err := backend.OpenRunning(ctx, ts.Getenv("HEDDLE_DATA"), nil)
	ts.Check(err)
	defer st.Close()
	if len(args) == 2 {
		_, err := st.Commit(ctx, nil, []store.Op{{Key: args[0], Value: []byte(args[1])}})
		ts.Check(err)
		return
	}
	kv, err := st.Get(ctx, args[0])
	if errors.Is(err, store.ErrNotFound) {
		kv.Value, err = []byte("absent"), nil
	}
	ts.Check(err)
	_, err = ts.Stdout().Write(append(kv.Value, '\n'))
	ts.Check(err)
}

func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await FILE REGEXP")
	}
	wanted, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var text []byte
	err = netlab.Until(ctx, args[1]+" in "+args[0], func() (bool, error) {
		text, _ = os.ReadFile(ts.MkAbs(args[0])) // not there yet
		return wanted.Match(text), nil
	})
	if err != nil {
		ts.Fatalf("%v:\n%s", err, text)
	}
}
