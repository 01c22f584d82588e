package tunnel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"heddle/internal/ovsdb"
	"heddle/internal/task"
	"heddle/internal/xen/ovs"
	"heddle/internal/xen/star"
)

// Statuses are true within two seconds: TestTruthInTime adds these up.
const (
	// followTimeout bounds the time in which ovs-vswitchd follows the database, and portTimeout
	// adds to it for each port.
	followTimeout = time.Second
	portTimeout   = 20 * time.Millisecond
	// probeEvery is the time of silence after which a database is probed, and the time for its
	// answer. It is not given up for that: a busy one answers after all, and to connect anew would
	// be more work for it.
	probeEvery = 600 * time.Millisecond
	// deadAfter is the time of silence after which the connection to a database is given up.
	deadAfter = 4 * time.Second
	// yieldFor is the time for which a switch is left to another controller that has taken it.
	yieldFor = 2 * time.Second
	// signKey is the key of the table Open_vSwitch's external_ids that says which controller the
	// switch obeys: store/term/connection.
	signKey = "heddle-tunnel-controller"
)

// mark identifies our ports. Beside it they bear their network's UUID, that of the host at the
// other end, and the epoch of the decision that they follow.
var mark = ovs.Mark{Key: "heddle-owner", Value: "tunnel-controller"}

const (
	networkID = "heddle-network"
	peerID    = "heddle-peer"
	epochID   = "heddle-epoch"
)

// job is one transaction on a host.
type job struct {
	connection int64 // that it was made for; on another one it is void
	steps      []star.Step
	flush      []string // bridges that are to forget learnt addresses
}

// obeysLater is the event that a switch obeys a later leader.
type obeysLater struct{ err error }

// obeyed writes into a switch's database which leader it obeys.
type obeyed struct {
	identity string // of the store
	term     int64
}

// sign is the text of a connection.
func (o obeyed) sign(connection int64) string {
	return fmt.Sprintf("%s/%d/%d", o.identity, o.term, connection)
}

// later reports whether a sign is that of a later leader over the same store.
func (o obeyed) later(sign string) bool {
	identity, rest, _ := strings.Cut(sign, "/")
	term, _, _ := strings.Cut(rest, "/")
	n, err := strconv.ParseInt(term, 10, 64)
	return err == nil && identity == o.identity && n > o.term
}

// worker does what is to be done on one host's switch, one thing after another.
type worker struct {
	client *ovs.Client
	report func(event any) // of the switch; it does not wait
	obeyed obeyed
	jobs   chan job // holds one

	bfdEvery time.Duration

	signs      *atomic.Int64 // counts the connections of all workers, so that no sign comes twice
	connection int64
	sign       string    // in the database; "": none of ours is there
	behind     bool      // ovs-vswitchd has not done all that the database says
	known      bool      // switchObeys was reported last
	yield      time.Time // until when another controller is given way to
	retry      *task.Alarm
}

func newWorker(client *ovs.Client, o obeyed, bfdEvery time.Duration, signs *atomic.Int64, report func(event any)) *worker {
	return &worker{client: client, report: report, obeyed: o, bfdEvery: bfdEvery, signs: signs, jobs: make(chan job, 1), retry: task.NewAlarm()}
}

// run works until ctx ends.
func (w *worker) run(ctx context.Context) {
	defer w.client.Close()
	for first := true; ctx.Err() == nil; first = false {
		changed := w.client.Changed()
		if !first || w.client.Snapshot().Lost == nil { // at first it has not been tried
			w.look(ctx)
		}
		select {
		case <-ctx.Done():
		case <-changed:
			w.report(switchChanged{})
		case <-w.retry.C:
		case j := <-w.jobs:
			o := w.do(ctx, j)
			if w.known = o.lost == nil; !w.known {
				w.again()
			}
			w.report(o)
		}
	}
}

func (w *worker) again() { w.retry.Set(time.Now().Add(retryAfter)) }

// look sees whether the switch obeys and follows.
func (w *worker) look(ctx context.Context) {
	snap := w.client.Snapshot()
	switch {
	case snap.Lost != nil:
		w.sign = ""
		w.leave(snap.Lost)
	case w.sign == "" && time.Now().Before(w.yield):
	case w.sign == "":
		if err := w.salute(ctx, snap); err != nil {
			w.leave(err)
			w.again()
			return
		}
		w.meet()
	case snap.Root != nil && snap.Root.ExternalIDs[signKey] != w.sign:
		w.outdone(snap.Root.ExternalIDs[signKey])
	case snap.Silent != nil:
		w.leave(snap.Silent)
	case w.behind && snap.Root != nil && snap.Root.CurCfg >= snap.Root.NextCfg:
		w.behind = false
		w.meet()
	default:
		w.meet() // where it was merely silent
	}
}

// outdone notes that another program has put its sign into the database: a later leader, or a
// controller over another store, with which this one would fight without end if it did not pause.
func (w *worker) outdone(other string) {
	w.sign = ""
	err := fmt.Errorf("the switch obeys another controller: %q", other)
	if w.obeyed.later(other) {
		w.report(obeysLater{err})
	}
	w.leave(err)
	w.yield = time.Now().Add(yieldFor)
	w.retry.Set(w.yield)
}

func (w *worker) meet() {
	if !w.known && !w.behind {
		w.known = true
		w.report(switchObeys{w.connection})
	}
}

func (w *worker) leave(why error) {
	w.known = false
	w.report(switchLost{why})
}

// salute has the switch obey this connection from now on: what was sent on another, and comes late,
// is not done. It waits until ovs-vswitchd has applied the earlier changes.
func (w *worker) salute(ctx context.Context, snap *ovs.Snapshot) error {
	if snap.Root == nil {
		return errors.New("the database has no row in the table Open_vSwitch")
	}
	before := snap.Root.ExternalIDs
	if w.obeyed.later(before[signKey]) {
		err := fmt.Errorf("the switch obeys another controller: %q", before[signKey])
		w.report(obeysLater{err})
		return err
	}
	w.connection = w.signs.Add(1)
	sign := w.obeyed.sign(w.connection)
	after := maps.Clone(before)
	if after == nil {
		after = map[string]string{}
	}
	after[signKey] = sign
	err := w.apply(ctx, 0,
		ovsdb.Wait(ovs.Database, ovsdb.Is(snap.Root.UUID), "==", 0, []string{"external_ids"}, ovsdb.Row{"external_ids": ovsdb.Strings(before)}),
		ovsdb.Update(ovs.Database, ovsdb.Is(snap.Root.UUID), ovsdb.Row{"external_ids": ovsdb.Strings(after)}))
	if err == nil || w.behind {
		w.sign = sign
	}
	return err
}

// apply carries out operations and waits for ovs-vswitchd. If that takes too long, behind is set.
func (w *worker) apply(ctx context.Context, ports int, ops ...ovsdb.Op) error {
	ctx, cancel := context.WithTimeout(ctx, followTimeout+time.Duration(ports)*portTimeout)
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	listening := make(chan struct{})
	go func() {
		defer close(listening)
		if snap, err := w.client.Wait(ctx, func(s *ovs.Snapshot) bool { return s.Silent != nil }); err == nil {
			giveUp(snap.Silent)
		}
	}()
	_, _, err := w.client.Apply(ctx, ops...)
	giveUp(nil)
	<-listening
	if w.behind = errors.Is(err, ovs.ErrNotApplied) && w.client.Snapshot().Lost == nil; w.behind {
		return errBehind
	}
	return err
}

// errVoid is the error of a job whose connection was lost before it was sent.
var errVoid = errors.New("the connection to the database was lost")

// errBehind is the error when the database answers and the daemon does not.
var errBehind = errors.New("ovs-vswitchd does not do what the database says")

// do carries a job out.
func (w *worker) do(ctx context.Context, j job) jobDone {
	o := jobDone{failed: map[string]string{}}
	if j.connection != w.connection || w.sign == "" || w.behind {
		if !w.known {
			o.lost = errVoid
		}
		return o
	}
	if o.lost = w.attempt(ctx, j, o.failed); o.lost != nil && !w.behind {
		w.sign = ""
	}
	return o
}

// attempt carries a job out in one transaction, and if a part of it is refused, each part in its
// own. Its error is that the switch is not known any more.
func (w *worker) attempt(ctx context.Context, j job, failed map[string]string) error {
	snap := w.client.Snapshot()
	e := ovs.NewEdit(snap, mark)
	ports := 0
	for _, st := range j.steps {
		if err := stage(ovs.NewEdit(snap, mark), st, w.bfdEvery); err != nil {
			failed[st.Network] = err.Error()
			continue
		}
		_ = stage(e, st, w.bfdEvery) // as before
		ports += len(st.Delete) + len(st.Put)
	}
	for _, bridge := range j.flush {
		e.FlushMACs(bridge)
	}
	if len(e.Ops()) == 0 || snap.Root == nil {
		return snap.Lost
	}
	err := w.apply(ctx, ports, append([]ovsdb.Op{w.obeys(snap)}, e.Ops()...)...)
	var refused *ovsdb.OpError
	switch {
	case !errors.As(err, &refused) || refused.Index == 0:
		return err
	case len(j.steps) == 1:
		failed[j.steps[0].Network] = refused.Error()
		return nil
	}
	for i := range j.steps {
		if err := w.attempt(ctx, job{steps: j.steps[i : i+1 : i+1]}, failed); err != nil {
			return err
		}
	}
	if len(j.steps) == 0 {
		return nil
	}
	return w.attempt(ctx, job{flush: j.flush}, failed)
}

// obeys is the condition of all that is done: the switch obeys this connection.
func (w *worker) obeys(snap *ovs.Snapshot) ovsdb.Op {
	where := []ovsdb.Condition{{"external_ids", "includes", ovsdb.Strings{signKey: w.sign}}}
	return ovsdb.Wait(ovs.Database, where, "==", 0, []string{"_uuid"}, ovsdb.Row{"_uuid": snap.Root.UUID})
}

// stage puts a step into a transaction.
func stage(e *ovs.Edit, st star.Step, bfdEvery time.Duration) error {
	for _, f := range st.Delete {
		if err := e.DeletePort(f.Name); err != nil {
			return err
		}
	}
	for _, l := range st.Put {
		if err := e.EnsurePort(st.Bridge, spec(st.Network, l, bfdEvery)); err != nil {
			return err
		}
	}
	return nil
}

// spec is a leg's end as a port.
func spec(network string, l star.Leg, bfdEvery time.Duration) ovs.PortSpec {
	p := ovs.PortSpec{
		Name: l.Name, Type: l.Type,
		Options:     map[string]string{"remote_ip": l.RemoteIP, "local_ip": l.LocalIP, "key": strconv.FormatUint(uint64(l.Key), 10)},
		ExternalIDs: map[string]string{networkID: network, peerID: l.Peer, epochID: strconv.FormatUint(l.Epoch, 10)},
	}
	if l.BFD {
		every := strconv.FormatInt(bfdEvery.Milliseconds(), 10)
		p.BFD = map[string]string{"enable": "true", "min_rx": every, "min_tx": every}
	}
	return p
}

// end is an end of a leg as a database has it, and what the network is.
type end struct {
	star.Found
	network string
	bfd     string // bfd_status:state, "" where there is none
}

// endOf reads a port that bears our mark; false for others.
func endOf(snap *ovs.Snapshot, p *ovs.Port) (end, bool) {
	if p == nil || !mark.On(p.ExternalIDs) {
		return end{}, false
	}
	e := end{network: p.ExternalIDs[networkID]}
	e.Name, e.Peer = p.Name, p.ExternalIDs[peerID]
	e.Epoch, _ = strconv.ParseUint(p.ExternalIDs[epochID], 10, 64)
	if b := snap.BridgeOf(p.UUID); b != nil {
		e.Bridge = b.Name
	}
	if i := snap.InterfaceOf(p); i != nil {
		e.Type, e.RemoteIP, e.LocalIP = i.Type, i.Options["remote_ip"], i.Options["local_ip"]
		key, _ := strconv.ParseUint(i.Options["key"], 10, 32)
		e.Key = uint32(key)
		e.BFD = i.BFD["enable"] == "true"
		e.OfPort, e.Error = int(i.OfPort), i.Error
		e.bfd = i.BFDStatus["state"]
	}
	return e, e.network != ""
}

// bridgesByNetwork returns the names of bridges by the UUIDs of their networks.
func bridgesByNetwork(snap *ovs.Snapshot) map[string]string {
	all := map[string]string{}
	for _, id := range slices.Sorted(maps.Keys(snap.Bridges)) {
		b := snap.Bridges[id]
		for network := range strings.FieldsFuncSeq(b.ExternalIDs["xs-network-uuids"], func(r rune) bool { return r == ';' || r == ',' || r == ' ' }) {
			all[network] = b.Name
		}
	}
	return all
}
