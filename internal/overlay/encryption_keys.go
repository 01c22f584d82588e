package overlay

import (
	"crypto/ecdh"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"heddle/internal/overlay/datapath"
	"heddle/internal/overlay/wireguard"
	"heddle/internal/topology"
)

// hostRecord is a host's record of its keys, with its tunnel addresses.
type hostRecord struct {
	host    string
	addrs   []netip.Addr
	keys    *topology.TunnelKeys // nil: none
	created int64                // the revision that made the record
}

// publishedKeys are the keys of a host's device as the host has published them.
type publishedKeys struct {
	key     wireguard.Key
	next    *wireguard.Key // that the host is about to change to
	created int64          // as in hostRecord
	err     error          // they are no keys
}

// all returns the keys, none if they are not valid.
func (p *publishedKeys) all() []wireguard.Key {
	switch {
	case p.err != nil:
		return nil
	case p.next == nil:
		return []wireguard.Key{p.key}
	}
	return []wireguard.Key{p.key, *p.next}
}

// keysOf returns the keys in a host's record, and whether the host encrypts.
func keysOf(r *hostRecord) (p publishedKeys, encrypts bool) {
	if r.keys == nil || len(r.keys.Wireguard) == 0 {
		return p, false
	}
	p.created = r.created
	if p.key, p.err = parsePublic(r.keys.Wireguard); p.err == nil && len(r.keys.WireguardNext) > 0 {
		var next wireguard.Key
		next, p.err = parsePublic(r.keys.WireguardNext)
		p.next = &next
	}
	return p, true
}

func parsePublic(b []byte) (key wireguard.Key, err error) {
	if _, err := ecdh.X25519().NewPublicKey(b); err != nil {
		return key, err
	}
	if key = wireguard.Key(b); key == (wireguard.Key{}) {
		return key, errors.New("the key is all zeros")
	}
	return key, nil
}

// keyOwners holds which host has each published key. Public keys are no secret, and the device has
// one address for each: a copied key must not cut off its owner.
type keyOwners struct {
	self    string                       // the id of this host
	of      map[wireguard.Key]string     // hosts by key
	adopted map[wireguard.Key]netip.Addr // peers of an earlier agent, until learn is called
}

// adopt notes which address had which key with the earlier agent.
func (o *keyOwners) adopt(device *wireguard.Device) {
	s, err := device.State()
	if err != nil {
		return // the first pass reports what is wrong with the device
	}
	o.adopted = map[wireguard.Key]netip.Addr{}
	for key, p := range s.Peers {
		o.adopted[key] = p.Address
	}
}

// enter gives a host those of its keys that its address had with the earlier agent.
func (o *keyOwners) enter(host string, addr netip.Addr, keys []wireguard.Key) {
	for _, key := range keys {
		if o.adopted[key] == addr {
			o.of[key] = host
		}
	}
}

// assign gives each key to one of the hosts that publish it, and this host's own keys to none.
func (o *keyOwners) assign(own []wireguard.Key, hosts map[string]*encryptedHost) {
	owners := map[wireguard.Key]string{}
	for host, h := range hosts {
		for _, key := range h.published.all() {
			if other, taken := owners[key]; !taken || o.precedes(key, host, other, hosts) {
				owners[key] = host
			}
		}
	}
	for _, key := range own {
		owners[key] = o.self
	}
	o.of = owners
}

// precedes reports which of two hosts that publish a key has it: the one that had it before, else
// the one whose record was made earlier. That revision, unlike that of the last change, stays when
// the owner of a copied key changes its record.
func (o *keyOwners) precedes(key wireguard.Key, host, other string, hosts map[string]*encryptedHost) bool {
	switch o.of[key] {
	case host:
		return true
	case other:
		return false
	}
	mine, theirs := hosts[host].published.created, hosts[other].published.created
	return mine < theirs || mine == theirs && host < other
}

// learn enters what hosts have published, before their frames are accepted accordingly; at first of
// all hosts. The caller wakes the pass afterwards: after a handshake a host sends encrypted frames
// at once.
func (e *encryption) learn(records []hostRecord) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range records {
		e.enterRecord(&records[i])
	}
	e.owners.adopted = nil
	e.assignKeys()
}

// enterRecord needs the lock.
func (e *encryption) enterRecord(r *hostRecord) {
	published, encrypts := keysOf(r)
	if !encrypts {
		e.drop(r.host)
		return
	}
	h := e.hosts[r.host]
	if h == nil {
		// Only with whom frames travel in the clear now may they for a while longer.
		before, wasPeer := e.dp.Peer(r.addrs[0])
		inClear := wasPeer && before.Ways == datapath.Plain && !e.required
		h = &encryptedHost{sending: !inClear, plain: inClear, since: e.clock()}
		e.hosts[r.host] = h
		e.moved()
	}
	e.unname(r.host, h)
	h.addrs, h.published = r.addrs, published
	for _, a := range h.addrs {
		e.named[a] = r.host
	}
	e.owners.enter(r.host, h.addrs[0], published.all())
}

// forget drops hosts that share no zone with this one any more.
func (e *encryption) forget(hosts []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, host := range hosts {
		e.drop(host)
	}
	e.assignKeys()
}

// drop needs the lock.
func (e *encryption) drop(host string) {
	if h := e.hosts[host]; h != nil {
		e.unname(host, h)
		delete(e.hosts, host)
		e.wake()
		e.moved()
	}
}

// unname forgets whose a host's addresses are, unless they are another host's by now.
func (e *encryption) unname(host string, h *encryptedHost) {
	for _, a := range h.addrs {
		if e.named[a] == host {
			delete(e.named, a)
		}
	}
}

// assignKeys decides which host has each published key, and has the hosts' peers use the keys that
// are their own. It needs the lock.
func (e *encryption) assignKeys() {
	e.owners.assign(e.ownKeys(), e.hosts)
	for host, h := range e.hosts {
		e.useKeys(host, h)
	}
}

func (e *encryption) ownKeys() (all []wireguard.Key) {
	current, next := e.public()
	for _, key := range [][]byte{current, next} {
		if key != nil {
			all = append(all, wireguard.Key(key))
		}
	}
	return all
}

// useKeys has this host go by the keys that a host has published, if all of them are its own.
func (e *encryption) useKeys(host string, h *encryptedHost) {
	err := e.refusal(host, h)
	e.logRefusal(host, h, err)
	switch p := &h.published; {
	case err != nil: // never in the clear for that
		h.key, h.next, h.changed = wireguard.Key{}, nil, false
	case p.key != h.key:
		announced := h.next != nil && *h.next == p.key
		h.key, h.next, h.changed = p.key, p.next, false
		h.greetAgain(announced || e.waits(p.key))
	default:
		h.next = p.next
		h.changed = h.changed && p.next != nil
	}
}

// refusal returns why what a host has published cannot be used.
func (e *encryption) refusal(host string, h *encryptedHost) error {
	for _, key := range h.published.all() {
		if other := e.owners.of[key]; other != host {
			return fmt.Errorf("it is the key of host %s", other)
		}
	}
	return h.published.err
}

// framesDropped is the part of log messages about frames to a host that is no peer of the device.
const framesDropped = "frames to it are dropped, but sent in the clear for a minute at most where they were before"

func (e *encryption) logRefusal(host string, h *encryptedHost, err error) {
	was := h.refused
	h.refused = textOf(err)
	switch {
	case h.refused == was:
	case err != nil:
		e.log.Error("a host's WireGuard key cannot be used: "+framesDropped, "host", host, "err", err)
	default:
		e.log.Info("a host's WireGuard key can be used again", "host", host)
	}
}

// textOf returns the text of an error, "" for none.
func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// faults returns what keeps frames from being encrypted, in words.
func (e *encryption) faults() (all []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.logged != "" {
		all = append(all, "cannot encrypt: "+e.logged)
	}
	for host, h := range e.hosts {
		if h.refused != "" {
			all = append(all, fmt.Sprintf("no tunnels with host %s: its WireGuard key cannot be used: %s", host, h.refused))
		}
		if h.rejected != "" {
			all = append(all, fmt.Sprintf("no tunnels with host %s: the WireGuard device does not take it: %s", host, h.rejected))
		}
	}
	slices.Sort(all)
	return all
}
