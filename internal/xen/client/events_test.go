package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"heddle/internal/xen/client"
	"heddle/internal/xen/model"
)

// change is an event as servers send it.
func change(class, operation, ref, name string) any {
	e := map[string]any{"id": "12", "timestamp": "0.0", "class": class, "operation": operation, "ref": ref}
	if operation != "del" {
		e["snapshot"] = map[string]any{"uuid": ref, "name_label": name}
	}
	return e
}

// answerBatch is an answer to event.from.
func answerBatch(token string, networks int64, events ...any) any {
	if events == nil {
		events = []any{}
	}
	return map[string]any{"events": events, "token": token, "valid_ref_counts": map[string]any{"network": networks, "task": int64(0)}}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(c call) (any, *model.Error) {
		if c.method == "event.from" {
			return answerBatch("00000000000000000007,00000000000000000000", 1, change("network", "add", "OpaqueRef:a", "x"), change("sdn_controller", "mod", "OpaqueRef:s", "y"), change("pif", "del", "OpaqueRef:p", "")), nil
		}
		return nil, nil
	})
	b, err := dial(t, s, client.Options{}).Events(context.Background(), []string{"network", "PIF"}, "", 1500*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	network := model.New("network")
	network["uuid"], network["name_label"], network["VIFs"], network["PIFs"] = "OpaqueRef:a", "x", []string{}, []string{}
	want := client.Batch{Token: "00000000000000000007,00000000000000000000", Counts: map[string]int64{"network": 1, "task": 0}, Events: []client.Event{
		{Class: "network", Operation: client.Add, Ref: "OpaqueRef:a", Record: network},
		{Class: "sdn_controller", Operation: client.Mod, Ref: "OpaqueRef:s", Record: model.Record{"uuid": "OpaqueRef:s", "name_label": "y"}},
		{Class: "PIF", Operation: client.Del, Ref: "OpaqueRef:p"},
	}}
	if diff := cmp.Diff(want, b); diff != "" {
		t.Error(diff)
	}
	asked := s.calls[len(s.calls)-1].params[1:]
	if diff := cmp.Diff([]any{[]any{"network", "PIF"}, "", 1.5}, asked); diff != "" {
		t.Error(diff)
	}
}

// step is one answer of a server to event.from, and what Follow tells of it.
type step struct {
	token   string // that the client must ask with
	answer  any
	failure *model.Error
	told    []string // operation and reference of each; nil: it says nothing
}

// TestFollow: the copy is what the server has, whatever the server forgot to say.
func TestFollow(t *testing.T) {
	t.Parallel()
	lost := &model.Error{Code: "EVENTS_LOST"}
	for name, steps := range map[string][]step{
		"changes": {
			{"", answerBatch("1", 1, change("network", "add", "a", "x")), nil, []string{"add a"}},
			{"1", answerBatch("2", 2, change("network", "add", "b", "y"), change("network", "mod", "a", "z")), nil, []string{"add b", "mod a"}},
			{"2", answerBatch("3", 2), nil, nil},
			{"3", answerBatch("4", 1, change("network", "del", "a", "")), nil, []string{"del a"}},
		},
		"none at the start": {
			{"", answerBatch("1", 0), nil, []string{}},
		},
		"events lost": {
			{"", answerBatch("1", 2, change("network", "add", "a", "x"), change("network", "add", "b", "y")), nil, []string{"add a", "add b"}},
			{"1", nil, lost, nil},
			{"", answerBatch("9", 2, change("network", "add", "a", "changed"), change("network", "add", "c", "z")), nil, []string{"mod a", "add c", "del b"}},
		},
		"another count": { // as after a compaction: what is alive comes as add, what died not at all
			{"", answerBatch("1", 2, change("network", "add", "a", "x"), change("network", "add", "b", "y")), nil, []string{"add a", "add b"}},
			{"1", answerBatch("7", 1, change("network", "add", "b", "y")), nil, []string{"add b"}},
			{"", answerBatch("8", 1, change("network", "add", "b", "y")), nil, []string{"del a"}},
		},
		"session forgotten": {
			{"", answerBatch("1", 1, change("network", "add", "a", "x")), nil, []string{"add a"}},
			{"1", nil, model.SessionInvalid("OpaqueRef:session"), nil},
			{"1", answerBatch("1", 1), nil, nil},
			{"", answerBatch("1", 1, change("network", "add", "b", "x")), nil, []string{"add b", "del a"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			follow(t, steps)
		})
	}
}

// follow plays the steps.
func follow(t *testing.T, steps []step) {
	var want [][]string
	for _, st := range steps {
		if st.told != nil {
			want = append(want, st.told)
		}
	}
	logins, at := 0, 0
	s := newServer(t, func(c call) (any, *model.Error) {
		switch c.method {
		case "session.login_with_password":
			logins++
			return "OpaqueRef:session" + string(rune('0'+logins)), nil
		case "event.from":
			if at == len(steps) {
				return nil, model.InternalError("the end")
			}
			st := steps[at]
			at++
			if c.params[2] != st.token {
				t.Errorf("step %d: asked with token %v, want %q", at, c.params[2], st.token)
			}
			return st.answer, st.failure
		}
		return nil, nil
	})
	session := dial(t, s, client.Options{})
	var told [][]string
	err := session.Follow(context.Background(), []string{"network"}, func(all client.Objects, events []client.Event) error {
		lines := []string{}
		for _, e := range events {
			lines = append(lines, string(e.Operation)+" "+e.Ref)
			if _, there := all["network"][e.Ref]; there != (e.Operation != client.Del) {
				t.Errorf("%s %s: in the copy: %v", e.Operation, e.Ref, there)
			}
		}
		told = append(told, lines)
		return nil
	})
	if client.Code(err) != "INTERNAL_ERROR" {
		t.Errorf("ended with %v", err)
	}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Error(diff)
	}
}

// TestFollowStops: it ends with what changed says, and with its context.
func TestFollowStops(t *testing.T) {
	t.Parallel()
	waiting := make(chan struct{})
	stop := make(chan struct{})
	s := newServer(t, func(c call) (any, *model.Error) {
		if c.method != "event.from" {
			return nil, nil
		}
		if c.params[2] != "" {
			close(waiting)
			<-stop
		}
		return answerBatch("1", 0), nil
	})
	session := dial(t, s, client.Options{})
	t.Cleanup(func() { close(stop) })
	enough := errors.New("enough")
	if err := session.Follow(context.Background(), []string{"network"}, func(client.Objects, []client.Event) error { return enough }); err != enough {
		t.Errorf("got %v, want %v", err, enough)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-waiting
		cancel()
	}()
	if err := session.Follow(ctx, []string{"network"}, func(client.Objects, []client.Event) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// TestBadEvents: an answer that is none is an error, not a loss.
func TestBadEvents(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]any{
		"text": "hello", "no token": map[string]any{"events": []any{}, "valid_ref_counts": map[string]any{}},
		"no events": map[string]any{"token": "1", "valid_ref_counts": map[string]any{}}, "no counts": map[string]any{"token": "1", "events": []any{}},
		"event of text": answerBatch("1", 0, "hello"), "no such operation": answerBatch("1", 0, change("network", "rename", "a", "x")),
		"no reference": answerBatch("1", 0, change("network", "add", "", "x")), "no snapshot": answerBatch("1", 0, map[string]any{"class": "network", "operation": "mod", "ref": "a"}),
		"count of text": map[string]any{"token": "1", "events": []any{}, "valid_ref_counts": map[string]any{"network": "many"}},
	} {
		s := newServer(t, func(c call) (any, *model.Error) {
			if c.method == "event.from" {
				return answer, nil
			}
			return nil, nil
		})
		if b, err := dial(t, s, client.Options{}).Events(context.Background(), []string{"network"}, "", 0); err == nil {
			t.Errorf("%s: is taken as %+v", name, b)
		}
	}
}
