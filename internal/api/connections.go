package api

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"syscall"
)

// connections bounds those of one server, so that clients cannot take the files that the rest of
// the process needs. A new one beyond the bound takes the place of the oldest that has sent no
// request, or else of the one idle for longest; one with a request in it is not closed.
type connections struct {
	most int

	mu    sync.Mutex
	fresh *list.List // without a request yet, oldest first
	idle  *list.List // between requests, idle for longest first
	all   map[net.Conn]*connection
}

// connection is in one of the lists, or in none while it has a request.
type connection struct {
	in *list.List
	at *list.Element
}

// filesPerServer is the part of the process's files that one server's connections may take: there
// are a few servers, and the embedded store takes half.
const filesPerServer = 16

func newConnections() *connections {
	files := uint64(1024) // the least that systems come with
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		files = min(limit.Cur, 1<<16) // more would be memory that clients take
	}
	return &connections{most: int(files / filesPerServer), fresh: list.New(), idle: list.New(), all: map[net.Conn]*connection{}}
}

// changed is the server's http.Server.ConnState.
func (x *connections) changed(c net.Conn, state http.ConnState) {
	x.mu.Lock()
	defer x.mu.Unlock()
	k := x.all[c]
	if k == nil {
		if state != http.StateNew {
			return
		}
		k = &connection{}
		x.all[c] = k
	}
	if k.in != nil {
		k.in.Remove(k.at)
		k.in = nil
	}
	switch state {
	case http.StateNew:
		if len(x.all) > x.most {
			x.evict()
		}
		k.in = x.fresh
	case http.StateIdle:
		k.in = x.idle
	case http.StateClosed, http.StateHijacked:
		delete(x.all, c)
	}
	if k.in != nil {
		k.at = k.in.PushBack(c)
	}
}

// evict closes the connection that can be spared first. It counts until the server has noticed.
// x.mu is held.
func (x *connections) evict() {
	for _, l := range []*list.List{x.fresh, x.idle} {
		if e := l.Front(); e != nil {
			c := l.Remove(e).(net.Conn)
			x.all[c].in = nil
			if t, ok := c.(*tls.Conn); ok {
				c = t.NetConn() // without a farewell, which may take time
			}
			_ = c.Close() // the server sees the error
			return
		}
	}
}
