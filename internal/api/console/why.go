package console

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"heddle/internal/api"
	"heddle/internal/api/operator"
	"heddle/internal/explain"
	"heddle/internal/history"
	"heddle/internal/neutron"
	"heddle/internal/store/records"
	"heddle/internal/topology/flow"
)

// faultStatus has the statuses that answer faults of questions.
var faultStatus = map[explain.FaultKind]int{
	explain.Invalid: http.StatusBadRequest, explain.Missing: http.StatusNotFound,
	explain.Ambiguous: http.StatusConflict, explain.Unfit: http.StatusConflict,
	explain.Late: http.StatusServiceUnavailable,
}

// questionTime bounds how long a question may take, and mostQuestions how many of them a user may
// have in flight.
const (
	questionTime  = 10 * time.Second
	mostQuestions = 2
	// liveWait bounds how long a question waits for a real packet.
	liveWait = 20 * time.Second
	// sinceSearch bounds the search for the change since which a verdict is as it is. It leaves
	// time to say how far it has come.
	sinceSearch = 7 * time.Second
)

// inFlight counts questions that are being answered.
type inFlight struct {
	mu     sync.Mutex
	byUser map[string]int
}

// begin counts a question of a user until end is called; it refuses too many.
func (q *inFlight) begin(user string) (end func(), err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.byUser[user] >= mostQuestions {
		return nil, api.Errorf(http.StatusTooManyRequests, "%d questions of this user are being answered: wait for one of them", mostQuestions)
	}
	q.byUser[user]++
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.byUser[user]--; q.byUser[user] == 0 {
			delete(q.byUser, user)
		}
	}, nil
}

// why answers whether a new connection would pass, and why. Members and readers of a project ask
// about its own ports, administrators about all.
func (c *console) why(r *http.Request, req *operator.WhyRequest) (*operator.WhyAnswer, error) {
	caller := api.Caller(r.Context())
	if err := checkAsker(caller); err != nil {
		return nil, err
	}
	end, err := c.asked.begin(caller.UserID)
	if err != nil {
		return nil, err
	}
	defer end()
	limit := questionTime
	if req.Live || req.Dropped {
		limit += liveWait
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit)
	defer cancel()
	if err := checkPast(caller, req); err != nil {
		return nil, err
	}
	at, err := c.moment(ctx, req.At)
	if err != nil {
		return nil, err
	}
	if len(req.With) > 0 && (req.Live || req.Dropped || req.Reply) {
		return nil, api.Errorf(http.StatusBadRequest, "with: no host has the change: ask without live, dropped and reply")
	}
	if at, err = c.with(ctx, at, req.With); err != nil {
		return nil, err
	}
	snap := at.snap
	ask := func(ctx context.Context, p *explain.Probe) (*flow.TraceAnswer, error) {
		if at.time != nil || at.draft != nil {
			return nil, nil // agents know the present
		}
		if p.Live != nil {
			return c.askAgent(ctx, snap, flow.TraceRequest{HostID: p.HostID, PortID: p.PortID, Live: p.Live}, liveWait)
		}
		return c.askLive(ctx, snap, entry{p.PortID, p.HostID}, p.Frame, p.State)
	}
	a, err := at.world.Why(ctx, snap, caller, req, explain.Sources{Ask: ask, Calico: c.calicoAt(at)})
	if err != nil {
		return nil, faultError(err)
	}
	a.Time, a.Refused = at.time, at.refused()
	if caller.Admin() {
		a.Revision, a.Names = at.revision(), whyNames(snap, a)
	}
	if req.Since {
		err = c.since(ctx, caller, req, a)
	}
	return a, err
}

// checkAsker refuses callers who are neither administrators nor members or readers of a project.
func checkAsker(caller neutron.Caller) error {
	mayAsk := caller.ProjectID != "" && (slices.Contains(caller.Roles, "member") || slices.Contains(caller.Roles, "reader"))
	if !caller.Admin() && !mayAsk {
		return api.Errorf(http.StatusForbidden, "This call wants the role admin, or the role member or reader in a project.")
	}
	return nil
}

// since adds to an answer the change since which it has its verdict.
func (c *console) since(ctx context.Context, caller neutron.Caller, q *operator.WhyRequest, a *operator.WhyAnswer) error {
	present, err := c.past(ctx)
	if err != nil {
		return err
	}
	past, err := history.NewRewind(c.Journal, present)
	if err != nil {
		return api.Errorf(http.StatusNotFound, "since: %v", err)
	}
	searching, cancel := context.WithTimeout(ctx, sinceSearch)
	defer cancel()
	turn, err := explain.NewWorld().Since(present, caller, q, past.Earlier(searching))
	if err != nil {
		return faultError(err)
	}
	s := &operator.WhySince{Verdict: turn.Verdict, Before: turn.Before, Fault: turn.Fault, Looked: turn.Looked}
	if s.Back, s.End, s.Gap, err = past.End(); err != nil {
		return err
	}
	if turn.Turned() {
		s.Change = past.Undone()
		maps.Copy(a.Names, changeNames(present, caller, []operator.Revision{*s.Change}))
	}
	a.Since = s
	return nil
}

// checkPast refuses questions about the past that have no answer.
func checkPast(caller neutron.Caller, q *operator.WhyRequest) error {
	switch {
	case q.Since && (q.At != "" || q.Live || q.Dropped || q.Reply || len(q.With) > 0):
		return api.Errorf(http.StatusBadRequest, "since: it is about a new connection at present: ask without at, live, dropped, reply and with")
	case q.At == "" && !q.Since:
		return nil
	case !caller.Admin():
		return api.Errorf(http.StatusForbidden, "A question about the past wants the role admin.")
	case q.Live || q.Dropped:
		return api.Errorf(http.StatusBadRequest, "at: real packets are those of the present: ask without live and dropped")
	}
	return nil
}

// whyNames returns what the ids in an answer stand for.
func whyNames(snap *records.Snap, a *operator.WhyAnswer) map[string]flow.TraceName {
	texts := []string{a.From.Port, a.To.Port}
	var traces []*flow.TraceAnswer
	var nearest []operator.NearestRule
	for _, l := range []*operator.WhyLeg{&a.There, a.Back} {
		for ; l != nil; l = l.Rest {
			texts = append(texts, l.Reason, l.Port)
			traces = append(traces, &l.Trace)
			nearest = append(nearest, l.Nearest...)
		}
	}
	for _, n := range nearest {
		texts = append(texts, n.Group, n.Text)
		texts = append(texts, n.Fails...)
	}
	for _, r := range a.Remedies {
		texts = append(texts, r.Text)
	}
	var ids []string
	for _, t := range traces {
		ids = append(ids, idsIn(t)...)
	}
	return namesOf(snap, append(ids, idsOf(texts)...))
}
