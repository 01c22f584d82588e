package xe_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"heddle/internal/xen/model"
	"heddle/internal/xen/wire"
	"heddle/internal/xen/xe"
)

var update = flag.Bool("update", false, "write what xe prints into the scripts")

// scripts runs terminal sessions with a pool at $POOL, in which "xe …" is the command; other
// commands are testscript's.
func scripts(t *testing.T, dir string, setup func(*testscript.Env) error) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir:           filepath.Join("testdata", dir),
		UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			e.Setenv("XE_EXTRA_ARGS", "")
			return setup(e)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"xe": run, "capture": capture, "simulated": control},
	})
}

// run runs xe. "! xe …" must fail, and then print nothing but what went wrong.
func run(ts *testscript.TestScript, neg bool, args []string) {
	code := xe.Run(context.Background(), args, xe.Environment{Home: ts.Getenv("HOME"), ExtraArgs: ts.Getenv("XE_EXTRA_ARGS"), RootPasswordFile: ts.Getenv("ROOT_PASSWORD_FILE"),
		Version: "1.2", Out: ts.Stdout(), Err: ts.Stderr()})
	want := 0
	if neg {
		want = 1
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d", code, want)
	}
}

// capture runs xe and keeps what it prints in a variable: capture NAME ARGUMENTS…
func capture(ts *testscript.TestScript, neg bool, args []string) {
	var out, errs strings.Builder
	code := xe.Run(context.Background(), args[1:], xe.Environment{Home: ts.Getenv("HOME"), ExtraArgs: ts.Getenv("XE_EXTRA_ARGS"), Out: &out, Err: &errs})
	if code != 0 {
		ts.Fatalf("exit code %d: %s", code, errs.String())
	}
	ts.Setenv(args[0], strings.TrimSuffix(out.String(), "\n"))
}

// TestFormat: what xe prints, to the byte, of a pool whose objects are those of testdata/pool.json.
func TestFormat(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(stillLife(t))
	t.Cleanup(s.Close)
	secure := httptest.NewUnstartedServer(stillLife(t))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that xe breaks off
	secure.StartTLS()
	t.Cleanup(secure.Close)
	scripts(t, "format", func(e *testscript.Env) error {
		e.Setenv("XE_EXTRA_ARGS", "nossl=true,password=secret,port="+port(s.URL))
		e.Setenv("TLS", "nossl=false,password=secret,port="+port(secure.URL))
		sum := sha256.Sum256(secure.Certificate().Raw)
		e.Setenv("FINGERPRINT", hex.EncodeToString(sum[:]))
		e.Setenv("TLS_PORT", port(secure.URL))
		return nil
	})
}

// stillLife is a pool that can be read, but not changed.
func stillLife(t *testing.T) http.Handler {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "pool.json"))
	if err != nil {
		t.Fatal(err)
	}
	var pool map[string]map[string]map[string]any
	if err := json.Unmarshal(text, &pool); err != nil {
		t.Fatal(err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body) // what is torn is no call
		c, err := wire.DecodeJSONCall(text)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		v, failure := look(pool, c)
		w.Header().Set("Content-Type", "application/json")
		w.Write(wire.JSONReply(c, model.Type{}, v, failure))
	})
}

// look answers a call that only reads.
func look(pool map[string]map[string]map[string]any, c *wire.JSONCall) (any, *model.Error) {
	class, verb, _ := strings.Cut(c.Method, ".")
	objects := pool[class]
	switch {
	case c.Method == "session.login_with_password" && c.Params[1] != "secret":
		return nil, model.SessionAuthenticationFailed(c.Params[0].(string), "wrong")
	case c.Method == "session.login_with_password":
		return "OpaqueRef:session", nil
	case c.Method == "session.logout":
		return "", nil
	case c.Method == "SR.get_uuid":
		return "dddddddd-0000-4000-8000-000000000001", nil
	case c.Method == "pool.eject":
		return nil, &model.Error{Code: "LICENCE_RESTRICTION", Params: []string{"PCI_device_for_auto_update", "now"}}
	case c.Method == "PIF.unplug":
		return nil, model.VIFInUse("OpaqueRef:n1", "OpaqueRef:v1")
	case c.Method == "network.destroy":
		return nil, model.NetworkContainsVIF("OpaqueRef:v1", "OpaqueRef:v2")
	case verb == "get_all_records":
		all := map[string]any{}
		for ref, object := range objects {
			all[ref] = object
		}
		return all, nil
	case verb == "get_by_uuid":
		for ref, object := range objects {
			if object["uuid"] == c.Params[1] {
				return ref, nil
			}
		}
		return nil, model.UUIDInvalid(class, c.Params[1].(string))
	case verb == "get_record":
		if object := objects[c.Params[1].(string)]; object != nil {
			return object, nil
		}
		return nil, model.HandleInvalid(class, c.Params[1].(string))
	}
	return nil, model.MessageMethodUnknown(c.Method)
}
