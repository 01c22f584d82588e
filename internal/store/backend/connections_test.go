package backend

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"heddle/internal/store"
)

// fewFiles makes a process of the test binary a server that may open few files.
const (
	fewFilesVariable = "HEDDLE_STORE_TEST_FEW_FILES"
	fewFiles         = 512
)

// entry connects a test to the server, as a host.
type entry struct {
	Endpoint    string
	Authority   []byte
	Certificate [][]byte // DER
	Key         []byte   // PKCS 8
}

// TestFewFilesServer is the server of TestStrangersLeaveRoom, in a process of its own.
func TestFewFilesServer(t *testing.T) {
	dir := os.Getenv(fewFilesVariable)
	if dir == "" {
		return // run as a test, it has nothing to show
	}
	limit := syscall.Rlimit{Cur: fewFiles, Max: fewFiles}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	server := openTest(t, Embedded{DataDir: dir, Agents: "127.0.0.1:0"})
	mustCommit(t, server, put("/heddle/schema", "1"))
	config := joined(t, server, "h1")
	key, err := x509.MarshalPKCS8PrivateKey(config.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(entry{Endpoint: server.Endpoint(), Authority: server.Authority().PEM(), Certificate: config.Certificates[0].Certificate, Key: key})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("entry %s\n", out)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); { // each line asks whether files can be opened
		var opened []*os.File
		var err error
		for range fewFiles / 8 {
			var f *os.File
			if f, err = os.Open(dir); err != nil {
				break
			}
			opened = append(opened, f)
		}
		for _, f := range opened {
			f.Close()
		}
		fmt.Printf("files %v\n", err)
	}
}

// Strangers who open connections without end, and do nothing with them, neither take the files that
// etcd needs, without which it ends the process, nor keep hosts out.
func TestStrangersLeaveRoom(t *testing.T) {
	t.Parallel()
	server := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFewFilesServer$", "-test.timeout=5m")
	server.Env = append(os.Environ(), fewFilesVariable+"="+t.TempDir())
	server.Stderr = t.Output()
	ask, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	answers, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ask.Close(); server.Wait() })
	lines := bufio.NewReader(answers)
	read := func(format string, into any) {
		t.Helper()
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatal("the server has ended: ", err)
			}
			if n, _ := fmt.Sscanf(line, format, into); n == 1 {
				return
			}
		}
	}
	var text string
	read("entry %s", &text)
	var e entry
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		t.Fatal(err)
	}

	// More strangers than there are files, and each that is closed comes again, until the host is
	// done.
	ctx, cancel := context.WithCancel(t.Context())
	var strangers, inside sync.WaitGroup
	defer strangers.Wait()
	defer cancel()
	for i := range 2 * fewFiles {
		first := sync.OnceFunc(inside.Done)
		inside.Add(1)
		strangers.Go(func() {
			defer first()
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i%8))}}
			for ctx.Err() == nil {
				c, err := dialer.DialContext(ctx, "tcp", e.Endpoint)
				if err != nil {
					continue
				}
				stop := context.AfterFunc(ctx, func() { c.Close() })
				if i%8 == 0 {
					c.Write([]byte{22, 3, 1, 1, 0}) // a handshake that does not go on
				}
				first()
				io.Copy(io.Discard, c)
				stop()
				c.Close()
			}
		})
	}
	inside.Wait()
	key, err := x509.ParsePKCS8PrivateKey(e.Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(e.Authority)
	config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{{Certificate: e.Certificate, PrivateKey: key}}}
	bounded, end := context.WithTimeout(ctx, time.Minute)
	defer end()
	host, err := Open(bounded, Options{Cluster: &Cluster{Endpoints: []string{"https://" + e.Endpoint}, TLS: config, SkipLimits: true}, Log: testLog(t)})
	if err != nil {
		t.Fatal("strangers keep a host out: ", err)
	}
	defer host.Close()
	if _, err := host.Commit(bounded, nil, []store.Op{put("/heddle/state/h1/alive", "{}")}); err != nil {
		t.Error("a host cannot write: ", err)
	}
	fmt.Fprintln(ask)
	read("files %s", &text)
	if text != "<nil>" {
		t.Errorf("the server cannot open files: %s", text)
	}
}

// quiet opens a connection on which nothing is sent, from an address of loopback.
func quiet(t *testing.T, endpoint, from string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(t.Context(), "tcp", endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// awaitClosed waits until the server has closed a connection.
func awaitClosed(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("connection from %s is still open: %d, %v", c.LocalAddr(), n, err)
	}
}

func (f *front) limit(change func(*connectionLimits)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.limits)
}

// Of those who have made no call the oldest of one source makes room for its newest, and that of
// the busiest source for another's.
func TestRoomAmongStrangers(t *testing.T) {
	t.Parallel()
	server := openTest(t, Embedded{Agents: "127.0.0.1:0"})
	f := server.member.front
	f.limit(func(l *connectionLimits) { l.strangers, l.perSource = 4, 3 })
	var busy []net.Conn
	for range 4 {
		busy = append(busy, quiet(t, server.Endpoint(), "127.0.0.9"))
	}
	awaitClosed(t, busy[0]) // the fourth exceeds its share
	other := quiet(t, server.Endpoint(), "127.0.0.10")
	another := quiet(t, server.Endpoint(), "127.0.0.11")
	awaitClosed(t, busy[1]) // the fifth of all
	f.mu.Lock()
	left := map[string]bool{}
	for c := range f.conns {
		if c.source.IsValid() {
			left[c.RemoteAddr().String()] = true
		}
	}
	f.mu.Unlock()
	for _, c := range []net.Conn{busy[2], busy[3], other, another} {
		if !left[c.LocalAddr().String()] {
			t.Errorf("%s was closed; left are %v", c.LocalAddr(), left)
		}
	}
}

// A stranger's connection ends when no call comes in time, with a handshake or without; a host's
// stays.
func TestStrangersDeadline(t *testing.T) {
	t.Parallel()
	server := openTest(t, Embedded{Agents: "127.0.0.1:0"})
	mustCommit(t, server, put("/heddle/schema", "1"))
	host, err := connect(t, server, joined(t, server, "h1"))
	if err != nil {
		t.Fatal(err)
	}
	f := server.member.front
	f.limit(func(l *connectionLimits) { l.deadline = time.Millisecond })
	awaitClosed(t, quiet(t, server.Endpoint(), "127.0.0.1"))
	silent := quiet(t, server.Endpoint(), "127.0.0.1")
	if _, err := silent.Write([]byte{22, 3, 1, 1, 0}); err == nil { // of a handshake that does not go on
		awaitClosed(t, silent)
	}
	if _, err := host.Get(t.Context(), "/heddle/schema"); err != nil {
		t.Error("a host: ", err)
	}
}

// A host with too many connections loses its oldest ones, and no other host any.
func TestHostsConnections(t *testing.T) {
	t.Parallel()
	server := openTest(t, Embedded{Agents: "127.0.0.1:0"})
	mustCommit(t, server, put("/heddle/schema", "1"))
	f := server.member.front
	f.limit(func(l *connectionLimits) { l.perHost = 2 })
	greedy, modest := joined(t, server, "greedy"), joined(t, server, "modest")
	one, err := connect(t, server, modest)
	if err != nil {
		t.Fatal(err)
	}
	changes, failed := one.Watch(t.Context(), 1, "/heddle/topology/")
	for range 5 {
		if _, err := connect(t, server, greedy); err != nil {
			t.Fatal(err)
		}
	}
	f.mu.Lock()
	n, others := len(f.hosts["greedy"]), len(f.hosts["modest"])
	f.mu.Unlock()
	if n != 2 || others != 1 {
		t.Errorf("%d connections of the greedy host and %d of the other, want 2 and 1", n, others)
	}
	rev := mustCommit(t, server, put("/heddle/topology/1", "x"))
	collect(t, changes, failed, rev)
}

func TestConnectionLimits(t *testing.T) {
	t.Parallel()
	for files, want := range map[uint64]connectionLimits{
		64:      {all: 10, strangers: 2, perSource: 2},
		1024:    {all: 170, strangers: 42, perSource: 8},
		65536:   {all: 8192, strangers: 2048, perSource: 256},
		1 << 40: {all: 8192, strangers: 2048, perSource: 256},
	} {
		want.perHost, want.deadline = hostConnections, strangerDeadline
		if got := limitConnections(files); got != want {
			t.Errorf("with %d files: %+v, want %+v", files, got, want)
		}
	}
}
