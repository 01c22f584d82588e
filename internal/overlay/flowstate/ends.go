package flowstate

import (
	"slices"
	"time"

	"heddle/internal/topology/flow"
)

const (
	// EndedTTL is the life of a translation after its last use once its TCP connection has ended:
	// by a FIN in both directions, or by a RST that nothing has followed (services §3.5).
	EndedTTL = 10 * time.Second
	// resetGrace is the time for packets that were on their way when a RST passed. Later ones show
	// that the connection lives: the RST was forged, or refused.
	resetGrace = 2 * time.Second
)

// Ends are the signs that a TCP connection with a translation ends.
type Ends uint8

const (
	FIN      Ends = 1 << iota // of the first direction
	ReplyFIN                  // of the replies
	RST                       // of either direction, followed by nothing
	// Anew is the sign of a new connection by the same translation: those of the one before are
	// void. Between hosts it has no other sign beside it.
	Anew
)

// over reports whether a connection with these signs has ended.
func (s Ends) over() bool { return s&(FIN|ReplyFIN) == FIN|ReplyFIN || s&RST != 0 }

// End is a report of one host to another about the end of a connection.
type End struct {
	flow.NATEntry
	Ends Ends
	Idle time.Duration // since the last packet; whole seconds, 255 at most, in a message
}

// pendingEnd is an End to be sent, with the time of the last packet.
type pendingEnd struct {
	End
	last time.Duration
}

// Observe notes a use of the translation with this key at a time, as Touch does, with the signs
// that packets in the direction of the key have shown: FIN, and RST if the last one had it. With
// Anew, a FIN of this direction that was observed before and is not among the signs is void.
func (t *Translations) Observe(key flow.NATKey, signs Ends, at time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.entries.get(key)
	if c == nil {
		return false
	}
	if c.special {
		signs = 0 // the member for a client outlives the client's connections
	}
	fin := FIN
	if !key.IsForward() {
		fin = ReplyFIN
	}
	if signs&Anew != 0 {
		c.ends &^= fin
	}
	if signs&FIN != 0 {
		c.ends |= fin
	}
	t.use(c, at)
	t.end(c, signs&RST, at)
	t.report(c)
	t.resend(c, "")
	return true
}

// Renew notes that a TCP connection begins by the translation with this key. If an earlier one has
// shown signs of its end, those are void, and Renew returns the translation with the hosts that
// have to know.
func (t *Translations) Renew(key flow.NATKey) (e flow.NATEntry, hosts []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.entries.get(key)
	if c == nil || c.ends == 0 {
		return e, nil
	}
	t.void(c)
	if c.in.imported {
		return e, nil // its own host sees the connection begin
	}
	return c.record, c.hosts.ids()
}

// ImportEnds notes what another host reports about the ends of connections. It returns the new
// translations of those that begin anew, as Import does. A host is believed about connections that
// it was sent or has sent.
func (t *Translations) ImportEnds(ends []End, from string, now time.Duration) (fresh []flow.NATEntry) {
	for i := range ends {
		e := &ends[i]
		if e.Ends == Anew {
			fresh = append(fresh, t.Import([]flow.NATEntry{e.NATEntry}, from, now)...)
		}
		t.importEnd(e, from, now)
	}
	return fresh
}

func (t *Translations) importEnd(e *End, from string, now time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.entries.get(e.NATKey)
	if c == nil || c.record != e.NATEntry || !c.concerns(from) {
		return
	}
	if e.Ends == Anew {
		t.void(c)
		t.use(c, now)
		return
	}
	at := max(0, now-e.Idle)
	c.ends &^= ReplyFIN // the other host sees that direction, or has been told by the one that does
	if c.in.imported {
		c.ends &^= FIN
	}
	t.use(c, at)
	t.end(c, e.Ends, at)
	if c.in.imported {
		c.reported = c.ends // its host knows
	} else {
		t.report(c)
	}
}

// concerns reports whether a host was sent the record, or has sent it.
func (c *entry[R]) concerns(host string) bool {
	if c.in.imported {
		return c.in.holder == host
	}
	return slices.Contains(c.hosts.ids(), host)
}

// end adds signs that were seen at a time. A RST that other packets have followed is none.
func (t *table[K, R]) end(c *entry[R], signs Ends, at time.Duration) {
	if c.last > at+resetGrace {
		signs &^= RST
	}
	if signs&RST != 0 {
		c.resetBy = max(c.resetBy, uint32((at+time.Second-1)/time.Second))
	}
	c.ends |= signs
	t.settle(c)
}

// void forgets all signs: there is a new connection.
func (t *table[K, R]) void(c *entry[R]) {
	c.ends, c.reported = 0, 0
	t.settle(c)
}

// use notes a use of a record at a time.
func (t *table[K, R]) use(c *entry[R], at time.Duration) {
	if at <= c.last {
		return
	}
	c.last = at
	if c.ends&RST != 0 && at > time.Duration(c.resetBy)*time.Second+resetGrace {
		c.ends &^= RST
		t.settle(c)
	}
	c.in.toFront(c)
}

// settle puts a record among those that have ended, or back.
func (t *table[K, R]) settle(c *entry[R]) {
	if c.ended == c.ends.over() {
		return
	}
	c.in.remove(c)
	c.ended = !c.ended
	c.in.push(c)
}

// report makes due what other hosts do not know. A record's own host collects the signs: it is sent
// each one, and reports when the connection has ended, or has not after all.
func (t *Translations) report(c *entry[flow.NATEntry]) {
	known, hosts := c.ends, []string{c.in.holder}
	if !c.in.imported {
		hosts = c.hosts.ids()
		if !c.ended {
			known = 0
		}
	}
	if known == c.reported {
		return
	}
	c.reported = known
	for _, h := range hosts {
		if h != "" {
			t.ends[h] = append(t.ends[h], pendingEnd{End{c.record, known, 0}, c.last})
		}
	}
}

// TakeEnds returns what has to be sent about ends of connections, by host.
func (t *Translations) TakeEnds(now time.Duration) map[string][]End {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.ends) == 0 {
		return nil
	}
	due := map[string][]End{}
	for host, all := range t.ends {
		for _, e := range all {
			e.Idle = max(0, now-e.last)
			due[host] = append(due[host], e.End)
		}
	}
	clear(t.ends)
	return due
}
