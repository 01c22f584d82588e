package tunnel

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"heddle/internal/ovsdb"
	"heddle/internal/xen/client"
	"heddle/internal/xen/model"
	"heddle/internal/xen/ovs"
	"heddle/internal/xen/star"
)

// play drives a core with events, as a pool with a network "n" and as its hosts' switches, all in
// memory.
type play struct {
	t        *testing.T
	core     *core
	now      time.Time
	switches map[string]*ovs.Snapshot // of the hosts that are followed
	jobs     map[string]job           // that hosts were given, and have not done
	statuses map[string]map[string]string
	log      []string
	freed    []string
	store    error // what the store answers
}

func newPlay(t *testing.T, hosts ...string) *play {
	in := &intents{all: map[string]intent{}, used: map[uint32]string{}, writes: map[string]intent{}}
	p := &play{t: t, core: newCore(in, time.Minute, func(name, _ string) string { return name }), now: time.Unix(1e9, 0),
		switches: map[string]*ovs.Snapshot{}, jobs: map[string]job{}, statuses: map[string]map[string]string{}}
	events := []client.Event{{Class: "network", Operation: client.Add, Ref: "n", Record: model.Record{"uuid": "n"}}}
	for i, h := range hosts {
		events = append(events,
			client.Event{Class: "host_metrics", Operation: client.Add, Ref: "m" + h, Record: model.Record{"live": true}},
			client.Event{Class: "host", Operation: client.Add, Ref: h, Record: model.Record{"uuid": h, "name_label": h, "metrics": "m" + h,
				"enabled": true, "software_version": map[string]string{"network_backend": "openvswitch"}}},
			client.Event{Class: "PIF", Operation: client.Add, Ref: "t" + h, Record: model.Record{"host": h, "IP": fmt.Sprint("192.0.2.", i+1), "ip_configuration_mode": "Static"}},
			client.Event{Class: "PIF", Operation: client.Add, Ref: "a" + h, Record: model.Record{"host": h, "network": "n", "currently_attached": true}},
			client.Event{Class: "tunnel", Operation: client.Add, Ref: h, Record: model.Record{"access_PIF": "a" + h, "transport_PIF": "t" + h}})
	}
	p.core.poolChanged(events, p.now)
	p.perform()
	return p
}

// perform carries out the core's actions, but for jobs.
func (p *play) perform() {
	for _, action := range p.core.takeActions() {
		switch a := action.(type) {
		case followSwitch:
			p.switches[a.host] = &ovs.Snapshot{Bridges: map[ovsdb.UUID]*ovs.Bridge{"b": {UUID: "b", Name: "xapi0", ExternalIDs: map[string]string{"xs-network-uuids": "n"}}}}
		case leaveSwitch:
			delete(p.switches, a.host)
			delete(p.jobs, a.host)
		case runJob:
			if _, busy := p.jobs[a.host]; busy {
				p.t.Fatalf("%s has a job already", a.host)
			}
			p.jobs[a.host] = a.job
		case setStatus:
			p.statuses[a.tunnel] = a.desired
		case freeKey:
			p.freed = append(p.freed, a.network)
			p.core.keyFreed(a.network, p.store, p.now)
		case logEntry:
			p.log = append(p.log, a.text)
		}
	}
}

// event has the core apply an event of a host's switch.
func (p *play) event(host string, event any) {
	p.core.switchEvent(host, event, p.switches[host], p.now)
	p.perform()
}

// pass has the core decide and act, after some time.
func (p *play) pass(after time.Duration) {
	if p.now = p.now.Add(after); !p.core.ready(p.now) {
		return
	}
	networks := p.core.decide(p.now)
	if p.store == nil {
		maps.Copy(p.core.intents.all, p.core.intents.writes)
		clear(p.core.intents.writes)
	}
	p.core.intents.takeBack()
	p.core.act(networks, p.now)
	p.perform()
}

// rest carries out all jobs, with passes in between, until there are none.
func (p *play) rest() {
	for p.pass(0); len(p.jobs) > 0 || p.core.next(p.now) == p.now; p.pass(0) {
		for host, j := range p.jobs {
			delete(p.jobs, host)
			p.carryOut(host, j)
			p.event(host, jobDone{})
		}
	}
}

// carryOut changes a host's switch as a job asks. BFD sessions come up at once.
func (p *play) carryOut(host string, j job) {
	old := p.switches[host]
	b := *old.Bridges["b"]
	snap := &ovs.Snapshot{Bridges: map[ovsdb.UUID]*ovs.Bridge{"b": &b}, Ports: map[ovsdb.UUID]*ovs.Port{}, Interfaces: map[ovsdb.UUID]*ovs.Interface{}}
	maps.Copy(snap.Ports, old.Ports)
	maps.Copy(snap.Interfaces, old.Interfaces)
	for _, st := range j.steps {
		for _, f := range st.Delete {
			delete(snap.Ports, ovsdb.UUID(f.Name))
			delete(snap.Interfaces, ovsdb.UUID(f.Name))
		}
		for _, l := range st.Put {
			s, id := spec(st.Network, l, time.Second), ovsdb.UUID(l.Name)
			s.ExternalIDs[mark.Key] = mark.Value
			snap.Ports[id] = &ovs.Port{UUID: id, Name: l.Name, Interfaces: []ovsdb.UUID{id}, ExternalIDs: s.ExternalIDs}
			snap.Interfaces[id] = &ovs.Interface{UUID: id, Name: l.Name, Type: s.Type, Options: s.Options, OfPort: 1, BFD: s.BFD, BFDStatus: map[string]string{"state": "up"}}
		}
	}
	b.Ports = nil
	for id := range snap.Ports {
		b.Ports = append(b.Ports, id)
	}
	p.switches[host] = snap
}

// want compares the statuses of tunnels with center, spoke, inactive, or an error's beginning.
func (p *play) want(what string, want map[string]string) {
	p.t.Helper()
	for tunnel, word := range want {
		s := p.statuses[tunnel]
		role := s["heddle:role"]
		if s["active"] == "false" {
			role = "inactive"
		}
		if role != word && !(s["error"] != "" && strings.HasPrefix(s["error"], word)) {
			p.t.Errorf("%s: %s has the status %v, want %s", what, tunnel, s, word)
		}
	}
}

// TestCore has a core form a star, survive the death of its center, and wait for the store.
func TestCore(t *testing.T) {
	t.Parallel()
	p := newPlay(t, "h1", "h2", "h3")
	if len(p.switches) != 3 {
		t.Fatalf("%d switches are followed", len(p.switches))
	}
	p.event("h1", switchObeys{1})
	if p.core.ready(p.now) {
		t.Error("decides before it knows all switches")
	}
	p.event("h2", switchObeys{2})
	p.event("h3", switchLost{errors.New("refused")})
	p.store = errors.New("no store")
	p.pass(0)
	if len(p.jobs) > 0 {
		t.Errorf("jobs before the store has the decision: %v", p.jobs)
	}
	p.store = nil
	p.pass(retryAfter)
	p.rest()
	p.want("two hosts", map[string]string{"h1": "center", "h2": "spoke", "h3": star.OVSDBUnreachable + ": refused"})
	p.event("h3", switchObeys{3})
	p.rest()
	p.want("three hosts", map[string]string{"h1": "center", "h2": "spoke", "h3": "spoke"})
	if in := p.core.intents.all["n"]; in.Key != 1 || in.Epoch != 1 || in.Moving() {
		t.Errorf("the intent is %+v", in)
	}

	for _, host := range []string{"h2", "h3"} { // the sessions with h1 go down
		old := p.switches[host]
		down := &ovs.Snapshot{Bridges: old.Bridges, Ports: old.Ports, Interfaces: map[ovsdb.UUID]*ovs.Interface{}}
		for id, i := range old.Interfaces {
			c := *i
			c.BFDStatus = map[string]string{"state": "down"}
			down.Interfaces[id] = &c
		}
		p.switches[host] = down
		p.event(host, switchChanged{})
	}
	p.event("h1", switchLost{errors.New("dead")})
	p.rest()
	p.want("center dead", map[string]string{"h1": star.OVSDBUnreachable + ": dead", "h2": "center", "h3": "spoke"})
	if f := p.core.figures(); f.moves != 1 || f.known != 2 || f.centers["h2"] != 1 || f.centers["h1"] != 0 {
		t.Errorf("figures are %+v", f)
	}
}

// TestCoreRefusal has a switch refuse a step: its status says so, and it is tried again after a
// while only.
func TestCoreRefusal(t *testing.T) {
	t.Parallel()
	p := newPlay(t, "h1", "h2")
	p.event("h1", switchObeys{1})
	p.event("h2", switchObeys{2})
	for p.pass(0); len(p.jobs["h2"].steps) == 0; p.pass(0) {
		p.carryOut("h1", p.jobs["h1"])
		delete(p.jobs, "h1")
		p.event("h1", jobDone{})
	}
	delete(p.jobs, "h2")
	p.event("h2", jobDone{failed: map[string]string{"n": "no room"}})
	p.rest()
	p.want("refused", map[string]string{"h2": star.OVSError + ": no room"})
	if p.pass(failedFor - time.Millisecond); len(p.jobs) > 0 {
		t.Errorf("jobs soon after a refusal: %v", p.jobs)
	}
	if p.pass(time.Millisecond); len(p.jobs["h2"].steps) != 1 {
		t.Errorf("jobs a while after a refusal: %v", p.jobs)
	}
	p.rest()
	p.want("in the end", map[string]string{"h1": "center", "h2": "spoke"})
}

// TestCoreQuarantine has a network lose its tunnels: its legs go, and its key is free after the
// quarantine, once the store has it so.
func TestCoreQuarantine(t *testing.T) {
	t.Parallel()
	p := newPlay(t, "h1", "h2")
	p.event("h1", switchObeys{1})
	p.event("h2", switchObeys{2})
	p.rest()
	p.core.poolChanged([]client.Event{{Class: "tunnel", Operation: client.Del, Ref: "h1"}, {Class: "tunnel", Operation: client.Del, Ref: "h2"}}, p.now)
	p.rest()
	for host, snap := range p.switches {
		if len(snap.Ports) > 0 {
			t.Errorf("%s has %d ports left", host, len(snap.Ports))
		}
	}
	if p.pass(time.Minute - time.Millisecond); len(p.freed) > 0 {
		t.Error("the key is free before the end of the quarantine")
	}
	p.store = errors.New("no store")
	p.pass(time.Millisecond)
	p.store = nil
	p.pass(retryAfter)
	if len(p.freed) != 2 || len(p.core.nets) > 0 || p.core.centers["h1"] != 0 {
		t.Errorf("freed %v, networks %v, centers %v", p.freed, p.core.nets, p.core.centers)
	}
}
