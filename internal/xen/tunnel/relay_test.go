package tunnel

import (
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
)

// relay stands between the controller and a host's database, where it can be cut.
type relay struct {
	mu      sync.Mutex
	cut     bool
	streams map[net.Conn]bool
}

// relays puts one before each host's database, and has a controller use them.
func (l *lab) relays() (relays []*relay, use func(*Options)) {
	l.t.Helper()
	dir := l.t.(*testing.T).TempDir()
	for _, h := range l.hosts {
		listener, err := net.Listen("unix", filepath.Join(dir, h.Name))
		if err != nil {
			l.t.Fatal(err)
		}
		r := &relay{streams: map[net.Conn]bool{}}
		relays = append(relays, r)
		var done sync.WaitGroup
		done.Go(func() {
			for {
				in, err := listener.Accept()
				if err != nil {
					return
				}
				done.Go(func() { r.pass(in, filepath.Join(h.Dir, "db.sock")) })
			}
		})
		l.t.Cleanup(func() {
			listener.Close()
			r.set(true)
			done.Wait()
		})
	}
	return relays, func(o *Options) { o.OVSDB = "unix:" + filepath.Join(dir, "{host}") }
}

// set cuts the relay, or heals it.
func (r *relay) set(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cut = cut; cut {
		for c := range r.streams {
			c.Close()
		}
	}
}

func (r *relay) keep(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.cut {
		r.streams[c] = true
	}
	return !r.cut
}

func (r *relay) pass(in net.Conn, to string) {
	defer in.Close()
	out, err := net.Dial("unix", to)
	if err != nil {
		return
	}
	defer out.Close()
	if !r.keep(in) || !r.keep(out) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { _, _ = io.Copy(in, out); in.Close() })
	_, _ = io.Copy(out, in)
	out.Close()
	back.Wait()
	r.mu.Lock()
	delete(r.streams, in)
	delete(r.streams, out)
	r.mu.Unlock()
}
