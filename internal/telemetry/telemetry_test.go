package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func start(t *testing.T, listen string, waiting func() []string) (*Server, *Metrics) {
	t.Helper()
	m := NewMetrics("v0")
	s := NewServer(Options{Listen: listen, Metrics: m, Waiting: waiting})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-s.Ready()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return s, m
}

func get(t *testing.T, s *Server, path string) (int, string) {
	t.Helper()
	res, err := http.Get("http://" + s.Addr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestEndpoints(t *testing.T) {
	var ready atomic.Bool
	s, m := start(t, "127.0.0.1:0", func() []string {
		if ready.Load() {
			return nil
		}
		return []string{"replica (store away)"}
	})
	if code, body := get(t, s, "/readyz"); code != 503 || !strings.Contains(body, "replica (store away)") {
		t.Errorf("not ready: got %d %q", code, body)
	}
	ready.Store(true)
	if code, _ := get(t, s, "/readyz"); code != 200 {
		t.Errorf("ready: got %d", code)
	}
	if code, _ := get(t, s, "/healthz"); code != 200 {
		t.Errorf("healthz: got %d", code)
	}
	if code, _ := get(t, s, "/debug/pprof/cmdline"); code != 200 {
		t.Errorf("pprof on loopback: got %d", code)
	}
	m.Request("network", "GET", "200", time.Millisecond)
	m.Register(func() []Value {
		return []Value{Gauge.Of("heddle_flows", "Flows in the cache.", 7).With("host", "h1")}
	})
	_, body := get(t, s, "/metrics")
	for _, want := range []string{`heddle_flows{host="h1"} 7`, `heddle_build_info{version="v0"} 1`, `heddle_api_request_seconds_count{api="network",code="200",method="GET"} 1`} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics lack %q", want)
		}
	}
}

// scrape returns what a scrape of the metrics reads.
func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// TestSeriesAreBounded: a metric with too many series exports the first of them, always the same,
// and says how many are left out; others are not touched.
func TestSeriesAreBounded(t *testing.T) {
	t.Parallel()
	m := NewMetrics("v0")
	m.Register(func() (values []Value) {
		for i := range MaxSeries + 5 {
			values = append(values, Gauge.Of("heddle_many", "Many.", i).With("id", fmt.Sprintf("%03d", i)).With("side", "in"),
				Gauge.Of("heddle_enough", "Enough.", i).With("id", fmt.Sprint(i%MaxSeries)).With("half", fmt.Sprint(i/MaxSeries)))
		}
		rand.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
		return values
	})
	m.Register(func() (values []Value) {
		for i := range MaxSeries {
			values = append(values, Gauge.Of("heddle_few", "As many as may be.", i).With("id", fmt.Sprint(i)))
		}
		return values
	})
	text := scrape(t, m)
	for _, want := range []string{`heddle_many{id="000",side="in"} 0`, `heddle_many{id="099",side="in"} 99`,
		`heddle_series_left_out{metric="heddle_many"} 5`, `heddle_series_left_out{metric="heddle_enough"} 5`, `heddle_few{id="99"} 99`} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
	for name, want := range map[string]int{"many": MaxSeries, "enough": MaxSeries, "few": MaxSeries, "series_left_out": 2} {
		if got := strings.Count(text, "\nheddle_"+name+"{"); got != want {
			t.Errorf("%d series of heddle_%s, want %d", got, name, want)
		}
	}
}

// TestMove: the server moves to another address, unless that is taken.
func TestMove(t *testing.T) {
	s, _ := start(t, "127.0.0.1:0", func() []string { return nil })
	before := s.Addr().String()
	if _, _, err := s.Listen(before); err == nil || !strings.Contains(err.Error(), "--metrics") {
		t.Errorf("listens twice at one address: %v", err)
	}
	_, discard, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if discard(); s.Addr().String() != before {
		t.Error("moved to an address that was given up")
	}
	move, _, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	move()
	if after := s.Addr().String(); after == before {
		t.Errorf("still at %s", after)
	}
	if code, _ := get(t, s, "/healthz"); code != 200 {
		t.Errorf("at the new address: %d", code)
	}
}

func TestProfilesOnlyOnLoopback(t *testing.T) {
	s, _ := start(t, "0.0.0.0:0", func() []string { return nil })
	res, err := http.Get("http://127.0.0.1:" + s.Addr().String()[strings.LastIndex(s.Addr().String(), ":")+1:] + "/debug/pprof/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 404 {
		t.Errorf("profiles are served on every address: got %d", res.StatusCode)
	}
}

func TestNewLogger(t *testing.T) {
	var b bytes.Buffer
	l, err := NewLogger(&b, "json", NewLevels(slog.LevelWarn))
	if err != nil {
		t.Fatal(err)
	}
	l.Info("hidden")
	l.Warn("shown", "port", "p1")
	if got := b.String(); strings.Contains(got, "hidden") || !strings.Contains(got, `"port":"p1"`) {
		t.Errorf("got %q", got)
	}
	if _, err := NewLogger(&b, "xml", NewLevels(slog.LevelInfo)); err == nil {
		t.Error("took the format xml")
	}
}

// TestURLsWithoutSecrets: passwords, users without one and the values of queries are struck out of
// all URLs in a text, and nothing else of it.
func TestURLsWithoutSecrets(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://nova:pa:ss@w0rd@192.0.2.1:8774/v2.1":        "https://nova:<struck out>@192.0.2.1:8774/v2.1",
		"http://a:b@c, http://d:e@f/?token=x&id=7 end":       "http://a:<struck out>@c, http://d:<struck out>@f/?token=<struck out>&id=<struck out> end",
		"https://tok-en@h/a, https://tok:@[::1]:80 x@y":      "https://<struck out>@h/a, https://<struck out>@[::1]:80 x@y",
		"https://me@corp:pass@h/ https://to@ken@h/":          "https://<struck out>@corp:<struck out>@h/ https://<struck out>@h/",
		`{"u":"http://h/?t=x\u0026s=y#top","m":"a@b"}`:       `{"u":"http://h/?t=<struck out>\u0026s=<struck out>#top","m":"a@b"}`,
		"https://192.0.2.1:9696 a@b x=y? unix:///run/x.sock": "https://192.0.2.1:9696 a@b x=y? unix:///run/x.sock",
	} {
		if got := WithoutURLSecrets(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		} else if again := WithoutURLSecrets(got); again != got {
			t.Errorf("%s: struck out twice: %s", text, again)
		}
	}
	for url, want := range map[string]string{
		"https://nova:p%40ss@h/?token=tok&project=a": "p@ss tok",
		"https://glpat-0123456789abcdef@h/":          "glpat-0123456789abcdef",
		"https://glpat-0123456789abcdef:@h/":         "glpat-0123456789abcdef",
		"https://nova@h/":                            "",
	} {
		if got := strings.Join(URLSecrets(url), " "); got != want {
			t.Errorf("secrets of %s: %s, want %s", url, got, want)
		}
	}
}

// TestCommandLineWithoutSecrets: what the command line carries of tokens and passwords is not
// served.
func TestCommandLineWithoutSecrets(t *testing.T) {
	t.Parallel()
	args := []string{"heddle", "agent", "--join", "heddle-join-1.secret1", "--join=secret2", "-pw", "secret3", "--admin-password=secret4", "--join-plain-http",
		"--tunnel-ip", "192.0.2.1", "--etcd-password-file", "/etc/p", "--join-file=/etc/j", "name-label=x", "--password", "secret5"}
	got := strings.Join(withoutSecrets(args), " ")
	want := "heddle agent --join <struck out> --join=<struck out> -pw <struck out> --admin-password=<struck out> --join-plain-http " +
		"--tunnel-ip 192.0.2.1 --etcd-password-file /etc/p --join-file=/etc/j name-label=x --password <struck out>"
	if got != want {
		t.Errorf("shown %s\nwant  %s", got, want)
	}
}
