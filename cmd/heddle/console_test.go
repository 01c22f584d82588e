package main

import (
	"flag"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"heddle/internal/netlab"
)

var (
	pictures = flag.Bool("pictures", false, "write the pictures of docs/guides/console.md and README.md anew")
	shots    = flag.String("shots", "", "directory to write pictures of all of the console's pages to")
)

// TestConsole goes through the console's pages in a real browser, on a server with a host and
// ports.
func TestConsole(t *testing.T) {
	t.Parallel()
	s := newPlugSite(t)
	web, client := s.lab.MustNamespace(t, "web"), s.lab.MustNamespace(t, "client")
	webPort := s.newPort(t, "web", 11)
	s.newPort(t, "client", 12)
	s.plug(t, "web", "--netns", web.Name)
	s.plug(t, "client", "--netns", client.Name)
	s.api.mustCreate(t, "security_group", map[string]any{"name": "closed"})
	b := newBrowser(t, s.ctl, "http://127.0.0.1:9698")

	b.open("/ask?from=client&to=web&port=80", "Log in to Heddle")
	b.check("login")
	b.do(chromedp.SendKeys(chromedp.CSS("input[name=user]"), "admin"), chromedp.SendKeys(chromedp.CSS("input[name=password]"), "wrong"+kb.Enter))
	b.wait("No user has this name and password")
	b.check("login-refused")
	b.do(chromedp.SetValue(chromedp.CSS("input[name=password]"), readCloud(t, s.data).Auth.Password), chromedp.Click(chromedp.CSS("button[type=submit]")))
	b.wait("Allowed", "tcp 80 from client (10.0.0.12)", "There: passes", "Back: passes", "heddle why --from client --to web:80")
	b.check("ask-allowed")
	if cookies := evaluate[string](b, "document.cookie"); cookies != "" {
		t.Errorf("scripts can read %q", cookies)
	}

	b.open("/reach?to=web", "Services to web (10.0.0.11)", "IPv4 all", "client 10.0.0.12", "IPv6 all", "heddle reach --to web")
	b.check("reach-to")
	b.open("/reach?by=group&port=80&protocol=tcp", "tcp 80", "default default 2 2")
	b.until("document.querySelector('select[name=by]').value == 'group' && document.querySelector('select[name=protocol]').value == 'tcp'")
	b.check("reach-pairs")

	b.open("/", "Nothing is wrong", "1 of 1 up", "2 of 2 active", "Dropped packets a second")
	b.check("overview")
	b.picture("console-overview", "light", s.host.name)
	b.open("/hosts", s.host.name, "1 host, 1 up")
	b.check("hosts")

	succeed(t, s.ctl, "port", "set", "web", "--sg", "closed", "--data", s.data)
	b.open("/ask", "Would a new connection pass?")
	b.check("ask-empty")
	b.do(chromedp.SendKeys(chromedp.CSS("input[name=from]"), "client"), chromedp.SendKeys(chromedp.CSS("input[name=to]"), "web"), chromedp.SendKeys(chromedp.CSS("input[name=port]"), "80"+kb.Enter))
	b.wait("Denied", "no-rule", "What would let it pass", "heddle sg rule add", "security group closed: it has no rule for ingress")
	b.until("document.querySelectorAll('svg .node').length == 3 && document.querySelectorAll('svg .edge.passed').length == 2")
	b.wait("Networks Ports client from here blue network web no-rule")
	b.check("ask-denied")
	b.picture("console-ask", "light", s.host.name)
	text, _ := output(t, s.ctl, "why", "--from", "client", "--to", "web:80", "--data", s.data)
	b.terminal("why", "heddle why --from client --to web:80", strings.ReplaceAll(text, s.host.name, "h1"))
	b.open("/ask?from=client&to=missing", `no port has the id or name "missing"`)
	b.check("ask-refused")

	b.reach()
	b.changes(s)
	datagrams(t, client, "10.0.0.11:53", 3)
	b.open("/drops?port=web&code=no-rule", "web ingress no-rule port web "+s.host.name, "heddle drops web --code no-rule")
	b.check("drops")
	b.open("/", "Dropped packets a second")
	b.wait("Of Now Most while this page is open", "no-rule 0.")
	b.until("document.querySelector('.chart canvas')")
	evaluate[bool](b, "(document.querySelector('.chart').scrollIntoView(), true)")
	b.check("overview-drops")
	b.open("/drops", "Rules by which nothing passed", "Counted by 1 host, by all of them since", "never asked")
	b.check("drops-unused")
	b.open("/drops?code=nope", `code "nope": want one of docs/codes.md`)
	b.flows(t, client)
	b.objects(t, s, webPort.ID)
	b.path(t, s)

	b.do(chromedp.Click(chromedp.CSS("header button")))
	b.wait("Log in to Heddle")
	b.open("/hosts", "Log in to Heddle")
	b.keyboard(readCloud(t, s.data).Auth.Password)

	b.do(chromedp.Click(chromedp.CSS("header button")))
	b.members(t, s)
}

// members looks at what users without the role admin see.
func (b *browser) members(t *testing.T, s *plugSite) {
	accounts := *s.api
	accounts.base = "http://127.0.0.1:5000"
	if err := accounts.call(t.Context(), http.MethodPost, "/v3/users", map[string]any{"user": map[string]string{"name": "ann", "password": "of ann"}}, nil); err != nil {
		t.Fatal(err)
	}
	b.logIn("ann", "of ann")
	b.wait("You are logged in as ann, without a project")
	b.check("member-without-project")
	b.do(chromedp.Click(chromedp.CSS("header button")))

	ben := s.api.addMember(t, "127.0.0.1", "ben")
	network := ben.mustCreate(t, "network", map[string]any{"name": "shop"})
	ben.mustCreate(t, "subnet", map[string]any{"network_id": network.ID, "ip_version": 4, "cidr": "10.2.0.0/24"})
	own := ben.mustCreate(t, "port", map[string]any{"network_id": network.ID, "name": "till"})
	s.plug(t, "till", "--netns", s.lab.MustNamespace(t, "till").Name)
	b.wait("Log in to Heddle")
	b.do(chromedp.Click(chromedp.CSS("summary")), chromedp.SendKeys(chromedp.CSS("input[name=project]"), "ben"))
	b.logIn("ben", "of ben")
	b.wait("Would a new connection pass?")
	b.open("/", "Your ports", "till active")
	b.check("member")
	b.open("/ports/"+own.ID, "Port till", "Group default", "Would a connection pass?")
	if text := b.text(); strings.Contains(text, s.host.name) || strings.Contains(text, "What can reach it?") {
		t.Errorf("a member sees what is for operators:\n%s", text)
	}
	b.check("member-port")
	b.open("/ask?from=till&to=198.51.100.7&port=80", "Denied", "There: denied", "till no-neighbour", "198.51.100.7 not reached")
	b.check("member-ask")
	b.open("/changes", "port till")
	b.check("member-changes")
	b.open("/hosts", "This page is for users with the role admin")
}

// TestConsoleByTLS: a browser of another machine logs in by HTTPS, with nothing but the server's
// certificate.
func TestConsoleByTLS(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.serve(t)
	b := newBrowser(t, s.ctl, "https://192.0.2.1:9698")
	b.open("/hosts", "Log in to Heddle")
	b.logIn("admin", readCloud(t, s.data).Auth.Password)
	b.wait("No host has joined yet")
	b.check("hosts-empty")
	b.open("/topology", "There are no networks yet")
	b.check("topology-empty")
	b.open("/", "Certificates", "by Heddle")
	b.check("overview-certificates")
}

// logIn logs in on the page for it.
func (b *browser) logIn(user, password string) {
	b.t.Helper()
	b.wait("Log in to Heddle")
	b.do(chromedp.SendKeys(chromedp.CSS("input[name=user]"), user), chromedp.SendKeys(chromedp.CSS("input[name=password]"), password+kb.Enter))
}

// markup is a name that would be an element, and a script, if it was not shown as text.
const markup = `<img src=x onerror="violations.push('script')"><b>bold</b>`

// reach goes through questions about who reaches whom, while web is in the group closed.
func (b *browser) reach() {
	b.open("/reach", "Who reaches a machine")
	b.check("reach-empty")
	b.do(chromedp.SendKeys(chromedp.CSS("input[name=to]"), "client"), chromedp.SendKeys(chromedp.CSS("input[name=port]"), "80"+kb.Enter))
	b.wait("tcp 80 to client (10.0.0.12)", "Nothing reaches it", "heddle reach --to client --port 80")
	b.check("reach-none")
	b.open("/reach?from=web", "Services from web (10.0.0.11)", "It reaches nothing", "heddle reach --from web")
	b.check("reach-from")
	b.open("/reach?by=group&port=80&protocol=tcp", "No machine reaches another one by this service", "heddle reach --by group --proto tcp --port 80")
	b.check("reach-no-pairs")
	b.open("/reach?to=missing", `no port has the id or name "missing"`)
}

// changes looks at what changed, and sees the next change without asking.
func (b *browser) changes(s *plugSite) {
	b.open("/changes", "admin from 127.0.0.1", "changed port web", "created security group closed")
	b.check("changes")
	b.do(chromedp.Click(chromedp.CSS(".changes details summary")))
	b.wait("security_groups", "Ask about the network as it was then")
	b.check("changes-fields")
	s.api.mustCreate(b.t, "security_group", map[string]any{"name": "just now"})
	b.wait("created security group just now")
	b.open("/changes?object=closed", "created security group closed", "heddle history closed")
	b.open("/changes?since=yesterday", "since \"yesterday\": want a time such as")
}

// flows looks at what hosts remember of flows to web, and sees the next ones as they come.
func (b *browser) flows(t *testing.T, client *netlab.Namespace) {
	b.open("/flows?port=web&verdict=drop&proto=udp", "client 10.0.0.12 web 10.0.0.11 udp 53 dropped no-rule Why?", "heddle flows --port web --proto udp --verdict drop")
	b.check("flows")
	b.do(chromedp.Click(chromedp.CSS("[aria-label=View] button:nth-child(2)")))
	b.wait("From closed default", "default", "Answers are not counted")
	b.check("flows-groups")
	b.open("/flows?view=network&live=true&proto=udp&service=99", "live", "Nothing has come yet", "heddle flows --follow --proto udp --service 99")
	b.check("flows-none")
	b.do(chromedp.Click(chromedp.CSS("[aria-label=View] button:first-child")))
	until(t, "flows as they come", "99 dropped no-rule", func() string {
		datagrams(t, client, "10.0.0.11:99", 1)
		return strings.Join(strings.Fields(strings.ReplaceAll(b.text(), "✕", "")), " ")
	})
	b.wait("client 10.0.0.12 web 10.0.0.11 udp 99 dropped no-rule")
	b.check("flows-live")
	b.do(chromedp.Click(chromedp.CSS("tbody td a[href^='/ask']")))
	b.wait("udp 99 from client (10.0.0.12) on", "Denied")
	b.open("/flows?peer=nope", `peer "nope": want an address or a prefix`)
}

// objects goes through the topology and the pages of objects.
func (b *browser) objects(t *testing.T, s *plugSite, webPort string) {
	router := s.api.mustCreate(t, "router", map[string]any{"name": "r1"})
	var subnets struct{ Subnets []object }
	if err := s.api.call(t.Context(), http.MethodGet, "/v2.0/subnets?cidr=10.0.0.0/24", nil, &subnets); err != nil || len(subnets.Subnets) != 1 {
		t.Fatal(subnets, err)
	}
	if err := s.api.call(t.Context(), http.MethodPut, "/v2.0/routers/"+router.ID+"/add_router_interface", map[string]any{"subnet_id": subnets.Subnets[0].ID}, nil); err != nil {
		t.Fatal(err)
	}
	for i := range 21 {
		s.newPort(t, fmt.Sprintf("vm%02d", i), 100+i)
	}
	b.open("/topology?view=picture&scope="+s.network.ID+"&expand="+s.network.ID+":8", "One object or project", "15 ports")
	b.picture("console-topology", "dark", s.host.name)
	odd := s.api.mustCreate(t, "network", map[string]any{"name": markup, "description": markup})
	s.api.mustCreate(t, "port", map[string]any{"network_id": odd.ID, "name": markup})

	b.open("/topology?view=picture", "Topology", "as of")
	b.until("document.querySelectorAll('svg .node').length == 5")
	b.wait("Routers", "Networks", "Ports", "r1", "blue", "10.0.0.0/24, 2001:db8", "23 ports", "2 active, 21 on no host", "1 port")
	b.check("topology")
	// Chromium has no box of an element of SVG to click into.
	b.until(fmt.Sprintf(`document.querySelector("svg a[href*='%s%%3A20']")?.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true })) === false`, s.network.ID))
	b.until("document.querySelectorAll('svg .node.port').length == 20")
	b.wait("3 ports", "client")
	b.check("topology-expanded")
	b.do(chromedp.Click(chromedp.CSS("[aria-label=View] button:last-child")))
	b.wait("Kind Name Below Details State", "network blue r1 10.0.0.0/24, 2001:db8::/64", "port vm00 blue 10.0.0.100, 2001:db8::100 – on no host", "Show 3 of 3 ports")
	b.check("topology-table")

	b.open("/networks/"+s.network.ID, "Network blue", "Subnets", "Ports 24", "10.0.0.0/24 10.0.0.1")
	b.check("network")
	b.open("/ports/"+webPort, "Port web", "active", "10.0.0.11, 2001:db8::11", "Group closed", "out IPv4 all all everywhere")
	b.check("port")
	b.open("/routers/"+router.ID, "Router r1", "It has no external gateway", "blue 10.0.0.1")
	b.check("router")
	b.do(chromedp.SendKeys(chromedp.CSS("input[type=search]"), "defa"))
	b.wait("security group")
	b.check("search")
	b.do(chromedp.SendKeys(chromedp.CSS("input[type=search]"), kb.ArrowDown+kb.Enter))
	b.wait("Security group default", "members of default", "Ports in it 23")
	b.check("group")
	b.open("/hosts", s.host.name)
	b.do(chromedp.Click(chromedp.CSS("tbody a")))
	b.wait("Host "+s.host.name, "Tunnel address 192.0.2.1", "What its agent reports", "Ports bound to it 2", "connections 0.0 % 0.0 %")
	b.until("document.querySelector('.chart canvas')")
	evaluate[bool](b, "(document.querySelector('.chart').scrollIntoView(), true)")
	b.check("host")
	b.open("/ports/nope", "port nope could not be found")

	b.open("/networks/"+odd.ID, markup, "It has no subnet")
	if n := evaluate[int](b, "document.querySelectorAll('main img, main b').length"); n > 0 {
		t.Errorf("a name was taken as markup: %d elements", n)
	}
	b.check("markup")
	b.open("/topology?view=picture&scope="+odd.ID, "<img src=x")
	b.check("markup-topology")
	b.open("/topology?scope=nope", "no network, router or project has the id nope")

	s.api.mustCreate(t, "port", map[string]any{"network_id": s.network.ID, "name": "lost", "binding:host_id": "nowhere"})
	b.open("/", "1 problem", "ports that name a host that has not joined", "lost on nowhere", "Next: name a host that heddle host list shows", "1 bound to no host")
	b.check("overview-problem")
}

// path looks at the ways of packets through the router r1.
func (b *browser) path(t *testing.T, s *plugSite) {
	sh := shell{s.ctl, s.data}
	sh.run(t, "net create inside")
	sh.run(t, "subnet create inside4 --network inside --range 10.1.0.0/24")
	sh.run(t, "router add-subnet r1 inside4")
	sh.run(t, "port create deep --network inside --ip 10.1.0.12 --sg closed")
	s.plug(t, "deep", "--netns", s.lab.MustNamespace(t, "deep").Name)
	b.open("/ask?from=client&to=deep&port=80", "Denied", "There: denied")
	b.until("document.querySelectorAll('svg .node.passed').length == 4 && document.querySelectorAll('svg .node.bad').length == 1 && document.querySelectorAll('svg .edge.passed').length == 4")
	b.wait("Routers Networks Ports", "deep no-rule")
	evaluate[bool](b, "(document.querySelector('.switch').scrollIntoView(), true)")
	b.check("ask-path")
	b.do(chromedp.Click(chromedp.CSS("[aria-label='Path there'] button:last-child")))
	b.wait("Hop Layer Name Packet What happens", "3 Routers r1 passes", "5 Ports deep dropped no-rule dropped: out filter")
	evaluate[bool](b, "(document.querySelector('.switch').scrollIntoView(), true)")
	b.check("ask-path-table")
	b.open("/ask?from=client&to=203.0.113.9&port=80", "Denied", "r1 no-route", "203.0.113.9 not reached")
	b.until("document.querySelectorAll('svg .edge.passed').length == 2")
	evaluate[bool](b, "(document.querySelector('.switch').scrollIntoView(), true)")
	b.check("ask-path-missed")
}

// keyboard logs in, asks and looks at the steps of the answer without a pointer.
func (b *browser) keyboard(password string) {
	b.t.Helper()
	b.tabTo("input[name=user]")
	b.keys("admin", kb.Tab, password, kb.Enter)
	b.wait("1 host, 1 up")
	b.tabTo("nav a[href='/ask']")
	b.keys(kb.Enter)
	b.wait("Would a new connection pass?")
	b.tabTo("input[name=from]")
	b.keys("client", kb.Tab, "web", kb.Tab, kb.Tab, "80", kb.Enter)
	b.wait("Denied")
	b.tabTo("summary")
	b.keys(kb.Enter)
	b.wait("out filter: ")
}
