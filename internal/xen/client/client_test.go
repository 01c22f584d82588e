package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/xen/client"
	"heddle/internal/xen/model"
)

// TestTransports: what comes is what the server has, over each transport.
func TestTransports(t *testing.T) {
	t.Parallel()
	for name, json := range map[string]bool{"XML-RPC": false, "JSON-RPC": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, func(c call) (any, *model.Error) {
				switch c.method {
				case "PIF.get_VLAN":
					return int64(-1), nil
				case "PIF.get_currently_attached":
					return true, nil
				case "network.get_tags":
					return []string{"a", "b"}, nil
				case "tunnel.get_status":
					return map[string]string{"active": "true", "key": "7"}, nil
				case "PIF_metrics.get_io_read_kbs":
					return 0.5, nil
				case "host_metrics.get_last_updated":
					return time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC), nil
				case "tunnel.destroy":
					return "", nil
				case "tunnel.create":
					return nil, model.IsTunnelAccessPIF("OpaqueRef:p")
				case "Async.tunnel.destroy":
					return "OpaqueRef:task", nil
				case "SR.get_uuid":
					return "a-uuid", nil
				}
				return nil, nil
			})
			session := dial(t, s, client.Options{JSON: json})
			for method, want := range map[string]any{
				"PIF.get_VLAN": int64(-1), "PIF.get_currently_attached": true, "network.get_tags": []string{"a", "b"},
				"tunnel.get_status": map[string]string{"active": "true", "key": "7"}, "PIF_metrics.get_io_read_kbs": 0.5,
				"host_metrics.get_last_updated": time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC), "tunnel.destroy": nil,
				"Async.tunnel.destroy": "OpaqueRef:task", "SR.get_uuid": "a-uuid",
			} {
				got, err := session.Call(context.Background(), method, "OpaqueRef:x")
				if diff := cmp.Diff(want, got); err != nil || diff != "" {
					t.Errorf("%s: %v\n%s", method, err, diff)
				}
			}
			_, err := session.Call(context.Background(), "tunnel.create", "OpaqueRef:p", "OpaqueRef:n")
			var failure *model.Error
			if !errors.As(err, &failure) || !cmp.Equal(failure.Params, []string{"OpaqueRef:p"}) || client.Code(err) != "IS_TUNNEL_ACCESS_PIF" {
				t.Errorf("tunnel.create: %v, want IS_TUNNEL_ACCESS_PIF of the PIF", err)
			}
			if _, err := session.Call(context.Background(), "tunnel.unheard_of"); client.Code(err) != "MESSAGE_METHOD_UNKNOWN" {
				t.Errorf("tunnel.unheard_of: %v, want MESSAGE_METHOD_UNKNOWN", err)
			}
			wantPath := "/"
			if json {
				wantPath = "/jsonrpc"
			}
			if s.paths[0] != wantPath {
				t.Errorf("calls went to %s, want %s", s.paths[0], wantPath)
			}
			login := call{"session.login_with_password", []any{"root", "secret"}}
			if diff := cmp.Diff(login, s.calls[0], cmp.AllowUnexported(call{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestForeignRecords: a reply as another server writes it, with fields, values and spelling of its
// own.
func TestForeignRecords(t *testing.T) {
	t.Parallel()
	reply, err := os.ReadFile(filepath.Join("testdata", "foreign_networks.xml"))
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(t, func(c call) (any, *model.Error) {
		if c.method == "network.get_all_records" {
			return recorded(reply), nil
		}
		return nil, nil
	})
	got, err := dial(t, s, client.Options{}).Records(context.Background(), "network")
	if err != nil {
		t.Fatal(err)
	}
	want := model.New("network")
	want["uuid"], want["name_label"], want["bridge"] = "97eec79a-2a64-4ec6-a0d8-7a9f8d6ac2a1", "Pool-wide network associated with eth0", "xenbr0"
	want["PIFs"], want["VIFs"], want["MTU"] = []string{"OpaqueRef:1"}, []string{}, int64(1500)
	want["other_config"] = map[string]string{"is_guest_installer_network": "true", "note": ""}
	want["purpose"] = []string{"nbd", "of another age"}
	if diff := cmp.Diff(map[string]model.Record{"OpaqueRef:net": want}, got); diff != "" {
		t.Error(diff)
	}
}

// TestSessionEnds: a session that the server has forgotten is begun anew, once a call.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	valid := "OpaqueRef:session"
	s := newServer(t, func(c call) (any, *model.Error) {
		switch {
		case c.method == "session.login_with_password":
			return valid, nil
		case c.params[0] != valid || valid == "":
			return nil, model.SessionInvalid(c.params[0].(string))
		}
		return "secret place", nil
	})
	session := dial(t, s, client.Options{})
	valid = "OpaqueRef:second"
	if got, err := session.Call(context.Background(), "network.get_name_label", "OpaqueRef:n"); err != nil || got != "secret place" {
		t.Errorf("got %v, %v", got, err)
	}
	if n := s.count("session.login_with_password"); n != 2 {
		t.Errorf("%d logins, want 2", n)
	}
	valid = ""
	if _, err := session.Call(context.Background(), "network.get_name_label", "OpaqueRef:n"); client.Code(err) != "SESSION_INVALID" {
		t.Errorf("got %v, want SESSION_INVALID", err)
	}
}

// TestSeveralHosts: the first host that answers is used; what it refuses no other is asked for.
func TestSeveralHosts(t *testing.T) {
	t.Parallel()
	refuses := newServer(t, func(call) (any, *model.Error) { return nil, model.SessionAuthenticationFailed("root", "no") })
	refuses.Start()
	answers := newServer(t, func(call) (any, *model.Error) { return nil, nil })
	answers.Start()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	if session := dial(t, answers, client.Options{URL: gone.URL + ", " + answers.URL + "," + refuses.URL}); session.URL() != answers.URL {
		t.Errorf("the session is at %s, want %s", session.URL(), answers.URL)
	}
	if _, err := client.Dial(context.Background(), client.Options{URL: gone.URL + "," + refuses.URL + "," + answers.URL}); client.Code(err) != "SESSION_AUTHENTICATION_FAILED" {
		t.Errorf("got %v, want that the login is refused", err)
	}
	if _, err := client.Dial(context.Background(), client.Options{URL: gone.URL + "," + gone.URL}); err == nil || client.Code(err) != "" {
		t.Errorf("got %v, want that nobody answers", err)
	}
}

// TestOneLogin: when a session ends under many calls, they log in once.
func TestOneLogin(t *testing.T) {
	t.Parallel()
	var ended atomic.Bool
	s := newServer(t, func(c call) (any, *model.Error) {
		switch {
		case c.method == "session.login_with_password" && ended.Load():
			return "OpaqueRef:second", nil
		case c.method == "tunnel.get_all" && ended.Load() && c.params[0] == "OpaqueRef:session":
			return nil, model.SessionInvalid("OpaqueRef:session")
		case c.method == "tunnel.get_all":
			return []string{}, nil
		}
		return nil, nil
	})
	session := dial(t, s, client.Options{})
	ended.Store(true)
	failed := make(chan error)
	const calls = 20
	for range calls {
		go func() {
			_, err := session.Call(context.Background(), "tunnel.get_all")
			failed <- err
		}()
	}
	for range calls {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if n := s.count("session.login_with_password"); n != 2 {
		t.Errorf("%d logins, want 2", n)
	}
}

// TestHostIsSlave: a login goes on to the coordinator that a member names, and calls go there.
func TestHostIsSlave(t *testing.T) {
	t.Parallel()
	member := newServer(t, func(c call) (any, *model.Error) {
		return nil, model.HostIsSlave("127.0.0.2")
	})
	member.Start()
	coordinator := newServer(t, func(c call) (any, *model.Error) {
		if c.method == "pool.get_all" {
			return []string{"OpaqueRef:pool"}, nil
		}
		return nil, nil
	})
	coordinator.Listener.Close()
	coordinator.Listener = listenBeside(t, "127.0.0.2", member)
	coordinator.Start()
	session := dial(t, coordinator, client.Options{URL: member.URL})
	if _, err := session.Call(context.Background(), "pool.get_all"); err != nil {
		t.Error(err)
	}
	if session.URL() != coordinator.URL {
		t.Errorf("the session is at %s, want %s", session.URL(), coordinator.URL)
	}
}

// TestHostIsSlaveRefused: members that name each other end a login, and a password for this machine
// does not leave it in the clear.
func TestHostIsSlaveRefused(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{"127.0.0.1": "name each other", "192.0.2.1": "by https", "[2001:db8::1]": "by https"} {
		s := newServer(t, func(call) (any, *model.Error) { return nil, model.HostIsSlave(address) })
		s.Start()
		if _, err := client.Dial(context.Background(), client.Options{URL: s.URL}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
}

// TestBadServers: whatever answers instead of a pool is an error that names it.
func TestBadServers(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"not found": func(w http.ResponseWriter, r *http.Request) { http.NotFound(w, r) },
		"elsewhere": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/other", http.StatusFound) },
		"no XML":    func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") },
		"nothing":   func(w http.ResponseWriter, r *http.Request) {},
		"torn": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "9")
			io.WriteString(w, "<")
		},
		"no session": func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `<methodResponse><params><param><value><struct><member><name>Status</name><value>Success</value></member><member><name>Value</name><value><boolean>1</boolean></value></member></struct></value></param></params></methodResponse>`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(answer)
			defer s.Close()
			host := strings.TrimPrefix(s.URL, "http://")
			if _, err := client.Dial(context.Background(), client.Options{URL: s.URL}); err == nil || !strings.Contains(err.Error(), host) {
				t.Errorf("got %v, want an error that names %s", err, host)
			}
		})
	}
	for _, address := range []string{"", "192.0.2.1", "ftp://192.0.2.1", "https://", "http://%zz"} {
		if _, err := client.Dial(context.Background(), client.Options{URL: address}); err == nil {
			t.Errorf("address %q is taken", address)
		}
	}
}

// TestTimeLimit: a call that nobody answers ends in time, and so does one whose context ends.
func TestTimeLimit(t *testing.T) {
	t.Parallel()
	stop, asked := make(chan struct{}), make(chan struct{}, 2)
	s := newServer(t, func(c call) (any, *model.Error) {
		if c.method == "tunnel.get_all" {
			asked <- struct{}{}
			<-stop
		}
		return nil, nil
	})
	session := dial(t, s, client.Options{Timeout: 200 * time.Millisecond})
	t.Cleanup(func() { close(stop) })
	if _, err := session.Call(context.Background(), "tunnel.get_all"); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("got %v, want that there was no answer", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	<-asked
	go func() {
		<-asked
		cancel()
	}()
	if _, err := session.Call(ctx, "tunnel.get_all"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// TestKeptConnection: reading goes on when the server has closed a connection that was kept.
func TestKeptConnection(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(c call) (any, *model.Error) {
		if c.method == "tunnel.get_all" {
			return []string{}, nil
		}
		return nil, nil
	})
	session := dial(t, s, client.Options{})
	for range 3 {
		s.CloseClientConnections()
		if _, err := session.Call(context.Background(), "tunnel.get_all"); err != nil {
			t.Error(err)
		}
	}
}

// TestClose: the session ends at the server, and only once.
func TestClose(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(c call) (any, *model.Error) { return nil, nil })
	session := dial(t, s, client.Options{})
	if err := session.Close(context.Background()); err != nil || s.count("session.logout") != 1 {
		t.Errorf("%v, %d logouts", err, s.count("session.logout"))
	}
}
