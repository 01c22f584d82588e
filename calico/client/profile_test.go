package client_test

import (
	"errors"
	"testing"

	"heddle/calico"
	"heddle/calico/client"
)

func TestProfiles(t *testing.T) {
	t.Parallel()
	w, ctx := start(t), t.Context()
	tags := calico.ProfileTags{"a"}
	labels := calico.ProfileLabels{"x": "y"}
	if _, err := w.GetProfile(ctx, "p"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("get of none: %v", err)
	}
	made := client.Profile{ID: "p", Rules: &calico.ProfileRules{}, Tags: &tags}
	at := must(w.Commit(ctx, client.OpCreateProfile(made)...))(t)
	if _, err := w.Commit(ctx, client.OpCreateProfile(client.Profile{ID: "p", Labels: &labels})...); !errors.Is(err, client.ErrExists) {
		t.Errorf("second create: %v", err)
	}
	s := must(w.List(ctx, calico.ProfileRulesKey{}, calico.ProfileTagsKey{}, calico.ProfileLabelsKey{}))(t)
	if len(s.Entries) != 2 || s.Entries[0].Revision != at || s.Entries[1].Revision != at {
		t.Errorf("parts: %+v", s.Entries)
	}
	p := must(w.GetProfile(ctx, "p"))(t)
	if p.Rules == nil || p.Tags == nil || p.Labels != nil {
		t.Errorf("get: %+v", p)
	}
	other := must(w.GetProfile(ctx, "p"))(t)
	p.Tags, p.Labels = nil, &labels
	must(w.Commit(ctx, client.OpUpdateProfile(p)...))(t)
	if _, err := w.Commit(ctx, client.OpUpdateProfile(other)...); !errors.Is(err, client.ErrNotFound) || !errors.Is(err, client.ErrExists) {
		t.Errorf("update of what was changed meanwhile: %v", err)
	}
	must(w.Commit(ctx, client.OpApplyProfile(client.Profile{ID: "q", Tags: &tags})...))(t)
	w.put(t, "/calico/v1/policy/profile/q/rules", "{")
	q, err := w.GetProfile(ctx, "q")
	if !errors.Is(err, client.ErrInvalid) || q.Tags == nil {
		t.Errorf("one part invalid: %+v, %v", q, err)
	}
	all := must(w.ListProfiles(ctx))(t)
	if len(all) != 2 || all[0].ID != "p" || all[0].Labels == nil || all[0].Tags != nil || all[1].Err == nil {
		t.Errorf("list: %+v", all)
	}
	for _, id := range []string{"p", "q"} {
		if err := w.DeleteProfile(ctx, id); err != nil {
			t.Error(err)
		}
	}
	if err := w.DeleteProfile(ctx, "p"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("delete of none: %v", err)
	}
	if left := must(w.ListProfiles(ctx))(t); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
}
