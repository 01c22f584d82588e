package workload

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"heddle/internal/hostnet"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
)

const (
	// inner is the interface in a workload's namespace.
	inner = "eth0"
	// leastMTU and mostMTU bound the MTU of a workload, bytes.
	leastMTU = 576
	mostMTU  = 65535
)

// metadata is the address of the metadata service.
var metadata = netip.MustParseAddr("169.254.169.254")

// workload is a temporary workload. Its Host's lock guards the last three fields.
type workload struct {
	topology.WorkloadRequest // that it was made for
	namespace                *hostnet.Namespace
	net                      *hostnet.Linux // of the namespace
	link                     hostnet.Link   // inner
	services                 *services
	hasIPv6                  bool // it has Address6

	users   int       // requests in work
	used    time.Time // by the last request
	removed bool      // it ends with its last user
}

// newWorkload makes a workload with the interface of a port, which must not exist.
func newWorkload(host *hostnet.Linux, r *topology.WorkloadRequest) (w *workload, err error) {
	switch _, err := host.Link(r.Interface); {
	case err == nil:
		return nil, fmt.Errorf("interface %s exists already: delete it with `ip link delete %[1]s`", r.Interface)
	case !errors.Is(err, hostnet.ErrNotFound):
		return nil, err
	}
	w = &workload{WorkloadRequest: *r}
	if w.namespace, err = hostnet.NewNamespace(); err != nil {
		return nil, err
	}
	if w.net, err = hostnet.NewLinux(w.namespace); err != nil {
		return nil, errors.Join(err, w.close())
	}
	if err = w.connect(host); err == nil {
		w.services, err = serve(w.namespace)
	}
	if err != nil {
		return nil, errors.Join(err, host.DeleteLink(w.Interface), w.close())
	}
	return w, nil
}

// connect makes the veth pair and the settings of its inner end. Metadata is asked for on the link,
// whatever routers there are.
func (w *workload) connect(host *hostnet.Linux) (err error) {
	_, err = w.net.AddLink(hostnet.LinkSpec{Name: inner, Kind: hostnet.Veth, MAC: hostnet.MAC(w.MAC), MTU: w.MTU, Peer: w.Interface, PeerNet: host})
	if err != nil {
		return err
	}
	if err := errors.Join(w.net.AddAddress(inner, w.Address), w.net.SetUp("lo", true), w.net.SetUp(inner, true), host.SetUp(w.Interface, true)); err != nil {
		return err
	}
	if w.link, err = w.net.Link(inner); err != nil {
		return err
	}
	if err := w.addIPv6(); err != nil {
		return err
	}
	return w.net.SetRoute(hostnet.Route{Dst: netip.PrefixFrom(metadata, metadata.BitLen()), Link: inner})
}

// addIPv6 adds the IPv6 address, if there is one and the kernel has IPv6.
func (w *workload) addIPv6() error {
	if !w.Address6.IsValid() {
		return nil
	}
	const conf = "ipv6/conf/" + inner + "/"
	switch err := w.net.Set(hostnet.Setting{Name: conf + "disable_ipv6", Value: "0"}, hostnet.Setting{Name: conf + "accept_ra", Value: "0"}); {
	case errors.Is(err, hostnet.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	if err := w.net.AddAddress(inner, w.Address6); err != nil {
		return err
	}
	w.hasIPv6 = true
	return nil
}

// close ends what runs in the namespace, and with it the namespace.
func (w *workload) close() error {
	var errs []error
	if w.services != nil {
		errs = append(errs, w.services.close())
	}
	if w.net != nil {
		errs = append(errs, w.net.Close())
	}
	return errors.Join(append(errs, w.namespace.Close())...)
}

// probeAll makes all probes at once.
func (w *workload) probeAll(ctx context.Context, probes []topology.Probe) []flow.ProbeResult {
	results := make([]flow.ProbeResult, len(probes))
	var trying sync.WaitGroup
	for i := range probes {
		trying.Go(func() {
			began := time.Now()
			detail, err := w.probe(ctx, &probes[i])
			results[i] = flow.ProbeResult{Passed: err == nil, Detail: detail, Took: time.Since(began)}
			if err != nil {
				results[i].Detail = err.Error()
			}
		})
	}
	trying.Wait()
	return results
}

// probe makes a probe, and returns what it has found in words.
func (w *workload) probe(ctx context.Context, p *topology.Probe) (detail string, err error) {
	if p.Target.Is6() && !w.hasIPv6 {
		return "", errors.New("this workload has no IPv6 address")
	}
	switch p.Kind {
	case topology.ProbeDHCP:
		return w.probeDHCP(ctx)
	case topology.ProbeMetadata:
		return w.probeMetadata(ctx)
	case topology.ProbeARP:
		return w.probeARP(ctx, p)
	case topology.ProbeNDP:
		return w.probeNDP(ctx, p)
	case topology.ProbeICMP:
		return w.probeICMP(ctx, p)
	case topology.ProbeMTU:
		return w.probeMTU(ctx, p)
	case topology.ProbeTCP:
		return w.probeTCP(ctx, p)
	case topology.ProbeUDP:
		return w.probeUDP(ctx, p)
	case topology.ProbeBlocked:
		return w.probeBlocked(ctx, p)
	}
	return "", fmt.Errorf("this host's agent knows no probe %q: upgrade it", p.Kind)
}
