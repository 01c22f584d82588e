package main

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"

	"heddle/internal/netlab"
)

// BenchmarkConsole opens pages of the console on a cloud of 10,000 ports in 50 networks behind five
// routers, and measures the first paint and when the data is shown, both since the navigation
// began, and the longest task of the page's thread, 0 where none is longer than 50 ms.
func BenchmarkConsole(b *testing.B) {
	ns := netlab.ForTest(b).MustNamespace(b, "serve")
	data := b.TempDir()
	start(b, ns, "serve", "--data", data)
	api := login(b, ns, "127.0.0.1", data)
	api.unlimited(b)
	const networks, ports = 50, 200
	var routers []object
	for i := range 5 {
		routers = append(routers, api.mustCreate(b, "router", map[string]any{"name": fmt.Sprintf("r%d", i)}))
	}
	var last string
	for i := range networks {
		network := api.mustCreate(b, "network", map[string]any{"name": fmt.Sprintf("net%02d", i)})
		subnet := api.mustCreate(b, "subnet", map[string]any{"network_id": network.ID, "ip_version": 4, "cidr": fmt.Sprintf("10.%d.0.0/16", i)})
		path := "/v2.0/routers/" + routers[i%len(routers)].ID + "/add_router_interface"
		if err := api.call(b.Context(), http.MethodPut, path, map[string]any{"subnet_id": subnet.ID}, nil); err != nil {
			b.Fatal(err)
		}
		batch := make([]map[string]any, ports)
		for j := range batch {
			batch[j] = map[string]any{"network_id": network.ID, "name": fmt.Sprintf("vm%02d-%03d", i, j)}
		}
		if err := api.call(b.Context(), http.MethodPost, "/v2.0/ports", map[string]any{"ports": batch}, nil); err != nil {
			b.Fatal(err)
		}
		last = network.ID
	}
	page := newBrowser(b, ns, "http://127.0.0.1:9698")
	page.open("/hosts", "Log in to Heddle")
	page.logIn("admin", readCloud(b, data).Auth.Password)
	page.wait("No host has joined yet")
	for b.Loop() {
		page.measure(b, "overview", "/", "document.body.innerText.includes('of 0 active')")
		page.measure(b, "topology", "/topology?view=picture", "document.querySelectorAll('svg .node').length > 100")
		page.measure(b, "expanded", "/topology?view=picture&scope="+last+"&expand="+last+":200", "document.querySelectorAll('svg .node.port').length == 200")
		page.measure(b, "network", "/networks/"+last, "document.body.innerText.includes('vm49-000')")
	}
	b.ReportMetric(0, "ns/op")
}

// measure opens a page and reports its figures: in milliseconds.
func (b *browser) measure(bench *testing.B, name, path, shown string) {
	b.do(chromedp.Navigate(b.url + path))
	b.until(shown)
	at := evaluate[float64](b, "performance.now()")
	bench.ReportMetric(evaluate[float64](b, "performance.getEntriesByName('first-contentful-paint')[0].startTime"), "paint-ms/"+name)
	bench.ReportMetric(at, "shown-ms/"+name)
	bench.ReportMetric(evaluate[float64](b, `new Promise(done => {
		let longest = 0;
		new PerformanceObserver(list => list.getEntries().forEach(e => longest = Math.max(longest, e.duration))).observe({ type: "longtask", buffered: true });
		setTimeout(() => done(longest), 100);
	})`), "longest-task-ms/"+name)
}
