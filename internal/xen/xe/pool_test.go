package xe_test

import (
	"bytes"
	"context"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"heddle/internal/xen/xapi"
	"heddle/internal/xen/xe"
)

// TestCommands: every command, done and refused, at a pool whose hosts are simulated, a new one for
// each script. The pool "lone" is at $LONE_PORT, with the password "other".
func TestCommands(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile(filepath.Join("testdata", "pools.json"))
	if err != nil {
		t.Fatal(err)
	}
	scripts(t, "pool", func(e *testscript.Env) error {
		s, err := simulate(file, e.Defer)
		if err != nil {
			return err
		}
		pools := s.Pools()
		e.Setenv("XE_EXTRA_ARGS", "nossl=true,password=secret,port="+port(pools[0].URL))
		e.Setenv("LONE_PORT", port(pools[1].URL))
		e.Values[simulation] = s
		return nil
	})
}

// simulate serves the pools of a file until the script has ended.
func simulate(file []byte, atEnd func(func())) (*xapi.Simulation, error) {
	s, err := xapi.NewSimulation(file, nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	atEnd(func() {
		cancel()
		<-done
	})
	select {
	case <-s.Ready():
		return s, nil
	case err := <-done:
		done <- nil
		return nil, err
	}
}

// simulation is by what a script's environment knows its pools.
var simulation = struct{ name string }{"simulation"}

// control plays failures: simulated host NAME live|dead.
func control(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("unsupported: ! simulated")
	}
	ts.Check(ts.Value(simulation).(*xapi.Simulation).Control(context.Background(), strings.Join(args, " ")))
}

// TestEventWait: it waits for what is not so yet, and no longer.
func TestEventWait(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile(filepath.Join("testdata", "pools.json"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := simulate(file, t.Cleanup)
	if err != nil {
		t.Fatal(err)
	}
	pool, err := url.Parse(s.Pools()[0].URL)
	if err != nil {
		t.Fatal(err)
	}
	polls := make(chan struct{}, 100)
	proxy := httputil.NewSingleHostReverseProxy(pool)
	proxy.ErrorLog = log.New(io.Discard, "", 0) // of requests that end with the test
	watched := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // what is torn reaches the pool so
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte("event.from")) {
			polls <- struct{}{}
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(watched.Close)
	command := func(at, line string) int {
		return xe.Run(t.Context(), strings.Fields(line), xe.Environment{ExtraArgs: "nossl=true,password=secret,port=" + port(at), Out: io.Discard, Err: t.Output()})
	}
	done := make(chan int, 1)
	go func() { done <- command(watched.URL, "event-wait class=network name-label=wanted MTU=/=1500") }()
	next := func() {
		select {
		case <-polls:
		case code := <-done:
			t.Fatalf("it ended with %d", code)
		}
	}
	next() // everything
	next() // changes
	for _, line := range []string{"network-create name-label=other MTU=1400", "network-create name-label=wanted"} {
		if code := command(pool.String(), line); code != 0 {
			t.Fatalf("%s: exit code %d", line, code)
		}
		next()
	}
	if code := command(pool.String(), "network-create name-label=wanted MTU=1400"); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if code := <-done; code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// port is that of a URL.
func port(at string) string { return at[strings.LastIndexByte(at, ':')+1:] }
