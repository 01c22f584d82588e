package overlay

import (
	"fmt"
	"testing"
	"time"

	"heddle/internal/overlay/datapath"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
)

// TestInterfaceBeforeAndAfter: it does not matter whether agent, binding or interface comes first.
func TestInterfaceBeforeAndAfter(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	n := l.network("blue")
	g := l.group(everything()...)
	h := l.hosts[0]
	first, second, third, fourth := n.port(h, g), n.port(h, g), n.port(h, g), n.port(h, g)
	first.plug() // interface, agent, binding
	second.plug()
	second.bind() // interface, binding, agent
	third.bind()  // binding, agent, interface
	l.start()
	first.bind()
	third.plug()
	fourth.plug() // agent, interface, binding
	fourth.bind()
	all := []*machine{first, second, third, fourth}
	for _, m := range all {
		m.served()
	}
	for _, m := range all[1:] {
		if err := first.ping(m.v4, 1); err != nil {
			t.Error(err)
		}
	}

	// An interface that goes is reported, and so is another of the same name.
	key := schema.PortStates.Key(h.id + "/" + third.port.ID)
	h.ns.MustIP(t, "link del "+third.port.InterfaceName)
	l.wait("the port to be down", func() bool { _, err := l.st.Get(t.Context(), key); return err != nil })
	third.plug()
	third.served()
	if err := first.ping(third.v4, 1); err != nil {
		t.Error(err)
	}

	// A binding that goes takes the port along, not the interface.
	fourth.port.BoundHostID = ""
	fourth.bind()
	l.wait("the port to be detached", func() bool { return len(h.agent.dp.Ports()) == 3 })
	if first.answers(fourth.v4) {
		t.Error("a machine whose port is not bound answers")
	}
	fourth.port.BoundHostID = h.id
	fourth.bind()
	fourth.served()
	if err := first.ping(fourth.v4, 1); err != nil {
		t.Error(err)
	}
	l.put(second.owner(), nil)
	l.wait("the deleted port to be detached", func() bool { return len(h.agent.dp.Ports()) == 3 })
	for _, m := range all {
		h.logged(`"attached port" port=` + m.port.ID)
	}
	h.logged(`"detached port" port=` + second.port.ID)
}

// TestFlowsEndWithTheInterface: when the interface of a port goes, the flows to it and from it stop
// at once. None is left for the agent to find in its rounds.
func TestFlowsEndWithTheInterface(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	n := l.network("blue")
	g := l.group(everything()...)
	l.start()
	stays, goes := n.machine(h, g), n.machine(h, g)
	goes.listen("tcp", 80)
	c, err := stays.dial(goes.v4, 80, waitLimit)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := stays.ping(goes.v4, 1); err != nil {
		t.Fatal(err)
	}
	if flows := h.verifyFlows(t); len(flows) < 2 {
		t.Fatalf("%d flows between the machines", len(flows))
	}
	h.ns.MustIP(t, "link del "+goes.port.InterfaceName)
	l.wait("the port to be detached", func() bool { return h.agent.engine.net.portWithID(goes.port.ID) == nil })
	h.verifyFlows(t)
}

// TestWrongFlowIsLogged: a flow that is other than it should be is removed, and logged in words.
func TestWrongFlowIsLogged(t *testing.T) {
	t.Parallel()
	l := newLab(t, 1)
	h := l.hosts[0]
	n := l.network("blue")
	g := l.group(everything()...)
	l.start()
	a, b := n.machine(h, g), n.machine(h, g)
	if err := a.ping(b.v4, 1); err != nil {
		t.Fatal(err)
	}
	again := &upkeep{e: h.agent.engine, verifier: h.agent.engine.newTrial()}
	if err := h.agent.dp.Dump(func(f datapath.FlowState) bool {
		f.Out = datapath.Output{} // as if an invalidation had been missed
		again.verify(f)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	h.logged(`"removed a flow that would be decided otherwise now" flow="` + fmt.Sprintf("%s → %s, %s → %s, ICMP type 8 code 0", a.port.MACAddress, b.port.MACAddress, a.v4, b.v4))
	h.logged(`was=dropped port=` + a.port.ID)
}

// TestInterfacesThatNoWorkloadIsBehind: above all the underlay is never taken for one.
func TestInterfacesThatNoWorkloadIsBehind(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n := l.network("blue")
	g := l.group(everything()...)
	l.start()
	bad := n.port(l.hosts[0], g)
	bad.port.InterfaceName = "eth0"
	bad.bind()
	l.wait("the binding to be refused", func() bool { return l.hosts[0].agent.attachments.reconciler.Status().Failing == 1 })
	l.hosts[0].logged(`"failed, will try again" what=attachments port=` + bad.port.ID)
	a, b := n.machine(l.hosts[0], g), n.machine(l.hosts[1], g)
	if err := a.ping(b.v4, 1); err != nil {
		t.Error(err)
	}
}

// TestRestart: an agent that is restarted loses no packet of established connections, and what
// happened in the meantime is in force after.
func TestRestart(t *testing.T) {
	t.Parallel()
	l := newLab(t, 2)
	n := l.network("blue")
	out := allow("egress", "IPv4", "", 0)
	ping := allow("ingress", "IPv4", "icmp", 0)
	client, server := l.group(out), l.group(out, ping, allow("ingress", "IPv4", "tcp", 80), allow("ingress", "IPv4", "tcp", 81))
	l.start()
	h := l.hosts[0]
	a, near, far := n.machine(h, client), n.machine(h, server), n.machine(l.hosts[1], server)
	gone := n.machine(h, client)
	var streams []func(timeout time.Duration) error
	for _, m := range []*machine{near, far} {
		for _, port := range []int{80, 81} {
			m.listen("tcp", port)
			c, err := a.dial(m.v4, port, 5*time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			stream := func(timeout time.Duration) error { return exchange(c, 100000, timeout) }
			if err := stream(5 * time.Second); err != nil {
				t.Fatal(err)
			}
			streams = append(streams, stream)
		}
	}
	before := h.agent.dp.Ports()
	pinged := make(chan error, 2)
	for _, m := range []*machine{near, far} {
		if err := a.pingAs(77, m.v4, 2); err != nil {
			t.Fatal(err)
		}
		go func() { pinged <- a.pingAs(77, m.v4, 200) }()
	}
	h.stop()
	for _, stream := range streams {
		if err := stream(5 * time.Second); err != nil {
			t.Errorf("without an agent: %v", err)
		}
	}
	if _, err := l.st.Get(t.Context(), schema.PortStates.Key(h.id+"/"+a.port.ID)); err != nil {
		t.Errorf("a restart is noticed: %v", err)
	}
	l.setRules(server, out, ping, allow("ingress", "IPv4", "tcp", 80)) // no longer 81
	l.put(gone.owner(), nil)
	h.start()
	for i, stream := range streams {
		timeout := 5 * time.Second
		if i%2 == 1 {
			timeout = short
		}
		if err := stream(timeout); (err == nil) != (i%2 == 0) {
			t.Errorf("stream to port %d after the restart: %v", 80+i%2, err)
		}
	}
	for range 2 {
		if err := <-pinged; err != nil {
			t.Errorf("packets were lost in the restart: %v", err)
		}
	}
	if got := h.agent.engine.count.adopted.Load(); got == 0 {
		t.Error("no flow was adopted")
	}
	// What the kernel holds is what is wanted: nothing missing, nothing left over.
	after := h.agent.dp.Ports()
	if len(after) != 2 || len(before) != 3 {
		t.Errorf("ports before %v, after %v", before, after)
	}
	for _, p := range after {
		for _, q := range before {
			if p.Name == q.Name && p.Port != q.Port {
				t.Errorf("port %s was %d, is %d", p.Name, q.Port, p.Port)
			}
		}
	}
	if _, err := l.st.Get(t.Context(), schema.PortStates.KeyOf(&topology.PortState{HostID: h.id, PortID: gone.port.ID})); err == nil {
		t.Error("the deleted port is still reported")
	}
}
