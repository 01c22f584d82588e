package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options of the server of health, readiness, metrics and profiles.
type Options struct {
	Listen  string // host:port; profiles are served on loopback addresses only
	Metrics *Metrics
	// Waiting returns the parts that are not ready, each with the reason if it has one; empty means
	// ready.
	Waiting func() []string
	// Hung names the loops that hang, as task.Watchdog does: while there are any, a service manager
	// with a watchdog is not told that the process is alive. nil: none ever hangs.
	Hung func() []string
	Log  *slog.Logger // nil: nothing is logged
}

// Server answers /metrics, /healthz, /readyz and, on loopback, /debug/pprof/. It also tells the
// service manager that started the process when that is ready.
type Server struct {
	opts  Options
	ready chan struct{}
	moves chan net.Listener

	mu   sync.Mutex // guards addr
	addr net.Addr
}

// NewServer makes a server; it listens in Run.
func NewServer(o Options) *Server {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Hung == nil {
		o.Hung = func() []string { return nil }
	}
	return &Server{opts: o, ready: make(chan struct{}), moves: make(chan net.Listener, 1)}
}

func (s *Server) String() string { return "telemetry" }

// Ready is closed once the server listens.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Addr is the address listened on; valid once Ready.
func (s *Server) Addr() net.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.addr
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	l, err := listen(s.opts.Listen)
	if err != nil {
		return err
	}
	s.setAddr(l)
	close(s.ready)
	ctx, end := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() { tellManager(ctx, s.opts.Waiting) })
	telling.Go(func() { s.feedWatchdog(ctx) })
	defer telling.Wait()
	defer end()
	for l != nil && err == nil {
		l, err = s.serve(ctx, l)
	}
	return err
}

func listen(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for metrics on %s (set another with --metrics): %w", address, err)
	}
	return l, nil
}

func (s *Server) setAddr(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addr = l.Addr()
}

// Listen listens at another address, and returns a function that has the server, which must run,
// move there, and one that gives the address up instead.
func (s *Server) Listen(address string) (move, discard func(), err error) {
	l, err := listen(address)
	if err != nil {
		return nil, nil, err
	}
	return func() { s.setAddr(l); s.moves <- l }, func() { _ = l.Close() }, nil
}

// serve serves at an address until ctx ends, or until the server moves to the one returned.
func (s *Server) serve(ctx context.Context, l net.Listener) (next net.Listener, err error) {
	srv := &http.Server{Handler: s.handler(l.Addr()), ReadHeaderTimeout: 5 * time.Second}
	stopped := make(chan error, 1)
	go func() { stopped <- srv.Serve(l) }()
	select {
	case err := <-stopped:
		return nil, err
	case next = <-s.moves:
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := srv.Shutdown(grace); err != nil {
		_ = srv.Close() // a profile may still be streaming; it has had its second
	}
	if err := <-stopped; !errors.Is(err, http.ErrServerClosed) {
		return nil, err
	}
	return next, nil
}

func (s *Server) handler(address net.Addr) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.opts.Metrics.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", s.readyz)
	if ap, ok := address.(*net.TCPAddr); ok && ap.IP.IsLoopback() {
		HandleProfiles(mux)
	}
	return mux
}

// HandleProfiles adds the process's profiles at /debug/pprof/.
func HandleProfiles(mux *http.ServeMux) {
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}

func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	if waiting := s.opts.Waiting(); len(waiting) > 0 {
		http.Error(w, "waiting for "+strings.Join(waiting, ", "), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// cmdline answers like pprof's handler, with the values of secret flags struck out.
func cmdline(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprint(w, strings.Join(withoutSecrets(os.Args), "\x00"))
}

// withoutSecrets returns the arguments with the values of secret flags struck out.
func withoutSecrets(args []string) []string {
	shown := make([]string, len(args))
	next := false
	for i, a := range args {
		name, _, inline := strings.Cut(a, "=")
		switch {
		case next:
			shown[i], next = StruckOut, false
		case secretFlag(name) && inline:
			shown[i] = name + "=" + StruckOut
		default:
			shown[i], next = WithoutURLSecrets(a), secretFlag(name)
		}
	}
	return shown
}

// StruckOut stands in place of a secret.
const StruckOut = "<struck out>"

// Parts of URLs that may be secrets: a user's password, a user without one, which may be a token,
// and the query.
var (
	urlPassword = regexp.MustCompile(`(://[\w.~!$&'()*+,;=%@-]*:)[\w.~!$&'()*+,;=%:@-]+@`)
	urlUser     = regexp.MustCompile(`://[\w.~!$&'()*+,;=%@-]+:?@`)
	urlQuery    = regexp.MustCompile(`://[^\s"?]+\?[^\s"#]+`)
	queryValue  = regexp.MustCompile(`=[^&;=\\<]+`) // JSON escapes & as \u0026; < begins StruckOut
)

// WithoutURLSecrets returns a text with the passwords, the users without one and the values of
// queries in its URLs struck out.
func WithoutURLSecrets(text string) string {
	text = urlQuery.ReplaceAllStringFunc(text, func(url string) string {
		address, query, _ := strings.Cut(url, "?")
		return address + "?" + queryValue.ReplaceAllString(query, "="+StruckOut)
	})
	text = urlPassword.ReplaceAllString(text, "${1}"+StruckOut+"@")
	return urlUser.ReplaceAllString(text, "://"+StruckOut+"@")
}

// leastToken is the length of the shortest user of a URL that is a token wherever else it appears:
// a shorter one is a name.
const leastToken = 16

// URLSecrets returns the secrets of a URL: the user's password, a token in the place of a user, and
// the values of the query whose names are those of secrets; none if it is no URL.
func URLSecrets(text string) (secrets []string) {
	u, err := url.Parse(text)
	if err != nil {
		return nil
	}
	if password, _ := u.User.Password(); password != "" {
		secrets = append(secrets, password)
	} else if user := u.User.Username(); len(user) >= leastToken {
		secrets = append(secrets, user)
	}
	for name, values := range u.Query() {
		if Secret(strings.ToLower(name)) {
			secrets = append(secrets, values...)
		}
	}
	return secrets
}

// secretFlag reports whether an argument is a flag whose value is a secret.
func secretFlag(arg string) bool {
	name, ok := strings.CutPrefix(arg, "-")
	return ok && Secret(strings.TrimPrefix(name, "-"))
}

// Secret reports whether the values of a flag are secrets, by its name: all secret flags of Heddle
// have one of these words in theirs. Flags that name a file do not count.
func Secret(name string) bool {
	if name == "join-plain-http" || strings.HasSuffix(name, "-file") {
		return false
	}
	words := []string{"join", "password", "token", "secret"}
	return name == "pw" || slices.ContainsFunc(words, func(word string) bool { return strings.Contains(name, word) })
}
