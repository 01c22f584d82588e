package legacy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/calico"
	"heddle/calico/client"
)

const (
	v1Port    = "/calico/v1/host/h/workload/o/w/endpoint/"
	v1Profile = "/calico/v1/policy/profile/"
	onePort   = `{"state":"active","name":"tap1","profile_id":"web","ipv4_nets":["10.0.0.1"]}`
	oneRules  = `{"inbound_rules":[{"protocol":"tcp","dst_ports":[80]}]}`
)

// view returns the view of an agent that reads both trees, each object in canonical form.
func view(t *testing.T, keys map[string]string) map[string]string {
	t.Helper()
	m, shown := NewMerger(), map[string]string{}
	for path, value := range keys {
		key, ok := calico.ParseKey(path)
		if !ok {
			continue
		}
		object, err := calico.Decode(key, []byte(value))
		if err != nil {
			object = err
		}
		for _, c := range m.Update(key, object).Changes {
			path := text(c.Key)
			raw, err := []byte(fmt.Sprint(c.Object)), error(nil)
			if _, invalid := c.Object.(error); !invalid && c.Object != nil {
				raw, err = calico.Encode(c.Key, c.Object)
			}
			if err != nil {
				t.Fatal(err)
			}
			if shown[path] = string(raw); c.Object == nil {
				delete(shown, path)
			}
		}
	}
	return shown
}

func (l *lab) plan() *Plan {
	l.t.Helper()
	p, err := NewMigration(l.client).Plan(context.Background())
	if err != nil {
		l.t.Fatal(err)
	}
	return p
}

// told returns a plan in short.
func told(p *Plan) string {
	var lines []string
	for _, s := range p.Steps() {
		to := ""
		if s.To != nil {
			to = " → " + text(s.To)
		}
		why := ""
		if s.Why != "" {
			why = " (" + s.Why + ")"
		}
		lines = append(lines, string(s.Outcome)+" "+text(s.From)+to+why)
	}
	return strings.Join(lines, "\n")
}

func TestMigration(t *testing.T) {
	t.Parallel()
	l, ctx := newLab(t), t.Context()
	m := NewMigration(l.client)
	l.put(
		portPath+"e1", `{"state":"active","name":"tap1","mac":"FA-16-3E-00-00-01","profile_id":"web","ipv4_nets":["10.0.0.1"],"ipv6_gateway":null,"colour":"blue"}`,
		profilePath+"web/refcount", "1", profilePath+"web/rules", oneRules, profilePath+"web/tags", `["A"]`,
		profilePath+"bare/refcount", "2",
		"/calico/policy/tag/x", "somebody else's",
		v1Profile+"other/tags", `["other"]`,
	)
	before := l.keys()
	want := strings.Join([]string{
		"copy " + portPath + "e1 → " + v1Port + "e1",
		"drop " + profilePath + "bare/refcount (v1 profiles have no reference count; this one says 2, and 0 endpoints name the profile)",
		"drop " + profilePath + "web/refcount (v1 profiles have no reference count)",
		"copy " + profilePath + "web/rules → " + v1Profile + "web/rules",
		"copy " + profilePath + "web/tags → " + v1Profile + "web/tags",
	}, "\n")
	if diff := cmp.Diff(want, told(l.plan())); diff != "" {
		t.Errorf("plan: -want +got\n%s", diff)
	}
	if diff := cmp.Diff(before, l.keys()); diff != "" {
		t.Errorf("a plan wrote: %s", diff)
	}
	if err := m.Remove(ctx, nil); !errors.Is(err, ErrRefused) {
		t.Errorf("removing what is not copied: %v", err)
	}
	after, err := m.Run(ctx, nil)
	if err != nil || len(after.Refusals()) > 0 || !strings.Contains(told(after), "same "+portPath+"e1") {
		t.Errorf("migrated: %v\n%s", err, told(after))
	}
	got := l.keys()
	for path, value := range before {
		if got[path] != value {
			t.Errorf("migrating changed %s", path)
		}
	}
	var e map[string]any
	if err := json.Unmarshal([]byte(got[v1Port+"e1"]), &e); err != nil || e["mac"] != "fa:16:3e:00:00:01" || e["colour"] != "blue" ||
		fmt.Sprint(e["profile_ids"]) != "[web]" || e["profile_id"] != nil {
		t.Errorf("the endpoint became %s", got[v1Port+"e1"])
	}
	revision := l.plan().Revision
	if _, err := m.Run(ctx, nil); err != nil || l.plan().Revision != revision {
		t.Errorf("migrating again: %v, revision %d, was %d", err, l.plan().Revision, revision)
	}
	shown := view(t, got)
	if err := m.Remove(ctx, nil); err != nil {
		t.Fatal(err)
	}
	for path := range l.keys() {
		if !strings.HasPrefix(path, "/calico/v1/") && path != "/calico/policy/tag/x" {
			t.Errorf("%s is left", path)
		}
	}
	if diff := cmp.Diff(shown, view(t, l.keys())); diff != "" {
		t.Errorf("removing changed what is shown: %s", diff)
	}
	if p := l.plan(); len(p.Steps()) != 0 || m.Remove(ctx, nil) != nil {
		t.Errorf("left to do: %s", told(p))
	}
}

// TestRefusals: what would lose or overwrite anything is refused by name, and the rest is migrated.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keys   []string
		want   []string // steps
		unlike string   // without these keys, joined by blanks, the migration goes through
	}{
		"v1 has another endpoint": {
			keys:   []string{portPath + "e", onePort, v1Port + "e", `{"state":"inactive","name":"tap1","profile_ids":["web"],"ipv4_nets":["10.0.0.1/32"],"labels":{"a":"b"}}`},
			want:   []string{"clash " + portPath + "e → " + v1Port + "e (the v1 object there differs in labels, state)"},
			unlike: v1Port + "e",
		},
		"v1 has an endpoint that is not valid": {
			keys:   []string{portPath + "e", onePort, v1Port + "e", `{"state":"inactive"}`},
			want:   []string{"clash " + portPath + "e → " + v1Port + "e (the v1 object there is not valid: WorkloadEndpoint: name: "},
			unlike: v1Port + "e",
		},
		"v1 has only labels of a profile": {
			keys: []string{profilePath + "web/rules", oneRules, profilePath + "web/refcount", "1", v1Profile + "web/labels", `{"a":"b"}`},
			want: []string{
				"held " + profilePath + "web/refcount (another part",
				"clash " + profilePath + "web/rules → " + v1Profile + "web/rules (the v1 tree has this profile without this part",
			},
			unlike: v1Profile + "web/labels",
		},
		"v1 has other tags": {
			keys: []string{profilePath + "web/rules", oneRules, profilePath + "web/tags", `["A"]`, v1Profile + "web/rules", oneRules, v1Profile + "web/tags", `["B"]`},
			want: []string{
				"held " + profilePath + "web/rules → " + v1Profile + "web/rules (another part",
				"clash " + profilePath + "web/tags → " + v1Profile + "web/tags (the v1 object there differs)",
			},
			unlike: v1Profile + "web/tags " + v1Profile + "web/rules",
		},
		"not JSON": {
			keys:   []string{portPath + "e", `{`},
			want:   []string{"invalid " + portPath + "e → " + v1Port + "e (WorkloadEndpoint: "},
			unlike: portPath + "e",
		},
		"a bad field": {
			keys:   []string{portPath + "e", `{"state":"active","name":"tap1","ipv4_nets":["10.0.0.0/8"]}`},
			want:   []string{"invalid " + portPath + "e → " + v1Port + `e (WorkloadEndpoint: ipv4_nets[0]: "10.0.0.0/8": `},
			unlike: portPath + "e",
		},
		"a bad rule holds its profile back": {
			keys: []string{profilePath + "web/rules", `{"inbound_rules":[{"dst_ports":[80]}]}`, profilePath + "web/tags", `["A"]`},
			want: []string{
				"invalid " + profilePath + "web/rules → " + v1Profile + "web/rules (ProfileRules: inbound_rules[0]",
				"held " + profilePath + "web/tags → " + v1Profile + "web/tags (another part",
			},
			unlike: profilePath + "web/rules",
		},
		"a key that is escaped otherwise": {
			keys:   []string{portPath + "e%41", onePort},
			want:   []string{"invalid " + portPath + "e%2541 → " + v1Port + "e%2541 (its key is written " + portPath + "e%41, which no program finds; want " + portPath + "e%2541)"},
			unlike: portPath + "e%41",
		},
		"a v1 key that is escaped otherwise": {
			keys:   []string{portPath + "e%2541", onePort, v1Port + "e%41", onePort},
			want:   []string{"clash " + portPath + "e%2541 → " + v1Port + "e%2541 (the v1 object there has its key written " + v1Port + "e%41)"},
			unlike: v1Port + "e%41",
		},
		"a count whose key is escaped otherwise": {
			keys:   []string{profilePath + "p%41/refcount", "1"},
			want:   []string{"invalid " + profilePath + "p%2541/refcount (its key is written "},
			unlike: profilePath + "p%41/refcount",
		},
		"a profile that profile_ids does not have": {
			keys:   []string{portPath + "e", `{"state":"active","name":"tap1","profile_id":"web","profile_ids":["db"]}`},
			want:   []string{"invalid " + portPath + "e → " + v1Port + "e (the v1 tree has no place for profile_id)"},
			unlike: portPath + "e",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, ctx := newLab(t), t.Context()
			m := NewMigration(l.client)
			l.put(c.keys...)
			shown := view(t, l.keys())
			l.put(portPath+"fine", onePort)
			after, err := m.Run(ctx, nil)
			if !errors.Is(err, ErrRefused) {
				t.Fatalf("error %v", err)
			}
			var got []string
			for _, line := range strings.Split(told(after), "\n") {
				if !strings.Contains(line, "fine") {
					got = append(got, line)
				}
			}
			if len(got) != len(c.want) {
				t.Errorf("steps\n%s", strings.Join(got, "\n"))
			}
			for i, w := range c.want {
				if i < len(got) && !strings.HasPrefix(got[i], w) {
					t.Errorf("step %s\nwant %s", got[i], w)
				}
			}
			if err := m.Remove(ctx, nil); !errors.Is(err, ErrRefused) {
				t.Errorf("removing in spite of a refusal: %v", err)
			}
			keys := l.keys()
			if keys[v1Port+"fine"] == "" {
				t.Error("the other endpoint was not migrated")
			}
			for i := 0; i < len(c.keys); i += 2 {
				if keys[c.keys[i]] != c.keys[i+1] {
					t.Errorf("%s became %s", c.keys[i], keys[c.keys[i]])
				}
			}
			delete(keys, portPath+"fine")
			delete(keys, v1Port+"fine")
			if diff := cmp.Diff(shown, view(t, keys)); diff != "" {
				t.Errorf("a refused object is shown otherwise: %s", diff)
			}
			for _, key := range strings.Fields(c.unlike) {
				l.del(key)
			}
			if _, err := m.Run(ctx, nil); err != nil {
				t.Errorf("without %s: %v", c.unlike, err)
			}
			if err := m.Remove(ctx, nil); err != nil {
				t.Errorf("without %s: %v", c.unlike, err)
			}
		})
	}
}

// dying is an etcd whose client is killed at a commit: before it is made, or before it is heard of.
type dying struct {
	etcd
	lives int
	heard bool
}

var errKilled = errors.New("killed")

func (d *dying) Commit(ctx context.Context, ops ...client.Op) (int64, error) {
	d.lives--
	if d.lives < 0 {
		return 0, errKilled
	}
	revision, err := d.etcd.Commit(ctx, ops...)
	if d.lives == 0 && !d.heard {
		return 0, errKilled
	}
	return revision, err
}

// TestMigrationIsKilled kills migrations and removals at each of their commits and begins again.
// What agents are shown is the same at every revision.
func TestMigrationIsKilled(t *testing.T) {
	t.Parallel()
	l, ctx := newLab(t), t.Context()
	var keys []string
	for i := range 150 {
		keys = append(keys, fmt.Sprintf("%se%03d", portPath, i), fmt.Sprintf(`{"state":"active","name":"tap%d","profile_id":"p%d"}`, i, i/2))
		if i%2 == 0 {
			id := fmt.Sprintf("%sp%d/", profilePath, i/2)
			keys = append(keys, id+"rules", oneRules, id+"tags", `["A"]`, id+"refcount", "2")
		}
	}
	l.put(keys...)
	start := l.plan().Revision
	shown := view(t, l.keys())
	killed := 0
	for round, finished := 1, false; !finished; round++ {
		m := &Migration{&dying{etcd: l.client, lives: round%3 + 1, heard: round%2 == 0}}
		_, err := m.Run(ctx, nil)
		if err == nil {
			err = m.Remove(ctx, nil)
		}
		switch {
		case err == nil:
			finished = true
		case errors.Is(err, errKilled):
			killed++
		default:
			t.Fatal(err)
		}
	}
	if killed < 4 {
		t.Errorf("killed %d times only", killed)
	}
	for path := range l.keys() {
		if !strings.HasPrefix(path, "/calico/v1/") {
			t.Errorf("%s is left", path)
		}
	}
	l.history(start, func(revision int64, keys map[string]string) {
		if diff := cmp.Diff(shown, view(t, keys)); diff != "" {
			t.Errorf("revision %d shows something else: %s", revision, diff)
		}
	})
}

// TestMigrationMeetsWriters: what changes under a migration is looked at again, and never
// overwritten or lost.
func TestMigrationMeetsWriters(t *testing.T) {
	t.Parallel()
	other := `{"state":"inactive","name":"tap1","profile_id":"web","ipv4_nets":["10.0.0.1"]}`
	for name, c := range map[string]struct {
		meddle  func(*lab)
		wantErr error
		want    map[string]string // members of the view that are checked: path to a part of the value
	}{
		"a legacy endpoint changes": {
			meddle: func(l *lab) { l.put(portPath+"e1", other) },
			want:   map[string]string{v1Port + "e1": `"inactive"`, v1Port + "e2": `"active"`},
		},
		"a legacy endpoint goes": {
			meddle: func(l *lab) { l.del(portPath + "e1") },
			want:   map[string]string{v1Port + "e1": "", v1Port + "e2": `"active"`},
		},
		"a v1 endpoint comes": {
			meddle:  func(l *lab) { l.put(v1Port+"e1", `{"state":"inactive","name":"new"}`) },
			wantErr: ErrRefused,
			want:    map[string]string{v1Port + "e1": `"new"`, v1Port + "e2": `"active"`},
		},
		"tags come to a profile that had none": {
			meddle: func(l *lab) { l.put(profilePath+"web/tags", `["late"]`) },
			want:   map[string]string{v1Profile + "web/tags": `"late"`, v1Port + "e2": `"active"`},
		},
		"v1 labels come to a profile": {
			meddle:  func(l *lab) { l.put(v1Profile+"web/labels", `{"a":"b"}`) },
			wantErr: ErrRefused,
			want:    map[string]string{v1Profile + "web/labels": `"b"`, v1Profile + "web/rules": "", v1Port + "e2": `"active"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, ctx := newLab(t), t.Context()
			l.put(portPath+"e1", onePort, portPath+"e2", onePort, profilePath+"web/rules", oneRules)
			m := &Migration{&meddler{etcd: l.client, before: []func(){func() { c.meddle(l) }}}}
			if _, err := m.Run(ctx, nil); !errors.Is(err, c.wantErr) {
				t.Errorf("error %v, want %v", err, c.wantErr)
			}
			keys := l.keys()
			for path, part := range c.want {
				if got, there := keys[path]; !strings.Contains(got, part) || part == "" && there {
					t.Errorf("%s is %q, want %q in it", path, got, part)
				}
			}
			// Deleting meets the same: nothing goes that v1 does not have.
			shown := view(t, keys)
			late := &Migration{&meddler{etcd: l.client, before: []func(){func() { l.put(portPath+"e2", other) }}}}
			if err := late.Remove(ctx, nil); !errors.Is(err, ErrRefused) {
				t.Errorf("removing while a legacy endpoint changes: %v", err)
			}
			got := l.keys()
			if c.wantErr == nil && got[portPath+"e2"] != other {
				t.Errorf("the changed endpoint was removed: %v", got)
			}
			if diff := cmp.Diff(shown, view(t, got)); diff != "" {
				t.Errorf("removing changed what is shown: %s", diff)
			}
		})
	}
}

// TestOverlap: a unit that is overtaken holds up none of those that share its transaction.
func TestOverlap(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.put(portPath+"e1", onePort, portPath+"e2", onePort)
	m := &Migration{&meddler{etcd: l.client, before: []func(){func() { l.put(portPath+"e1", onePort+" ") }, func() { l.put(portPath+"e1", onePort) }}}}
	if _, err := m.Run(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	got := maps.Clone(l.keys())
	if got[v1Port+"e1"] == "" || got[v1Port+"e2"] == "" {
		t.Errorf("%v", got)
	}
}
