package policy

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"heddle/calico"
	"heddle/internal/hostnet"
	"heddle/internal/task"
)

// MetadataServer answers the requests of this host's workloads for metadata.
type MetadataServer interface {
	// Serve answers the connections that the listeners accept until ctx ends, and closes all then.
	// client returns the Neutron port behind the remote address of a connection, and the source
	// address that the workload itself has; not ok if there is none, or none any more.
	Serve(ctx context.Context, listeners []net.Listener, client func(remote netip.Addr) (port string, source netip.Addr, ok bool)) error
}

// metadataService has a server listen where the rules lead workloads' requests for metadata,
// unless the settings name another server (spec §7.3). Routed workloads have addresses of one
// space, and send from no others, so that the source tells who asks.
type metadataService struct {
	server    MetadataServer
	namespace *hostnet.Namespace
	log       *slog.Logger
	assigned  atomic.Pointer[assignment] // as in the rules
	at        atomic.Pointer[netip.AddrPort]
	moved     task.Notice // at is another
}

func newMetadataService(server MetadataServer, ns *hostnet.Namespace, log *slog.Logger) *metadataService {
	m := &metadataService{server: server, namespace: ns, log: log, moved: task.NewNotice()}
	m.assigned.Store(&assignment{})
	m.at.Store(&netip.AddrPort{})
	return m
}

// listenAt has the server listen at another address; the zero AddrPort: nowhere.
func (m *metadataService) listenAt(at netip.AddrPort) {
	if old := m.at.Swap(&at); *old != at {
		m.moved.Give()
	}
}

// serveTo has the server answer the endpoints of an assignment.
func (m *metadataService) serveTo(a assignment) { m.assigned.Store(&a) }

// run works until ctx ends.
func (m *metadataService) run(ctx context.Context) error {
	for ctx.Err() == nil {
		serving, stop := context.WithCancel(ctx)
		var served sync.WaitGroup
		if at := *m.at.Load(); at.IsValid() {
			served.Go(func() { m.keepServing(serving, at) })
		}
		select {
		case <-ctx.Done():
		case <-m.moved:
		}
		stop()
		served.Wait()
	}
	return nil
}

// keepServing serves at an address until ctx ends. What fails it tries again: a host without
// metadata still forwards.
func (m *metadataService) keepServing(ctx context.Context, at netip.AddrPort) {
	logged := ""
	for retry := (task.Backoff{}); ctx.Err() == nil; retry.Pause(ctx) {
		err := m.serve(ctx, at)
		if err == nil || err.Error() == logged {
			continue
		}
		logged = err.Error()
		if errors.Is(err, unix.EADDRINUSE) {
			m.log.Warn("another program serves metadata in this agent's place", "address", at)
		} else {
			m.log.Error("cannot serve metadata; trying again", "address", at, "err", err)
		}
	}
}

// serve serves at an address until ctx ends.
func (m *metadataService) serve(ctx context.Context, at netip.AddrPort) error {
	var l net.Listener
	err := m.namespace.Do(func() (err error) {
		l, err = net.Listen("tcp4", at.String())
		return err
	})
	if err != nil {
		return err
	}
	return m.server.Serve(ctx, []net.Listener{l}, m.client)
}

// client implements the lookup of MetadataServer. A connection from an address comes in by the
// route of the assignment that the service has, see loop.pass.
func (m *metadataService) client(remote netip.Addr) (port string, source netip.Addr, ok bool) {
	a := m.assigned.Load()
	key, ok := a.holders[a.owners[remote]]
	return key.Endpoint, remote, ok && key.Orchestrator == calico.OpenStack
}
