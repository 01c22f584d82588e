package bgp

import (
	"net/netip"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/server"

	"heddle/internal/task"
)

// events collects what a gobgp server reports, S of each session. The goroutines of gobgp note, and
// one of ours takes.
type events[S any] struct {
	news task.Notice // is given after each event; see take
	// session returns what is noted of a session: of its event, and what is noted already.
	session func(e *apiutil.WatchEventMessage_PeerEvent, before S) S

	mu    sync.Mutex
	life  int // of the server: late events of an ended one are ignored
	noted notes[S]
}

// notes are the events since the last call of take.
type notes[S any] struct {
	changed  map[netip.Prefix]bool // destinations to look up
	peers    map[netip.Addr]S      // whose session has changed
	complete map[netip.Addr]bool   // peers that have announced all their routes
}

func newNotes[S any]() notes[S] {
	return notes[S]{map[netip.Prefix]bool{}, map[netip.Addr]S{}, map[netip.Addr]bool{}}
}

func newEvents[S any](session func(e *apiutil.WatchEventMessage_PeerEvent, before S) S) *events[S] {
	return &events[S]{news: task.NewNotice(), session: session, noted: newNotes[S]()}
}

// take returns the events since the last call.
func (v *events[S]) take() notes[S] {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := v.noted
	v.noted = newNotes[S]()
	return n
}

// end forgets a server that has ended, with what it has reported.
func (v *events[S]) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.life++
	v.noted = newNotes[S]()
}

// callbacks returns those for the server that runs, or is about to.
func (v *events[S]) callbacks() server.WatchEventMessageCallbacks {
	v.mu.Lock()
	defer v.mu.Unlock()
	life := v.life
	note := func(f func(n *notes[S])) {
		v.mu.Lock()
		defer v.mu.Unlock()
		if life != v.life {
			return
		}
		f(&v.noted)
		v.news.Give()
	}
	return server.WatchEventMessageCallbacks{
		OnBestPath: func(paths []*apiutil.Path, _ time.Time) {
			note(func(n *notes[S]) {
				for _, p := range paths {
					if dst := prefixOf(p); dst.IsValid() {
						n.changed[dst] = true
					}
				}
			})
		},
		// A session has one family, so one End-of-RIB is all.
		OnPathEor: func(p *apiutil.Path, _ time.Time) { note(func(n *notes[S]) { n.complete[p.PeerAddress] = true }) },
		OnPeerUpdate: func(e *apiutil.WatchEventMessage_PeerEvent, _ time.Time) {
			if e.Type != apiutil.PEER_EVENT_STATE && e.Type != apiutil.PEER_EVENT_INIT {
				return
			}
			peer := e.Peer.State.NeighborAddress
			note(func(n *notes[S]) { n.peers[peer] = v.session(e, n.peers[peer]) })
		},
	}
}
