package main

import (
	"flag"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var pictures = flag.String("pictures", "", "`directory` for pictures of the console's pages")

// TestConsole goes through the console's pages in a real browser, on a server with a host and
// ports.
func TestConsole(t *testing.T) {
	t.Parallel()
	s := newPlugSite(t)
	web, client := s.lab.MustNamespace(t, "web"), s.lab.MustNamespace(t, "client")
	s.newPort(t, "web", 11)
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

	b.open("/", "Nothing is wrong", "1 of 1 up", "2 of 2 active")
	b.check("overview")
	b.open("/hosts", s.host.name, "1 host, 1 up")
	b.check("hosts")

	succeed(t, s.ctl, "port", "set", "web", "--sg", "closed", "--data", s.data)
	b.open("/ask", "Would a new connection pass?")
	b.check("ask-empty")
	b.do(chromedp.SendKeys(chromedp.CSS("input[name=from]"), "client"), chromedp.SendKeys(chromedp.CSS("input[name=to]"), "web"), chromedp.SendKeys(chromedp.CSS("input[name=port]"), "80"+kb.Enter))
	b.wait("Denied", "no-rule", "What would let it pass", "heddle sg rule add", "security group closed: it has no rule for ingress")
	b.check("ask-denied")
	b.open("/ask?from=client&to=missing", `no port has the id or name "missing"`)
	b.check("ask-refused")

	b.do(chromedp.Click(chromedp.CSS("header button")))
	b.wait("Log in to Heddle")
	b.open("/hosts", "Log in to Heddle")
	b.keyboard(readCloud(t, s.data).Auth.Password)
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
