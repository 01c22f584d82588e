package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"heddle/internal/netlab"
)

// browser is a Chromium in a network namespace, with one page.
type browser struct {
	t   testing.TB
	ctx context.Context
	url string // of the console
	axe string // the program of axe-core
}

// watchViolations has a page count what its Content-Security-Policy refuses, and what fails in it.
const watchViolations = `
window.violations = [];
addEventListener("securitypolicyviolation", e => violations.push(e.violatedDirective + " " + e.blockedURI + " " + e.sample));
addEventListener("error", e => violations.push("error: " + e.message));
addEventListener("unhandledrejection", e => violations.push("rejection: " + e.reason));`

// newBrowser starts a Chromium that the test ends.
func newBrowser(t testing.TB, ns *netlab.Namespace, url string) *browser {
	t.Helper()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("needs chromium: run scripts/setup")
	}
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		t.Skip("needs nsenter: run scripts/setup")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.IgnoreCertErrors,
		chromedp.ModifyCmdFunc(func(cmd *exec.Cmd) {
			cmd.Path, cmd.Args = nsenter, append([]string{"nsenter", "--net=" + ns.Path(), chromium}, cmd.Args[1:]...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		}))...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil { // the browser lives as long as the context of its first use
		t.Fatal(err)
	}
	b := &browser{t: t, ctx: ctx, url: url, axe: readAxe(t)}
	b.size(1280, 800)
	if _, err := chromedp.Call(ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: watchViolations}); err != nil {
		t.Fatal(err)
	}
	return b
}

// readAxe returns axe-core, which npm has put where the console's compilers are.
func readAxe(t testing.TB) string {
	t.Helper()
	dir := filepath.Join("..", "..", "internal", "api", "console", "web")
	sum := sha256.New()
	for _, name := range []string{"package.json", "package-lock.json"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(raw)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(cache, "heddle-test", "console-"+hex.EncodeToString(sum.Sum(nil)[:8]), "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Skipf("needs axe-core: run scripts/setup: %v", err)
	}
	return string(raw)
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 20*time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatalf("%v\n%s", err, b.text())
	}
}

// size sets the size of the window.
func (b *browser) size(width, height int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, height))
}

// theme has the system prefer a theme.
func (b *browser) theme(name string) {
	b.t.Helper()
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}}); err != nil {
		b.t.Fatal(err)
	}
}

// open loads a path of the console and waits for words on the page.
func (b *browser) open(path string, words ...string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.url + path))
	b.wait(words...)
}

// text returns the text of the page.
func (b *browser) text() string {
	text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText"))
	if err != nil {
		return err.Error()
	}
	return text
}

// wait waits until the page has all of these words, with any whitespace and signs between them.
func (b *browser) wait(words ...string) {
	b.t.Helper()
	raw, _ := json.Marshal(words) // strings
	b.until(fmt.Sprintf("%s.every(w => document.body.innerText.replace(/[\\s✓✕]+/g, ' ').includes(w))", raw))
}

// until waits until an expression is true.
func (b *browser) until(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 20*time.Second)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`new Promise(done => {
		const look = () => (`+expression+`) && (watch.disconnect(), done(true));
		const watch = new MutationObserver(look);
		watch.observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
		look();
	})`, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("waiting for %s: %v\n%s", expression, err, b.text())
	}
}

// evaluate returns the value of an expression, which may be a promise.
func evaluate[T any](b *browser, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// keys types keys, one after the other.
func (b *browser) keys(keys ...string) {
	b.t.Helper()
	for _, k := range keys {
		b.do(chromedp.KeyEvent(k))
	}
}

// tabTo moves the focus by the Tab key alone until it is on an element.
func (b *browser) tabTo(selector string) {
	b.t.Helper()
	var passed []string
	for range 60 {
		b.keys(kb.Tab)
		if evaluate[bool](b, fmt.Sprintf("document.activeElement.matches(%q)", selector)) {
			return
		}
		passed = append(passed, evaluate[string](b, "document.activeElement.outerHTML.slice(0, 60)"))
	}
	b.t.Fatalf("the Tab key does not lead to %s, but to\n%s", selector, strings.Join(passed, "\n"))
}

// check fails the test if the page broke its Content-Security-Policy or an accessibility rule, in
// either theme and at either width.
func (b *browser) check(what string) {
	b.t.Helper()
	for _, v := range evaluate[[]string](b, "window.violations") {
		b.t.Errorf("%s: %s", what, v)
	}
	b.do(chromedp.Evaluate[chromedp.Void](b.axe))
	for _, theme := range []string{"light", "dark"} {
		b.theme(theme)
		for _, width := range []int64{1280, 390} {
			b.size(width, 800)
			if *shots != "" {
				b.shoot(filepath.Join(*shots, fmt.Sprintf("%s-%s-%d.png", what, theme, width)))
			}
			if over := evaluate[int](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
				b.t.Errorf("%s, %s, %d wide: the page is %d pixels too wide", what, theme, width, over)
			}
			if theme == "dark" && width == 390 {
				continue // the colours of one, and the places of the other
			}
			for _, v := range evaluate[[]string](b, `axe.run(document).then(r => r.violations.map(v => v.id + ": " + v.help + ": " + v.nodes.map(n => n.html + " " + n.failureSummary).join("\n")))`) {
				b.t.Errorf("%s, %s, %d wide: %s", what, theme, width, v)
			}
		}
	}
	b.theme("light")
	b.size(1280, 800)
}

// picture writes a picture of the page for the documentation, if the test is told to. The host has
// the name h1 there.
func (b *browser) picture(name, theme, host string) {
	b.t.Helper()
	if !*pictures {
		return
	}
	b.theme(theme)
	evaluate[bool](b, fmt.Sprintf(`(() => {
		const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
		while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(%q, "h1");
		document.activeElement.blur();
		return true;
	})()`, host))
	b.shoot(filepath.Join("..", "..", "docs", "guides", "images", name+".png"))
	b.theme("light")
}

// terminal writes pictures of what a command prints, in both themes, if the test is told to.
func (b *browser) terminal(name, command, text string) {
	b.t.Helper()
	if !*pictures {
		return
	}
	fixed := map[string]string{} // ids, of which each run has others
	text = uuids.ReplaceAllStringFunc("$ "+command+"\n"+strings.TrimSpace(text), func(id string) string {
		if fixed[id] == "" {
			fixed[id] = fmt.Sprintf("6f1c24d0-5b7e-4c0e-9a51-%012d", len(fixed)+1)
		}
		return fixed[id]
	})
	b.do(chromedp.Navigate("about:blank"))
	for theme, colours := range map[string]string{"light": "color:#1c2523;background:#fff", "dark": "color:#e6ecea;background:#1a2120"} {
		const frame = "margin:0;padding:20px 24px;min-height:100vh;box-sizing:border-box;white-space:pre-wrap;font:14px/1.5 'DejaVu Sans Mono',monospace;"
		height := evaluate[int64](b, fmt.Sprintf(`(() => {
			document.body.style.margin = 0;
			const shown = document.createElement("pre");
			shown.style.cssText = %q;
			shown.textContent = %q;
			document.body.replaceChildren(shown);
			shown.style.minHeight = 0;
			return shown.offsetHeight;
		})()`, frame+colours, text))
		b.size(1280, height)
		b.shoot(filepath.Join("..", "..", "docs", "guides", "images", name+"-"+theme+".png"))
	}
	b.size(1280, 800)
}

var uuids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

// shoot writes a picture of what the browser shows.
func (b *browser) shoot(file string) {
	b.t.Helper()
	raw, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(file, raw, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
