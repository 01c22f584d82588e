package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"heddle/internal/lab"
	"heddle/internal/netlab"
)

const (
	// metadataURL is the first document that machines ask for: JSON of about a kilobyte.
	metadataURL = "http://169.254.169.254/openstack/latest/meta_data.json"
	// askers is the number of connections over which requests are counted.
	askers = 8
)

// metadata measures how soon machines that ask for their metadata at once are answered, and
// compares requests a second with those of a plain HTTP server at the other end of a veth pair.
func (b *bench) metadata(ctx context.Context) error {
	return b.withStand(ctx, func(s *stand) error {
		machines, err := s.askingMachines(ctx, b.pick(200, 10))
		if err != nil {
			return err
		}
		if err := b.metadataStorm(ctx, machines); err != nil {
			return err
		}
		return b.metadataRate(ctx, machines[0])
	})
}

// askingMachines makes so many workloads on the first host with a route to the metadata service, of
// which the first has been answered.
func (s *stand) askingMachines(ctx context.Context, n int) (all []*lab.Workload, err error) {
	group, err := s.openGroup(ctx)
	if err != nil {
		return nil, err
	}
	for i := range n {
		w, err := s.workload(ctx, fmt.Sprint("md", i+1), s.h1, group)
		if err != nil {
			return nil, err
		}
		if err := w.NS.IP("route add 169.254.169.254 dev eth0"); err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	for _, w := range all {
		if _, err := s.tenant.WaitStatus(ctx, w.Port.ID, "ACTIVE"); err != nil {
			return nil, err
		}
	}
	client := clientIn(all[0].NS, metadataURL)
	defer client.CloseIdleConnections()
	return all, netlab.Until(ctx, "metadata to be served", func() (bool, error) { return client.get(ctx) == nil, nil })
}

// metadataStorm has all machines ask at once, each over a new connection.
func (b *bench) metadataStorm(ctx context.Context, machines []*lab.Workload) error {
	var worst []float64
	for round := range b.rounds {
		b.logf("round %d: %d machines ask at once", round+1, len(machines))
		g, begun := errgroup.Group{}, time.Now()
		for _, w := range machines {
			g.Go(func() error {
				client := clientIn(w.NS, metadataURL)
				defer client.CloseIdleConnections()
				if err := client.get(ctx); err != nil {
					return fmt.Errorf("metadata for workload %s: %w", w.Name, err)
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		worst = append(worst, time.Since(begun).Seconds())
	}
	b.add(measure{Name: fmt.Sprintf("metadata for %d machines at once, the last answer", len(machines)), Got: netlab.Median(worst), Unit: "s", Goal: atMost(2)})
	return nil
}

// metadataRate compares requests a second of a workload with those to a server of the kernel's own
// path.
func (b *bench) metadataRate(ctx context.Context, w *lab.Workload) error {
	l := netlab.New(prefix + "-m")
	defer l.Close() // what is left goes with the next run's start
	direct, err := netlab.DirectPath(l)
	if err != nil {
		return err
	}
	stop, err := serveJSON(direct)
	if err != nil {
		return err
	}
	defer stop()
	ours, kernel := clientIn(w.NS, metadataURL), clientIn(direct.Client, fmt.Sprintf("http://%s:8080/", direct.Address))
	defer ours.CloseIdleConnections()
	defer kernel.CloseIdleConnections()
	b.logf("requests")
	var got, beside []float64
	for range b.slices {
		a, err := ours.rate(ctx, b.slice())
		if err != nil {
			return err
		}
		k, err := kernel.rate(ctx, b.slice())
		if err != nil {
			return err
		}
		got, beside = append(got, a), append(beside, k)
	}
	text := fmt.Sprintf("%.0f / %.0f a second, %d connections", netlab.Median(got), netlab.Median(beside), askers)
	b.add(measure{Name: "metadata of one host: requests", Got: netlab.Median(got), Unit: "a second", Goal: atLeast(1000)})
	b.add(ratio("metadata of one host: requests/s / plain HTTP over a veth pair", got, beside, nil, text))
	return nil
}

// serveJSON serves as many bytes as metadata has at the path's server until stop is called.
func serveJSON(p netlab.Path) (stop func(), err error) {
	var l net.Listener
	err = p.Server.Do(func() error {
		l, err = net.Listen("tcp4", ":8080")
		return err
	})
	if err != nil {
		return nil, err
	}
	body := make([]byte, 1000)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	return func() {
		_ = server.Close()
		<-done
	}, nil
}

// asker is an HTTP client in a namespace that asks for one URL.
type asker struct {
	http.Client
	url string
}

func clientIn(ns *netlab.Namespace, url string) *asker {
	return &asker{http.Client{Timeout: lab.StartTimeout, Transport: &http.Transport{DialContext: lab.DialIn(ns), MaxIdleConnsPerHost: askers}}, url}
}

// get asks once; anything but an answer is an error.
func (a *asker) get(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url, nil)
	if err != nil {
		return err
	}
	res, err := a.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, res.Body)
	if res.StatusCode != http.StatusOK {
		err = errors.New(res.Status)
	}
	return errors.Join(err, res.Body.Close())
}

// rate returns the requests a second that are answered over the askers' connections.
func (a *asker) rate(ctx context.Context, length time.Duration) (float64, error) {
	var n atomic.Int64
	var g errgroup.Group
	begun := time.Now()
	for range askers {
		g.Go(func() error {
			for time.Since(begun) < length {
				if err := a.get(ctx); err != nil {
					return fmt.Errorf("%s: %w", a.url, err)
				}
				n.Add(1)
			}
			return nil
		})
	}
	err := g.Wait()
	return float64(n.Load()) / time.Since(begun).Seconds(), err
}
