package metadata

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
)

// echo answers with the client.
type echo struct{}

func (echo) ServeMetadata(w http.ResponseWriter, _ *http.Request, c Client) {
	fmt.Fprintf(w, "%s %s", c.Port, c.Addr)
}

// testProxy is a proxy on the loopback, where all clients belong to one port, or to none.
type testProxy struct {
	*Proxy
	address string
	port    atomic.Pointer[string] // nil: no port has the address
}

func startProxy(t *testing.T, port string) *testProxy {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &testProxy{Proxy: NewProxy(echo{}, slog.New(slog.DiscardHandler)), address: l.Addr().String()}
	p.is(port)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Serve(ctx, []net.Listener{l}, p.lookUp) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *testProxy) is(port string) { p.port.Store(&port) }

func (p *testProxy) lookUp(remote netip.Addr) (port string, source netip.Addr, ok bool) {
	now := p.port.Load()
	return *now, netip.MustParseAddr("10.0.0.5"), *now != "" && remote.IsLoopback()
}

// conn is a connection to the proxy.
func (p *testProxy) conn(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp4", p.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, bufio.NewReader(c)
}

// askOver sends a request with headers and returns the status and the body; an error if the proxy
// has closed the connection.
func askOver(c net.Conn, r *bufio.Reader, headers string) (status int, body string, err error) {
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: 169.254.169.254\r\n%s\r\n", headers); err != nil {
		return 0, "", err
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text := make([]byte, 200)
	n, _ := resp.Body.Read(text) // all of it is in one piece
	return resp.StatusCode, string(text[:n]), nil
}

func TestProxyNamesClients(t *testing.T) {
	t.Parallel()
	p := startProxy(t, "p1")
	c, r := p.conn(t)
	if status, body, err := askOver(c, r, "X-Forwarded-For: 10.9.9.9\r\n"); status != http.StatusOK || body != "p1 10.0.0.5" {
		t.Errorf("answered %d %q, %v", status, body, err)
	}
	p.is("p2") // the address stands for another port: what was asked before must not get its answers
	if status, body, err := askOver(c, r, ""); status != http.StatusForbidden {
		t.Errorf("over the former port's connection: answered %d %q, %v", status, body, err)
	}
	c, r = p.conn(t)
	if status, body, err := askOver(c, r, ""); body != "p2 10.0.0.5" {
		t.Errorf("over a new connection: answered %d %q, %v", status, body, err)
	}
	p.is("")
	c, r = p.conn(t)
	if status, body, err := askOver(c, r, ""); err == nil {
		t.Errorf("to nobody: answered %d %q", status, body)
	}
}

func TestProxyLimits(t *testing.T) {
	t.Parallel()
	p := startProxy(t, "p1")
	c, r := p.conn(t)
	if status, _, err := askOver(c, r, "X-Long: "+strings.Repeat("x", maxHeader)+"\r\n"); status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a long header: answered %d, %v", status, err)
	}
	p.wait(t, 0)
	open := 0
	for range maxPortConnections + 8 {
		if c, r := p.conn(t); func() bool { _, _, err := askOver(c, r, ""); return err == nil }() {
			open++
		}
	}
	if open != maxPortConnections {
		t.Errorf("a port has %d connections, want %d", open, maxPortConnections)
	}
	p.is("p2")
	c, r = p.conn(t)
	if _, body, err := askOver(c, r, ""); body != "p2 10.0.0.5" {
		t.Errorf("another port beside them: %q, %v", body, err)
	}
}

// wait waits until so many connections are open.
func (p *testProxy) wait(t *testing.T, open int) {
	t.Helper()
	for t.Context().Err() == nil {
		p.mu.Lock()
		n := p.open
		p.mu.Unlock()
		if n == open {
			return
		}
	}
}

// BenchmarkIdleProxy reports the memory that a proxy holds after a request over each of 64
// connections, which have been closed since.
func BenchmarkIdleProxy(b *testing.B) {
	for b.Loop() {
		before := memory()
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		p := NewProxy(echo{}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			done <- p.Serve(ctx, []net.Listener{l}, func(remote netip.Addr) (string, netip.Addr, bool) { return "port", remote, true })
		}()
		for range maxPortConnections {
			c, err := net.Dial("tcp4", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			if status, _, err := askOver(c, bufio.NewReader(c), ""); err != nil || status != http.StatusOK {
				b.Fatalf("status %d, %v", status, err)
			}
			c.Close()
		}
		b.ReportMetric(float64(memory()-before), "B-held")
		cancel()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}

// memory returns the bytes of the heap and of stacks that are in use.
func memory() int64 {
	runtime.GC()
	runtime.GC() // what finalizers freed
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
