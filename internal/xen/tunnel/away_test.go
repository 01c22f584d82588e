package tunnel

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"heddle/internal/store"
)

// fickle is a store that at times takes nothing that is decided about networks.
type fickle struct {
	store.Store
	mu    sync.Mutex
	away  bool
	asked intent // to be written last
	took  bool   // that
}

// Commit implements store.Store.
func (f *fickle) Commit(ctx context.Context, conds []store.Cond, ops []store.Op) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, op := range ops {
		if !strings.HasPrefix(op.Key, networksPrefix) {
			continue
		}
		f.asked = intent{}
		if err := json.Unmarshal(op.Value, &f.asked); err != nil {
			return 0, err
		}
		if f.took = !f.away; f.away {
			return 0, store.ErrUnavailable
		}
	}
	return f.Store.Commit(ctx, conds, ops)
}

func (f *fickle) set(away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = away
}

// asks is the intent that was to be written last.
func (f *fickle) asks() intent {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

// taken reports whether that was written.
func (f *fickle) taken() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.took
}

// calmBFD is a pace of BFD at which a path counts as down because its switch does not run, not
// because it waits for a processor: for tests in which nothing may move by itself.
const calmBFD = 600 * time.Millisecond

// TestUnwrittenMove has a center go and come back while the store is away: nobody moves it
// afterwards, unless it is still gone by then.
func TestUnwrittenMove(t *testing.T) {
	t.Parallel()
	l := newLab(t, 3)
	l.bfdEvery = calmBFD
	network, tunnels := l.star("gre")
	st := &fickle{Store: store.NewMemory()}
	c, _ := l.controller(st)
	l.active(tunnels, 0, 1, 2)
	l.reach()
	l.probing()
	uuid := l.call("network.get_uuid", network).(string)
	stored := func() (in intent) {
		kv, err := st.Get(l.ctx, networksPrefix+uuid)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(kv.Value, &in); err != nil {
			t.Fatal(err)
		}
		return in
	}
	l.until("the star is made", func() bool { return !stored().Moving() })
	before := stored()
	moves := c.figures.Load().moves
	freeze := func(frozen bool) {
		t.Helper()
		if err := l.hosts[0].FreezeSwitch(frozen); err != nil {
			t.Fatal(err)
		}
		l.until("a decision", func() bool { return (st.asks().Center != before.Center) == frozen })
	}

	rows := l.rows()
	st.set(true)
	freeze(true)
	freeze(false)
	l.probing()
	st.set(false)
	l.until("all is written", st.taken)
	l.active(tunnels, 0, 1, 2)
	l.reach()
	if in := stored(); in.Intent != before.Intent {
		t.Errorf("stored is %+v, was %+v", in.Intent, before.Intent)
	}
	if got := c.figures.Load().moves; got != moves || strings.Contains(l.log.String(), "center moves") {
		t.Errorf("%d moves, want %d", got, moves)
	}
	l.same(rows)

	st.set(true)
	freeze(true)
	st.set(false)
	l.moved(tunnels, 0, 1, 2)
	if in := stored(); in.Epoch != before.Epoch+1 || in.Key != before.Key {
		t.Errorf("stored is %+v, was %+v", in, before)
	}
	if got := c.figures.Load().moves; got != moves+1 {
		t.Errorf("%d moves, want %d", got, moves+1)
	}
	if err := l.hosts[0].FreezeSwitch(false); err != nil {
		t.Fatal(err)
	}
	l.active(tunnels, 0, 1, 2)
	l.reach()
}
