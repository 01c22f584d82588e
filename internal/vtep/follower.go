package vtep

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"heddle/internal/neutron"
	"heddle/internal/ovsdb"
	"heddle/internal/store/schema"
	"heddle/internal/task"
	"heddle/internal/topology"
	"heddle/internal/topology/packet"
)

const (
	// leastBetween is the least time between two transactions: a switch that undoes them is not
	// kept busy.
	leastBetween = 200 * time.Millisecond
	// mostBetween is the longest time until a transaction that was refused is tried again.
	mostBetween = 30 * time.Second
	// leaveTime is the longest time for which a switch whose device is gone is cleared.
	leaveTime = 10 * time.Second
)

// follower is the connection to one device's switch.
type follower struct {
	*leader
	device  string
	address string
	log     *slog.Logger
	cancel  context.CancelFunc // ends run
	ended   chan struct{}
	settled chan struct{} // closed once it was heard, or has had the time for it
	changed task.Notice   // given when what is desired has changed

	mu       sync.Mutex
	segments []segment
	learned  learnedBehind
	leaving  bool // run ends once nothing of ours is left at the switch, or the switch is lost

	// Of run alone.
	reported map[string]bool // keys of learned remotes
	state    topology.GatewayState
	lostAt   time.Time
	moves    moves
	retry    task.Backoff
}

func newFollower(l *leader, d *neutron.GatewayDevice) *follower {
	return &follower{leader: l, device: d.ID, address: addressOf(d), log: l.log.With("device", d.ID, "switch", addressOf(d)),
		ended: make(chan struct{}), settled: make(chan struct{}), changed: task.NewNotice(), reported: map[string]bool{},
		state: topology.GatewayState{HolderID: topology.RemoteHolder, DeviceID: d.ID, Server: l.opts.Server},
		moves: moves{}, retry: task.Backoff{Least: leastBetween, Most: mostBetween}}
}

// want sets what the switch should know.
func (f *follower) want(segments []segment, learned learnedBehind) {
	f.mu.Lock()
	f.segments, f.learned = segments, learned
	f.mu.Unlock()
	f.changed.Give()
}

func (f *follower) desired() ([]segment, learnedBehind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.segments, f.learned
}

func (f *follower) isLeaving() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.leaving
}

// stop clears the switch if it answers, and ends the follower and what it reports: the device is
// gone, or has another address.
func (f *follower) stop(ctx context.Context) {
	f.mu.Lock()
	f.leaving, f.segments, f.learned = true, nil, nil
	f.mu.Unlock()
	f.changed.Give()
	enough := time.NewTimer(leaveTime)
	defer enough.Stop()
	select {
	case <-f.ended:
	case <-enough.C:
		f.log.Warn("left a switch that took no changes; rows of ours may remain there")
	case <-ctx.Done():
	}
	f.cancel()
	<-f.ended
	for key := range f.reported {
		f.reports.Delete(key)
	}
	f.reports.Delete(stateKey(f.device))
}

// start keeps the switch in step until ctx ends or stop is called.
func (f *follower) start(ctx context.Context) {
	ctx, f.cancel = context.WithCancel(ctx)
	f.running.Go(func() {
		defer close(f.ended)
		defer f.settle()
		defer f.cancel()
		f.run(ctx)
	})
}

func (f *follower) run(ctx context.Context) {
	client, err := ovsdb.Open(&model, ovsdb.Options{Address: f.address, Dial: f.opts.Dial, Log: f.log})
	if err != nil { // the record's address was checked
		f.log.Error("cannot follow the switch", "err", err)
		return
	}
	defer client.Close()
	f.lostAt = time.Now()
	grace := time.AfterFunc(f.opts.Kept, func() { f.changed.Give() })
	defer grace.Stop()
	for ctx.Err() == nil {
		changed, leaving := client.Changed(), f.isLeaving()
		pause := f.pass(ctx, client, grace)
		if pause > 0 {
			task.Pause(ctx, pause)
			continue
		}
		if leaving {
			return
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-f.changed:
		}
	}
}

// pass compares the switch's tables with what is desired, and writes differences on both sides. If
// it has written to the switch, or could not, it returns a pause before the next pass.
func (f *follower) pass(ctx context.Context, client *ovsdb.Client[*tables], grace *time.Timer) (pause time.Duration) {
	now := client.Snapshot()
	segments, learned := f.desired()
	if now.Lost != nil {
		f.lost(now.Lost, grace)
		return 0
	}
	f.lostAt = time.Time{}
	f.settle()
	l := readLocals(now, segments)
	f.report(l.remotes)
	f.moves.note(l, segments, learned)
	ops, faults := plan(now, f.moves.withoutMoved(segments, learned))
	faults = append(l.faults(), faults...)
	if len(ops) > 0 {
		pause = leastBetween
		if _, err := client.Transact(ctx, ops...); err == nil {
			f.retry.Reset()
		} else if !errors.Is(err, ovsdb.ErrLost) && ctx.Err() == nil {
			faults = append(faults, err.Error())
			pause = f.retry.Next()
		}
	}
	f.heard(now, faults)
	return pause
}

func (f *follower) settle() {
	select {
	case <-f.settled:
	default:
		close(f.settled)
	}
}

// lost keeps what the switch has said for a while, and then no longer.
func (f *follower) lost(why error, grace *time.Timer) {
	if f.lostAt.IsZero() {
		f.lostAt = time.Now()
		grace.Reset(f.opts.Kept)
	}
	if time.Since(f.lostAt) >= f.opts.Kept {
		if len(f.reported) > 0 {
			f.log.Warn("forgot what the lost switch had learned", "addresses", len(f.reported))
		}
		f.report(nil)
		f.settle()
	}
	s := f.state
	s.Connected, s.Since, s.Faults = false, time.Time{}, []string{why.Error()}
	f.setState(s)
}

// heard reports the switch as it is.
func (f *follower) heard(now *tables, faults []string) {
	s := f.state
	if !s.Connected {
		s.Connected, s.Since = true, time.Now().UTC().Truncate(time.Second)
	}
	s.Switches, s.Ports = now.names()
	s.Faults = faults
	f.setState(s)
}

func (f *follower) setState(s topology.GatewayState) {
	for _, fault := range s.Faults {
		if !slices.Contains(f.state.Faults, fault) {
			f.log.Warn("fault of a gateway device's switch", "fault", fault)
		}
	}
	f.state = s
	if err := f.reports.SetRecord(stateKey(f.device), &s); err != nil {
		f.log.Error("cannot report the state of a gateway device", "err", err)
	}
}

// report sets the records of what is behind the switch, and deletes others.
func (f *follower) report(remotes map[string]*topology.LearnedRemote) {
	keys := make(map[string]bool, len(remotes))
	for _, r := range remotes {
		key := schema.LearnedRemotes.KeyOf(r)
		keys[key] = true
		if err := f.reports.SetRecord(key, r); err != nil {
			f.log.Error("cannot report what is behind a switch", "err", err)
		}
	}
	for key := range f.reported {
		if !keys[key] {
			f.reports.Delete(key)
		}
	}
	f.reported = keys
}

// moves remembers which side of a gateway has seen each MAC address last: the switch, or a host
// that has learned it. A seeded address is always ours.
type moves map[moved]sides

type moved struct {
	network string
	mac     packet.MAC
}

// sides holds what each side says of an address, and which has said something new last.
type sides struct {
	remote   string // VTEP; "": nothing
	port     string
	isRemote bool
}

// note takes in what both sides say now.
func (m moves) note(l *locals, segments []segment, learned learnedBehind) {
	now := map[moved]sides{}
	for _, r := range l.remotes {
		key := moved{r.NetworkID, r.MAC}
		now[key] = sides{remote: r.VTEP.String()}
	}
	for i := range segments {
		for mac, port := range learned[segments[i].networkID] {
			if port == segments[i].behindID {
				continue // what came through the gateway
			}
			key := moved{segments[i].networkID, mac}
			s := now[key]
			s.port = port
			now[key] = s
		}
	}
	for key, s := range now {
		was := m[key]
		switch {
		case s.port == "":
			s.isRemote = true
		case s.remote == "":
			s.isRemote = false
		case s.remote != was.remote: // also of two that are new: the simulator takes what was written last
			s.isRemote = true
		case s.port != was.port:
			s.isRemote = false
		default:
			s.isRemote = was.isRemote
		}
		now[key] = s
	}
	clear(m)
	maps.Copy(m, now)
}

// withoutMoved returns the segments with the addresses that hosts have learned, but not those that
// the switch has seen later.
func (m moves) withoutMoved(segments []segment, learned learnedBehind) []segment {
	all := slices.Clone(segments)
	for i := range all {
		s := &all[i]
		s.macs = maps.Clone(s.macs)
		for mac, port := range learned[s.networkID] {
			_, seeded := s.macs[mac]
			if !seeded && port != s.behindID && !m[moved{s.networkID, mac}].isRemote {
				s.macs[mac] = netip.Addr{}
			}
		}
	}
	return all
}
