package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/security/rules"

	"heddle/internal/cloud"
	"heddle/internal/lab"
	"heddle/internal/netlab"
	"heddle/internal/topology/packet"
)

const (
	allowedPort   = 8080
	forbiddenPort = 9090
	// inForce bounds the time from a call of the API to its effect on traffic on every host: some
	// ms on an idle machine, which heddle bench measures. The demo must pass on a busy one.
	inForce = 500 * time.Millisecond
)

// cast has the tenants and workloads of the demo.
//
//	blue, 10.0.0.0/24 of tenant blue: a1, a2 on h1, a3 on h2 (group web), quiet on h2 (no egress)
//	red,  10.0.0.0/24 of tenant red:  b1 on h1, b3 on h2, with the addresses of a1 and a3
//	a4… in blue on each further host
type cast struct {
	blue, red         *lab.Tenant
	web               string
	a1, a2, a3, quiet *workload
	b1, b3            *workload
	more              []*workload
	rule              string
}

func (c *cast) all() []*workload {
	return append([]*workload{c.a1, c.a2, c.a3, c.quiet, c.b1, c.b3}, c.more...)
}

// play makes everything and shows what happens.
func (d *demo) play(ctx context.Context) error {
	c, err := d.stage(ctx)
	if err != nil {
		return err
	}
	d.showAddresses(ctx, c)
	var serving []endpoint
	for _, w := range c.all() {
		serving = append(serving, endpoint{w, allowedPort}, endpoint{w, forbiddenPort})
	}
	stop, err := serveAll(serving...)
	defer stop()
	if err != nil {
		return err
	}
	d.showReach(ctx, c)
	d.showGroups(ctx, c)
	d.showIsolation(ctx, c)
	if err := d.showChange(ctx, c); err != nil {
		return err
	}
	if err := d.showTrace(ctx, c); err != nil {
		return err
	}
	if err := d.showTap(ctx, c); err != nil {
		return err
	}
	if err := d.showBalancer(ctx, c); err != nil {
		return err
	}
	if err := d.showRestart(ctx, c); err != nil {
		return err
	}
	if err := d.showOutside(ctx, c); err != nil {
		return fmt.Errorf("the way outside: %w", err)
	}
	d.showStatus(ctx, c)
	if err := d.showRouted(ctx); err != nil {
		return err
	}
	if err := d.showPrivate(ctx); err != nil {
		return err
	}
	d.showQuestions(ctx, c)
	return nil
}

// stage makes tenants, networks, groups, ports and machines.
func (d *demo) stage(ctx context.Context) (*cast, error) {
	c := &cast{}
	var err error
	if c.blue, err = d.lab.NewTenant(ctx, "blue", &d.undo); err != nil {
		return nil, err
	}
	if c.red, err = d.lab.NewTenant(ctx, "red", &d.undo); err != nil {
		return nil, err
	}
	blue, err := c.blue.Network(ctx, "blue", "10.0.0.0/24", "fd00:b1::/64")
	if err != nil {
		return nil, err
	}
	red, err := c.red.Network(ctx, "red", "10.0.0.0/24", "")
	if err != nil {
		return nil, err
	}
	echo := rules.CreateOpts{Protocol: rules.ProtocolICMP}
	echo6 := rules.CreateOpts{Protocol: rules.ProtocolIPv6ICMP, EtherType: rules.EtherType6}
	port := rules.CreateOpts{Protocol: rules.ProtocolTCP, PortRangeMin: allowedPort, PortRangeMax: allowedPort}
	if c.web, err = c.blue.Group(ctx, "web", true, echo, echo6, port); err != nil {
		return nil, err
	}
	quiet, err := c.blue.Group(ctx, "quiet", false, echo)
	if err != nil {
		return nil, err
	}
	open, err := c.red.Group(ctx, "open", true, echo, port)
	if err != nil {
		return nil, err
	}
	h1, h2 := d.lab.Hosts[0], d.lab.Hosts[1]
	parts := []struct {
		as        **workload
		name      string
		tenant    *lab.Tenant
		network   string
		group     string
		host      *lab.Host
		addresses []string
	}{
		{&c.a1, "a1", c.blue, blue.ID, c.web, h1, []string{"10.0.0.11", "fd00:b1::11"}},
		{&c.a2, "a2", c.blue, blue.ID, c.web, h1, []string{"10.0.0.12", "fd00:b1::12"}},
		{&c.a3, "a3", c.blue, blue.ID, c.web, h2, []string{"10.0.0.13", "fd00:b1::13"}},
		{&c.quiet, "quiet", c.blue, blue.ID, quiet, h2, []string{"10.0.0.14"}},
		{&c.b1, "b1", c.red, red.ID, open, h1, []string{"10.0.0.11"}},
		{&c.b3, "b3", c.red, red.ID, open, h2, []string{"10.0.0.13"}},
	}
	c.more = make([]*workload, len(d.lab.Hosts)-2)
	for i, h := range d.lab.Hosts[2:] {
		p := parts[0]
		p.as, p.name, p.host = &c.more[i], fmt.Sprintf("a%d", 4+i), h
		p.addresses = []string{fmt.Sprintf("10.0.0.%d", 21+i)}
		parts = append(parts, p)
	}
	for _, p := range parts {
		made, err := p.tenant.Port(ctx, p.name, p.network, p.host.Name, p.addresses, []string{p.group})
		if err != nil {
			return nil, err
		}
		if *p.as, err = d.plug(p.name, p.host, made, ""); err != nil {
			return nil, fmt.Errorf("workload %s: %w", p.name, err)
		}
		if six := (*p.as).Address(true); six != "" {
			if err := (*p.as).NS.IP("addr add " + six + "/64 dev eth0 nodad"); err != nil {
				return nil, err
			}
		}
	}
	return c, nil
}

func (d *demo) showAddresses(ctx context.Context, c *cast) {
	for _, w := range c.all() {
		d.check(fmt.Sprintf("%s on %s gets its address by DHCP", w.Name, w.Host.Name), w.Address(false)+"/24 mtu 1450",
			func() (string, error) { return w.dhcp(ctx, d.lab.Dir) })
	}
}

func (d *demo) showReach(ctx context.Context, c *cast) {
	ping := func(what string, from, to *workload, six bool) {
		d.check("ping "+from.Name+" to "+to.Name+", "+what, answered, func() (string, error) { return from.ping(ctx, to.Address(six)) })
	}
	ping("one host", c.a1, c.a2, false)
	ping("two hosts", c.a1, c.a3, false)
	ping("two hosts, IPv6", c.a1, c.a3, true)
	for _, w := range c.more {
		ping("two hosts", c.a1, w, false)
	}
	d.ask(ctx, "TCP %s to %s:%d, one host", c.a1, c.a2, allowedPort, "a2 answered")
	d.ask(ctx, "TCP %s to %s:%d, two hosts", c.a1, c.a3, allowedPort, "a3 answered")
	d.ask(ctx, "TCP %s to %s:%d, two hosts, the other way", c.a3, c.a1, allowedPort, "a1 answered")
}

func (d *demo) ask(ctx context.Context, format string, from, to *workload, port int, expected string) {
	d.check(fmt.Sprintf(format, from.Name, to.Name, port), expected, func() (string, error) { return from.ask(ctx, to.Address(false), port) })
}

func (d *demo) showGroups(ctx context.Context, c *cast) {
	d.ask(ctx, "TCP %s to %s:%d, which group web does not allow", c.a1, c.a3, forbiddenPort, silence)
	d.ask(ctx, "TCP %s to %s:%d, from the other side", c.a3, c.a1, forbiddenPort, silence)
	d.ask(ctx, "TCP %s to %s:%d, one host", c.a1, c.a2, forbiddenPort, silence)
	d.ask(ctx, "TCP %s to %s:%d, whose group has no egress", c.quiet, c.a3, allowedPort, silence)
	d.check("ping a1 to quiet: an answer is no question", answered, func() (string, error) { return c.a1.ping(ctx, c.quiet.Address(false)) })
	const foreign = "10.0.0.99"
	d.check("ping a1 to a2 with the address "+foreign+", which is not a1's", silence, func() (string, error) {
		if err := c.a1.NS.IP("addr add " + foreign + "/32 dev eth0"); err != nil {
			return "", err
		}
		got, err := c.a1.ping(ctx, c.a2.Address(false), "-I", foreign)
		return got, errors.Join(err, c.a1.NS.IP("addr del "+foreign+"/32 dev eth0"))
	})
}

func (d *demo) showIsolation(ctx context.Context, c *cast) {
	d.ask(ctx, "tenant blue: TCP %s to %s:%d, 10.0.0.13 on both networks", c.a1, c.a3, allowedPort, "a3 answered")
	d.ask(ctx, "tenant red: TCP %s to %s:%d, 10.0.0.13 on both networks", c.b1, c.b3, allowedPort, "b3 answered")
	d.check("tenant red: ping 10.0.0.12, which is blue's alone", silence, func() (string, error) { return c.b1.ping(ctx, c.a2.Address(false)) })
}

// showChange adds and removes a rule while traffic flows.
func (d *demo) showChange(ctx context.Context, c *cast) error {
	udp, err := lab.StartUDPStream(ctx, c.a1.Workload, c.a3.Workload, forbiddenPort)
	if err != nil {
		return err
	}
	defer udp.Close()
	open := rules.CreateOpts{Protocol: rules.ProtocolUDP, PortRangeMin: forbiddenPort, PortRangeMax: forbiddenPort}
	d.checkChange(ctx, fmt.Sprintf("rule added, UDP a1 to a3:%d flowing: it passes", forbiddenPort), inForce, func() (err error) {
		c.rule, err = c.blue.Allow(ctx, c.web, open)
		return err
	}, udp.FlowsAfter)
	d.checkChange(ctx, "rule removed: it stops", inForce, func() error { return c.blue.Forbid(ctx, c.rule) }, udp.StopsAfter)
	return nil
}

// showTrace traces a forbidden packet.
func (d *demo) showTrace(ctx context.Context, c *cast) error {
	frame, err := tcpFrame(c.a1, c.a3, forbiddenPort)
	if err != nil {
		return err
	}
	d.check(fmt.Sprintf("trace TCP a1 to a3:%d, answered by the agent of %s", forbiddenPort, c.a1.Host.Name), "drop: security group of a3", func() (string, error) {
		answer, err := d.lab.Admin.Trace(ctx, cloud.TraceRequest{Port: c.a1.Port.ID, Frame: frame})
		switch {
		case err != nil:
			return "", err
		case !answer.LiveState:
			return "no agent answered", nil
		case strings.Contains(answer.Reason, c.a3.Port.ID):
			return answer.Verdict + ": security group of a3", nil
		}
		return answer.Verdict + ": " + answer.Reason, nil
	})
	return nil
}

// showRestart kills the agent of a host under a TCP and a UDP stream, and empties the workload's
// neighbour table while no agent runs.
func (d *demo) showRestart(ctx context.Context, c *cast) error {
	for _, protocol := range []rules.RuleProtocol{rules.ProtocolTCP, rules.ProtocolUDP} {
		rule, err := c.blue.Allow(ctx, c.web, rules.CreateOpts{Protocol: protocol, PortRangeMin: allowedPort + 1, PortRangeMax: allowedPort + 1})
		if err != nil {
			return err
		}
		defer func() { _ = c.blue.Forbid(context.WithoutCancel(ctx), rule) }() // goes with its group otherwise
	}
	udp, err := lab.StartUDPStream(ctx, c.a1.Workload, c.a3.Workload, allowedPort+1)
	if err != nil {
		return fmt.Errorf("UDP a1 to a3: %w", err)
	}
	defer udp.Close()
	s, err := startTCPStream(ctx, c.a1, c.a3, allowedPort+1)
	if err != nil {
		return fmt.Errorf("stream a1 to a3: %w", err)
	}
	host := c.a1.Host
	var restart error
	d.check("agent of "+host.Name+" killed and started, TCP and UDP a1 to a3 running, neighbours forgotten", "every number came, no pause over 300ms", func() (string, error) {
		if _, err := udp.FlowsAfter(ctx, time.Now()); err != nil {
			return "", fmt.Errorf("UDP: %w", err)
		}
		udp.ResetPause()
		host.Agent.Kill()
		forgotten := c.a1.NS.IP("neigh flush dev eth0")
		dead := time.Now()
		_, stopped := udp.FlowsAfter(ctx, dead)
		restart = d.lab.StartAgent(ctx, host)
		switch {
		case restart != nil:
			return "", restart
		case forgotten != nil:
			return "", forgotten
		case stopped != nil:
			return "", fmt.Errorf("UDP without the agent: %w", stopped)
		}
		before := s.received.Load()
		waitCtx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		err := netlab.Until(waitCtx, "the stream to go on", func() (bool, error) { return s.received.Load() > before+500, nil })
		if err := cmp.Or(s.close(), err); err != nil {
			return "", err
		}
		if pause := time.Duration(s.longest.Load()); pause > 300*time.Millisecond {
			return "every number came, a pause of " + pause.Round(time.Millisecond).String(), nil
		}
		if pause := udp.LongestPause(); pause > 300*time.Millisecond {
			return "UDP: a pause of " + pause.Round(time.Millisecond).String(), nil
		}
		return "every number came, no pause over 300ms", nil
	})
	if restart != nil {
		return restart
	}
	d.ask(ctx, "TCP %s to %s:%d, a new connection after it", c.a1, c.a3, allowedPort, "a3 answered")
	return nil
}

func (d *demo) showStatus(ctx context.Context, c *cast) {
	status := func(want string) (string, error) { return c.blue.WaitStatus(ctx, c.quiet.Port.ID, want) }
	d.check("status of port quiet in the API", "ACTIVE", func() (string, error) { return status("ACTIVE") })
	d.check("status of port quiet, its interface taken away", "DOWN", func() (string, error) {
		if err := c.quiet.NS.IP("link del eth0"); err != nil {
			return "", err
		}
		return status("DOWN")
	})
}

// takeDown deletes everything by calls to the API and checks that nothing is left.
func (d *demo) takeDown(ctx context.Context) {
	d.endPrivate(ctx, d.xen)
	d.endLeases(ctx, d.routed)
	d.check("everything deleted by calls to the API", "nothing refused", func() (string, error) {
		if errs := d.undo.Run(ctx); len(errs) > 0 {
			return "", errs[0]
		}
		return "nothing refused", nil
	})
	d.showNothingLeft(ctx, d.routed)
	d.check("server, agents and namespaces taken down", "nothing left", func() (string, error) {
		if err := errors.Join(d.xen.close(), d.lab.Close(ctx)); err != nil {
			return "", err
		}
		spaces, err1 := filepath.Glob("/run/netns/" + prefix + "-*")
		pins, err2 := filepath.Glob("/sys/fs/bpf/heddle/*/demo-h*")
		if left := append(spaces, pins...); len(left) > 0 {
			return strings.Join(left, " "), nil
		}
		if d.differs == 0 {
			err2 = errors.Join(err2, os.RemoveAll(d.lab.Dir))
		}
		return "nothing left", errors.Join(err1, err2)
	})
}

// tcpFrame returns the first packet of a TCP connection.
func tcpFrame(from, to *workload, port int) ([]byte, error) {
	srcMAC, err1 := packet.ParseMAC(from.Port.MACAddress)
	dstMAC, err2 := packet.ParseMAC(to.Port.MACAddress)
	src, err3 := netip.ParseAddr(from.Address(false))
	dst, err4 := netip.ParseAddr(to.Address(false))
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	segment := packet.TCP{SrcPort: 40000, DstPort: uint16(port), Flags: packet.TCPSyn, Window: 65535}.Append(nil, src, dst, nil)
	frame := packet.Ethernet{Dst: dstMAC, Src: srcMAC, Type: packet.TypeIPv4}.Append(nil)
	frame = packet.IPv4{TTL: 64, Proto: packet.ProtoTCP, DontFragment: true, Src: src, Dst: dst}.Append(frame, len(segment))
	return append(frame, segment...), nil
}
