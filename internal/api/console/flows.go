package console

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"heddle/internal/api"
	"heddle/internal/explain"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/store/schema"
	"heddle/internal/topology"
	"heddle/internal/topology/flow"
	"heddle/internal/topology/packet"
)

const (
	// flowQueue is the number of records that wait for a client. Further ones are lost.
	flowQueue = 4096
	// flowLease is the time for which a subscription outlives the server that made it.
	flowLease = 10 * time.Second
	// mostFlowReaders bounds the clients that read at a time. A host serves sixteen subscriptions.
	mostFlowReaders = 16
)

// FlowStreams joins the hosts that post their flow logs to the clients that read them.
type FlowStreams struct {
	// Reach returns the URLs by which hosts reach this server's operators' API, and the
	// fingerprint of its certificate.
	Reach func() (urls []string, pin string)

	mu      sync.Mutex
	streams map[string]*flowStream // by the id of the subscription of one host
	readers seats
}

// flowStream is the way of records from one host to a client.
type flowStream struct {
	host   string
	secret string
	reader *flowReader
	last   int // number of the last post; under the reader's lock
}

// flowReader is a client that reads records of hosts.
type flowReader struct {
	follow bool
	filter flow.FlowFilter
	queue  chan flow.FlowRecord
	ends   chan string     // hosts that have posted all
	gone   <-chan struct{} // closed when the client leaves
	heard  sync.Map        // names of hosts that have posted

	mu    sync.Mutex
	lost  uint64          // records since the last that went into the queue
	ended map[string]bool // hosts in ends, once each
}

// Register adds the call by which hosts post. They have no token: the secret of a subscription,
// which the store gives to its host alone, proves who they are.
func (s *FlowStreams) Register(open *http.ServeMux) {
	open.HandleFunc("POST /v1/flow-subscriptions/{id}", api.Answering(s.post))
}

func (s *FlowStreams) post(w http.ResponseWriter, r *http.Request) error {
	var body flow.FlowPost
	if err := api.ReadJSON(r, &body); err != nil {
		return err
	}
	s.mu.Lock()
	stream := s.streams[r.PathValue("id")]
	s.mu.Unlock()
	if stream == nil || subtle.ConstantTimeCompare([]byte(stream.secret), []byte(body.Secret)) != 1 {
		return api.Errorf(http.StatusNotFound, "there is no such subscription of a flow log")
	}
	for i := range body.Records {
		body.Records[i].Host = stream.host
	}
	stream.accept(&body)
	api.WriteJSON(w, http.StatusOK, struct{}{})
	return nil
}

// accept queues the records of a post for the client, once each. To one that follows, those for
// which there is no room are lost and counted; others wait.
func (s *flowStream) accept(p *flow.FlowPost) {
	x := s.reader
	x.heard.Store(s.host, true)
	x.mu.Lock()
	defer x.mu.Unlock()
	if p.Number > 0 && p.Number <= s.last {
		return // the host did not get the answer
	}
	s.last = p.Number
	for _, r := range p.Records {
		if r.Verdict != "" && !x.filter.Matches(&r) {
			continue // of a host that does not know all of the filter
		}
		if x.lost > 0 && x.put(flow.FlowRecord{Lost: x.lost}) {
			x.lost = 0
		}
		if x.lost > 0 || !x.put(r) {
			x.lost += max(1, r.Lost)
		}
	}
	if p.End && !x.ended[s.host] {
		x.ended[s.host] = true
		x.ends <- s.host // it has room for all hosts
	}
}

func (x *flowReader) put(r flow.FlowRecord) bool {
	if !x.follow {
		select {
		case x.queue <- r:
		case <-x.gone:
		}
		return true
	}
	select {
	case x.queue <- r:
		return true
	default:
		return false
	}
}

// takeLost returns the number of records that were lost at last.
func (x *flowReader) takeLost() (n uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n, x.lost = x.lost, 0
	return n
}

// flows answers with records of hosts' flow logs, a JSON object a line, or as events if the client
// asks for these: those that hosts still have, or with "follow" those to come, until the client
// leaves.
func (c *console) flows(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	ctx, cancel := whileValid(r.Context())
	defer cancel()
	away, err := c.Flows.readers.take(mostFlowReaders)
	if err != nil {
		return err
	}
	defer away()
	beginning, begun := context.WithTimeout(ctx, questionTime)
	defer begun()
	snap, err := c.DB.View(beginning)
	if err != nil {
		return err
	}
	filter, err := flowFilter(snap, api.Caller(r.Context()), query)
	if err != nil {
		return err
	}
	hosts, err := overlayHosts(snap, query.Get("host"))
	if err != nil {
		return err
	}
	follow := query.Get("follow") == "true"
	if follow && (!filter.Since.IsZero() || !filter.Until.IsZero()) {
		return api.Errorf(http.StatusUnprocessableEntity, "follow shows what is to come: ask for the past without it")
	}
	x := &flowReader{follow: follow, filter: filter, queue: make(chan flow.FlowRecord, flowQueue), ends: make(chan string, len(hosts)), gone: ctx.Done(), ended: map[string]bool{}}
	leave, err := c.subscribe(beginning, ctx, hosts, flow.FlowSubscription{FlowFilter: filter, Follow: follow}, x)
	if err != nil {
		return err
	}
	defer leave()
	kind := "application/x-ndjson"
	if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		kind = "text/event-stream"
	}
	out, err := newStream(w, kind)
	if err != nil {
		return nil // the client has gone
	}
	names := &flowNames{db: c.DB, snap: snap, read: time.Now()}
	c.sendFlows(ctx, &flowWriter{out, names, kind == "text/event-stream"}, hosts, x, follow)
	return nil
}

// whileValid returns a context that ends with the caller's token.
func whileValid(ctx context.Context) (context.Context, context.CancelFunc) {
	who := api.Who(ctx)
	if who == nil || who.Expires.IsZero() { // of a service that says no end
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, who.Expires)
}

// flowFilter reads the filter of a query.
func flowFilter(snap *records.Snap, caller neutron.Caller, query url.Values) (f flow.FlowFilter, err error) {
	f.Project, f.Network, f.Verdict = query.Get("project"), query.Get("network"), query.Get("verdict")
	if text := query.Get("port"); text != "" {
		port, err := explain.FindPort(snap, caller, text)
		if err != nil {
			return f, faultError(err)
		}
		f.Port = port.ID
	}
	unfit := func(name, want string) error {
		return api.Errorf(http.StatusUnprocessableEntity, "%s %q: want %s", name, query.Get(name), want)
	}
	if text := query.Get("code"); text != "" && (f.Code.UnmarshalText([]byte(text)) != nil || f.Code == 0) {
		return f, unfit("code", "one of docs/codes.md, such as no-rule")
	}
	if f.Verdict != "" && f.Verdict != flow.Forward.String() && f.Verdict != flow.Drop.String() && f.Verdict != flow.ErrorDrop.String() {
		return f, unfit("verdict", "forward, drop or error drop")
	}
	if text := query.Get("peer"); text != "" {
		if f.Peer, err = netip.ParsePrefix(text); err != nil {
			a, err := netip.ParseAddr(text)
			if err != nil {
				return f, unfit("peer", "an address or a prefix, such as 10.0.0.0/24")
			}
			f.Peer = netip.PrefixFrom(a, a.BitLen())
		}
	}
	for name, at := range map[string]*time.Time{"since": &f.Since, "until": &f.Until} {
		text := query.Get(name)
		if text == "" {
			continue
		}
		if *at, err = time.Parse(time.RFC3339, text); err != nil {
			return f, unfit(name, "a time such as 2026-11-28T06:00:00Z")
		}
	}
	if text := query.Get("proto"); text != "" {
		number, ok := protocols[text]
		if n, err := strconv.ParseUint(text, 10, 8); err == nil {
			number, ok = uint8(n), true
		}
		if f.Protocol = number; !ok {
			return f, unfit("proto", "tcp, udp, icmp, icmpv6, sctp or a number")
		}
	}
	if text := query.Get("service"); text != "" {
		n, err := strconv.ParseUint(text, 10, 16)
		if f.Service = uint16(n); err != nil || n == 0 {
			return f, unfit("service", "a destination port from 1 to 65535")
		}
	}
	return f, nil
}

var protocols = map[string]uint8{"tcp": packet.ProtoTCP, "udp": packet.ProtoUDP, "icmp": packet.ProtoICMP, "icmpv6": packet.ProtoICMPv6, "sctp": packet.ProtoSCTP}

// subscribe asks hosts to post, under a lease, until leave is called or life ends.
func (c *console) subscribe(ctx, life context.Context, hosts []*topology.Host, ask flow.FlowSubscription, x *flowReader) (leave func(), err error) {
	st := c.DB.Store()
	lease, err := st.Grant(ctx, flowLease)
	if err != nil {
		return nil, err
	}
	ask.URLs, ask.Pin = c.Flows.Reach()
	keeping, stop := context.WithCancel(life)
	var kept sync.WaitGroup
	kept.Go(func() { _ = st.KeepAlive(keeping, lease) }) // a lease that is lost ends the posts, which the client sees
	ids := map[string]bool{}
	leave = func() {
		stop()
		kept.Wait()
		c.Flows.remove(ids)
		away, cancel := context.WithTimeout(context.WithoutCancel(life), flowLease)
		defer cancel()
		_ = st.Revoke(away, lease) // without it the requests stay until the lease ends
	}
	requests := make([]*flow.TraceRequest, 0, len(hosts))
	for _, h := range hosts {
		one := ask
		one.Secret = rand.Text()
		r := &flow.TraceRequest{ID: uuid.NewString(), HostID: h.ID, Flows: &one}
		ids[r.ID] = true
		c.Flows.add(r.ID, &flowStream{host: h.Name, secret: one.Secret, reader: x})
		requests = append(requests, r)
	}
	_, err = c.DB.Update(ctx, func(tx *records.Tx) error {
		for _, r := range requests {
			if err := schema.TraceRequests.PutLeased(tx, r, lease); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

func (s *FlowStreams) add(id string, x *flowStream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams == nil {
		s.streams = map[string]*flowStream{}
	}
	s.streams[id] = x
}

func (s *FlowStreams) remove(ids map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range ids {
		delete(s.streams, id)
	}
}

// sendFlows writes records as they come, until the client leaves. Hosts that post nothing in time
// are named.
func (c *console) sendFlows(ctx context.Context, out *flowWriter, hosts []*topology.Host, x *flowReader, follow bool) {
	silent := time.NewTimer(c.TraceWait)
	defer silent.Stop()
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	left := len(hosts)
	for follow || left > 0 {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-api.Ending(ctx):
			return
		case r := <-x.queue:
			err = out.write(ctx, &r)
		case <-beat.C:
			err = out.beat()
		case <-x.ends:
			left--
		case <-silent.C:
			for _, h := range hosts {
				if _, heard := x.heard.Load(h.Name); !heard {
					left--
					err = out.write(ctx, &flow.FlowRecord{Host: h.Name, Error: "its agent posts no flow log: it is of an earlier version, or does not reach this server; look at its log"})
				}
			}
		}
		if err != nil {
			return
		}
	}
	for len(x.queue) > 0 {
		r := <-x.queue
		if out.write(ctx, &r) != nil {
			return
		}
	}
	if n := x.takeLost(); n > 0 {
		_ = out.write(ctx, &flow.FlowRecord{Lost: n})
	}
}

// flowWriter writes records to a client, each at once.
type flowWriter struct {
	*stream
	names  *flowNames
	events bool // server-sent events in place of lines
}

func (o *flowWriter) write(ctx context.Context, r *flow.FlowRecord) error {
	line, err := json.Marshal(o.names.named(ctx, r))
	if err != nil {
		return err
	}
	if o.events {
		return o.send(fmt.Sprintf("data: %s\n\n", line))
	}
	return o.send(string(line) + "\n")
}

// beat shows that the stream goes on.
func (o *flowWriter) beat() error {
	if o.events {
		return o.send(": \n\n")
	}
	return o.send("\n")
}
