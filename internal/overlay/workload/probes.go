package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"time"

	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

const (
	// tries and tryTime bound a probe: how often it asks, and for how long it waits each time.
	tries   = 3
	tryTime = time.Second
	// blockedTime is for how long a connection has to fail until it counts as blocked.
	blockedTime = 1500 * time.Millisecond

	greeting = "heddle\n"
)

// probeTCP connects to the open port of a target.
func (w *workload) probeTCP(ctx context.Context, p *topology.Probe) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tries*tryTime)
	defer cancel()
	c, err := w.dial(ctx, "tcp", netip.AddrPortFrom(p.Target, topology.WorkloadOpenPort).String())
	if err != nil {
		return "", describe(err)
	}
	defer c.Close()
	got, err := readGreeting(c)
	if err == nil && got != greeting {
		err = fmt.Errorf("another program answers: %q", got)
	}
	if err != nil {
		return "", fmt.Errorf("connected, but %w", describe(err))
	}
	return "connected", nil
}

func readGreeting(c net.Conn) (string, error) {
	if err := c.SetReadDeadline(time.Now().Add(tryTime)); err != nil {
		return "", err
	}
	raw, err := io.ReadAll(io.LimitReader(c, int64(len(greeting))))
	return string(raw), err
}

// probeBlocked tries to connect to the closed port of a target, which has to fail.
func (w *workload) probeBlocked(ctx context.Context, p *topology.Probe) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, blockedTime)
	defer cancel()
	c, err := w.dial(ctx, "tcp", netip.AddrPortFrom(p.Target, topology.WorkloadClosedPort).String())
	if err == nil {
		c.Close()
		return "", fmt.Errorf("a connection to TCP port %d is possible, which no rule of the security group allows", topology.WorkloadClosedPort)
	}
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		return "", describe(err)
	}
	return fmt.Sprintf("TCP port %d is closed", topology.WorkloadClosedPort), nil
}

// probeUDP has a target send a datagram back.
func (w *workload) probeUDP(ctx context.Context, p *topology.Probe) (string, error) {
	c, err := w.dial(ctx, "udp", netip.AddrPortFrom(p.Target, topology.WorkloadOpenPort).String())
	if err != nil {
		return "", describe(err)
	}
	defer c.Close()
	b := make([]byte, 64)
	for try := range tries {
		if ctx.Err() != nil {
			break
		}
		sent := strconv.AppendInt(nil, int64(try), 10)
		if _, err := c.Write(sent); err != nil {
			return "", describe(err)
		}
		if err := c.SetReadDeadline(time.Now().Add(tryTime)); err != nil {
			return "", err
		}
		n, err := c.Read(b)
		if err == nil && n == 1 {
			return "answered", nil
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return "", describe(err)
		}
	}
	return "", errNoAnswer
}

// probeMetadata asks for the versions of the metadata service, which it has for any workload.
func (w *workload) probeMetadata(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, tries*tryTime)
	defer cancel()
	// A transport would go on connecting after the probe, when the namespace may be closed.
	c, err := w.dial(ctx, "tcp", netip.AddrPortFrom(metadata, flow.MetadataTCPPort).String())
	if err != nil {
		return "", describe(err)
	}
	defer c.Close()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil }}}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+metadata.String()+"/", nil)
	if err != nil {
		return "", err
	}
	res, err := client.Do(r)
	if err != nil {
		return "", describe(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, 4096))
	if err != nil {
		return "", describe(err)
	}
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("answers %s", res.Status)
	}
	return fmt.Sprintf("%d versions", len(bytes.Fields(raw))), nil
}

// dial opens a connection from within the workload.
func (w *workload) dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	err = w.namespace.Do(func() error {
		var d net.Dialer
		c, err = d.DialContext(ctx, network, address)
		return err
	})
	return c, err
}

var errNoAnswer = errors.New("no answer")

// describe returns an error without addresses that the reader knows.
func describe(err error) error {
	var timeout net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout() {
		return errNoAnswer
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}
